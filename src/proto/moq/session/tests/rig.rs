//! A session, its endpoint and a scripted caller on a lossy network in virtual time.
//!
//! In serve mode the caller connects to the runner. In dial mode the runner connects to the
//! caller's endpoint, which plays a relay with the caller behind it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::rustls;
use quinn_proto::{ConnectionHandle, DatagramEvent, Endpoint, EndpointEvent};

use super::super::*;
use super::caller::Caller;
use crate::audio::opus::EncoderSettings;
use crate::moq::accepted::{AcceptedConnection, AcceptedOutput, ArrivalError};
use crate::moq::link::simulation::tls;
use crate::moq::link::{LinkTarget, MoqLink, client_config, endpoint_config, server_config};
use crate::moq::peer::MoqTrackKind;
use crate::moq::waiting::WaitingSessions;

pub const NAMESPACE: &str = "pipecat-0123456789abcdef";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Runner,
    Caller,
}

/// The bot of the session, and what it received.
#[derive(Default)]
pub struct Bot {
    pub events: Vec<(Duration, SessionEvent)>,
    pub pcm: Vec<i16>,
    pub frames: u64,
    /// Speech that the session has not taken.
    pub queue: VecDeque<i16>,
    /// Speech is what was received.
    pub echoes: bool,
}

pub struct Rig {
    pub start: Instant,
    pub now: Instant,
    pub latency: Duration,
    pub jitter: Duration,
    pub loss_percent: u64,
    /// Every datagram is lost.
    pub is_cut: bool,
    /// The runner's process does not run.
    is_asleep: bool,
    /// What arrived meanwhile.
    inbox: Vec<Vec<u8>>,
    random: u64,
    in_flight: BTreeMap<(Instant, u64), (Side, Vec<u8>)>,
    order: u64,
    pub session: MoqSession,
    pub bot: Bot,
    pub is_ready: bool,
    pub is_gone: bool,
    deadline: Instant,
    runner: Endpoint,
    /// A connection that is not bound to the session yet.
    pending: Option<(ConnectionHandle, AcceptedConnection)>,
    pending_due: Instant,
    /// Why it was not bound.
    pub arrival_error: Option<ArrivalError>,
    /// The session, until its caller arrives.
    waiting: WaitingSessions<()>,
    /// The error of each dial.
    pub dial_error: Option<String>,
    pub dials: Vec<Duration>,
    dropped: Vec<u64>,
    pub caller: Caller,
    tls: (rustls::ServerConfig, rustls::ClientConfig),
}

fn address(side: Side) -> SocketAddr {
    match side {
        Side::Runner => "192.0.2.1:4080".parse().unwrap(),
        Side::Caller => "192.0.2.2:5000".parse().unwrap(),
    }
}

fn target() -> LinkTarget {
    LinkTarget {
        authority: "localhost:4080".to_owned(),
        path: "/moq".to_owned(),
    }
}

pub fn endpoint(seed: u8, tls: &rustls::ServerConfig) -> Endpoint {
    let config = server_config(tls.clone(), &[7; 64]).unwrap();
    let own = Arc::new(endpoint_config([seed; 32], &[seed; 64]));
    Endpoint::new(own, Some(Arc::new(config)), true, None)
}

impl Rig {
    pub fn new(mode: MoqSessionMode) -> Self {
        let now = Instant::now();
        let tls = tls();
        let setup = MoqSessionSetup {
            mode,
            namespace: NAMESPACE.to_owned(),
            bot_id: "response".to_owned(),
            client_id: "request".to_owned(),
            origin: 77,
            epoch: 0xfeed,
            encoder_settings: EncoderSettings::default(),
        };
        let mut session = MoqSession::new(setup, now);
        session.set_audio(16_000, 24_000, false, now);
        Rig {
            start: now,
            now,
            latency: Duration::from_millis(10),
            jitter: Duration::ZERO,
            loss_percent: 0,
            is_cut: false,
            is_asleep: false,
            inbox: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            in_flight: BTreeMap::new(),
            order: 0,
            session,
            bot: Bot::default(),
            is_ready: false,
            is_gone: false,
            deadline: now,
            runner: endpoint(1, &tls.0),
            pending: None,
            pending_due: now,
            arrival_error: None,
            waiting: WaitingSessions::default(),
            dial_error: None,
            dials: Vec::new(),
            dropped: Vec::new(),
            caller: Caller::new(endpoint(2, &tls.0), now),
            tls,
        }
    }

    /// A session whose caller is connected and subscribed to the bot's audio.
    pub fn connected(mode: MoqSessionMode) -> Self {
        let mut rig = Rig::new(mode);
        rig.connect();
        rig
    }

    pub fn connect(&mut self) {
        self.call();
        self.run_until(|rig| rig.session.has_joined && rig.caller.is_subscribed());
    }

    /// Registers the session and lets the caller connect to the runner, in serve mode.
    pub fn call(&mut self) {
        self.register();
        self.call_unregistered();
    }

