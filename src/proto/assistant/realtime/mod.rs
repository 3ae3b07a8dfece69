//! The engine of the bot `realtime`: one session with a speech-to-speech service.
//!
//! In: events of the service, of the caller and of the playout, and `now`. Out: [`RealtimeOutput`],
//! and PCM by [`Realtime::next_speech`]. After each input, drain [`Realtime::poll_output`] and ask
//! for speech. The service hears all audio, finds the turns and speaks; the engine answers an
//! interruption with the position at which the caller stopped hearing the bot, has functions run by
//! the client's page or what the operator configured, and renews a connection that is lost or
//! too old.

mod caller_audio;
mod client_event;
mod errors;
mod history;
mod server_event;
mod speech_text;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::body::BodyOptions;
use super::config::{AssistantConfig, Dialect, Greeting, RealtimeConfig};
use super::functions::{self, Answers, FunctionHost, Functions};
use super::keypad::Keypad;
use super::lifetime::{Lifetime, LifetimeEvent};
use super::playback::SpeechPlayback;
use super::report::{
    AssistantCount, CallProfile, ClientReport, ConnectFailure, ConnectionOutcome, EndReason, ErrorClass, Line,
    RealtimeOutput, ResponseStatus, ServiceConnect, ServiceLog, SpeechMark,
};
use super::sound;
use crate::audio::g711::Law;
use crate::rtvi::TextOptions;
use crate::secret::Secret;
use caller_audio::CallerAudio;
use history::{History, Speaker};
use speech_text::SpeechText;

pub use errors::{classify, of_failure};
pub use server_event::{ErrorNames, ServerEvent, parse as parse_event, refusal_code};

