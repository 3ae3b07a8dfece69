//! The record of one call.
//!
//! In: the events of the session, the messages of its bot, when the caller last spoke, and the end.
//! Out: JSON. Texts are those that the bot reports by RTVI: final transcripts of the caller, and
//! what the bot said. Several messages repeat the same words of the bot; the record takes those of
//! the best source, as the page does. Keys are counted and not kept: they may be a PIN.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::network_series::NetworkSeries;
use super::outcome::CallOutcome;
use crate::bot_message::{self, BotMessage, BotText, ReportedTimes};
use crate::counts::{Count, Counts, NetworkTimes};
use crate::event::SessionEvent;
use crate::http::traceparent::Traceparent;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::rtvi::LABEL;
use crate::server::source::SourceKey;
use crate::text::{beginning, cut};
use crate::time::iso_ms;
use crate::transport::Transport;

/// Bytes of the texts of one call. The oldest are dropped.
const TEXTS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of one text; the rest is left out.
const TEXT_BYTES_MAX: usize = 2048;
/// Names that are kept of one call: functions, errors, and processors of one answer.
const NAMES_MAX: usize = 16;
/// Bytes of such a name, and of a caller.
const NAME_BYTES_MAX: usize = 128;
/// Bytes of what says why the bot failed, or the provider did not dial.
const ERROR_BYTES_MAX: usize = 1024;
/// Time since the caller's last sound within which the caller still speaks.
const STILL_SPEAKING: Duration = Duration::from_millis(100);
/// Time after which the bot does not answer what the caller said.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// The direction of a call that the runner dialled.
const OUTBOUND: &str = "outbound";

/// The start of a call.
pub struct CallBeginning<'a> {
    pub id: Arc<str>,
    /// `None` if the bot has no transport.
    pub transport: Option<Transport>,
    /// Which of several bots it is.
    pub bot: Option<Arc<str>>,
    /// What the transport tells about the call.
    pub call_data: Option<&'a Value>,
    /// Where the request for it came from.
    pub source: Option<SourceKey>,
    /// The trace that its start belongs to.
    pub trace: Option<Traceparent>,
    pub now: Instant,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

/// The end of a call.
pub struct CallEnding<'a> {
    pub outcome: CallOutcome,
    /// Why the bot failed.
    pub bot_error: Option<&'a str>,
    /// Why the provider did not dial, or what it answered instead.
    pub provider_error: Option<&'a str>,
    pub counts: Counts,
    pub network: NetworkTimes,
    pub now: Instant,
}

/// Records one call.
#[derive(Debug)]
pub struct CallRecorder {
    id: Arc<str>,
    transport: Option<Transport>,
    /// Of a telephone call.
    provider: Option<String>,
    bot: Option<Arc<str>>,
    has_texts: bool,
    began: Instant,
    unix_ms: u64,
    caller: Option<String>,
    callee: Option<String>,
    /// Of a caller that connects to the runner itself.
    address: Option<SourceKey>,
    /// Whether the runner dialled the call, and who answered then.
    is_dialled: bool,
    answered_by: Option<String>,
    trace: Option<Traceparent>,
    connected_after: Option<Duration>,
    /// When the caller left, before the bot has ended.
    left_at: Option<Instant>,
    end: Option<EndedCall>,
    texts: Vec<CallText>,
    texts_bytes: usize,
    /// Texts that were dropped for later ones.
    texts_cut: usize,
    bot_turn: Option<BotTurn>,
    /// The file with the sound.
    recording: Option<String>,
    transferred_to: Option<String>,
    /// Why the bot hung up, in its words.
    hang_up_reason: Option<String>,
    /// Whether operators may listen to the call.
    allows_listening: bool,
    /// Listeners that have joined so far.
    listeners: u32,
    keys: u32,
    interruptions: u32,
    functions: Vec<String>,
    /// What the bot reports of failures.
    errors: Vec<String>,
    /// Whether the bot reports the turns of the caller, and whether one has ended that it has not
    /// answered yet.
    reports_turns: bool,
    is_answer_due: bool,
    /// Whether the bot reports how long its answers took.
    measures_answers: bool,
    /// The end of the speech that the bot answered last.
    answered: Option<Instant>,
    latencies: AnswerTimes,
    /// The time of an answer whose text has not come yet.
    answer: Option<AnswerTiming>,
    network: NetworkSeries,
    /// Whether the last text has changed since it was read.
    has_news: bool,
}

