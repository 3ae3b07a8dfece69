//! The participants of a room and their audio tracks.
//!
//! In: participant and speaker updates of the server. Out: [`RosterChange`]s, and the owner of each
//! track. A participant has an identity, which is permanent, and a sid, which is new with each
//! join; the sid tells late updates of an earlier join from current ones. Ignored: the local
//! participant, participants and tracks beyond their caps, and invalid ids. Source:
//! `docs/spec/livekit.md` 3.1 and 5.2.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use log::debug;

use super::wire::{ParticipantInfo, SpeakerInfo, TrackInfo, TrackType};
use crate::limits::{
    ROOM_ATTRIBUTES_BYTES_MAX, ROOM_DEPARTED_MAX, ROOM_NAME_BYTES_MAX, ROOM_PARTICIPANTS_MAX, ROOM_TRACKS_MAX,
};
pub use crate::participant::Participant;
use crate::sorting;

/// `ParticipantInfo.state` of a participant whose media is up. Others receive neither audio nor
/// data.
const ACTIVE: i32 = 2;
/// `ParticipantInfo.state` of a participant that left.
const DISCONNECTED: i32 = 3;
/// `ParticipantInfo.kind` of a recorder.
const EGRESS: i32 = 2;
/// `ParticipantInfo.kind` of a telephone.
const SIP: i32 = 3;
/// `ParticipantInfo.kind` of a bot.
const AGENT: i32 = 4;
/// `ParticipantInfo.kind` of a call of a telephone or messaging network that has a connector.
const CONNECTOR: i32 = 7;
/// `TrackInfo.encryption` of a track that everybody can hear.
const NOT_ENCRYPTED: i32 = 0;
/// The begin of the names of attributes with SIP headers, of which there may be many.
const HEADER_ATTRIBUTES: &str = "sip.h.";

/// What the local participant is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoomRole {
    /// A bot, whose callers are all participants that are no agents.
    #[default]
    Bot,
    /// A caller, who talks to the agents alone.
    Caller,
}

impl RoomRole {
    /// Tells whether the local participant talks to this one.
    pub fn talks_to(self, who: &Participant) -> bool {
        who.is_agent == (self == RoomRole::Caller)
    }

    /// Returns what those are called to whom it talks.
    pub fn other(self) -> &'static str {
        match self {
            RoomRole::Bot => "caller",
            RoomRole::Caller => "bot",
        }
    }

    /// Returns the level of lines about a normal call. A caller reports them by itself.
    pub fn log_level(self) -> log::Level {
        match self {
            RoomRole::Bot => log::Level::Info,
            RoomRole::Caller => log::Level::Debug,
        }
    }

    /// Returns the name of its track, which is also the id of the track in the offer.
    pub fn track_name(self) -> &'static str {
        match self {
            RoomRole::Bot => "bot-audio",
            RoomRole::Caller => "caller-audio",
        }
    }
}

/// A change in the room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterChange {
    Joined(Participant),
    /// A participant that rejoins under its identity leaves first, even if the server does not say
    /// so.
    Left(Participant),
    /// The name, the kind or the active state changed.
    Changed(Participant),
    /// A participant that leaves while speaking stops speaking first.
    Speaking {
        identity: Arc<str>,
        speaking: bool,
    },
}

/// The effects of one message of the server.
#[derive(Default)]
pub(super) struct RosterUpdate {
    pub changes: Vec<RosterChange>,
    /// Sids of the tracks to subscribe to.
    pub new_tracks: Vec<String>,
    /// Whether a track is encrypted end to end. It is not subscribed to: its audio is noise.
    pub has_encrypted: bool,
}

/// A participant from its join to its departure.
struct RosterEntry {
    participant: Participant,
    /// Whether its media is up.
    active: bool,
    version: u32,
    speaking: bool,
    joined_ms: i64,
    /// The tracks that are subscribed to.
    tracks: HashSet<Arc<str>>,
    /// Whether one of them is not muted.
    is_publishing: bool,
}

/// All remote participants.
pub(super) struct Roster {
    role: RoomRole,
    own_sid: String,
    own_identity: String,
    /// When the local participant joined, in milliseconds of Unix time.
    own_joined_ms: i64,
    /// By sid.
    entries: HashMap<Arc<str>, RosterEntry>,
    /// The sid of the current join, by identity.
    sid_by_identity: HashMap<Arc<str>, Arc<str>>,
    /// The identity of the owner, by track sid.
    track_owners: HashMap<Arc<str>, Arc<str>>,
    /// Sids of the participants that left last.
    departed: VecDeque<Arc<str>>,
    /// Whether a resume has happened, and the server has not listed all participants since.
    is_stale: bool,
}

