//! One WebRTC session, from an answered offer to its end.
//!
//! `Connecting -> Live -> Finishing -> Goodbye -> Closing -> Gone`; every phase has a deadline. In:
//! datagrams, the bot's audio, texts and interruptions, later offers, and `now`. Out, through
//! [`WebRtcSession::poll_output`]: datagrams, PCM at the bot's rate, events, and the next deadline.
//! A client that restarts gets a new connection in the same session, which keeps the bot, its audio
//! and waiting messages. Durations are in `limits`. Sources: `docs/spec/signalling.md` 5,
//! `docs/spec/devices.md` 9, RFC 7587.

mod ending;
mod liveness;
mod offers;
mod replacement;
mod rtvi_gate;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde::Deserialize;

use self::liveness::Liveness;
pub use self::liveness::ProbeOutcome;
pub use self::replacement::{CompetingSession, DeviceIdentity, OfferOrigin};
use self::rtvi_gate::RtviGate;
use crate::audio::codec::Codec;
use crate::audio::receiver::AudioReceiver;
use crate::audio::sender::AudioSender;
use crate::counts::{Count, Counts, NetworkTimes};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{FINISH_WITHIN, OUTAGE_AFTER, PEER_LOST_AFTER, PROBE_CHECKS};
use crate::session::{Deadline, Session, SessionOutput};
use crate::transport::Transport;
use crate::webrtc::connection::{
    self, ChannelLabel, PacketTrust, PeerConnection, ReceivedPacket, Transmit, ValidatedPath,
};
use crate::webrtc::ice_diagnosis::IceAttempt;
use crate::webrtc::offer::RemoteCandidate;
use crate::webrtc::outbox::Outbox;
use crate::webrtc::whip::events::RealtimeEvents;

/// After this silence of a peer, its next packet triggers a check at once: devices with a
/// keep-alive close 10 s after the last check, and the next scheduled one may be 3 s away. A peer
/// that is checked each second is never silent for so long.
const CHECK_AT_ONCE_AFTER: Duration = Duration::from_secs(2);

/// A request of a session to its transport.
pub enum WebRtcCommand {
    Transmit(Transmit),
    /// The caller answered a check on this path. Other sessions with this path must be told.
    PathValidated(ValidatedPath),
    /// The result of [`WebRtcSession::handle_probe`].
    ProbeOutcome(ProbeOutcome),
    /// Tell every other session about this one.
    Announce(CompetingSession),
    /// The progress of a call.
    Progress(CallProgress),
}

/// The progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallProgress {
    /// ICE and DTLS are up.
    Secured,
    /// The caller's first audio arrived.
    Audible,
    Ended,
}

/// The phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WebRtcPhase {
    /// ICE and DTLS are being established.
    Connecting {
        until: Instant,
    },
    Live,
    /// The bot has ended, and its remaining audio is being sent.
    Finishing {
        until: Instant,
        reason: LeaveReason,
    },
    /// `peerLeft` is being sent.
    Goodbye {
        until: Instant,
    },
    /// The connection is being closed.
    Closing {
        until: Instant,
    },
    Gone,
}

/// A WebRTC session.
pub struct WebRtcSession {
    connection: PeerConnection,
    phase: WebRtcPhase,
    /// The caller was connected, on this connection or an earlier one.
    has_joined: bool,
    is_lost: bool,
    /// The bot must be told that an outage has ended.
    resume_pending: bool,
    /// The bot must be told that the caller accepts no audio any more, or accepts it again.
    hold_pending: Option<bool>,
    liveness: Liveness,
    /// Another session may belong to the same caller; nothing has been heard on this one since.
    is_contested: bool,
    audio_receiver: AudioReceiver,
    audio_sender: AudioSender,
    outbox: Outbox,
    rtvi_gate: RtviGate,
    /// State of the `oai-events` channel, if the client opened it.
    realtime_events: Option<RealtimeEvents>,
    pending_event: Option<SessionEvent>,
    commands: VecDeque<WebRtcCommand>,
    /// The bot's queue had no more audio when it was last read.
    bot_queue_empty: bool,
    media_gate: MediaGate,
    /// The silence after which the session ends.
    end_after_silence: Duration,
    is_call: bool,
    /// The caller's first audio has been passed on.
    was_audible: bool,
    /// The session was evicted before it was connected.
    is_evicted: bool,
    /// The bot ended before the caller was connected, who is told once that is the case.
    early_end: Option<LeaveReason>,
}