#[derive(Debug)]
struct EndedCall {
    outcome: CallOutcome,
    bot_error: Option<String>,
    provider_error: Option<String>,
    counts: Counts,
    network: NetworkTimes,
    duration: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallSide {
    Caller,
    Bot,
}

#[derive(Debug)]
struct CallText {
    at: Duration,
    by: CallSide,
    text: String,
    answer: Option<AnswerTiming>,
}

/// How long an answer took.
#[derive(Clone, Debug, Default)]
struct AnswerTiming {
    /// From the end of the caller's speech to the first sound of the bot.
    latency: Option<Duration>,
    /// From that sound to its arrival at the caller, as far as it is known.
    arrival: Option<AnswerArrival>,
    /// The times that the bot reported for its parts, in seconds.
    stages: Vec<(String, f64)>,
}

/// How long the first sound of an answer takes to the caller.
#[derive(Clone, Copy, Debug)]
struct AnswerArrival {
    after: Duration,
    /// Whether the provider reported it; otherwise it is half a round trip.
    is_reported: bool,
}

impl AnswerArrival {
    fn of(network: NetworkTimes) -> Option<Self> {
        let is_reported = network.playout_delay.is_some();
        let after = network.playout_delay.or(network.round_trip.map(|trip| trip / 2))?;
        Some(AnswerArrival { after, is_reported })
    }

    /// Returns whether another one says more.
    fn yields_to(self, other: Self) -> bool {
        !self.is_reported && other.is_reported
    }
}

impl AnswerTiming {
    /// Adds parts with their seconds, within the limits.
    fn add_stages(&mut self, stages: Vec<(String, f64)>) {
        for (name, seconds) in stages {
            if self.stages.len() < NAMES_MAX {
                self.stages.extend(name_of(&json!(name)).map(|name| (name, seconds)));
            }
        }
    }
}

/// The times of all answers of a call, for its summary.
#[derive(Debug, Default)]
struct AnswerTimes {
    /// How many there are beside the last.
    count: u32,
    total: Duration,
    longest: Duration,
    last: Option<Duration>,
}

/// Which messages carry the words of the bot, the best last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TextSource {
    Voice,
    Sentence,
    Output,
}

/// The text of the bot that may still grow.
#[derive(Debug)]
struct BotTurn {
    source: TextSource,
    /// The last segment, and how many bytes of it are in the text.
    segment: Option<(u64, usize)>,
}

impl CallRecorder {
    pub fn new(beginning: CallBeginning<'_>, has_texts: bool) -> Self {
        let of_call = |name: &str| beginning.call_data.and_then(|data| name_of(&data[name]));
        let number = of_call("from");
        // Of a caller that another service connects, the address is that of the service.
        let connects_itself = number.is_none() && beginning.transport.is_some_and(Transport::connects_callers);
        CallRecorder {
            address: beginning.source.filter(|_| has_texts && connects_itself),
            // A device has no number, and the name in its path.
            caller: number.or_else(|| of_call("name")),
            callee: of_call("to"),
            is_dialled: of_call("direction").is_some_and(|direction| direction == OUTBOUND),
            answered_by: of_call("answered_by"),
            trace: beginning.trace,
            id: beginning.id,
            transport: beginning.transport,
            provider: of_call("provider").or_else(|| Some(beginning.transport?.provider()?.vendor().to_owned())),
            bot: beginning.bot,
            has_texts,
            began: beginning.now,
            unix_ms: beginning.unix_ms,
            connected_after: None,
            left_at: None,
            end: None,
            texts: Vec::new(),
            texts_bytes: 0,
            texts_cut: 0,
            bot_turn: None,
            recording: None,
            transferred_to: None,
            hang_up_reason: None,
            allows_listening: false,
            listeners: 0,
            keys: 0,
            interruptions: 0,
            functions: Vec::new(),
            errors: Vec::new(),
            reports_turns: false,
            is_answer_due: false,
            measures_answers: false,
            answered: None,
            latencies: AnswerTimes::default(),
            answer: None,
            network: NetworkSeries::default(),
            has_news: false,
        }
    }

