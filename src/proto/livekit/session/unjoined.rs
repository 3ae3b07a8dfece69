//! The room of a bot that has not joined it: the bot is still loaded, or joins by itself.
//!
//! In: the participants, by the API of the server, and `now`. Out: requests for them, and since
//! when no caller has been present, by which the session ends as one in the room does. Without a
//! credential for the API nothing is asked. The requests end once the bot takes its media, and
//! once it is in the room by itself: then its callers are its own. Source: `docs/spec/livekit.md`
//! 6.5.

use std::time::{Duration, Instant};

use super::{RoomCommand, RoomPhase, RoomSession};
use crate::call_control::HangUpOutcome;
use crate::hang_up::HangUpApi as _;
use crate::livekit::room_service::{RoomHangUp, RoomService};
use crate::livekit::worker::{ListedParticipant, participants};

/// Pause between an answer and the next request: short beside the time that a room stays without
/// callers.
const LOOK_PAUSE: Duration = Duration::from_secs(2);

/// What asks for the participants.
pub(super) struct RoomLookout {
    service: RoomService,
    /// `None` while a request is in progress.
    next: Option<Instant>,
}

impl RoomLookout {
    pub fn new(service: RoomService, now: Instant) -> Self {
        RoomLookout {
            service,
            next: Some(now + LOOK_PAUSE),
        }
    }
}

impl RoomSession {
    /// Returns when the participants are asked for.
    pub(super) fn look_deadline(&self) -> Option<Instant> {
        self.lookout.as_ref()?.next
    }

    /// Asks for the participants, if that is due.
    pub(super) fn look(&mut self, now: Instant) {
        let unix_s = self.unix_ms(now) / 1_000;
        if let Some(lookout) = &mut self.lookout
            && lookout.next.take_if(|next| now >= *next).is_some()
        {
            let request = lookout.service.participants(unix_s);
            self.commands.push_back(RoomCommand::Look(request));
        }
    }

    /// Handles the status and the body of the answer, or that there was none.
    pub fn handle_participants(&mut self, answer: Option<(u16, &[u8])>, now: Instant) {
        let Some(lookout) = self.lookout.as_mut().filter(|_| self.phase == RoomPhase::Waiting) else {
            return;
        };
        lookout.next = Some(now + LOOK_PAUSE);
        let outcome = answer.map(|(status, body)| (RoomHangUp.outcome(status, body), body));
        let present = match outcome {
            Some((HangUpOutcome::Done, body)) => participants(body),
            // A room that is closed.
            Some((HangUpOutcome::AlreadyOver, _)) => Some(Vec::new()),
            Some((HangUpOutcome::Refused(_), _)) => None,
            Some((HangUpOutcome::Retry(_), _)) | None => {
                // What is not known ends no session.
                self.no_caller_since = None;
                return;
            }
        };
        let is_alone = |present: &Vec<ListedParticipant>| !present.iter().any(ListedParticipant::is_agent);
        let Some(present) = present.filter(is_alone) else {
            self.lookout = None;
            self.no_caller_since = None;
            return;
        };
        if present.iter().any(ListedParticipant::is_caller) {
            self.had_caller = true;
            self.no_caller_since = None;
        } else {
            self.no_caller_since.get_or_insert(now);
        }
    }
}