/// Whether audio may be sent once the caller is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MediaGate {
    Open,
    /// Blocked until [`WebRtcSession::open`].
    Held {
        is_secured: bool,
    },
}

impl WebRtcSession {
    /// Returns whether the client's offer has a data channel.
    pub fn offers_channel(&self) -> bool {
        self.connection.offers_channel()
    }

    /// Returns whether unusable audio has been logged.
    #[cfg(test)]
    pub fn reported_unusable_audio(&self) -> bool {
        self.connection.reported_unusable_audio()
    }

    /// Returns whether the absence of audio has been logged.
    #[cfg(test)]
    pub fn reported_no_audio(&self) -> bool {
        self.connection.reported_no_audio()
    }

    pub fn is_device(&self) -> bool {
        self.connection.is_device()
    }

    /// Returns the codec used in both directions.
    pub fn codec(&self) -> Codec {
        self.connection.codec()
    }

    /// Returns whether the caller was ever connected.
    pub fn has_joined(&self) -> bool {
        self.has_joined
    }

    /// Returns the caller's address in its own network, if its offer names one.
    pub fn host_address(&self) -> Option<IpAddr> {
        self.connection.host_address()
    }

    /// Returns when the caller was last heard.
    pub fn last_received(&self) -> Instant {
        self.liveness.last_received()
    }

    /// Returns the identity of a microcontroller, for other sessions.
    pub fn device(&self) -> Option<DeviceIdentity> {
        let address = self
            .connection
            .validated_address()
            .filter(|_| self.connection.is_device())?;
        let host = self.connection.host_address();
        Some(DeviceIdentity { address, host })
    }

    /// Returns the ICE user name fragment that routes packets to this session.
    pub fn local_ufrag(&mut self) -> String {
        self.connection.local_ufrag()
    }

    pub fn add_remote_candidate(&mut self, text: &str) {
        self.connection.add_remote_candidate(text);
    }

    /// Adds a candidate that the client found after its offer.
    pub fn add_trickled_candidate(&mut self, candidate: &RemoteCandidate) {
        self.connection.add_trickled_candidate(candidate);
    }

    /// Returns the record of the last connection attempt if it failed.
    pub fn failed_attempt(&self) -> Option<&IceAttempt> {
        Some(self.connection.attempt()).filter(|attempt| !attempt.is_secured())
    }

    /// Returns whether the session is closing. A returning client must not join it then.
    pub fn is_ending(&self) -> bool {
        matches!(
            self.phase,
            WebRtcPhase::Goodbye { .. } | WebRtcPhase::Closing { .. } | WebRtcPhase::Gone
        )
    }

    pub fn handle_packet(&mut self, packet: &ReceivedPacket<'_>, now: Instant) {
        // A packet that only claims to come from the caller does not keep the session alive.
        if self.connection.handle_packet(packet, now) == PacketTrust::Authenticated {
            self.handle_activity(now);
        }
    }

    fn handle_activity(&mut self, now: Instant) {
        let silence = self.liveness.silent_for(now);
        if silence >= OUTAGE_AFTER {
            self.connection.retransmit_last_record(now);
        }
        if silence >= CHECK_AT_ONCE_AFTER {
            self.connection.send_check();
        }
        self.liveness.handle_received(now);
        self.is_contested = false;
        if !self.is_ending() && std::mem::take(&mut self.is_lost) {
            self.resume_pending = true;
        }
    }

