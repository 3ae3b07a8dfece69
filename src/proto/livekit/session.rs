//! The session of a bot in a LiveKit room, from the bot's taking its media to the end.
//!
//! A caller in a room is a bot whose callers are the agents: [`RoomRole`] has the few differences.
//! `Waiting -> Joining -> Live <-> Reconnecting -> Finishing -> Closing -> Closed`, with a
//! deadline in every phase but the first, since a bot that never takes its media joins the room
//! by itself. In: the result of a dial, messages of the server, datagrams of the two peer
//! connections, the bot's speech, messages and interruptions, and `now`. Out, by
//! [`RoomSession::poll_output`]: a WebSocket to open, messages and datagrams to send, PCM for the
//! bot, events, and the next deadline. After a failure the connection is resumed if the server
//! still holds the participant, and replaced otherwise; the bot, its queued speech and messages,
//! and the known participants survive both. `join` handles joining and reconnecting, `resume`
//! resuming, `connection` is one connection, `server_paths` its ways to the server,
//! `participants` tracks the participants, `messages` handles data, `unannounced` holds what
//! comes too early, `leave` ends the session, and `job` is what a job of the server adds.
//! `unjoined` looks at the room before the bot is in it. Timeouts and their reasons are in
//! `limits`. Source: `docs/spec/livekit.md` 2 to 5.

mod connection;
mod disconnect;
mod job;
mod join;
mod leave;
mod messages;
mod participants;
mod resume;
mod server_paths;
mod unannounced;
mod unjoined;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::audio::codec::Codec;
use crate::audio::sender::AudioSender;
use crate::counts::{Count, Counts, NetworkTimes};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{CALL_DEAF_AFTER, ROOM_FIRST_CALLER_WITHIN};
use crate::livekit::TRANSCRIPTION_TOPIC;
use crate::livekit::agent_state::AgentStateTracker;
use crate::livekit::packet_queue::PacketQueue;
use crate::livekit::receiver::RoomAudioReceiver;
use crate::livekit::remote_calls::RemoteCalls;
use crate::livekit::room_service::RoomService;
use crate::livekit::roster::{RoomRole, RosterChange};
use crate::livekit::signal::NoAudioCause;
use crate::livekit::text_stream::TextStreams;
use crate::livekit::transcripts::Transcripts;
use crate::livekit::wire::SignalTarget;
use crate::secret::Secret;
use crate::server::rest::RestRequest;
use crate::session::{Deadline, Session, SessionOutput};
use crate::transport::Transport;
use crate::webrtc::connection::{ConnectionContext, ReceivedPacket, Transmit};
use connection::{RoomConnection, RoomOutput};
use job::JobState;
pub use job::{JobEvent, JobRules};
use messages::EarlyMessages;
use participants::Participants;
use resume::{LastResume, Resume};
pub use server_paths::{PathEvent, PathId, PathRequest};
use unannounced::UnannouncedData;
use unjoined::RoomLookout;

/// Time for the callers of a lost connection to return after the bot has rejoined: stock clients
/// retry for up to 40 s.
const ROOM_REGATHER_WITHIN: Duration = Duration::from_secs(40);

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
    /// Routes datagrams with this user name fragment to this connection, and those from the address
    /// in use.
    Listen(SignalTarget, String, Option<SocketAddr>),
    /// [`RoomSession::handle_path`] follows with what became of it.
    OpenPath(SignalTarget, PathId, PathRequest),
    ClosePath(PathId),
    /// Closes all paths.
    ClosePaths,
    Transmit(SignalTarget, Transmit),
    /// Reports to the worker that has the job.
    Job(JobEvent),
    /// Asks the API of the server; [`RoomSession::handle_participants`] follows with the answer.
    Look(RestRequest),
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
    pub role: RoomRole,
    pub common: Arc<ConnectionContext>,
    /// The server's URL: `ws`, `wss`, `http` or `https`.
    pub url: String,
    /// Further URLs, which are tried when one does not answer.
    pub other_urls: Vec<String>,
    pub token: Secret,
    /// The name of the agent that front-ends are shown.
    pub agent_name: String,
    /// The API of the server, where a credential allows to hang telephones up.
    pub service: Option<RoomService>,
    /// `now` as Unix time.
    pub unix: Duration,
    /// The rules of the job; `None` without one.
    pub job: Option<JobRules>,
}

