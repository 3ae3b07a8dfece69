//! The session of a bot in a LiveKit room, from the bot's taking its media to the end.
//!
//! `Waiting -> Joining -> Live <-> Reconnecting -> Finishing -> Closing -> Closed`, with a deadline
//! in every phase but the first, since a bot that never takes its media joins the room by itself.
//! In: the result of a dial, messages of the server, datagrams of the two peer connections, the
//! bot's speech, messages and interruptions, and `now`. Out, by [`RoomSession::poll_output`]: a
//! WebSocket to open, messages and datagrams to send, PCM for the bot, events, and the next
//! deadline. A failure of any part replaces the whole connection; the bot, its queued speech and
//! messages, and the known participants survive it. `join` handles joining and reconnecting,
//! `connection` is one connection, `participants` tracks the participants, `messages` handles data,
//! and `leave` ends the session. Timeouts and their reasons are in `limits`. Source:
//! `docs/spec/livekit.md` 2 to 5.

mod connection;
mod join;
mod leave;
mod messages;
mod participants;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::audio::codec::Codec;
use crate::audio::sender::AudioSender;
use crate::config::{Secret, Transport};
use crate::counts::{Count, Counts};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{ROOM_FIRST_CALLER_WITHIN, ROOM_LEAVE_AFTER, ROOM_REGATHER_WITHIN};
use crate::livekit::receiver::RoomAudioReceiver;
use crate::livekit::wire::SignalTarget;
use crate::session::{Deadline, Session, SessionOutput};
use crate::webrtc::connection::{ConnectionContext, ReceivedPacket, Transmit};
use crate::webrtc::outbox::Outbox;
use connection::{RoomConnection, RoomOutput};
use messages::EarlyMessages;
use participants::Participants;

/// A WebSocket to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialRequest {
    /// `http` or `https`, for a connection without or with TLS.
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub token: Secret,
}

/// A command to the transport.
pub enum RoomCommand {
    /// Exactly one of [`RoomSession::handle_open`], [`RoomSession::handle_refused`] and
    /// [`RoomSession::handle_unreachable`] follows, unless the socket is closed first.
    Dial(DialRequest),
    /// One binary message.
    Send(Vec<u8>),
    /// Closes the socket, or cancels the dial.
    CloseSocket,
    /// Routes datagrams with this user name fragment to this connection.
    Listen(SignalTarget, String),
    Transmit(SignalTarget, Transmit),
}

/// The phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoomPhase {
    /// The bot has not taken its media.
    Waiting,
    /// The room has not been joined yet.
    Joining {
        tries: usize,
    },
    /// In the room since this time.
    Live {
        since: Instant,
    },
    /// The room is lost and is being joined again.
    Reconnecting(Reconnect),
    /// The bot has ended, and its last speech is still being sent.
    Finishing {
        until: Instant,
        reason: LeaveReason,
    },
    /// The leave has been sent.
    Closing {
        until: Instant,
    },
    Closed,
}

/// An attempt to return to the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reconnect {
    since: Instant,
    tries: usize,
}

/// The state of the signalling connection.
enum SignalState {
    /// There is none.
    Disconnected,
    /// The next attempt starts at this time.
    Backoff(Instant),
    Connecting,
    Open(Box<RoomConnection>),
}

/// The parameters of a session.
pub struct RoomSetup {
    pub common: Arc<ConnectionContext>,
    /// The server's URL: `ws`, `wss`, `http` or `https`.
    pub url: String,
    pub token: Secret,
    /// `now` as Unix time.
    pub unix: Duration,
}

/// A session in a LiveKit room.
pub struct RoomSession {
    common: Arc<ConnectionContext>,
    url: String,
    /// The newest token.
    token: Secret,
    /// The same moment by the monotonic and by the Unix clock.
    clock: (Instant, Duration),
    phase: RoomPhase,
    signal: SignalState,
    /// The last reconnect, which continues if the new connection is lost soon.
    last_reconnect: Option<Reconnect>,
    /// The number of unusable descriptions since the room was joined.
    bad_descriptions: u32,
    joined: bool,
    lost: bool,
    participants: Participants,
    /// Whether a caller was ever present.
    had_caller: bool,
    /// Since when no caller has been present, or since the room was joined.
    no_caller_since: Option<Instant>,
    receiver: RoomAudioReceiver,
    audio_sender: AudioSender,
    outbox: Outbox,
    /// Messages of callers from before the bot was told that it has joined.
    early_messages: EarlyMessages,
    /// The number of the bot's messages that were too long for the server.
    oversized_messages: u64,
    events: VecDeque<SessionEvent>,
    commands: VecDeque<RoomCommand>,
    /// Whether the bot had no more speech when last asked.
    speech_ended: bool,
}

