//! A session of Media over QUIC, from the bot's start to the end of its last connection.
//!
//! `Waiting -> Live <-> Lost -> Finishing -> Goodbye -> Closing -> Gone`, with a deadline in every
//! phase. In serve mode the connection of a caller arrives once, with the caller's broadcast
//! announced; in dial mode the session asks for connections to the relay, and for another one when
//! it is lost. In: connections and their events, the bot's audio, messages and interruptions, and
//! `now`. Out, by [`MoqSession::poll_output`]: datagrams and events of the endpoint, PCM at the
//! bot's rate, events, and the next deadline. `uplink` owns the connections, `caller` reads the
//! caller's broadcast, `bot` writes the bot's, `outage` bridges lost connections, `ending` ends the
//! session and `diagnosis` explains it. Source: `docs/spec/moq.md` 4 to 7.

mod bot;
mod caller;
mod diagnosis;
mod ending;
mod group_sequencer;
mod media_clock;
mod outage;
mod setup;
mod uplink;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quinn_proto::ConnectionEvent;

use self::bot::BotBroadcast;
use self::caller::CallerBroadcast;
use self::diagnosis::MoqProgress;
use self::outage::RedialSchedule;
pub use self::setup::{MoqArrival, MoqCommand, MoqSessionMode, MoqSessionSetup};
use self::uplink::Uplink;
use super::link::LinkEvent;
use super::peer::MoqPeer;
use crate::audio::codec::Codec;
use crate::audio::receiver::AudioReceiver;
use crate::audio::sender::AudioSender;
use crate::counts::{Count, Counts, NetworkTimes};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{CONNECT_WITHIN, FINISH_WITHIN, PEER_LOST_AFTER};
use crate::session::{Deadline, Session, SessionOutput};
use crate::transport::Transport;

/// Audio packets per group towards a relay: half a second. For a browser, which subscribes with a
/// latency of 0, a relay drops a group once the next has begun; then the player waits for it.
const RELAYED_PACKETS_PER_GROUP: usize = 25;
/// Time that the caller has to announce its broadcast; clients give up after the same time.
const CALLER_WITHIN: Duration = Duration::from_secs(30);
/// Time from the caller's announcement until the bot's audio starts without its subscription. A
/// browser subscribes after two round trips, and what is sent before is lost.
const AUDIO_START_WITHIN: Duration = Duration::from_secs(2);

/// Time from the first look at a silent connection to the second, which counts, unless it is later
/// than this again. A process that was stalled has datagrams to read first.
const SILENCE_CHECK: Duration = Duration::from_millis(100);

/// Deadline of a session that waits for nothing else.
const IDLE_CHECK: Duration = Duration::from_secs(60);

/// The phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoqPhase {
    /// The caller has not announced its broadcast.
    Waiting {
        until: Instant,
    },
    Live,
    /// Dial mode: the relay or the caller's broadcast is gone, and may come back.
    Lost {
        until: Instant,
    },
    /// The bot has ended, and its last speech is being sent.
    Finishing {
        until: Instant,
        reason: LeaveReason,
    },
    /// The caller is told that the session ends; then the tracks are finished.
    Goodbye {
        until: Instant,
        is_finished: bool,
    },
    /// The connection is being closed.
    Closing {
        until: Instant,
    },
    Gone,
}

/// When the bot's audio starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AudioStart {
    /// There is no caller.
    Stopped,
    /// With the caller's subscription, or at this time.
    Due(Instant),
    Started,
}

/// A session of Media over QUIC.
pub struct MoqSession {
    setup: MoqSessionSetup,
    phase: MoqPhase,
    uplink: Uplink,
    redial: RedialSchedule,
    bot: BotBroadcast,
    caller: CallerBroadcast,
    progress: MoqProgress,
    has_joined: bool,
    /// The bot was told that nothing is received.
    is_silent: bool,
    /// When a connection that seems silent is judged, see [`SILENCE_CHECK`].
    silence_check: Option<Instant>,
    has_left: bool,
    /// The bot ended before the caller came, who is told once it is there.
    early_end: Option<LeaveReason>,
    audio_start: AudioStart,
    /// When a caller without a catalog is reported; `None` once that is settled.
    deaf_at: Option<Instant>,
    audio_receiver: AudioReceiver,
    audio_sender: AudioSender,
    /// The bot's queue had no more audio when it was last read.
    bot_queue_empty: bool,
    /// What became of the last connection that did not reach the session.
    last_attempt: Option<String>,
    events: VecDeque<SessionEvent>,
    commands: VecDeque<MoqCommand>,
    transmit_buffer: Vec<u8>,
}

