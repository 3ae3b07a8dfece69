//! One life on a WebSocket: a plain client, or a telephone call from its provider's first message to its hang-up.
//!
//! `Handshake -> Live -> Finishing -> HangingUp -> Closing -> Gone`, with a deadline in every phase; a plain client begins
//! live. In: messages of the peer, the bot's speech, texts, marks and interruptions, and `now`. Out, by
//! [`SocketSession::poll_output`]: messages for the peer, PCM for the bot at the rate it asked for, events, the moment when the bot
//! is to start and the one when the call is to be hung up, and the next deadline. What is sent is made only when the socket
//! takes it, so nothing piles up before a peer that does not read.
//! Times and their reasons stand in `limits`. Sources: the fact sheets on telephony and on the protobuf WebSocket.

mod ear;
mod peer;
mod voice;

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::audio::cadence::{self, Cut};
use crate::event::{Event, LeaveReason};
use crate::frames;
use crate::limits::{
    CALL_LEAD, CALL_PLAYOUT_MARGIN, CLIENT_LEAD, FINISH_WITHIN, HANDSHAKE_WITHIN, HANG_UP_BEFORE_CLOSE, MARKS_MAX,
    MESSAGE_BYTES_MAX, MESSAGES_OUT_BYTES_MAX, MESSAGES_OUT_MAX, SOCKET_CLOSE_WITHIN, SOCKET_FREED_AFTER,
    SOCKET_PING_INTERVAL, SOCKET_STALL,
};
use crate::telephony::Call;
use ear::Ear;
use voice::Voice;

/// The rate at which a plain client plays what it gets, whatever the frame says.
const CLIENT_HZ: u32 = 24_000;

/// A message for the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Text(String),
    Binary(Vec<u8>),
    Ping,
    /// The last one; a code and a reason.
    Close(u16, &'static str),
}

/// What a session answers to an input.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// Nothing more; the session wants [`SocketSession::handle_timeout`] at this time.
    Timeout(Instant),
    Send(Message),
    /// Everything that the bot is to know is known: it starts. Comes once, and before any other event.
    Begin,
    /// Speech of the caller: `i16` mono at the rate in Hz.
    Audio(&'a [i16], u32),
    Event(Event),
    /// The call has to be hung up at its provider; [`SocketSession::handle_hung_up`] says that it was tried. Comes at most once.
    HangUp,
    /// Nothing is left; no input has any effect.
    Gone,
}

/// Why a socket is closed whose place another has.
pub const GAVE_WAY: &str = "it gave way to newer connections";

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The provider is not recognised yet.
    Handshake {
        until: Instant,
        messages: u32,
    },
    Live,
    /// The bot has ended, and its last words are still leaving.
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
    /// Our close has left, or the peer's has come.
    Closing {
        until: Instant,
    },
    Gone,
}

/// Whose language the socket speaks.
enum Wire {
    /// Protobuf frames.
    Client,
    /// A provider's JSON; nobody's before the handshake.
    Call(Option<Box<Call>>),
}

/// One session.
pub struct SocketSession {
    wire: Wire,
    phase: Phase,
    ear: Ear,
    voice: Voice,
    /// Messages that wait for room in the socket.
    waiting: VecDeque<Message>,
    waiting_bytes: usize,
    events: VecDeque<Event>,
    begin: bool,
    hang_up: bool,
    /// When the peer was last heard, and last pinged.
    heard: Instant,
    pinged: Instant,
    /// Since when the socket takes nothing.
    blocked: Option<Instant>,
    /// The bot has no more speech, as its last answer showed.
    source_dry: bool,
    /// Marks that the provider has and has not given back, and those of them that it clears.
    marks: VecDeque<String>,
    cleared: VecDeque<String>,
    /// What a provider said before it was recognised.
    early: Vec<String>,
    /// PCM of one message, kept for its memory.
    pcm: Vec<i16>,
    dropped: u64,
    refused: Option<&'static str>,
}

