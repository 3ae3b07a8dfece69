//! A session on a WebSocket: a plain client, a telephone call from its handshake to its hang-up, or
//! an evaluation.
//!
//! `Handshake -> Live -> Finishing -> HangingUp -> Closing -> Closed`, with a deadline in every
//! phase; a plain client starts live. In: messages of the peer, the bot's speech, texts, marks and
//! interruptions, and `now`. Out, by [`SocketSession::poll_output`]: messages for the peer, PCM for
//! the bot at its rate, events, the start of the bot, the hang-up, and the next deadline. Outgoing
//! audio is encoded when the socket accepts it, so nothing accumulates for a peer that does not
//! read. Source: `docs/spec/telephony.md` 2 and 10, `docs/spec/protobuf.md` 2.

mod audio_receiver;
mod audio_sender;
mod ending;
mod peer;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::answered_by::AnsweredBy;
use crate::audio::g711::LineLaws;
use crate::audio::playout_pacer::{self, ChunkFormat};
use crate::bots::BotChoice;
use crate::config::Config;
use crate::counts::{Count, Counts, NetworkTimes};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{
    CALL_DEAF_AFTER, EVAL_MESSAGE_BYTES_MAX, FINISH_WITHIN, HANDSHAKE_WITHIN, MARKS_MAX, MESSAGE_BYTES_MAX,
    MESSAGES_OUT_BYTES_MAX, MESSAGES_OUT_MAX, SOCKET_FREED_AFTER,
};
use crate::server::rest::RestRequest;
use crate::session::{Deadline, Session, SessionOutput};
use crate::sockets::frames;
use crate::telephony::proof::{CallKey, Proof};
use crate::telephony::provider::Provider;
use crate::telephony::{TelephonyCall, hangup};
use crate::transport::Transport;
use audio_receiver::SocketAudioReceiver;
use audio_sender::SocketAudioSender;
pub use ending::SocketReadError;
use ending::{EVICTED, UNRECOGNISED, close_frame};

/// Interval of pings from the runner.
const SOCKET_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time that a caller may leave sent data unread; a phone that stalls for so long has lost its
/// call.
const SOCKET_STALL: Duration = Duration::from_secs(10);
/// Speech that a plain WebSocket client buffers: it cannot discard any, so the lead is short;
/// without it, playback has gaps.
const CLIENT_LEAD: Duration = Duration::from_millis(40);
/// Speech that a telephony provider buffers: it covers network jitter, and `clear` discards it.
const CALL_LEAD: Duration = Duration::from_millis(200);
/// Delay from the buffer of a provider to the caller, of which no mark tells.
const CALL_PLAYOUT_MARGIN: Duration = Duration::from_millis(200);
/// The mark behind the last speech of a bot that sets none there. It is not reported to the bot.
const END_MARK: &str = "edge-runner-end";

/// The playout rate of plain clients, which ignore the frame's rate.
const CLIENT_HZ: u32 = 24_000;

/// A message for the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketMessage {
    Text(String),
    Binary(Vec<u8>),
    Ping,
    /// A close frame, with a code and a reason.
    Close(u16, &'static str),
}

/// A command for the transport.
#[derive(Debug, PartialEq, Eq)]
pub enum SocketCommand {
    Send(SocketMessage),
    /// Exchanges the permit of a handshake for that of a session, before the bot of a call starts;
    /// [`SocketSession::handle_refused`] reports that there is none.
    Admit,
    /// Starts the bot. Emitted once, before any event.
    StartBot(Box<SocketBotStart>),
    /// Hangs up the call at its provider; [`SocketSession::handle_hung_up`] reports the attempt.
    /// Emitted at most once.
    HangUp(&'static Provider, Box<RestRequest>),
}

/// What a session says of itself to its bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketBotStart {
    pub transport: Transport,
    /// The data of a call.
    pub call_data: Option<Value>,
    /// The flags of an evaluation.
    pub eval: Option<Value>,
    /// The rate of a line that has one for both directions.
    pub line_rate_hz: Option<u32>,
    pub line_laws: Option<LineLaws>,
    /// Whether the call is simulated.
    pub is_simulated: bool,
}