    /// Names the file with the sound of the call.
    pub fn set_recording(&mut self, name: String) {
        self.recording = Some(name);
    }

    pub(super) fn recording(&self) -> Option<&str> {
        self.recording.as_deref()
    }

    /// Lets operators listen to the call.
    pub fn allow_listening(&mut self) {
        self.allows_listening = true;
    }

    /// Counts a listener that joined.
    pub fn handle_listener(&mut self) {
        self.listeners = self.listeners.saturating_add(1);
    }

    /// Handles an event of the session.
    pub fn handle_event(&mut self, event: &SessionEvent, now: Instant) {
        match event {
            SessionEvent::Joined => {
                self.connected_after
                    .get_or_insert(now.saturating_duration_since(self.began));
            }
            SessionEvent::Dtmf(_) => self.keys = self.keys.saturating_add(1),
            SessionEvent::Message(text) => self.handle_caller_message(text, now),
            SessionEvent::AnsweredBy(by) => self.answered_by = Some(by.label().to_owned()),
            SessionEvent::ParticipantJoined(who) if self.caller.is_none() => {
                self.caller = match who.call_data() {
                    Some(data) => name_of(&data["from"]),
                    None => None,
                }
                .or_else(|| name_of(&json!(*who.identity)));
            }
            SessionEvent::Left(_) => self.left_at = Some(now),
            _ => {}
        }
    }

    /// Handles words of the bot whose speech follows: a text of their own.
    pub fn handle_bot_words(&mut self, text: &str, now: Instant) {
        self.add(CallSide::Bot, text, now);
        // Reports of the same words are known.
        self.bot_turn = Some(BotTurn {
            source: TextSource::Output,
            segment: None,
        });
    }

    /// Handles a transfer of the call. The first one counts.
    pub fn handle_transfer(&mut self, target: &str) {
        if self.transferred_to.is_none() {
            self.transferred_to = name_of(&json!(target));
        }
    }

    /// Handles the bot's reason to hang up.
    pub fn handle_hang_up(&mut self, reason: &str) {
        self.hang_up_reason = name_of(&json!(reason));
    }

    /// Handles the first sound of the bot after a pause. `spoken_until` is when the last sound of
    /// the caller's speech arrived.
    pub fn handle_bot_speech(&mut self, spoken_until: Option<Instant>, now: Instant) {
        let is_due = std::mem::take(&mut self.is_answer_due) || !self.reports_turns;
        let Some(until) = spoken_until.filter(|until| self.answered.is_none_or(|answered| *until > answered)) else {
            return;
        };
        let latency = now.saturating_duration_since(until);
        if self.measures_answers || !is_due || !(STILL_SPEAKING..=ANSWERED_WITHIN).contains(&latency) {
            return;
        }
        self.answered = Some(until);
        self.latencies.add(latency);
        self.current_answer().latency = Some(latency);
    }

