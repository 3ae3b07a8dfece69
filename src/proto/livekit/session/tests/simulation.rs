//! A simulated LiveKit server, and a session in one of its rooms, in virtual time.
//!
//! [`Simulation::run`] drives the session as `io::livekit` does, and plays the server: it admits,
//! offers, answers and forwards, as the fields that a test sets say. Datagrams take 2 ms, messages
//! no time. The server in `tests/support/livekit` runs on sockets and real time and forwards
//! between participants; this one scripts a single session.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use str0m::Input;
use str0m::media::Mid;
use str0m::net::{Protocol, Receive};

use super::super::*;
use crate::livekit::wire::{
    self, JoinResponse, LeaveRequest, ParticipantInfo, ParticipantUpdate, Pong, ServerMessage, SessionDescription,
    SignalRequest, SignalRequestKind, SignalResponse, SpeakerInfo, SpeakersChanged, TrackInfo, TrackPublishedResponse,
    TrackType,
};
use crate::webrtc::connection::sfu::tests::world::{Kind, RATE_HZ, Server, Talker, decode, ms, ours, theirs};

pub fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The result of a dial.
#[derive(Clone, Debug)]
pub enum DialResult {
    Open,
    /// Open, but the server sends nothing.
    Silent,
    Refused(u16),
    Unreachable,
    /// No answer of any kind.
    NoAnswer,
}

/// A remote participant.
#[derive(Clone, Debug)]
pub struct FakeParticipant {
    pub sid: &'static str,
    pub identity: &'static str,
    pub kind: i32,
    /// 1 joined, 2 active.
    pub state: i32,
}

impl FakeParticipant {
    pub fn caller(sid: &'static str, identity: &'static str) -> Self {
        FakeParticipant {
            sid,
            identity,
            kind: 0,
            state: 2,
        }
    }

    pub fn agent(sid: &'static str, identity: &'static str) -> Self {
        FakeParticipant {
            kind: 4,
            ..FakeParticipant::caller(sid, identity)
        }
    }

    fn track(&self) -> String {
        self.sid.replace("PA_", "TR_")
    }

    fn info(&self, state: i32) -> ParticipantInfo {
        ParticipantInfo {
            sid: self.sid.into(),
            identity: self.identity.into(),
            state,
            tracks: vec![TrackInfo {
                sid: self.track(),
                kind: TrackType::Audio as i32,
                ..TrackInfo::default()
            }],
            name: format!("{}!", self.identity),
            version: if state == 3 { 9 } else { 1 },
            kind: self.kind,
            ..ParticipantInfo::default()
        }
    }
}

/// The server's side of one connection.
struct ServerSide {
    publisher: Option<Server>,
    subscriber: Server,
    /// Sections of the subscriber connection by track.
    mids: BTreeMap<String, Mid>,
    /// Tracks that are subscribed to and not offered yet.
    wanted: Vec<String>,
    offer_id: u32,
}

/// A session and its server.
pub struct Simulation {
    pub start: Instant,
    pub now: Instant,
    pub session: RoomSession,
    // The server.
    pub dial_result: DialResult,
    pub fast_publish: bool,
    pub accepts_track: bool,
    /// Whether it is ICE-lite and trickles its candidates.
    pub lite: bool,
    pub participants: Vec<FakeParticipant>,
    /// Whether datagrams arrive, in both directions.
    pub network: bool,
    /// Whether the server still answers messages.
    pub answers: bool,
    server_side: Option<ServerSide>,
    // What the session did.
    pub dials: Vec<(Duration, DialRequest)>,
    pub requests: Vec<(Duration, SignalRequestKind)>,
    pub closes: usize,
    pub events: Vec<(Duration, SessionEvent)>,
    pub heard: BTreeMap<Option<Arc<str>>, Vec<i16>>,
    pub speech: VecDeque<i16>,
    pub gone: Option<Duration>,
    /// The messages and the audio that the bot sent.
    pub texts: Vec<String>,
    pub levels: Vec<i8>,
    pub voice: Vec<Arc<[u8]>>,
    /// RTP timestamps of the audio, for each connection.
    pub timestamps: Vec<Vec<u64>>,
    is_open: bool,
    wake: Instant,
    seeds: u64,
    in_flight: VecDeque<(Instant, bool, SignalTarget, Vec<u8>)>,
}