/// What decides whether a call is served.
struct CallRules {
    /// The proof that the call comes from its provider.
    proof: Proof,
    config: Arc<Config>,
}

/// The phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketPhase {
    /// The provider is not recognised yet.
    Handshake {
        until: Instant,
        messages: u32,
    },
    Live,
    /// The bot has ended, and its last speech is still being sent.
    Finishing {
        until: Instant,
        reason: LeaveReason,
    },
    /// The provider is asked to end the call; then the socket closes.
    HangingUp {
        until: Instant,
        code: u16,
        why: &'static str,
    },
    /// The close frame was sent or received.
    Closing {
        until: Instant,
    },
    Closed,
}

/// The protocol on the wire.
enum WireProtocol {
    /// Protobuf frames.
    Client,
    /// A provider's JSON; `None` before the handshake.
    Call(Option<Box<TelephonyCall>>),
    /// The texts of an evaluation, with its flags.
    Eval(Value),
}

/// A session on a WebSocket.
pub struct SocketSession {
    wire: WireProtocol,
    /// `None` for a plain client.
    rules: Option<CallRules>,
    phase: SocketPhase,
    audio_receiver: SocketAudioReceiver,
    audio_sender: SocketAudioSender,
    /// Messages queued until the socket accepts them.
    outgoing: VecDeque<SocketMessage>,
    outgoing_bytes: usize,
    events: VecDeque<SessionEvent>,
    /// Whether a permit of a session, the start of the bot and the hang-up are to be requested.
    needs_permit: bool,
    begin: bool,
    hang_up: bool,
    /// Whether the call goes on without the session.
    is_transferred: bool,
    /// Times at which the peer was last heard and last pinged.
    last_received: Instant,
    pinged: Instant,
    /// Whether the last ping has no answer yet, and how long the answer to one took.
    awaits_pong: bool,
    round_trip: Option<Duration>,
    /// Time since which the socket accepts nothing.
    blocked: Option<Instant>,
    /// Whether the bot last reported that it has no more speech.
    bot_queue_empty: bool,
    /// Marks that the provider has not returned, and those of them that it cleared.
    marks: VecDeque<SentMark>,
    cleared: VecDeque<String>,
    /// Whether speech was sent behind the last mark, and when the provider last returned one.
    is_unmarked: bool,
    mark_returned_at: Option<Instant>,
    /// How late the provider plays the speech that the bot began last; `None` until it says so.
    playout_delay: Option<Duration>,
    /// Messages of a provider that is not yet recognised.
    early: Vec<String>,
    /// When the bot counts as deaf; `None` once audio has come or that was said.
    deaf_at: Option<Instant>,
    /// Messages of the provider in a row that could not be read.
    unreadable: u32,
    /// PCM of one message; a field to reuse the memory.
    pcm: Vec<i16>,
    dropped: u64,
    /// Why there is no session, as the close frame says and as the log does.
    refused: Option<&'static str>,
    advice: Option<String>,
    /// Whether speech has left since more was requested.
    has_room: bool,
    /// Whether the bot was started, and whether a text or binary message arrived.
    has_begun: bool,
    has_received: bool,
}

/// A mark that the provider returns once the speech before it was played.
struct SentMark {
    name: String,
    /// When that would be without any delay; `None` without speech of the latest answer before it.
    played: Option<Instant>,
}

impl SocketSession {
    /// Creates the session of a plain client, which is live at once.
    pub fn client(now: Instant) -> Self {
        let chunk_format = ChunkFormat {
            rate_hz: CLIENT_HZ,
            chunk: CLIENT_HZ as usize / 50,
            multiple: CLIENT_HZ as usize / 50,
            lead: CLIENT_LEAD,
        };
        let mut session = SocketSession::new(WireProtocol::Client, SocketPhase::Live, chunk_format, now);
        session.begin();
        session
    }

