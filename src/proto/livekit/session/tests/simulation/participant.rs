//! A remote participant, as the server describes it.

use crate::livekit::wire::{ParticipantInfo, TrackInfo, TrackType};

/// A remote participant.
#[derive(Clone, Debug)]
pub struct FakeParticipant {
    pub sid: &'static str,
    pub identity: &'static str,
    pub kind: i32,
    /// 1 joined, 2 active.
    pub state: i32,
    pub joined_ms: i64,
    pub attributes: Vec<(&'static str, &'static str)>,
    /// The encryption of its track.
    pub encryption: i32,
    /// Whether its track is muted.
    pub muted: bool,
}

impl FakeParticipant {
    pub fn caller(sid: &'static str, identity: &'static str) -> Self {
        FakeParticipant {
            sid,
            identity,
            kind: 0,
            state: 2,
            joined_ms: 0,
            attributes: Vec::new(),
            encryption: 0,
            muted: false,
        }
    }

    pub fn agent(sid: &'static str, identity: &'static str) -> Self {
        FakeParticipant {
            kind: 4,
            ..FakeParticipant::caller(sid, identity)
        }
    }

    /// A telephone whose call has this state.
    pub fn telephone(sid: &'static str, identity: &'static str, status: &'static str) -> Self {
        FakeParticipant {
            kind: 3,
            attributes: vec![("sip.callStatus", status), ("sip.phoneNumber", "+15550001111")],
            ..FakeParticipant::caller(sid, identity)
        }
    }

    pub(super) fn track(&self) -> String {
        self.sid.replace("PA_", "TR_")
    }

    pub(super) fn info(&self, state: i32) -> ParticipantInfo {
        ParticipantInfo {
            sid: self.sid.into(),
            identity: self.identity.into(),
            state,
            tracks: vec![TrackInfo {
                sid: self.track(),
                kind: TrackType::Audio as i32,
                encryption: self.encryption,
                muted: self.muted,
                ..TrackInfo::default()
            }],
            name: format!("{}!", self.identity),
            version: if state == 3 { 9 } else { 1 },
            kind: self.kind,
            joined_at_ms: self.joined_ms,
            attributes: (self.attributes.iter())
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..ParticipantInfo::default()
        }
    }
}
