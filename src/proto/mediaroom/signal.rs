//! The signalling connection of one stay in a room, from the open WebSocket to its end.
//!
//! In: the bytes of binary messages, requests of the session, and `now`. Out, by [`Signal::poll_output`]: messages to send, and
//! what the server said. It pings, notices a silent server, keeps the [`super::roster`], and subscribes to the audio of
//! everybody who is no agent. Refuses: bytes that are no message.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::roster::Participant;
use super::wire::Target;

/// What the signalling connection answers to an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// One binary WebSocket message.
    Send(Vec<u8>),
    /// We are in the room. Who else is follows as [`Output::ParticipantJoined`].
    Joined(Joined),
    /// The subscriber connection is to be answered, every time.
    Offer {
        sdp: String,
        id: u32,
        mid_to_track: BTreeMap<String, String>,
    },
    /// To the last offer of the publisher connection; older ones are dropped.
    Answer {
        sdp: String,
    },
    /// A candidate of the server, as it stands in SDP without `a=`.
    Candidate {
        target: Target,
        candidate: String,
    },
    /// Our track is known to the server under this sid.
    Published {
        sid: String,
    },
    /// The server does not let us publish: why.
    PublishRefused(String),
    ParticipantJoined(Participant),
    ParticipantLeft(Participant),
    Speaking {
        identity: Arc<str>,
        speaking: bool,
    },
    /// A token for the next join.
    Token(String),
    /// The server ends the stay.
    Leave {
        reason: i32,
        then: Then,
    },
    /// Nothing was heard of the server for its ping timeout.
    Silent,
}

/// What a server that ends a stay wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is over.
    Nothing,
    /// Come back, resumed or anew.
    Reconnect,
}

/// What the server said when it let us in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Joined {
    pub room_name: String,
    /// Our own `PA_...`.
    pub sid: String,
    pub subscriber_primary: bool,
    pub fast_publish: bool,
    pub server_version: String,
}

/// The bytes are no message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadMessage(pub String);

/// The signalling connection of one stay.
pub struct Signal {}

impl Signal {
    /// Begins when the WebSocket is open.
    pub fn new(_now: Instant) -> Self {
        todo!("S")
    }

    /// Takes one binary message. `unix_ms` is the time since 1970, for the pings.
    pub fn handle_message(&mut self, _bytes: Bytes, _now: Instant, _unix_ms: u64) -> Result<(), BadMessage> {
        todo!("S")
    }

    pub fn handle_timeout(&mut self, _now: Instant, _unix_ms: u64) {
        todo!("S")
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!("S")
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        todo!("S")
    }

    /// Offers the publisher connection, in the order of calls.
    pub fn offer(&mut self, _sdp: String) {
        todo!("S")
    }

    /// Answers the subscriber connection's offer of this id.
    pub fn answer(&mut self, _sdp: String, _id: u32) {
        todo!("S")
    }

    /// Announces the one audio track; `cid` is the track id of its `a=msid`.
    pub fn add_track(&mut self, _cid: &str, _name: &str) {
        todo!("S")
    }

    /// Says goodbye.
    pub fn leave(&mut self) {
        todo!("S")
    }

    /// Returns whose track a sid is, if it is known and to be heard.
    pub fn owner(&self, _track_sid: &str) -> Option<&Arc<str>> {
        todo!("S")
    }

    /// Returns how many participants are there that are no agents.
    pub fn callers(&self) -> usize {
        todo!("S")
    }
}