    /// Creates the session of a telephony provider that is not yet recognised.
    pub fn call(proof: Proof, config: Arc<Config>, now: Instant) -> Self {
        let phase = SocketPhase::Handshake {
            until: now + HANDSHAKE_WITHIN,
            messages: 0,
        };
        // Nothing is sent before the handshake, which sets the chunk size.
        let chunk_format = ChunkFormat {
            rate_hz: 8_000,
            chunk: 160,
            multiple: 1,
            lead: CALL_LEAD,
        };
        SocketSession {
            rules: Some(CallRules { proof, config }),
            ..SocketSession::new(WireProtocol::Call(None), phase, chunk_format, now)
        }
    }

    fn new(wire: WireProtocol, phase: SocketPhase, chunk_format: ChunkFormat, now: Instant) -> Self {
        SocketSession {
            wire,
            rules: None,
            phase,
            audio_receiver: SocketAudioReceiver::default(),
            audio_sender: SocketAudioSender::new(chunk_format),
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            events: VecDeque::new(),
            needs_permit: false,
            begin: false,
            hang_up: false,
            is_transferred: false,
            last_received: now,
            pinged: now,
            awaits_pong: false,
            round_trip: None,
            blocked: None,
            bot_queue_empty: true,
            marks: VecDeque::new(),
            cleared: VecDeque::new(),
            is_unmarked: false,
            mark_returned_at: None,
            playout_delay: None,
            early: Vec::new(),
            deaf_at: None,
            unreadable: 0,
            pcm: Vec::new(),
            dropped: 0,
            refused: None,
            advice: None,
            has_room: false,
            has_begun: false,
            has_received: false,
        }
    }

    fn begin(&mut self) {
        self.begin = true;
        self.has_begun = true;
        self.events.push_back(SessionEvent::Joined);
    }

    /// Returns the call, once its provider is recognised.
    pub fn telephone(&self) -> Option<&TelephonyCall> {
        match &self.wire {
            WireProtocol::Call(call) => call.as_deref(),
            WireProtocol::Client | WireProtocol::Eval(_) => None,
        }
    }

