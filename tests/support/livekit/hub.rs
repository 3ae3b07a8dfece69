//! The hub of the test server: one task that owns all rooms and participants.
//!
//! In: requests, signalling messages, datagrams, orders of a test. Out: signalling messages,
//! descriptions, forwarded audio and data. Messages have the order of the real server: `join`,
//! `refresh_token`, the first subscriber offer with existing tracks, candidates after each first
//! description; `track_published` on `add_track`, but an update for the others only with the first
//! packet of the track; updates for all at every change of state.

mod join;
mod media;
mod participant;
mod requests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use edge_runner_proto::livekit::wire::{ParticipantUpdate, ServerMessage, SignalRequest, SignalTarget};
use prost::Message as _;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use super::http::{Join, JoinDecision, JoinRequest, Outgoing};
use super::speakers::WINDOW;
use super::token::Claims;
use super::{Options, Order, ParticipantStats, Stats};
use participant::Participant;

/// How long the real server keeps a participant whose media connection is lost.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// And one whose media connection never comes up.
const JOIN_WITHIN: Duration = Duration::from_secs(60);
const DATAGRAM_BYTES_MAX: usize = 2048;

/// States of a participant.
const JOINED: i32 = 1;
const ACTIVE: i32 = 2;
const DISCONNECTED: i32 = 3;
/// Reasons of a leave.
const CLIENT_INITIATED: i32 = 1;
const DUPLICATE_IDENTITY: i32 = 2;
const SERVER_SHUTDOWN: i32 = 3;
const STATE_MISMATCH: i32 = 6;
const SIGNAL_CLOSE: i32 = 9;
const CONNECTION_TIMEOUT: i32 = 14;
/// Actions of a leave.
const DISCONNECT: i32 = 0;
const RESUME: i32 = 1;
const RECONNECT: i32 = 2;

/// An input of the hub.
pub enum Input {
    JoinRequest(JoinRequest, oneshot::Sender<JoinDecision>),
    /// A WebSocket is open. Its number is returned.
    Joined(Box<Join>, mpsc::UnboundedSender<Outgoing>, oneshot::Sender<u64>),
    Message(u64, Bytes),
    /// A WebSocket is closed.
    Closed(u64),
    /// For this transport, or for the one that accepts it.
    Datagram(Option<(u64, SignalTarget)>, SocketAddr, Vec<u8>),
    Order(Order),
    Stats(oneshot::Sender<Stats>),
}

pub struct Hub {
    options: Options,
    inputs: mpsc::UnboundedReceiver<Input>,
    feed: mpsc::UnboundedSender<Input>,
    /// The UDP socket of all connections, if they share one.
    shared: Option<Arc<UdpSocket>>,
    /// The sid of each room, by name.
    rooms: BTreeMap<String, String>,
    participants: BTreeMap<u64, Participant>,
    next_id: u64,
    refusal: Option<(u16, String)>,
    speakers_at: Instant,
    stats: Stats,
}

impl Hub {
    pub fn new(
        options: Options,
        shared: Option<UdpSocket>,
        feed: mpsc::UnboundedSender<Input>,
        inputs: mpsc::UnboundedReceiver<Input>,
    ) -> Self {
        let shared = shared.map(Arc::new);
        if let Some(socket) = &shared {
            tokio::spawn(read(socket.clone(), None, feed.clone()));
        }
        Self {
            options,
            inputs,
            feed,
            shared,
            rooms: BTreeMap::new(),
            participants: BTreeMap::new(),
            next_id: 0,
            refusal: None,
            speakers_at: Instant::now() + WINDOW,
            stats: Stats::default(),
        }
    }

    pub async fn run(mut self) {
        loop {
            let now = Instant::now();
            self.tick(now);
            let deadline = self.drain(now).min(self.speakers_at);
            tokio::select! {
                biased;
                input = self.inputs.recv() => match input {
                    Some(Input::Order(Order::Shutdown)) | None => break,
                    Some(input) => self.handle(input, Instant::now()),
                },
                () = sleep_until(deadline.into()) => {}
            }
        }
        for participant in self.participants.values_mut() {
            participant.leave(SERVER_SHUTDOWN, DISCONNECT);
        }
    }

