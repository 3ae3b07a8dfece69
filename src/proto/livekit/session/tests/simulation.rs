//! A simulated LiveKit server, and a session in one of its rooms, in virtual time.
//!
//! [`Simulation::run`] drives the session as `io::livekit` does, and plays the server: it admits,
//! offers, answers and forwards, as the fields that a test sets say. Datagrams take 2 ms, messages
//! no time. The server in `tests/support/livekit` runs on sockets and real time and forwards
//! between participants; this one scripts a single session.

mod participant;
mod server;

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
use crate::audio::tone::{Tone, share};
use crate::livekit::wire::{
    self, ClientConfiguration, DataPacket, JoinResponse, LeaveRequest, ParticipantInfo, ParticipantUpdate, Pong,
    ReconnectResponse, RoomIceServer, ServerMessage, SessionDescription, SignalRequest, SignalRequestKind,
    SignalResponse, SpeakerInfo, SpeakersChanged, TrackInfo, TrackPublishedResponse, TrackSubscribed,
};
use crate::webrtc::connection::IceProtocol;
use crate::webrtc::connection::sfu::tests::rig::{Kind, RATE_HZ, Server, Talker, decode, ms, ours, theirs, theirs_tcp};

pub use self::participant::FakeParticipant;

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
    /// Whether a participant subscribes to the bot's track as soon as it is published.
    pub subscribes: bool,
    /// Whether it is ICE-lite and trickles its candidates.
    pub lite: bool,
    pub participants: Vec<FakeParticipant>,
    /// The reason with which changes of attributes are answered.
    pub update_reason: i32,
    /// Whether the bot's track is muted, as a resume tells.
    pub mutes_bot: bool,
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
    pub received: BTreeMap<Option<Arc<str>>, Vec<i16>>,
    pub speech: VecDeque<i16>,
    pub gone: Option<Duration>,
    /// The messages and the audio that the bot sent.
    pub texts: Vec<String>,
    /// News about the job, and the number of requests before each.
    pub news: Vec<(usize, JobEvent)>,
    /// The requests for the participants.
    pub looks: Vec<RestRequest>,
    /// Whether the worker reports outcomes at once.
    pub reports: bool,
    /// All packets of the bot, these messages included.
    pub packets: Vec<DataPacket>,
    pub levels: Vec<i8>,
    pub voice: Vec<Arc<[u8]>>,
    /// RTP timestamps of the audio, for each connection.
    pub timestamps: Vec<Vec<u64>>,
    is_open: bool,
    wake: Instant,
    seeds: u64,
    in_flight: VecDeque<InFlight>,
    /// The result of a TCP connection.
    pub tcp: PathResult,
    /// The result of an allocation at a TURN server.
    pub relay: PathResult,
    /// The answer to a resume.
    pub resume_answer: ResumeAnswer,
    /// TURN servers that the server names.
    pub ice_servers: Vec<RoomIceServer>,
    pub force_relay: bool,
    /// What it announces beside or instead of UDP.
    pub offers_tcp: bool,
    pub offers_udp: bool,
    /// The paths that the session opened and has not closed.
    pub paths: Vec<(Duration, SignalTarget, PathId, PathRequest)>,
    pub opened_paths: usize,
    /// The caller of [`Simulation::talks`], whose packets have to count on.
    talker: Option<Talker>,
}

/// A packet on its way.
struct InFlight {
    at: Instant,
    is_up: bool,
    target: SignalTarget,
    protocol: Protocol,
    /// The address of the session's end.
    ours: SocketAddr,
    theirs: SocketAddr,
    contents: Vec<u8>,
}

/// What becomes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathResult {
    Opens,
    /// It opens, and loses everything.
    LosesAll,
    Refused,
    /// Nothing happens.
    Hangs,
}

/// How the server answers a resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeAnswer {
    /// It resumes a participant that it still has.
    Resumes,
    /// It knows the participant no longer.
    Leaves,
    /// It knows no resumes.
    Joins,
    /// It closes the socket.
    Closes,
}

fn track_subscribed() -> ServerMessage {
    ServerMessage::TrackSubscribed(TrackSubscribed {
        track_sid: "TR_own".into(),
    })
}

impl Simulation {
    pub fn new() -> Self {
        Self::with_setup(None, &[])
    }

