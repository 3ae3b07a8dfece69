//! Lost connections: in dial mode another one follows, within a time limit; in serve mode they end
//! the session.
//!
//! In: the ends of connections and dials. Out: dials with growing pauses, each connection under a
//! new origin, and the bot's events. Source: `docs/spec/moq.md` 7.

use std::time::{Duration, Instant};

use super::diagnosis::MoqProgress;
use super::{MoqCommand, MoqPhase, MoqSession, MoqSessionMode};
use crate::event::{LeaveReason, SessionEvent};
use crate::moq::link::{LinkClosed, LinkEvent, MoqLink};

/// Time that a lost relay or caller has to come back: that of Pipecat.
const OUTAGE_MAX: Duration = Duration::from_secs(30);
/// Pause before the first dial after a loss; it doubles with each failure.
const REDIAL_PAUSE_FIRST: Duration = Duration::from_millis(500);
/// Longest pause between two dials.
const REDIAL_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time that one dial has until the session is up: a handshake with two losses.
const DIAL_WITHIN: Duration = Duration::from_secs(5);
/// Characters of the reason of a relay that are logged.
const REASON_CHARS_MAX: usize = 120;

/// The code of a session that violates the protocol.
const CLOSE_VIOLATION: u32 = 15;

/// The dials of a session.
pub struct RedialSchedule {
    state: RedialState,
    pause: Duration,
    was_up: bool,
    last_error: Option<String>,
    /// The state of the generator of origins.
    origins: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedialState {
    /// No dial is needed.
    Idle,
    Paused {
        until: Instant,
    },
    /// The transport creates a connection.
    Asked,
    /// The connection exists; its handshake is on its way.
    Dialing {
        until: Instant,
    },
}

impl RedialSchedule {
    pub fn new(origin: u64) -> Self {
        RedialSchedule {
            state: RedialState::Idle,
            pause: REDIAL_PAUSE_FIRST,
            was_up: false,
            last_error: None,
            origins: origin,
        }
    }

    /// Returns the origin of the next connection: SplitMix64.
    pub fn next_origin(&mut self) -> u64 {
        self.origins = self.origins.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.origins ^ (self.origins >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) >> 2 | 1
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            RedialState::Paused { until } | RedialState::Dialing { until } => Some(until),
            RedialState::Idle | RedialState::Asked => None,
        }
    }

    pub fn was_up(&self) -> bool {
        self.was_up
    }

    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}

impl MoqSession {
    /// Asks for a connection to the relay.
    pub(super) fn dial(&mut self) {
        self.redial.state = RedialState::Asked;
        self.commands.push_back(MoqCommand::Dial);
    }

    /// Takes the connection that [`MoqCommand::Dial`] asked for; its handshake may go on.
    /// `connection` identifies it in commands.
    pub fn handle_dialed(&mut self, connection: u64, link: MoqLink, now: Instant) {
        self.uplink.open(connection, link, now);
        if self.is_ending() || self.redial.state != RedialState::Asked {
            return self.uplink.close(0, "", now);
        }
        self.redial.state = RedialState::Dialing {
            until: now + DIAL_WITHIN,
        };
    }

    /// Handles a dial that failed before there was a connection: the name does not resolve, for
    /// example.
    pub fn handle_dial_error(&mut self, error: String, now: Instant) {
        if self.redial.state == RedialState::Asked {
            self.handle_dial_failure(error, now);
        }
    }

    fn handle_dial_failure(&mut self, error: String, now: Instant) {
        log::debug!("the relay is not connected: {error}");
        self.redial.last_error = Some(error);
        let pause = self.redial.pause;
        self.redial.pause = (pause * 2).min(REDIAL_PAUSE_MAX);
        self.redial.state = RedialState::Paused { until: now + pause };
    }

    /// Dials again after a pause, and ends a dial that takes too long.
    pub(super) fn handle_redial_timeout(&mut self, now: Instant) {
        if self.is_ending() {
            return;
        }
        match self.redial.state {
            RedialState::Paused { until } if now >= until => self.dial(),
            RedialState::Dialing { until } if now >= until => {
                self.uplink.close(0, "", now);
                let error = format!("no answer within {} s", DIAL_WITHIN.as_secs());
                self.handle_dial_failure(error, now);
            }
            _ => {}
        }
    }

