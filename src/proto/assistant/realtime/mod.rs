//! The engine of the bot `realtime`: one session with a speech-to-speech service.
//!
//! In: events of the service, of the caller and of the playout, and `now`. Out: [`RealtimeOutput`],
//! and PCM by [`Realtime::next_speech`]. After each input, drain [`Realtime::poll_output`] and ask
//! for speech. The service hears all audio, finds the turns and speaks; the engine answers an
//! interruption with the position at which the caller stopped hearing the bot, has functions run by
//! the client's page or what the operator configured, and renews a connection that is lost or
//! too old.

mod call_drafts;
mod caller_audio;
mod client_event;
pub mod doctor;
mod errors;
mod server_event;
mod service;
mod speech_text;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::answer_stopwatch::AnswerStopwatch;
use super::body::BodyOptions;
use super::config::{AssistantConfig, Greeting, RealtimeConfig};
use super::functions::{self, FunctionAnswer, FunctionHost, FunctionReplies, Functions, KeyPresses};
use super::keypad::Keypad;
use super::lifetime::{Lifetime, LifetimeEvent};
use super::outage::{Outage, OutageStep};
use super::playback::SpeechPlayback;
use super::press_keys;
use super::report::{
    AssistantCount, CallProfile, ClientReport, ConnectionOutcome, EndReason, RealtimeOutput, ServiceConnect,
    ServiceLog, SpeechMark,
};
use super::service_url::Dialect;
use super::sound::{self, ThinkingTicks};
use crate::audio::last_speech::LastSpeech;
use crate::kit::{self, Speaker, Transcript};
use crate::rtvi::TextOptions;
use crate::secret::Secret;
use call_drafts::CallDrafts;
use caller_audio::CallerAudio;
use server_event::CalledFunction;
use speech_text::SpeechText;

pub use errors::{classify, of_failure};
pub use server_event::{ErrorNames, ServerEvent, parse as parse_event, refusal_code};

/// Time from the open connection to the accepted session.
const SESSION_WITHIN: Duration = Duration::from_secs(5);
/// Age at which a connection is renewed: services end theirs after 60 minutes.
const RENEW_AFTER: Duration = Duration::from_secs(50 * 60);
/// Texts that a new connection is told.
const TEXTS_MAX: usize = 20;
/// Failures that a session logs.
const LOGGED_MAX: u32 = 16;
/// Text of a failure that may pass.
const HOLD_ON: &str = "The assistant waits for its service; please hold on.";
/// What the model is asked for when the words of the caller are lost with the connection.
const SAY_AGAIN: &str = "The connection was lost for a moment, and with it what the caller said last. Say so in one short \
                         sentence, in the language of the conversation, and ask the caller to say it again.";
/// Items of the playout that are not of the service.
const TICK_ITEM: &str = "tick";
const FAILURE_ITEM: &str = "failure";
/// Cancelled responses whose delayed events are recognised.
const CANCELLED_MAX: usize = 16;

/// The connection to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A connection is being opened.
    Connecting,
    /// It is open, and the service has to create and accept the session until then.
    Opening {
        until: Instant,
    },
    Ready {
        since: Instant,
    },
    /// The next attempt begins then.
    Waiting {
        until: Instant,
    },
    Over,
}

/// The response in progress. The service has at most one.
#[derive(Debug)]
struct ActiveResponse {
    /// Unknown until the service has created it.
    id: Option<String>,
    /// Whether the caller was told that it failed.
    is_failure_reported: bool,
}