/// A session in a LiveKit room.
pub struct RoomSession {
    role: RoomRole,
    common: Arc<ConnectionContext>,
    url: String,
    other_urls: VecDeque<String>,
    /// The newest token.
    token: Secret,
    /// The same moment by the monotonic and by the Unix clock.
    clock: (Instant, Duration),
    phase: RoomPhase,
    signal: SignalState,
    /// The last reconnect, which continues if the new connection is lost soon.
    last_reconnect: Option<Reconnect>,
    /// The attempts to resume the open connection, whose socket is lost.
    resume: Option<Resume>,
    last_resume: Option<LastResume>,
    /// The number of unusable descriptions since the room was joined.
    bad_descriptions: u32,
    joined: bool,
    lost: bool,
    /// The last mute by an administrator that was reported to the bot.
    is_muted: bool,
    participants: Participants,
    /// Whether a caller was ever present.
    had_caller: bool,
    /// Since when no caller has been present, or since the room was joined.
    no_caller_since: Option<Instant>,
    receiver: RoomAudioReceiver,
    audio_sender: AudioSender,
    outbox: PacketQueue,
    /// Messages of the bot that are not handled yet.
    bot_messages: VecDeque<String>,
    agent_name: String,
    agent_state: AgentStateTracker,
    transcripts: Transcripts,
    remote_calls: RemoteCalls,
    text_streams: TextStreams,
    service: Option<RoomService>,
    lookout: Option<RoomLookout>,
    /// Whether the bot has given the call away.
    is_transferred: bool,
    /// The telephone to hang up when the session has ended.
    hang_up: Option<Arc<str>>,
    /// Why callers are not heard, as far as it was logged.
    no_audio: Vec<NoAudioCause>,
    /// Whether audio of a caller has come.
    has_audio: bool,
    /// Until when the first of it has to come.
    deaf_at: Option<Instant>,
    /// Messages of callers from before the bot was told that it has joined.
    early_messages: EarlyMessages,
    unannounced: UnannouncedData,
    /// The number of the bot's messages that were too long for the server.
    oversized_messages: u64,
    events: VecDeque<SessionEvent>,
    commands: VecDeque<RoomCommand>,
    /// Whether the bot had no more speech when last asked.
    bot_queue_empty: bool,
    job: Option<JobState>,
}

impl RoomSession {
    pub fn new(setup: RoomSetup, now: Instant) -> Self {
        let audio_sender = AudioSender::new(Codec::Opus, false, setup.common.encoder_settings);
        RoomSession {
            role: setup.role,
            common: setup.common,
            url: setup.url,
            other_urls: setup.other_urls.into(),
            token: setup.token,
            clock: (now, setup.unix),
            phase: RoomPhase::Waiting,
            signal: SignalState::Disconnected,
            last_reconnect: None,
            resume: None,
            last_resume: None,
            bad_descriptions: 0,
            joined: false,
            lost: false,
            is_muted: false,
            participants: Participants::new(setup.role),
            had_caller: false,
            no_caller_since: None,
            receiver: RoomAudioReceiver::new(),
            audio_sender,
            outbox: PacketQueue::default(),
            bot_messages: VecDeque::new(),
            agent_name: setup.agent_name,
            agent_state: AgentStateTracker::default(),
            transcripts: Transcripts::default(),
            remote_calls: RemoteCalls::default(),
            text_streams: match setup.role {
                RoomRole::Bot => TextStreams::default(),
                RoomRole::Caller => TextStreams::of_topic(TRANSCRIPTION_TOPIC),
            },
            lookout: setup
                .service
                .clone()
                .filter(|_| setup.role == RoomRole::Bot)
                .map(|service| RoomLookout::new(service, now)),
            service: setup.service,
            is_transferred: false,
            hang_up: None,
            no_audio: Vec::new(),
            has_audio: false,
            deaf_at: None,
            early_messages: EarlyMessages::default(),
            unannounced: UnannouncedData::default(),
            oversized_messages: 0,
            events: VecDeque::new(),
            commands: VecDeque::new(),
            bot_queue_empty: true,
            job: setup.job.map(JobState::new),
        }
    }

