//! The hub: every room, every participant, and what the server says to whom. One task owns it all.
//!
//! In: requests, signalling messages, datagrams, orders of a test. Out: signalling messages, descriptions, forwarded audio and
//! data. The order of messages is the real server's: `join`, `refresh_token`, the subscriber's first offer with the tracks
//! that are there, candidates after each first description; `track_published` on `add_track`, but an update for the others only
//! with the first packet of the track; everybody's updates at every change of state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use edge_runner::proto::mediaroom::wire::{
    AddTrackRequest, DataPacket, JoinResponse, LeaveRequest, ParticipantInfo, ParticipantPermission, ParticipantUpdate,
    Pong, Request, RequestResponse, Response, Room, SignalRequest, SignalResponse, SpeakerInfo, SpeakersChanged,
    Target, TrackInfo, TrackPublishedResponse, TrickleRequest,
};
use prost::Message as _;
use serde_json::{Value, json};
use str0m::rtp::RtpPacket;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use super::door::{Join, Outgoing, Request as Knock, Verdict};
use super::link::{self, Happened, LOSSY, Link, RELIABLE, Wire};
use super::speakers::{Meter, WINDOW};
use super::token::{self, Claims};
use super::{Options, Order, Person, Stats};

/// The real server's patience with a media connection that was lost.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// And with one that never comes up.
const JOIN_WITHIN: Duration = Duration::from_secs(60);
/// Messages that wait for a subscriber's channel.
const WAITING_MAX: usize = 1000;
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
    Datagram(Option<(u64, Target)>, SocketAddr, Vec<u8>),
    Order(Order),
    Stats(oneshot::Sender<Stats>),
}

struct Track {
    info: TrackInfo,
    cid: String,
    /// Its first packet has come.
    live: bool,
}

struct Participant {
    claims: Claims,
    sid: String,
    state: i32,
    version: u32,
    auto_subscribe: bool,
    /// Gone once the WebSocket is.
    tell: Option<mpsc::UnboundedSender<Outgoing>>,
    /// Nothing is said any more, for tests of a server that hangs.
    silent: bool,
    publisher: Option<Link>,
    subscriber: Option<Link>,
    tracks: Vec<Track>,
    /// The sids of tracks to be heard, whether they are there or not.
    wanted: BTreeSet<String>,
    /// Reliable messages from before the channel was open.
    waiting: Vec<Vec<u8>>,
    /// When it is removed unless its media come up.
    until: Option<Instant>,
    meter: Meter,
    person: Person,
}

impl Participant {
    fn send(&self, response: Response) {
        if let Some(tell) = self.tell.as_ref().filter(|_| !self.silent) {
            let _ = tell.send(Outgoing::Message(
                SignalResponse {
                    message: Some(response),
                }
                .encode_to_vec(),
            ));
        }
    }

    fn info(&self) -> ParticipantInfo {
        let claims = &self.claims;
        ParticipantInfo {
            sid: self.sid.clone(),
            identity: claims.identity.clone(),
            state: self.state,
            tracks: self
                .tracks
                .iter()
                .filter(|track| track.live)
                .map(|track| track.info.clone())
                .collect(),
            metadata: claims.metadata.clone(),
            name: claims.name.clone(),
            version: self.version,
            permission: Some(ParticipantPermission {
                can_subscribe: claims.can_subscribe,
                can_publish: claims.can_publish,
                can_publish_data: claims.can_publish_data,
                hidden: claims.hidden,
                agent: claims.agent,
                recorder: false,
            }),
            is_publisher: self.tracks.iter().any(|track| track.live),
            kind: claims.kind,
            attributes: claims.attributes.clone(),
            ..Default::default()
        }
    }

    fn link(&mut self, target: Target) -> Option<&mut Link> {
        match target {
            Target::Publisher => self.publisher.as_mut(),
            Target::Subscriber => self.subscriber.as_mut(),
        }
    }

    fn links(&mut self) -> impl Iterator<Item = (Target, &mut Link)> {
        let publisher = self.publisher.iter_mut().map(|link| (Target::Publisher, link));
        publisher.chain(self.subscriber.iter_mut().map(|link| (Target::Subscriber, link)))
    }

    fn leave(&self, reason: i32, action: i32) {
        self.send(Response::Leave(LeaveRequest {
            can_reconnect: action != DISCONNECT,
            reason,
            action,
        }));
        if let Some(tell) = &self.tell {
            let _ = tell.send(Outgoing::Close);
        }
    }
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

