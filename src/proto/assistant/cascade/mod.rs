//! The engine of the bot `cascade`: a recogniser, a chat model and a voice as three services.
//!
//! In: the caller's PCM at [`RECOGNIZER_RATE_HZ`], what the services answer, the playout, and
//! `now`. Out: [`CascadeOutput`], and PCM at the rate of the line by [`Cascade::next_speech`].
//! After each input, drain [`Cascade::poll_output`] and ask for speech. Every request to a service
//! has an identifier, which its answers carry; answers to a request that is over are ignored.
//!
//! The recogniser is opened when the caller begins to speak. The model's text is spoken sentence by
//! sentence while it still writes. Speech of the caller before any of an answer was heard drops the
//! answer, and its text joins the question. Speech during an answer silences it; the answer is
//! dropped with the first recognised word, and goes on with its next sentence without one.

mod answer;
mod caller_detector;
mod chat_history;
pub mod doctor;
mod failures;
mod recognitions;
mod services;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::answer_stopwatch::AnswerStopwatch;
use super::body::BodyOptions;
use super::config::{AssistantConfig, Greeting};
use super::functions::{self, FunctionAnswer, FunctionHost, FunctionReplies, Functions, KeyPresses};
use super::keypad::Keypad;
use super::lifetime::{Lifetime, LifetimeEvent};
use super::playback::SpeechPlayback;
use super::press_keys;
use super::report::{AssistantCount, CallProfile, ClientReport, EndReason, FunctionCall, ResponseStatus, SpeechMark};
use super::sound::{self, ThinkingTicks};
use crate::audio::rate_converter::RateConverter;
use crate::kit::{self, TurnBoundary, TurnDetector, TurnRules};
use crate::rtvi::TextOptions;
use answer::{Answer, SpeechState};
use caller_detector::CallerDetector;
use chat_history::ChatHistory;
use failures::{CascadeService, ServiceRecord};
use recognitions::Recognitions;

pub use chat_history::ChatCall;

/// Rate of the caller's audio: that of recognisers.
pub const RECOGNIZER_RATE_HZ: u32 = 16_000;
/// Samples that are sent to the recogniser at once: 80 ms.
const PIECE_SAMPLES: usize = 1_280;
/// Time from the first speech in which it cannot be interrupted: echo cancellers adapt in it.
const NO_BARGE_IN: Duration = Duration::from_secs(2);
/// Speech that waits to be heard, above which no more is wanted.
const SPEECH_WANTED: Duration = Duration::from_secs(10);
/// Failures that a session logs.
const LOGGED_MAX: u32 = 16;
/// Messages with calls of functions in one answer.
const ROUNDS_MAX: usize = 8;
/// Texts that wait for the end of an answer.
const LATER_MAX: usize = 8;
/// What the model is told for the greeting.
const GREET: &str = "(The call begins. Greet the caller in one short sentence.)";
/// What it is told if the greeting is the operator's.
const GREETED: &str = "(The call begins.)";
/// Output of a function whose answer is dropped.
const INTERRUPTED: &str = "the caller interrupted";
/// Items of the playout that are no sentences.
const TICK_ITEM: &str = "tick";
const FAILURE_ITEM: &str = "failure";

/// An output of the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum CascadeOutput {
    /// Open the recogniser.
    StartRecognition {
        id: u64,
    },
    /// Send it PCM at [`RECOGNIZER_RATE_HZ`].
    RecognizeAudio {
        id: u64,
        pcm: Vec<i16>,
    },
    /// The utterance is complete: ask for its text.
    FinishRecognition {
        id: u64,
    },
    /// Ask the model.
    StartChat {
        id: u64,
        request: ChatRequest,
    },
    /// Ask for the speech of a sentence.
    Synthesize {
        id: u64,
        text: String,
    },
    /// Close the connection of a request. It may be over already.
    Cancel {
        id: u64,
    },
    /// Drop the queued speech, and the piece that waits to be queued.
    Interrupt,
    Report(ClientReport),
    /// Run a function of the operator, and give its result to the engine.
    RunFunction(FunctionCall),
    Count(AssistantCount),
    /// A failure after which the session goes on, without text of a service.
    Log(String),
    /// The session is over once the remaining speech has been played.
    End(EndReason),
}

