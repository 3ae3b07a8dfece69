//! The signalling client of one connection to a room, from the open WebSocket to its end.
//!
//! In: the bytes of binary messages, requests of the session, and `now`. Out, by
//! [`SignalClient::poll_output`]: messages to send, and what the server reported. The client sends
//! pings, detects a silent server, keeps the [`super::roster`], and subscribes to the audio of
//! those to whom the local participant talks. The server sends its join first. Nothing follows
//! after a leave of either side. Rejects invalid bytes and a join without our identity; ignores
//! unknown messages. Source: `docs/spec/livekit.md` 3.1 and 4.

mod resume;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use log::debug;
use prost::Message as _;
use serde::Deserialize;

use self::resume::ResumableState;
use super::roster::{RoomRole, Roster, RosterChange, RosterUpdate, is_valid_id, truncated};
use super::wire::{
    self, AddTrackRequest, JoinResponse, LeaveRequest, Ping, Pong, RequestResponse, ServerMessage, SessionDescription,
    SignalRequest, SignalRequestKind, SignalTarget, TrackPublishedResponse, TrackSource, TrackType, TrickleRequest,
    UpdateParticipantMetadata, UpdateSubscription,
};
use crate::limits::REMOTE_CANDIDATES_MAX;
use crate::limits::{CANDIDATE_BYTES_MAX, ROOM_PING_TIMEOUT, ROOM_TOKEN_BYTES_MAX};
use crate::secret::Secret;
use crate::webrtc::gather::server::GatherServer;

/// Candidates of the server queued until their connection exists.
const ROOM_CANDIDATES_HELD_MAX: usize = REMOTE_CANDIDATES_MAX;
/// Characters of the text of a LiveKit server that an error repeats.
const ROOM_REASON_CHARS_MAX: usize = 200;
/// Interval of pings if the server names none: its default.
const ROOM_PING_INTERVAL: Duration = Duration::from_secs(5);
/// Ping intervals that a server may set.
const ROOM_PING_INTERVAL_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);
/// Ping timeouts that a server may set.
const ROOM_PING_TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(60);
/// Changes of the bot's attributes whose outcome is awaited.
const ROOM_UPDATES_MAX: usize = 16;

/// `LeaveRequest.reason` of a client that leaves by itself.
const CLIENT_INITIATED: i32 = 1;
/// `LeaveRequest.action` of a server that asks the client to resume or to reconnect.
const RESUME: i32 = 1;
const RECONNECT: i32 = 2;
/// `RequestResponse.reason` values that are not refusals.
const OK: i32 = 0;
const QUEUED: i32 = 4;
/// `RequestResponse.reason` of a request that the token does not allow.
const NOT_ALLOWED: i32 = 2;

/// `SubscriptionResponse.err`: the bot does not take the codec of the track.
const CODEC_UNSUPPORTED: i32 = 1;

/// Why audio of the room cannot be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAudioCause {
    /// A track or a message is encrypted end to end; such tracks are not subscribed to.
    Encrypted,
    /// A participant does not let the bot subscribe to its track.
    NotAllowed,
    /// The server does not forward the codec of a track to the bot.
    Codec,
    /// The access token lacks the permission to subscribe.
    Token,
    /// A track that is not muted was subscribed to, and no packet of any caller comes.
    NoPackets,
}

impl fmt::Display for NoAudioCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoAudioCause::Encrypted => "the room is end-to-end encrypted: no audio can be received",
            NoAudioCause::NotAllowed => {
                "the audio of a participant cannot be received: it does not allow the bot to subscribe to its audio"
            }
            NoAudioCause::Codec => {
                "the audio of a participant cannot be received: the server does not forward the codec of its audio to the bot, which takes Opus"
            }
            NoAudioCause::NoPackets => {
                "the bot is deaf: a participant publishes sound that is not muted, and not one packet of it came in 5 s; \
                 does its microphone work, and does the server get its packets?"
            }
            NoAudioCause::Token => "the access token does not allow the bot to receive audio: it needs canSubscribe",
        })
    }
}