    fn judge(&self, request: &Knock) -> Verdict {
        let refuse = |(status, words): (u16, String)| Verdict::Reply(status, words);
        match request.path.as_str() {
            "/rtc" if request.upgrade.is_none() => return refuse((404, String::new())),
            "/rtc" | "/rtc/validate" => {}
            "/" => return refuse((200, "OK".into())),
            _ => return refuse((404, "404 page not found\n".into())),
        }
        if let Some(refusal) = &self.refusal {
            return refuse(refusal.clone());
        }
        let bearer = request
            .authorization
            .as_deref()
            .map(|header| header.strip_prefix("Bearer "));
        let token = match bearer {
            Some(None) => return refuse((401, "invalid authorization header. Must start with Bearer ".into())),
            Some(Some(token)) => token,
            None => request.parameter("access_token").unwrap_or_default(),
        };
        if token.is_empty() {
            return refuse((401, "no permissions to access the room".into()));
        }
        let claims = match token::verify(token, &self.options.key, &self.options.secret) {
            Ok(claims) => claims,
            Err(refusal) => return refuse(refusal),
        };
        if !self.options.auto_create && !self.rooms.contains_key(&claims.room) {
            return refuse((404, "requested room does not exist".into()));
        }
        if request.path == "/rtc/validate" {
            return refuse((200, "success".into()));
        }
        Verdict::Admit(Box::new(Join {
            claims,
            protocol: request
                .parameter("protocol")
                .and_then(|version| version.parse().ok())
                .unwrap_or_default(),
            auto_subscribe: request.is_set("auto_subscribe").unwrap_or(true),
            resumes: request.is_set("reconnect") == Some(true),
        }))
    }

    fn arrive(
        &mut self,
        join: Join,
        tell: mpsc::UnboundedSender<Outgoing>,
        number: oneshot::Sender<u64>,
        now: Instant,
    ) {
        self.arrivals += 1;
        let id = self.arrivals;
        let _ = number.send(id);
        let claims = join.claims;
        let mut person = Participant {
            sid: sid("PA_"),
            state: JOINED,
            version: 1,
            auto_subscribe: join.auto_subscribe,
            tell: Some(tell),
            silent: false,
            publisher: None,
            subscriber: None,
            tracks: Vec::new(),
            wanted: BTreeSet::new(),
            waiting: Vec::new(),
            until: Some(now + JOIN_WITHIN),
            meter: Meter::default(),
            person: Person {
                protocol: join.protocol,
                ..Default::default()
            },
            claims,
        };
        if join.resumes {
            // This server keeps nothing to resume; the real one answers so when it has lost it.
            self.stats.resumes += 1;
            person.leave(STATE_MISMATCH, RECONNECT);
            return;
        }
        self.stats.joins += 1;
        let room = person.claims.room.clone();
        if let Some(first) = self.find(&room, &person.claims.identity) {
            self.remove(first, DUPLICATE_IDENTITY, Some(DISCONNECT), now);
        }
        log::info!(
            "{} joins {room} as {}, protocol {}",
            person.claims.identity,
            person.sid,
            join.protocol
        );
        let room_sid = self.rooms.entry(room.clone()).or_insert_with(|| sid("RM_")).clone();
        let others: Vec<ParticipantInfo> = self
            .others(id, &room)
            .filter(|other| !other.claims.hidden)
            .map(Participant::info)
            .collect();
        person.send(Response::Join(Box::new(JoinResponse {
            room: Some(Room {
                sid: room_sid,
                name: room.clone(),
                num_participants: others.len() as u32 + 1,
                ..Default::default()
            }),
            participant: Some(person.info()),
            other_participants: others,
            server_version: "1.13.5".into(),
            subscriber_primary: person.claims.can_subscribe,
            ping_timeout: self.options.ping_timeout_s,
            ping_interval: self.options.ping_interval_s,
            fast_publish: person.claims.can_publish,
            ..Default::default()
        })));
        person.send(Response::RefreshToken(token::renew(
            &person.claims,
            &self.options.secret,
        )));
        if person.claims.can_subscribe {
            person.subscriber = self.link(id, Target::Subscriber, now);
        }
        self.people.insert(id, person);
        self.broadcast(id);
        self.subscribe_to_all(id);
        self.offer(id);
    }