    /// Handles one binary message of the server.
    pub fn handle_binary(&mut self, bytes: Bytes, now: Instant) {
        if self.has_socket()
            && let SignalState::Open(connection) = &mut self.signal
        {
            connection.handle_binary(bytes, now);
        }
    }

    /// Handles a datagram for one of the two connections.
    pub fn handle_packet(&mut self, target: SignalTarget, packet: &ReceivedPacket<'_>, now: Instant) {
        if let SignalState::Open(connection) = &mut self.signal {
            connection.handle_packet(target, packet, now);
        }
    }

    /// Handles what became of a path.
    pub fn handle_path(&mut self, id: PathId, event: PathEvent, now: Instant) {
        if let SignalState::Open(connection) = &mut self.signal {
            connection.handle_path(id, event, now);
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
            return Some(alone + self.first_caller_within());
        }
        let regathered = self
            .rejoin_deadline()
            .filter(|_| self.participants.is_missing_callers());
        let until = alone + self.stays_without_callers();
        regathered.into_iter().chain([until]).max()
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
        let is_up = matches!(&self.signal, SignalState::Open(connection) if connection.is_up());
        is_up && matches!(self.phase, RoomPhase::Live { .. } | RoomPhase::Finishing { .. })
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
            RoomOutput::Listen(target, ufrag, used) => {
                self.commands.push_back(RoomCommand::Listen(target, ufrag, used));
            }
            RoomOutput::OpenPath(target, id, request) => {
                self.commands.push_back(RoomCommand::OpenPath(target, id, request));
            }
            RoomOutput::ClosePath(id) => self.commands.push_back(RoomCommand::ClosePath(id)),
            RoomOutput::Audio { track, packet } => {
                // A bot may greet before the caller knows that it hears it.
                let is_taken = self.joined || self.role == RoomRole::Caller;
                if let Some(identity) = connection.track_owner(&track).filter(|_| is_taken) {
                    self.has_audio = true;
                    self.receiver.handle_packet(&track, identity, &packet, now);
                }
            }
            RoomOutput::TrackGone(track) => self.receiver.handle_track_ended(&track),
            RoomOutput::ChannelOpen => self.outbox.handle_open(),
            RoomOutput::Data(bytes) => self.handle_data(&bytes, now),
            RoomOutput::Up => self.handle_media_up(now),
            RoomOutput::MediaLost => self.handle_media_lost(now),
            RoomOutput::MediaBack => self.handle_media_back(now),
            RoomOutput::Restored => self.handle_restored(now),
            RoomOutput::Change(change) => {
                if let RosterChange::Left(who) = &change {
                    self.handle_participant_left(&who.identity);
                }
                let announced = match &change {
                    RosterChange::Joined(who) => Some(who.clone()),
                    _ => None,
                };
                self.participants.handle_change(change, &mut self.events);
                self.update_callers(now);
                if let Some(who) = announced {
                    self.handle_announced(&who, now);
                }
                self.check_second_bot(now);
            }
            RoomOutput::Muted(muted) => {
                log::info!(
                    "an administrator of the room has {} the bot",
                    if muted { "muted" } else { "unmuted" }
                );
                self.report_muted(muted);
            }
            RoomOutput::NoAudio(cause) => self.report_no_audio(cause),
            RoomOutput::Subscribed => self.update_callers(now),
            RoomOutput::Token(token) => self.token = token,
            RoomOutput::Ended(cause) => {
                if !self.try_resume(&cause, now) {
                    self.handle_connection_end(&cause, now);
                }
            }
        }
        RoomPoll::More
    }

    /// Tells the bot whether it is muted, if that has changed.
    fn report_muted(&mut self, muted: bool) {
        if std::mem::replace(&mut self.is_muted, muted) != muted {
            self.events.push_back(SessionEvent::Muted(muted));
        }
    }

    /// Says once that no audio comes, though a caller publishes some, unless its cause was logged.
    fn check_audio(&mut self, now: Instant) {
        let is_publishing = matches!(&self.signal, SignalState::Open(connection) if connection.is_any_publishing());
        let is_expected = is_publishing && self.joined && !self.lost && self.role == RoomRole::Bot;
        if !is_expected || self.has_audio || !self.no_audio.is_empty() {
            self.deaf_at = None;
        } else if now >= *self.deaf_at.get_or_insert(now + CALL_DEAF_AFTER) {
            self.deaf_at = None;
            self.report_no_audio(NoAudioCause::NoPackets);
        }
    }

    /// Updates whether a caller is present and hears the bot, and reports a change to the bot.
    fn update_callers(&mut self, now: Instant) {
        if self.is_ending() {
            return;
        }
        let (callers, is_up, here) = match &mut self.signal {
            SignalState::Open(connection) => (connection.callers(), connection.is_up(), connection.is_audible(now)),
            _ => (0, false, false),
        };
        self.had_caller |= callers > 0;
        if callers > 0 {
            self.no_caller_since = None;
        } else if is_up {
            self.no_caller_since.get_or_insert(now);
        }
        if here && !std::mem::replace(&mut self.joined, true) {
            let after = now.saturating_duration_since(self.clock.0).as_secs_f64();
            log::log!(self.role.log_level(), "connected after {after:.1} s");
            self.events.push_back(SessionEvent::Joined);
            self.events.extend(self.early_messages.take());
        } else if here && std::mem::replace(&mut self.lost, false) {
            log::log!(self.role.log_level(), "a {} is connected again", self.role.other());
            self.events.push_back(SessionEvent::Restored);
        } else if !here && self.joined && !std::mem::replace(&mut self.lost, true) {
            log::log!(self.role.log_level(), "no {} is connected", self.role.other());
            self.events.push_back(SessionEvent::Lost);
        }
    }

    /// Does what can follow once the connection has no more output. Tells whether more output
    /// follows.
    fn advance(&mut self, now: Instant) -> bool {
        if self.show_state(now) || self.send_messages() {
            return true;
        }
        if self.leave_deadline().is_some() {
            // The leave is yet to be sent.
            return false;
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
        let alone = matches!(self.phase, RoomPhase::Waiting | RoomPhase::Live { .. })
            .then(|| self.empty_deadline())
            .flatten();
        let pause = match self.signal {
            SignalState::Backoff(until) => Some(until),
            _ => None,
        };
        let subscribed = match &self.signal {
            SignalState::Open(connection) => connection.subscribe_deadline(),
            _ => None,
        };
        let audio_sender = self.sends_audio().then(|| self.audio_sender.poll_timeout()).flatten();
        // Nothing is due before the bot or the transport acts.
        Deadline::new(now + ROOM_FIRST_CALLER_WITHIN, "nothing")
            .earlier_of(connection, "connection")
            .earlier_of(phase, "phase timeout")
            .earlier_of(alone, "no caller")
            .earlier_of(self.look_deadline(), "participants")
            .earlier_of(pause, "next try")
            .earlier_of(self.resume_deadline(), "resume")
            .earlier_of(subscribed, "subscription")
            .earlier_of(self.deaf_at.filter(|_| self.is_live()), "first audio")
            .earlier_of(self.leave_deadline(), "report of the job")
            .earlier_of(audio_sender, "pacer")
            .earlier_of(self.messages_timeout(now), "messages")
            .earlier_of(self.receiver.poll_timeout(), "jitter buffer")
    }

    fn unix_ms(&self, now: Instant) -> u64 {
        let (then, unix) = self.clock;
        (unix + now.saturating_duration_since(then)).as_millis() as u64
    }

    fn is_live(&self) -> bool {
        matches!(self.phase, RoomPhase::Live { .. })
    }
}

