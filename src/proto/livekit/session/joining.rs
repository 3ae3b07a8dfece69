//! The way into a room, and the way back when it is lost.
//!
//! In: what became of a dial, and why a stay is over. Out: the next dial, or the end. The first way in is short, since somebody
//! waits for the bot; the way back outlives the restart of a server.

use std::time::Instant;

use super::stay::{Stay, Why};
use super::{Away, Command, Dial, Local, Phase, RoomSession, Way};
use crate::event::{Event, LeaveReason};
use crate::limits::{ROOM_BACK_PAUSES, ROOM_BACK_WITHIN, ROOM_JOIN_PAUSES, ROOM_MISUNDERSTOOD_MAX, ROOM_SETTLED};
use crate::livekit::http_base;
use crate::livekit::signal::Then;
use crate::server::rest;

/// What follows from the end of a stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The next try may go better.
    Again,
    /// No try will.
    Over(LeaveReason),
}

/// Judges why a stay is over, or was none.
fn judge(why: &Why) -> Verdict {
    match why {
        Why::Refused { status, .. } if *status != 429 && *status < 500 => Verdict::Over(LeaveReason::Failed),
        Why::PublishRefused(_) => Verdict::Over(LeaveReason::Failed),
        // A server that shuts down is often one that is started again.
        Why::Ended { reason, then } if *then == Then::Nothing && *reason != 3 => Verdict::Over(match reason {
            2 => LeaveReason::Replaced,
            4 | 5 | 10 => LeaveReason::Left,
            _ => LeaveReason::Failed,
        }),
        _ => Verdict::Again,
    }
}

impl RoomSession {
    /// The bot has taken its media.
    pub(super) fn enter(&mut self, now: Instant) {
        self.clock.1 += now.saturating_duration_since(self.clock.0);
        self.clock.0 = now;
        self.phase = Phase::Entering { tries: 0 };
        self.dial();
    }

    pub(super) fn dial(&mut self) {
        if let Phase::Entering { tries } | Phase::Away(Away { tries, .. }) = &mut self.phase {
            *tries += 1;
        }
        self.way = Way::Dialing;
        self.commands.push_back(Command::Dial(Dial {
            url: join_url(&self.url),
            token: self.token.clone(),
        }));
    }

    /// The WebSocket is open. `seed` is random, and another one each time.
    pub fn handle_open(&mut self, local: Local, seed: u64, now: Instant) {
        if !matches!(self.way, Way::Dialing) {
            return self.commands.push_back(Command::CloseSocket);
        }
        self.way = Way::Open(Box::new(Stay::new(local, seed, now)));
    }

    /// The server answered with another status than that of a WebSocket, and this text.
    pub fn handle_refused(&mut self, status: u16, text: &str, now: Instant) {
        if matches!(self.way, Way::Dialing) {
            // Some servers repeat the token.
            let text = rest::bland(text);
            self.stay_over(&Why::Refused { status, text }, now);
        }
    }

    /// There was no answer: why.
    pub fn handle_unreachable(&mut self, words: String, now: Instant) {
        if matches!(self.way, Way::Dialing) {
            self.stay_over(&Why::Unreachable(words), now);
        }
    }

    /// The WebSocket is closed, by either side, or broke.
    pub fn handle_socket_gone(&mut self) {
        if let Way::Open(stay) = &mut self.way {
            stay.handle_socket_gone();
        }
    }

    /// Our track is published, and its connection is up.
    pub(super) fn up(&mut self, now: Instant) {
        match self.phase {
            Phase::Away(away) => self.back = Some(away),
            Phase::Entering { .. } => {}
            _ => return,
        }
        self.phase = Phase::Live { since: now };
        self.speaker.start(now);
        self.speak(now);
        self.count_callers(now);
    }

    /// There is no stay any more, or none came to be.
    pub(super) fn stay_over(&mut self, why: &Why, now: Instant) {
        if let Why::Refused { status, text } = why {
            log::debug!("the server said: {}", printable(*status, text));
        }
        let mut verdict = judge(why);
        if let (Why::BadDescription(_), Phase::Live { .. } | Phase::Away(_)) = (why, self.phase) {
            // What cannot be understood will not be understood the next time, unless it had to do with the stay.
            self.misunderstood += 1;
            if self.misunderstood > ROOM_MISUNDERSTOOD_MAX {
                verdict = Verdict::Over(LeaveReason::Failed);
            }
        }
        if !self.met && verdict == Verdict::Over(LeaveReason::Left) {
            // Rooms that only bots are in are closed by the server after a while.
            verdict = Verdict::Over(LeaveReason::NeverConnected);
        }
        // A server that still takes us for one of the room is told when we go for good.
        let knows = match (&self.way, why) {
            (_, Why::Ended { .. }) => false,
            (Way::Open(stay), _) => stay.can_leave(),
            _ => false,
        };
        if !knows {
            self.drop_stay();
        }
        match (self.phase, verdict) {
            (Phase::Entering { tries }, _) => {
                // Media that does not flow will not flow the next time, and somebody waits.
                let is_hopeless = matches!(why, Why::NoMedia(_) | Why::BadMessage(_) | Why::BadDescription(_));
                let hopeless = is_hopeless || verdict != Verdict::Again;
                match ROOM_JOIN_PAUSES.get(tries - 1).filter(|_| !hopeless) {
                    Some(pause) => {
                        log::debug!("entering the room: {why}; once more in {pause:?}");
                        self.drop_stay();
                        self.way = Way::Pause(now + *pause);
                    }
                    None => {
                        log::warn!("the room was not entered: {why}");
                        self.events.push_back(Event::JoinFailed(why.to_string()));
                        let reason = match verdict {
                            Verdict::Over(reason) if reason != LeaveReason::Failed => reason,
                            _ => LeaveReason::NeverConnected,
                        };
                        self.end(reason, now);
                    }
                }
            }
            (Phase::Live { .. } | Phase::Away(_), Verdict::Over(reason)) => {
                log::info!("the room is over: {why}");
                self.end(reason, now);
            }
            (Phase::Live { since }, Verdict::Again) => {
                log::info!("the room is lost: {why}; trying to come back");
                // A room that is lost again and again is not come back to for ever.
                let again = self.back.filter(|_| now < since + ROOM_SETTLED);
                let away = again.unwrap_or(Away { since: now, tries: 0 });
                self.handle_lost(now);
                self.try_again(away, why, now);
            }
            (Phase::Away(away), Verdict::Again) => self.try_again(away, why, now),
            (Phase::Finishing { reason, .. }, _) => self.end(reason, now),
            (Phase::Waiting | Phase::Closing { .. } | Phase::Gone, _) => {}
        }
    }