    /// Returns what says which bot answers a call: the number that was dialled, and what the
    /// provider passes on as its body.
    pub fn bot_choice(&self) -> BotChoice<'_> {
        let data = self.telephone().map(|call| &call.data);
        BotChoice {
            body: data.and_then(|data| data.get("body")),
            dialled: [data.and_then(|data| data.get("to")?.as_str()), None],
            ..BotChoice::default()
        }
    }

    /// Returns the number of the caller; nothing for a client that is no telephone, and for a call
    /// whose webhook had it.
    pub fn caller(&self) -> Option<Option<&str>> {
        let call = self.telephone().filter(|call| !call.provider.url_names_bot)?;
        Some(call.data.get("from").and_then(Value::as_str))
    }

    /// Returns what the provider tells of a telephone call.
    pub fn call_data(&self) -> Option<&Value> {
        self.telephone().map(|call| &call.data)
    }

    /// Returns the call of a verified webhook that goes on elsewhere, from where it may return.
    pub fn transferred_call(&self) -> Option<CallKey> {
        let call = self.telephone().filter(|_| self.is_transferred)?;
        let proof = &self.rules.as_ref()?.proof;
        matches!(proof, Proof::Webhook(_)).then(|| CallKey::of(call.provider, &call.call_id))
    }

    /// Returns the transport of the session.
    pub fn transport(&self) -> Transport {
        self.telephone()
            .map_or(Transport::WebSocket, |call| Transport::Telephony(call.provider))
    }

    /// Returns what the log says of a handshake that was rejected after this time.
    pub fn refusal(&self, after: Duration) -> Option<String> {
        let (why, seconds) = (self.refused?, after.as_secs_f64());
        Some(match &self.advice {
            Some(advice) => advice.clone(),
            None if why == UNRECOGNISED => {
                format!("{why}, after {seconds:.1} s; other WebSocket clients belong on /ws-client")
            }
            None => format!("{why}, after {seconds:.1} s"),
        })
    }

    /// Returns whether the call is simulated: its provider is asked for nothing.
    fn is_simulated(&self) -> bool {
        let (Some(call), Some(rules)) = (self.telephone(), &self.rules) else {
            return false;
        };
        rules.proof.is_simulation(call, rules.config.api_key.is_some())
    }

    /// Returns what the bot gets to know, and logs that it starts.
    fn bot_start(&self) -> SocketBotStart {
        let (call, transport, is_simulated) = (self.telephone(), self.transport(), self.is_simulated());
        let simulated = if is_simulated { ", simulated" } else { "" };
        log::info!("session started: {}{simulated}", self.name());
        let expected = self.rules.as_ref().and_then(|rules| rules.config.transport);
        if let Some(expected) = expected.filter(|expected| expected.is_telephony() && *expected != transport) {
            log::warn!(
                "the call is {}'s, though the runner was started with -t {}",
                transport.common_name(),
                expected.common_name()
            );
        }
        SocketBotStart {
            transport,
            call_data: call.map(|call| call.data.clone()),
            eval: match &self.wire {
                WireProtocol::Eval(flags) => Some(flags.clone()),
                WireProtocol::Client | WireProtocol::Call(_) => None,
            },
            line_rate_hz: call
                .filter(|call| call.rx.rate_hz == call.tx.rate_hz)
                .map(|call| call.rx.rate_hz),
            line_laws: call.and_then(|call| call.line_laws()),
            is_simulated,
        }
    }

    /// Returns the request that ends the call at its provider, if there is an API for that.
    fn hang_up_request(&self) -> Option<SocketCommand> {
        let call = self.telephone().filter(|_| !self.is_simulated())?;
        let settings = &self.rules.as_ref()?.config.telephony.settings;
        let request = hangup::request(call.provider, &call.call_id, settings)?;
        Some(SocketCommand::HangUp(call.provider, Box::new(request)))
    }

    /// Returns the statistics for the log.
    pub fn stats(&self) -> SocketStats {
        SocketStats {
            received: self.audio_receiver.received(),
            spoken: self.audio_sender.sent(),
            messages_dropped: self.dropped,
            malformed: self.telephone().map_or(0, |call| call.malformed),
        }
    }

    /// Handles a ping of the peer.
    pub fn handle_ping(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Handles a pong of the peer; one without a ping is a sign of life alone.
    pub fn handle_pong(&mut self, now: Instant) {
        self.last_received = now;
        if std::mem::take(&mut self.awaits_pong) {
            self.round_trip = Some(now.saturating_duration_since(self.pinged));
        }
    }

    /// Handles a socket that accepted only a part of its data.
    pub fn handle_blocked(&mut self, now: Instant) {
        self.blocked.get_or_insert(now);
    }

    /// Handles a socket that accepted all of its data.
    pub fn handle_writable(&mut self) {
        self.blocked = None;
    }

    /// Counts a message that cannot be sent to the peer. The intervals of log lines grow, since a
    /// bot can send any number.
    fn drop_message(&mut self, why: &str) {
        self.dropped += 1;
        if self.dropped.is_power_of_two() {
            log::warn!("message dropped: {why}");
        }
    }

    /// Says once why nothing of the caller has come since the call began.
    fn report_deaf(&mut self) {
        self.deaf_at = None;
        if let Some(warning) = self.deaf_warning() {
            log::warn!("{warning}");
        }
    }

    fn deaf_warning(&self) -> Option<String> {
        let call = self.telephone()?;
        let (why, name, seconds) = (call.deaf_cause()?, call.provider.name, CALL_DEAF_AFTER.as_secs());
        Some(format!(
            "the bot is deaf: {name} has sent no audio of the caller in {seconds} s; {why}"
        ))
    }

    /// Handles the end of the hang-up request, or its absence.
    pub fn handle_hung_up(&mut self, now: Instant) {
        if let SocketPhase::HangingUp { code, why, .. } = self.phase {
            self.close(code, why, now);
        }
    }

    /// Returns the time at which the far end has played all speech; `None` while some is queued,
    /// and until the provider of a call has returned the marks behind it.
    fn playout_end(&self) -> Option<Instant> {
        if !self.bot_queue_empty || !self.audio_sender.is_sent() {
            return None;
        }
        let Some(played) = self.audio_sender.played() else {
            return Some(self.last_received);
        };
        match self.wire {
            // A client reports nothing: its speech lasts as long as it is.
            WireProtocol::Client | WireProtocol::Eval(_) => Some(played),
            WireProtocol::Call(_) if self.is_unmarked || !self.marks.is_empty() => None,
            WireProtocol::Call(_) => {
                // Some providers return a mark before its speech is played.
                let reported = self.mark_returned_at.map_or(played, |at| at.max(played));
                Some(reported + CALL_PLAYOUT_MARGIN)
            }
        }
    }

    /// Sets a mark behind the last speech of a bot that has ended.
    fn mark_end(&mut self) {
        let is_last = matches!(self.phase, SocketPhase::Finishing { .. }) && self.bot_queue_empty;
        if is_last && self.is_unmarked && self.audio_sender.is_sent() && self.telephone().is_some() {
            self.audio_sender.handle_mark(END_MARK.to_owned());
        }
    }

    /// Tells the bot what became of one of its marks.
    fn report_mark(&mut self, name: String, played: bool) {
        if name != END_MARK {
            self.events.push_back(SessionEvent::Mark { name, played });
        }
    }

    /// Handles the report of who answered a call that the runner dialled.
    pub fn handle_answered_by(&mut self, by: AnsweredBy) {
        if self.can_send_audio() {
            self.events.push_back(SessionEvent::AnsweredBy(by));
        }
    }

    /// Returns the bytes of the longest message of the peer. The transport may let longer ones pass
    /// before it is known who that is.
    fn message_bytes_max(&self) -> usize {
        match self.wire {
            WireProtocol::Eval(_) => EVAL_MESSAGE_BYTES_MAX,
            WireProtocol::Client | WireProtocol::Call(_) => MESSAGE_BYTES_MAX,
        }
    }

    fn can_send_audio(&self) -> bool {
        matches!(self.phase, SocketPhase::Live | SocketPhase::Finishing { .. })
    }

    /// Queues a message for the peer; the oldest is dropped beyond the limits.
    fn send(&mut self, message: SocketMessage) {
        self.outgoing_bytes += length(&message);
        self.outgoing.push_back(message);
        while self.outgoing.len() > MESSAGES_OUT_MAX || self.outgoing_bytes > MESSAGES_OUT_BYTES_MAX {
            let oldest = self.outgoing.pop_front();
            self.outgoing_bytes -= oldest.as_ref().map_or(0, length);
            self.dropped += 1;
        }
    }

    /// Returns the next output of the bot's speech that is due.
    fn poll_speech(&mut self, now: Instant) -> Option<SessionOutput<'static, SocketCommand>> {
        if !self.can_send_audio() {
            return None;
        }
        let message = match (self.audio_sender.poll_output(now)?, &self.wire) {
            (playout_pacer::PlayoutOutput::SpeechStarted, _) => {
                // Marks that are out are behind earlier speech.
                self.marks.iter_mut().for_each(|mark| mark.played = None);
                self.playout_delay = None;
                return Some(SessionOutput::Event(SessionEvent::SpeechStarted));
            }
            (playout_pacer::PlayoutOutput::SpeechStopped, _) => {
                return Some(SessionOutput::Event(SessionEvent::SpeechStopped));
            }
            (playout_pacer::PlayoutOutput::Chunk(pcm), WireProtocol::Call(Some(call))) => {
                self.is_unmarked = true;
                SocketMessage::Text(call.media(pcm))
            }
            // An evaluation has the bot's audio in its texts, if at all.
            (playout_pacer::PlayoutOutput::Chunk(_), WireProtocol::Eval(_)) => {
                return Some(SessionOutput::BotAudioWanted);
            }
            (playout_pacer::PlayoutOutput::Chunk(pcm), _) => SocketMessage::Binary(frames::audio(pcm, CLIENT_HZ)),
            (playout_pacer::PlayoutOutput::Mark(name), WireProtocol::Call(Some(call))) => {
                let text = call.mark(&name);
                if self.marks.len() == MARKS_MAX {
                    self.marks.pop_front();
                }
                let played = self.audio_sender.played().filter(|played| *played > now);
                self.marks.push_back(SentMark { name, played });
                self.is_unmarked = false;
                SocketMessage::Text(text)
            }
            (playout_pacer::PlayoutOutput::Mark(name), _) => {
                return Some(SessionOutput::Event(SessionEvent::Mark { name, played: true }));
            }
        };
        self.has_room = true;
        Some(SessionOutput::Command(SocketCommand::Send(message)))
    }

    fn next_timeout(&self) -> Deadline {
        let phase = match self.phase {
            SocketPhase::Handshake { until, .. } | SocketPhase::HangingUp { until, .. } => Some(until),
            SocketPhase::Closing { until } => return Deadline::new(until, "close"),
            SocketPhase::Finishing { until, .. } => Some(self.playout_end().map_or(until, |said| said.min(until))),
            SocketPhase::Live => self.deaf_at,
            SocketPhase::Closed => None,
        };
        let alive = (self.pinged + SOCKET_PING_INTERVAL).min(self.last_received + SOCKET_FREED_AFTER);
        let next = Deadline::new(alive, "keep-alive").earlier_of(phase, "phase timeout");
        match self.blocked {
            Some(since) => next.earlier_of(Some(since + SOCKET_STALL), "stall"),
            None if self.can_send_audio() => next.earlier_of(self.audio_sender.poll_timeout(), "pacer"),
            None => next,
        }
    }
}

