//! The protobuf messages of LiveKit's signalling and data channels, with the fields that are used.
//!
//! In: the bytes of one binary WebSocket message or of one data-channel message. Decoding skips
//! unknown fields and messages. [`parse`] rejects messages that would take far more memory than
//! their size. Source: `docs/spec/livekit.md` 3.1 and 5.3; the numbers are those of the published
//! protocol.

mod data;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use prost::Message as _;

pub use self::data::*;
use crate::limits::{ROOM_MESSAGE_BYTES_MAX, ROOM_MESSAGE_PARTS_MAX};

/// A message of the client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SignalRequest {
    #[prost(oneof = "SignalRequestKind", tags = "1, 2, 3, 4, 5, 6, 8, 12, 15, 16")]
    pub message: Option<SignalRequestKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum SignalRequestKind {
    /// The offer of the publisher connection.
    #[prost(message, tag = "1")]
    Offer(SessionDescription),
    /// The answer of the subscriber connection.
    #[prost(message, tag = "2")]
    Answer(SessionDescription),
    #[prost(message, tag = "3")]
    Trickle(TrickleRequest),
    #[prost(message, tag = "4")]
    AddTrack(AddTrackRequest),
    #[prost(message, tag = "5")]
    Mute(MuteTrackRequest),
    #[prost(message, tag = "6")]
    Subscription(UpdateSubscription),
    #[prost(message, tag = "8")]
    Leave(LeaveRequest),
    #[prost(message, tag = "12")]
    SyncState(Box<SyncState>),
    #[prost(message, tag = "15")]
    UpdateMetadata(UpdateParticipantMetadata),
    #[prost(message, tag = "16")]
    Ping(Ping),
}