    /// A session of a job, at a server with further URLs.
    pub fn with_setup(job: Option<JobRules>, other_urls: &[&str]) -> Self {
        Self::with_role(RoomRole::Bot, job, other_urls)
    }

    pub fn with_role(role: RoomRole, job: Option<JobRules>, other_urls: &[&str]) -> Self {
        let start = Instant::now();
        let setup = RoomSetup {
            role,
            other_urls: other_urls.iter().map(|url| (*url).to_owned()).collect(),
            job,
            common: Arc::new(ConnectionContext::default()),
            url: "wss://media.example.net".into(),
            token: Secret::new("first"),
            agent_name: "bot".into(),
            service: Some(RoomService::new(
                "wss://media.example.net",
                "devkey",
                &Secret::new("secret"),
                "room-1",
            )),
            unix: secs(1_795_252_753),
        };
        let mut sim = Simulation {
            start,
            now: start,
            session: RoomSession::new(setup, start),
            dial_result: DialResult::Open,
            fast_publish: true,
            accepts_track: true,
            subscribes: true,
            lite: false,
            participants: Vec::new(),
            update_reason: 0,
            mutes_bot: false,
            network: true,
            answers: true,
            server_side: None,
            dials: Vec::new(),
            requests: Vec::new(),
            closes: 0,
            events: Vec::new(),
            received: BTreeMap::new(),
            speech: VecDeque::new(),
            gone: None,
            texts: Vec::new(),
            news: Vec::new(),
            looks: Vec::new(),
            reports: true,
            packets: Vec::new(),
            levels: Vec::new(),
            voice: Vec::new(),
            timestamps: Vec::new(),
            is_open: false,
            wake: start,
            seeds: 7,
            in_flight: VecDeque::new(),
            tcp: PathResult::Opens,
            relay: PathResult::Opens,
            resume_answer: ResumeAnswer::Resumes,
            ice_servers: Vec::new(),
            force_relay: false,
            offers_tcp: false,
            offers_udp: true,
            paths: Vec::new(),
            opened_paths: 0,
            talker: None,
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
            let delivery = self.in_flight.iter().map(|packet| packet.at).min();
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
        let due = self.in_flight.iter().filter(|packet| packet.at <= self.now).count();
        for _ in 0..due {
            let at = self.in_flight.iter().position(|packet| packet.at <= self.now);
            let packet = at.and_then(|at| self.in_flight.remove(at)).expect("one is due");
            if !self.carries(&packet) {
                continue;
            }
            if packet.is_up {
                self.handle_datagram(&packet);
            } else {
                let received = ReceivedPacket {
                    over: match packet.protocol {
                        Protocol::Tcp => IceProtocol::Tcp,
                        _ => IceProtocol::Udp,
                    },
                    ..ReceivedPacket::from_datagram(packet.theirs, packet.ours, &packet.contents)
                };
                self.session.handle_packet(packet.target, &received, self.now);
                self.drain();
            }
        }
        if self.gone.is_none() && self.wake <= self.now {
            self.session.handle_timeout(self.now);
            self.supply_speech();
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

    /// Returns whether the way of a packet is open.
    fn carries(&self, packet: &InFlight) -> bool {
        match (packet.protocol, packet.ours == ours()) {
            (Protocol::Tcp, _) => self.tcp == PathResult::Opens,
            (_, true) => self.network,
            (_, false) => self.relay == PathResult::Opens,
        }
    }

    fn handle_datagram(&mut self, packet: &InFlight) {
        let Some(server_side) = &mut self.server_side else {
            return;
        };
        let server = match packet.target {
            SignalTarget::Publisher => server_side.publisher.as_mut(),
            SignalTarget::Subscriber => Some(&mut server_side.subscriber),
        };
        let Some(server) = server else { return };
        let receive = Receive::new(packet.protocol, packet.ours, packet.theirs, &packet.contents).expect("a datagram");
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
            for transmit in server.drain_transmits() {
                self.in_flight.push_back(InFlight {
                    at: self.now + ms(2),
                    is_up: false,
                    target,
                    protocol: transmit.proto,
                    ours: transmit.destination,
                    theirs: transmit.source,
                    contents: transmit.contents.into(),
                });
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
                let packet = DataPacket::decode(&data[..]).expect("a data packet");
                if let Some(wire::DataValue::User(user)) = &packet.value {
                    assert!(packet.destination_identities.is_empty() && user.topic.is_none());
                    self.texts
                        .push(String::from_utf8(user.payload.to_vec()).expect("a text"));
                }
                self.packets.push(packet);
            }
        }
    }

    fn drain(&mut self) {
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
                    let pcm = self.received.entry(frame.identity.cloned()).or_default();
                    pcm.extend_from_slice(frame.pcm);
                }
                SessionOutput::Event(event) => self.events.push((self.now - self.start, event)),
            }
        }
        panic!("the session's output has no end");
    }

    /// Passes speech as `io::session` does: after each timeout, and when the session asks for it.
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
            RoomCommand::Listen(_, ufrag, _) => assert!(!ufrag.is_empty()),
            RoomCommand::OpenPath(target, id, request) => self.handle_open_path(target, id, request),
            RoomCommand::ClosePath(id) => self.paths.retain(|(_, _, open, _)| *open != id),
            RoomCommand::ClosePaths => self.paths.clear(),
            RoomCommand::Look(request) => self.looks.push(request),
            RoomCommand::Job(news) => {
                let is_end = matches!(news, JobEvent::Ended(_));
                self.news.push((self.requests.len(), news));
                if is_end && self.reports {
                    self.session.handle_job_reported(self.now);
                }
            }
            RoomCommand::Transmit(target, mut transmit) => {
                let contents = transmit.contents().to_vec();
                let protocol = match transmit.over {
                    IceProtocol::Udp => Protocol::Udp,
                    IceProtocol::Tcp => Protocol::Tcp,
                };
                if [theirs(), theirs_tcp()].contains(&transmit.destination) {
                    self.in_flight.push_back(InFlight {
                        at: self.now + ms(2),
                        is_up: true,
                        target,
                        protocol,
                        ours: transmit.source,
                        theirs: transmit.destination,
                        contents,
                    });
                }
            }
        }
    }

    fn handle_open_path(&mut self, target: SignalTarget, id: PathId, request: PathRequest) {
        assert!(self.paths.iter().all(|(_, _, open, _)| *open != id));
        self.paths.push((self.time(), target, id, request.clone()));
        self.opened_paths += 1;
        // Each path has an address of its own.
        let local = SocketAddr::from(([192, 0, 2, 1], 41_000 + self.opened_paths as u16));
        let (result, event) = match request {
            PathRequest::Tcp(address) => {
                assert_eq!(address, theirs_tcp());
                (self.tcp, PathEvent::Connected { local })
            }
            PathRequest::Relay(_) => {
                let relayed = vec![SocketAddr::from(([198, 51, 100, 7], local.port()))];
                (self.relay, PathEvent::Allocated { relayed, local })
            }
        };
        let event = match result {
            PathResult::Opens | PathResult::LosesAll => event,
            PathResult::Refused => PathEvent::Ended("connection refused".into()),
            PathResult::Hangs => return,
        };
        if result == PathResult::Refused {
            self.paths.retain(|(_, _, open, _)| *open != id);
        }
        self.session.handle_path(id, event, self.now);
    }

    /// Ends all paths.
    pub fn break_paths(&mut self) {
        for (_, _, id, _) in std::mem::take(&mut self.paths) {
            let event = PathEvent::Ended("the server closed the connection".into());
            self.session.handle_path(id, event, self.now);
            self.drain();
        }
    }

    /// A participant subscribes to the bot's track.
    pub fn subscribe(&mut self) {
        self.send_and_drain(track_subscribed());
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

    /// Returns whether the first caller receives the bot, and the bot the caller.
    pub fn talks(&mut self) -> bool {
        let (voice, received) = (self.voice.len(), self.mixed().len());
        self.speech.extend(Tone::new(440.0, RATE_HZ).take(RATE_HZ as usize));
        let mut talkers = [("TR_ann1", self.talker.take().unwrap_or_else(|| Talker::new(600.0)))];
        self.play_speech(&mut talkers, 60);
        let [(_, talker)] = talkers;
        self.talker = Some(talker);
        let mixed = &self.mixed()[received..];
        self.voice.len() - voice > 40 && share(&mixed[mixed.len() / 2..], 600.0, RATE_HZ) > 0.8
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
        self.received.get(&None).map_or(&[], Vec::as_slice)
    }
}