/// One session.
pub struct Realtime {
    config: Arc<AssistantConfig>,
    profile: CallProfile,
    body: BodyOptions,
    tools: Vec<Value>,
    /// Whether the functions of the operator are still unknown.
    awaits_functions: bool,
    /// Whether the service has created the session, which is not configured yet.
    is_created: bool,
    outputs: VecDeque<RealtimeOutput>,
    phase: Phase,
    /// Failures of connections, and of answers.
    connection: Outage,
    answers: Outage,
    /// Whether the service has given an answer in this call.
    has_answered: bool,
    /// Whether a connection has been ready before.
    was_ready: bool,
    has_joined: bool,
    /// Whether the caller hears nothing: it holds the call, or the room has muted the bot.
    is_on_hold: bool,
    greeting_due: bool,
    caller: CallerAudio,
    /// When the caller last spoke: the service tells the end of the pause behind it.
    speech: LastSpeech,
    playback: SpeechPlayback,
    speech_text: SpeechText,
    transcript: Transcript,
    active: Option<ActiveResponse>,
    /// A response to ask for when none is in progress: its instructions, and whether it is text.
    wanted: Option<(Option<String>, bool)>,
    /// What the newest response was asked for with, in case its connection is lost.
    asked: (Option<String>, bool),
    /// A turn of the caller that the service has not begun to answer: whether its text is known.
    question: Option<bool>,
    /// The id of the event that asked for the newest response.
    request_id: String,
    cancelled: VecDeque<String>,
    functions: Functions,
    drafts: CallDrafts,
    stopwatch: AnswerStopwatch,
    is_caller_speaking: bool,
    keypad: Keypad,
    ticks: ThinkingTicks,
    lifetime: Lifetime,
    /// The session ends once the current answer has been played.
    hangs_up: bool,
    events: u64,
    logged: u32,
    /// The id of the update that the service has to accept.
    update_id: String,
}

impl Realtime {
    /// Creates a session, which connects at once.
    pub fn new(config: Arc<AssistantConfig>, profile: CallProfile, body: BodyOptions, now: Instant) -> Self {
        let mut session = Realtime {
            functions: Functions::default(),
            drafts: CallDrafts::default(),
            tools: Vec::new(),
            awaits_functions: config.tools.is_some(),
            is_created: false,
            outputs: VecDeque::new(),
            phase: Phase::Connecting,
            connection: Outage::default(),
            answers: Outage::default(),
            has_answered: false,
            was_ready: false,
            has_joined: false,
            is_on_hold: false,
            greeting_due: body.greeting && config.greeting != Greeting::Off,
            caller: CallerAudio::new(profile.line),
            speech: LastSpeech::new(profile.line.rate_hz()),
            playback: SpeechPlayback::new(profile.line.rate_hz()),
            speech_text: SpeechText::default(),
            transcript: Transcript::new(TEXTS_MAX),
            active: None,
            wanted: None,
            asked: (None, body.text_only),
            question: None,
            request_id: String::new(),
            cancelled: VecDeque::new(),
            stopwatch: AnswerStopwatch::default(),
            is_caller_speaking: false,
            keypad: Keypad::default(),
            ticks: ThinkingTicks::default(),
            lifetime: Lifetime::new(&config, profile.is_telephone, body.minutes_max, now),
            hangs_up: false,
            events: 0,
            logged: 0,
            update_id: String::new(),
            config,
            profile,
            body,
        };
        session.declare(&[]);
        session.connect(now);
        session
    }

    /// The operator's functions are known; empty if they cannot be used.
    pub fn handle_functions(&mut self, functions: &[Value], now: Instant) {
        if !std::mem::take(&mut self.awaits_functions) {
            return;
        }
        self.declare(functions);
        if let Phase::Opening { until } = &mut self.phase
            && self.is_created
        {
            *until = now + SESSION_WITHIN;
            self.update_session();
        }
    }

    fn declare(&mut self, of_tools: &[Value]) {
        self.tools = functions::declared(self.config.of_pages(), of_tools, &self.body.tools, &self.profile);
        self.functions = Functions::new(&self.tools, of_tools);
    }

    // ---- the caller

    /// The caller is connected.
    pub fn handle_joined(&mut self, now: Instant) {
        self.lifetime.keep(now);
        self.caller.begin(now);
        self.has_joined = self.has_joined || !self.profile.greet_on_ready;
        self.greet();
    }

    /// The client is ready.
    pub fn handle_ready(&mut self, now: Instant) {
        self.lifetime.keep(now);
        self.has_joined = true;
        self.greet();
    }

    /// The caller hears nothing of the bot, or hears it again. Meanwhile speech waits, and the
    /// service hears silence in place of music that the line plays.
    pub fn handle_hold(&mut self, is_on_hold: bool, now: Instant) {
        self.is_on_hold = is_on_hold;
        self.lifetime.keep(now);
        self.plan_tick(now);
    }

    /// Audio of the caller, at the rate of the line.
    pub fn handle_audio(&mut self, pcm: &[i16], now: Instant) {
        if self.is_on_hold {
            return;
        }
        self.speech.handle_audio(pcm, self.playback.is_speaking(), now);
        self.caller.push(pcm, now);
        self.send_audio();
    }