impl SocketSession {
    /// Begins with a plain client, which is live at once.
    pub fn client(now: Instant) -> Self {
        let cut = Cut {
            rate_hz: CLIENT_HZ,
            chunk: CLIENT_HZ as usize / 50,
            multiple: CLIENT_HZ as usize / 50,
            lead: CLIENT_LEAD,
        };
        let mut session = SocketSession::new(Wire::Client, Phase::Live, cut, now);
        session.begin();
        session
    }

    /// Begins with a telephony provider that has said nothing yet.
    pub fn call(now: Instant) -> Self {
        let phase = Phase::Handshake {
            until: now + HANDSHAKE_WITHIN,
            messages: 0,
        };
        // Nothing is said before the handshake, which brings the right cut.
        let cut = Cut {
            rate_hz: 8_000,
            chunk: 160,
            multiple: 1,
            lead: CALL_LEAD,
        };
        SocketSession::new(Wire::Call(None), phase, cut, now)
    }

    fn new(wire: Wire, phase: Phase, cut: Cut, now: Instant) -> Self {
        SocketSession {
            wire,
            phase,
            ear: Ear::default(),
            voice: Voice::new(cut),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            events: VecDeque::new(),
            begin: false,
            hang_up: false,
            heard: now,
            pinged: now,
            blocked: None,
            source_dry: true,
            marks: VecDeque::new(),
            cleared: VecDeque::new(),
            early: Vec::new(),
            pcm: Vec::new(),
            dropped: 0,
            refused: None,
        }
    }

    fn begin(&mut self) {
        self.begin = true;
        self.events.push_back(Event::Joined);
    }

    /// Returns the call, once its provider is recognised.
    pub fn telephone(&self) -> Option<&Call> {
        match &self.wire {
            Wire::Call(call) => call.as_deref(),
            Wire::Client => None,
        }
    }

