//! Several callers of one runner in virtual time, and foreign packets to its port.
//!
//! A [`Rig`] does what `io` does: it routes packets, passes notices between sessions, and removes
//! ended ones. The network takes 5 ms each way, loses nothing, and carries any source address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::super::*;
use super::device::as_device;
use super::pair::{ms, runner, secs, setup};
use crate::testing::client::TestClient;
use crate::webrtc::connection::ReceivedPacket;
use crate::webrtc::packet_router::{PacketRouter, RemotePath};

/// The delay of a packet.
pub const WAY: Duration = Duration::from_millis(5);

/// A session and its bot's observations.
pub struct Life {
    pub session: WebRtcSession,
    pub events: Vec<(Duration, SessionEvent)>,
    /// Frames that the bot received.
    pub frames: usize,
    /// Every destination, with the first byte.
    pub sent: Vec<(SocketAddr, u8)>,
    /// The validated addresses of the caller.
    pub proven: Vec<(Duration, SocketAddr)>,
    /// The outcomes of probes.
    pub found: Vec<(Duration, ProbeOutcome)>,
    pub gone: bool,
    ufrag: String,
    wake: Instant,
}

impl Life {
    pub fn at(&self, wanted: &SessionEvent) -> Option<Duration> {
        let mut events = self.events.iter();
        events.find(|(_, event)| event == wanted).map(|(at, _)| *at)
    }

    pub fn joined(&self) -> Option<Duration> {
        self.at(&SessionEvent::Joined)
    }

    pub fn left(&self) -> Option<(LeaveReason, Duration)> {
        let mut left = self.events.iter().filter_map(|(at, event)| match event {
            SessionEvent::Left(reason) => Some((*reason, *at)),
            _ => None,
        });
        left.next()
    }
}

struct Flight {
    up: bool,
    source: SocketAddr,
    destination: SocketAddr,
    contents: Vec<u8>,
}

pub struct Rig {
    pub start: Instant,
    pub now: Instant,
    pub embedded: bool,
    pub routes: PacketRouter<()>,
    /// By session number.
    pub lives: BTreeMap<u64, Life>,
    /// By session number; clients without power are removed.
    pub clients: BTreeMap<u64, TestClient>,
    /// Nothing passes between these clients and the runner.
    pub away: BTreeSet<u64>,
    /// Like microcontrollers, these clients answer checks but send none once connected.
    pub answering: BTreeSet<u64>,
    /// The last check of each client.
    pub checks: BTreeMap<u64, Vec<u8>>,
    /// The last answer of each client.
    pub answers: BTreeMap<u64, Vec<u8>>,
    flights: BTreeMap<(Instant, u64), Flight>,
    flown: u64,
    last: u64,
}

impl Rig {
    pub fn new(embedded: bool) -> Rig {
        let start = Instant::now();
        Rig {
            start,
            now: start,
            embedded,
            routes: PacketRouter::default(),
            lives: BTreeMap::new(),
            clients: BTreeMap::new(),
            away: BTreeSet::new(),
            answering: BTreeSet::new(),
            checks: BTreeMap::new(),
            answers: BTreeMap::new(),
            flights: BTreeMap::new(),
            flown: 0,
            last: 0,
        }
    }

    fn host(&self) -> Option<Ipv4Addr> {
        self.embedded.then_some(Ipv4Addr::new(192, 0, 2, 1))
    }

    pub fn time(&self) -> Duration {
        self.now - self.start
    }

    /// Answers a client's offer. Returns the session's number.
    pub fn call(&mut self, mut client: TestClient) -> u64 {
        let offer = client.offer();
        self.answer(client, &offer)
    }

    /// The same for a device.
    pub fn device_calls(&mut self, mut client: TestClient) -> u64 {
        let offer = as_device(client.offer());
        self.answer(client, &offer)
    }

    /// The same for a device behind a NAT, whose offer names another address.
    pub fn device_calls_from(&mut self, host: &str, mut client: TestClient) -> u64 {
        let public = format!(" {} {} typ host", client.address.ip(), client.address.port());
        let offer = as_device(client.offer());
        assert!(offer.contains(&public));
        let offer = offer.replace(&public, &format!(" {host} 5000 typ host"));
        let number = self.answer(client, &offer);
        self.answering.insert(number);
        number
    }

