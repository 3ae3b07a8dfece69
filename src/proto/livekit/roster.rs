//! Who is in a room, and which of their tracks are to be heard.
//!
//! In: what the server says of participants and of who speaks. Out: `RosterChange`s, and whose track a
//! sid is. A participant is known by its identity, which entries, and by its sid, which is new with
//! each join: the news of an earlier entry is changes from that of the sid_by_identity one. Ignored: ourselves,
//! participants and tracks beyond their caps, names that no server hands out. Source: the rooms
//! fact sheet, B3 to B5.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use log::debug;

use super::wire::{ParticipantInfo, SpeakerInfo, TrackType};
use crate::limits::{
    ROOM_ATTRIBUTES_BYTES_MAX, ROOM_DEPARTED_MAX, ROOM_NAME_BYTES_MAX, ROOM_PARTICIPANTS_MAX, ROOM_TRACKS_MAX,
};
pub use crate::participant::Participant;

/// `ParticipantInfo.state` of somebody whose media are up: nobody else hears, or is sent any data.
const ACTIVE: i32 = 2;
/// `ParticipantInfo.state` of somebody who left.
const DISCONNECTED: i32 = 3;
/// `ParticipantInfo.kind` of a recorder.
const EGRESS: i32 = 2;
/// `ParticipantInfo.kind` of a telephone.
const SIP: i32 = 3;
/// `ParticipantInfo.kind` of a bot.
const AGENT: i32 = 4;

/// What became different in the room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterChange {
    Joined(Participant),
    /// A participant that joins again under its identity has left before, even where the server
    /// does not say so.
    Left(Participant),
    /// Another name, another kind, or now within reach or no longer; whoever joins is so from the
    /// start.
    Changed(Participant),
    /// It began or ended; who leaves while speaking has ended before.
    Speaking {
        identity: Arc<str>,
        speaking: bool,
    },
}

/// What follows from one message of the server.
#[derive(Default)]
pub(super) struct RosterUpdate {
    pub changes: Vec<RosterChange>,
    /// Sids of tracks to subscribe to.
    pub new_tracks: Vec<String>,
}

/// One entry of one participant.
struct RosterEntry {
    participant: Participant,
    /// Its media are up.
    active: bool,
    version: u32,
    speaking: bool,
    /// Those that are subscribed to.
    tracks: HashSet<Arc<str>>,
}

/// Everybody but us.
pub(super) struct Roster {
    own_sid: String,
    own_identity: String,
    /// By sid.
    entries: HashMap<Arc<str>, RosterEntry>,
    /// The sid of the sid_by_identity entry, by identity.
    sid_by_identity: HashMap<Arc<str>, Arc<str>>,
    /// The identity of its owner, by the sid of a track.
    track_owners: HashMap<Arc<str>, Arc<str>>,
    /// Sids of those that left last.
    departed: VecDeque<Arc<str>>,
}

impl Roster {
    /// Begins with nobody but ourselves, who are never listed.
    pub fn new(own_sid: String, own_identity: String) -> Self {
        Roster {
            own_sid,
            own_identity,
            entries: HashMap::new(),
            sid_by_identity: HashMap::new(),
            track_owners: HashMap::new(),
            departed: VecDeque::new(),
        }
    }

    /// Takes what the server says of one participant.
    pub fn update(&mut self, info: &ParticipantInfo, update: &mut RosterUpdate) {
        if info.sid == self.own_sid || info.identity == self.own_identity {
            return;
        }
        if info.state == DISCONNECTED {
            // By its sid alone: old servers name no identity here, and the identity may be back
            // under another sid.
            self.leave(&info.sid, update);
            return;
        }
        if !is_valid_id(&info.sid) || !is_valid_id(&info.identity) {
            debug!("a participant without a name, or with one that is too long, is ignored");
            return;
        }
        if self.departed.iter().any(|sid| **sid == *info.sid) {
            debug!("late news of a participant who left is ignored");
            return;
        }
        match self.entries.get(&*info.sid) {
            Some(entry) if *entry.participant.identity != *info.identity => {
                debug!("a participant who changes its identity is ignored");
                return;
            }
            Some(entry) if info.version < entry.version => {
                debug!("stale news of a participant is ignored");
                return;
            }
            Some(_) => {}
            None => {
                if let Some(earlier) = self.sid_by_identity.get(&*info.identity).cloned() {
                    self.leave(&earlier, update);
                }
                if !self.join(info, update) {
                    return;
                }
            }
        }
        self.refresh(info, update);
    }

    /// Takes what the server says of who speaks; who is not named is as before.
    pub fn update_speakers(&mut self, speakers: &[SpeakerInfo], update: &mut RosterUpdate) {
        for speaker in speakers {
            let Some(entry) = self.entries.get_mut(&*speaker.sid) else {
                continue;
            };
            if entry.speaking != speaker.active {
                entry.speaking = speaker.active;
                update.changes.push(RosterChange::Speaking {
                    identity: entry.participant.identity.clone(),
                    speaking: speaker.active,
                });
            }
        }
    }