impl RoomSession {
    pub fn new(setup: RoomSetup, now: Instant) -> Self {
        let audio_sender = AudioSender::new(Codec::Opus, false, setup.common.encoder_settings);
        RoomSession {
            common: setup.common,
            url: setup.url,
            token: setup.token,
            clock: (now, setup.unix),
            phase: RoomPhase::Waiting,
            signal: SignalState::Disconnected,
            last_reconnect: None,
            bad_descriptions: 0,
            joined: false,
            lost: false,
            participants: Participants::default(),
            had_caller: false,
            no_caller_since: None,
            receiver: RoomAudioReceiver::new(),
            audio_sender,
            outbox: Outbox::new(false),
            early_messages: EarlyMessages::default(),
            oversized_messages: 0,
            events: VecDeque::new(),
            commands: VecDeque::new(),
            speech_ended: true,
        }
    }

    /// Handles one binary message of the server.
    pub fn handle_binary(&mut self, bytes: Bytes, now: Instant) {
        if let SignalState::Open(connection) = &mut self.signal {
            connection.handle_binary(bytes, now);
        }
    }

    /// Handles a datagram for one of the two connections.
    pub fn handle_packet(&mut self, target: SignalTarget, packet: &ReceivedPacket<'_>, now: Instant) {
        if let SignalState::Open(connection) = &mut self.signal {
            connection.handle_packet(target, packet, now);
        }
    }

    /// Ends the session in an empty room, and reports participants that did not return.
    fn check_empty(&mut self, now: Instant) {
        self.expire_missing(now);
        if self.empty_deadline().is_some_and(|until| now >= until) {
            let reason = match self.had_caller {
                true => LeaveReason::Left,
                false => LeaveReason::NeverConnected,
            };
            self.end(reason, now);
        }
    }

    /// Returns when a room without callers is left; `None` while there are callers.
    fn empty_deadline(&self) -> Option<Instant> {
        let alone = self.no_caller_since?;
        if !self.had_caller {
            return Some(alone + ROOM_FIRST_CALLER_WITHIN);
        }
        let regathered = self
            .rejoin_deadline()
            .filter(|_| self.participants.is_missing_callers());
        regathered.into_iter().chain([alone + ROOM_LEAVE_AFTER]).max()
    }

    /// Returns until when participants from before the connection loss may return.
    fn rejoin_deadline(&self) -> Option<Instant> {
        match self.phase {
            RoomPhase::Live { since } if self.participants.is_missing_any() => Some(since + ROOM_REGATHER_WITHIN),
            _ => None,
        }
    }

    /// Reports the participants that did not return in time.
    fn expire_missing(&mut self, now: Instant) {
        if self.rejoin_deadline().is_some_and(|until| now >= until) {
            self.participants.remove_missing(&mut self.events);
        }
    }

    /// Sends the frames that are due.
    fn send_speech(&mut self, now: Instant) {
        if self.queue_frames(now) {
            let unix_ms = self.unix_ms(now);
            if let SignalState::Open(connection) = &mut self.signal {
                connection.handle_timeout(now, unix_ms);
            }
        }
    }

    /// Queues the frames that are due on the connection. Tells whether there were any.
    fn queue_frames(&mut self, now: Instant) -> bool {
        let mut any = false;
        if self.sends_audio()
            && let SignalState::Open(connection) = &mut self.signal
        {
            while let Some(packet) = self.audio_sender.poll_packet(now) {
                connection.send_audio(&packet, now);
                any = true;
            }
        }
        any
    }

    fn sends_audio(&self) -> bool {
        matches!(self.phase, RoomPhase::Live { .. } | RoomPhase::Finishing { .. })
    }