impl Simulation {
    pub fn new() -> Self {
        let start = Instant::now();
        let setup = RoomSetup {
            common: Arc::new(ConnectionContext::default()),
            url: "wss://media.example.net".into(),
            token: Secret::new("first"),
            unix: secs(1_795_252_753),
        };
        let mut sim = Simulation {
            start,
            now: start,
            session: RoomSession::new(setup, start),
            dial_result: DialResult::Open,
            fast_publish: true,
            accepts_track: true,
            lite: false,
            participants: Vec::new(),
            network: true,
            answers: true,
            server_side: None,
            dials: Vec::new(),
            requests: Vec::new(),
            closes: 0,
            events: Vec::new(),
            heard: BTreeMap::new(),
            speech: VecDeque::new(),
            gone: None,
            texts: Vec::new(),
            levels: Vec::new(),
            voice: Vec::new(),
            timestamps: Vec::new(),
            is_open: false,
            wake: start,
            seeds: 7,
            in_flight: VecDeque::new(),
        };
        sim.drain();
        sim
    }

    /// A room with one caller, which the bot has joined.
    pub fn with_caller() -> Self {
        let mut sim = Simulation::new();
        sim.participants.push(FakeParticipant::caller("PA_ann1", "ann"));
        sim.start_audio();
        assert!(
            sim.run_until(secs(5), |sim| sim.has(&SessionEvent::Joined)),
            "{:?}",
            sim.events
        );
        sim.run(ms(200));
        sim
    }

    /// The bot takes its media, mixed at 16 kHz, and speaks at that rate.
    pub fn start_audio(&mut self) {
        self.start_audio_as(true);
    }

    pub fn start_audio_as(&mut self, mixed: bool) {
        self.with(|session, now| session.set_audio(RATE_HZ, RATE_HZ, mixed, now));
    }

    pub fn with<T>(&mut self, act: impl FnOnce(&mut RoomSession, Instant) -> T) -> T {
        let done = act(&mut self.session, self.now);
        self.drain();
        done
    }

    pub fn time(&self) -> Duration {
        self.now - self.start
    }

    pub fn has(&self, event: &SessionEvent) -> bool {
        self.count(event) > 0
    }

    pub fn count(&self, event: &SessionEvent) -> usize {
        self.events.iter().filter(|(_, each)| each == event).count()
    }

    /// Returns the reason of the last event, which ends the session.
    pub fn end_reason(&self) -> Option<LeaveReason> {
        let ends = self
            .events
            .iter()
            .filter(|(_, event)| matches!(event, SessionEvent::Left(_)));
        assert!(ends.count() <= 1, "a session ends once");
        match self.events.last() {
            Some((_, SessionEvent::Left(reason))) => Some(*reason),
            _ => None,
        }
    }

    /// Returns the error of a failed join.
    pub fn join_failed(&self) -> Option<&str> {
        self.events.iter().find_map(|(_, event)| match event {
            SessionEvent::JoinFailed(why) => Some(why.as_str()),
            _ => None,
        })
    }

    pub fn left_gracefully(&self) -> bool {
        let last = self.requests.last().map(|(_, request)| request);
        matches!(last, Some(SignalRequestKind::Leave(leave)) if leave.reason == 1) && self.closes > 0
    }