    /// Returns the identity of whose track it is, if it is one that is heard.
    pub fn track_owner(&self, track_sid: &str) -> Option<&Arc<str>> {
        self.track_owners.get(track_sid)
    }

    /// Returns how many are within reach that are no agents.
    pub fn callers(&self) -> usize {
        let is_caller = |entry: &&RosterEntry| entry.active && !entry.participant.is_agent;
        self.entries.values().filter(is_caller).count()
    }

    /// Returns how much is remembered: entries, identities, tracks, those who left.
    #[cfg(test)]
    pub fn known(&self) -> [usize; 4] {
        [
            self.entries.len(),
            self.sid_by_identity.len(),
            self.track_owners.len(),
            self.departed.len(),
        ]
    }

    fn join(&mut self, info: &ParticipantInfo, update: &mut RosterUpdate) -> bool {
        if self.entries.len() >= ROOM_PARTICIPANTS_MAX {
            debug!("a participant is ignored: {ROOM_PARTICIPANTS_MAX} are known");
            return false;
        }
        let (sid, identity): (Arc<str>, Arc<str>) = (info.sid.as_str().into(), info.identity.as_str().into());
        let participant = participant_of(identity.clone(), info);
        update.changes.push(RosterChange::Joined(participant.clone()));
        self.sid_by_identity.insert(identity, sid.clone());
        self.entries.insert(
            sid,
            RosterEntry {
                participant,
                active: info.state == ACTIVE,
                version: info.version,
                speaking: false,
                tracks: HashSet::new(),
            },
        );
        true
    }

    /// Brings a entry up to date, its tracks first of all.
    fn refresh(&mut self, info: &ParticipantInfo, update: &mut RosterUpdate) {
        let Some(entry) = self.entries.get_mut(&*info.sid) else {
            return;
        };
        entry.version = info.version;
        let participant = participant_of(entry.participant.identity.clone(), info);
        let was_active = std::mem::replace(&mut entry.active, info.state == ACTIVE);
        if was_active != entry.active || participant != entry.participant {
            entry.participant = participant;
            update.changes.push(RosterChange::Changed(entry.participant.clone()));
        }
        let heard: HashSet<&str> = info
            .tracks
            .iter()
            .filter(|track| {
                !entry.participant.is_agent && track.kind == TrackType::Audio as i32 && is_valid_id(&track.sid)
            })
            .map(|track| track.sid.as_str())
            .collect();
        entry.tracks.retain(|sid| {
            let is_kept = heard.contains(&**sid);
            if !is_kept {
                self.track_owners.remove(sid);
            }
            is_kept
        });
        // In the order of the message, so that the same message has the same effect each time.
        for track in info.tracks.iter().filter(|track| heard.contains(track.sid.as_str())) {
            if self.track_owners.contains_key(&*track.sid) {
                continue;
            }
            if self.track_owners.len() >= ROOM_TRACKS_MAX {
                debug!("an audio track is ignored: {ROOM_TRACKS_MAX} are heard");
                break;
            }
            let sid: Arc<str> = track.sid.as_str().into();
            self.track_owners
                .insert(sid.clone(), entry.participant.identity.clone());
            entry.tracks.insert(sid.clone());
            update.new_tracks.push(sid.to_string());
        }
    }

    fn leave(&mut self, sid: &str, update: &mut RosterUpdate) {
        let Some((sid, entry)) = self.entries.remove_entry(sid) else {
            return;
        };
        for track in &entry.tracks {
            self.track_owners.remove(track);
        }
        self.sid_by_identity.remove(&entry.participant.identity);
        if self.departed.len() >= ROOM_DEPARTED_MAX {
            self.departed.pop_front();
        }
        self.departed.push_back(sid);
        if entry.speaking {
            update.changes.push(RosterChange::Speaking {
                identity: entry.participant.identity.clone(),
                speaking: false,
            });
        }
        update.changes.push(RosterChange::Left(entry.participant));
    }
}

/// Tells whether it is a sid or an identity that a server hands out.
pub(super) fn is_valid_id(name: &str) -> bool {
    (1..=ROOM_NAME_BYTES_MAX).contains(&name.len())
}

/// A name for people, cut where no server has one.
pub(super) fn truncated(name: &str) -> &str {
    let mut end = name.len().min(ROOM_NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

fn participant_of(identity: Arc<str>, info: &ParticipantInfo) -> Participant {
    let mut held = 0;
    let attributes = info.attributes.iter().take_while(|(name, value)| {
        held += name.len() + value.len();
        held <= ROOM_ATTRIBUTES_BYTES_MAX
    });
    Participant {
        identity,
        name: truncated(&info.name).to_owned(),
        is_agent: is_agent(info),
        is_telephone: info.kind == SIP,
        attributes: attributes.map(|(name, value)| (name.clone(), value.clone())).collect(),
    }
}

/// The kind says it, or else the grant: a token with the grant alone makes a participant of the
/// standard kind.
fn is_agent(info: &ParticipantInfo) -> bool {
    let permission = info.permission.unwrap_or_default();
    matches!(info.kind, EGRESS | AGENT) || permission.agent || permission.recorder
}