    /// Sends a check if one is due.
    fn send_due_check(&mut self, now: Instant) {
        if self.can_send_audio() && self.liveness.take_due_check(now) {
            self.connection.send_check();
        }
    }

    /// Handles a leave that the caller announced outside of the connection.
    pub fn handle_leave(&mut self, now: Instant) {
        self.handle_peer_gone(LeaveReason::Left, now);
    }

    /// Returns the number of the caller's sources that are kept.
    #[cfg(test)]
    pub fn kept_sources(&self) -> usize {
        self.connection.kept_sources()
    }

    /// Counts sources as if the caller may send from one more alone.
    #[cfg(test)]
    pub fn skip_sources(&mut self) {
        self.connection.skip_sources();
    }

    /// Advances the RTP sequence number as if `packets` had been sent.
    #[cfg(test)]
    pub fn skip_packets(&mut self, packets: u64) {
        self.connection.skip_packets(packets);
    }

    /// Sends the audio that is due.
    fn send_due_audio(&mut self, now: Instant) {
        if self.queue_due_packets(now) {
            self.connection.handle_timeout(now);
        }
    }

    /// Passes due packets to the connection. Returns whether there were any.
    fn queue_due_packets(&mut self, now: Instant) -> bool {
        let mut any = false;
        if self.can_send_audio() {
            while let Some(packet) = self.audio_sender.poll_packet(now) {
                self.connection.send_audio(packet.payload, packet.ticks, None, now);
                any = true;
            }
        }
        any
    }

    fn can_send_audio(&self) -> bool {
        matches!(self.phase, WebRtcPhase::Live | WebRtcPhase::Finishing { .. })
    }

    /// Passes queued messages to the channel. Returns whether any was sent.
    fn send_messages(&mut self, now: Instant) -> bool {
        let mut sent = false;
        while let Some(text) = self.outbox.peek(self.connection.messages_in_flight(), now) {
            if !self.rtvi_gate.admits(text, &self.connection) {
                self.outbox.discard();
                continue;
            }
            if !self.connection.send_message(text) {
                break;
            }
            self.outbox.handle_sent(now);
            sent = true;
        }
        sent
    }

    /// Returns the next event, with its side effects.
    fn next_event(&mut self) -> Option<SessionEvent> {
        if std::mem::take(&mut self.resume_pending) {
            log::info!("receiving from the caller again");
            return Some(SessionEvent::Restored);
        }
        let Some(event) = self.pending_event.take() else {
            let is_on_hold = self.hold_pending.take_if(|_| self.has_joined)?;
            let (words, event) = match is_on_hold {
                true => ("holds the call", SessionEvent::Held),
                false => ("takes the call up again", SessionEvent::Resumed),
            };
            log::info!("the caller {words}");
            return Some(event);
        };
        match event {
            SessionEvent::Joined => {
                log::info!("connected");
                self.commands
                    .extend(self.device().map(CompetingSession::Device).map(WebRtcCommand::Announce));
            }
            SessionEvent::Lost => log::info!("nothing received from the caller for {} s", PEER_LOST_AFTER.as_secs()),
            SessionEvent::Left(_) => self.progress(CallProgress::Ended),
            _ => {}
        }
        Some(event)
    }

    fn next_command(&mut self) -> Option<WebRtcCommand> {
        let found = self.liveness.take_outcome().map(WebRtcCommand::ProbeOutcome);
        found.or_else(|| self.commands.pop_front())
    }

    /// Reports the progress of a call.
    fn progress(&mut self, progress: CallProgress) {
        if self.is_call {
            self.commands.push_back(WebRtcCommand::Progress(progress));
        }
    }