impl Roster {
    /// Creates an empty roster. The local participant is never listed.
    pub fn new(role: RoomRole, own: ParticipantInfo) -> Self {
        Roster {
            role,
            own_joined_ms: joined_ms(&own),
            own_sid: own.sid,
            own_identity: own.identity,
            entries: HashMap::new(),
            sid_by_identity: HashMap::new(),
            track_owners: HashMap::new(),
            departed: VecDeque::new(),
            is_stale: false,
        }
    }

    /// Handles a resume. Speakers are unknown until the server names them again.
    pub fn handle_resumed(&mut self, update: &mut RosterUpdate) {
        self.is_stale = true;
        for entry in self.entries.values_mut() {
            if std::mem::replace(&mut entry.speaking, false) {
                update.changes.push(RosterChange::Speaking {
                    identity: entry.participant.identity.clone(),
                    speaking: false,
                });
            }
        }
    }

    /// Removes the participants that left while there was no connection. After a resume the server
    /// lists everybody once, the local participant included.
    pub fn finish_refresh(&mut self, listed: &[ParticipantInfo], update: &mut RosterUpdate) {
        if !self.is_stale || !listed.iter().any(|info| info.sid == self.own_sid) {
            return;
        }
        self.is_stale = false;
        let here: HashSet<&str> = listed.iter().map(|info| info.sid.as_str()).collect();
        let mut gone: Vec<Arc<str>> = self.entries.keys().cloned().collect();
        gone.retain(|sid| !here.contains(&**sid));
        sorting::sort(&mut gone);
        for sid in gone {
            self.leave(&sid, update);
        }
    }

    /// Returns whether a track of the local participant is muted, if this is the first list after a
    /// resume that tells. An administrator may have changed it while there was no connection.
    pub fn refreshed_mute(&self, listed: &[ParticipantInfo], own_track: &str) -> Option<bool> {
        let own = listed.iter().find(|info| self.is_stale && info.sid == self.own_sid)?;
        let track = own.tracks.iter().find(|track| track.sid == own_track)?;
        Some(track.muted)
    }

    /// Returns the sids of the tracks that are subscribed to, sorted.
    pub fn subscribed_tracks(&self) -> Vec<String> {
        let mut sids: Vec<String> = self.track_owners.keys().map(ToString::to_string).collect();
        sorting::sort(&mut sids);
        sids
    }