/// What the model is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// In the shape of chat completions, the instructions first.
    pub messages: Vec<Value>,
    /// Functions, in the same shape.
    pub tools: Vec<Value>,
    pub temperature: Option<f64>,
}

/// How the model ended a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatEnd {
    /// By itself, or to call functions.
    Complete,
    /// At the cap of its length, or by a filter.
    CutOff,
}

/// One session.
pub struct Cascade {
    config: Arc<AssistantConfig>,
    profile: CallProfile,
    body: BodyOptions,
    tools: Vec<Value>,
    /// Whether the functions of the operator are still unknown.
    awaits_functions: bool,
    outputs: VecDeque<CascadeOutput>,
    /// The newest request.
    requests: u64,
    /// The newest sentence.
    sentences: u32,
    has_joined: bool,
    /// Whether the caller hears nothing: it holds the call, or the room has muted the bot.
    is_on_hold: bool,
    greeting_due: bool,
    turns: TurnDetector<CallerDetector>,
    recognitions: Recognitions,
    /// The recogniser that hears the caller, and audio that waits for a piece to be full.
    hearing: Option<u64>,
    caller_audio: Vec<i16>,
    /// The recognition of the utterance that the caller still speaks, if it has failed.
    failed_hearing: Option<u64>,
    history: ChatHistory,
    answer: Option<Answer>,
    /// Whether the model has to answer, and whether with text alone.
    due: Option<bool>,
    /// What became of the requests to each service, by [`CascadeService`].
    records: [ServiceRecord; 3],
    /// The oldest turns that the model does not get, since it rejected them.
    skipped_turns: usize,
    /// Whether the model was asked again for an answer without a word.
    has_asked_again: bool,
    /// Texts that the history gets after the current answer.
    later: Vec<String>,
    /// The request and the sentence of the speech that is being made.
    synthesis: Option<(u64, u32)>,
    converter: Option<RateConverter>,
    playback: SpeechPlayback,
    functions: Functions,
    /// Keys to press once the answer was heard.
    presses: Vec<KeyPresses>,
    keypad: Keypad,
    lifetime: Lifetime,
    stopwatch: AnswerStopwatch,
    /// When the first speech of the session began to leave.
    first_speech_at: Option<Instant>,
    ticks: ThinkingTicks,
    logged: u32,
    /// The session ends once the current answer was heard.
    hangs_up: bool,
    is_over: bool,
}

impl Cascade {
    /// Creates a session.
    pub fn new(config: Arc<AssistantConfig>, profile: CallProfile, body: BodyOptions, now: Instant) -> Self {
        let rules = TurnRules {
            pause: config.cascade.end_of_turn,
            ..TurnRules::default()
        };
        let detector = CallerDetector::new(config.cascade.detector);
        let mut session = Cascade {
            functions: Functions::default(),
            presses: Vec::new(),
            tools: Vec::new(),
            awaits_functions: config.tools.is_some(),
            outputs: VecDeque::new(),
            requests: 0,
            sentences: 0,
            has_joined: false,
            is_on_hold: false,
            greeting_due: body.greeting && config.greeting != Greeting::Off,
            turns: TurnDetector::with_detector(rules, RECOGNIZER_RATE_HZ, detector),
            recognitions: Recognitions::default(),
            hearing: None,
            failed_hearing: None,
            caller_audio: Vec::new(),
            history: ChatHistory::default(),
            answer: None,
            due: None,
            records: Default::default(),
            skipped_turns: 0,
            has_asked_again: false,
            later: Vec::new(),
            synthesis: None,
            converter: None,
            playback: SpeechPlayback::new(profile.line.rate_hz()),
            keypad: Keypad::default(),
            lifetime: Lifetime::new(&config, profile.is_telephone, body.minutes_max, now),
            stopwatch: AnswerStopwatch::default(),
            first_speech_at: None,
            ticks: ThinkingTicks::default(),
            logged: 0,
            hangs_up: false,
            is_over: false,
            config,
            profile,
            body,
        };
        session.declare(&[]);
        session
    }

    /// The operator's functions are known, or cannot be used any more. The model is not asked
    /// before.
    pub fn handle_functions(&mut self, of_tools: &[Value], now: Instant) {
        self.awaits_functions = false;
        let outputs = self.functions.abort("the function cannot be run now");
        if let Some(answer) = self.answer.as_mut().filter(|answer| answer.chat.is_none()) {
            answer.is_due |= !outputs.is_empty();
        }
        self.add_outputs(outputs);
        self.declare(of_tools);
        self.advance(now);
    }