    fn try_again(&mut self, away: Away, why: &Why, now: Instant) {
        let last = ROOM_BACK_PAUSES.len() - 1;
        let next = now + ROOM_BACK_PAUSES[away.tries.min(last)];
        if next > away.since + ROOM_BACK_WITHIN {
            log::warn!("the room was not come back to: {why}");
            return self.end(LeaveReason::Failed, now);
        }
        log::debug!(
            "coming back into the room: {why}; the next try is the {}th",
            away.tries + 1
        );
        self.drop_stay();
        self.phase = Phase::Away(away);
        self.way = Way::Pause(next);
    }

    /// What a stay has told is true no longer; what the bot has to say waits.
    fn handle_lost(&mut self, now: Instant) {
        if self.met {
            self.alone = None;
        }
        self.company.handle_lost(&mut self.events);
        self.speaker.handle_pause();
        self.count_callers(now);
    }

    /// Lets go of the stay and of its socket.
    fn drop_stay(&mut self) {
        if let Way::Open(stay) = std::mem::replace(&mut self.way, Way::None) {
            self.commands.push_back(Command::CloseSocket);
            self.outbox.handle_close();
            for track in stay.into_tracks() {
                self.ears.handle_gone(&track);
            }
        }
    }
}

/// Returns what of a refusal's text may stand in a log: servers repeat the key or the token that they refuse.
fn printable(status: u16, text: &str) -> &str {
    match status {
        401 => "nothing that is logged",
        _ if text.contains("eyJ") => "something with a token in it",
        _ => text,
    }
}

/// Returns where a room of this server is joined.
fn join_url(url: &str) -> String {
    let base = http_base(url);
    let version = env!("CARGO_PKG_VERSION");
    format!("{base}/rtc?protocol=15&auto_subscribe=0&sdk=edge-runner&version={version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_joined_over_http() {
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

    /// Older servers answer a wrong secret with the token, and a wrong key with the key.
    #[test]
    fn a_refusal_that_repeats_a_token_is_not_logged() {
        for (status, text) in [
            (
                401,
                "invalid token: eyJhbGciOiJIUzI1NiJ9.e30.c2ln, error: go-jose/go-jose: error",
            ),
            (401, "invalid API key: devkey"),
            (403, "no: eyJhbGciOiJIUzI1NiJ9.e30.c2ln"),
            (500, "token eyJhbGciOiJI"),
        ] {
            let printed = printable(status, text);
            assert!(!printed.contains("eyJ") && !printed.contains("devkey"), "{printed}");
        }
        assert_eq!(
            printable(404, "requested room does not exist"),
            "requested room does not exist"
        );
    }

    /// What a server says decides whether there is a next try.
    #[test]
    fn the_end_of_a_stay_is_judged_by_its_reason() {
        let ended = |reason, then| judge(&Why::Ended { reason, then });
        let refused = |status| {
            judge(&Why::Refused {
                status,
                text: String::new(),
            })
        };
        assert_eq!(ended(2, Then::Nothing), Verdict::Over(LeaveReason::Replaced));
        for reason in [4, 5, 10] {
            assert_eq!(ended(reason, Then::Nothing), Verdict::Over(LeaveReason::Left));
        }
        for reason in [0, 1, 6, 7, 9, 14, 15, 16, 99, -1] {
            assert_eq!(ended(reason, Then::Nothing), Verdict::Over(LeaveReason::Failed));
        }
        assert_eq!(ended(3, Then::Nothing), Verdict::Again);
        for reason in [0, 2, 4, 6] {
            assert_eq!(ended(reason, Then::Reconnect), Verdict::Again);
        }
        for status in [200, 302, 400, 401, 403, 404] {
            assert_eq!(refused(status), Verdict::Over(LeaveReason::Failed));
        }
        for status in [429, 500, 502, 503] {
            assert_eq!(refused(status), Verdict::Again);
        }
        assert_eq!(judge(&Why::SocketGone), Verdict::Again);
    }
}