    fn tick(&mut self, now: Instant) {
        let overdue = |participant: &Participant| participant.until.is_some_and(|until| until <= now);
        let late: Vec<u64> = self
            .participants
            .iter()
            .filter(|(_, participant)| overdue(participant))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.remove(id, CONNECTION_TIMEOUT, Some(DISCONNECT), now);
        }
        for participant in self.participants.values_mut() {
            for (_, transport) in participant.transports() {
                transport.handle_timeout(now);
            }
        }
        if self.speakers_at <= now {
            self.speakers_at = now + WINDOW;
            self.send_speakers(now);
        }
    }

    /// Polls all transports until they are idle, and handles their events. Returns the next
    /// deadline.
    fn drain(&mut self, now: Instant) -> Instant {
        loop {
            let mut events = Vec::new();
            let mut deadline = now + JOIN_WITHIN;
            for (id, participant) in &mut self.participants {
                for (target, transport) in participant.transports() {
                    transport.drain(now, |event| events.push((*id, target, event)));
                    deadline = deadline.min(transport.deadline());
                }
                deadline = participant.until.map_or(deadline, |until| deadline.min(until));
            }
            if events.is_empty() {
                return deadline;
            }
            for (id, target, event) in events {
                self.event(id, target, event, now);
            }
        }
    }

    fn handle(&mut self, input: Input, now: Instant) {
        match input {
            Input::JoinRequest(request, verdict) => {
                let made = self.decide(&request);
                if request.path == "/rtc" && matches!(made, JoinDecision::Reply(..)) {
                    self.stats.refused += 1;
                }
                let _ = verdict.send(made);
            }
            Input::Joined(join, sender, number) => self.join(*join, sender, number, now),
            Input::Message(id, bytes) => match SignalRequest::decode(bytes) {
                Ok(SignalRequest { message: Some(request) }) => self.request(id, request, now),
                Ok(_) => log::debug!("{}: a message that this server does not know", self.name(id)),
                Err(error) => log::warn!("{}: no message: {error}", self.name(id)),
            },
            Input::Closed(id) => self.handle_closed(id, now),
            Input::Datagram(whose, source, contents) => self.datagram(whose, source, &contents, now),
            Input::Order(order) => self.order(order, now),
            Input::Stats(reply) => {
                let _ = reply.send(self.stats());
            }
        }
    }

    /// Sends the state of this participant to the others.
    fn broadcast(&mut self, id: u64) {
        let Some(participant) = self.participants.get_mut(&id) else {
            return;
        };
        participant.version += 1;
        let (info, room) = (participant.info(), participant.claims.room.clone());
        if participant.claims.hidden {
            return;
        }
        for other in self.others(id, &room) {
            other.send(ServerMessage::Update(ParticipantUpdate {
                participants: vec![info.clone()],
            }));
        }
    }

    fn handle_closed(&mut self, id: u64, now: Instant) {
        let Some(participant) = self.participants.get_mut(&id) else {
            return;
        };
        participant.sender = None;
        // A client may resume while its media is up.
        if !participant.transports().any(|(_, transport)| transport.connected) {
            self.remove(id, SIGNAL_CLOSE, None, now);
        }
    }

    /// Removes a participant, with a `leave` if there is an action, and informs the others.
    fn remove(&mut self, id: u64, reason: i32, action: Option<i32>, now: Instant) {
        let Some(mut participant) = self.participants.remove(&id) else {
            return;
        };
        log::info!(
            "{} leaves {}: reason {reason}",
            participant.claims.identity,
            participant.claims.room
        );
        if let Some(action) = action {
            participant.leave(reason, action);
        }
        for (_, transport) in participant.transports() {
            transport.close(now);
        }
        participant.state = DISCONNECTED;
        participant.version += 1;
        let mut info = participant.info();
        info.tracks.clear();
        info.disconnect_reason = reason;
        let room = participant.claims.room.clone();
        if !participant.claims.hidden {
            for other in self.others(id, &room) {
                other.send(ServerMessage::Update(ParticipantUpdate {
                    participants: vec![info.clone()],
                }));
            }
        }
        if self.others(id, &room).next().is_none() {
            self.rooms.remove(&room);
        }
        self.offer_others(id);
    }

    fn order(&mut self, order: Order, now: Instant) {
        match order {
            Order::Evict { identity, reason } => {
                for id in self.by_identity(&identity) {
                    self.remove(id, reason, Some(DISCONNECT), now);
                }
            }
            Order::Leave {
                identity,
                reason,
                action,
            } => {
                for id in self.by_identity(&identity) {
                    self.remove(id, reason, Some(action), now);
                }
            }
            Order::HangUp { identity } => {
                for id in self.by_identity(&identity) {
                    let participant = self.participants.get_mut(&id).expect("it was just found");
                    participant.sender = None;
                    participant.until = Some(now + GONE_AFTER);
                }
            }
            Order::Silence { identity } => {
                for id in self.by_identity(&identity) {
                    self.participants.get_mut(&id).expect("it was just found").silent = true;
                }
            }
            Order::Refuse { status, words } => self.refusal = Some((status, words)),
            Order::Admit => self.refusal = None,
            Order::Shutdown => {}
        }
    }

    fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        for participant in self.participants.values() {
            stats.rooms.entry(participant.claims.room.clone()).or_default().insert(
                participant.claims.identity.clone(),
                ParticipantStats {
                    sid: participant.sid.clone(),
                    state: participant.state,
                    kind: participant.claims.kind,
                    auto_subscribe: participant.auto_subscribe,
                    tracks: participant
                        .tracks
                        .iter()
                        .filter(|track| track.live)
                        .map(|track| track.info.sid.clone())
                        .collect(),
                    subscribed: participant.subscribed.iter().cloned().collect(),
                    speaking: participant.meter.reported > 0,
                    ..participant.participant.clone()
                },
            );
        }
        stats
    }

    fn others<'a>(&'a self, id: u64, room: &'a str) -> impl Iterator<Item = &'a Participant> {
        let others = self
            .participants
            .iter()
            .filter(move |(other, participant)| **other != id && participant.claims.room == room);
        others.map(|(_, participant)| participant)
    }

    fn find(&self, room: &str, identity: &str) -> Option<u64> {
        let is_it = |claims: &Claims| claims.room == room && claims.identity == identity;
        self.participants
            .iter()
            .find(|(_, participant)| is_it(&participant.claims))
            .map(|(id, _)| *id)
    }

    /// Returns the participants with this identity in all rooms.
    fn by_identity(&self, identity: &str) -> Vec<u64> {
        self.participants
            .iter()
            .filter(|(_, participant)| participant.claims.identity == identity)
            .map(|(id, _)| *id)
            .collect()
    }

    fn name(&self, id: u64) -> &str {
        self.participants
            .get(&id)
            .map_or("a departed participant", |participant| {
                participant.claims.identity.as_str()
            })
    }
}

async fn read(socket: Arc<UdpSocket>, whose: Option<(u64, SignalTarget)>, feed: mpsc::UnboundedSender<Input>) {
    let mut datagram = [0; DATAGRAM_BYTES_MAX];
    loop {
        // An error means a closed port of a peer, reported by ICMP. The next datagram may succeed.
        if let Ok((bytes, source)) = socket.recv_from(&mut datagram).await
            && feed
                .send(Input::Datagram(whose, source, datagram[..bytes].to_vec()))
                .is_err()
        {
            return;
        }
    }
}

/// Creates an id like the server's: a prefix and twelve letters and digits.
fn sid(prefix: &str) -> String {
    const LETTERS: &[u8] = b"23456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ";
    let mut random = [0; 12];
    getrandom::fill(&mut random).expect("the system has random numbers");
    let letters = random
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    prefix.chars().chain(letters).collect()
}