    /// Lets the caller connect to the runner, in serve mode.
    pub fn call_unregistered(&mut self) {
        if self.session.setup.mode == MoqSessionMode::Serve {
            let config = client_config(self.tls.1.clone()).unwrap();
            let connected = self
                .caller
                .endpoint
                .connect(self.now, config, address(Side::Runner), "localhost");
            let (handle, connection) = connected.unwrap();
            self.caller.link = Some((handle, MoqLink::client(connection, target(), self.now)));
        }
    }

    /// Replaces the caller by one that patches its catalog.
    pub fn patch_catalog(&mut self) {
        self.caller = Caller::with_catalog(MoqTrackKind::Log, endpoint(2, &self.tls.0), self.now);
    }

    /// The relay stops without a word and starts again; the caller behind it returns.
    pub fn restart_relay(&mut self) {
        self.caller.restart(endpoint(3, &self.tls.0));
    }

    pub fn ms(&self) -> u64 {
        (self.now - self.start).as_millis() as u64
    }

    /// Returns when an event reached the bot.
    pub fn times(&self, event: &SessionEvent) -> Vec<Duration> {
        let found = self.bot.events.iter().filter(|(_, each)| each == event);
        found.map(|(at, _)| *at).collect()
    }

    pub fn left(&self) -> Option<LeaveReason> {
        self.bot.events.iter().find_map(|(_, event)| match event {
            SessionEvent::Left(reason) => Some(*reason),
            _ => None,
        })
    }

    pub fn messages(&self) -> Vec<&str> {
        let messages = self.bot.events.iter().filter_map(|(_, event)| match event {
            SessionEvent::Message(text) => Some(text.as_str()),
            _ => None,
        });
        messages.collect()
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until_or(end, |_| false);
        self.now = end;
    }

    /// The runner's process is stalled. Its first act is to look at its deadline, before it reads
    /// what arrived.
    pub fn stall(&mut self, time: Duration) {
        self.is_asleep = true;
        self.run(time);
        self.is_asleep = false;
        self.session.handle_timeout(self.now);
        self.feed();
        self.pump_session();
        for datagram in std::mem::take(&mut self.inbox) {
            self.deliver(Side::Runner, &datagram);
        }
    }

    pub fn run_until(&mut self, condition: impl FnMut(&mut Self) -> bool) {
        let end = self.now + Duration::from_secs(60);
        assert!(
            self.run_until_or(end, condition),
            "nothing within a minute: {:?}",
            self.bot.events
        );
    }

