//! The signalling connection of one stay in a room, from the open WebSocket to its end.
//!
//! In: the bytes of binary messages, requests of the session, and `now`. Out, by [`SignalClient::poll_output`]: messages to send, and
//! what the server said. It pings, notices a silent server, keeps the [`super::roster`], and subscribes to the audio of
//! everybody who is no agent. The server speaks first, with its join; once it or the session said goodbye, nothing follows.
//! Refuses: bytes that are no message, and a join that does not say who we are. What a server of another version says is ignored.
//! Source: the rooms fact sheet, B3 and B4.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use log::debug;
use prost::Message as _;
use serde::Deserialize;

use super::roster::{Roster, RosterChange, RosterUpdate, is_valid_id, truncated};
use super::wire::{
    self, AddTrackRequest, ClientMessage, JoinResponse, LeaveRequest, Ping, Pong, RequestResponse, ServerMessage,
    SessionDescription, SignalRequest, SignalTarget, TrackPublishedResponse, TrackSource, TrackType, TrickleRequest,
    UpdateSubscription,
};
use crate::limits::{
    CANDIDATE_BYTES_MAX, ROOM_CANDIDATES_HELD_MAX, ROOM_PING_INTERVAL, ROOM_PING_INTERVAL_RANGE, ROOM_PING_TIMEOUT,
    ROOM_PING_TIMEOUT_RANGE, ROOM_REASON_CHARS_MAX, ROOM_TOKEN_BYTES_MAX,
};
use crate::secret::Secret;

/// `LeaveRequest.reason` of a client that leaves by itself.
const CLIENT_INITIATED: i32 = 1;
/// `LeaveRequest.action` of a server that wants the same stay, or a new one.
const RESUME: i32 = 1;
const RECONNECT: i32 = 2;
/// `RequestResponse.reason` of what is no refusal.
const OK: i32 = 0;
const QUEUED: i32 = 4;

/// What the signalling connection answers to an input.
#[derive(Clone, Debug, PartialEq)]
pub enum SignalOutput {
    /// One binary WebSocket message.
    Send(Vec<u8>),
    /// We are in the room. Who else is follows as [`SignalOutput::Change`].
    Joined(JoinInfo),
    /// The subscriber connection is to be answered, every time.
    Offer {
        sdp: String,
        id: u32,
        mid_to_track: BTreeMap<String, String>,
    },
    /// To the last offer of the publisher connection; older ones are dropped.
    Answer { sdp: String },
    /// A candidate of the server, as it stands in SDP without `a=`, UDP or not. It comes after the offer or the answer to which
    /// the session makes its connection, not always after the server's answer.
    Candidate { target: SignalTarget, candidate: String },
    /// Our track is known to the server under this sid.
    Published { sid: String },
    /// The server does not let us publish, or no longer does: why.
    PublishRefused(String),
    /// Something is different in the room, perhaps [`SignalClient::callers`] as well.
    Change(RosterChange),
    /// A token for the next join.
    Token(Secret),
    /// The server ends the stay. Nothing follows.
    Leave { reason: i32, action: LeaveAction },
    /// Nothing was heard of the server for its ping timeout. Nothing follows.
    PingTimeout,
}

/// What a server that ends a stay wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveAction {
    /// It is over.
    Disconnect,
    /// Come back, resumed or anew.
    Reconnect,
}

/// What the server said when it let us in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JoinInfo {
    pub room_name: String,
    /// Our own `PA_...`.
    pub sid: String,
    pub subscriber_primary: bool,
    pub fast_publish: bool,
    pub server_version: String,
}

/// The bytes are no message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalError(pub String);

impl fmt::Display for SignalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SignalError {}

/// How far a stay has come.
enum SignalPhase {
    /// The server has not said who we are.
    AwaitingJoin,
    Joined(Box<Roster>),
    Closed,
}

/// The signalling connection of one stay.
pub struct SignalClient {
    phase: SignalPhase,
    outputs: VecDeque<SignalOutput>,
    /// When the server was heard last.
    last_received: Instant,
    ping_timeout: Duration,
    ping_interval: Duration,
    next_ping: Instant,
    /// The last ping: its time stamp, and when it left.
    pending_ping: Option<(i64, Instant)>,
    /// Milliseconds.
    rtt: i64,
    /// Of the last offer; 0 is none.
    offer_id: u32,
    answer_due: bool,
    /// Whether a connection was offered, by us and by the server: candidates before it are held.
    offered: [bool; 2],
    early_candidates: Vec<(SignalTarget, String)>,
    /// The track that was announced.
    pending_cid: Option<String>,
    own_track: Option<String>,
}

impl SignalClient {
    /// Begins when the WebSocket is open.
    pub fn new(now: Instant) -> Self {
        SignalClient {
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
        }
    }