    /// Handles a message of the bot.
    pub fn handle_bot_message(&mut self, text: &str, now: Instant) {
        match bot_message::read(text) {
            BotMessage::UserTranscription {
                text, is_final: true, ..
            } => self.add(CallSide::Caller, &text, now),
            BotMessage::UserStartedSpeaking => {
                self.bot_turn = None;
                // Times of before are those of an answer without words.
                self.answer = None;
                (self.reports_turns, self.is_answer_due) = (true, false);
            }
            BotMessage::UserStoppedSpeaking => (self.reports_turns, self.is_answer_due) = (true, true),
            BotMessage::BotOutput(output) => self.handle_output(&output, now),
            BotMessage::BotTranscription(text) => self.handle_words(TextSource::Sentence, &text, now),
            BotMessage::VoiceText(text) => self.handle_words(TextSource::Voice, &text, now),
            BotMessage::FunctionCall(name) if self.functions.len() < NAMES_MAX => {
                self.functions.extend(name_of(&json!(name)));
            }
            BotMessage::Error(error) if self.has_texts && self.errors.len() < NAMES_MAX => {
                self.errors.extend(name_of(&json!(error)));
            }
            BotMessage::Metrics(times) => self.handle_times(times),
            _ => {}
        }
    }

    /// Handles what a session knows of its network, about once a second. The last answer arrives
    /// when a telephone's provider reports it, and else half a round trip after it is sent.
    pub fn handle_network(&mut self, counts: &Counts, network: NetworkTimes) {
        self.network.handle_sample(counts, network);
        self.set_arrival(network);
    }

    fn set_arrival(&mut self, network: NetworkTimes) {
        let Some(arrival) = AnswerArrival::of(network) else {
            return;
        };
        let mut with_times = self.texts.iter_mut().rev().filter_map(|text| text.answer.as_mut());
        let last = self.answer.as_mut().or_else(|| with_times.next());
        let says_more = |answer: &AnswerTiming| answer.arrival.is_none_or(|known| known.yields_to(arrival));
        if let Some(answer) = last.filter(|answer| answer.latency.is_some() && says_more(answer)) {
            answer.arrival = Some(arrival);
            self.has_news = !self.texts.is_empty();
        }
    }

    /// Returns what the log says of the answers; `None` without any.
    pub fn answers(&self) -> Option<String> {
        let [mean, longest] = [self.latencies.mean()?, self.latencies.longest()?].map(|time| time.as_secs_f64());
        let count = self.latencies.count();
        let plural = if count == 1 { "" } else { "s" };
        Some(format!(
            "{count} answer{plural} after {mean:.2} s, at most {longest:.2} s"
        ))
    }

    /// Handles an interruption of the bot's speech.
    pub fn handle_interruption(&mut self) {
        self.interruptions = self.interruptions.saturating_add(1);
        self.bot_turn = None;
    }

    /// Handles the end of the call.
    pub fn handle_end(&mut self, end: CallEnding<'_>) {
        self.set_arrival(end.network);
        let text = |error: &str| cut(error, ERROR_BYTES_MAX).into_owned();
        self.end = Some(EndedCall {
            outcome: end.outcome,
            bot_error: end.bot_error.map(text),
            provider_error: end.provider_error.map(text),
            counts: end.counts,
            network: end.network,
            duration: self.lasted(end.now),
        });
        self.bot_turn = None;
        self.answer = None;
    }

    /// Returns how long the call lasts so far, until the caller leaves.
    fn lasted(&self, now: Instant) -> Duration {
        self.left_at.unwrap_or(now).saturating_duration_since(self.began)
    }