impl Session for SocketSession {
    type Command = SocketCommand;

    fn name(&self) -> String {
        let name = self.transport().common_name();
        match self.wire {
            WireProtocol::Eval(_) => format!("{name} (eval)"),
            _ => name.to_owned(),
        }
    }

    fn set_audio(&mut self, in_rate_hz: u32, out_rate_hz: u32, _mixed: bool, _now: Instant) {
        self.audio_receiver.set_rate(in_rate_hz);
        self.audio_sender.set_rate(out_rate_hz);
    }

    fn bot_audio_capacity(&self) -> Option<usize> {
        Some(if self.can_send_audio() {
            self.audio_sender.free_capacity()
        } else {
            0
        })
    }

    fn handle_bot_audio(&mut self, pcm: &[i16], now: Instant) {
        if self.can_send_audio() {
            self.bot_queue_empty = pcm.is_empty();
            self.audio_sender.handle_audio(pcm, now);
        }
    }

    /// A provider reports playback; for a plain client, speech counts as played when it has left.
    fn handle_mark(&mut self, name: String) -> Option<SessionEvent> {
        self.audio_sender.handle_mark(name);
        None
    }

    fn handle_interruption(&mut self, _now: Instant) {
        let unsent = self.audio_sender.handle_interruption();
        self.is_unmarked = false;
        let message = match &self.wire {
            WireProtocol::Call(Some(call)) => Some(SocketMessage::Text(call.clear())),
            WireProtocol::Call(None) => return,
            WireProtocol::Client => Some(SocketMessage::Binary(frames::interruption())),
            WireProtocol::Eval(_) => None,
        };
        if let Some(message) = message.filter(|_| self.can_send_audio()) {
            self.send(message);
        }
        for name in unsent {
            self.report_mark(name, false);
        }
        for SentMark { name, .. } in std::mem::take(&mut self.marks) {
            if self.cleared.len() == MARKS_MAX {
                self.cleared.pop_front();
            }
            self.cleared.push_back(name.clone());
            self.report_mark(name, false);
        }
    }