    /// Makes a connection on the socket of everybody, or on one of its own.
    fn link(&self, id: u64, target: Target, now: Instant) -> Option<Link> {
        let wire = match &self.shared {
            Some(socket) => Wire {
                local: socket.local_addr().ok()?,
                socket: socket.clone(),
                reader: None,
            },
            None => {
                let socket = std::net::UdpSocket::bind((self.options.address, 0)).ok()?;
                socket.set_nonblocking(true).ok()?;
                let socket = Arc::new(UdpSocket::from_std(socket).ok()?);
                let reader = tokio::spawn(read(socket.clone(), Some((id, target)), self.feed.clone()));
                Wire {
                    local: socket.local_addr().ok()?,
                    socket,
                    reader: Some(reader.abort_handle()),
                }
            }
        };
        let subscriber = target == Target::Subscriber;
        Some(Link::new(
            wire,
            subscriber,
            subscriber && self.options.red,
            self.options.ice_lite,
            now,
        ))
    }

    fn request(&mut self, id: u64, request: Request, now: Instant) {
        let Some(person) = self.people.get_mut(&id) else {
            return;
        };
        match request {
            Request::Ping(ping) => person.send(Response::Pong(Pong {
                last_ping_timestamp: ping.timestamp,
                timestamp: unix_ms(),
            })),
            Request::AddTrack(wanted) => self.add_track(id, wanted),
            Request::Offer(offer) => {
                if person.publisher.is_none() {
                    let link = self.link(id, Target::Publisher, now);
                    self.people.get_mut(&id).expect("it was just there").publisher = link;
                }
                self.publish(id, &offer);
            }
            Request::Answer(answer) => {
                if let Some(Err(error)) = person.subscriber.as_mut().map(|link| link.handle_answer(&answer)) {
                    log::warn!("{}: its answer: {error}\n{}", self.name(id), answer.sdp);
                }
                self.offer(id);
            }
            Request::Trickle(trickle) => {
                let init: Value = serde_json::from_str(&trickle.candidate_init).unwrap_or_default();
                let text = init["candidate"].as_str().unwrap_or_default();
                let target = Target::try_from(trickle.target).unwrap_or(Target::Publisher);
                if let Some(link) = person.link(target).filter(|_| !text.is_empty())
                    && let Err(error) = link.add_remote_candidate(text)
                {
                    log::warn!("{}: the candidate {text}: {error}", self.name(id));
                }
            }
            Request::Mute(mute) => {
                if let Some(track) = person.tracks.iter_mut().find(|track| track.info.sid == mute.sid) {
                    track.info.muted = mute.muted;
                    self.broadcast(id);
                }
            }
            Request::Subscription(subscription) => {
                for track in subscription.track_sids {
                    if subscription.subscribe {
                        person.wanted.insert(track);
                    } else {
                        person.wanted.remove(&track);
                    }
                }
                self.offer(id);
            }
            Request::Leave(_) => self.remove(id, CLIENT_INITIATED, Some(DISCONNECT), now),
        }
    }

    fn add_track(&mut self, id: u64, wanted: AddTrackRequest) {
        let Some(person) = self.people.get_mut(&id) else {
            return;
        };
        if !person.claims.can_publish {
            // 2 is "not allowed".
            person.send(Response::Request(RequestResponse {
                reason: 2,
                ..Default::default()
            }));
            return;
        }
        let audio = wanted.kind == 0;
        let letter = |source| ['U', 'C', 'M', 'S', 's'].get(source as usize).copied().unwrap_or('U');
        let info = TrackInfo {
            sid: sid(&format!(
                "TR_{}{}",
                if audio { 'A' } else { 'V' },
                letter(wanted.source)
            )),
            kind: wanted.kind,
            name: wanted.name,
            muted: wanted.muted,
            source: wanted.source,
            mime_type: if audio && wanted.disable_red {
                "audio/opus"
            } else if audio {
                "audio/red"
            } else {
                ""
            }
            .into(),
            ..Default::default()
        };
        person.send(Response::TrackPublished(TrackPublishedResponse {
            cid: wanted.cid.clone(),
            track: Some(info.clone()),
        }));
        person.tracks.push(Track {
            info,
            cid: wanted.cid,
            live: false,
        });
    }

