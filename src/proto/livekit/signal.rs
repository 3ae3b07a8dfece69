//! The signalling connection of one stay in a room, from the open WebSocket to its end.
//!
//! In: the bytes of binary messages, requests of the session, and `now`. Out, by [`Signal::poll_output`]: messages to send, and
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

use super::roster::{Change, Changes, Roster, nameable, shortened};
use super::wire::{
    self, AddTrackRequest, JoinResponse, LeaveRequest, Ping, Pong, Request, RequestResponse, Response,
    SessionDescription, SignalRequest, Target, TrackPublishedResponse, TrackSource, TrackType, TrickleRequest,
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
pub enum Output {
    /// One binary WebSocket message.
    Send(Vec<u8>),
    /// We are in the room. Who else is follows as [`Output::Change`].
    Joined(Joined),
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
    Candidate { target: Target, candidate: String },
    /// Our track is known to the server under this sid.
    Published { sid: String },
    /// The server does not let us publish, or no longer does: why.
    PublishRefused(String),
    /// Something is different in the room, perhaps [`Signal::callers`] as well.
    Change(Change),
    /// A token for the next join.
    Token(Secret),
    /// The server ends the stay. Nothing follows.
    Leave { reason: i32, then: Then },
    /// Nothing was heard of the server for its ping timeout. Nothing follows.
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

impl fmt::Display for BadMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadMessage {}

/// How far a stay has come.
enum Phase {
    /// The server has not said who we are.
    Opening,
    In(Box<Roster>),
    Over,
}

/// The signalling connection of one stay.
pub struct Signal {
    phase: Phase,
    outputs: VecDeque<Output>,
    /// When the server was heard last.
    heard: Instant,
    ping_timeout: Duration,
    ping_interval: Duration,
    next_ping: Instant,
    /// The last ping: its time stamp, and when it left.
    pinged: Option<(i64, Instant)>,
    /// Milliseconds.
    rtt: i64,
    /// Of the last offer; 0 is none.
    offer_id: u32,
    answer_due: bool,
    /// Whether a connection was offered, by us and by the server: candidates before it are held.
    offered: [bool; 2],
    held: Vec<(Target, String)>,
    /// The track that was announced.
    cid: Option<String>,
    own_track: Option<String>,
}

impl Signal {
    /// Begins when the WebSocket is open.
    pub fn new(now: Instant) -> Self {
        Signal {
            phase: Phase::Opening,
            outputs: VecDeque::new(),
            heard: now,
            ping_timeout: ROOM_PING_TIMEOUT,
            ping_interval: ROOM_PING_INTERVAL,
            next_ping: now + ROOM_PING_INTERVAL,
            pinged: None,
            rtt: 0,
            offer_id: 0,
            answer_due: false,
            offered: [false; 2],
            held: Vec::new(),
            cid: None,
            own_track: None,
        }
    }

    /// Takes one binary message.
    ///
    /// # Errors
    /// [`BadMessage`], whose words never repeat the message; the stay can go on.
    pub fn handle_message(&mut self, bytes: Bytes, now: Instant) -> Result<(), BadMessage> {
        if let Phase::Over = self.phase {
            return Ok(());
        }
        let message = wire::read(bytes).map_err(|error| BadMessage(error.to_string()))?;
        self.heard = now;
        match (message.message, &self.phase) {
            (Some(Response::Join(join)), Phase::Opening) => self.handle_join(*join, now)?,
            (Some(Response::Join(_)), _) => debug!("a second join is ignored"),
            (Some(Response::Leave(leave)), _) => self.handle_leave(&leave),
            (Some(Response::RefreshToken(token)), _) => self.handle_token(token),
            (Some(_), Phase::Opening) => debug!("a message before the join is ignored"),
            (Some(message), _) => self.handle_news(message, now),
            (None, _) => {}
        }
        Ok(())
    }

    /// Pings, or gives the server up. `unix_ms` is the time since 1970, in milliseconds, which a ping carries.
    pub fn handle_timeout(&mut self, now: Instant, unix_ms: u64) {
        if let Phase::Over = self.phase {
            return;
        }
        if now >= self.heard + self.ping_timeout {
            self.outputs.push_back(Output::Silent);
            self.phase = Phase::Over;
        } else if matches!(self.phase, Phase::In(_)) && now >= self.next_ping {
            let timestamp = i64::try_from(unix_ms).unwrap_or(i64::MAX);
            self.pinged = Some((timestamp, now));
            self.next_ping = now + self.ping_interval;
            self.send(Request::Ping(Ping {
                timestamp,
                rtt: self.rtt,
            }));
        }
    }

    /// Returns when [`Signal::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent = self.heard + self.ping_timeout;
        match self.phase {
            Phase::Opening => Some(silent),
            Phase::In(_) => Some(silent.min(self.next_ping)),
            Phase::Over => None,
        }
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Offers the publisher connection, in the order of calls.
    pub fn offer(&mut self, sdp: String) {
        self.offer_id = self.offer_id.wrapping_add(1).max(1);
        self.answer_due = true;
        self.send(Request::Offer(SessionDescription {
            kind: "offer".into(),
            sdp,
            id: self.offer_id,
            ..SessionDescription::default()
        }));
        self.release(Target::Publisher);
    }

    /// Answers the subscriber connection's offer of this id.
    pub fn answer(&mut self, sdp: String, id: u32) {
        self.send(Request::Answer(SessionDescription {
            kind: "answer".into(),
            sdp,
            id,
            ..SessionDescription::default()
        }));
    }

    /// Announces the one audio track; `cid` is the track id of its `a=msid`.
    pub fn add_track(&mut self, cid: &str, name: &str) {
        self.cid = Some(cid.to_owned());
        self.send(Request::AddTrack(AddTrackRequest {
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
        self.send(Request::Leave(LeaveRequest {
            reason: CLIENT_INITIATED,
            ..LeaveRequest::default()
        }));
        self.phase = Phase::Over;
    }

    /// Returns whose track a sid is, if it is known and to be heard.
    pub fn owner(&self, track_sid: &str) -> Option<&Arc<str>> {
        match &self.phase {
            Phase::In(roster) => roster.owner(track_sid),
            _ => None,
        }
    }

    /// Returns how many participants are within reach that are no agents.
    pub fn callers(&self) -> usize {
        match &self.phase {
            Phase::In(roster) => roster.callers(),
            _ => 0,
        }
    }

    /// Queues a message, unless goodbye was said.
    fn send(&mut self, request: Request) {
        if !matches!(self.phase, Phase::Over) {
            let message = SignalRequest { message: Some(request) };
            self.outputs.push_back(Output::Send(message.encode_to_vec()));
        }
    }

    fn handle_join(&mut self, join: JoinResponse, now: Instant) -> Result<(), BadMessage> {
        if !join.alternative_url.is_empty() {
            return Err(BadMessage(
                "the server sends us to another server, whose address has to be in MEDIAROOM_URL itself".into(),
            ));
        }
        let own = join.participant.unwrap_or_default();
        if !nameable(&own.sid) || !nameable(&own.identity) {
            return Err(BadMessage("a join that does not say who we are".into()));
        }
        self.ping_interval = seconds(join.ping_interval, ROOM_PING_INTERVAL, ROOM_PING_INTERVAL_RANGE);
        // A server that wants to hear less often than it wants to be heard would be lost between two pings.
        self.ping_timeout = seconds(join.ping_timeout, ROOM_PING_TIMEOUT, ROOM_PING_TIMEOUT_RANGE)
            .max(self.ping_interval + *ROOM_PING_TIMEOUT_RANGE.start());
        self.next_ping = now + self.ping_interval;
        self.outputs.push_back(Output::Joined(Joined {
            room_name: shortened(&join.room.unwrap_or_default().name).to_owned(),
            sid: own.sid.clone(),
            subscriber_primary: join.subscriber_primary,
            fast_publish: join.fast_publish,
            server_version: shortened(&join.server_version).to_owned(),
        }));
        let mut roster = Roster::new(own.sid, own.identity);
        let mut changes = Changes::default();
        for info in &join.other_participants {
            roster.update(info, &mut changes);
        }
        self.phase = Phase::In(Box::new(roster));
        self.tell(changes);
        Ok(())
    }

    /// A message of a server that let us in.
    fn handle_news(&mut self, message: Response, now: Instant) {
        let Phase::In(roster) = &mut self.phase else {
            return;
        };
        let mut changes = Changes::default();
        match message {
            Response::Update(update) => {
                for info in &update.participants {
                    roster.update(info, &mut changes);
                }
            }
            Response::SpeakersChanged(changed) => roster.speakers(&changed.speakers, &mut changes),
            Response::Offer(offer) => {
                self.outputs.push_back(Output::Offer {
                    sdp: offer.sdp,
                    id: offer.id,
                    mid_to_track: offer.mid_to_track_id,
                });
                self.release(Target::Subscriber);
            }
            Response::Answer(answer) => self.handle_answer(answer),
            Response::Trickle(trickle) => self.handle_candidate(&trickle),
            Response::TrackPublished(published) => self.handle_published(published),
            Response::TrackUnpublished(gone) => {
                if self.own_track.as_deref() == Some(&*gone.track_sid) {
                    self.own_track = None;
                    self.outputs.push_back(Output::PublishRefused(
                        "the server took the bot's track out of the room".into(),
                    ));
                }
            }
            Response::Request(response) => self.handle_response(&response),
            Response::Pong(pong) => self.handle_pong(&pong, now),
            // What the room is called, who is muted by an administrator, and what only a resumed stay hears of.
            Response::Mute(_) | Response::RoomUpdate(_) | Response::Reconnect(_) => {}
            Response::Join(_) | Response::Leave(_) | Response::RefreshToken(_) => {}
        }
        self.tell(changes);
    }

    /// Says what changed, and subscribes to the tracks of one message in one.
    fn tell(&mut self, changes: Changes) {
        self.outputs.extend(changes.told.into_iter().map(Output::Change));
        let mut track_sids = changes.tracks;
        // Whoever came and went in one message is gone.
        track_sids.retain(|sid| self.owner(sid).is_some());
        if !track_sids.is_empty() {
            self.send(Request::Subscription(UpdateSubscription {
                track_sids,
                subscribe: true,
            }));
        }
    }

    fn handle_answer(&mut self, answer: SessionDescription) {
        // Servers before the ids were numbered say 0.
        if self.answer_due && (answer.id == self.offer_id || answer.id == 0) {
            self.answer_due = false;
            self.outputs.push_back(Output::Answer { sdp: answer.sdp });
        } else {
            debug!(
                "an answer to offer {} is ignored, the last is {}",
                answer.id, self.offer_id
            );
        }
    }

    fn handle_candidate(&mut self, trickle: &TrickleRequest) {
        #[derive(Deserialize)]
        struct Init {
            candidate: String,
        }
        let Ok(target) = Target::try_from(trickle.target) else {
            debug!("a candidate of an unknown connection is ignored");
            return;
        };
        let Ok(Init { candidate }) = serde_json::from_str(&trickle.candidate_init) else {
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
            self.outputs.push_back(Output::Candidate { target, candidate });
        } else if self.held.len() < ROOM_CANDIDATES_HELD_MAX {
            self.held.push((target, candidate.to_owned()));
        } else {
            debug!("a candidate is ignored: {ROOM_CANDIDATES_HELD_MAX} wait for their connection");
        }
    }

    /// Hands on the candidates that came before their connection.
    fn release(&mut self, connection: Target) {
        self.offered[connection as usize] = true;
        let released = self.held.extract_if(.., |(target, _)| *target == connection);
        self.outputs
            .extend(released.map(|(target, candidate)| Output::Candidate { target, candidate }));
    }

    fn handle_published(&mut self, published: TrackPublishedResponse) {
        let sid = published.track.unwrap_or_default().sid;
        if self.cid.as_deref() != Some(&*published.cid) || !nameable(&sid) {
            debug!("the publication of a track that is not ours is ignored");
            return;
        }
        self.cid = None;
        self.own_track = Some(sid.clone());
        self.outputs.push_back(Output::Published { sid });
    }

    /// The only request of ours that is answered so is that for our track.
    fn handle_response(&mut self, response: &RequestResponse) {
        let other = response
            .add_track
            .as_ref()
            .is_some_and(|request| Some(&request.cid) != self.cid.as_ref());
        if matches!(response.reason, OK | QUEUED) || self.cid.is_none() || other {
            return;
        }
        self.cid = None;
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
        self.outputs.push_back(Output::PublishRefused(words));
    }

    fn handle_pong(&mut self, pong: &Pong, now: Instant) {
        if let Some((timestamp, left)) = self.pinged
            && timestamp == pong.last_ping_timestamp
        {
            // By the clock that does not jump.
            self.rtt = i64::try_from((now - left).as_millis()).unwrap_or(i64::MAX);
            self.pinged = None;
        }
    }

    fn handle_token(&mut self, token: String) {
        let usable = (1..=ROOM_TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
        if usable {
            self.outputs.push_back(Output::Token(Secret::new(token)));
        } else {
            debug!("a renewed token that cannot be one is ignored");
        }
    }

    fn handle_leave(&mut self, leave: &LeaveRequest) {
        // Servers before version 13 know no action, only whether one may come back.
        let back = leave.can_reconnect || matches!(leave.action, RESUME | RECONNECT);
        self.outputs.push_back(Output::Leave {
            reason: leave.reason,
            then: if back { Then::Reconnect } else { Then::Nothing },
        });
        self.phase = Phase::Over;
    }
}

/// A server's number of seconds, as far as it makes sense; none, or a negative one, is the default.
fn seconds(asked: i32, default: Duration, range: RangeInclusive<Duration>) -> Duration {
    match u64::try_from(asked) {
        Ok(asked @ 1..) => Duration::from_secs(asked).clamp(*range.start(), *range.end()),
        _ => default,
    }
}

#[cfg(test)]
mod tests;