    /// Telephony providers only get JSON objects, and no RTVI messages.
    fn handle_message(&mut self, text: String) {
        if !self.can_send_audio() {
            // Nothing may be sent after a close frame; an attempt would interrupt the closing
            // handshake.
            return;
        }
        if text.len() > MESSAGE_BYTES_MAX {
            self.drop_message("it is longer than a client takes");
            return;
        }
        let message = match self.wire {
            WireProtocol::Client => SocketMessage::Binary(frames::message(&text)),
            WireProtocol::Eval(_) => SocketMessage::Text(text),
            WireProtocol::Call(_) => match serde_json::from_str::<Value>(&text) {
                Ok(Value::Object(object)) if object.get("label").is_none_or(|label| label != "rtvi-ai") => {
                    SocketMessage::Text(text)
                }
                Ok(Value::Object(_)) => return log::debug!("RTVI message dropped: a telephone has no screen"),
                _ => return self.drop_message("a telephony provider accepts only JSON objects"),
            },
        };
        self.send(message);
    }

    fn handle_transferred(&mut self) {
        self.is_transferred = true;
    }

    fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant) {
        if self.phase == SocketPhase::Live {
            // Asks for the rest of the speech, so that the session ends as soon as there is none.
            self.bot_queue_empty = false;
            self.has_room = true;
            self.phase = SocketPhase::Finishing {
                until: now + FINISH_WITHIN,
                reason,
            };
        }
    }

    fn handle_end(&mut self, reason: LeaveReason, now: Instant) {
        match self.phase {
            SocketPhase::Handshake { .. } => self.close(1001, "the runner is stopping", now),
            SocketPhase::Live | SocketPhase::Finishing { .. } => {
                let (code, why) = close_frame(reason);
                self.end(reason, code, why, now);
            }
            SocketPhase::HangingUp { .. } | SocketPhase::Closing { .. } | SocketPhase::Closed => {}
        }
    }

    /// Only for a socket without a recognised provider, or a client that sent no frame.
    fn handle_eviction(&mut self, now: Instant) {
        match self.phase {
            SocketPhase::Handshake { .. } => self.drop_out(1013, EVICTED, now),
            _ => self.handle_end(LeaveReason::NeverConnected, now),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self.phase {
            SocketPhase::Handshake { until, .. } if now >= until => {
                self.refuse(1008, UNRECOGNISED, now);
            }
            SocketPhase::Finishing { until, reason }
                if now >= until || self.playout_end().is_some_and(|said| now >= said) =>
            {
                let (code, why) = close_frame(reason);
                self.end(reason, code, why, now);
            }
            SocketPhase::HangingUp { until, code, why } if now >= until => self.close(code, why, now),
            SocketPhase::Closing { until } if now >= until => self.phase = SocketPhase::Closed,
            SocketPhase::Live if self.deaf_at.is_some_and(|at| now >= at) => self.report_deaf(),
            _ => {}
        }
        if matches!(self.phase, SocketPhase::Closing { .. } | SocketPhase::Closed) {
            return;
        }
        if self.blocked.is_some_and(|since| now >= since + SOCKET_STALL) {
            self.end(LeaveReason::Stalled, 1008, "what was sent is not read", now);
        } else if now >= self.last_received + SOCKET_FREED_AFTER {
            self.end(LeaveReason::Vanished, 1001, "nothing was received for too long", now);
        } else if now >= self.pinged + SOCKET_PING_INTERVAL {
            self.pinged = now;
            self.awaits_pong = true;
            self.send(SocketMessage::Ping);
        }
    }

    fn poll_output(&mut self, now: Instant) -> SessionOutput<'_, SocketCommand> {
        if std::mem::take(&mut self.needs_permit) {
            return SessionOutput::Command(SocketCommand::Admit);
        }
        if std::mem::take(&mut self.begin) {
            return SessionOutput::Command(SocketCommand::StartBot(Box::new(self.bot_start())));
        }
        // The audio of a message precedes its events, including the end.
        if self.audio_receiver.poll_frame() {
            return SessionOutput::Audio(self.audio_receiver.take_frame().into());
        }
        if let Some(event) = self.events.pop_front() {
            return SessionOutput::Event(event);
        }
        if std::mem::take(&mut self.hang_up) {
            match self.hang_up_request() {
                Some(hang_up) => return SessionOutput::Command(hang_up),
                None => self.handle_hung_up(now),
            }
        }
        if self.phase == SocketPhase::Closed {
            return SessionOutput::Closed;
        }
        if self.blocked.is_none() {
            // Sent speech frees capacity, and the request for more may be due as well.
            if std::mem::take(&mut self.has_room) {
                return SessionOutput::BotAudioWanted;
            }
            if let Some(message) = self.outgoing.pop_front() {
                self.outgoing_bytes -= length(&message);
                return SessionOutput::Command(SocketCommand::Send(message));
            }
            self.mark_end();
            if let Some(output) = self.poll_speech(now) {
                return output;
            }
        }
        SessionOutput::Timeout(self.next_timeout())
    }

    /// Returns whether a first message of a known caller has arrived.
    fn has_caller(&self) -> bool {
        self.has_begun && self.has_received && self.refused.is_none()
    }

    /// Of a telephone, the round trip is that to its provider.
    fn network(&self) -> NetworkTimes {
        NetworkTimes {
            jitter: None,
            round_trip: self.round_trip,
            playout_delay: self.playout_delay,
        }
    }

    fn update_counts(&self, counts: &mut Counts) {
        counts.set(Count::FramesOut, self.audio_sender.chunks());
        counts.set(Count::MessagesDropped, self.dropped);
    }

    fn summary(&self, counts: &Counts) -> String {
        let (to_bot, to_caller) = (counts.get(Count::MessagesIn), counts.get(Count::MessagesOut));
        format!("{}; texts: {to_bot} in, {to_caller} out", self.stats())
    }
}

