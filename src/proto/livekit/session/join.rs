//! Joining a room, and reconnecting when it is lost.
//!
//! In: the result of a dial, and the cause of a connection's end. Out: the next dial, or the end of
//! the session. The first join has few attempts, since a caller waits; reconnecting outlasts a
//! server restart. Source: `docs/spec/livekit.md` 2 and 3.2.

use std::time::{Duration, Instant};

use super::connection::RoomConnection;
use super::disconnect::DisconnectCause;
use super::{DialRequest, LocalAddresses, Reconnect, RoomCommand, RoomPhase, RoomSession, SignalState};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{ROOM_BAD_DESCRIPTIONS_MAX, ROOM_JOIN_PAUSES, ROOM_REJOIN_WITHIN, ROOM_SETTLED};
use crate::livekit::http_base;
use crate::livekit::roster::RoomRole;
use crate::livekit::signal::LeaveAction;
use crate::server::rest;

/// Pauses before the attempts to rejoin a room; the last one repeats.
const ROOM_REJOIN_PAUSES: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(5),
];

/// What follows the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryDecision {
    /// Another attempt may succeed.
    Retry,
    /// No attempt will succeed.
    GiveUp(LeaveReason),
}

/// Decides whether another attempt may succeed.
fn retry_decision(cause: &DisconnectCause) -> RetryDecision {
    match cause {
        DisconnectCause::Refused { status, .. } if *status != 429 && *status < 500 => {
            RetryDecision::GiveUp(LeaveReason::Failed)
        }
        DisconnectCause::PublishRefused(_) => RetryDecision::GiveUp(LeaveReason::Failed),
        // A server that shuts down is often about to restart.
        DisconnectCause::Ended { reason, action } if *action == LeaveAction::Disconnect && *reason != 3 => {
            RetryDecision::GiveUp(match reason {
                2 => LeaveReason::Replaced,
                4 | 5 | 10 => LeaveReason::Left,
                _ => LeaveReason::Failed,
            })
        }
        _ => RetryDecision::Retry,
    }
}

impl RoomSession {
    /// Joins the room, once the bot has taken its media.
    pub(super) fn join(&mut self, now: Instant) {
        self.clock.1 += now.saturating_duration_since(self.clock.0);
        self.clock.0 = now;
        self.phase = RoomPhase::Joining { tries: 0 };
        self.dial();
    }

    pub(super) fn dial(&mut self) {
        if let RoomPhase::Joining { tries } | RoomPhase::Reconnecting(Reconnect { tries, .. }) = &mut self.phase {
            *tries += 1;
        }
        self.signal = SignalState::Connecting;
        self.commands.push_back(RoomCommand::Dial(DialRequest {
            url: self.join_url(),
            token: self.token.clone(),
        }));
    }

    pub(super) fn join_url(&self) -> String {
        join_url(&self.url)
    }

    /// Handles the open WebSocket. `seed` is random and differs each time.
    pub fn handle_open(&mut self, local: LocalAddresses, seed: u64, now: Instant) {
        if self.handle_resume_open(now) {
            return;
        }
        if !matches!(self.signal, SignalState::Connecting) {
            return self.commands.push_back(RoomCommand::CloseSocket);
        }
        self.signal = SignalState::Open(Box::new(RoomConnection::new(self.role, local, seed, now)));
    }

    /// Handles an HTTP answer that is not a WebSocket upgrade.
    pub fn handle_refused(&mut self, status: u16, text: &str, now: Instant) {
        // Some servers repeat the token.
        let text = rest::redact_reason(text);
        self.handle_dial_failure(&DisconnectCause::Refused { status, text }, now);
    }

    /// Handles a dial without an answer.
    pub fn handle_unreachable(&mut self, words: String, now: Instant) {
        self.handle_dial_failure(&DisconnectCause::Unreachable(words), now);
    }

    fn handle_dial_failure(&mut self, cause: &DisconnectCause, now: Instant) {
        if retry_decision(cause) == RetryDecision::Retry
            && let Some(next) = self.other_urls.pop_front()
        {
            self.other_urls.push_back(std::mem::replace(&mut self.url, next));
        }
        if !self.handle_resume_failure(cause, now) && matches!(self.signal, SignalState::Connecting) {
            self.handle_connection_end(cause, now);
        }
    }

    /// Handles the end of the WebSocket, closed by either side or broken.
    pub fn handle_socket_closed(&mut self) {
        if self.has_socket()
            && let SignalState::Open(connection) = &mut self.signal
        {
            connection.handle_socket_closed();
        }
    }