/// An output of the signalling client.
#[derive(Clone, Debug, PartialEq)]
pub enum SignalOutput {
    /// One binary WebSocket message.
    Send(Vec<u8>),
    /// The server accepted the join. The participants follow as [`SignalOutput::Change`].
    Joined(JoinInfo),
    /// An offer of the subscriber connection. Each one must be answered.
    Offer {
        sdp: String,
        id: u32,
        mid_to_track: BTreeMap<String, String>,
    },
    /// The answer to the last offer of the publisher connection. Answers to older offers are
    /// dropped.
    Answer { sdp: String },
    /// A candidate of the server in SDP syntax without `a=`, UDP or TCP. It follows the offer or
    /// the answer that creates its connection, but may precede the server's answer.
    Candidate { target: SignalTarget, candidate: String },
    /// The server published our track under this sid.
    Published { sid: String },
    /// A participant has subscribed to our track, and its media flows from now on.
    Subscribed,
    /// The server refuses our track or has unpublished it, with the reason.
    PublishRefused(String),
    /// An administrator has muted our track, or lifted that. A muted track is not forwarded.
    Muted(bool),
    /// A track is not heard.
    NoAudio(NoAudioCause),
    /// A change in the room, which may change [`SignalClient::callers`].
    Change(RosterChange),
    /// The server has accepted a resume. The state of every participant follows.
    Resumed(ServerOffers),
    /// The server has answered a resume with a new join.
    NotResumed,
    /// The token for the next join.
    Token(Secret),
    /// The server ends the connection. Nothing follows.
    Leave { reason: i32, action: LeaveAction },
    /// The server was silent for its ping timeout. Nothing follows.
    PingTimeout,
}

/// What a server that ends a connection asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveAction {
    /// The session is over.
    Disconnect,
    /// The client should resume.
    Resume,
    /// The client should join again.
    Reconnect,
}

/// The server's answer to a join.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JoinInfo {
    pub room_name: String,
    /// Our own sid, `PA_...`.
    pub sid: String,
    pub subscriber_primary: bool,
    pub fast_publish: bool,
    pub server_version: String,
    pub offers: ServerOffers,
}

/// What the server offers for the media connections, at a join and at each resume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerOffers {
    /// TURN servers, in the order of the server.
    pub relays: Vec<GatherServer>,
    /// Whether the server wants the media to go through one of them.
    pub force_relay: bool,
}

/// The bytes are not a valid message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalError(pub String);

impl fmt::Display for SignalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SignalError {}

/// The progress of a connection.
enum SignalPhase {
    /// The server has not sent its join.
    AwaitingJoin,
    Joined(Box<Roster>),
    /// There is no socket, and the connection may be resumed.
    Suspended(Box<Roster>),
    /// The server has not answered the resume.
    Resuming(Box<Roster>),
    Closed,
}

/// The signalling client of one connection.
pub struct SignalClient {
    role: RoomRole,
    phase: SignalPhase,
    outputs: VecDeque<SignalOutput>,
    /// The time of the last message of the server.
    last_received: Instant,
    ping_timeout: Duration,
    ping_interval: Duration,
    next_ping: Instant,
    /// The pending ping: its timestamp, and when it was sent.
    pending_ping: Option<(i64, Instant)>,
    /// Milliseconds.
    rtt: i64,
    /// The id of the last offer; 0 before the first.
    offer_id: u32,
    answer_due: bool,
    /// Whether each connection has been offered. Earlier candidates are held.
    offered: [bool; 2],
    early_candidates: Vec<(SignalTarget, String)>,
    /// The client id of a track that is not published yet.
    pending_cid: Option<String>,
    own_track: Option<String>,
    /// What a resume repeats.
    resumable: ResumableState,
    is_muted: bool,
    /// The ids of changes of our attributes that are not answered yet, the oldest first.
    pending_updates: VecDeque<u32>,
    update_id: u32,
    /// Whether the token does not allow changes of our attributes.
    updates_refused: bool,
}