    /// Returns why the handshake led to no session.
    pub fn refused(&self) -> Option<&'static str> {
        self.refused
    }

    /// Returns what was heard and said, for the log.
    pub fn tally(&self) -> Tally {
        Tally {
            heard: self.ear.heard(),
            chunks_out: self.voice.chunks(),
            messages_dropped: self.dropped,
            malformed: self.telephone().map_or(0, |call| call.malformed),
        }
    }

    /// Takes the rates that the bot asks for, in Hz.
    pub fn set_rates(&mut self, in_rate_hz: u32, out_rate_hz: u32) {
        self.ear.set_rate(in_rate_hz);
        self.voice.set_rate(out_rate_hz);
    }

    /// The peer answered a ping, or sent one.
    pub fn handle_pong(&mut self, now: Instant) {
        self.heard = now;
    }

    /// What the peer sent is no message that can be read: it is closed with this code and reason.
    pub fn handle_unreadable(&mut self, code: u16, why: &'static str, now: Instant) {
        match self.phase {
            Phase::Handshake { .. } => self.refuse(code, why, now),
            Phase::Live | Phase::Finishing { .. } => self.end(LeaveReason::Protocol, code, why, now),
            Phase::HangingUp { .. } | Phase::Closing { .. } | Phase::Gone => {}
        }
    }

    /// The peer closes; the answer to that is the socket's own.
    pub fn handle_close(&mut self, now: Instant) {
        self.leave(LeaveReason::Left);
        self.waiting.clear();
        self.waiting_bytes = 0;
        if self.phase != Phase::Gone {
            self.phase = Phase::Closing {
                until: now + SOCKET_CLOSE_WITHIN,
            };
        }
    }

    /// The connection is gone: at its end, or broken.
    pub fn handle_gone(&mut self, broken: bool) {
        self.leave(if broken { LeaveReason::Failed } else { LeaveReason::Left });
        self.phase = Phase::Gone;
    }

    /// There is no place for this session, or none any more, or nothing shows whose call it is: it
    /// ends before its bot begins.
    pub fn handle_refused(&mut self, code: u16, why: &'static str, now: Instant) {
        if matches!(self.phase, Phase::Handshake { .. } | Phase::Live) {
            // A telephone may have said more than who it is.
            self.events.clear();
            self.refuse(code, why, now);
        }
    }

    /// Ends a handshake that leads nowhere: there is no bot to tell.
    fn refuse(&mut self, code: u16, why: &'static str, now: Instant) {
        self.refused = Some(why);
        self.close(code, why, now);
    }

    /// Takes a text for the caller. A telephone gets JSON alone, and nothing of the talk with a screen.
    pub fn handle_message(&mut self, text: String) {
        if !self.speaks() {
            // Behind a close nothing may be sent, and what is tried would cut its handshake short.
            return;
        }
        if text.len() > MESSAGE_BYTES_MAX {
            self.drop_message("it is longer than a client takes");
            return;
        }
        let message = match self.wire {
            Wire::Client => Message::Binary(frames::message(&text)),
            Wire::Call(_) => match serde_json::from_str::<Value>(&text) {
                Ok(Value::Object(object)) if object.get("label").is_none_or(|label| label != "rtvi-ai") => {
                    Message::Text(text)
                }
                Ok(Value::Object(_)) => return,
                _ => return self.drop_message("a telephony provider takes JSON objects alone"),
            },
        };
        self.send(message);
    }

    /// Counts a message that the peer cannot take. The log hears of it ever more rarely: a bot can send any number.
    fn drop_message(&mut self, why: &str) {
        self.dropped += 1;
        if self.dropped.is_power_of_two() {
            log::warn!("message dropped: {why}");
        }
    }

    /// Drops all speech that has not been played, as far as the far end can.
    pub fn handle_interruption(&mut self) {
        let unsent = self.voice.handle_interruption();
        let message = match &self.wire {
            Wire::Call(Some(call)) => Message::Text(call.clear()),
            Wire::Call(None) => return,
            Wire::Client => Message::Binary(frames::interruption()),
        };
        if self.speaks() {
            self.send(message);
        }
        for name in unsent {
            self.events.push_back(Event::Mark { name, played: false });
        }
        for name in std::mem::take(&mut self.marks) {
            if self.cleared.len() == MARKS_MAX {
                self.cleared.pop_front();
            }
            self.cleared.push_back(name.clone());
            self.events.push_back(Event::Mark { name, played: false });
        }
    }

    /// Sets a mark behind all speech that was pulled.
    pub fn handle_mark(&mut self, name: String) {
        self.voice.handle_mark(name);
    }

    /// Takes speech from the bot as far as there is room. `take` appends at most so many samples, at the bot's rate.
    pub fn pull_speech(&mut self, take: impl FnOnce(&mut Vec<i16>, usize) -> usize, now: Instant) {
        if self.speaks() {
            self.source_dry = !self.voice.pull(take, now);
        }
    }

    /// The bot has ended: what it said last still leaves, then the session ends.
    pub fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant) {
        if self.phase == Phase::Live {
            self.source_dry = false;
            self.phase = Phase::Finishing {
                until: now + FINISH_WITHIN,
                reason,
            };
        }
    }

    /// The runner stops: the session ends now.
    pub fn handle_end(&mut self, reason: LeaveReason, now: Instant) {
        match self.phase {
            Phase::Handshake { .. } => self.close(1001, "the runner is stopping", now),
            Phase::Live | Phase::Finishing { .. } => {
                let (code, why) = farewell(reason);
                self.end(reason, code, why, now);
            }
            Phase::HangingUp { .. } | Phase::Closing { .. } | Phase::Gone => {}
        }
    }

    /// The provider was asked to hang up, or there was nobody to ask.
    pub fn handle_hung_up(&mut self, now: Instant) {
        if let Phase::HangingUp { code, why, .. } = self.phase {
            self.close(code, why, now);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        match self.phase {
            Phase::Handshake { until, .. } if now >= until => {
                self.refuse(1008, "unrecognised telephony handshake", now);
            }
            Phase::Finishing { until, reason } if now >= until || self.said().is_some_and(|said| now >= said) => {
                let (code, why) = farewell(reason);
                self.end(reason, code, why, now);
            }
            Phase::HangingUp { until, code, why } if now >= until => self.close(code, why, now),
            Phase::Closing { until } if now >= until => self.phase = Phase::Gone,
            _ => {}
        }
        if matches!(self.phase, Phase::Closing { .. } | Phase::Gone) {
            return;
        }
        if self.blocked.is_some_and(|since| now >= since + SOCKET_STALL) {
            self.end(LeaveReason::Stalled, 1008, "what was sent is not read", now);
        } else if now >= self.heard + SOCKET_FREED_AFTER {
            self.end(LeaveReason::Vanished, 1001, "nothing was heard for too long", now);
        } else if now >= self.pinged + SOCKET_PING_INTERVAL {
            self.pinged = now;
            self.send(Message::Ping);
        }
    }

    /// Returns when the bot's last words will have been played; nothing while some of them have not left.
    fn said(&self) -> Option<Instant> {
        let margin = match self.wire {
            Wire::Client => Duration::ZERO,
            Wire::Call(_) => CALL_PLAYOUT_MARGIN,
        };
        let sent = self.source_dry && self.voice.is_sent();
        sent.then(|| self.voice.played().map_or(self.heard, |played| played + margin))
    }

    fn speaks(&self) -> bool {
        matches!(self.phase, Phase::Live | Phase::Finishing { .. })
    }

    /// Queues a message for the peer; beyond the caps the oldest goes.
    fn send(&mut self, message: Message) {
        self.waiting_bytes += length(&message);
        self.waiting.push_back(message);
        while self.waiting.len() > MESSAGES_OUT_MAX || self.waiting_bytes > MESSAGES_OUT_BYTES_MAX {
            let oldest = self.waiting.pop_front();
            self.waiting_bytes -= oldest.as_ref().map_or(0, length);
            self.dropped += 1;
        }
    }

    /// Returns the next thing to do. A message to send is given only while the socket is `writable`.
    pub fn poll_output(&mut self, writable: bool, now: Instant) -> Output<'_> {
        if std::mem::take(&mut self.begin) {
            return Output::Begin;
        }
        // What a message brought in sound comes before what it said, its end included.
        if self.ear.poll_frame() {
            let (pcm, rate_hz) = self.ear.take_frame();
            return Output::Audio(pcm, rate_hz);
        }
        if let Some(event) = self.events.pop_front() {
            return Output::Event(event);
        }
        if std::mem::take(&mut self.hang_up) {
            return Output::HangUp;
        }
        if self.phase == Phase::Gone {
            return Output::Gone;
        }
        self.blocked = if writable { None } else { self.blocked.or(Some(now)) };
        if writable {
            if let Some(message) = self.waiting.pop_front() {
                self.waiting_bytes -= length(&message);
                return Output::Send(message);
            }
            if let Some(output) = self.speak(now) {
                return output;
            }
        }
        Output::Timeout(self.next_timeout(writable))
    }

    /// Returns what is due of the bot's speech.
    fn speak(&mut self, now: Instant) -> Option<Output<'static>> {
        if !self.speaks() {
            return None;
        }
        Some(match (self.voice.poll_output(now)?, &self.wire) {
            (cadence::Output::SpeechStarted, _) => Output::Event(Event::SpeechStarted),
            (cadence::Output::SpeechStopped, _) => Output::Event(Event::SpeechStopped),
            (cadence::Output::Chunk(pcm), Wire::Call(Some(call))) => Output::Send(Message::Text(call.media(pcm))),
            (cadence::Output::Chunk(pcm), _) => Output::Send(Message::Binary(frames::audio(pcm, CLIENT_HZ))),
            (cadence::Output::Mark(name), Wire::Call(Some(call))) => {
                let text = call.mark(&name);
                if self.marks.len() == MARKS_MAX {
                    self.marks.pop_front();
                }
                self.marks.push_back(name);
                Output::Send(Message::Text(text))
            }
            (cadence::Output::Mark(name), _) => Output::Event(Event::Mark { name, played: true }),
        })
    }

    fn next_timeout(&self, writable: bool) -> Instant {
        let phase = match self.phase {
            Phase::Handshake { until, .. } | Phase::HangingUp { until, .. } => Some(until),
            Phase::Closing { until } => return until,
            Phase::Finishing { until, .. } => Some(self.said().map_or(until, |said| said.min(until))),
            Phase::Live | Phase::Gone => None,
        };
        let voice = self.voice.poll_timeout().filter(|_| writable && self.speaks());
        let stall = self.blocked.map(|since| since + SOCKET_STALL);
        let alive = (self.pinged + SOCKET_PING_INTERVAL).min(self.heard + SOCKET_FREED_AFTER);
        [phase, voice, stall].into_iter().flatten().fold(alive, Instant::min)
    }

    /// Ends the session from this side: the bot is told, the provider is asked to hang up, then the socket closes.
    fn end(&mut self, reason: LeaveReason, code: u16, why: &'static str, now: Instant) {
        if reason == LeaveReason::Protocol {
            log::warn!("closing with code {code}: {why}");
        }
        self.leave(reason);
        if self.telephone().is_some() && self.speaks() {
            self.hang_up = true;
            self.phase = Phase::HangingUp {
                until: now + HANG_UP_BEFORE_CLOSE,
                code,
                why,
            };
        } else {
            self.close(code, why, now);
        }
    }

    /// Tells the bot that nothing more comes, unless it was told before.
    fn leave(&mut self, reason: LeaveReason) {
        if self.speaks() {
            self.events.push_back(Event::Left(reason));
        }
    }

    fn close(&mut self, code: u16, why: &'static str, now: Instant) {
        // What still waits would keep the close waiting, and nobody is there to miss it.
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.send(Message::Close(code, why));
        self.phase = Phase::Closing {
            until: now + SOCKET_CLOSE_WITHIN,
        };
    }
}