/// A message of the server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SignalResponse {
    #[prost(
        oneof = "ServerMessage",
        tags = "1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 15, 16, 17, 19, 20, 21, 22, 23"
    )]
    pub message: Option<ServerMessage>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ServerMessage {
    #[prost(message, tag = "1")]
    Join(Box<JoinResponse>),
    /// The answer to the publisher's offer.
    #[prost(message, tag = "2")]
    Answer(SessionDescription),
    /// The offer of the subscriber connection.
    #[prost(message, tag = "3")]
    Offer(SessionDescription),
    #[prost(message, tag = "4")]
    Trickle(TrickleRequest),
    #[prost(message, tag = "5")]
    Update(ParticipantUpdate),
    #[prost(message, tag = "6")]
    TrackPublished(TrackPublishedResponse),
    #[prost(message, tag = "8")]
    Leave(LeaveRequest),
    #[prost(message, tag = "9")]
    Mute(MuteTrackRequest),
    #[prost(message, tag = "10")]
    SpeakersChanged(SpeakersChanged),
    #[prost(message, tag = "11")]
    RoomUpdate(RoomUpdate),
    /// A participant lets the bot hear its track, or no longer.
    #[prost(message, tag = "15")]
    SubscriptionPermission(SubscriptionPermissionUpdate),
    #[prost(string, tag = "16")]
    RefreshToken(String),
    #[prost(message, tag = "17")]
    TrackUnpublished(TrackUnpublishedResponse),
    #[prost(message, tag = "19")]
    Reconnect(ReconnectResponse),
    #[prost(message, tag = "20")]
    Pong(Pong),
    /// Why a track is not forwarded.
    #[prost(message, tag = "21")]
    Subscription(SubscriptionResponse),
    #[prost(message, tag = "22")]
    Request(RequestResponse),
    /// The first participant has subscribed to one of our tracks.
    #[prost(message, tag = "23")]
    TrackSubscribed(TrackSubscribed),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscriptionPermissionUpdate {
    #[prost(string, tag = "2")]
    pub track_sid: String,
    #[prost(bool, tag = "3")]
    pub allowed: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscriptionResponse {
    #[prost(string, tag = "1")]
    pub track_sid: String,
    /// 1: the subscriber does not take the codec; 2: there is no such track.
    #[prost(int32, tag = "2")]
    pub err: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SessionDescription {
    /// `offer` or `answer`.
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub sdp: String,
    #[prost(uint32, tag = "3")]
    pub id: u32,
    #[prost(btree_map = "string, string", tag = "4")]
    pub mid_to_track_id: BTreeMap<String, String>,
}

/// One of the two peer connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum SignalTarget {
    Publisher = 0,
    Subscriber = 1,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TrickleRequest {
    /// JSON: `{"candidate": "candidate:...", "sdpMid": ..., "sdpMLineIndex": ...}`.
    #[prost(string, tag = "1")]
    pub candidate_init: String,
    #[prost(enumeration = "SignalTarget", tag = "2")]
    pub target: i32,
    #[prost(bool, tag = "3")]
    pub last: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AddTrackRequest {
    #[prost(string, tag = "1")]
    pub cid: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(enumeration = "TrackType", tag = "3")]
    pub kind: i32,
    #[prost(bool, tag = "6")]
    pub muted: bool,
    #[prost(enumeration = "TrackSource", tag = "8")]
    pub source: i32,
    #[prost(bool, tag = "13")]
    pub disable_red: bool,
    #[prost(string, tag = "15")]
    pub stream: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum TrackType {
    Audio = 0,
    Video = 1,
    Data = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum TrackSource {
    Unknown = 0,
    Camera = 1,
    Microphone = 2,
    ScreenShare = 3,
    ScreenShareAudio = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackPublishedResponse {
    #[prost(string, tag = "1")]
    pub cid: String,
    #[prost(message, optional, tag = "2")]
    pub track: Option<TrackInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackUnpublishedResponse {
    #[prost(string, tag = "1")]
    pub track_sid: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackSubscribed {
    #[prost(string, tag = "1")]
    pub track_sid: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackInfo {
    #[prost(string, tag = "1")]
    pub sid: String,
    #[prost(enumeration = "TrackType", tag = "2")]
    pub kind: i32,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(bool, tag = "4")]
    pub muted: bool,
    #[prost(enumeration = "TrackSource", tag = "9")]
    pub source: i32,
    #[prost(string, tag = "11")]
    pub mime_type: String,
    #[prost(string, tag = "12")]
    pub mid: String,
    /// 0 none, 1 GCM, 2 custom.
    #[prost(int32, tag = "16")]
    pub encryption: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MuteTrackRequest {
    #[prost(string, tag = "1")]
    pub sid: String,
    #[prost(bool, tag = "2")]
    pub muted: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateSubscription {
    #[prost(string, repeated, tag = "1")]
    pub track_sids: Vec<String>,
    #[prost(bool, tag = "2")]
    pub subscribe: bool,
}

/// A change of the local participant. Empty fields leave things as they are.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateParticipantMetadata {
    #[prost(string, tag = "1")]
    pub metadata: String,
    #[prost(string, tag = "2")]
    pub name: String,
    /// An empty value deletes an attribute.
    #[prost(btree_map = "string, string", tag = "3")]
    pub attributes: BTreeMap<String, String>,
    #[prost(uint32, tag = "4")]
    pub request_id: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Ping {
    /// Unix time in milliseconds.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    /// The last round trip in milliseconds.
    #[prost(int64, tag = "2")]
    pub rtt: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Pong {
    #[prost(int64, tag = "1")]
    pub last_ping_timestamp: i64,
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaveRequest {
    #[prost(bool, tag = "1")]
    pub can_reconnect: bool,
    /// A disconnect reason, `docs/spec/livekit.md` 3.2. Unknown ones keep their number.
    #[prost(int32, tag = "2")]
    pub reason: i32,
    /// 0 disconnect, 1 resume, 2 reconnect.
    #[prost(int32, tag = "3")]
    pub action: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinResponse {
    #[prost(message, optional, tag = "1")]
    pub room: Option<RoomInfo>,
    /// The local participant.
    #[prost(message, optional, tag = "2")]
    pub participant: Option<ParticipantInfo>,
    #[prost(message, repeated, tag = "3")]
    pub other_participants: Vec<ParticipantInfo>,
    #[prost(string, tag = "4")]
    pub server_version: String,
    #[prost(message, repeated, tag = "5")]
    pub ice_servers: Vec<RoomIceServer>,
    #[prost(bool, tag = "6")]
    pub subscriber_primary: bool,
    #[prost(string, tag = "7")]
    pub alternative_url: String,
    #[prost(message, optional, tag = "8")]
    pub client_configuration: Option<ClientConfiguration>,
    /// Seconds.
    #[prost(int32, tag = "10")]
    pub ping_timeout: i32,
    /// Seconds.
    #[prost(int32, tag = "11")]
    pub ping_interval: i32,
    #[prost(bool, tag = "15")]
    pub fast_publish: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RoomInfo {
    #[prost(string, tag = "1")]
    pub sid: String,
    #[prost(string, tag = "2")]
    pub name: String,
    /// Seconds until a room is closed that no one entered.
    #[prost(uint32, tag = "3")]
    pub empty_timeout: u32,
    #[prost(string, tag = "8")]
    pub metadata: String,
    #[prost(uint32, tag = "9")]
    pub num_participants: u32,
    /// Seconds until a room is closed whose last caller left.
    #[prost(uint32, tag = "14")]
    pub departure_timeout: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RoomUpdate {
    #[prost(message, optional, tag = "1")]
    pub room: Option<RoomInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ParticipantInfo {
    #[prost(string, tag = "1")]
    pub sid: String,
    #[prost(string, tag = "2")]
    pub identity: String,
    /// 0 joining, 1 joined, 2 active, 3 disconnected.
    #[prost(int32, tag = "3")]
    pub state: i32,
    #[prost(message, repeated, tag = "4")]
    pub tracks: Vec<TrackInfo>,
    #[prost(string, tag = "5")]
    pub metadata: String,
    /// Unix time in seconds.
    #[prost(int64, tag = "6")]
    pub joined_at: i64,
    #[prost(string, tag = "9")]
    pub name: String,
    /// A higher version is newer.
    #[prost(uint32, tag = "10")]
    pub version: u32,
    #[prost(message, optional, tag = "11")]
    pub permission: Option<ParticipantPermission>,
    #[prost(bool, tag = "13")]
    pub is_publisher: bool,
    /// 0 standard, 1 ingress, 2 egress, 3 SIP, 4 agent, 7 connector, 8 bridge.
    #[prost(int32, tag = "14")]
    pub kind: i32,
    #[prost(btree_map = "string, string", tag = "15")]
    pub attributes: BTreeMap<String, String>,
    /// A disconnect reason, `docs/spec/livekit.md` 3.2.
    #[prost(int32, tag = "16")]
    pub disconnect_reason: i32,
    /// Unix time in milliseconds. Older servers do not send it.
    #[prost(int64, tag = "17")]
    pub joined_at_ms: i64,
}

/// The permissions of a participant. A token that grants `agent` without claiming that kind shows
/// only here.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ParticipantPermission {
    #[prost(bool, tag = "1")]
    pub can_subscribe: bool,
    #[prost(bool, tag = "2")]
    pub can_publish: bool,
    #[prost(bool, tag = "3")]
    pub can_publish_data: bool,
    #[prost(bool, tag = "7")]
    pub hidden: bool,
    #[prost(bool, tag = "8")]
    pub recorder: bool,
    #[prost(bool, tag = "10")]
    pub can_update_metadata: bool,
    #[prost(bool, tag = "11")]
    pub agent: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ParticipantUpdate {
    #[prost(message, repeated, tag = "1")]
    pub participants: Vec<ParticipantInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RoomIceServer {
    #[prost(string, repeated, tag = "1")]
    pub urls: Vec<String>,
    #[prost(string, tag = "2")]
    pub username: String,
    #[prost(string, tag = "3")]
    pub credential: String,
}

/// The server's answer to a resume.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReconnectResponse {
    #[prost(message, repeated, tag = "1")]
    pub ice_servers: Vec<RoomIceServer>,
    #[prost(message, optional, tag = "2")]
    pub client_configuration: Option<ClientConfiguration>,
    /// The number of the last reliable data message that the server has received.
    #[prost(uint32, tag = "4")]
    pub last_message_seq: u32,
}

/// What the server asks of a client.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ClientConfiguration {
    /// 0 unset, 1 disabled, 2 enabled.
    #[prost(int32, tag = "5")]
    pub force_relay: i32,
}

/// What a client tells the server after a resume.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SyncState {
    /// The last answer of the subscriber connection.
    #[prost(message, optional, tag = "1")]
    pub answer: Option<SessionDescription>,
    #[prost(message, optional, tag = "2")]
    pub subscription: Option<UpdateSubscription>,
    #[prost(message, repeated, tag = "3")]
    pub publish_tracks: Vec<TrackPublishedResponse>,
    /// The last offer of the publisher connection.
    #[prost(message, optional, tag = "5")]
    pub offer: Option<SessionDescription>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SpeakersChanged {
    #[prost(message, repeated, tag = "1")]
    pub speakers: Vec<SpeakerInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SpeakerInfo {
    #[prost(string, tag = "1")]
    pub sid: String,
    #[prost(float, tag = "2")]
    pub level: f32,
    #[prost(bool, tag = "3")]
    pub active: bool,
}

/// The outcome of a request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestResponse {
    #[prost(uint32, tag = "1")]
    pub request_id: u32,
    /// 0 ok, 1 not found, 2 not allowed, 3 limit exceeded, 4 queued. Newer servers have more
    /// refusals.
    #[prost(int32, tag = "2")]
    pub reason: i32,
    #[prost(string, tag = "3")]
    pub message: String,
    /// The request itself. Older servers do not repeat it.
    #[prost(message, optional, tag = "5")]
    pub add_track: Option<AddTrackRequest>,
    #[prost(message, optional, tag = "7")]
    pub update_metadata: Option<UpdateParticipantMetadata>,
}

/// Why a message of the server is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    TooLong {
        bytes: usize,
    },
    /// More participants, tracks and other parts than any room has.
    TooManyParts,
    Malformed,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::TooLong { bytes } => {
                write!(
                    f,
                    "a message of {bytes} bytes; at most {ROOM_MESSAGE_BYTES_MAX} are accepted"
                )
            }
            WireError::TooManyParts => {
                write!(
                    f,
                    "a message with more than {ROOM_MESSAGE_PARTS_MAX} participants, tracks and other parts"
                )
            }
            WireError::Malformed => f.write_str("bytes that are not a LiveKit message"),
        }
    }
}

impl std::error::Error for WireError {}

/// Parses one message of the server.
///
/// # Errors
/// [`WireError`] if the message is too long, has too many parts or is malformed.
pub fn parse(bytes: Bytes) -> Result<SignalResponse, WireError> {
    if bytes.len() > ROOM_MESSAGE_BYTES_MAX {
        return Err(WireError::TooLong { bytes: bytes.len() });
    }
    let mut left = ROOM_MESSAGE_PARTS_MAX;
    count_parts(&bytes, MessageShape::Response, &mut left)?;
    SignalResponse::decode(bytes).map_err(|_| WireError::Malformed)
}

/// A message type that has repeated parts, directly or in a member.
#[derive(Clone, Copy)]
pub(super) enum MessageShape {
    /// A message to an agent worker.
    Worker,
    /// The offer or the assignment of a job.
    JobHolder,
    Job,
    Response,
    Join,
    Description,
    Update,
    Speakers,
    Reconnect,
    Participant,
    IceServer,
    /// A type without repeated parts.
    Leaf,
}

impl MessageShape {
    fn child(self, tag: u64) -> Option<MessageShape> {
        Some(match (self, tag) {
            (MessageShape::Worker, 2 | 3) => MessageShape::JobHolder,
            (MessageShape::JobHolder, 1) => MessageShape::Job,
            (MessageShape::Job, 4) => MessageShape::Participant,
            (MessageShape::Job, 12) => MessageShape::Leaf,
            (MessageShape::Response, 1) => MessageShape::Join,
            (MessageShape::Response, 2 | 3) => MessageShape::Description,
            (MessageShape::Response, 5) => MessageShape::Update,
            (MessageShape::Response, 10) => MessageShape::Speakers,
            (MessageShape::Response, 19) => MessageShape::Reconnect,
            (MessageShape::Join, 2 | 3) | (MessageShape::Update, 1) => MessageShape::Participant,
            (MessageShape::Join, 5) | (MessageShape::Reconnect, 1) => MessageShape::IceServer,
            (MessageShape::Description, 4)
            | (MessageShape::Speakers, 1)
            | (MessageShape::Participant, 4 | 15)
            | (MessageShape::IceServer, 1) => MessageShape::Leaf,
            _ => return None,
        })
    }
}

/// Counts the parts of a message against the cap before decoding. Two bytes can encode a
/// participant, which takes about 200 bytes in memory.
pub(super) fn count_parts(mut bytes: &[u8], shape: MessageShape, left: &mut usize) -> Result<(), WireError> {
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let length = match key & 7 {
            0 => varint(&mut bytes).map(|_| 0)?,
            1 => 8,
            2 => varint(&mut bytes)?,
            5 => 4,
            // Groups, which the protocol does not use.
            _ => return Err(WireError::Malformed),
        };
        let length = usize::try_from(length).map_err(|_| WireError::Malformed)?;
        let (value, rest) = bytes.split_at_checked(length).ok_or(WireError::Malformed)?;
        bytes = rest;
        if let (2, Some(part)) = (key & 7, shape.child(key >> 3)) {
            *left = left.checked_sub(1).ok_or(WireError::TooManyParts)?;
            if !matches!(part, MessageShape::Leaf) {
                count_parts(value, part, left)?;
            }
        }
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(WireError::Malformed)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(WireError::Malformed)
}
