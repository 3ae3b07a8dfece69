//! Who is in the room, as the bot knows it: what a connection tells, kept over the loss of one.
//!
//! In: who joined, left and speaks, as the server tells it. Out: the events that are news to the bot. Whoever was there before
//! the connection was lost and is there after it, has never been reconnect.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::event::SessionEvent;
use crate::limits::ROOM_PARTICIPANTS_MAX;
use crate::livekit::roster::{Participant, RosterChange};

/// Those whom the bot knows to be in the room.
#[derive(Default)]
pub(super) struct Participants {
    known: BTreeMap<Arc<str>, Participant>,
    /// Of those, the ones that were not seen since the connection was lost.
    missing: BTreeSet<Arc<str>>,
    speaking: BTreeSet<Arc<str>>,
    had_any: bool,
}

impl Participants {
    /// Takes what the server tells.
    pub fn handle_change(&mut self, change: RosterChange, events: &mut VecDeque<SessionEvent>) {
        match change {
            RosterChange::Joined(who) => self.add(who, events),
            RosterChange::Left(who) => self.remove(&who.identity, events),
            RosterChange::Changed(who) => self.update(who),
            RosterChange::Speaking { identity, speaking } => self.set_speaking(&identity, speaking, events),
        }
    }

    fn add(&mut self, who: Participant, events: &mut VecDeque<SessionEvent>) {
        self.missing.remove(&who.identity);
        if self.known.insert(who.identity.clone(), who.clone()).is_none() {
            log::debug!("`{}` is in the room", who.identity);
            self.had_any = true;
            events.push_back(SessionEvent::ParticipantJoined(who));
        }
        if self.known.len() > ROOM_PARTICIPANTS_MAX {
            // The room is full of others by now.
            self.remove_missing(events);
        }
    }

    fn update(&mut self, who: Participant) {
        if let Some(known) = self.known.get_mut(&who.identity) {
            *known = who;
        }
    }

    fn set_speaking(&mut self, identity: &Arc<str>, speaking: bool, events: &mut VecDeque<SessionEvent>) {
        if !self.known.contains_key(identity) {
            return;
        }
        let is_news = match speaking {
            true => self.speaking.insert(identity.clone()),
            false => self.speaking.remove(identity),
        };
        if is_news {
            events.push_back(SessionEvent::Speaking {
                identity: identity.clone(),
                speaking,
            });
        }
    }

    /// The connection is lost: nobody is heard, and who is gone is not known.
    pub fn handle_lost(&mut self, events: &mut VecDeque<SessionEvent>) {
        for identity in std::mem::take(&mut self.speaking) {
            events.push_back(SessionEvent::Speaking {
                identity,
                speaking: false,
            });
        }
        self.missing.clear();
        self.missing.extend(self.known.keys().cloned());
    }

    /// Whoever has not come back is gone.
    pub fn remove_missing(&mut self, events: &mut VecDeque<SessionEvent>) {
        for identity in std::mem::take(&mut self.missing) {
            self.remove(&identity, events);
        }
    }

    /// Tells whether anybody was ever there.
    pub fn had_any(&self) -> bool {
        self.had_any
    }

    /// Tells whether somebody may yet come back.
    pub fn is_missing_any(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Tells whether a caller is among them.
    pub fn is_missing_callers(&self) -> bool {
        let is_caller = |identity| self.known.get(identity).is_some_and(|who| !who.is_agent);
        self.missing.iter().any(is_caller)
    }

    /// Returns whose identity it is.
    pub fn get(&self, identity: &str) -> Option<&Participant> {
        self.known.get(identity)
    }

    fn remove(&mut self, identity: &Arc<str>, events: &mut VecDeque<SessionEvent>) {
        self.missing.remove(identity);
        self.set_speaking(identity, false, events);
        if let Some(who) = self.known.remove(identity) {
            log::debug!("`{}` left the room", who.identity);
            events.push_back(SessionEvent::ParticipantLeft(who));
        }
    }
}
