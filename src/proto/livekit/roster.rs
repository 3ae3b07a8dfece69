//! Who is in a room, and which of their tracks are to be heard.
//!
//! In: what the server says of participants and of who speaks. Out: `Change`s, and whose track a
//! sid is. A participant is known by its identity, which stays, and by its sid, which is new with
//! each join: the news of an earlier stay is told from that of the present one. Ignored: ourselves,
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
pub enum Change {
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
pub(super) struct Changes {
    pub told: Vec<Change>,
    /// Sids of tracks to subscribe to.
    pub tracks: Vec<String>,
}

/// One stay of one participant.
struct Stay {
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
    stays: HashMap<Arc<str>, Stay>,
    /// The sid of the present stay, by identity.
    present: HashMap<Arc<str>, Arc<str>>,
    /// The identity of its owner, by the sid of a track.
    owners: HashMap<Arc<str>, Arc<str>>,
    /// Sids of those that left last.
    departed: VecDeque<Arc<str>>,
}

impl Roster {
    /// Begins with nobody but ourselves, who are never listed.
    pub fn new(own_sid: String, own_identity: String) -> Self {
        Roster {
            own_sid,
            own_identity,
            stays: HashMap::new(),
            present: HashMap::new(),
            owners: HashMap::new(),
            departed: VecDeque::new(),
        }
    }

    /// Takes what the server says of one participant.
    pub fn update(&mut self, info: &ParticipantInfo, changes: &mut Changes) {
        if info.sid == self.own_sid || info.identity == self.own_identity {
            return;
        }
        if info.state == DISCONNECTED {
            // By its sid alone: old servers name no identity here, and the identity may be back
            // under another sid.
            self.leave(&info.sid, changes);
            return;
        }
        if !nameable(&info.sid) || !nameable(&info.identity) {
            debug!("a participant without a name, or with one that is too long, is ignored");
            return;
        }
        if self.departed.iter().any(|sid| **sid == *info.sid) {
            debug!("late news of a participant who left is ignored");
            return;
        }
        match self.stays.get(&*info.sid) {
            Some(stay) if *stay.participant.identity != *info.identity => {
                debug!("a participant who changes its identity is ignored");
                return;
            }
            Some(stay) if info.version < stay.version => {
                debug!("stale news of a participant is ignored");
                return;
            }
            Some(_) => {}
            None => {
                if let Some(earlier) = self.present.get(&*info.identity).cloned() {
                    self.leave(&earlier, changes);
                }
                if !self.join(info, changes) {
                    return;
                }
            }
        }
        self.refresh(info, changes);
    }

    /// Takes what the server says of who speaks; who is not named is as before.
    pub fn speakers(&mut self, speakers: &[SpeakerInfo], changes: &mut Changes) {
        for speaker in speakers {
            let Some(stay) = self.stays.get_mut(&*speaker.sid) else {
                continue;
            };
            if stay.speaking != speaker.active {
                stay.speaking = speaker.active;
                changes.told.push(Change::Speaking {
                    identity: stay.participant.identity.clone(),
                    speaking: speaker.active,
                });
            }
        }
    }

    /// Returns the identity of whose track it is, if it is one that is heard.
    pub fn owner(&self, track_sid: &str) -> Option<&Arc<str>> {
        self.owners.get(track_sid)
    }

    /// Returns how many are within reach that are no agents.
    pub fn callers(&self) -> usize {
        let is_caller = |stay: &&Stay| stay.active && !stay.participant.is_agent;
        self.stays.values().filter(is_caller).count()
    }

    /// Returns how much is remembered: stays, identities, tracks, those who left.
    #[cfg(test)]
    pub fn known(&self) -> [usize; 4] {
        [
            self.stays.len(),
            self.present.len(),
            self.owners.len(),
            self.departed.len(),
        ]
    }

    fn join(&mut self, info: &ParticipantInfo, changes: &mut Changes) -> bool {
        if self.stays.len() >= ROOM_PARTICIPANTS_MAX {
            debug!("a participant is ignored: {ROOM_PARTICIPANTS_MAX} are known");
            return false;
        }
        let (sid, identity): (Arc<str>, Arc<str>) = (info.sid.as_str().into(), info.identity.as_str().into());
        let participant = describe(identity.clone(), info);
        changes.told.push(Change::Joined(participant.clone()));
        self.present.insert(identity, sid.clone());
        self.stays.insert(
            sid,
            Stay {
                participant,
                active: info.state == ACTIVE,
                version: info.version,
                speaking: false,
                tracks: HashSet::new(),
            },
        );
        true
    }

    /// Brings a stay up to date, its tracks first of all.
    fn refresh(&mut self, info: &ParticipantInfo, changes: &mut Changes) {
        let Some(stay) = self.stays.get_mut(&*info.sid) else {
            return;
        };
        stay.version = info.version;
        let participant = describe(stay.participant.identity.clone(), info);
        let was_active = std::mem::replace(&mut stay.active, info.state == ACTIVE);
        if was_active != stay.active || participant != stay.participant {
            stay.participant = participant;
            changes.told.push(Change::Changed(stay.participant.clone()));
        }
        let heard: HashSet<&str> = info
            .tracks
            .iter()
            .filter(|track| !stay.participant.is_agent && track.kind == TrackType::Audio as i32 && nameable(&track.sid))
            .map(|track| track.sid.as_str())
            .collect();
        stay.tracks.retain(|sid| {
            let stays = heard.contains(&**sid);
            if !stays {
                self.owners.remove(sid);
            }
            stays
        });
        // In the order of the message, so that the same message has the same effect each time.
        for track in info.tracks.iter().filter(|track| heard.contains(track.sid.as_str())) {
            if self.owners.contains_key(&*track.sid) {
                continue;
            }
            if self.owners.len() >= ROOM_TRACKS_MAX {
                debug!("an audio track is ignored: {ROOM_TRACKS_MAX} are heard");
                break;
            }
            let sid: Arc<str> = track.sid.as_str().into();
            self.owners.insert(sid.clone(), stay.participant.identity.clone());
            stay.tracks.insert(sid.clone());
            changes.tracks.push(sid.to_string());
        }
    }

    fn leave(&mut self, sid: &str, changes: &mut Changes) {
        let Some((sid, stay)) = self.stays.remove_entry(sid) else {
            return;
        };
        for track in &stay.tracks {
            self.owners.remove(track);
        }
        self.present.remove(&stay.participant.identity);
        if self.departed.len() >= ROOM_DEPARTED_MAX {
            self.departed.pop_front();
        }
        self.departed.push_back(sid);
        if stay.speaking {
            changes.told.push(Change::Speaking {
                identity: stay.participant.identity.clone(),
                speaking: false,
            });
        }
        changes.told.push(Change::Left(stay.participant));
    }
}

/// Tells whether it is a sid or an identity that a server hands out.
pub(super) fn nameable(name: &str) -> bool {
    (1..=ROOM_NAME_BYTES_MAX).contains(&name.len())
}

/// A name for people, cut where no server has one.
pub(super) fn shortened(name: &str) -> &str {
    let mut end = name.len().min(ROOM_NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

fn describe(identity: Arc<str>, info: &ParticipantInfo) -> Participant {
    let mut held = 0;
    let attributes = info.attributes.iter().take_while(|(name, value)| {
        held += name.len() + value.len();
        held <= ROOM_ATTRIBUTES_BYTES_MAX
    });
    Participant {
        identity,
        name: shortened(&info.name).to_owned(),
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