    /// Handles the state of one participant.
    pub fn update(&mut self, info: &ParticipantInfo, update: &mut RosterUpdate) {
        if info.sid == self.own_sid || info.identity == self.own_identity {
            return;
        }
        if info.state == DISCONNECTED {
            // Matched by sid alone: old servers name no identity here, and the identity may have
            // rejoined under another sid.
            self.leave(&info.sid, update);
            return;
        }
        if !is_valid_id(&info.sid) || !is_valid_id(&info.identity) {
            debug!("a participant without a name, or with one that is too long, is ignored");
            return;
        }
        if self.role == RoomRole::Caller && is_recorder(info) {
            // It is an agent to which no caller talks.
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

    /// Handles speaker updates. Participants that are not named are unchanged.
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

    /// Returns the owner of a track that is subscribed to.
    pub fn track_owner(&self, track_sid: &str) -> Option<&Arc<str>> {
        self.track_owners.get(track_sid)
    }

    /// Returns the number of active participants to whom the local one talks.
    pub fn callers(&self) -> usize {
        self.active_callers().count()
    }

    /// Tells whether one of them publishes audio that is subscribed to and not muted.
    pub fn is_any_publishing(&self) -> bool {
        self.active_callers()
            .any(|entry| entry.is_publishing && !entry.participant.is_ringing())
    }

    /// Returns the number of those whose call, if it is one of a telephone, is answered.
    pub fn answered_callers(&self) -> usize {
        self.active_callers()
            .filter(|entry| !entry.participant.is_ringing())
            .count()
    }

    fn active_callers(&self) -> impl Iterator<Item = &RosterEntry> {
        let is_caller = |entry: &&RosterEntry| entry.active && self.role.talks_to(&entry.participant);
        self.entries.values().filter(is_caller)
    }

    /// Returns the sid of the first track of a participant that is subscribed to.
    pub fn track_of(&self, identity: &str) -> Option<&Arc<str>> {
        let sid = self.sid_by_identity.get(identity)?;
        self.entries.get(sid)?.tracks.iter().min()
    }

    /// Returns the sid of the local participant.
    pub fn own_sid(&self) -> &str {
        &self.own_sid
    }

    /// Tells whether an agent with this attribute joined before the local participant. Of two that
    /// joined in the same millisecond, the one with the lower identity counts as the earlier.
    pub fn has_earlier_agent(&self, key: &str, value: &str) -> bool {
        let own = (self.own_joined_ms, &*self.own_identity);
        self.entries.values().any(|entry| {
            let who = &entry.participant;
            who.is_agent
                && who.attributes.get(key).is_some_and(|held| held == value)
                && (entry.joined_ms, &*who.identity) < own
        })
    }

    /// Returns the number of entries, identities, tracks and departed sids.
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
                joined_ms: joined_ms(info),
                tracks: HashSet::new(),
                is_publishing: false,
            },
        );
        true
    }

    /// Updates an entry and its tracks.
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
        let is_wanted = |track: &&TrackInfo| {
            self.role.talks_to(&entry.participant) && track.kind == TrackType::Audio as i32 && is_valid_id(&track.sid)
        };
        let (wanted, encrypted): (Vec<_>, Vec<_>) =
            (info.tracks.iter().filter(is_wanted)).partition(|track| track.encryption == NOT_ENCRYPTED);
        update.has_encrypted |= !encrypted.is_empty();
        let wanted: HashSet<&str> = wanted.into_iter().map(|track| track.sid.as_str()).collect();
        entry.tracks.retain(|sid| {
            let is_kept = wanted.contains(&**sid);
            if !is_kept {
                self.track_owners.remove(sid);
            }
            is_kept
        });
        let mut published = info.tracks.iter().filter(|track| !track.muted);
        entry.is_publishing = published.any(|track| wanted.contains(track.sid.as_str()));
        // In the order of the message, so that the result is deterministic.
        for track in info.tracks.iter().filter(|track| wanted.contains(track.sid.as_str())) {
            if self.track_owners.contains_key(&*track.sid) {
                continue;
            }
            if self.track_owners.len() >= ROOM_TRACKS_MAX {
                debug!("an audio track is ignored: {ROOM_TRACKS_MAX} are subscribed");
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

/// Returns when a participant joined. Older servers send seconds.
fn joined_ms(info: &ParticipantInfo) -> i64 {
    match info.joined_at_ms {
        0 => info.joined_at.saturating_mul(1_000),
        ms => ms,
    }
}

/// Tells whether a sid or an identity has a valid length.
pub(super) fn is_valid_id(name: &str) -> bool {
    (1..=ROOM_NAME_BYTES_MAX).contains(&name.len())
}

/// Truncates a display name to the length that servers allow.
pub(super) fn truncated(name: &str) -> &str {
    let mut end = name.len().min(ROOM_NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

fn participant_of(identity: Arc<str>, info: &ParticipantInfo) -> Participant {
    let mut held = 0;
    let (headers, others): (Vec<_>, Vec<_>) =
        (info.attributes.iter()).partition(|(name, _)| name.starts_with(HEADER_ATTRIBUTES));
    let attributes = others.into_iter().chain(headers).take_while(|(name, value)| {
        held += name.len() + value.len();
        held <= ROOM_ATTRIBUTES_BYTES_MAX
    });
    Participant {
        identity,
        name: truncated(&info.name).to_owned(),
        is_agent: is_agent(info),
        is_telephone: matches!(info.kind, SIP | CONNECTOR),
        attributes: sorting::map(attributes.map(|(name, value)| (name.clone(), value.clone()))),
    }
}

/// A participant is an agent by its kind or by its grant. A token with the grant alone makes a
/// participant of the standard kind.
fn is_agent(info: &ParticipantInfo) -> bool {
    info.kind == AGENT || info.permission.unwrap_or_default().agent || is_recorder(info)
}

fn is_recorder(info: &ParticipantInfo) -> bool {
    info.kind == EGRESS || info.permission.unwrap_or_default().recorder
}