    /// A text that the caller typed.
    pub fn handle_text(&mut self, content: &str, options: TextOptions, now: Instant) {
        self.lifetime.keep(now);
        if options.run_immediately {
            self.interrupt();
            self.cancel_response();
        }
        self.transcript.add(Speaker::Caller, content);
        self.send_item(content);
        let text_only = self.body.text_only || !options.audio_response;
        self.wanted = Some((None, text_only));
        self.request_response();
    }

    /// A key of the telephone. Keys are sent together, at `#` or after a pause.
    pub fn handle_dtmf(&mut self, key: char, now: Instant) {
        self.lifetime.keep(now);
        let keys = self.keypad.push(key, now);
        self.send_keys(keys);
    }

    /// The result of a function that the client, or what the operator configured, has run.
    pub fn handle_function_result(&mut self, host: FunctionHost, call_id: &str, result: &Value, now: Instant) {
        let answers = self.functions.handle_result(host, call_id, result);
        self.answer_functions(answers);
        self.request_response();
        self.plan_tick(now);
    }

    // ---- playout

    /// Takes the next speech, at most 100 ms. The mark is to be set behind it.
    pub fn next_speech(&mut self, pcm: &mut Vec<i16>) -> Option<SpeechMark> {
        if self.is_on_hold {
            return None;
        }
        self.playback.next_piece(pcm)
    }

    /// A mark of [`Realtime::next_speech`] came back.
    pub fn handle_mark(&mut self, name: &str, is_played: bool, now: Instant) {
        self.lifetime.keep(now);
        if let Some(item_id) = self.playback.handle_mark(name, is_played) {
            if let Some((played, received)) = self.playback.progress(&item_id) {
                for report in self.speech_text.handle_progress(&item_id, played, received) {
                    self.tell(report);
                }
            }
            self.playback.forget_played();
            if let Some(call_id) = press_keys::call_of(&item_id)
                && !self.playback.has_item(|known| known == item_id)
            {
                let answers = self.functions.handle_keys_pressed(call_id);
                self.answer_functions(answers);
                self.request_response();
            }
        }
        self.forget_played_texts();
        self.plan_tick(now);
    }

    /// The bot's speech begins to leave.
    pub fn handle_speech_started(&mut self, now: Instant) {
        if matches!(self.playback.newest_item(), Some(TICK_ITEM | FAILURE_ITEM)) {
            return;
        }
        if let Some(answer) = self.stopwatch.handle_sound(now) {
            self.count(AssistantCount::FirstSound(answer.latency));
            self.report(ClientReport::FirstSound(answer));
        }
    }

    // ---- time

    /// Returns when to call [`Realtime::handle_timeout`].
    pub fn poll_timeout(&self) -> Instant {
        let of_phase = match self.phase {
            Phase::Opening { .. } if self.waits_for_functions() => None,
            Phase::Opening { until } | Phase::Waiting { until } => Some(until),
            Phase::Ready { since } => Some(since + RENEW_AFTER).filter(|_| self.is_between_turns()),
            Phase::Connecting | Phase::Over => None,
        };
        let soon = [
            of_phase,
            self.keypad.poll_timeout(),
            self.caller.poll_timeout(),
            self.functions.poll_timeout(),
            self.ticks.poll_timeout(),
        ];
        let lifetime = self.lifetime.poll_timeout(self.is_caller_speaking, self.can_answer());
        soon.into_iter().flatten().fold(lifetime, Instant::min)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.phase == Phase::Over {
            return;
        }
        self.caller.handle_timeout(now);
        self.send_audio();
        // Who waits for the service, or holds the call, is silent for that.
        if self.is_on_hold || matches!(self.phase, Phase::Waiting { .. }) {
            self.lifetime.keep(now);
        }
        match self.phase {
            Phase::Opening { .. } if self.waits_for_functions() => {}
            Phase::Opening { until } if now >= until => {
                self.count(AssistantCount::Connection(ConnectionOutcome::Unreachable));
                self.retry("the service opens no session".to_owned(), false, now);
            }
            Phase::Waiting { until } if now >= until => self.connect(now),
            Phase::Ready { since } if now >= since + RENEW_AFTER && self.is_between_turns() => {
                self.count(AssistantCount::Connection(ConnectionOutcome::Expired));
                self.connect(now);
            }
            _ => {}
        }
        let keys = self.keypad.handle_timeout(now);
        self.send_keys(keys);
        let answers = self.functions.handle_timeout(now);
        self.answer_functions(answers);
        if self.ticks.handle_timeout(now) {
            let tick = sound::tick(self.profile.line.rate_hz());
            self.playback.push_local(TICK_ITEM, &tick);
        }
        let lifetime = self
            .lifetime
            .handle_timeout(self.is_caller_speaking, self.can_answer(), now);
        match lifetime {
            Some(LifetimeEvent::Goodbye(text)) => {
                let dialect = self.dialect();
                self.send(client_event::text_item("system", text, dialect));
                self.wanted = Some((None, self.body.text_only));
            }
            Some(LifetimeEvent::Over(why)) => self.end(EndReason::Done(why)),
            None => {}
        }
        self.request_response();
        self.plan_tick(now);
    }