    fn declare(&mut self, of_tools: &[Value]) {
        self.tools = functions::declared(self.config.of_pages(), of_tools, &self.body.tools, &self.profile);
        self.functions = Functions::new(&self.tools, of_tools);
    }

    // ---- the caller

    /// The caller is connected.
    pub fn handle_joined(&mut self, now: Instant) {
        if !self.profile.greet_on_ready {
            self.begin(now);
        }
    }

    /// The client is ready.
    pub fn handle_ready(&mut self, now: Instant) {
        self.begin(now);
    }

    /// The caller hears nothing of the bot, or hears it again. Meanwhile speech waits, and music
    /// that the line plays is no turn.
    pub fn handle_hold(&mut self, is_on_hold: bool, now: Instant) {
        self.is_on_hold = is_on_hold;
        self.lifetime.keep(now);
        self.advance(now);
    }

    /// Audio of the caller, at [`RECOGNIZER_RATE_HZ`].
    pub fn handle_audio(&mut self, pcm: &[i16], now: Instant) {
        if self.is_over || !self.has_joined || self.is_on_hold {
            return;
        }
        let is_sounding = self.is_sounding();
        // What speaks while keys are pressed is the menu that they are for.
        if is_sounding && !self.can_be_interrupted(now) || self.is_pressing() {
            self.turns.reset();
            return;
        }
        match self.turns.handle_audio(pcm, is_sounding, now, &mut self.caller_audio) {
            Some(TurnBoundary::Started) => self.handle_turn_started(now),
            Some(TurnBoundary::Ended(turn)) => self.handle_turn_ended(turn.spoken_until, now),
            None => {}
        }
        if self.caller_audio.len() >= PIECE_SAMPLES {
            self.send_caller_audio();
        }
        self.advance(now);
    }

    /// A text that the caller typed.
    pub fn handle_text(&mut self, content: &str, options: TextOptions, now: Instant) {
        if self.is_over {
            return;
        }
        self.lifetime.keep(now);
        if options.run_immediately {
            self.drop_answer();
        }
        self.add_later(content);
        self.due = Some(self.body.text_only || !options.audio_response);
        self.advance(now);
    }

    /// A key of the telephone. Keys are sent together, at `#` or after a pause.
    pub fn handle_dtmf(&mut self, key: char, now: Instant) {
        self.lifetime.keep(now);
        let keys = self.keypad.push(key, now);
        self.handle_keys(keys, now);
    }

    /// The result of a function that the client, or what the operator configured, has run.
    pub fn handle_function_result(&mut self, host: FunctionHost, call_id: &str, result: &Value, now: Instant) {
        let answers = self.functions.handle_result(host, call_id, result);
        self.answer_functions(answers);
        self.advance(now);
    }

    // ---- playout

    /// Takes the next speech, at most 100 ms. The mark is to be set behind it.
    pub fn next_speech(&mut self, pcm: &mut Vec<i16>) -> Option<SpeechMark> {
        if self.is_on_hold {
            return None;
        }
        let mark = self.playback.next_piece(pcm)?;
        let item = self.playback.newest_item().and_then(sentence_number);
        let mut begins = None;
        if let (Some(number), Some(answer)) = (item, &mut self.answer) {
            answer.is_audible = true;
            if let Some(sentence) = answer.sentence(number).filter(|sentence| !sentence.is_leaving) {
                sentence.is_leaving = true;
                begins = Some((number, sentence.text.clone()));
            }
        }
        if let Some((id, text)) = begins {
            self.tell(ClientReport::SentenceBegins { id, text });
        }
        Some(mark)
    }

    /// Returns whether to read more speech of the voice, which may run ahead.
    pub fn wants_speech(&self) -> bool {
        self.playback.waiting() < SPEECH_WANTED
    }

    /// A mark of [`Cascade::next_speech`] came back.
    pub fn handle_mark(&mut self, name: &str, is_played: bool, now: Instant) {
        self.lifetime.keep(now);
        if let Some(item) = self.playback.handle_mark(name, is_played) {
            self.handle_progress(&item, now);
            self.playback.forget_played();
            if let Some(call_id) = press_keys::call_of(&item)
                && !self.playback.has_item(|known| known == item)
            {
                let answers = self.functions.handle_keys_pressed(call_id);
                self.answer_functions(answers);
            }
        }
        self.advance(now);
    }