    pub fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs for at most `time`, or until `done`. Returns whether it is.
    pub fn run_until(&mut self, time: Duration, done: impl Fn(&Simulation) -> bool) -> bool {
        let end = self.now + time;
        self.expire_missing();
        let mut steps_at_once = 0;
        loop {
            if done(self) {
                return true;
            }
            let delivery = self.in_flight.iter().map(|(at, ..)| *at).min();
            let session = self.gone.is_none().then_some(self.wake);
            let server_side = self.server_side.as_ref().map(|server_side| {
                let publisher = server_side.publisher.as_ref().map(|server| server.wake);
                publisher.into_iter().fold(server_side.subscriber.wake, Instant::min)
            });
            let next = [delivery, session, server_side].into_iter().flatten().min();
            let next = next.filter(|next| *next <= end);
            let Some(next) = next else {
                self.now = end;
                return done(self);
            };
            steps_at_once = if next > self.now { 0 } else { steps_at_once + 1 };
            assert!(steps_at_once < 1_000, "the session spins at {:?}", self.time());
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn step(&mut self) {
        let due = self.in_flight.iter().filter(|(at, ..)| *at <= self.now).count();
        for _ in 0..due {
            let at = self.in_flight.iter().position(|(at, ..)| *at <= self.now);
            let (_, up, target, datagram) = at.and_then(|at| self.in_flight.remove(at)).expect("one is due");
            if !self.network {
                continue;
            }
            if up {
                self.handle_datagram(target, &datagram);
            } else {
                let packet = ReceivedPacket::from_datagram(theirs(), ours(), &datagram);
                self.session.handle_packet(target, &packet, self.now);
                self.drain();
            }
        }
        if self.gone.is_none() && self.wake <= self.now {
            self.session.handle_timeout(self.now);
            self.drain();
        }
        let now = self.now;
        if let Some(server_side) = &mut self.server_side {
            for server in server_side.publisher.iter_mut().chain([&mut server_side.subscriber]) {
                if server.wake <= now {
                    server.rtc.handle_input(Input::Timeout(now)).expect("time goes on");
                }
            }
        }
        self.expire_missing();
    }

    fn handle_datagram(&mut self, target: SignalTarget, datagram: &[u8]) {
        let Some(server_side) = &mut self.server_side else {
            return;
        };
        let server = match target {
            SignalTarget::Publisher => server_side.publisher.as_mut(),
            SignalTarget::Subscriber => Some(&mut server_side.subscriber),
        };
        let Some(server) = server else { return };
        let receive = Receive::new(Protocol::Udp, ours(), theirs(), datagram).expect("a datagram");
        let input = Input::Receive(self.now, receive);
        if server.rtc.accepts(&input) {
            server.rtc.handle_input(input).expect("an input that is taken");
        }
    }

    /// Sends what the server's connections have to send, and collects what they received.
    fn expire_missing(&mut self) {
        let Some(server_side) = &mut self.server_side else {
            return;
        };
        let servers = [
            (SignalTarget::Publisher, server_side.publisher.as_mut()),
            (SignalTarget::Subscriber, Some(&mut server_side.subscriber)),
        ];
        for (target, server) in servers {
            let Some(server) = server else { continue };
            for (destination, datagram) in server.drain() {
                if destination == ours() {
                    self.in_flight.push_back((self.now + ms(2), false, target, datagram));
                }
            }
            for packet in server.packets.drain(..) {
                self.levels.extend(packet.header.ext_vals.audio_level);
                self.voice.push(packet.payload.clone());
                self.timestamps
                    .last_mut()
                    .expect("a connection")
                    .push(packet.time.numer());
            }
            for (_, data) in server.data.drain(..) {
                let packet = wire::DataPacket::decode(&data[..]).expect("a data packet");
                let Some(wire::DataValue::User(user)) = packet.value else {
                    panic!("{packet:?} is no text")
                };
                assert!(packet.destination_identities.is_empty() && user.topic.is_none());
                self.texts.push(String::from_utf8(user.payload.into()).expect("a text"));
            }
        }
    }

    fn drain(&mut self) {
        self.supply_speech();
        for _ in 0..100_000 {
            match self.session.poll_output(self.now) {
                SessionOutput::Timeout(deadline) => {
                    self.wake = deadline.at;
                    return;
                }
                SessionOutput::Closed => {
                    self.gone.get_or_insert(self.now - self.start);
                    self.server_side = None;
                    return;
                }
                SessionOutput::Command(command) => self.perform(command),
                SessionOutput::BotAudioWanted => self.supply_speech(),
                SessionOutput::Audio(frame) => {
                    let pcm = self.heard.entry(frame.identity.cloned()).or_default();
                    pcm.extend_from_slice(frame.pcm);
                }
                SessionOutput::Event(event) => self.events.push((self.now - self.start, event)),
            }
        }
        panic!("the session's output has no end");
    }

    fn supply_speech(&mut self) {
        if let Some(room) = self.session.bot_audio_capacity() {
            let take = self.speech.len().min(room);
            let pcm: Vec<i16> = self.speech.drain(..take).collect();
            self.session.handle_bot_audio(&pcm, self.now);
        }
    }

    fn perform(&mut self, command: RoomCommand) {
        match command {
            RoomCommand::Dial(dial) => self.handle_dial(dial),
            RoomCommand::Send(bytes) => self.handle_request(&bytes),
            RoomCommand::CloseSocket => {
                self.closes += 1;
                // The server closes its side at once.
                if std::mem::take(&mut self.is_open) {
                    self.session.handle_socket_closed();
                }
            }
            RoomCommand::Listen(_, ufrag) => assert!(!ufrag.is_empty()),
            RoomCommand::Transmit(target, mut transmit) => {
                let datagram = transmit.contents().to_vec();
                if (transmit.source, transmit.destination) == (ours(), theirs()) {
                    self.in_flight.push_back((self.now + ms(2), true, target, datagram));
                }
            }
        }
    }

    fn handle_dial(&mut self, dial: DialRequest) {
        self.dials.push((self.time(), dial));
        match self.dial_result {
            DialResult::Open | DialResult::Silent => {
                self.is_open = true;
                let local: Vec<SocketAddr> = vec![ours()];
                let local = LocalAddresses {
                    publisher: local.clone(),
                    subscriber: local,
                };
                self.seeds += 1;
                self.session
                    .handle_open(local, self.seeds.wrapping_mul(0x9e37_79b9_7f4a_7c15), self.now);
                if let DialResult::Open = self.dial_result {
                    self.send_join();
                }
            }
            DialResult::Refused(status) => self.session.handle_refused(status, "no", self.now),
            DialResult::Unreachable => self.session.handle_unreachable("connection refused".into(), self.now),
            DialResult::NoAnswer => {}
        }
    }

    /// Admits the session.
    fn send_join(&mut self) {
        self.in_flight.clear();
        self.timestamps.push(Vec::new());
        self.server_side = Some(ServerSide {
            publisher: None,
            subscriber: Server::new(self.kind(), self.now),
            mids: BTreeMap::new(),
            wanted: Vec::new(),
            offer_id: 0,
        });
        let join = JoinResponse {
            participant: Some(ParticipantInfo {
                sid: format!("PA_own{}", self.dials.len()),
                identity: "Agent-1".into(),
                ..ParticipantInfo::default()
            }),
            other_participants: self
                .participants
                .iter()
                .map(|participant| participant.info(participant.state))
                .collect(),
            server_version: "1.13.5".into(),
            subscriber_primary: true,
            ping_timeout: 15,
            ping_interval: 5,
            fast_publish: self.fast_publish,
            ..JoinResponse::default()
        };
        self.send(ServerMessage::Join(Box::new(join)));
        self.offer();
    }

    /// Sends a message to the session.
    pub fn send(&mut self, message: ServerMessage) {
        let bytes = SignalResponse { message: Some(message) }.encode_to_vec();
        self.send_bytes(&bytes);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.session.handle_binary(Bytes::copy_from_slice(bytes), self.now);
        // The session may be in the middle of a drain, which continues.
    }

    /// Sends a message from outside a drain.
    pub fn send_and_drain(&mut self, message: ServerMessage) {
        self.send(message);
        self.drain();
    }

    fn offer(&mut self) {
        let Some(server_side) = &mut self.server_side else {
            return;
        };
        if server_side.subscriber.pending.is_some() {
            return;
        }
        let wanted = std::mem::take(&mut server_side.wanted);
        let names: Vec<String> = wanted
            .iter()
            .map(|track| format!("{}|{track}", track.replace("TR_", "PA_")))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (sdp, mids) = server_side.subscriber.offer(&names);
        server_side.mids.extend(wanted.into_iter().zip(mids));
        server_side.offer_id += 1;
        let id = server_side.offer_id;
        self.send_description(SignalTarget::Subscriber, "offer", &sdp, id);
    }

    fn kind(&self) -> Kind {
        Kind {
            lite: self.lite,
            ..Kind::default()
        }
    }

    /// Sends a description, with its candidates in it or after it.
    fn send_description(&mut self, target: SignalTarget, kind: &str, sdp: &str, id: u32) {
        let is_candidate = |line: &&str| line.starts_with("a=candidate:") || line.starts_with("a=end-of-candidates");
        let trickled: Vec<&str> = sdp.lines().filter(is_candidate).filter(|_| self.lite).collect();
        let kept = sdp.lines().filter(|line| !trickled.contains(line));
        let description = SessionDescription {
            kind: kind.into(),
            sdp: kept.map(|line| format!("{line}\r\n")).collect(),
            id,
            ..SessionDescription::default()
        };
        self.send(match target {
            SignalTarget::Publisher => ServerMessage::Answer(description),
            SignalTarget::Subscriber => ServerMessage::Offer(description),
        });
        for line in trickled {
            let candidate = line.trim_start_matches("a=");
            let init = serde_json::json!({"candidate": candidate, "sdpMid": "0", "sdpMLineIndex": 0});
            self.send(ServerMessage::Trickle(wire::TrickleRequest {
                candidate_init: init.to_string(),
                target: target as i32,
                last: false,
            }));
        }
    }

    /// Handles a request of the session.
    fn handle_request(&mut self, bytes: &[u8]) {
        let request = SignalRequest::decode(bytes).expect("a request");
        let request = request.message.expect("something is asked");
        self.requests.push((self.time(), request.clone()));
        if !self.answers {
            return;
        }
        let kind = self.kind();
        let Some(server_side) = &mut self.server_side else {
            return;
        };
        match request {
            SignalRequestKind::AddTrack(track) if self.accepts_track => {
                let info = TrackInfo {
                    sid: "TR_own".into(),
                    ..TrackInfo::default()
                };
                self.send(ServerMessage::TrackPublished(TrackPublishedResponse {
                    cid: track.cid,
                    track: Some(info),
                }));
            }
            SignalRequestKind::Offer(offer) => {
                let mut server = Server::new(kind, self.now);
                let sdp = server.answer(&offer.sdp);
                server_side.publisher = Some(server);
                self.send_description(SignalTarget::Publisher, "answer", &sdp, offer.id);
            }
            SignalRequestKind::Answer(answer) => {
                assert_eq!(answer.id, server_side.offer_id);
                server_side.subscriber.accept(&answer.sdp);
                if !server_side.wanted.is_empty() {
                    self.offer();
                }
            }
            SignalRequestKind::Subscription(subscription) => {
                assert!(subscription.subscribe);
                server_side.wanted.extend(subscription.track_sids);
                self.offer();
            }
            SignalRequestKind::Ping(ping) => self.send(ServerMessage::Pong(Pong {
                last_ping_timestamp: ping.timestamp,
                timestamp: ping.timestamp + 1,
            })),
            _ => {}
        }
    }

    /// Adds a participant.
    pub fn participant_joins(&mut self, participant: FakeParticipant) {
        let info = participant.info(participant.state);
        self.participants.push(participant);
        self.send_and_drain(ServerMessage::Update(ParticipantUpdate {
            participants: vec![info],
        }));
    }

    /// Changes a participant.
    pub fn update_participant(&mut self, identity: &str, change: impl FnOnce(&mut FakeParticipant)) {
        let participant = self
            .participants
            .iter_mut()
            .find(|participant| participant.identity == identity);
        let participant = participant.expect("one who is there");
        change(participant);
        let participants = vec![participant.info(participant.state)];
        self.send_and_drain(ServerMessage::Update(ParticipantUpdate { participants }));
    }

    /// Tells whether the session takes speech of the bot.
    pub fn accepts_speech(&self) -> bool {
        self.session.bot_audio_capacity().is_some()
    }

    /// Removes a participant.
    pub fn participant_leaves(&mut self, identity: &str) {
        let at = self
            .participants
            .iter()
            .position(|participant| participant.identity == identity);
        let participant = self.participants.remove(at.expect("one who is there"));
        self.send_and_drain(ServerMessage::Update(ParticipantUpdate {
            participants: vec![participant.info(3)],
        }));
    }

    pub fn set_speaking(&mut self, sid: &str, active: bool) {
        let speaker = SpeakerInfo {
            sid: sid.into(),
            level: 0.5,
            active,
        };
        self.send_and_drain(ServerMessage::SpeakersChanged(SpeakersChanged {
            speakers: vec![speaker],
        }));
    }

    /// Plays the speech of participants for `times` frames of 20 ms.
    pub fn play_speech(&mut self, talkers: &mut [(&str, Talker)], times: usize) {
        for _ in 0..times {
            let now = self.now;
            if let Some(server_side) = &mut self.server_side {
                for (track, talker) in talkers.iter_mut() {
                    let mid = server_side.mids[*track];
                    server_side.subscriber.say(mid, talker, now);
                }
            }
            self.run(ms(20));
        }
    }

    /// Sends a data packet of a participant.
    pub fn data(&mut self, bytes: &[u8]) {
        let server_side = self.server_side.as_mut().expect("a connection");
        let (id, _) = server_side.subscriber.channels[0];
        let mut channel = server_side.subscriber.rtc.channel(id).expect("a channel");
        assert!(channel.write(true, bytes).expect("it is open"));
        server_side.subscriber.wake = self.now;
        self.run(ms(50));
    }

    /// Ends the connection with a leave.
    pub fn send_leave(&mut self, reason: i32, action: i32) {
        self.send_and_drain(ServerMessage::Leave(LeaveRequest {
            reason,
            action,
            ..LeaveRequest::default()
        }));
    }

    /// Kills the server: its socket is reset, and dials fail.
    pub fn kill_server(&mut self) {
        self.server_side = None;
        self.dial_result = DialResult::Unreachable;
        self.break_socket();
    }

    /// Breaks the socket.
    pub fn break_socket(&mut self) {
        self.is_open = false;
        self.session.handle_socket_closed();
        self.drain();
    }

    /// Returns the audio of the bot as PCM.
    pub fn bot_audio(&self) -> Vec<i16> {
        decode(self.voice.iter())
    }

    /// Returns the mixed audio that the bot received.
    pub fn mixed(&self) -> &[i16] {
        self.heard.get(&None).map_or(&[], Vec::as_slice)
    }
}