/// What a session did, for its last line in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Speech of the caller, silence included.
    pub heard: Duration,
    pub chunks_out: u64,
    /// Messages that the caller did not take, or could not.
    pub messages_dropped: u64,
    /// Messages of the caller that made no sense.
    pub malformed: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chunks, dropped) = (self.chunks_out, self.messages_dropped);
        write!(f, "audio: {:.1} s in, {chunks} messages out", self.heard.as_secs_f64())?;
        if dropped > 0 {
            write!(f, ", {dropped} messages dropped")?;
        }
        if self.malformed > 0 {
            write!(f, ", {} malformed", self.malformed)?;
        }
        Ok(())
    }
}

fn call_cut(call: &Call) -> Cut {
    let rate_hz = call.tx.rate_hz;
    let chunk = call.chunk();
    let samples = |time: Duration| (time.as_micros() as u64 * u64::from(rate_hz) / 1_000_000) as usize;
    Cut {
        rate_hz,
        chunk: samples(chunk.length),
        multiple: samples(chunk.multiple).max(1),
        lead: CALL_LEAD,
    }
}

/// What a socket is closed with when the session ends for this reason.
fn farewell(reason: LeaveReason) -> (u16, &'static str) {
    match reason {
        LeaveReason::Shutdown => (1001, "the runner is stopping"),
        LeaveReason::BotFailed => (1011, "the bot failed"),
        // Sockets are connected; what never came is a first frame.
        LeaveReason::NeverConnected => (1013, GAVE_WAY),
        _ => (1000, ""),
    }
}

fn length(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) => bytes.len(),
        Message::Ping | Message::Close(..) => 0,
    }
}

#[cfg(test)]
mod tests;