impl MoqSession {
    /// Creates a session. In dial mode its first command is [`MoqCommand::Dial`].
    pub fn new(setup: MoqSessionSetup, now: Instant) -> Self {
        let mut session = MoqSession {
            phase: MoqPhase::Waiting {
                until: now + CALLER_WITHIN,
            },
            uplink: Uplink::default(),
            redial: RedialSchedule::new(setup.origin),
            bot: BotBroadcast::new(setup.epoch),
            caller: CallerBroadcast::default(),
            progress: MoqProgress::default(),
            has_joined: false,
            is_silent: false,
            silence_check: None,
            has_left: false,
            early_end: None,
            audio_start: AudioStart::Stopped,
            deaf_at: None,
            audio_receiver: AudioReceiver::new(Codec::Opus),
            audio_sender: AudioSender::new(Codec::Opus, false, setup.encoder_settings),
            bot_queue_empty: true,
            last_attempt: None,
            events: VecDeque::new(),
            commands: VecDeque::new(),
            transmit_buffer: Vec::new(),
            setup,
        };
        if session.setup.mode == MoqSessionMode::Dial {
            let origin = session.redial.next_origin();
            let mut peer = MoqPeer::new(origin);
            peer.set_frames_per_group(RELAYED_PACKETS_PER_GROUP);
            session.bot.begin(peer, now);
            session.dial();
        }
        session
    }

    /// Takes the connection of a caller that has announced the broadcast of this session, in serve
    /// mode. `connection` identifies it in commands.
    pub fn handle_arrival(&mut self, connection: u64, arrival: MoqArrival, now: Instant) {
        self.uplink.open(connection, arrival.link, now);
        if !matches!(self.phase, MoqPhase::Waiting { .. }) || self.has_joined {
            return self.close(now);
        }
        self.bot.begin(arrival.peer, now);
        self.bot.publish(&self.setup.bot_path(), &mut self.uplink);
        self.handle_announced(now);
    }

    /// Takes a note on a connection that may have been meant for this session and was not bound to
    /// it, for the diagnosis of a session without a caller.
    pub fn handle_attempt(&mut self, note: String) {
        self.last_attempt = Some(note);
    }

    /// Handles an event of the endpoint for a connection of this session.
    pub fn handle_connection_event(&mut self, connection: u64, event: ConnectionEvent, now: Instant) {
        self.uplink.handle_connection_event(connection, event, now);
        if std::mem::take(&mut self.is_silent) {
            log::info!("receiving from the caller again");
            self.push_event(SessionEvent::Restored);
        }
    }

    /// Returns the bytes of the last [`MoqCommand::Send`].
    pub fn transmit_buffer(&self) -> &[u8] {
        &self.transmit_buffer
    }

    /// Returns whether the bot's broadcast was ever announced to the relay, in dial mode.
    pub fn is_ready(&self) -> bool {
        self.redial.was_up()
    }

    /// Returns why the last connection to the relay failed.
    pub fn dial_error(&self) -> Option<&str> {
        self.redial.last_error()
    }

    fn push_event(&mut self, event: SessionEvent) {
        if !self.has_left {
            self.events.push_back(event);
        }
    }

    fn can_send_audio(&self) -> bool {
        matches!(self.phase, MoqPhase::Live | MoqPhase::Finishing { .. }) && self.audio_start == AudioStart::Started
    }

    /// Sends the audio that is due.
    fn send_due_audio(&mut self, now: Instant) {
        if self.can_send_audio() {
            while let Some(packet) = self.audio_sender.poll_packet(now) {
                self.bot.write_audio(&packet, now, &mut self.uplink);
            }
        }
    }

    fn start_audio(&mut self, now: Instant) {
        if let AudioStart::Due(_) = self.audio_start {
            self.audio_start = AudioStart::Started;
            self.audio_sender.start(now);
            self.send_due_audio(now);
        }
    }

    /// Stops the bot's audio until the caller is back. Its queue is kept.
    fn pause_audio(&mut self) {
        self.audio_start = AudioStart::Stopped;
        self.audio_sender.handle_pause();
    }