    /// Handles a published track whose peer connection is up.
    pub(super) fn handle_media_up(&mut self, now: Instant) {
        match self.phase {
            RoomPhase::Reconnecting(reconnect) => self.last_reconnect = Some(reconnect),
            RoomPhase::Joining { .. } => {}
            _ => return,
        }
        self.phase = RoomPhase::Live { since: now };
        self.agent_state.handle_open();
        if let SignalState::Open(connection) = &self.signal {
            self.transcripts.start(connection.own_sids().0);
            // A track that is published anew is not muted, whatever the one before was.
            let is_muted = connection.is_muted();
            self.report_muted(is_muted);
        }
        self.audio_sender.start(now);
        self.report_joined();
        self.send_speech(now);
        self.update_callers(now);
    }

    /// Handles the end of a connection or a failed dial.
    pub(super) fn handle_connection_end(&mut self, cause: &DisconnectCause, now: Instant) {
        let failed_resume = self.take_failed_resume(now);
        if let DisconnectCause::Refused { status, text } = cause {
            log::debug!("the server said: {}", loggable(*status, text));
        }
        let mut decision = retry_decision(cause);
        if let (DisconnectCause::BadDescription(_), RoomPhase::Live { .. } | RoomPhase::Reconnecting(_)) =
            (cause, self.phase)
        {
            // A description that cannot be used will fail again, unless it belonged to this
            // connection only.
            self.bad_descriptions += 1;
            if self.bad_descriptions > ROOM_BAD_DESCRIPTIONS_MAX {
                decision = RetryDecision::GiveUp(LeaveReason::Failed);
            }
        }
        if !self.had_caller && decision == RetryDecision::GiveUp(LeaveReason::Left) {
            // Servers close rooms that contain only bots after a while.
            decision = RetryDecision::GiveUp(LeaveReason::NeverConnected);
        }
        // If the session ends now, a server that still lists us gets a leave.
        let server_knows_us = match (&self.signal, cause) {
            (_, DisconnectCause::Ended { .. }) => false,
            (SignalState::Open(connection), _) => connection.can_leave(),
            _ => false,
        };
        if !server_knows_us {
            self.drop_connection();
        }
        match (self.phase, decision) {
            (RoomPhase::Joining { tries }, _) => {
                // Missing media will not appear on the next attempt, and a caller waits.
                let is_permanent = matches!(
                    cause,
                    DisconnectCause::NoMedia { .. }
                        | DisconnectCause::BadMessage(_)
                        | DisconnectCause::BadDescription(_)
                );
                let is_final = is_permanent || decision != RetryDecision::Retry;
                match ROOM_JOIN_PAUSES.get(tries - 1).filter(|_| !is_final) {
                    Some(pause) => {
                        log::debug!("joining the room: {cause}; next attempt in {pause:?}");
                        self.drop_connection();
                        self.signal = SignalState::Backoff(now + *pause);
                    }
                    None => {
                        let level = match self.role {
                            RoomRole::Bot => log::Level::Warn,
                            // It reports the event.
                            RoomRole::Caller => log::Level::Debug,
                        };
                        log::log!(level, "the room was not entered: {cause}");
                        self.events.push_back(SessionEvent::JoinFailed(cause.to_string()));
                        let reason = match decision {
                            RetryDecision::GiveUp(reason) if reason != LeaveReason::Failed => reason,
                            _ => LeaveReason::NeverConnected,
                        };
                        self.end(reason, now);
                    }
                }
            }
            (RoomPhase::Live { .. } | RoomPhase::Reconnecting(_), RetryDecision::GiveUp(reason)) => {
                log::info!("the room has ended: {cause}");
                self.end(reason, now);
            }
            (RoomPhase::Live { since }, RetryDecision::Retry) => {
                log::info!("the room is lost: {cause}; reconnecting");
                // Connections that are lost soon share one time limit, so reconnecting always ends.
                let again = self.last_reconnect.filter(|_| now < since + ROOM_SETTLED);
                let since = failed_resume.unwrap_or(now);
                let reconnect = again.unwrap_or(Reconnect { since, tries: 0 });
                self.handle_lost(now);
                self.schedule_reconnect(reconnect, cause, now);
            }
            (RoomPhase::Reconnecting(reconnect), RetryDecision::Retry) => {
                self.schedule_reconnect(reconnect, cause, now)
            }
            (RoomPhase::Finishing { reason, .. }, _) => self.end(reason, now),
            (RoomPhase::Waiting | RoomPhase::Closing { .. } | RoomPhase::Closed, _) => {}
        }
    }