    fn run_until_or(&mut self, end: Instant, mut condition: impl FnMut(&mut Self) -> bool) -> bool {
        for _ in 0..2_000_000 {
            self.pump();
            if condition(self) {
                return true;
            }
            self.pump();
            let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
            let session = (!self.is_gone && !self.is_asleep).then_some(self.deadline);
            let pending = self.pending.is_some().then_some(self.pending_due);
            let next = [arrival, session, pending, self.caller.poll_timeout()];
            let Some(next) = next.into_iter().flatten().min().filter(|next| *next <= end) else {
                return false;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.in_flight.first_entry().filter(|each| each.key().0 <= self.now) {
                let (to, datagram) = entry.remove();
                self.deliver(to, &datagram);
            }
            if session.is_some_and(|deadline| deadline <= self.now) {
                self.session.handle_timeout(self.now);
                self.feed();
            }
            if let Some((_, accepted)) = &mut self.pending
                && self.pending_due <= self.now
            {
                accepted.handle_timeout(self.now);
            }
            self.caller.handle_timeout(self.now);
        }
        panic!("the session does not let time pass: {:?}", self.deadline);
    }

    /// Passes the bot's speech, as the session loop does.
    pub fn feed(&mut self) {
        let capacity = self.session.bot_audio_capacity().unwrap();
        let take = capacity.min(self.bot.queue.len());
        let pcm: Vec<i16> = self.bot.queue.drain(..take).collect();
        self.session.handle_bot_audio(&pcm, self.now);
    }

    fn pump(&mut self) {
        self.pump_session();
        self.pump_pending();
        let sent = self.caller.pump(self.now);
        for datagram in sent {
            self.send(Side::Runner, datagram);
        }
        self.pump_session();
    }

    fn pump_session(&mut self) {
        while !self.is_gone && !self.is_asleep {
            let at = self.now - self.start;
            let command = match self.session.poll_output(self.now) {
                SessionOutput::Timeout(deadline) => {
                    self.deadline = deadline.at;
                    return;
                }
                SessionOutput::Closed => {
                    self.is_gone = true;
                    return;
                }
                SessionOutput::Event(event) => {
                    self.bot.events.push((at, event));
                    continue;
                }
                SessionOutput::Audio(frame) => {
                    assert_eq!(frame.rate_hz, 16_000);
                    self.bot.frames += 1;
                    self.bot.pcm.extend_from_slice(frame.pcm);
                    if self.bot.echoes {
                        let doubled = frame.pcm.chunks(2).flat_map(|two| [two[0], two[0], two[two.len() - 1]]);
                        self.bot.queue.extend(doubled);
                    }
                    continue;
                }
                SessionOutput::BotAudioWanted => continue,
                SessionOutput::Command(command) => command,
            };
            self.perform(command);
            if self.bot.echoes {
                self.feed();
            }
        }
    }

    fn perform(&mut self, command: MoqCommand) {
        match command {
            MoqCommand::Send(transmit) => {
                let datagram = self.session.transmit_buffer()[..transmit.size].to_vec();
                self.send(Side::Caller, datagram);
            }
            MoqCommand::Endpoint { connection, event } => {
                let handle = ConnectionHandle(connection as usize);
                if let Some(event) = self.runner.handle_event(handle, event) {
                    self.session.handle_connection_event(connection, event, self.now);
                }
            }
            MoqCommand::Dial => {
                self.dials.push(self.now - self.start);
                if let Some(error) = &self.dial_error {
                    return self.session.handle_dial_error(error.clone(), self.now);
                }
                let config = client_config(self.tls.1.clone()).unwrap();
                let connected = self
                    .runner
                    .connect(self.now, config, address(Side::Caller), "localhost");
                let (handle, connection) = connected.unwrap();
                let link = MoqLink::client(connection, target(), self.now);
                self.session.handle_dialed(handle.0 as u64, link, self.now);
            }
            MoqCommand::Drop { connection } => {
                self.dropped.push(connection);
                let handle = ConnectionHandle(connection as usize);
                self.runner.handle_event(handle, EndpointEvent::drained());
            }
            MoqCommand::Ready => self.is_ready = true,
        }
    }

    /// Plays the port: accepts the request, and binds the connection by its announcement.
    fn pump_pending(&mut self) {
        while let Some((handle, accepted)) = &mut self.pending {
            match accepted.poll_output(self.now) {
                AcceptedOutput::Timeout(due) => {
                    self.pending_due = due;
                    return;
                }
                AcceptedOutput::Send(transmit) => {
                    let datagram = accepted.datagram()[..transmit.size].to_vec();
                    self.send(Side::Caller, datagram);
                }
                AcceptedOutput::Endpoint(event) => {
                    if let Some(event) = self.runner.handle_event(*handle, event) {
                        accepted.handle_connection_event(event, self.now);
                    }
                }
                AcceptedOutput::Requested(_) => accepted.accept(self.now),
                AcceptedOutput::Announced(path) => {
                    if self.waiting.take(&path, |()| true).is_some()
                        && let Some((handle, accepted)) = self.pending.take()
                    {
                        let arrival = accepted.into_arrival();
                        self.session.handle_arrival(handle.0 as u64, arrival, self.now);
                    }
                }
                AcceptedOutput::Failed(why) => self.arrival_error = Some(why),
                AcceptedOutput::Drained => self.pending = None,
            }
        }
    }

    /// Registers the session for the announcement of its caller.
    pub fn register(&mut self) {
        self.waiting.insert(&self.session.setup.caller_path(), ());
        if let Some((_, accepted)) = &mut self.pending {
            accepted.handle_session_registered();
        }
    }

    fn send(&mut self, to: Side, datagram: Vec<u8>) {
        if self.is_cut || self.random(100) < self.loss_percent {
            return;
        }
        let jitter = Duration::from_micros(self.random(self.jitter.as_micros() as u64));
        self.order += 1;
        let at = self.now + self.latency + jitter;
        self.in_flight.insert((at, self.order), (to, datagram));
    }

    fn deliver(&mut self, to: Side, datagram: &[u8]) {
        let mut buffer = Vec::new();
        let bytes = BytesMut::from(datagram);
        if to == Side::Caller {
            let answers = self.caller.receive(address(Side::Runner), bytes, self.now);
            for answer in answers {
                self.send(Side::Runner, answer);
            }
            return;
        }
        if self.is_asleep {
            return self.inbox.push(datagram.to_vec());
        }
        let from = address(Side::Caller);
        match self.runner.handle(self.now, from, None, None, bytes, &mut buffer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => match &mut self.pending {
                Some((pending, accepted)) if *pending == handle => accepted.handle_connection_event(event, self.now),
                _ => self.session.handle_connection_event(handle.0 as u64, event, self.now),
            },
            Some(DatagramEvent::NewConnection(incoming)) => {
                if let Ok((handle, connection)) = self.runner.accept(incoming, self.now, &mut buffer, None) {
                    self.pending = Some((handle, AcceptedConnection::new(connection, 5, self.now)));
                    self.pending_due = self.now;
                }
            }
            Some(DatagramEvent::Response(transmit)) => {
                let response = buffer[..transmit.size].to_vec();
                self.send(Side::Caller, response);
            }
            None => {}
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    /// Returns whether every connection was dropped and no state is left at the endpoint.
    pub fn is_clean(&self) -> bool {
        self.is_gone && self.runner.open_connections() == 0
    }
}