    /// Answers an offer of the publisher, and finds which of its sections is which track.
    fn publish(&mut self, id: u64, offer: &edge_runner::proto::mediaroom::wire::SessionDescription) {
        let Some(person) = self.people.get_mut(&id) else {
            return;
        };
        let Some(link) = &mut person.publisher else {
            return;
        };
        let answer = match link.handle_offer(offer) {
            Ok(answer) => answer,
            Err(error) => {
                log::warn!("{}: its offer: {error}\n{}", person.claims.identity, offer.sdp);
                return;
            }
        };
        let candidate = link.candidate();
        let sections = link::tracks(&offer.sdp);
        // A track whose section is gone is unpublished.
        let is_there =
            |track: &Track| track.info.mid.is_empty() || sections.iter().any(|(mid, _)| *mid == track.info.mid);
        let before = person.tracks.len();
        person.tracks.retain(is_there);
        let unpublished = person.tracks.len() != before;
        for (mid, cid) in sections {
            let tracks = &mut person.tracks;
            let pending = |track: &Track| track.info.mid.is_empty() && track.info.kind == 0;
            if tracks.iter().any(|track| track.info.mid == mid) {
                continue;
            }
            let found = tracks
                .iter()
                .position(|track| pending(track) && Some(&track.cid) == cid.as_ref());
            if let Some(at) = found.or_else(|| tracks.iter().position(pending)) {
                tracks[at].info.mid = mid;
            }
        }
        person.send(Response::Answer(answer));
        if let Some(candidate) = candidate {
            person.send(trickle(candidate, Target::Publisher));
        }
        if unpublished {
            self.broadcast(id);
            self.offer_others(id);
        }
    }

    fn subscribe_to_all(&mut self, id: u64) {
        let Some(person) = self.people.get(&id).filter(|person| person.auto_subscribe) else {
            return;
        };
        let others = self.others(id, &person.claims.room).flat_map(|other| &other.tracks);
        let sids: Vec<String> = others
            .filter(|track| track.live)
            .map(|track| track.info.sid.clone())
            .collect();
        self.people.get_mut(&id).expect("it was just there").wanted.extend(sids);
    }

    /// Offers a participant what it is to hear, if that has changed.
    fn offer(&mut self, id: u64) {
        let Some(person) = self.people.get(&id) else {
            return;
        };
        let mut wanted = BTreeMap::new();
        for other in self.others(id, &person.claims.room) {
            for track in other
                .tracks
                .iter()
                .filter(|track| track.live && person.wanted.contains(&track.info.sid))
            {
                wanted.insert(track.info.sid.clone(), other.sid.clone());
            }
        }
        let person = self.people.get_mut(&id).expect("it was just there");
        let Some(link) = &mut person.subscriber else {
            return;
        };
        let Some(offer) = link.offer(&wanted) else {
            return;
        };
        let candidate = link.candidate();
        person.send(Response::Offer(offer));
        if let Some(candidate) = candidate {
            person.send(trickle(candidate, Target::Subscriber));
        }
    }

    fn offer_others(&mut self, id: u64) {
        for other in self
            .people
            .keys()
            .copied()
            .filter(|other| *other != id)
            .collect::<Vec<_>>()
        {
            self.offer(other);
        }
    }

    fn happened(&mut self, id: u64, target: Target, event: Happened, now: Instant) {
        let Some(person) = self.people.get_mut(&id) else {
            return;
        };
        match event {
            Happened::Connected => {
                let primary = if person.subscriber.is_some() {
                    Target::Subscriber
                } else {
                    Target::Publisher
                };
                if target == primary && person.state == JOINED {
                    person.state = ACTIVE;
                    person.until = None;
                    self.broadcast(id);
                    self.subscribe_to_all(id);
                    self.offer(id);
                }
            }
            Happened::Lost => {
                person.leave(CONNECTION_TIMEOUT, RESUME);
                person.until = Some(now + GONE_AFTER);
            }
            Happened::Closed => {
                if person.tell.is_none() {
                    self.remove(id, SIGNAL_CLOSE, None, now);
                }
            }
            Happened::Audio(mid, packet) => self.audio(id, &mid.to_string(), &packet, now),
            Happened::Data(label, bytes) => self.data(id, &label, &bytes),
            Happened::Open(label) => {
                if target == Target::Subscriber && label == RELIABLE {
                    for message in std::mem::take(&mut person.waiting) {
                        deliver(person, RELIABLE, &message);
                    }
                }
            }
        }
    }