    /// Handles the next event of the connection or of the peer. Returns whether there was one.
    fn handle_next_input(&mut self, now: Instant) -> bool {
        if let Some(event) = self.uplink.poll_event() {
            match event {
                LinkEvent::Closed(closed) => self.handle_link_closed(closed, now),
                LinkEvent::Connected => self.handle_link_up(now),
                event => self.bot.handle_event(event, &mut self.uplink),
            }
            return true;
        }
        match self.bot.poll_event(&mut self.uplink) {
            Some(event) => self.handle_peer_event(event, now),
            None => return false,
        }
        true
    }

    /// Returns when the silence of the connection counts as an outage. While audio is sent,
    /// acknowledgements arrive all the time.
    fn silent_at(&self) -> Option<Instant> {
        let is_expected = self.can_send_audio() && self.bot.has_audio_subscriber() && !self.is_silent;
        let due = self.uplink.last_received().filter(|_| is_expected)? + PEER_LOST_AFTER;
        Some(self.silence_check.map_or(due, |check| due.max(check)))
    }

    /// Judges the silence of the connection, once what arrived meanwhile has been read.
    fn check_silence(&mut self, now: Instant) {
        let Some(due) = self.silent_at().filter(|due| now >= *due) else {
            return;
        };
        if self.silence_check == Some(due) && now <= due + SILENCE_CHECK {
            self.silence_check = None;
            self.handle_silence(now);
        } else {
            self.silence_check = Some(now + SILENCE_CHECK);
        }
    }

    fn next_timeout(&mut self, now: Instant) -> Deadline {
        let phase = match self.phase {
            MoqPhase::Waiting { until }
            | MoqPhase::Lost { until }
            | MoqPhase::Finishing { until, .. }
            | MoqPhase::Goodbye { until, .. }
            | MoqPhase::Closing { until } => Some(until),
            MoqPhase::Live | MoqPhase::Gone => None,
        };
        let audio_start = match self.audio_start {
            AudioStart::Due(at) => Some(at),
            AudioStart::Stopped | AudioStart::Started => None,
        };
        let pacer = self
            .can_send_audio()
            .then(|| self.audio_sender.poll_timeout())
            .flatten();
        let next = Deadline::new(now + IDLE_CHECK, "idle")
            .earlier_of(phase, "phase timeout")
            .earlier_of(self.uplink.poll_timeout(), "connection");
        if self.is_ending() {
            return next;
        }
        next.earlier_of(self.redial.poll_timeout(), "redial")
            .earlier_of(self.bot.poll_timeout(), "late audio")
            .earlier_of(self.caller.poll_timeout(), "subscription")
            .earlier_of(self.audio_receiver.poll_timeout(), "jitter buffer")
            .earlier_of(audio_start, "audio start")
            .earlier_of(self.deaf_at, "catalog")
            .earlier_of(pacer, "pacer")
            .earlier_of(self.silent_at(), "silence")
    }
}

impl Session for MoqSession {
    type Command = MoqCommand;

    fn name(&self) -> String {
        let mode = match self.setup.mode {
            MoqSessionMode::Serve => "serve",
            MoqSessionMode::Dial => "dial",
        };
        format!("{}, {mode}, {}", Transport::Moq.name(), Codec::Opus)
    }

    fn set_audio(&mut self, in_rate_hz: u32, out_rate_hz: u32, _mixed: bool, _now: Instant) {
        self.audio_receiver.set_rate(in_rate_hz);
        self.audio_sender.set_rate(out_rate_hz);
    }

    fn bot_audio_capacity(&self) -> Option<usize> {
        Some(match self.can_send_audio() {
            true => self.audio_sender.free_capacity(),
            false => 0,
        })
    }

    fn handle_bot_audio(&mut self, pcm: &[i16], now: Instant) {
        if self.can_send_audio() {
            self.bot_queue_empty = pcm.is_empty();
            self.audio_sender.handle_audio(pcm, now);
            self.send_due_audio(now);
        }
    }

    fn handle_interruption(&mut self, now: Instant) {
        self.audio_sender.handle_interruption(now);
        self.bot.drop_audio();
        self.send_due_audio(now);
    }

    fn handle_message(&mut self, text: String) {
        if !self.is_ending() {
            self.bot.push_message(text);
        }
    }

    fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant) {
        match self.phase {
            MoqPhase::Live => {
                self.bot_queue_empty = false;
                self.phase = MoqPhase::Finishing {
                    until: now + FINISH_WITHIN,
                    reason,
                };
            }
            // A caller who is about to come would take the silence for a fault of the network.
            MoqPhase::Waiting { until } => {
                self.early_end.get_or_insert(reason);
                self.phase = MoqPhase::Waiting {
                    until: until.min(now + CONNECT_WITHIN),
                };
            }
            MoqPhase::Lost { .. } => self.end(reason, now),
            _ => {}
        }
    }

    fn handle_end(&mut self, reason: LeaveReason, now: Instant) {
        if !self.is_ending() {
            self.end(reason, now);
        }
    }

    fn handle_eviction(&mut self, now: Instant) {
        let reason = match self.has_joined {
            true => LeaveReason::Replaced,
            false => LeaveReason::NeverConnected,
        };
        self.handle_end(reason, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.uplink.handle_timeout(now);
        self.bot.handle_timeout(now);
        match self.phase {
            MoqPhase::Waiting { until } if now >= until => {
                self.end(self.early_end.unwrap_or(LeaveReason::NeverConnected), now);
            }
            MoqPhase::Lost { until } if now >= until => self.end(self.reason_of_outage(), now),
            MoqPhase::Finishing { until, reason } => {
                let playout_done = self.bot_queue_empty && self.audio_sender.is_finished();
                if now >= until || playout_done {
                    self.end(reason, now);
                }
            }
            MoqPhase::Goodbye { until, is_finished } if now >= until => match is_finished {
                true => self.close(now),
                false => self.finish(now),
            },
            MoqPhase::Closing { until } if now >= until => self.phase = MoqPhase::Gone,
            _ => {}
        }
        self.check_silence(now);
        if self.caller.leaves_at.is_some_and(|at| now >= at) && !self.is_ending() {
            self.handle_caller_gone(LeaveReason::Left, now);
        }
        self.handle_redial_timeout(now);
        self.resubscribe(now);
        if matches!(self.audio_start, AudioStart::Due(at) if now >= at) {
            self.start_audio(now);
        }
        if self.deaf_at.is_some_and(|at| now >= at) {
            self.report_deaf();
        }
        self.audio_receiver.handle_timeout(now);
        self.send_due_audio(now);
    }

    fn poll_output(&mut self, now: Instant) -> SessionOutput<'_, MoqCommand> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return SessionOutput::Event(event);
            }
            if let Some(command) = self.commands.pop_front() {
                return SessionOutput::Command(command);
            }
            if self.phase == MoqPhase::Gone {
                return match self.uplink.drop_next() {
                    Some(connection) => SessionOutput::Command(MoqCommand::Drop { connection }),
                    None => SessionOutput::Closed,
                };
            }
            // The decoded frame is borrowed, so it must be returned at once.
            if self.audio_receiver.poll_frame() {
                return SessionOutput::Audio(self.audio_receiver.take_frame().into());
            }
            if self.handle_next_input(now) {
                continue;
            }
            self.bot.send_messages(now, &mut self.uplink);
            if let Some(command) = self.uplink.poll_command(now, &mut self.transmit_buffer) {
                return SessionOutput::Command(command);
            }
            if let Some(event) = self.audio_sender.poll_speech_event() {
                return SessionOutput::Event(event.into());
            }
            if matches!(self.phase, MoqPhase::Closing { .. }) && self.uplink.is_empty() {
                self.phase = MoqPhase::Gone;
                continue;
            }
            return SessionOutput::Timeout(self.next_timeout(now));
        }
    }

    fn has_caller(&self) -> bool {
        self.has_joined
    }

    fn codec_name(&self) -> Option<&'static str> {
        Some(Codec::Opus.name())
    }

    fn update_counts(&self, counts: &mut Counts) {
        self.audio_receiver.stats().write_to(counts);
        self.audio_sender.counters().write_to(counts);
        counts.set(Count::MessagesDropped, self.bot.messages_dropped());
    }

    fn network(&self) -> NetworkTimes {
        NetworkTimes {
            jitter: self.audio_receiver.stats().jitter(),
            round_trip: self.uplink.round_trip(),
            playout_delay: None,
        }
    }

    fn summary(&self, counts: &Counts) -> String {
        self.audio_receiver.stats().summary(counts)
    }

    fn log_diagnosis(&self, reason: LeaveReason) {
        self.log_progress(reason);
    }
}

#[cfg(test)]
mod tests;