    fn schedule_reconnect(&mut self, reconnect: Reconnect, cause: &DisconnectCause, now: Instant) {
        let last = ROOM_REJOIN_PAUSES.len() - 1;
        let next = now + ROOM_REJOIN_PAUSES[reconnect.tries.min(last)];
        if next > reconnect.since + ROOM_REJOIN_WITHIN {
            log::warn!("reconnecting to the room failed: {cause}");
            return self.end(LeaveReason::Failed, now);
        }
        log::debug!(
            "reconnecting to the room: {cause}; the next attempt is number {}",
            reconnect.tries + 1
        );
        self.drop_connection();
        self.phase = RoomPhase::Reconnecting(reconnect);
        self.signal = SignalState::Backoff(next);
    }

    /// Discards the state of the lost connection. The bot's speech waits.
    fn handle_lost(&mut self, now: Instant) {
        if self.had_caller {
            self.no_caller_since = None;
        }
        self.participants.handle_lost(&mut self.events);
        self.audio_sender.handle_pause();
        self.update_callers(now);
    }

    /// Drops the connection and closes its socket.
    fn drop_connection(&mut self) {
        if let SignalState::Open(connection) = std::mem::replace(&mut self.signal, SignalState::Disconnected) {
            self.commands.push_back(RoomCommand::CloseSocket);
            self.commands.push_back(RoomCommand::ClosePaths);
            self.resume = None;
            self.outbox.handle_close();
            self.remote_calls.handle_close();
            for track in connection.into_tracks() {
                self.receiver.handle_track_ended(&track);
            }
        }
    }
}

/// Returns the part of a refusal that may be logged. Servers repeat the key or the token that they
/// refuse.
fn loggable(status: u16, text: &str) -> &str {
    match status {
        401 => "text that is not logged",
        _ if text.contains("eyJ") => "text that contains a token",
        _ => text,
    }
}

/// Returns the URL at which a room is joined.
fn join_url(url: &str) -> String {
    let base = http_base(url);
    let version = env!("CARGO_PKG_VERSION");
    format!("{base}/rtc?protocol=15&auto_subscribe=0&sdk=edge-runner&version={version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_the_join_url() {
        let query = format!(
            "/rtc?protocol=15&auto_subscribe=0&sdk=edge-runner&version={}",
            env!("CARGO_PKG_VERSION")
        );
        for (url, base) in [
            ("ws://127.0.0.1:7880", "http://127.0.0.1:7880"),
            ("wss://media.example.net/", "https://media.example.net"),
            ("https://media.example.net/sfu", "https://media.example.net/sfu"),
        ] {
            assert_eq!(join_url(url), format!("{base}{query}"));
        }
    }

    /// Older servers repeat a token after a wrong secret, and the key after a wrong key.
    #[test]
    fn does_not_log_refusals_that_repeat_a_token() {
        for (status, text) in [
            (
                401,
                "invalid token: eyJhbGciOiJIUzI1NiJ9.e30.c2ln, error: go-jose/go-jose: error",
            ),
            (401, "invalid API key: devkey"),
            (403, "no: eyJhbGciOiJIUzI1NiJ9.e30.c2ln"),
            (500, "token eyJhbGciOiJI"),
        ] {
            let printed = loggable(status, text);
            assert!(!printed.contains("eyJ") && !printed.contains("devkey"), "{printed}");
        }
        assert_eq!(
            loggable(404, "requested room does not exist"),
            "requested room does not exist"
        );
    }

    /// The cause decides whether there is another attempt.
    #[test]
    fn decides_retries_by_disconnect_cause() {
        let ended = |reason, action| retry_decision(&DisconnectCause::Ended { reason, action });
        let refused = |status| {
            retry_decision(&DisconnectCause::Refused {
                status,
                text: String::new(),
            })
        };
        assert_eq!(
            ended(2, LeaveAction::Disconnect),
            RetryDecision::GiveUp(LeaveReason::Replaced)
        );
        for reason in [4, 5, 10] {
            assert_eq!(
                ended(reason, LeaveAction::Disconnect),
                RetryDecision::GiveUp(LeaveReason::Left)
            );
        }
        for reason in [0, 1, 6, 7, 9, 14, 15, 16, 99, -1] {
            assert_eq!(
                ended(reason, LeaveAction::Disconnect),
                RetryDecision::GiveUp(LeaveReason::Failed)
            );
        }
        assert_eq!(ended(3, LeaveAction::Disconnect), RetryDecision::Retry);
        for reason in [0, 2, 4, 6] {
            assert_eq!(ended(reason, LeaveAction::Reconnect), RetryDecision::Retry);
        }
        for status in [200, 302, 400, 401, 403, 404] {
            assert_eq!(refused(status), RetryDecision::GiveUp(LeaveReason::Failed));
        }
        for status in [429, 500, 502, 503] {
            assert_eq!(refused(status), RetryDecision::Retry);
        }
        assert_eq!(retry_decision(&DisconnectCause::SocketClosed), RetryDecision::Retry);
    }
}