    /// Advances the session when the connection has no more output. Returns whether more output
    /// follows.
    ///
    /// Acknowledgements arrive with datagrams, so waiting messages and a goodbye make progress
    /// here.
    fn advance(&mut self, now: Instant) -> bool {
        if self.send_messages(now) {
            return true;
        }
        let delivered = self.outbox.is_empty() && self.connection.messages_in_flight() == 0;
        match self.phase {
            WebRtcPhase::Goodbye { .. } if delivered => self.close(now),
            WebRtcPhase::Closing { .. } if !self.connection.is_alive() => self.phase = WebRtcPhase::Gone,
            WebRtcPhase::Connecting { .. } | WebRtcPhase::Live | WebRtcPhase::Finishing { .. }
                if !self.connection.is_alive() =>
            {
                self.handle_peer_gone(LeaveReason::Failed, now);
            }
            _ => return false,
        }
        true
    }

    fn handle_channel_open(&mut self, now: Instant) {
        self.outbox.handle_open(now);
        // Do not repeat the greeting when the channel is reopened after a restart.
        if self.connection.message_channel() == Some(ChannelLabel::Events) && self.realtime_events.is_none() {
            let events = self.realtime_events.insert(RealtimeEvents::default());
            self.outbox.push_first(events.handle_open());
        }
    }

    fn handle_connected(&mut self, now: Instant) {
        if let MediaGate::Held { is_secured } = &mut self.media_gate {
            *is_secured = true;
            return self.progress(CallProgress::Secured);
        }
        if let WebRtcPhase::Connecting { .. } = self.phase {
            self.phase = WebRtcPhase::Live;
        }
        if let Some(reason) = self.early_end.take() {
            self.handle_bot_end(reason, now);
        }
        self.audio_sender.start(now);
        self.send_due_audio(now);
        if !std::mem::replace(&mut self.has_joined, true) {
            self.pending_event = Some(SessionEvent::Joined);
        }
    }

    fn next_timeout(&self, peer: Instant, now: Instant) -> Deadline {
        let phase = match self.phase {
            WebRtcPhase::Connecting { until } | WebRtcPhase::Goodbye { until } | WebRtcPhase::Closing { until } => {
                Some(until)
            }
            WebRtcPhase::Finishing { until, .. } => Some(until),
            WebRtcPhase::Live if self.is_lost => Some(self.liveness.last_received() + self.end_after_silence),
            WebRtcPhase::Live => Some(self.liveness.last_received() + PEER_LOST_AFTER),
            WebRtcPhase::Gone => None,
        };
        // An overdue message is waiting for the peer's ACK, so it sets no timer.
        let message = self.outbox.poll_timeout().filter(|at| *at > now);
        let next = Deadline::new(peer, "connection")
            .earlier_of(phase, "phase timeout")
            .earlier_of(self.audio_receiver.poll_timeout(), "jitter buffer")
            .earlier_of(message, "message")
            .earlier_of(self.connection.audio_check_at(), "first audio");
        if !self.can_send_audio() {
            return next;
        }
        next.earlier_of(self.audio_sender.poll_timeout(), "pacer")
            .earlier_of(Some(self.liveness.next_check()), "connectivity check")
    }
}

impl Session for WebRtcSession {
    type Command = WebRtcCommand;