/// The statistics of a session, for its last log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketStats {
    /// Duration of the caller's audio, including silence.
    pub received: Duration,
    /// Duration of the bot's audio that was sent, including padding.
    pub spoken: Duration,
    /// Messages that the caller did not accept, or that it cannot read.
    pub messages_dropped: u64,
    /// Invalid messages of the caller.
    pub malformed: u64,
}

impl fmt::Display for SocketStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (received, spoken) = (self.received.as_secs_f64(), self.spoken.as_secs_f64());
        write!(f, "audio: {received:.1} s in, {spoken:.1} s out")?;
        match self.messages_dropped {
            0 => {}
            1 => f.write_str(", 1 message dropped")?,
            dropped => write!(f, ", {dropped} messages dropped")?,
        }
        if self.malformed > 0 {
            write!(f, ", {} malformed", self.malformed)?;
        }
        Ok(())
    }
}

fn call_chunk_format(call: &TelephonyCall) -> ChunkFormat {
    let rate_hz = call.tx.rate_hz;
    let chunk = call.chunk();
    let samples = |time: Duration| (time.as_micros() as u64 * u64::from(rate_hz) / 1_000_000) as usize;
    ChunkFormat {
        rate_hz,
        chunk: samples(chunk.length),
        multiple: samples(chunk.multiple).max(1),
        lead: CALL_LEAD,
    }
}

fn length(message: &SocketMessage) -> usize {
    match message {
        SocketMessage::Text(text) => text.len(),
        SocketMessage::Binary(bytes) => bytes.len(),
        SocketMessage::Ping | SocketMessage::Close(..) => 0,
    }
}

#[cfg(test)]
mod tests;