    fn audio(&mut self, id: u64, mid: &str, packet: &RtpPacket, now: Instant) {
        let Some(person) = self.people.get_mut(&id) else {
            return;
        };
        let Some(track) = person.tracks.iter_mut().find(|track| track.info.mid == mid) else {
            return;
        };
        person.person.packets_in += 1;
        let first = !std::mem::replace(&mut track.live, true);
        if let Some(level) = packet.header.ext_vals.audio_level.filter(|_| !track.info.muted) {
            person.person.levels += 1;
            person.meter.handle_level(level.unsigned_abs(), now);
        }
        let (track, room) = (track.info.sid.clone(), person.claims.room.clone());
        if first {
            self.broadcast(id);
            for (other, listener) in &mut self.people {
                if *other != id && listener.claims.room == room && listener.state == ACTIVE && listener.auto_subscribe {
                    listener.wanted.insert(track.clone());
                }
            }
            self.offer_others(id);
        }
        for (other, listener) in &mut self.people {
            let link = listener
                .subscriber
                .as_mut()
                .filter(|_| *other != id && listener.claims.room == room);
            if link.is_some_and(|link| link.forward(&track, packet, now)) {
                listener.person.packets_out += 1;
            }
        }
    }

    fn data(&mut self, id: u64, label: &str, bytes: &[u8]) {
        let Some(person) = self.people.get_mut(&id).filter(|person| person.claims.can_publish_data) else {
            return;
        };
        let Ok(packet) = DataPacket::decode(bytes) else {
            log::warn!("{}: a message on {label} is no DataPacket", person.claims.identity);
            return;
        };
        if label != RELIABLE && label != LOSSY {
            return;
        }
        person.person.messages_in += 1;
        // In this encoding the last value of a field counts, so that what is not known here goes through untouched.
        let mut stamped = bytes.to_vec();
        let stamp = DataPacket {
            participant_identity: person.claims.identity.clone(),
            participant_sid: person.sid.clone(),
            ..Default::default()
        };
        stamped.extend(stamp.encode_to_vec());
        let room = person.claims.room.clone();
        let named = &packet.destination_identities;
        for (other, listener) in &mut self.people {
            let is_meant = named.is_empty() || named.contains(&listener.claims.identity);
            if *other != id && listener.claims.room == room && is_meant {
                deliver(listener, label, &stamped);
            }
        }
    }

    fn tell_speakers(&mut self, now: Instant) {
        let mut changed: BTreeMap<String, Vec<SpeakerInfo>> = BTreeMap::new();
        for person in self.people.values_mut() {
            let eighths = person.meter.eighths(now);
            if eighths != std::mem::replace(&mut person.meter.told, eighths) {
                let speaker = SpeakerInfo {
                    sid: person.sid.clone(),
                    level: f32::from(eighths) / 8.0,
                    active: eighths > 0,
                };
                changed.entry(person.claims.room.clone()).or_default().push(speaker);
            }
        }
        for (room, mut speakers) in changed {
            speakers.sort_by(|one, other| other.level.total_cmp(&one.level));
            for person in self.people.values().filter(|person| person.claims.room == room) {
                person.send(Response::SpeakersChanged(SpeakersChanged {
                    speakers: speakers.clone(),
                }));
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
            other.send(Response::Update(ParticipantUpdate {
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
                other.send(Response::Update(ParticipantUpdate {
                    participants: vec![info.clone()],
                }));
            }
        }
        if self.others(id, &room).next().is_none() {
            self.rooms.remove(&room);
        }
        self.offer_others(id);
    }

    fn datagram(&mut self, whose: Option<(u64, Target)>, source: SocketAddr, contents: &[u8], now: Instant) {
        if let Some((id, target)) = whose {
            if let Some(link) = self.people.get_mut(&id).and_then(|person| person.link(target)) {
                link.handle_datagram(source, contents, now);
            }
            return;
        }
        for person in self.people.values_mut() {
            if person
                .links()
                .any(|(_, link)| link.handle_datagram(source, contents, now))
            {
                return;
            }
        }
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

/// Sends a message, or keeps a reliable one until there is a channel for it.
fn deliver(person: &mut Participant, label: &str, bytes: &[u8]) {
    let link = person.subscriber.as_mut().or(person.publisher.as_mut());
    if link.is_some_and(|link| link.send(label, bytes)) {
        person.person.messages_out += 1;
    } else if label == RELIABLE && person.waiting.len() < WAITING_MAX {
        person.waiting.push(bytes.to_vec());
    }
}

fn trickle(candidate: String, target: Target) -> Response {
    let init = json!({"candidate": candidate, "sdpMid": "", "sdpMLineIndex": 0, "usernameFragment": null});
    // There is one candidate, so that the first is the last.
    Response::Trickle(TrickleRequest {
        candidate_init: init.to_string(),
        target: target.into(),
        last: true,
    })
}

async fn read(socket: Arc<UdpSocket>, whose: Option<(u64, Target)>, feed: mpsc::UnboundedSender<Input>) {
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

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    since.as_millis() as i64
}