    /// Returns the bytes of memory that the record holds, beside those of the structure.
    pub(super) fn bytes(&self) -> usize {
        let facts = [
            &self.provider,
            &self.caller,
            &self.callee,
            &self.answered_by,
            &self.recording,
            &self.transferred_to,
            &self.hang_up_reason,
        ];
        let names = self.functions.iter().chain(&self.errors);
        let names = names.chain(facts.into_iter().flatten());
        let errors = self.end.iter().flat_map(|end| [&end.bot_error, &end.provider_error]);
        let names = names.chain(errors.flatten());
        let names = names.map(String::capacity).sum::<usize>();
        let stages = |answer: &AnswerTiming| {
            answer
                .stages
                .iter()
                .map(|(name, _)| name.capacity() + 32)
                .sum::<usize>()
        };
        let texts = self.texts.iter();
        let texts =
            texts.map(|text| size_of::<CallText>() + text.text.capacity() + text.answer.as_ref().map_or(0, stages));
        size_of::<Self>() + self.network.bytes() + names + texts.sum::<usize>()
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    pub(super) fn unix_ms(&self) -> u64 {
        self.unix_ms
    }

    pub(super) fn transport(&self) -> Option<Transport> {
        self.transport
    }

    pub(super) fn bot(&self) -> Option<&str> {
        self.bot.as_deref()
    }

    pub(super) fn outcome(&self) -> Option<CallOutcome> {
        self.end.as_ref().map(|end| end.outcome)
    }

    /// Returns whether the caller's or the dialled number, or the caller's name, contains a text.
    /// Of a number, the digits are compared.
    pub(super) fn is_of(&self, text: &str) -> bool {
        let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
        let wanted = digits(text);
        let is_number = !wanted.is_empty() && !text.chars().any(char::is_alphabetic);
        let mut names = [&self.caller, &self.callee].into_iter().flatten();
        names.any(|name| name.contains(text) || is_number && digits(name).contains(&wanted))
    }

    /// Returns the address of the caller: of IPv6 the network, and none that another runner has
    /// seen.
    fn address(&self) -> Option<String> {
        match self.address? {
            SourceKey::Remote(_) => None,
            address => Some(address.to_string()),
        }
    }

    /// Returns the row of `GET /calls`.
    pub fn summary(&self, now: Instant) -> Value {
        let duration = match &self.end {
            Some(end) => end.duration,
            None => self.lasted(now),
        };
        let outcome = self.outcome();
        json!({
            "id": &*self.id,
            "bot": self.bot.as_deref(),
            "transport": self.transport.map(Transport::name),
            "provider": self.provider,
            "caller": self.caller,
            "callee": self.callee,
            "address": self.address(),
            "direction": if self.is_dialled { OUTBOUND } else { "inbound" },
            "answered_by": self.answered_by,
            "trace": self.trace.as_ref().map(Traceparent::trace_id),
            "startedAt": iso_ms(self.unix_ms),
            "connectedAt": self.connected_after.map(|after| self.time_of(after)),
            "endedAt": self.end.as_ref().map(|end| self.time_of(end.duration)),
            "duration_ms": millis(duration),
            "state": if outcome.is_some() { "ended" } else { "live" },
            "outcome": outcome.map(CallOutcome::label),
            "reason": outcome.map(|outcome| outcome.to_string()),
            "endedBy": outcome.map(CallOutcome::ended_by),
            "hang_up_reason": self.hang_up_reason,
            "transferred_to": self.transferred_to,
            "recording": self.recording,
            "listen_in": self.allows_listening,
            "listeners": self.listeners,
            "interruptions": self.interruptions,
            "answers": self.latencies.count(),
            "latency_ms": self.latencies.mean().map(millis),
            "latency_max_ms": self.latencies.longest().map(millis),
        })
    }

    /// Returns a time of the call, given from its beginning.
    fn time_of(&self, after: Duration) -> String {
        iso_ms(self.unix_ms.saturating_add(millis(after)))
    }

    /// Returns the JSON of `GET /calls/ID`: the row, and what was said.
    pub fn describe(&self, now: Instant) -> Value {
        let mut call = self.summary(now);
        let turns: Vec<Value> = self.texts.iter().map(CallText::describe).collect();
        call["turns"] = turns.into();
        call["turns_cut"] = self.texts_cut.into();
        call["keys"] = self.keys.into();
        call["functions"] = json!(self.functions);
        call["errors"] = json!(self.errors);
        if let Some(end) = &self.end {
            call["bot_error"] = json!(end.bot_error);
            call["provider_error"] = json!(end.provider_error);
            let count = |count| end.counts.get(count);
            call["counts"] = json!({
                "packets_in": count(Count::PacketsIn),
                "packets_out": count(Count::PacketsOut),
                "packets_lost": count(Count::PacketsLost),
                "packets_late": count(Count::PacketsLate),
                "frames_recovered": count(Count::FramesRecovered),
                "frames_concealed": count(Count::FramesConcealed),
                "frames_in": count(Count::FramesIn),
                "frames_dropped": count(Count::FramesDropped),
                "messages_in": count(Count::MessagesIn),
                "messages_out": count(Count::MessagesOut),
            });
            call["network"] = json!({
                "jitter_ms": end.network.jitter.map(millis),
                "round_trip_ms": end.network.round_trip.map(millis),
                "series": self.network.describe(),
            });
        }
        call
    }

    /// Returns the last text, with the id of the call and its number, if it has changed since this
    /// was asked.
    pub fn take_news(&mut self) -> Option<Value> {
        let last = self.texts.last().filter(|_| std::mem::take(&mut self.has_news))?;
        let mut text = last.describe();
        text["id"] = json!(*self.id);
        text["nth"] = json!(self.texts_cut + self.texts.len() - 1);
        Some(text)
    }

    /// Handles a text that the caller typed.
    fn handle_caller_message(&mut self, text: &str, now: Instant) {
        #[derive(Deserialize)]
        struct Typed {
            label: String,
            #[serde(rename = "type")]
            kind: String,
            data: TypedText,
        }
        #[derive(Deserialize)]
        struct TypedText {
            content: String,
        }
        if text.len() > MESSAGE_BYTES_MAX || !text.contains("send-text") {
            return;
        }
        if let Ok(Typed { label, kind, data }) = serde_json::from_str(text)
            && label == LABEL
            && kind == "send-text"
        {
            self.bot_turn = None;
            self.answer = None;
            self.add(CallSide::Caller, &data.content, now);
        }
    }

    /// Handles the times that the bot reports. An answer that it measured itself counts as it says,
    /// in place of what its first sound gave.
    fn handle_times(&mut self, times: ReportedTimes) {
        let Some(answer) = times.answer else {
            if !times.first_results.is_empty() {
                self.current_answer().add_stages(times.first_results);
            }
            return;
        };
        self.measures_answers = true;
        let current = self.current_answer();
        let before = current.latency.replace(answer.latency);
        current.stages.clear();
        current.add_stages(answer.stages);
        match before {
            Some(_) => self.latencies.replace(answer.latency),
            None => self.latencies.add(answer.latency),
        }
    }

    /// Returns the times of the current answer: that of the open text, or of the text to come.
    fn current_answer(&mut self) -> &mut AnswerTiming {
        let open = self
            .texts
            .last_mut()
            .filter(|last| last.by == CallSide::Bot && self.bot_turn.is_some());
        match open {
            Some(text) => {
                self.has_news = true;
                text.answer.get_or_insert_default()
            }
            None => self.answer.get_or_insert_default(),
        }
    }

    /// Handles a segment of the bot's speech or text. Words count once they are spoken.
    fn handle_output(&mut self, output: &BotText, now: Instant) {
        let Some(text) = output.delivered() else { return };
        let known = self.bot_turn.as_ref().and_then(|turn| turn.segment);
        let sent = known
            .filter(|(last, _)| Some(*last) == output.segment_id)
            .map_or(0, |(_, bytes)| bytes);
        let rest = text.get(sent..).unwrap_or_default();
        if sent > 0 {
            self.extend(rest);
        } else {
            self.handle_words(TextSource::Output, rest, now);
        }
        if let (Some(turn), Some(segment)) = (&mut self.bot_turn, output.segment_id) {
            turn.segment = Some((segment, text.len()));
        }
    }

    /// Handles words of the bot. Those of a better source replace the text of the turn.
    fn handle_words(&mut self, source: TextSource, words: &str, now: Instant) {
        if words.trim().is_empty() {
            return;
        }
        match self.bot_turn.as_ref().map(|turn| turn.source) {
            Some(known) if known > source => return,
            Some(known) if known < source => {
                if let Some(last) = self.texts.last_mut() {
                    self.texts_bytes -= last.text.len();
                    last.text.clear();
                }
                self.append(words);
            }
            Some(_) => self.append(words),
            None => self.add(CallSide::Bot, words, now),
        }
        let segment = self.bot_turn.take().and_then(|turn| turn.segment);
        self.bot_turn = Some(BotTurn { source, segment });
    }

    /// Adds a text, or continues the last one of the same speaker.
    fn add(&mut self, by: CallSide, text: &str, now: Instant) {
        let text = text.trim();
        if !self.has_texts || text.is_empty() {
            return;
        }
        if by == CallSide::Caller {
            // The words of the bot that follow are another text.
            self.bot_turn = None;
        }
        if by == CallSide::Caller && self.texts.last().is_some_and(|last| last.by == by) {
            return self.append(text);
        }
        let answer = match by {
            CallSide::Bot => self.answer.take(),
            CallSide::Caller => {
                // A turn that the bot reports may have times before its words.
                self.answer = self.answer.take().filter(|_| self.reports_turns);
                None
            }
        };
        self.texts.push(CallText {
            at: now.saturating_duration_since(self.began),
            by,
            text: String::new(),
            answer,
        });
        self.extend(text);
    }

    /// Appends words to the last text.
    fn append(&mut self, words: &str) {
        let ends_open = self.texts.last().is_some_and(|last| {
            let begins = words
                .chars()
                .next()
                .is_none_or(|c| c.is_whitespace() || ".,;:!?…)".contains(c));
            !last.text.is_empty() && !last.text.ends_with(char::is_whitespace) && !begins
        });
        if ends_open {
            self.extend(" ");
        }
        self.extend(words);
    }

    /// Appends a text as it is, within the limits.
    fn extend(&mut self, text: &str) {
        let Some(last) = self.texts.last_mut() else {
            return;
        };
        let text = beginning(text, TEXT_BYTES_MAX.saturating_sub(last.text.len()));
        last.text.push_str(text);
        self.has_news = true;
        self.texts_bytes += text.len();
        while self.texts_bytes > TEXTS_BYTES_MAX && self.texts.len() > 1 {
            self.texts_bytes -= self.texts.remove(0).text.len();
            self.texts_cut += 1;
        }
    }
}

impl CallText {
    fn describe(&self) -> Value {
        let mut text = json!({
            "at_ms": millis(self.at),
            "by": match self.by {
                CallSide::Caller => "caller",
                CallSide::Bot => "bot",
            },
            "text": self.text,
        });
        if let Some(answer) = &self.answer {
            text["latency_ms"] = json!(answer.latency.map(millis));
            let stages = answer.stages.iter();
            let stages = stages.map(|(name, seconds)| json!({"name": name, "ms": (seconds * 1000.0).round() as u64}));
            let arrival = answer
                .arrival
                .map(|arrival| json!({"name": "arrival", "ms": millis(arrival.after)}));
            text["stages"] = stages.chain(arrival).collect();
        }
        text
    }
}

impl AnswerTimes {
    fn add(&mut self, latency: Duration) {
        if let Some(last) = self.last.replace(latency) {
            self.count = self.count.saturating_add(1);
            self.total = self.total.saturating_add(last);
            self.longest = self.longest.max(last);
        }
    }

    /// Corrects the last time.
    fn replace(&mut self, latency: Duration) {
        self.last = Some(latency);
    }

    fn count(&self) -> u32 {
        self.count.saturating_add(u32::from(self.last.is_some()))
    }

    fn mean(&self) -> Option<Duration> {
        let total = self.total.saturating_add(self.last.unwrap_or_default());
        total.checked_div(self.count())
    }

    fn longest(&self) -> Option<Duration> {
        self.last.map(|last| last.max(self.longest))
    }
}

/// Returns a short text; `None` for other values and for an empty one.
fn name_of(value: &Value) -> Option<String> {
    let name = value.as_str().filter(|name| !name.is_empty())?;
    Some(beginning(name, NAME_BYTES_MAX).to_owned())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