    fn answer(&mut self, mut client: TestClient, offer: &str) -> u64 {
        let local = [runner()];
        let accepted = WebRtcSession::accept(offer, &setup(self.host(), &local), self.now);
        let (mut session, answer) = accepted.expect("an offer that can be answered");
        client.accept(&answer);
        self.last += 1;
        let ufrag = session.local_ufrag();
        self.routes.register(ufrag.clone(), self.last, &());
        let life = Life {
            session,
            events: Vec::new(),
            frames: 0,
            sent: Vec::new(),
            proven: Vec::new(),
            found: Vec::new(),
            gone: false,
            ufrag,
            wake: self.now,
        };
        self.lives.insert(self.last, life);
        self.clients.insert(self.last, client);
        self.flush(self.last);
        self.last
    }

    /// Starts a call and lets it connect.
    pub fn connected(&mut self, client: TestClient) -> u64 {
        let number = self.call(client);
        self.connect(number);
        number
    }

    pub fn connect(&mut self, number: u64) {
        let connected = self.run_until(secs(5), |rig| rig.clients[&number].open_channel().is_some());
        assert!(connected, "{:?}", self.lives[&number].events);
        self.run(ms(50));
        self.open_audio(number);
    }

    /// Opens the bot's media.
    pub fn open_audio(&mut self, number: u64) {
        let now = self.now;
        self.life(number).session.set_audio(16_000, 16_000, true, now);
        self.flush(number);
    }

    pub fn life(&mut self, number: u64) -> &mut Life {
        self.lives.get_mut(&number).expect("a session")
    }

    pub fn client(&mut self, number: u64) -> &mut TestClient {
        self.clients.get_mut(&number).expect("a client")
    }

    /// Restarts ICE of a client.
    pub fn restart_ice(&mut self, number: u64) {
        let offer = self.client(number).change(|api| {
            api.ice_restart(true);
        });
        let life = self.life(number);
        let answer = life.session.renegotiate(&offer).expect("an answer");
        self.listen(number);
        self.client(number).accept(&answer);
        self.flush(number);
    }

    /// Replaces the client's connection in the same session.
    pub fn restart(&mut self, number: u64, mut client: TestClient) {
        let offer = client.offer();
        let (now, host, local) = (self.now, self.host(), [runner()]);
        let life = self.life(number);
        let answer = life.session.restart(&offer, &setup(host, &local), now);
        client.accept(&answer.expect("an answer"));
        self.listen(number);
        self.clients.insert(number, client);
        self.flush(number);
    }

    fn listen(&mut self, number: u64) {
        let life = self.life(number);
        let ufrag = life.session.local_ufrag();
        let old = std::mem::replace(&mut life.ufrag, ufrag.clone());
        self.routes.unregister(Some(&old), number, None);
        self.routes.register(ufrag, number, &());
    }

    /// Delivers a datagram with a forged source address at once.
    pub fn forge(&mut self, source: SocketAddr, contents: &[u8]) {
        self.arrive(source, runner(), contents);
    }

    pub fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs until `done`, for at most `time`. Returns whether it is done.
    pub fn run_until(&mut self, time: Duration, done: impl Fn(&Rig) -> bool) -> bool {
        let end = self.now + time;
        loop {
            if done(self) {
                return true;
            }
            let flight = self.flights.keys().next().map(|(at, _)| *at);
            let lives = self.lives.values().filter(|life| !life.gone).map(|life| life.wake);
            let clients = self.clients.values().map(TestClient::wake);
            let next = lives.chain(clients).chain(flight).min();
            let next = next.filter(|next| *next <= end);
            let Some(next) = next else {
                self.now = end;
                return false;
            };
            self.now = self.now.max(next);
            self.turn();
        }
    }