impl Session for RoomSession {
    type Command = RoomCommand;

    fn name(&self) -> String {
        Transport::Mediaroom.common_name().to_owned()
    }

    /// The first call joins the room.
    fn set_audio(&mut self, in_rate_hz: u32, out_rate_hz: u32, mixed: bool, now: Instant) {
        self.receiver.configure(in_rate_hz, mixed, now);
        self.audio_sender.set_rate(out_rate_hz);
        if self.phase == RoomPhase::Waiting {
            self.lookout = None;
            self.join(now);
        }
    }

    fn bot_audio_capacity(&self) -> Option<usize> {
        self.accepts_speech().then(|| self.audio_sender.free_capacity())
    }

    fn handle_bot_audio(&mut self, pcm: &[i16], now: Instant) {
        if self.accepts_speech() {
            self.bot_queue_empty = pcm.is_empty();
            self.audio_sender.handle_audio(pcm, now);
            self.send_speech(now);
        }
    }

    fn handle_interruption(&mut self, now: Instant) {
        self.audio_sender.handle_interruption(now);
        self.send_speech(now);
    }

    fn handle_message(&mut self, text: String) {
        self.bot_messages.push_back(text);
    }

    fn handle_keys(&mut self, keys: &str) {
        keys.chars().for_each(|key| self.send_key(key));
    }