    /// Takes one binary message.
    ///
    /// # Errors
    /// [`SignalError`], whose words never repeat the message; the stay can go on.
    pub fn handle_message(&mut self, bytes: Bytes, now: Instant) -> Result<(), SignalError> {
        if let SignalPhase::Closed = self.phase {
            return Ok(());
        }
        let message = wire::parse(bytes).map_err(|error| SignalError(error.to_string()))?;
        self.last_received = now;
        match (message.message, &self.phase) {
            (Some(ServerMessage::Join(join)), SignalPhase::AwaitingJoin) => self.handle_join(*join, now)?,
            (Some(ServerMessage::Join(_)), _) => debug!("a second join is ignored"),
            (Some(ServerMessage::Leave(leave)), _) => self.handle_leave(&leave),
            (Some(ServerMessage::RefreshToken(token)), _) => self.handle_token(token),
            (Some(_), SignalPhase::AwaitingJoin) => debug!("a message before the join is ignored"),
            (Some(message), _) => self.handle_response(message, now),
            (None, _) => {}
        }
        Ok(())
    }

    /// Pings, or gives the server up. `unix_ms` is the time since 1970, in milliseconds, which a ping carries.
    pub fn handle_timeout(&mut self, now: Instant, unix_ms: u64) {
        if let SignalPhase::Closed = self.phase {
            return;
        }
        if now >= self.last_received + self.ping_timeout {
            self.outputs.push_back(SignalOutput::PingTimeout);
            self.phase = SignalPhase::Closed;
        } else if matches!(self.phase, SignalPhase::Joined(_)) && now >= self.next_ping {
            let timestamp = i64::try_from(unix_ms).unwrap_or(i64::MAX);
            self.pending_ping = Some((timestamp, now));
            self.next_ping = now + self.ping_interval;
            self.send(ClientMessage::Ping(Ping {
                timestamp,
                rtt: self.rtt,
            }));
        }
    }