    /// Handles the next output of the connection.
    fn poll_connection(&mut self, now: Instant) -> RoomPoll {
        let SignalState::Open(connection) = &mut self.signal else {
            return RoomPoll::Idle(None);
        };
        match connection.poll_output(&self.common, now) {
            RoomOutput::Timeout(at) => return RoomPoll::Idle(at),
            RoomOutput::Transmit(target, transmit) => return RoomPoll::Transmit(target, transmit),
            RoomOutput::Send(bytes) => self.commands.push_back(RoomCommand::Send(bytes)),
            RoomOutput::Listen(target, ufrag) => self.commands.push_back(RoomCommand::Listen(target, ufrag)),
            RoomOutput::Audio { track, packet } => {
                if let Some(identity) = connection.track_owner(&track).filter(|_| self.joined) {
                    self.receiver.handle_packet(&track, identity, &packet, now);
                }
            }
            RoomOutput::TrackGone(track) => self.receiver.handle_track_ended(&track),
            RoomOutput::ChannelOpen => self.outbox.handle_open(now),
            RoomOutput::Data(bytes) => self.handle_data(&bytes),
            RoomOutput::Up => self.handle_media_up(now),
            RoomOutput::Change(change) => {
                self.participants.handle_change(change, &mut self.events);
                self.update_callers(now);
            }
            RoomOutput::Token(token) => self.token = token,
            RoomOutput::Ended(cause) => self.handle_connection_end(&cause, now),
        }
        RoomPoll::More
    }

    /// Updates whether a caller is present, and reports a change to the bot.
    fn update_callers(&mut self, now: Instant) {
        if self.is_ending() {
            return;
        }
        let (callers, is_up) = match &self.signal {
            SignalState::Open(connection) => (connection.callers(), connection.is_up()),
            _ => (0, false),
        };
        self.had_caller |= callers > 0;
        if callers > 0 {
            self.no_caller_since = None;
        } else if is_up {
            self.no_caller_since.get_or_insert(now);
        }
        let here = callers > 0 && is_up;
        if here && !std::mem::replace(&mut self.joined, true) {
            let after = now.saturating_duration_since(self.clock.0).as_secs_f64();
            log::info!("connected after {after:.1} s");
            self.events.push_back(SessionEvent::Joined);
            self.events.extend(self.early_messages.take());
        } else if here && std::mem::replace(&mut self.lost, false) {
            log::info!("a caller is heard again");
            self.events.push_back(SessionEvent::Resumed);
        } else if !here && self.joined && !std::mem::replace(&mut self.lost, true) {
            log::info!("no caller is heard");
            self.events.push_back(SessionEvent::Lost);
        }
    }

    /// Does what can follow once the connection has no more output. Tells whether more output
    /// follows.
    fn advance(&mut self, now: Instant) -> bool {
        if self.send_messages(now) {
            return true;
        }
        let (SignalState::Open(connection), RoomPhase::Closing { .. }) = (&mut self.signal, self.phase) else {
            return false;
        };
        if connection.wants_close() {
            self.commands.push_back(RoomCommand::CloseSocket);
        } else if connection.is_closed() {
            self.phase = RoomPhase::Closed;
        } else {
            return false;
        }
        true
    }

    /// Tells whether the session takes speech of the bot. While no caller is present, speech waits
    /// with the bot, except for the last speech of a bot that has ended.
    fn accepts_speech(&self) -> bool {
        match self.phase {
            RoomPhase::Live { .. } => self.joined && !self.lost,
            RoomPhase::Finishing { .. } => true,
            _ => false,
        }
    }

    fn next_timeout(&self, connection: Option<Instant>, now: Instant) -> Deadline {
        let phase = match self.phase {
            RoomPhase::Finishing { until, .. } | RoomPhase::Closing { until } => Some(until),
            _ => self.rejoin_deadline(),
        };
        let alone = matches!(self.phase, RoomPhase::Live { .. })
            .then(|| self.empty_deadline())
            .flatten();
        let pause = match self.signal {
            SignalState::Backoff(until) => Some(until),
            _ => None,
        };
        let audio_sender = self.sends_audio().then(|| self.audio_sender.poll_timeout()).flatten();
        // Nothing is due before the bot or the transport acts.
        Deadline::new(now + ROOM_FIRST_CALLER_WITHIN, "nothing")
            .earlier_of(connection, "connection")
            .earlier_of(phase, "phase timeout")
            .earlier_of(alone, "no caller")
            .earlier_of(pause, "next try")
            .earlier_of(audio_sender, "pacer")
            .earlier_of(self.receiver.poll_timeout(), "jitter buffer")
    }

    fn unix_ms(&self, now: Instant) -> u64 {
        let (then, unix) = self.clock;
        (unix + now.saturating_duration_since(then)).as_millis() as u64
    }

