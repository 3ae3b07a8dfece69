//! The hub: every room, every participant, and what the server says to whom. One task owns it all.
//!
//! In: requests, signalling messages, datagrams, orders of a test. Out: signalling messages, descriptions, forwarded audio and
//! data. The order of messages is the real server's: `join`, `refresh_token`, the subscriber's first offer with the tracks
//! that are there, candidates after each first description; `track_published` on `add_track`, but an update for the others only
//! with the first packet of the track; everybody's updates at every change of state.

mod arrivals;
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

use super::door::{Join, Outgoing, Request as Knock, Verdict};
use super::speakers::WINDOW;
use super::token::Claims;
use super::{Options, Order, Person, Stats};
use participant::Participant;

/// The real server's patience with a media connection that was lost.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// And with one that never comes up.
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

/// Everything that reaches the hub.
pub enum Input {
    Knock(Knock, oneshot::Sender<Verdict>),
    /// A WebSocket is open; its number goes back.
    Arrived(Box<Join>, mpsc::UnboundedSender<Outgoing>, oneshot::Sender<u64>),
    Message(u64, Bytes),
    /// A WebSocket is gone.
    Hung(u64),
    /// For this link, or for whoever takes it.
    Datagram(Option<(u64, SignalTarget)>, SocketAddr, Vec<u8>),
    Order(Order),
    Stats(oneshot::Sender<Stats>),
}