impl SignalClient {
    /// Creates a client for an open WebSocket.
    pub fn new(role: RoomRole, now: Instant) -> Self {
        SignalClient {
            role,
            phase: SignalPhase::AwaitingJoin,
            outputs: VecDeque::new(),
            last_received: now,
            ping_timeout: ROOM_PING_TIMEOUT,
            ping_interval: ROOM_PING_INTERVAL,
            next_ping: now + ROOM_PING_INTERVAL,
            pending_ping: None,
            rtt: 0,
            offer_id: 0,
            answer_due: false,
            offered: [false; 2],
            early_candidates: Vec::new(),
            pending_cid: None,
            own_track: None,
            resumable: ResumableState::default(),
            is_muted: false,
            pending_updates: VecDeque::new(),
            update_id: 0,
            updates_refused: false,
        }
    }

    /// Handles one binary message.
    ///
    /// # Errors
    /// [`SignalError`], whose text never repeats the message. The connection can continue.
    pub fn handle_message(&mut self, bytes: Bytes, now: Instant) -> Result<(), SignalError> {
        if let SignalPhase::Closed | SignalPhase::Suspended(_) = self.phase {
            return Ok(());
        }
        let message = wire::parse(bytes).map_err(|error| SignalError(error.to_string()))?;
        self.last_received = now;
        match (message.message, &self.phase) {
            (Some(ServerMessage::Join(join)), SignalPhase::AwaitingJoin) => self.handle_join(*join, now)?,
            (Some(ServerMessage::Join(_)), SignalPhase::Resuming(_)) => {
                self.outputs.push_back(SignalOutput::NotResumed);
            }
            (Some(ServerMessage::Reconnect(answer)), SignalPhase::Resuming(_)) => self.handle_resumed(answer, now),
            (Some(ServerMessage::Join(_)), _) => debug!("a second join is ignored"),
            (Some(ServerMessage::Leave(leave)), _) => self.handle_leave(&leave),
            (Some(ServerMessage::RefreshToken(token)), _) => self.handle_token(token),
            (Some(_), SignalPhase::AwaitingJoin | SignalPhase::Resuming(_)) => {
                debug!("a message before the join is ignored");
            }
            (Some(message), _) => self.handle_response(message, now),
            (None, _) => {}
        }
        Ok(())
    }

    /// Sends a ping or times out. `unix_ms` is the Unix time in milliseconds, which a ping carries.
    pub fn handle_timeout(&mut self, now: Instant, unix_ms: u64) {
        if let SignalPhase::Closed | SignalPhase::Suspended(_) = self.phase {
            return;
        }
        if now >= self.last_received + self.ping_timeout {
            self.outputs.push_back(SignalOutput::PingTimeout);
            self.suspend();
        } else if matches!(self.phase, SignalPhase::Joined(_)) && now >= self.next_ping {
            let timestamp = i64::try_from(unix_ms).unwrap_or(i64::MAX);
            self.pending_ping = Some((timestamp, now));
            self.next_ping = now + self.ping_interval;
            self.send(SignalRequestKind::Ping(Ping {
                timestamp,
                rtt: self.rtt,
            }));
        }
    }

