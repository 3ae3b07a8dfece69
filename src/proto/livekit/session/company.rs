//! Who is in the room, as the bot knows it: what a stay tells, kept over the loss of one.
//!
//! In: who joined, left and speaks, as the server tells it. Out: the events that are news to the bot. Whoever was there before
//! the connection was lost and is there after it, has never been away.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::event::Event;
use crate::limits::ROOM_PARTICIPANTS_MAX;
use crate::livekit::roster::{Change, Participant};

/// Those whom the bot knows to be in the room.
#[derive(Default)]
pub(super) struct Company {
    known: BTreeMap<Arc<str>, Participant>,
    /// Of those, the ones that were not seen since the connection was lost.
    awaited: BTreeSet<Arc<str>>,
    speaking: BTreeSet<Arc<str>>,
    had_any: bool,
}

impl Company {
    /// Takes what the server tells.
    pub fn handle_change(&mut self, change: Change, events: &mut VecDeque<Event>) {
        match change {
            Change::Joined(who) => self.joined(who, events),
            Change::Left(who) => self.forget(&who.identity, events),
            Change::Changed(who) => self.changed(who),
            Change::Speaking { identity, speaking } => self.speaking(&identity, speaking, events),
        }
    }

    fn joined(&mut self, who: Participant, events: &mut VecDeque<Event>) {
        self.awaited.remove(&who.identity);
        if self.known.insert(who.identity.clone(), who.clone()).is_none() {
            log::debug!("`{}` is in the room", who.identity);
            self.had_any = true;
            events.push_back(Event::ParticipantJoined(who));
        }
        if self.known.len() > ROOM_PARTICIPANTS_MAX {
            // The room is full of others by now.
            self.give_up(events);
        }
    }

    fn changed(&mut self, who: Participant) {
        if let Some(known) = self.known.get_mut(&who.identity) {
            *known = who;
        }
    }

    fn speaking(&mut self, identity: &Arc<str>, speaking: bool, events: &mut VecDeque<Event>) {
        if !self.known.contains_key(identity) {
            return;
        }
        let is_news = match speaking {
            true => self.speaking.insert(identity.clone()),
            false => self.speaking.remove(identity),
        };
        if is_news {
            events.push_back(Event::Speaking {
                identity: identity.clone(),
                speaking,
            });
        }
    }

    /// The connection is lost: nobody is heard, and who is gone is not known.
    pub fn handle_lost(&mut self, events: &mut VecDeque<Event>) {
        for identity in std::mem::take(&mut self.speaking) {
            events.push_back(Event::Speaking {
                identity,
                speaking: false,
            });
        }
        self.awaited.clear();
        self.awaited.extend(self.known.keys().cloned());
    }

    /// Whoever has not come back is gone.
    pub fn give_up(&mut self, events: &mut VecDeque<Event>) {
        for identity in std::mem::take(&mut self.awaited) {
            self.forget(&identity, events);
        }
    }

    /// Tells whether anybody was ever there.
    pub fn had_any(&self) -> bool {
        self.had_any
    }

    /// Tells whether somebody may yet come back.
    pub fn is_waiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Tells whether a caller is among them.
    pub fn is_waiting_for_callers(&self) -> bool {
        let is_caller = |identity| self.known.get(identity).is_some_and(|who| !who.is_agent);
        self.awaited.iter().any(is_caller)
    }

    /// Returns whose identity it is.
    pub fn get(&self, identity: &str) -> Option<&Participant> {
        self.known.get(identity)
    }

    fn forget(&mut self, identity: &Arc<str>, events: &mut VecDeque<Event>) {
        self.awaited.remove(identity);
        self.speaking(identity, false, events);
        if let Some(who) = self.known.remove(identity) {
            log::debug!("`{}` left the room", who.identity);
            events.push_back(Event::ParticipantLeft(who));
        }
    }
}