    /// Returns when [`SignalClient::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent = self.last_received + self.ping_timeout;
        match self.phase {
            SignalPhase::AwaitingJoin => Some(silent),
            SignalPhase::Joined(_) => Some(silent.min(self.next_ping)),
            SignalPhase::Closed => None,
        }
    }

    pub fn poll_output(&mut self) -> Option<SignalOutput> {
        self.outputs.pop_front()
    }

    /// Offers the publisher connection, in the order of calls.
    pub fn offer(&mut self, sdp: String) {
        self.offer_id = self.offer_id.wrapping_add(1).max(1);
        self.answer_due = true;
        self.send(ClientMessage::Offer(SessionDescription {
            kind: "offer".into(),
            sdp,
            id: self.offer_id,
            ..SessionDescription::default()
        }));
        self.release_candidates(SignalTarget::Publisher);
    }

    /// Answers the subscriber connection's offer of this id.
    pub fn answer(&mut self, sdp: String, id: u32) {
        self.send(ClientMessage::Answer(SessionDescription {
            kind: "answer".into(),
            sdp,
            id,
            ..SessionDescription::default()
        }));
    }

    /// Announces the one audio track; `cid` is the track id of its `a=msid`.
    pub fn add_track(&mut self, cid: &str, name: &str) {
        self.pending_cid = Some(cid.to_owned());
        self.send(ClientMessage::AddTrack(AddTrackRequest {
            cid: cid.to_owned(),
            name: name.to_owned(),
            kind: TrackType::Audio as i32,
            source: TrackSource::Microphone as i32,
            disable_red: true,
            ..AddTrackRequest::default()
        }));
    }

    /// Says goodbye. Nothing follows.
    pub fn leave(&mut self) {
        self.send(ClientMessage::Leave(LeaveRequest {
            reason: CLIENT_INITIATED,
            ..LeaveRequest::default()
        }));
        self.phase = SignalPhase::Closed;
    }

    /// Returns whose track a sid is, if it is known and to be heard.
    pub fn track_owner(&self, track_sid: &str) -> Option<&Arc<str>> {
        match &self.phase {
            SignalPhase::Joined(roster) => roster.track_owner(track_sid),
            _ => None,
        }
    }

    /// Returns how many participants are within reach that are no agents.
    pub fn callers(&self) -> usize {
        match &self.phase {
            SignalPhase::Joined(roster) => roster.callers(),
            _ => 0,
        }
    }

    /// Queues a message, unless goodbye was said.
    fn send(&mut self, request: ClientMessage) {
        if !matches!(self.phase, SignalPhase::Closed) {
            let message = SignalRequest { message: Some(request) };
            self.outputs.push_back(SignalOutput::Send(message.encode_to_vec()));
        }
    }

    fn handle_join(&mut self, join: JoinResponse, now: Instant) -> Result<(), SignalError> {
        if !join.alternative_url.is_empty() {
            return Err(SignalError(
                "the server sends us to another server, whose address has to be in MEDIAROOM_URL itself".into(),
            ));
        }
        let own = join.participant.unwrap_or_default();
        if !is_valid_id(&own.sid) || !is_valid_id(&own.identity) {
            return Err(SignalError("a join that does not say who we are".into()));
        }
        self.ping_interval = clamp_seconds(join.ping_interval, ROOM_PING_INTERVAL, ROOM_PING_INTERVAL_RANGE);
        // A server that wants to hear less often than it wants to be heard would be lost between two pings.
        self.ping_timeout = clamp_seconds(join.ping_timeout, ROOM_PING_TIMEOUT, ROOM_PING_TIMEOUT_RANGE)
            .max(self.ping_interval + *ROOM_PING_TIMEOUT_RANGE.start());
        self.next_ping = now + self.ping_interval;
        self.outputs.push_back(SignalOutput::Joined(JoinInfo {
            room_name: truncated(&join.room.unwrap_or_default().name).to_owned(),
            sid: own.sid.clone(),
            subscriber_primary: join.subscriber_primary,
            fast_publish: join.fast_publish,
            server_version: truncated(&join.server_version).to_owned(),
        }));
        let mut roster = Roster::new(own.sid, own.identity);
        let mut update = RosterUpdate::default();
        for info in &join.other_participants {
            roster.update(info, &mut update);
        }
        self.phase = SignalPhase::Joined(Box::new(roster));
        self.push_changes(update);
        Ok(())
    }

    /// A message of a server that let us in.
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
                        "the server took the bot's track out of the room".into(),
                    ));
                }
            }
            ServerMessage::Request(response) => self.handle_request_response(&response),
            ServerMessage::Pong(pong) => self.handle_pong(&pong, now),
            // What the room is called, who is muted by an administrator, and what only a resumed stay hears of.
            ServerMessage::Mute(_) | ServerMessage::RoomUpdate(_) | ServerMessage::Reconnect(_) => {}
            ServerMessage::Join(_) | ServerMessage::Leave(_) | ServerMessage::RefreshToken(_) => {}
        }
        self.push_changes(update);
    }

    /// Says what changed, and subscribes to the tracks of one message in one.
    fn push_changes(&mut self, update: RosterUpdate) {
        self.outputs
            .extend(update.changes.into_iter().map(SignalOutput::Change));
        let mut track_sids = update.new_tracks;
        // Whoever came and went in one message is gone.
        track_sids.retain(|sid| self.track_owner(sid).is_some());
        if !track_sids.is_empty() {
            self.send(ClientMessage::Subscription(UpdateSubscription {
                track_sids,
                subscribe: true,
            }));
        }
    }

    fn handle_answer(&mut self, answer: SessionDescription) {
        // Servers before the ids were numbered say 0.
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
            // The last one may come without any.
            if !trickle.last {
                debug!("a candidate that is no JSON is ignored");
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
            debug!("a candidate is ignored: {ROOM_CANDIDATES_HELD_MAX} wait for their connection");
        }
    }

    /// Hands on the candidates that came before their connection.
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
            debug!("the publication of a track that is not ours is ignored");
            return;
        }
        self.pending_cid = None;
        self.own_track = Some(sid.clone());
        self.outputs.push_back(SignalOutput::Published { sid });
    }

    /// The only request of ours that is answered so is that for our track.
    fn handle_request_response(&mut self, response: &RequestResponse) {
        let other = response
            .add_track
            .as_ref()
            .is_some_and(|request| Some(&request.cid) != self.pending_cid.as_ref());
        if matches!(response.reason, OK | QUEUED) || self.pending_cid.is_none() || other {
            return;
        }
        self.pending_cid = None;
        let why = match response.reason {
            1 => "the server does not find what it is asked for",
            2 => "the access token does not allow to publish audio",
            3 => "a limit of the server is reached",
            _ => "the server refuses",
        };
        let said: String = response.message.chars().take(ROOM_REASON_CHARS_MAX).collect();
        let words = match said.is_empty() {
            true => why.to_owned(),
            false => format!("{why}: {said}"),
        };
        self.outputs.push_back(SignalOutput::PublishRefused(words));
    }

    fn handle_pong(&mut self, pong: &Pong, now: Instant) {
        if let Some((timestamp, left)) = self.pending_ping
            && timestamp == pong.last_ping_timestamp
        {
            // By the clock that does not jump.
            self.rtt = i64::try_from((now - left).as_millis()).unwrap_or(i64::MAX);
            self.pending_ping = None;
        }
    }

    fn handle_token(&mut self, token: String) {
        let usable = (1..=ROOM_TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
        if usable {
            self.outputs.push_back(SignalOutput::Token(Secret::new(token)));
        } else {
            debug!("a renewed token that cannot be one is ignored");
        }
    }

    fn handle_leave(&mut self, leave: &LeaveRequest) {
        // Servers before version 13 know no action, only whether one may come back.
        let may_return = leave.can_reconnect || matches!(leave.action, RESUME | RECONNECT);
        self.outputs.push_back(SignalOutput::Leave {
            reason: leave.reason,
            action: if may_return {
                LeaveAction::Reconnect
            } else {
                LeaveAction::Disconnect
            },
        });
        self.phase = SignalPhase::Closed;
    }
}

/// A server's number of seconds, as far as it makes sense; none, or a negative one, is the default.
fn clamp_seconds(asked: i32, default: Duration, range: RangeInclusive<Duration>) -> Duration {
    match u64::try_from(asked) {
        Ok(asked @ 1..) => Duration::from_secs(asked).clamp(*range.start(), *range.end()),
        _ => default,
    }
}

#[cfg(test)]
mod tests;