    fn handle_transferred(&mut self) {
        self.is_transferred = true;
    }

    fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant) {
        self.finish(reason, now);
    }

    fn handle_bot_failure(&mut self, now: Instant) -> bool {
        self.restarts_bot(now)
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
                let playout_done = self.bot_queue_empty && self.audio_sender.is_finished();
                if now >= until || playout_done {
                    self.end(reason, now);
                }
            }
            RoomPhase::Closing { until } if now >= until => self.phase = RoomPhase::Closed,
            RoomPhase::Waiting => {
                self.look(now);
                self.check_empty(now);
            }
            RoomPhase::Live { .. } => {
                self.update_callers(now);
                self.check_audio(now);
                self.check_empty(now);
            }
            _ => {}
        }
        self.check_leave(now);
        if let SignalState::Backoff(until) = self.signal
            && now >= until
        {
            self.dial();
        }
        self.dial_resume(now);
        self.expire_messages(now);
        self.receiver.handle_timeout(now);
        self.queue_frames(now);
        let unix_ms = self.unix_ms(now);
        if let SignalState::Open(connection) = &mut self.signal {
            connection.handle_timeout(now, unix_ms);
        }
    }

    fn poll_output(&mut self, now: Instant) -> SessionOutput<'_, RoomCommand> {
        loop {
            while let Some(text) = self.bot_messages.pop_front() {
                self.handle_bot_message(text, now);
            }
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
                self.handle_speech_event(event, now);
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
        self.receiver.stats().write_to(counts);
        self.audio_sender.counters().write_to(counts);
        counts.set(Count::MessagesDropped, self.outbox.dropped() + self.oversized_messages);
    }

    fn network(&self) -> NetworkTimes {
        NetworkTimes {
            jitter: self.receiver.stats().jitter(),
            round_trip: match &self.signal {
                SignalState::Open(connection) => connection.round_trip(),
                _ => None,
            },
            playout_delay: None,
        }
    }

    fn summary(&self, counts: &Counts) -> String {
        self.receiver.stats().summary(counts)
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