    /// The bot's speech begins to leave.
    pub fn handle_speech_started(&mut self, now: Instant) {
        if self.answer.as_ref().is_some_and(|answer| answer.is_audible) {
            self.first_speech_at.get_or_insert(now);
            self.count_first_sound(now);
        }
    }

    // ---- time

    /// Returns when to call [`Cascade::handle_timeout`].
    pub fn poll_timeout(&self) -> Instant {
        let soon = [
            self.turns.poll_timeout(),
            self.keypad.poll_timeout(),
            self.functions.poll_timeout(),
            self.ticks.poll_timeout(),
        ];
        let retries = self.records.iter().map(ServiceRecord::retry_at);
        let soon = soon.into_iter().chain(retries);
        let lifetime = self.lifetime.poll_timeout(self.turns.is_in_turn(), self.can_answer());
        soon.flatten().fold(lifetime, Instant::min)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_over {
            return;
        }
        if let Some(TurnBoundary::Ended(turn)) = self.turns.handle_timeout(now) {
            self.handle_turn_ended(turn.spoken_until, now);
        }
        // Who waits for a service, or holds the call, is silent for that.
        if self.is_on_hold || self.records.iter().any(|record| record.retry_at().is_some()) {
            self.lifetime.keep(now);
        }
        for record in &mut self.records {
            record.handle_timeout(now);
        }
        let keys = self.keypad.handle_timeout(now);
        self.handle_keys(keys, now);
        let answers = self.functions.handle_timeout(now);
        self.answer_functions(answers);
        if self.ticks.handle_timeout(now) {
            let tick = sound::tick(self.profile.line.rate_hz());
            self.playback.push_local(TICK_ITEM, &tick);
        }
        let is_in_turn = self.turns.is_in_turn();
        match self.lifetime.handle_timeout(is_in_turn, self.can_answer(), now) {
            Some(LifetimeEvent::Goodbye(text)) => {
                self.add_later(&format!("({text})"));
                self.due = Some(self.body.text_only);
            }
            Some(LifetimeEvent::Over(why)) => self.end(EndReason::Done(why)),
            None => {}
        }
        self.advance(now);
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<CascadeOutput> {
        self.outputs.pop_front()
    }

    // ---- the turns of the caller

    fn begin(&mut self, now: Instant) {
        self.lifetime.keep(now);
        if self.has_joined || self.is_over {
            return;
        }
        self.has_joined = true;
        if std::mem::take(&mut self.greeting_due) {
            match self.config.greeting.clone() {
                Greeting::Text(text) => self.greet(&text),
                Greeting::Default | Greeting::Off => {
                    self.history.add_caller(GREET);
                    self.due = Some(self.body.text_only);
                }
            }
        }
        self.advance(now);
    }

    /// Speaks a text without the model.
    fn greet(&mut self, text: &str) {
        self.history.add_caller(GREETED);
        let message = self.history.begin_bot();
        let mut answer = Answer::new(message, self.body.text_only);
        self.history.push_bot(message, text);
        answer.push_text(text, &mut self.sentences);
        answer.finish_text(&mut self.sentences);
        if answer.is_text_only {
            self.tell(ClientReport::Shown(text.to_owned()));
        }
        self.answer = Some(answer);
    }

    fn handle_turn_started(&mut self, now: Instant) {
        self.lifetime.keep(now);
        self.stopwatch.clear();
        self.report(ClientReport::UserStartedSpeaking);
        if self.is_sounding() && self.answer.as_ref().is_some_and(|answer| answer.is_audible) {
            self.count(AssistantCount::BargeIn);
        }
        self.silence();
        match &mut self.answer {
            Some(answer) if answer.is_audible => {
                answer.suspend();
                self.cancel_synthesis();
            }
            Some(answer) => {
                self.due = Some(answer.is_text_only);
                self.drop_answer();
            }
            None => {}
        }
        let id = self.next_request();
        if let Some(oldest) = self.recognitions.push(id) {
            self.outputs.push_back(CascadeOutput::Cancel { id: oldest });
        }
        self.hearing = Some(id);
        self.record(CascadeService::Recognizer).handle_asked(now);
        self.outputs.push_back(CascadeOutput::StartRecognition { id });
    }

    fn handle_turn_ended(&mut self, spoken_until: Instant, now: Instant) {
        self.send_caller_audio();
        self.lifetime.keep(now);
        self.stopwatch.begin(spoken_until);
        self.report(ClientReport::UserStoppedSpeaking);
        if let Some(id) = self.hearing.take() {
            // The caller may have spoken for longer than its patience.
            self.record(CascadeService::Recognizer).handle_asked(now);
            self.outputs.push_back(CascadeOutput::FinishRecognition { id });
        }
        if let Some(id) = self.failed_hearing.take() {
            self.handle_not_understood(id, now);
        }
    }

    fn send_caller_audio(&mut self) {
        let pcm = std::mem::take(&mut self.caller_audio);
        if let Some(id) = self.hearing.filter(|_| !pcm.is_empty()) {
            let length = Duration::from_micros(pcm.len() as u64 * 1_000_000 / u64::from(RECOGNIZER_RATE_HZ));
            self.count(AssistantCount::AudioSent(length));
            self.outputs.push_back(CascadeOutput::RecognizeAudio { id, pcm });
        }
    }

    fn handle_keys(&mut self, keys: Option<String>, now: Instant) {
        let Some(keys) = keys.filter(|_| !self.is_over) else {
            return;
        };
        self.drop_answer();
        self.add_later(&keys);
        self.due = Some(self.body.text_only);
        self.advance(now);
    }

    /// Adds a text to the history, behind the answer in progress.
    fn add_later(&mut self, text: &str) {
        if self.later.len() < LATER_MAX {
            self.later.push(text.to_owned());
        }
    }

    // ---- the answer

    /// Does what the last input has made possible.
    fn advance(&mut self, now: Instant) {
        if self.is_over {
            return;
        }
        self.take_played_sentences();
        self.resume_answer(now);
        self.press_keys();
        self.finish_answer();
        self.start_answer(now);
        self.synthesize(now);
        self.plan_tick(now);
    }

    /// Returns whether the caller has said all, as far as the recogniser knows.
    fn is_caller_done(&self) -> bool {
        !self.turns.is_in_turn() && self.recognitions.is_empty()
    }

    fn resume_answer(&mut self, now: Instant) {
        let is_caller_done = self.is_caller_done();
        let may_ask = self.record(CascadeService::Model).retry_at().is_none();
        if let Some(answer) = self.answer.as_mut().filter(|_| is_caller_done) {
            answer.is_suspended = false;
            if may_ask && std::mem::take(&mut answer.is_due) {
                self.continue_answer(now);
            }
        }
    }

    fn start_answer(&mut self, now: Instant) {
        let is_ready = self.has_joined && self.is_caller_done() && !self.awaits_functions;
        let may_ask = self.record(CascadeService::Model).retry_at().is_none();
        if self.answer.is_some() || !is_ready || !may_ask {
            return;
        }
        for text in std::mem::take(&mut self.later) {
            self.history.add_caller(&text);
        }
        let Some(is_text_only) = self.due.take() else { return };
        let request = self.chat_request();
        let message = self.history.begin_bot();
        let mut answer = Answer::new(message, is_text_only);
        answer.chat = Some(self.ask(request, now));
        self.answer = Some(answer);
    }

    /// Asks the model again, with the outputs of functions.
    fn continue_answer(&mut self, now: Instant) {
        let request = self.chat_request();
        let message = self.history.begin_bot();
        let id = self.ask(request, now);
        if let Some(answer) = &mut self.answer {
            answer.begin_message(message);
            answer.chat = Some(id);
            answer.rounds += 1;
        }
    }

    fn ask(&mut self, request: ChatRequest, now: Instant) -> u64 {
        let id = self.next_request();
        self.record(CascadeService::Model).handle_asked(now);
        self.outputs.push_back(CascadeOutput::StartChat { id, request });
        self.report(ClientReport::LlmStarted);
        id
    }

    fn chat_request(&self) -> ChatRequest {
        ChatRequest {
            messages: self.history.messages(&self.body.instructions, self.skipped_turns),
            tools: self.tools.iter().map(nested).collect(),
            temperature: self.body.temperature,
        }
    }

    fn synthesize(&mut self, now: Instant) {
        if self.synthesis.is_some() || self.record(CascadeService::Voice).retry_at().is_some() {
            return;
        }
        let Some(sentence) = self.answer.as_mut().and_then(Answer::next_to_synthesize) else {
            return;
        };
        sentence.speech = SpeechState::Synthesizing;
        let (number, text) = (sentence.number, sentence.text.clone());
        let id = self.next_request();
        self.record(CascadeService::Voice).handle_asked(now);
        self.synthesis = Some((id, number));
        self.converter = None;
        self.outputs.push_back(CascadeOutput::Synthesize { id, text });
    }

    fn handle_progress(&mut self, item: &str, now: Instant) {
        let Some(number) = sentence_number(item) else { return };
        self.count_first_sound(now);
        self.first_speech_at.get_or_insert(now);
        let Some((played, received)) = self.playback.progress(item) else {
            return;
        };
        let rate_hz = self.profile.line.rate_hz() as usize;
        let Some(sentence) = self.answer.as_mut().and_then(|answer| answer.sentence(number)) else {
            return;
        };
        // While speech still arrives, or if its end never comes, its length is estimated: 15
        // characters take a second.
        let length = match sentence.speech {
            SpeechState::Complete if !sentence.is_cut => received,
            _ => received.max(sentence.text.chars().count() * rate_hz / 15),
        };
        sentence.played_bytes = sentence.text.len() * played / length.max(1);
        let bytes = sentence.played_bytes;
        self.tell(ClientReport::SentenceSpoken { id: number, bytes });
    }

    fn take_played_sentences(&mut self) {
        let playback = &self.playback;
        let Some(answer) = &mut self.answer else { return };
        let taken = answer.take_played(|number| playback.progress(&sentence_item(number)).is_none());
        for (id, bytes) in taken {
            self.tell(ClientReport::SentenceSpoken { id, bytes });
        }
    }

    /// Presses the keys of the answer once its sentences were heard.
    fn press_keys(&mut self) {
        let is_spoken = |answer: &Answer| answer.is_spoken() && !answer.is_suspended && answer.chat.is_none();
        if !self.answer.as_ref().is_some_and(is_spoken) || !self.is_caller_done() {
            return;
        }
        for KeyPresses { call_id, tones } in std::mem::take(&mut self.presses) {
            let pcm = kit::tones(&tones, self.profile.line.rate_hz());
            if !self.playback.push_local(&press_keys::item_of(&call_id), &pcm) {
                let answers = self.functions.handle_keys_dropped();
                self.answer_functions(answers);
            }
        }
    }

    /// Ends an answer that was heard, with its functions.
    fn finish_answer(&mut self) {
        let is_finished = self.answer.as_ref().is_some_and(|answer| {
            answer.chat.is_none() && answer.is_spoken() && !answer.is_due && !answer.is_suspended
        });
        if !is_finished || self.functions.is_waiting() {
            return;
        }
        if let Some(answer) = self.answer.take() {
            // The model would take what the voice refused for said. Otherwise its text stays as it
            // wrote it.
            let has_gaps = answer.has_gaps;
            for (message, played) in answer.into_played() {
                match has_gaps {
                    true => self.history.set_played(message, &played),
                    false => self.history.finish_bot(message),
                }
            }
        }
        if self.hangs_up {
            self.end(EndReason::Done("the model ended the call"));
        }
    }

    /// Drops the answer; the history keeps what was heard of it.
    fn drop_answer(&mut self) {
        self.silence();
        self.cancel_synthesis();
        let Some(answer) = self.answer.take() else { return };
        if let Some(id) = answer.chat {
            self.outputs.push_back(CascadeOutput::Cancel { id });
            self.count(AssistantCount::Response(ResponseStatus::Cancelled));
            self.report(ClientReport::LlmStopped);
        }
        let outputs = self.functions.abort(INTERRUPTED);
        self.add_outputs(outputs);
        self.presses.clear();
        self.hangs_up = false;
        for (message, text) in answer.into_played() {
            self.history.set_played(message, &text);
        }
    }

    fn cancel_synthesis(&mut self) {
        if let Some((id, _)) = self.synthesis.take() {
            self.outputs.push_back(CascadeOutput::Cancel { id });
        }
    }

    /// Drops the speech that was not heard.
    fn silence(&mut self) {
        if self.playback.is_speaking() {
            self.playback.interrupt();
            self.outputs.push_back(CascadeOutput::Interrupt);
        }
    }

    fn answer_functions(&mut self, answers: FunctionReplies) {
        self.add_outputs(answers.outputs);
        if !answers.wants_response || self.hangs_up {
            return;
        }
        match &mut self.answer {
            Some(answer) if answer.rounds >= ROUNDS_MAX => self.log("the model calls functions without end".to_owned()),
            Some(answer) => answer.is_due = true,
            None => {}
        }
    }

    fn add_outputs(&mut self, outputs: Vec<FunctionAnswer>) {
        for answer in outputs {
            self.history.add_output(&answer.call_id, &answer.output);
            if answer.is_reported {
                self.report(ClientReport::FunctionStopped {
                    call_id: answer.call_id,
                    name: answer.name,
                    is_cancelled: answer.is_cancelled,
                });
            }
        }
    }

    // ---- inside

    fn end(&mut self, reason: EndReason) {
        if self.is_over {
            return;
        }
        let has_failed = matches!(reason, EndReason::Failed(_));
        if has_failed {
            self.drop_answer();
        }
        self.is_over = true;
        self.cancel_synthesis();
        let chat = self.answer.as_mut().and_then(|answer| answer.chat.take());
        let requests: Vec<u64> = chat.into_iter().chain(self.recognitions.take()).collect();
        self.outputs
            .extend(requests.into_iter().map(|id| CascadeOutput::Cancel { id }));
        if has_failed {
            let wav = self.config.failure_sound.clone();
            self.play(&sound::failure(self.profile.line.rate_hz(), wav.as_deref()));
        }
        self.outputs.push_back(CascadeOutput::End(reason));
    }

    /// Plans the next tick while the caller waits for an answer in silence.
    fn plan_tick(&mut self, now: Instant) {
        let is_thinking = match &self.answer {
            Some(answer) => !answer.is_text_only && !answer.is_suspended && !answer.is_sounding(),
            None => self.due.is_some() || !self.recognitions.is_empty(),
        };
        let is_muted = self.body.text_only || self.is_pressing() || self.is_on_hold;
        let is_silent = is_muted || self.turns.is_in_turn() || !self.has_joined || self.is_over;
        self.ticks.plan(is_thinking && !is_silent, now);
    }

    fn count_first_sound(&mut self, now: Instant) {
        if let Some(answer) = self.stopwatch.handle_sound(now) {
            self.count(AssistantCount::FirstSound(answer.latency));
            self.report(ClientReport::FirstSound(answer));
        }
    }

    /// Returns whether the bot is heard.
    fn is_sounding(&self) -> bool {
        self.answer.as_ref().is_some_and(Answer::is_sounding)
    }

    /// Returns whether an answer would reach the caller.
    fn can_answer(&self) -> bool {
        self.has_joined && !self.is_on_hold
    }

    /// Returns whether keys are pressed.
    fn is_pressing(&self) -> bool {
        self.playback.has_item(|item| press_keys::call_of(item).is_some())
    }

    fn can_be_interrupted(&self, now: Instant) -> bool {
        self.config.interrupt && self.first_speech_at.is_some_and(|at| now >= at + NO_BARGE_IN)
    }

    fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Reports a text, unless texts are off.
    fn tell(&mut self, report: ClientReport) {
        if self.config.transcripts {
            self.report(report);
        }
    }

    fn report(&mut self, report: ClientReport) {
        self.outputs.push_back(CascadeOutput::Report(report));
    }

    fn count(&mut self, count: AssistantCount) {
        self.outputs.push_back(CascadeOutput::Count(count));
    }

    fn log(&mut self, words: String) {
        self.logged += 1;
        if self.logged <= LOGGED_MAX {
            self.outputs.push_back(CascadeOutput::Log(words));
        }
    }
}

/// Returns the item of the playout for a sentence.
fn sentence_item(number: u32) -> String {
    format!("sentence {number}")
}

fn sentence_number(item: &str) -> Option<u32> {
    item.strip_prefix("sentence ")?.parse().ok()
}

/// Returns a function in the shape of chat completions, which nests it.
fn nested(tool: &Value) -> Value {
    let mut function = tool.clone();
    if let Some(fields) = function.as_object_mut() {
        fields.remove("type");
    }
    json!({"type": "function", "function": function})
}

#[cfg(test)]
mod tests;