    /// Plans the next tick while the caller waits for a function in silence.
    fn plan_tick(&mut self, now: Instant) {
        let is_over = self.phase == Phase::Over;
        let is_muted = self.body.text_only || self.is_caller_speaking || self.is_on_hold || is_over;
        let is_waiting = self.functions.is_running() && !self.playback.is_speaking_besides(TICK_ITEM);
        self.ticks.plan(is_waiting && !is_muted, now);
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<RealtimeOutput> {
        if self.hangs_up && self.active.is_none() && !self.playback.is_speaking() && self.phase != Phase::Over {
            self.end(EndReason::Done("the model ended the call"));
        }
        self.outputs.pop_front()
    }

    // ---- inside

    fn connect(&mut self, now: Instant) {
        self.phase = Phase::Connecting;
        self.is_created = false;
        self.active = None;
        self.cancelled.clear();
        self.drop_calls();
        self.drafts.clear();
        self.connection.handle_asked(now);
        let request = connect_request(&self.config.realtime);
        self.outputs.push_back(RealtimeOutput::Connect(request));
    }

    /// Plans the next attempt to connect, the first one at once, or ends the session when the
    /// patience of the caller is over.
    fn retry(&mut self, words: String, is_final: bool, now: Instant) {
        if is_final {
            return self.end(EndReason::Failed(words));
        }
        let patience = self.config.patience;
        // A session that has lasted is no part of an outage; one that ends at once is.
        if matches!(self.phase, Phase::Ready { since } if now >= since + patience) {
            self.connection.handle_answered();
        }
        let is_first = self.connection.retry_at().is_none();
        match self.connection.handle_failed(None, patience, now) {
            OutageStep::Over => self.end(EndReason::Failed(words)),
            OutageStep::Retry { is_to_report } => {
                self.log(words);
                let until = self.connection.retry_at().filter(|_| !is_first);
                self.phase = Phase::Waiting {
                    until: until.unwrap_or(now),
                };
                if is_to_report {
                    self.tell_failure(HOLD_ON);
                }
            }
        }
    }

    /// Tells the caller of a failure after which the session goes on.
    fn tell_failure(&mut self, text: &'static str) {
        self.report(ClientReport::Error { text });
        // A telephone shows no text.
        if !self.body.text_only && !self.playback.is_speaking_besides(TICK_ITEM) {
            let notes = sound::notes(self.profile.line.rate_hz());
            self.playback.push_local(FAILURE_ITEM, &notes);
        }
    }

    fn end(&mut self, reason: EndReason) {
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        self.outputs.push_back(RealtimeOutput::Disconnect { code: 1000 });
        if let EndReason::Failed(_) = reason {
            self.drop_answer();
            let wav = self.config.failure_sound.as_deref();
            let pcm = sound::failure(self.profile.line.rate_hz(), wav);
            self.playback.push_local(FAILURE_ITEM, &pcm);
        }
        self.outputs.push_back(RealtimeOutput::End(reason));
    }

    /// Silences an answer whose connection is gone, and asks for it again on the next one, which is
    /// given what was played of it. The same for an answer that the service had yet to begin.
    fn drop_answer(&mut self) {
        if std::mem::take(&mut self.is_caller_speaking) {
            // The next service hears the rest as a turn of its own.
            self.report(ClientReport::UserStoppedSpeaking);
        }
        let played = self.speech_text.interrupt();
        self.speech_text.take_written();
        let mut is_cut = false;
        if self.playback.is_speaking() {
            is_cut = !self.playback.interrupt().is_empty();
            self.outputs.push_back(RealtimeOutput::Interrupt);
        }
        if let Some(active) = self.active.take() {
            is_cut |= !active.id.is_some_and(|id| self.is_cancelled(&id));
            self.report(ClientReport::LlmStopped);
        }
        let question = self.question.take();
        if is_cut && !self.hangs_up {
            let text_only = self.asked.1;
            // One of which nothing was played, such as a greeting, begins anew.
            let instructions = self.asked.0.take().filter(|_| played.is_empty());
            self.wanted.get_or_insert((instructions, text_only));
        } else if let Some(is_known) = question
            && !self.hangs_up
        {
            let instructions = (!is_known).then(|| SAY_AGAIN.to_owned());
            self.wanted.get_or_insert((instructions, self.body.text_only));
        }
        for text in played {
            self.transcript.add(Speaker::Bot, &text);
        }
    }

    /// Gives up the calls of functions that wait: the service that made them is gone. The next one
    /// is asked to answer.
    fn drop_calls(&mut self) {
        let calls = self.functions.abort("the connection to the service was lost");
        if !calls.is_empty() && !self.hangs_up {
            self.wanted.get_or_insert((None, self.body.text_only));
        }
        for call in calls {
            self.report_stopped(call);
        }
    }

    /// Silences the bot, and reports to the service what was played. The call goes on, also when it
    /// was the goodbye.
    fn interrupt(&mut self) {
        self.hangs_up = false;
        if let Some(id) = self.active.as_ref().and_then(|active| active.id.clone()) {
            self.cancel_id(id);
        }
        if !self.playback.is_speaking() {
            return;
        }
        self.outputs.push_back(RealtimeOutput::Interrupt);
        for text in self.speech_text.interrupt() {
            self.transcript.add(Speaker::Bot, &text);
        }
        for cut in self.playback.interrupt() {
            self.send(client_event::truncate(&cut));
        }
        self.drop_keys();
    }

    fn cancel_response(&mut self) {
        if let Some(active) = &self.active {
            if let Some(id) = active.id.clone() {
                self.cancel_id(id);
            }
            self.send(json!({"type": "response.cancel"}));
        }
    }

    fn cancel_id(&mut self, id: String) {
        if self.cancelled.contains(&id) {
            return;
        }
        if self.cancelled.len() == CANCELLED_MAX {
            self.cancelled.pop_front();
        }
        self.cancelled.push_back(id);
    }

    fn is_cancelled(&self, response_id: &str) -> bool {
        self.cancelled.iter().any(|id| id == response_id)
    }

    fn greet(&mut self) {
        if !(self.greeting_due && self.has_joined && self.is_ready()) {
            return;
        }
        self.greeting_due = false;
        let instructions = match &self.config.greeting {
            Greeting::Text(text) => format!("Say exactly this, and nothing else: {text}"),
            Greeting::Default | Greeting::Off => "Greet the caller in one short sentence.".to_owned(),
        };
        self.wanted = Some((Some(instructions), self.body.text_only));
        self.request_response();
    }

    /// Asks for the response that is due, unless one is in progress.
    fn request_response(&mut self) {
        if self.active.is_some() || !self.is_ready() {
            return;
        }
        let Some((instructions, text_only)) = self.wanted.take() else {
            return;
        };
        let event = client_event::create_response(instructions.as_deref(), text_only, self.dialect());
        self.asked = (instructions, text_only);
        self.request_id = self.send(event);
        self.active = Some(ActiveResponse {
            id: None,
            is_failure_reported: false,
        });
    }

    fn handle_call(&mut self, response_id: &str, call: CalledFunction, now: Instant) {
        if self.is_cancelled(response_id) {
            return;
        }
        let has_page = self.profile.has_page;
        let CalledFunction {
            call_id,
            name,
            arguments,
        } = call;
        let Some(called) = self
            .functions
            .handle_call(response_id, call_id, name, &arguments, has_page, now)
        else {
            return;
        };
        self.hangs_up |= called.ends_call;
        if let Some(KeyPresses { call_id, tones }) = called.presses {
            let pcm = kit::tones(&tones, self.profile.line.rate_hz());
            if !self.playback.push_local(&press_keys::item_of(&call_id), &pcm) {
                self.drop_keys();
            }
        }
        if let Some((call, host)) = called.started {
            self.report(ClientReport::FunctionStarted(call.for_client(host)));
            if host == FunctionHost::Tools {
                self.outputs.push_back(RealtimeOutput::RunFunction(call));
            }
        }
        self.answer_functions(called.answers);
    }

    /// Tells the model that keys were dropped.
    fn drop_keys(&mut self) {
        let answers = self.functions.handle_keys_dropped();
        self.answer_functions(answers);
    }

    fn answer_functions(&mut self, answers: FunctionReplies) {
        for answer in answers.outputs {
            self.send(client_event::function_output(&answer.call_id, &answer.output));
            self.report_stopped(answer);
        }
        if answers.wants_response && !self.hangs_up {
            self.wanted.get_or_insert((None, self.body.text_only));
        }
    }

    /// Reports the end of a function call to the client, if its start was reported.
    fn report_stopped(&mut self, answer: FunctionAnswer) {
        if answer.is_reported {
            self.report(ClientReport::FunctionStopped {
                call_id: answer.call_id,
                name: answer.name,
                is_cancelled: answer.is_cancelled,
            });
        }
    }

    fn send_keys(&mut self, keys: Option<String>) {
        let Some(keys) = keys else { return };
        self.transcript.add(Speaker::Caller, &keys);
        self.send_item(&keys);
        self.wanted = Some((None, self.body.text_only));
        self.request_response();
    }

    fn send_item(&mut self, text: &str) {
        if self.is_ready() {
            let dialect = self.dialect();
            self.send(client_event::text_item("user", text, dialect));
        }
    }

    fn send_audio(&mut self) {
        if !self.is_ready() {
            return;
        }
        while let Some((base64, length)) = self.caller.next_piece() {
            self.count(AssistantCount::AudioSent(length));
            let text = client_event::append(&base64);
            self.outputs.push_back(RealtimeOutput::Send(text));
        }
    }

    /// Sends an event with an id of its own, and returns the id.
    fn send(&mut self, mut event: Value) -> String {
        self.events += 1;
        let id = format!("u{}", self.events);
        event["event_id"] = id.as_str().into();
        self.outputs.push_back(RealtimeOutput::Send(event.to_string()));
        id
    }

    fn forget_played_texts(&mut self) {
        let playback = &self.playback;
        let played = self
            .speech_text
            .take_played(|item_id| playback.progress(item_id).is_none());
        for text in played {
            self.transcript.add(Speaker::Bot, &text);
        }
    }

    fn tell_text(&mut self, text: String) {
        self.tell(ClientReport::LlmText(text));
    }

    /// Reports a text, unless texts are off.
    fn tell(&mut self, report: ClientReport) {
        if self.config.transcripts {
            self.report(report);
        }
    }

    fn report(&mut self, report: ClientReport) {
        self.outputs.push_back(RealtimeOutput::Report(report));
    }

    fn count(&mut self, count: AssistantCount) {
        self.outputs.push_back(RealtimeOutput::Count(count));
    }

    fn log(&mut self, words: String) {
        self.logged += 1;
        if self.logged > LOGGED_MAX {
            return;
        }
        self.outputs.push_back(RealtimeOutput::Log(ServiceLog::Failed(words)));
    }

    /// Returns whether the service waits for the settings of its session, of which the functions
    /// are missing.
    fn waits_for_functions(&self) -> bool {
        self.is_created && self.awaits_functions
    }

    fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. })
    }

    /// Returns whether an answer would reach the caller.
    fn can_answer(&self) -> bool {
        self.is_ready() && !self.is_on_hold
    }

    /// Returns whether keys are pressed.
    fn is_pressing(&self) -> bool {
        self.playback.has_item(|item| press_keys::call_of(item).is_some())
    }

    /// Returns whether neither side speaks, no answer is due, and no function runs that the model
    /// waits for.
    fn is_between_turns(&self) -> bool {
        let is_answering = self.active.is_some() || self.question.is_some() || self.functions.is_waiting();
        !is_answering && !self.is_caller_speaking && !self.playback.is_speaking()
    }

    fn dialect(&self) -> Dialect {
        self.config.realtime.dialect
    }
}

/// Returns the connection to open for these settings.
pub fn connect_request(realtime: &RealtimeConfig) -> ServiceConnect {
    let headers = realtime.key.iter().map(|key| match realtime.dialect {
        Dialect::Azure => ("api-key", key.clone()),
        _ => ("authorization", Secret::new(format!("Bearer {}", key.expose()))),
    });
    ServiceConnect {
        url: realtime.url.text(),
        headers: headers.collect(),
    }
}

#[cfg(test)]
mod tests;