    #[cfg(test)]
    fn is_live(&self) -> bool {
        matches!(self.phase, RoomPhase::Live { .. })
    }
}

impl Session for RoomSession {
    type Command = RoomCommand;

    fn name(&self) -> String {
        Transport::Mediaroom.name().to_owned()
    }

    /// The first call joins the room.
    fn set_audio(&mut self, in_rate_hz: u32, out_rate_hz: u32, mixed: bool, now: Instant) {
        self.receiver.configure(in_rate_hz, mixed, now);
        self.audio_sender.set_rate(out_rate_hz, now);
        if self.phase == RoomPhase::Waiting {
            self.join(now);
        }
    }

    fn bot_audio_capacity(&self) -> Option<usize> {
        self.accepts_speech().then(|| self.audio_sender.free_capacity())
    }

    fn handle_bot_audio(&mut self, pcm: &[i16], now: Instant) {
        if self.accepts_speech() {
            self.speech_ended = pcm.is_empty();
            self.audio_sender.handle_audio(pcm, now);
            self.send_speech(now);
        }
    }

    fn handle_interruption(&mut self, now: Instant) {
        self.audio_sender.handle_interruption(now);
        self.send_speech(now);
    }

    fn handle_message(&mut self, text: String) {
        self.push_message(text);
    }

    fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant) {
        self.finish(reason, now);
    }

    fn handle_end(&mut self, reason: LeaveReason, now: Instant) {
        if !self.is_ending() {
            self.end(reason, now);
        }
    }

    fn handle_eviction(&mut self, now: Instant) {
        log::debug!("evicted for a new session");
        self.handle_end(LeaveReason::NeverConnected, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self.phase {
            RoomPhase::Finishing { until, reason } => {
                let playout_done = self.speech_ended && self.audio_sender.is_finished();
                if now >= until || playout_done {
                    self.end(reason, now);
                }
            }
            RoomPhase::Closing { until } if now >= until => self.phase = RoomPhase::Closed,
            RoomPhase::Live { .. } => self.check_empty(now),
            _ => {}
        }
        if let SignalState::Backoff(until) = self.signal
            && now >= until
        {
            self.dial();
        }
        self.receiver.handle_timeout(now);
        self.queue_frames(now);
        let unix_ms = self.unix_ms(now);
        if let SignalState::Open(connection) = &mut self.signal {
            connection.handle_timeout(now, unix_ms);
        }
    }

    fn poll_output(&mut self, now: Instant) -> SessionOutput<'_, RoomCommand> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return SessionOutput::Event(event);
            }
            if let Some(command) = self.commands.pop_front() {
                return SessionOutput::Command(command);
            }
            if self.phase == RoomPhase::Closed {
                return SessionOutput::Closed;
            }
            // The frame borrows `self`, so returning it is the last step.
            if self.receiver.poll_frame() {
                return SessionOutput::Audio(self.receiver.take_frame());
            }
            let at = match self.poll_connection(now) {
                RoomPoll::More => continue,
                RoomPoll::Transmit(target, transmit) => {
                    return SessionOutput::Command(RoomCommand::Transmit(target, transmit));
                }
                RoomPoll::Idle(at) => at,
            };
            if let Some(event) = self.audio_sender.poll_speech_event() {
                if !self.is_ending() {
                    self.events.push_back(event.into());
                }
                continue;
            }
            if !self.advance(now) {
                return SessionOutput::Timeout(self.next_timeout(at, now));
            }
        }
    }

    fn has_caller(&self) -> bool {
        self.participants.had_any()
    }

    fn update_counts(&self, counts: &mut Counts) {
        self.receiver.tally().write_to(counts);
        self.audio_sender.counters().write_to(counts);
        counts.set(Count::MessagesDropped, self.outbox.dropped() + self.oversized_messages);
    }

    fn summary(&self, counts: &Counts) -> String {
        self.receiver.tally().summary(counts)
    }
}

/// The result of polling the connection.
enum RoomPoll {
    More,
    Transmit(SignalTarget, Transmit),
    Idle(Option<Instant>),
}

/// The host candidates of the two connections, each with the port of its own socket.
#[derive(Clone, Debug, Default)]
pub struct LocalAddresses {
    pub publisher: Vec<SocketAddr>,
    pub subscriber: Vec<SocketAddr>,
}

#[cfg(test)]
mod tests;