    /// Handles an established session: with the relay, the broadcasts are announced and asked for.
    pub(super) fn handle_link_up(&mut self, now: Instant) {
        self.bot.handle_event(LinkEvent::Connected, &mut self.uplink);
        if self.setup.mode == MoqSessionMode::Serve || self.is_ending() {
            return;
        }
        self.progress.advance(MoqProgress::Connected);
        self.redial.state = RedialState::Idle;
        self.redial.pause = REDIAL_PAUSE_FIRST;
        self.redial.last_error = None;
        self.bot.publish(&self.setup.bot_path(), &mut self.uplink);
        if let Some(peer) = self.bot.peer() {
            peer.discover(&self.setup.namespace, &mut self.uplink);
        }
        self.commands.push_back(MoqCommand::Ready);
        if std::mem::replace(&mut self.redial.was_up, true) {
            log::info!("connected to the relay again");
            return;
        }
        if let MoqPhase::Waiting { until } = &mut self.phase {
            *until = now + super::CALLER_WITHIN;
        }
    }

    /// Handles the end of the current connection.
    pub(super) fn handle_link_closed(&mut self, closed: LinkClosed, now: Instant) {
        self.uplink.retire();
        if self.is_ending() {
            return self.close(now);
        }
        let reason = match &closed {
            LinkClosed::ByPeer { .. } => LeaveReason::Left,
            LinkClosed::TimedOut => LeaveReason::Vanished,
            LinkClosed::Locally | LinkClosed::Rejected(_) | LinkClosed::Failed(_) => LeaveReason::Failed,
        };
        let text = describe(&closed);
        if self.setup.mode == MoqSessionMode::Serve {
            log::debug!("connection closed: {text}");
            return self.handle_caller_gone(reason, now);
        }
        // Before the first success, an answer that rejects the runner is final.
        let is_rejected = matches!(
            closed,
            LinkClosed::Rejected(_) | LinkClosed::Failed(_) | LinkClosed::ByPeer { .. }
        );
        if !self.redial.was_up && is_rejected {
            self.redial.last_error = Some(text);
            return self.handle_caller_gone(LeaveReason::NeverConnected, now);
        }
        self.handle_relay_lost(text, now);
    }

    /// Handles the loss of the relay: begins again on a new connection.
    fn handle_relay_lost(&mut self, text: String, now: Instant) {
        if self.redial.was_up && self.redial.state == RedialState::Idle {
            log::info!("the relay is lost: {text}");
        }
        if self.caller.leaves_at.is_some() {
            return self.handle_caller_gone(LeaveReason::Left, now);
        }
        let origin = self.redial.next_origin();
        self.bot.reconnect(origin);
        self.caller.reset();
        self.handle_outage(now);
        if !self.is_ending() {
            self.handle_dial_failure(text, now);
        }
    }

    /// Handles the loss of the relay or of the caller behind it.
    pub(super) fn handle_outage(&mut self, now: Instant) {
        self.caller.reset();
        match self.phase {
            MoqPhase::Live => {
                self.pause_audio();
                self.phase = MoqPhase::Lost {
                    until: now + OUTAGE_MAX,
                };
                self.is_silent = false;
                log::info!("the caller is not connected");
                self.push_event(SessionEvent::Lost);
            }
            MoqPhase::Finishing { reason, .. } => self.end(reason, now),
            _ => {}
        }
    }

    /// Returns the reason of a session whose outage was not bridged.
    pub(super) fn reason_of_outage(&self) -> LeaveReason {
        match self.redial.state {
            RedialState::Idle => LeaveReason::Left,
            _ => LeaveReason::Vanished,
        }
    }

    /// Handles the silence of a connection that should be acknowledging audio.
    pub(super) fn handle_silence(&mut self, now: Instant) {
        if self.setup.mode == MoqSessionMode::Dial {
            // QUIC waits longer than a relay takes to restart.
            self.uplink.close(0, "", now);
            return self.handle_relay_lost("nothing received".to_owned(), now);
        }
        log::info!("nothing received from the caller");
        self.is_silent = true;
        self.push_event(SessionEvent::Lost);
    }

    /// Handles a peer that violates the protocol or exceeds a limit.
    pub(super) fn handle_violation(&mut self, reason: &str, now: Instant) {
        log::warn!("the caller violates the protocol: {reason:.200}");
        self.uplink.close(CLOSE_VIOLATION, reason, now);
        match self.is_ending() {
            true => self.close(now),
            false => self.handle_caller_gone(LeaveReason::Protocol, now),
        }
    }
}

fn describe(closed: &LinkClosed) -> String {
    let clip = |text: &str| -> String {
        let printable = text.chars().filter(|c| !c.is_control());
        printable.take(REASON_CHARS_MAX).collect()
    };
    match closed {
        LinkClosed::ByPeer { code, reason } if reason.is_empty() => format!("closed with code {code}"),
        LinkClosed::ByPeer { code, reason } => format!("closed with code {code}: {}", clip(reason)),
        LinkClosed::Locally => "closed by the runner".to_owned(),
        LinkClosed::TimedOut => "nothing received".to_owned(),
        LinkClosed::Rejected(status) => format!("the request was answered with HTTP status {status}"),
        LinkClosed::Failed(error) => clip(error),
    }
}