    fn turn(&mut self) {
        let now = self.now;
        while let Some(entry) = self.flights.first_entry()
            && entry.key().0 <= now
        {
            let flight = entry.remove();
            if flight.up {
                self.arrive(flight.source, flight.destination, &flight.contents);
                continue;
            }
            let at_address = self.clients.iter_mut();
            let at_address = at_address.filter(|(_, client)| client.address == flight.destination);
            let mut numbers = Vec::new();
            for (number, client) in at_address.filter(|(number, _)| !self.away.contains(number)) {
                client.handle_datagram(flight.source, flight.destination, &flight.contents, now);
                numbers.push(*number);
            }
            for number in numbers {
                self.flush_client(number);
            }
        }
        let due = self.clients.iter().filter(|(_, client)| client.wake() <= now);
        for number in due.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.client(number).handle_timeout(now);
            self.flush_client(number);
        }
        let due = self.lives.iter().filter(|(_, life)| !life.gone && life.wake <= now);
        for number in due.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.life(number).session.handle_timeout(now);
            self.drain(number);
        }
    }

    /// Delivers a packet to the runner's port.
    fn arrive(&mut self, source: SocketAddr, destination: SocketAddr, contents: &[u8]) {
        let takers = self.routes.recipients(RemotePath::from(source), contents);
        for number in takers.map(|(number, ())| number).collect::<Vec<_>>() {
            let now = self.now;
            let life = self.life(number);
            life.session
                .handle_packet(&ReceivedPacket::from_datagram(source, destination, contents), now);
            self.drain(number);
        }
    }

    /// Handles a session's outputs after an input.
    pub fn touch(&mut self, number: u64) {
        self.drain(number);
    }

    fn flush(&mut self, number: u64) {
        self.drain(number);
        self.flush_client(number);
    }

    fn flush_client(&mut self, number: u64) {
        let now = self.now;
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        let source = client.address;
        for (destination, contents) in client.drain(now) {
            match contents[..2] {
                [0, 1] => drop(self.checks.insert(number, contents.clone())),
                [1, 1] => drop(self.answers.insert(number, contents.clone())),
                _ => {}
            }
            let is_check = contents.starts_with(&[0, 1]);
            let joined = self.lives[&number].joined().is_some();
            if self.away.contains(&number) || (is_check && joined && self.answering.contains(&number)) {
                continue;
            }
            self.launch(true, source, destination, contents);
        }
    }

    fn drain(&mut self, number: u64) {
        let (now, at) = (self.now, self.now - self.start);
        let mut rivals = Vec::new();
        loop {
            let life = self.lives.get_mut(&number).expect("a session");
            match life.session.poll_output(now) {
                SessionOutput::Timeout(Deadline { at: wake, .. }) => {
                    // After sending audio, the bot is asked again and has none.
                    life.wake = wake.max(now + Duration::from_micros(1));
                    break;
                }
                SessionOutput::Closed => {
                    life.gone = true;
                    let ufrag = life.ufrag.clone();
                    self.routes.unregister(Some(&ufrag), number, None);
                    break;
                }
                SessionOutput::Command(WebRtcCommand::Transmit(mut transmit)) => {
                    let (source, destination) = (transmit.source, transmit.destination);
                    let finds_peer = transmit.is_check() || transmit.is_answer();
                    let contents = transmit.contents().to_vec();
                    life.sent.push((destination, contents[0]));
                    if finds_peer {
                        self.routes.expect_answers(destination.into(), number, &());
                    }
                    self.launch(false, source, destination, contents);
                }
                SessionOutput::Command(WebRtcCommand::PathValidated(proven)) => {
                    life.proven.push((at, proven.peer));
                    let others = self.routes.mark_validated(proven.peer.into(), number, &());
                    rivals.extend(others.into_iter().map(|other| (other, CompetingSession::AtAddress)));
                }
                SessionOutput::Command(WebRtcCommand::ProbeOutcome(found)) => life.found.push((at, found)),
                SessionOutput::Command(WebRtcCommand::Announce(rival)) => {
                    let others = self.lives.keys().filter(|other| **other != number);
                    rivals.extend(others.map(|other| (*other, rival)));
                }
                SessionOutput::Command(WebRtcCommand::Progress(_)) | SessionOutput::BotAudioWanted => {}
                SessionOutput::Audio(_) => life.frames += 1,
                SessionOutput::Event(event) => life.events.push((at, event)),
            }
        }
        for (other, rival) in rivals {
            if !self.lives[&other].gone {
                self.life(other).session.handle_competitor(rival, now);
                self.drain(other);
            }
        }
    }

    fn launch(&mut self, up: bool, source: SocketAddr, destination: SocketAddr, contents: Vec<u8>) {
        self.flown += 1;
        let flight = Flight {
            up,
            source,
            destination,
            contents,
        };
        self.flights.insert((self.now + WAY, self.flown), flight);
    }

    /// Returns the number of sessions.
    pub fn living(&self) -> usize {
        self.lives.values().filter(|life| !life.gone).count()
    }
}
