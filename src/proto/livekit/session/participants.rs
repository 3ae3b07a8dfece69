//! The participants that the bot knows of, kept across reconnects.
//!
//! In: roster changes. Out: the events that are new to the bot. A participant that was present
//! before the connection was lost and is present after it has not left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::event::SessionEvent;
use crate::limits::ROOM_PARTICIPANTS_MAX;
use crate::livekit::roster::{Participant, RoomRole, RosterChange};

/// The participants that the bot knows of.
#[derive(Default)]
pub(super) struct Participants {
    /// What the local participant is.
    role: RoomRole,
    known: BTreeMap<Arc<str>, Participant>,
    /// Known participants that have not appeared since the connection was lost.
    missing: BTreeSet<Arc<str>>,
    speaking: BTreeSet<Arc<str>>,
    /// The caller who began to speak last.
    last_speaker: Option<Arc<str>>,
    had_any: bool,
}

impl Participants {
    pub fn new(role: RoomRole) -> Self {
        Participants {
            role,
            ..Participants::default()
        }
    }

    /// Handles a change in the room.
    pub fn handle_change(&mut self, change: RosterChange, events: &mut VecDeque<SessionEvent>) {
        match change {
            RosterChange::Joined(who) => self.add(who, events),
            RosterChange::Left(who) => self.remove(&who.identity, events),
            RosterChange::Changed(who) => self.update(who, events),
            RosterChange::Speaking { identity, speaking } => self.set_speaking(&identity, speaking, events),
        }
    }

    fn add(&mut self, who: Participant, events: &mut VecDeque<SessionEvent>) {
        self.missing.remove(&who.identity);
        match self.known.insert(who.identity.clone(), who.clone()) {
            None => {
                log::debug!("`{}` is in the room", who.identity);
                self.had_any = true;
                events.push_back(SessionEvent::ParticipantJoined(who));
            }
            Some(before) if before != who => events.push_back(SessionEvent::ParticipantChanged(who)),
            Some(_) => {}
        }
        if self.known.len() > ROOM_PARTICIPANTS_MAX {
            // Others have filled the room, so the missing participants count as gone.
            self.remove_missing(events);
        }
    }

    fn update(&mut self, who: Participant, events: &mut VecDeque<SessionEvent>) {
        if let Some(known) = self.known.get_mut(&who.identity)
            && *known != who
        {
            if known.call_status() != who.call_status() {
                log::debug!("the call of `{}` is {:?}", who.identity, who.call_status());
            }
            known.clone_from(&who);
            events.push_back(SessionEvent::ParticipantChanged(who));
        }
    }

    fn set_speaking(&mut self, identity: &Arc<str>, speaking: bool, events: &mut VecDeque<SessionEvent>) {
        let Some(who) = self.known.get(identity) else {
            return;
        };
        if speaking && !who.is_agent {
            self.last_speaker = Some(identity.clone());
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

    /// Handles a lost connection: no participant speaks, and all count as missing.
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

    /// Reports the missing participants as gone.
    pub fn remove_missing(&mut self, events: &mut VecDeque<SessionEvent>) {
        for identity in std::mem::take(&mut self.missing) {
            self.remove(&identity, events);
        }
    }

    /// Tells whether a caller is present, or may still return.
    pub fn has_callers(&self) -> bool {
        self.known.values().any(|who| !who.is_agent)
    }

    /// Reports all participants, to a bot that was started anew.
    pub fn report_all(&self, events: &mut VecDeque<SessionEvent>) {
        events.extend(self.known.values().cloned().map(SessionEvent::ParticipantJoined));
    }

    /// Tells whether any participant was ever present.
    pub fn had_any(&self) -> bool {
        self.had_any
    }

    /// Tells whether a missing participant may still return.
    pub fn is_missing_any(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Tells whether one of them is a caller, or the bot of a caller.
    pub fn is_missing_callers(&self) -> bool {
        let is_caller = |identity| self.known.get(identity).is_some_and(|who| self.role.talks_to(who));
        self.missing.iter().any(is_caller)
    }

    /// Returns the caller whose words the bot has transcribed: the one with this identity, else the
    /// one who spoke last, else any.
    pub fn transcribed(&self, identity: &str) -> Option<&Participant> {
        let caller = |identity: &str| self.known.get(identity).filter(|who| !who.is_agent);
        caller(identity)
            .or_else(|| caller(self.last_speaker.as_deref()?))
            .or_else(|| self.known.values().find(|who| !who.is_agent))
    }

    /// Returns the telephone that is the only caller.
    pub fn only_telephone(&self) -> Option<&Participant> {
        let mut callers = self.known.values().filter(|who| !who.is_agent);
        let first = callers.next().filter(|who| who.is_telephone)?;
        callers.next().is_none().then_some(first)
    }

    /// Returns a participant by its identity.
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