/// Time from the open connection to the accepted session.
const SESSION_WITHIN: Duration = Duration::from_secs(5);
/// Pauses before the attempts to connect; the budget of attempts lasts for [`BUDGET`].
const PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
const BUDGET: Duration = Duration::from_secs(300);
/// Age at which a connection is renewed: services end theirs after 60 minutes.
const RENEW_AFTER: Duration = Duration::from_secs(50 * 60);
/// Failed responses in a row that end the session.
const FAILURES_MAX: u32 = 3;
/// Bytes of what a caller says in one turn.
const TRANSCRIPT_BYTES_MAX: usize = 32 * 1024;
/// Failures that a session logs.
const LOGGED_MAX: u32 = 16;
/// Text of the failure that a client gets with a response.
const NO_ANSWER: &str = "The assistant has no answer; please try again.";
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
    attempts: usize,
    budget_until: Instant,
    /// Whether a connection has been ready before.
    was_ready: bool,
    has_joined: bool,
    greeting_due: bool,
    caller: CallerAudio,
    playback: SpeechPlayback,
    speech_text: SpeechText,
    /// What the caller is saying, by item.
    transcript: (String, String),
    history: History,
    active: Option<ActiveResponse>,
    /// A response to ask for when none is in progress: its instructions, and whether it is text.
    wanted: Option<(Option<String>, bool)>,
    cancelled: VecDeque<String>,
    functions: Functions,
    /// When the caller stopped speaking, until the answer is heard.
    spoken_until: Option<Instant>,
    is_caller_speaking: bool,
    keypad: Keypad,
    failures: u32,
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
            tools: Vec::new(),
            awaits_functions: config.tools.is_some(),
            is_created: false,
            outputs: VecDeque::new(),
            phase: Phase::Connecting,
            attempts: 0,
            budget_until: now + BUDGET,
            was_ready: false,
            has_joined: false,
            greeting_due: body.greeting && config.greeting != Greeting::Off,
            caller: CallerAudio::new(profile.line),
            playback: SpeechPlayback::new(profile.line.rate_hz()),
            speech_text: SpeechText::default(),
            transcript: (String::new(), String::new()),
            history: History::default(),
            active: None,
            wanted: None,
            cancelled: VecDeque::new(),
            spoken_until: None,
            is_caller_speaking: false,
            keypad: Keypad::default(),
            failures: 0,
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
        let of_page = self.config.realtime.session.get("tools").and_then(Value::as_array);
        let of_page = of_page.map_or(&[][..], Vec::as_slice);
        self.tools = functions::declared(of_page, of_tools, &self.body.tools, self.profile.can_hang_up);
        self.functions = Functions::new(&self.tools, of_tools);
    }

    // ---- the service

    /// The connection is open.
    pub fn handle_connected(&mut self, now: Instant) {
        if self.phase == Phase::Connecting {
            self.phase = Phase::Opening {
                until: now + SESSION_WITHIN,
            };
        }
    }

    /// The connection was not opened.
    pub fn handle_connect_failed(&mut self, failure: ConnectFailure, now: Instant) {
        if self.phase != Phase::Connecting {
            return;
        }
        let class = errors::of_failure(&failure);
        let outcome = match (&failure, class) {
            (_, Some(ErrorClass::Auth)) => ConnectionOutcome::Auth,
            (_, Some(ErrorClass::Quota)) => ConnectionOutcome::Quota,
            (ConnectFailure::Refused { .. }, _) => ConnectionOutcome::Refused,
            _ => ConnectionOutcome::Unreachable,
        };
        self.count(AssistantCount::Connection(outcome));
        let words = match (failure, class) {
            (ConnectFailure::Refused { status, .. }, Some(class)) => {
                format!(
                    "the service refuses connections with status {status}: {}",
                    class.words()
                )
            }
            (ConnectFailure::Unreachable(why), _) => format!("the service is not reached: {why}"),
            _ => "the service does not answer".to_owned(),
        };
        self.retry(words, class.is_some_and(ErrorClass::is_final), now);
    }

    /// The connection ended, with the code of the service if it closed it.
    pub fn handle_closed(&mut self, code: Option<u16>, now: Instant) {
        if !matches!(self.phase, Phase::Opening { .. } | Phase::Ready { .. }) {
            return;
        }
        self.count(AssistantCount::Connection(ConnectionOutcome::Lost));
        let words = match code {
            Some(code) => format!("the service closed the connection with code {code}"),
            None => "the connection to the service was lost".to_owned(),
        };
        self.drop_answer();
        self.retry(words, matches!(code, Some(1000 | 1008 | 4000)), now);
    }

    /// Handles one event of the service.
    pub fn handle_message(&mut self, text: &str, now: Instant) {
        if !matches!(self.phase, Phase::Opening { .. } | Phase::Ready { .. }) {
            return;
        }
        let Some(event) = server_event::parse(text) else { return };
        match event {
            ServerEvent::SessionCreated => self.update_session(),
            ServerEvent::SessionUpdated => self.handle_session_updated(now),
            ServerEvent::SpeechStarted => self.handle_caller_started(now),
            ServerEvent::SpeechStopped => {
                self.is_caller_speaking = false;
                self.lifetime.keep(now);
                self.spoken_until = Some(now);
                self.report(ClientReport::UserStoppedSpeaking);
            }
            ServerEvent::Transcript {
                item_id,
                text,
                is_final,
            } => self.handle_transcript(item_id, text, is_final),
            ServerEvent::ResponseCreated { id } => {
                self.active = Some(ActiveResponse { id: Some(id) });
                self.report(ClientReport::LlmStarted);
            }
            ServerEvent::Audio {
                response_id,
                item_id,
                content_index,
                bytes,
            } => self.handle_speech(&response_id, &item_id, content_index, &bytes, now),
            ServerEvent::AudioDone { item_id } => {
                self.playback.complete(&item_id);
                self.speech_text.complete(&item_id);
            }
            ServerEvent::SpokenText {
                response_id,
                item_id,
                text,
            } => self.handle_spoken_text(&response_id, &item_id, &text),
            ServerEvent::WrittenText { response_id, text } => {
                if !self.is_cancelled(&response_id) {
                    self.speech_text.write(&text);
                    self.tell_text(text);
                }
            }
            ServerEvent::FunctionCalled {
                response_id,
                call_id,
                name,
                arguments,
            } => self.handle_call(response_id, call_id, name, &arguments, now),
            ServerEvent::ResponseDone {
                id,
                status,
                usage,
                error,
            } => {
                if usage.total > 0 {
                    self.count(AssistantCount::Tokens(usage));
                    self.report(ClientReport::Tokens(usage));
                }
                self.handle_response_done(&id, status, &error, now);
            }
            ServerEvent::Failed(names) => self.handle_error(&names, now),
        }
    }

    fn update_session(&mut self) {
        self.is_created = true;
        if !matches!(self.phase, Phase::Opening { .. }) || self.awaits_functions {
            return;
        }
        let session = client_event::session(&self.config, &self.body, self.profile.line, &self.tools);
        self.update_id = self.send(json!({"type": "session.update", "session": session}));
    }

    fn handle_session_updated(&mut self, now: Instant) {
        if !matches!(self.phase, Phase::Opening { .. }) {
            return;
        }
        self.phase = Phase::Ready { since: now };
        self.count(AssistantCount::Connection(ConnectionOutcome::Ok));
        self.outputs.push_back(RealtimeOutput::Log(ServiceLog::Connected));
        if std::mem::replace(&mut self.was_ready, true) {
            self.count(AssistantCount::Reconnect);
        }
        self.repeat_history();
        self.greet();
        self.send_audio();
        self.request_response();
    }

    /// Tells a new session what has been said.
    fn repeat_history(&mut self) {
        let dialect = self.dialect();
        let items = self.history.texts().map(|(speaker, text)| {
            let role = match speaker {
                Speaker::Caller => "user",
                Speaker::Bot => "assistant",
            };
            client_event::text_item(role, text, dialect)
        });
        let items: Vec<Value> = items.collect();
        for item in items {
            self.send(item);
        }
    }

    fn handle_caller_started(&mut self, now: Instant) {
        self.lifetime.keep(now);
        self.is_caller_speaking = true;
        self.report(ClientReport::UserStartedSpeaking);
        if self.config.interrupt {
            if self.playback.is_speaking() {
                self.count(AssistantCount::BargeIn);
            }
            self.interrupt();
        }
    }

    fn handle_transcript(&mut self, item_id: String, text: String, is_final: bool) {
        if self.transcript.0 != item_id {
            self.transcript = (item_id, String::new());
        }
        match is_final {
            true => self.transcript.1 = text.trim().to_owned(),
            false if self.transcript.1.len() + text.len() <= TRANSCRIPT_BYTES_MAX => self.transcript.1.push_str(&text),
            false => return,
        }
        let text = self.transcript.1.clone();
        if is_final {
            self.history.add(Speaker::Caller, &text);
        }
        if text.is_empty() || !self.config.transcripts {
            return;
        }
        self.report(ClientReport::Transcript {
            text: text.clone(),
            is_final,
        });
        if is_final {
            self.report(ClientReport::UserLlmText(text));
        }
    }

    fn handle_speech(&mut self, response_id: &str, item_id: &str, content_index: u64, bytes: &[u8], now: Instant) {
        if self.is_cancelled(response_id) {
            return;
        }
        self.lifetime.keep(now);
        let pcm: Vec<i16> = match self.profile.line {
            Line::Pcm24k => {
                let (samples, _) = bytes.as_chunks::<2>();
                samples.iter().map(|sample| i16::from_le_bytes(*sample)).collect()
            }
            Line::G711(law) => decoded(law, bytes),
        };
        let rate_hz = u64::from(self.profile.line.rate_hz());
        let length = Duration::from_micros(pcm.len() as u64 * 1_000_000 / rate_hz);
        self.count(AssistantCount::AudioReceived(length));
        self.speech_text.begin(item_id);
        if !self.playback.push(item_id, content_index, &pcm) {
            // What waits is played; the rest of the answer is given up.
            self.cancel_response();
        }
    }

    fn handle_spoken_text(&mut self, response_id: &str, item_id: &str, text: &str) {
        if self.is_cancelled(response_id) {
            return;
        }
        self.speech_text.begin(item_id);
        self.tell_text(text.to_owned());
        for report in self.speech_text.push(item_id, text) {
            self.tell(report);
        }
    }

    fn handle_response_done(&mut self, id: &str, status: ResponseStatus, error: &ErrorNames, now: Instant) {
        self.count(AssistantCount::Response(status));
        self.lifetime.keep(now);
        self.cancelled.retain(|cancelled| cancelled != id);
        let is_active = self
            .active
            .as_ref()
            .is_some_and(|a| a.id.as_deref().is_none_or(|a| a == id));
        if is_active {
            self.active = None;
            self.report(ClientReport::LlmStopped);
        }
        if let Some(text) = self.speech_text.take_written() {
            self.history.add(Speaker::Bot, &text);
            self.tell(ClientReport::Shown(text));
        }
        match status {
            ResponseStatus::Failed => {
                let class = errors::classify(error.code.as_deref(), error.kind.as_deref(), false);
                self.count(AssistantCount::Error(class));
                self.failures += 1;
                if class.is_final() || self.failures >= FAILURES_MAX {
                    return self.end(EndReason::Failed(format!(
                        "the service gives no answer: {}",
                        class.words()
                    )));
                }
                self.log(format!("a response failed: {}", class.words()));
                self.report(ClientReport::Error { text: NO_ANSWER });
            }
            ResponseStatus::Completed | ResponseStatus::Incomplete => self.failures = 0,
            ResponseStatus::Cancelled => {}
        }
        let answers = self.functions.handle_response_done(id);
        self.answer_functions(answers);
        self.request_response();
    }

    fn handle_error(&mut self, names: &ErrorNames, now: Instant) {
        let is_of_session = matches!(self.phase, Phase::Opening { .. })
            || names.event_id.as_ref().is_some_and(|id| *id == self.update_id);
        let class = errors::classify(names.code.as_deref(), names.kind.as_deref(), is_of_session);
        self.count(AssistantCount::Error(class));
        match class {
            ErrorClass::Harmless => {
                // The service makes a response by itself: ours follows when it is done.
                if names.code.as_deref() == Some("conversation_already_has_active_response") {
                    self.wanted.get_or_insert((None, self.body.text_only));
                }
            }
            ErrorClass::Expired => {
                self.count(AssistantCount::Connection(ConnectionOutcome::Expired));
                self.drop_answer();
                self.retry(class.words().to_owned(), false, now);
            }
            class if class.is_final() => {
                if matches!(self.phase, Phase::Opening { .. }) {
                    self.count(AssistantCount::Connection(match class {
                        ErrorClass::Auth => ConnectionOutcome::Auth,
                        ErrorClass::Quota => ConnectionOutcome::Quota,
                        _ => ConnectionOutcome::Refused,
                    }));
                }
                let code = names.code.as_ref().or(names.kind.as_ref());
                let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
                self.end(EndReason::Failed(format!(
                    "the service refuses: {}{code}",
                    class.words()
                )));
            }
            _ => {
                // The service may have refused the response that was asked for.
                self.active = self.active.take().filter(|active| active.id.is_some());
                self.log(format!("an error: {}", class.words()));
            }
        }
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

    /// Audio of the caller, at the rate of the line.
    pub fn handle_audio(&mut self, pcm: &[i16], now: Instant) {
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
        self.history.add(Speaker::Caller, content);
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
    pub fn handle_function_result(&mut self, host: FunctionHost, call_id: &str, result: &Value) {
        let answers = self.functions.handle_result(host, call_id, result);
        self.answer_functions(answers);
        self.request_response();
    }

    // ---- playout

    /// Takes the next speech, at most 100 ms. The mark is to be set behind it.
    pub fn next_speech(&mut self, pcm: &mut Vec<i16>) -> Option<SpeechMark> {
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
            self.playback.forget_heard();
        }
        self.forget_heard_texts();
    }

    /// The bot's speech begins to leave.
    pub fn handle_speech_started(&mut self, now: Instant) {
        if let Some(spoken_until) = self.spoken_until.take() {
            let waited = now.saturating_duration_since(spoken_until);
            self.count(AssistantCount::FirstSound(waited));
            self.report(ClientReport::FirstSound(waited));
        }
    }

    // ---- time

    /// Returns when to call [`Realtime::handle_timeout`].
    pub fn poll_timeout(&self) -> Instant {
        let of_phase = match self.phase {
            Phase::Opening { until } | Phase::Waiting { until } => Some(until),
            Phase::Ready { since } => Some(since + RENEW_AFTER).filter(|_| self.is_between_turns()),
            Phase::Connecting | Phase::Over => None,
        };
        let soon = [
            of_phase,
            self.keypad.poll_timeout(),
            self.caller.poll_timeout(),
            self.functions.poll_timeout(),
        ];
        let lifetime = self.lifetime.poll_timeout(self.is_caller_speaking, self.is_ready());
        soon.into_iter().flatten().fold(lifetime, Instant::min)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.phase == Phase::Over {
            return;
        }
        self.caller.handle_timeout(now);
        self.send_audio();
        match self.phase {
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
        let lifetime = self
            .lifetime
            .handle_timeout(self.is_caller_speaking, self.is_ready(), now);
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
        self.functions.clear();
        if now >= self.budget_until {
            self.attempts = 0;
            self.budget_until = now + BUDGET;
        }
        let request = connect_request(&self.config.realtime);
        self.outputs.push_back(RealtimeOutput::Connect(request));
    }

    /// Plans the next attempt to connect, or ends the session.
    fn retry(&mut self, words: String, is_final: bool, now: Instant) {
        if now >= self.budget_until {
            self.attempts = 0;
            self.budget_until = now + BUDGET;
        }
        match PAUSES.get(self.attempts).filter(|_| !is_final) {
            Some(pause) => {
                self.attempts += 1;
                self.log(words);
                self.phase = Phase::Waiting { until: now + *pause };
            }
            None => self.end(EndReason::Failed(words)),
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
            let notes = sound::failure(self.profile.line.rate_hz());
            self.playback.push("failure", 0, &notes);
        }
        self.outputs.push_back(RealtimeOutput::End(reason));
    }

    /// Forgets an answer whose connection is gone, and silences it.
    fn drop_answer(&mut self) {
        if self.playback.is_speaking() {
            self.playback.interrupt();
            self.speech_text.interrupt();
            self.outputs.push_back(RealtimeOutput::Interrupt);
        }
        if self.active.take().is_some() {
            self.report(ClientReport::LlmStopped);
        }
        self.is_caller_speaking = false;
    }

    /// Silences the bot, and tells the service what was heard.
    fn interrupt(&mut self) {
        if let Some(id) = self.active.as_ref().and_then(|active| active.id.clone()) {
            self.cancel_id(id);
        }
        if !self.playback.is_speaking() {
            return;
        }
        self.outputs.push_back(RealtimeOutput::Interrupt);
        for text in self.speech_text.interrupt() {
            self.history.add(Speaker::Bot, &text);
        }
        for cut in self.playback.interrupt() {
            self.send(client_event::truncate(&cut));
        }
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
        self.send(event);
        self.active = Some(ActiveResponse { id: None });
    }

    fn handle_call(&mut self, response_id: String, call_id: String, name: String, arguments: &str, now: Instant) {
        if self.is_cancelled(&response_id) {
            return;
        }
        let has_page = self.profile.has_page;
        let Some(called) = self
            .functions
            .handle_call(response_id, call_id, name, arguments, has_page, now)
        else {
            return;
        };
        if called.ends_call {
            self.hangs_up = true;
        }
        if let Some((call, host)) = called.started {
            self.report(ClientReport::FunctionStarted(call.for_client(host)));
            if host == FunctionHost::Tools {
                self.outputs.push_back(RealtimeOutput::RunFunction(call));
            }
        }
        self.answer_functions(called.answers);
    }

    fn answer_functions(&mut self, answers: Answers) {
        for answer in answers.outputs {
            self.send(client_event::function_output(&answer.call_id, &answer.output));
            if answer.is_told {
                self.report(ClientReport::FunctionStopped {
                    call_id: answer.call_id,
                    name: answer.name,
                    is_cancelled: answer.is_cancelled,
                });
            }
        }
        if answers.wants_response && !self.hangs_up {
            self.wanted.get_or_insert((None, self.body.text_only));
        }
    }

    fn send_keys(&mut self, keys: Option<String>) {
        let Some(keys) = keys else { return };
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

    fn forget_heard_texts(&mut self) {
        let playback = &self.playback;
        let heard = self
            .speech_text
            .take_heard(|item_id| playback.progress(item_id).is_none());
        for text in heard {
            self.history.add(Speaker::Bot, &text);
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

    fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. })
    }

    fn is_between_turns(&self) -> bool {
        self.active.is_none() && !self.is_caller_speaking && !self.playback.is_speaking()
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

fn decoded(law: Law, bytes: &[u8]) -> Vec<i16> {
    let mut pcm = Vec::with_capacity(bytes.len());
    law.decode(bytes, &mut pcm);
    pcm
}

#[cfg(test)]
mod tests;