pub struct Hub {
    options: Options,
    inputs: mpsc::UnboundedReceiver<Input>,
    feed: mpsc::UnboundedSender<Input>,
    /// The one socket of everybody, where there is one.
    shared: Option<Arc<UdpSocket>>,
    /// The sid of each room, by its name.
    rooms: BTreeMap<String, String>,
    people: BTreeMap<u64, Participant>,
    arrivals: u64,
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
            people: BTreeMap::new(),
            arrivals: 0,
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
        for person in self.people.values_mut() {
            person.leave(SERVER_SHUTDOWN, DISCONNECT);
        }
    }

    fn tick(&mut self, now: Instant) {
        let overdue = |person: &Participant| person.until.is_some_and(|until| until <= now);
        let late: Vec<u64> = self
            .people
            .iter()
            .filter(|(_, person)| overdue(person))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.remove(id, CONNECTION_TIMEOUT, Some(DISCONNECT), now);
        }
        for person in self.people.values_mut() {
            for (_, link) in person.links() {
                link.handle_timeout(now);
            }
        }
        if self.speakers_at <= now {
            self.speakers_at = now + WINDOW;
            self.tell_speakers(now);
        }
    }

    /// Lets every link send, and does what follows from it, until all are quiet; returns when the next of them is due.
    fn drain(&mut self, now: Instant) -> Instant {
        loop {
            let mut happened = Vec::new();
            let mut deadline = now + JOIN_WITHIN;
            for (id, person) in &mut self.people {
                for (target, link) in person.links() {
                    link.drain(now, |event| happened.push((*id, target, event)));
                    deadline = deadline.min(link.deadline());
                }
                deadline = person.until.map_or(deadline, |until| deadline.min(until));
            }
            if happened.is_empty() {
                return deadline;
            }
            for (id, target, event) in happened {
                self.happened(id, target, event, now);
            }
        }
    }

    fn handle(&mut self, input: Input, now: Instant) {
        match input {
            Input::Knock(request, verdict) => {
                let made = self.judge(&request);
                if request.path == "/rtc" && matches!(made, Verdict::Reply(..)) {
                    self.stats.refused += 1;
                }
                let _ = verdict.send(made);
            }
            Input::Arrived(join, tell, number) => self.arrive(*join, tell, number, now),
            Input::Message(id, bytes) => match SignalRequest::decode(bytes) {
                Ok(SignalRequest { message: Some(request) }) => self.request(id, request, now),
                Ok(_) => log::debug!("{}: a message that this server does not know", self.name(id)),
                Err(error) => log::warn!("{}: no message: {error}", self.name(id)),
            },
            Input::Hung(id) => self.hung(id, now),
            Input::Datagram(whose, source, contents) => self.datagram(whose, source, &contents, now),
            Input::Order(order) => self.order(order, now),
            Input::Stats(reply) => {
                let _ = reply.send(self.stats());
            }
        }
    }

    /// Tells the others what this participant is now.
    fn broadcast(&mut self, id: u64) {
        let Some(person) = self.people.get_mut(&id) else {
            return;
        };
        person.version += 1;
        let (info, room) = (person.info(), person.claims.room.clone());
        if person.claims.hidden {
            return;
        }
        for other in self.others(id, &room) {
            other.send(ServerMessage::Update(ParticipantUpdate {
                participants: vec![info.clone()],
            }));
        }
    }

    fn hung(&mut self, id: u64, now: Instant) {
        let Some(person) = self.people.get_mut(&id) else {
            return;
        };
        person.tell = None;
        // As long as the media are there a client may come back and resume.
        if !person.links().any(|(_, link)| link.connected) {
            self.remove(id, SIGNAL_CLOSE, None, now);
        }
    }

    /// Ends a stay, with a `leave` of this action where there is one, and tells the others.
    fn remove(&mut self, id: u64, reason: i32, action: Option<i32>, now: Instant) {
        let Some(mut person) = self.people.remove(&id) else {
            return;
        };
        log::info!(
            "{} leaves {}: reason {reason}",
            person.claims.identity,
            person.claims.room
        );
        if let Some(action) = action {
            person.leave(reason, action);
        }
        for (_, link) in person.links() {
            link.close(now);
        }
        person.state = DISCONNECTED;
        person.version += 1;
        let mut info = person.info();
        info.tracks.clear();
        info.disconnect_reason = reason;
        let room = person.claims.room.clone();
        if !person.claims.hidden {
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
                for id in self.named(&identity) {
                    self.remove(id, reason, Some(DISCONNECT), now);
                }
            }
            Order::Leave {
                identity,
                reason,
                action,
            } => {
                for id in self.named(&identity) {
                    self.remove(id, reason, Some(action), now);
                }
            }
            Order::HangUp { identity } => {
                for id in self.named(&identity) {
                    let person = self.people.get_mut(&id).expect("it was just found");
                    person.tell = None;
                    person.until = Some(now + GONE_AFTER);
                }
            }
            Order::Silence { identity } => {
                for id in self.named(&identity) {
                    self.people.get_mut(&id).expect("it was just found").silent = true;
                }
            }
            Order::Refuse { status, words } => self.refusal = Some((status, words)),
            Order::Admit => self.refusal = None,
            Order::Shutdown => {}
        }
    }

    fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        for person in self.people.values() {
            stats.rooms.entry(person.claims.room.clone()).or_default().insert(
                person.claims.identity.clone(),
                Person {
                    sid: person.sid.clone(),
                    state: person.state,
                    kind: person.claims.kind,
                    auto_subscribe: person.auto_subscribe,
                    tracks: person
                        .tracks
                        .iter()
                        .filter(|track| track.live)
                        .map(|track| track.info.sid.clone())
                        .collect(),
                    wanted: person.wanted.iter().cloned().collect(),
                    speaking: person.meter.told > 0,
                    ..person.person.clone()
                },
            );
        }
        stats
    }

    fn others<'a>(&'a self, id: u64, room: &'a str) -> impl Iterator<Item = &'a Participant> {
        let others = self
            .people
            .iter()
            .filter(move |(other, person)| **other != id && person.claims.room == room);
        others.map(|(_, person)| person)
    }

    fn find(&self, room: &str, identity: &str) -> Option<u64> {
        let is_it = |claims: &Claims| claims.room == room && claims.identity == identity;
        self.people
            .iter()
            .find(|(_, person)| is_it(&person.claims))
            .map(|(id, _)| *id)
    }

    /// Returns the participants of this identity in all rooms.
    fn named(&self, identity: &str) -> Vec<u64> {
        self.people
            .iter()
            .filter(|(_, person)| person.claims.identity == identity)
            .map(|(id, _)| *id)
            .collect()
    }

    fn name(&self, id: u64) -> &str {
        self.people
            .get(&id)
            .map_or("somebody gone", |person| person.claims.identity.as_str())
    }
}

async fn read(socket: Arc<UdpSocket>, whose: Option<(u64, SignalTarget)>, feed: mpsc::UnboundedSender<Input>) {
    let mut datagram = [0; DATAGRAM_BYTES_MAX];
    loop {
        // An error is a peer's port that is closed, as ICMP tells; the next one may be fine.
        if let Ok((bytes, source)) = socket.recv_from(&mut datagram).await
            && feed
                .send(Input::Datagram(whose, source, datagram[..bytes].to_vec()))
                .is_err()
        {
            return;
        }
    }
}

/// Makes a name as the server's are: a prefix and twelve letters and digits.
fn sid(prefix: &str) -> String {
    const LETTERS: &[u8] = b"23456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ";
    let mut random = [0; 12];
    getrandom::fill(&mut random).expect("the system has random numbers");
    let letters = random
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    prefix.chars().chain(letters).collect()
}