    /// Returns when [`SignalClient::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent = self.last_received + self.ping_timeout;
        match self.phase {
            SignalPhase::AwaitingJoin | SignalPhase::Resuming(_) => Some(silent),
            SignalPhase::Joined(_) => Some(silent.min(self.next_ping)),
            SignalPhase::Suspended(_) | SignalPhase::Closed => None,
        }
    }

    pub fn poll_output(&mut self) -> Option<SignalOutput> {
        self.outputs.pop_front()
    }

    /// Sends an offer of the publisher connection.
    pub fn offer(&mut self, sdp: String) {
        self.offer_id = self.offer_id.wrapping_add(1).max(1);
        self.answer_due = true;
        let offer = SessionDescription {
            kind: "offer".into(),
            sdp,
            id: self.offer_id,
            ..SessionDescription::default()
        };
        self.resumable.offer = Some(offer.clone());
        self.send(SignalRequestKind::Offer(offer));
        self.release_candidates(SignalTarget::Publisher);
    }

    /// Answers an offer of the subscriber connection by its id.
    pub fn answer(&mut self, sdp: String, id: u32) {
        let answer = SessionDescription {
            kind: "answer".into(),
            sdp,
            id,
            ..SessionDescription::default()
        };
        self.resumable.answer = Some(answer.clone());
        self.send(SignalRequestKind::Answer(answer));
    }

    /// Announces the audio track. `cid` is the track id of its `a=msid`.
    pub fn add_track(&mut self, cid: &str, name: &str) {
        self.pending_cid = Some(cid.to_owned());
        self.send(SignalRequestKind::AddTrack(AddTrackRequest {
            cid: cid.to_owned(),
            name: name.to_owned(),
            kind: TrackType::Audio as i32,
            source: TrackSource::Microphone as i32,
            disable_red: true,
            ..AddTrackRequest::default()
        }));
    }

    /// Changes attributes of the local participant, unless the token does not allow it.
    pub fn update_attributes(&mut self, attributes: BTreeMap<String, String>) {
        if self.updates_refused {
            return;
        }
        self.update_id = self.update_id.wrapping_add(1).max(1);
        if self.pending_updates.len() >= ROOM_UPDATES_MAX {
            self.pending_updates.pop_front();
        }
        self.pending_updates.push_back(self.update_id);
        self.send(SignalRequestKind::UpdateMetadata(UpdateParticipantMetadata {
            attributes,
            request_id: self.update_id,
            ..UpdateParticipantMetadata::default()
        }));
    }

    /// Sends a leave. Nothing follows.
    pub fn leave(&mut self) {
        self.send(SignalRequestKind::Leave(LeaveRequest {
            reason: CLIENT_INITIATED,
            ..LeaveRequest::default()
        }));
        self.phase = SignalPhase::Closed;
    }

    /// Returns the owner of a track that is subscribed to.
    pub fn track_owner(&self, track_sid: &str) -> Option<&Arc<str>> {
        self.roster()?.track_owner(track_sid)
    }

    /// Returns the number of active participants to whom the local one talks.
    pub fn callers(&self) -> usize {
        self.roster().map_or(0, Roster::callers)
    }

    /// Tells whether one of them publishes audio that is subscribed to and not muted.
    pub fn is_any_publishing(&self) -> bool {
        self.roster().is_some_and(Roster::is_any_publishing)
    }

    /// Tells whether an agent with this attribute joined before the local participant.
    pub fn has_earlier_agent(&self, key: &str, value: &str) -> bool {
        self.roster().is_some_and(|roster| roster.has_earlier_agent(key, value))
    }

    /// Returns the number of those whose call, if it is one of a telephone, is answered.
    pub fn answered_callers(&self) -> usize {
        self.roster().map_or(0, Roster::answered_callers)
    }

    /// Returns the sid of the first track of a participant that is subscribed to.
    pub fn track_of(&self, identity: &str) -> Option<&Arc<str>> {
        self.roster().and_then(|roster| roster.track_of(identity))
    }

    /// Returns the sid of the local participant, and that of our track.
    pub fn own_sids(&self) -> (&str, Option<&str>) {
        (self.roster().map_or("", Roster::own_sid), self.own_track.as_deref())
    }

    /// Returns whether an administrator has muted our track.
    pub fn is_muted(&self) -> bool {
        self.is_muted
    }

    /// Queues a message, unless the connection is closed. While there is no connection, what the
    /// server has to know is held until the resume.
    fn send(&mut self, request: SignalRequestKind) {
        if let SignalPhase::Suspended(_) | SignalPhase::Resuming(_) = self.phase
            && !matches!(request, SignalRequestKind::Leave(_))
        {
            self.resumable.hold(request);
        } else if !matches!(self.phase, SignalPhase::Closed) {
            let message = SignalRequest { message: Some(request) };
            self.outputs.push_back(SignalOutput::Send(message.encode_to_vec()));
        }
    }

    fn handle_join(&mut self, join: JoinResponse, now: Instant) -> Result<(), SignalError> {
        if !join.alternative_url.is_empty() {
            return Err(SignalError(
                "the server redirects to another one; set MEDIAROOM_URL to the address of that server".into(),
            ));
        }
        let own = join.participant.unwrap_or_default();
        if !is_valid_id(&own.sid) || !is_valid_id(&own.identity) {
            return Err(SignalError("a join without our identity".into()));
        }
        self.ping_interval = clamp_seconds(join.ping_interval, ROOM_PING_INTERVAL, ROOM_PING_INTERVAL_RANGE);
        // A ping timeout below the ping interval would expire between two pings.
        self.ping_timeout = clamp_seconds(join.ping_timeout, ROOM_PING_TIMEOUT, ROOM_PING_TIMEOUT_RANGE)
            .max(self.ping_interval + *ROOM_PING_TIMEOUT_RANGE.start());
        self.next_ping = now + self.ping_interval;
        self.outputs.push_back(SignalOutput::Joined(JoinInfo {
            room_name: truncated(&join.room.unwrap_or_default().name).to_owned(),
            sid: own.sid.clone(),
            subscriber_primary: join.subscriber_primary,
            fast_publish: join.fast_publish,
            server_version: truncated(&join.server_version).to_owned(),
            offers: ServerOffers::new(&join.ice_servers, join.client_configuration),
        }));
        if own.permission.as_ref().is_some_and(|may| !may.can_subscribe) {
            self.outputs.push_back(SignalOutput::NoAudio(NoAudioCause::Token));
        }
        let mut roster = Roster::new(self.role, own);
        let mut update = RosterUpdate::default();
        for info in &join.other_participants {
            roster.update(info, &mut update);
        }
        self.phase = SignalPhase::Joined(Box::new(roster));
        self.push_changes(update);
        Ok(())
    }

    /// Handles a message that follows the join.
    fn handle_response(&mut self, message: ServerMessage, now: Instant) {
        let SignalPhase::Joined(roster) = &mut self.phase else {
            return;
        };
        let mut update = RosterUpdate::default();
        match message {
            ServerMessage::Update(message) => {
                for info in &message.participants {
                    roster.update(info, &mut update);
                }
                let own_track = self.own_track.as_deref().unwrap_or_default();
                let is_muted = roster.refreshed_mute(&message.participants, own_track);
                roster.finish_refresh(&message.participants, &mut update);
                self.handle_mute(is_muted.unwrap_or(self.is_muted));
            }
            ServerMessage::SpeakersChanged(changed) => roster.update_speakers(&changed.speakers, &mut update),
            ServerMessage::Offer(offer) => {
                self.outputs.push_back(SignalOutput::Offer {
                    sdp: offer.sdp,
                    id: offer.id,
                    mid_to_track: offer.mid_to_track_id,
                });
                self.release_candidates(SignalTarget::Subscriber);
            }
            ServerMessage::Answer(answer) => self.handle_answer(answer),
            ServerMessage::Trickle(trickle) => self.handle_candidate(&trickle),
            ServerMessage::TrackPublished(published) => self.handle_published(published),
            ServerMessage::TrackUnpublished(gone) => {
                if self.own_track.as_deref() == Some(&*gone.track_sid) {
                    self.own_track = None;
                    self.outputs.push_back(SignalOutput::PublishRefused(
                        "the server unpublished the bot's track".into(),
                    ));
                }
            }
            ServerMessage::TrackSubscribed(subscribed) => {
                if self.own_track.as_deref() == Some(&*subscribed.track_sid) {
                    self.outputs.push_back(SignalOutput::Subscribed);
                }
            }
            ServerMessage::Request(response) => self.handle_request_response(&response),
            ServerMessage::Pong(pong) => self.handle_pong(&pong, now),
            ServerMessage::Mute(mute) => {
                if self.own_track.as_deref() == Some(&*mute.sid) {
                    self.handle_mute(mute.muted);
                }
            }
            ServerMessage::SubscriptionPermission(update) => {
                if !update.allowed && roster.track_owner(&update.track_sid).is_some() {
                    self.outputs.push_back(SignalOutput::NoAudio(NoAudioCause::NotAllowed));
                }
            }
            ServerMessage::Subscription(response) => {
                if response.err == CODEC_UNSUPPORTED && roster.track_owner(&response.track_sid).is_some() {
                    self.outputs.push_back(SignalOutput::NoAudio(NoAudioCause::Codec));
                }
            }
            // Room metadata and replies to a resume have no effect here.
            ServerMessage::RoomUpdate(_) | ServerMessage::Reconnect(_) => {}
            ServerMessage::Join(_) | ServerMessage::Leave(_) | ServerMessage::RefreshToken(_) => {}
        }
        self.push_changes(update);
    }

    /// Reports the changes of one message and subscribes to its new tracks in one request.
    fn push_changes(&mut self, update: RosterUpdate) {
        self.outputs
            .extend(update.changes.into_iter().map(SignalOutput::Change));
        if update.has_encrypted {
            self.outputs.push_back(SignalOutput::NoAudio(NoAudioCause::Encrypted));
        }
        let mut track_sids = update.new_tracks;
        // A participant may join and leave in the same message.
        track_sids.retain(|sid| self.track_owner(sid).is_some());
        if !track_sids.is_empty() {
            self.send(SignalRequestKind::Subscription(UpdateSubscription {
                track_sids,
                subscribe: true,
            }));
        }
    }

    fn handle_mute(&mut self, is_muted: bool) {
        if std::mem::replace(&mut self.is_muted, is_muted) != is_muted {
            self.outputs.push_back(SignalOutput::Muted(is_muted));
        }
    }

    fn handle_answer(&mut self, answer: SessionDescription) {
        // Older servers send 0.
        if self.answer_due && (answer.id == self.offer_id || answer.id == 0) {
            self.answer_due = false;
            self.outputs.push_back(SignalOutput::Answer { sdp: answer.sdp });
        } else {
            debug!(
                "an answer to offer {} is ignored, the last is {}",
                answer.id, self.offer_id
            );
        }
    }

    fn handle_candidate(&mut self, trickle: &TrickleRequest) {
        #[derive(Deserialize)]
        struct CandidateInit {
            candidate: String,
        }
        let Ok(target) = SignalTarget::try_from(trickle.target) else {
            debug!("a candidate of an unknown connection is ignored");
            return;
        };
        let Ok(CandidateInit { candidate }) = serde_json::from_str(&trickle.candidate_init) else {
            // The final one may be empty.
            if !trickle.last {
                debug!("a candidate that is not JSON is ignored");
            }
            return;
        };
        let candidate = candidate.trim();
        let candidate = candidate.strip_prefix("a=").unwrap_or(candidate);
        if candidate.is_empty() {
            return;
        }
        if candidate.len() > CANDIDATE_BYTES_MAX || candidate.contains(char::is_control) {
            debug!("a malformed candidate is ignored");
        } else if self.offered[target as usize] {
            let candidate = candidate.to_owned();
            self.outputs.push_back(SignalOutput::Candidate { target, candidate });
        } else if self.early_candidates.len() < ROOM_CANDIDATES_HELD_MAX {
            self.early_candidates.push((target, candidate.to_owned()));
        } else {
            debug!("a candidate is ignored: {ROOM_CANDIDATES_HELD_MAX} are held already");
        }
    }

    /// Reports the candidates that arrived before their connection.
    fn release_candidates(&mut self, connection: SignalTarget) {
        self.offered[connection as usize] = true;
        let released = self
            .early_candidates
            .extract_if(.., |(target, _)| *target == connection);
        self.outputs
            .extend(released.map(|(target, candidate)| SignalOutput::Candidate { target, candidate }));
    }

    fn handle_published(&mut self, published: TrackPublishedResponse) {
        let sid = published.track.unwrap_or_default().sid;
        if self.pending_cid.as_deref() != Some(&*published.cid) || !is_valid_id(&sid) {
            debug!("a publication of another track is ignored");
            return;
        }
        self.resumable.cid = self.pending_cid.take().unwrap_or_default();
        self.own_track = Some(sid.clone());
        self.outputs.push_back(SignalOutput::Published { sid });
    }

    /// Handles the outcome of `update_metadata`, which is answered in any case, or of `add_track`.
    fn handle_request_response(&mut self, response: &RequestResponse) {
        let update = self.pending_updates.iter().position(|id| *id == response.request_id);
        if update.is_some() || response.update_metadata.is_some() {
            update.and_then(|at| self.pending_updates.remove(at));
            return self.handle_update_response(response);
        }
        let other = response
            .add_track
            .as_ref()
            .is_some_and(|request| Some(&request.cid) != self.pending_cid.as_ref());
        if matches!(response.reason, OK | QUEUED) || self.pending_cid.is_none() || other {
            return;
        }
        self.pending_cid = None;
        let why = match response.reason {
            1 => "the server does not find the track",
            NOT_ALLOWED => "the access token does not allow publishing audio",
            3 => "a limit of the server is reached",
            _ => "the server refuses",
        };
        self.outputs
            .push_back(SignalOutput::PublishRefused(refusal(why, &response.message)));
    }

    fn handle_update_response(&mut self, response: &RequestResponse) {
        match response.reason {
            OK | QUEUED => {}
            NOT_ALLOWED if !std::mem::replace(&mut self.updates_refused, true) => {
                log::warn!("the access token does not allow the bot to show its state: it needs canUpdateOwnMetadata")
            }
            _ => debug!(
                "{}",
                refusal("the server does not take the state of the bot", &response.message)
            ),
        }
    }

    /// Returns the last round trip to the server.
    pub fn round_trip(&self) -> Option<Duration> {
        let ms = u64::try_from(self.rtt).ok().filter(|ms| *ms > 0)?;
        Some(Duration::from_millis(ms))
    }

    fn handle_pong(&mut self, pong: &Pong, now: Instant) {
        if let Some((timestamp, left)) = self.pending_ping
            && timestamp == pong.last_ping_timestamp
        {
            // Measured by the monotonic clock.
            self.rtt = i64::try_from((now - left).as_millis()).unwrap_or(i64::MAX);
            self.pending_ping = None;
        }
    }

    fn handle_token(&mut self, token: String) {
        let usable = (1..=ROOM_TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
        if usable {
            self.outputs.push_back(SignalOutput::Token(Secret::new(token)));
        } else {
            debug!("an invalid refreshed token is ignored");
        }
    }

    fn handle_leave(&mut self, leave: &LeaveRequest) {
        // Servers before protocol 13 send no action, only whether the client may return.
        let action = match leave.action {
            RESUME => LeaveAction::Resume,
            RECONNECT => LeaveAction::Reconnect,
            _ if leave.can_reconnect => LeaveAction::Reconnect,
            _ => LeaveAction::Disconnect,
        };
        let reason = leave.reason;
        self.outputs.push_back(SignalOutput::Leave { reason, action });
        match action {
            LeaveAction::Resume => self.suspend(),
            _ => self.phase = SignalPhase::Closed,
        }
    }
}

/// Returns a refusal with what the server said.
fn refusal(why: &str, message: &str) -> String {
    let said: String = message.chars().take(ROOM_REASON_CHARS_MAX).collect();
    match said.is_empty() {
        true => why.to_owned(),
        false => format!("{why}: {said}"),
    }
}

/// Clamps a number of seconds of the server. Zero and negative numbers select the default.
fn clamp_seconds(asked: i32, default: Duration, range: RangeInclusive<Duration>) -> Duration {
    match u64::try_from(asked) {
        Ok(asked @ 1..) => Duration::from_secs(asked).clamp(*range.start(), *range.end()),
        _ => default,
    }
}

#[cfg(test)]
mod tests;