    fn name(&self) -> String {
        let device = if self.is_device() { ", embedded" } else { "" };
        format!("{}{device}, {}", Transport::WebRtc.name(), self.codec())
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
            self.send_due_audio(now);
        }
    }

    fn handle_interruption(&mut self, now: Instant) {
        self.audio_sender.handle_interruption(now);
        self.send_due_audio(now);
    }

    fn handle_message(&mut self, text: String) {
        self.outbox.push(text);
    }

    fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant) {
        match self.phase {
            WebRtcPhase::Live => {
                self.bot_queue_empty = false;
                self.phase = WebRtcPhase::Finishing {
                    until: now + FINISH_WITHIN,
                    reason,
                };
            }
            // A client that tries to connect would take the silence for a fault of the network. The
            // caller of a call that is not accepted is told by its provider.
            WebRtcPhase::Connecting { .. } if self.media_gate == MediaGate::Open => {
                self.early_end.get_or_insert(reason);
            }
            WebRtcPhase::Connecting { .. } => self.end(reason, now),
            _ => {}
        }
    }

    fn handle_end(&mut self, reason: LeaveReason, now: Instant) {
        match self.phase {
            WebRtcPhase::Connecting { .. } | WebRtcPhase::Live | WebRtcPhase::Finishing { .. } => self.end(reason, now),
            WebRtcPhase::Goodbye { .. } | WebRtcPhase::Closing { .. } | WebRtcPhase::Gone => {}
        }
    }

    /// Ends the session: either it never connected, or its device did not answer a probe.
    fn handle_eviction(&mut self, now: Instant) {
        let reason = if self.has_joined {
            log::info!("{PROBE_CHECKS} connectivity checks got no answer; replaced by a device at the same address");
            LeaveReason::Replaced
        } else {
            self.is_evicted = true;
            LeaveReason::NeverConnected
        };
        self.handle_end(reason, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self.phase {
            WebRtcPhase::Connecting { until } if now >= until => {
                let unanswered = if self.has_joined {
                    LeaveReason::Vanished
                } else {
                    LeaveReason::NeverConnected
                };
                self.end(self.early_end.unwrap_or(unanswered), now);
            }
            WebRtcPhase::Live | WebRtcPhase::Finishing { .. } => {
                let silent = self.liveness.silent_for(now);
                if silent >= self.end_after_silence {
                    self.end(LeaveReason::Vanished, now);
                } else if silent >= PEER_LOST_AFTER && self.is_contested {
                    self.end(LeaveReason::Replaced, now);
                } else if silent >= PEER_LOST_AFTER && !self.is_lost {
                    self.is_lost = true;
                    self.pending_event = Some(SessionEvent::Lost);
                }
                // A client that is told goodbye stops its playout, so the bot's turn must have
                // ended.
                let playout_done = self.bot_queue_empty && self.audio_sender.is_finished() && !self.awaits_channel();
                if let WebRtcPhase::Finishing { until, reason } = self.phase
                    && (now >= until || playout_done)
                {
                    self.end(reason, now);
                }
            }
            WebRtcPhase::Goodbye { until } if now >= until => self.close(now),
            WebRtcPhase::Closing { until } if now >= until => self.phase = WebRtcPhase::Gone,
            _ => {}
        }
        self.send_due_check(now);
        self.audio_receiver.handle_timeout(now);
        self.queue_due_packets(now);
        let is_live = self.phase == WebRtcPhase::Live && !self.is_lost;
        self.connection.check_audio(is_live, now);
        self.connection.handle_timeout(now);
    }

    fn poll_output(&mut self, now: Instant) -> SessionOutput<'_, WebRtcCommand> {
        loop {
            if let Some(event) = self.next_event() {
                return SessionOutput::Event(event);
            }
            if let Some(command) = self.next_command() {
                return SessionOutput::Command(command);
            }
            if self.phase == WebRtcPhase::Gone {
                return SessionOutput::Closed;
            }
            // The decoded frame is borrowed, so it must be returned at once.
            if self.audio_receiver.poll_frame() {
                if self.is_call && !std::mem::replace(&mut self.was_audible, true) {
                    return SessionOutput::Command(WebRtcCommand::Progress(CallProgress::Audible));
                }
                return SessionOutput::Audio(self.audio_receiver.take_frame().into());
            }
            match self.connection.poll_output() {
                connection::ConnectionOutput::Timeout(at) => {
                    if let Some(event) = self.audio_sender.poll_speech_event() {
                        return SessionOutput::Event(event.into());
                    }
                    if !self.advance(now) {
                        return SessionOutput::Timeout(self.next_timeout(at, now));
                    }
                }
                connection::ConnectionOutput::Transmit(transmit) => {
                    if transmit.is_check() {
                        self.liveness.handle_check(now);
                    }
                    return SessionOutput::Command(WebRtcCommand::Transmit(transmit));
                }
                connection::ConnectionOutput::PathValidated(path) => {
                    return SessionOutput::Command(WebRtcCommand::PathValidated(path));
                }
                connection::ConnectionOutput::Connected => self.handle_connected(now),
                connection::ConnectionOutput::Audio { packet, .. } => {
                    self.handle_activity(now);
                    self.audio_receiver.handle_packet(&packet, now);
                }
                connection::ConnectionOutput::Dtmf(key) => {
                    self.handle_activity(now);
                    self.pending_event = Some(SessionEvent::Dtmf(key));
                }
                connection::ConnectionOutput::ChannelOpen => self.handle_channel_open(now),
                connection::ConnectionOutput::Message(text) => {
                    self.handle_activity(now);
                    let answer = self
                        .realtime_events
                        .as_mut()
                        .and_then(|events| events.handle_message(&text));
                    if let Some(answer) = answer {
                        self.outbox.push(answer);
                    }
                    self.rtvi_gate.handle_message(&text);
                    self.pending_event = parse_message(text);
                }
                // Clients have no tracks and send text.
                connection::ConnectionOutput::TrackRemoved(_) | connection::ConnectionOutput::Data(_) => {}
                // Only connections to an SFU report these.
                connection::ConnectionOutput::TcpCandidate(_) | connection::ConnectionOutput::Silent => {}
                connection::ConnectionOutput::PeerClosed => self.handle_peer_gone(LeaveReason::Left, now),
                connection::ConnectionOutput::Failed => self.handle_peer_gone(LeaveReason::Failed, now),
            }
        }
    }

    fn has_caller(&self) -> bool {
        self.has_joined
    }

    fn codec_name(&self) -> Option<&'static str> {
        Some(self.codec().name())
    }

    fn update_counts(&self, counts: &mut Counts) {
        self.audio_receiver.stats().write_to(counts);
        self.audio_sender.counters().write_to(counts);
        counts.set(Count::MessagesDropped, self.outbox.dropped());
    }

    fn network(&self) -> NetworkTimes {
        NetworkTimes {
            jitter: self.audio_receiver.stats().jitter(),
            round_trip: self.connection.round_trip(),
            playout_delay: None,
        }
    }

    fn summary(&self, counts: &Counts) -> String {
        self.audio_receiver.stats().summary(counts)
    }

    /// Logs why a connection was not established.
    fn log_diagnosis(&self, reason: LeaveReason) {
        let is_unexplained = matches!(
            reason,
            LeaveReason::NeverConnected | LeaveReason::Vanished | LeaveReason::Failed | LeaveReason::Left
        );
        let Some(attempt) = self.failed_attempt().filter(|_| is_unexplained) else {
            return;
        };
        if self.is_evicted {
            log::debug!("{reason}: evicted to make room for a new session; {attempt}");
        } else {
            log::warn!("{reason}: {attempt}");
        }
        log::debug!("candidate pairs: {}", attempt.pairs());
    }
}

/// Parses a client's text. Keep-alives and signalling do not reach the bot.
fn parse_message(text: String) -> Option<SessionEvent> {
    #[derive(Deserialize)]
    struct TypeField<'a> {
        #[serde(borrow)]
        r#type: std::borrow::Cow<'a, str>,
    }
    if text.starts_with("ping") {
        return None;
    }
    // Only texts that may be signalling are parsed twice.
    let is_signalling = text.contains("signalling")
        && serde_json::from_str::<TypeField<'_>>(&text).is_ok_and(|envelope| envelope.r#type == "signalling");
    if is_signalling {
        // The only type is `trackStatus`; muting needs no reaction.
        log::debug!("signalling message read");
        return None;
    }
    Some(SessionEvent::Message(text))
}

#[cfg(test)]
mod tests;
