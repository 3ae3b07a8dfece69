//! STUN servers in virtual time: requests, answers and silence.

use std::time::Duration;

use super::*;
use crate::limits::{GATHER_PAUSE_FIRST, GATHER_PAUSE_MAX};

const BASE: &str = "192.168.1.5:7860";
const PUBLIC: &str = "203.0.113.9:40000";

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Answers a request, or does not.
type Server<'s> = &'s mut dyn FnMut(SocketAddr, &[u8]) -> Option<Vec<u8>>;

/// The gatherer with a clock and resolvable names.
struct Rig {
    reflexive: ReflexiveGatherer,
    now: Instant,
    start: Instant,
    addresses: Result<Vec<SocketAddr>, String>,
    sent: Vec<(Duration, SocketAddr)>,
    resolved: Vec<Duration>,
    forgotten: Vec<SocketAddr>,
    changes: usize,
}

impl Rig {
    fn new(addresses: &[&str]) -> Self {
        let start = Instant::now();
        Rig {
            reflexive: ReflexiveGatherer::new(["stun.example:3478".to_owned()], start),
            now: start,
            start,
            addresses: Ok(addresses.iter().map(|text| at(text)).collect()),
            sent: Vec::new(),
            resolved: Vec::new(),
            forgotten: Vec::new(),
            changes: 0,
        }
    }

    /// Runs for a time; `server` answers requests at once.
    fn run(&mut self, time: Duration, server: Server<'_>) {
        let end = self.now + time;
        loop {
            match self.reflexive.poll_output(self.now) {
                ReflexiveOutput::Resolve(index) => {
                    self.resolved.push(self.now - self.start);
                    let found = self.addresses.clone();
                    self.reflexive.handle_resolved(index, found, self.now);
                }
                ReflexiveOutput::Send(to, message) => {
                    self.sent.push((self.now - self.start, to));
                    if let Some(answer) = server(to, &message) {
                        self.reflexive.handle_datagram(to, at(BASE), &answer, self.now);
                    }
                }
                ReflexiveOutput::Forget(address) => self.forgotten.push(address),
                ReflexiveOutput::Changed(_) => self.changes += 1,
                ReflexiveOutput::Timeout(due) => {
                    assert!(due > self.now, "time stands still");
                    if due >= end {
                        self.now = end;
                        return;
                    }
                    self.now = due;
                }
            }
        }
    }

    fn mapped(&self) -> Vec<(SocketAddr, SocketAddr)> {
        self.reflexive.mappings(0).collect()
    }

    fn failure(&self) -> &str {
        match self.reflexive.state(0) {
            ServerState::Failed(why) => why,
            other => panic!("it stands {other:?}"),
        }
    }
}

fn answer(request: &[u8], public: &str) -> Vec<u8> {
    let request = Message::from_bytes(request).expect("a request");
    let mut answer = Message::builder_success(&request, MessageWriteVec::new());
    let mapped = XorMappedAddress::new(at(public), request.transaction_id());
    answer.add_attribute(&mapped).expect("room");
    answer.finish()
}

fn refuse(request: &[u8], code: u16) -> Vec<u8> {
    let request = Message::from_bytes(request).expect("a request");
    let mut answer = Message::builder_error(&request, MessageWriteVec::new());
    let error = ErrorCode::builder(code).build().expect("a code");
    answer.add_attribute(&error).expect("room");
    answer.finish()
}

const SERVER: &str = "198.51.100.1:3478";
const SERVER_V6: &str = "[2001:db8::1]:3478";

/// The first answer gives the mapping. Afterwards one request per 25 s keeps it, without changes.
#[test]
fn a_mapping_is_found_and_kept_alive() {
    let mut rig = Rig::new(&[SERVER]);
    rig.run(Duration::from_secs(60), &mut |_, request| Some(answer(request, PUBLIC)));
    assert_eq!(rig.mapped(), [(at(PUBLIC), at(BASE))]);
    let times: Vec<u64> = rig.sent.iter().map(|(time, _)| time.as_secs()).collect();
    assert_eq!(times, [0, 25, 50]);
    assert_eq!((rig.changes, rig.reflexive.state(0)), (1, &ServerState::Working));
}

/// A NAT that lost the mapping creates another, which replaces the old one.
#[test]
fn a_changed_mapping_is_noticed() {
    let mut rig = Rig::new(&[SERVER]);
    rig.run(Duration::from_secs(10), &mut |_, request| Some(answer(request, PUBLIC)));
    rig.run(Duration::from_secs(30), &mut |_, request| {
        Some(answer(request, "203.0.113.9:40001"))
    });
    assert_eq!(rig.mapped(), [(at("203.0.113.9:40001"), at(BASE))]);
    assert_eq!(rig.changes, 2);
}

/// One unanswered request changes nothing. Two in a row end the mapping, and the name is resolved
/// again.
#[test]
fn two_unanswered_requests_end_a_mapping() {
    let mut rig = Rig::new(&[SERVER]);
    rig.run(Duration::from_secs(10), &mut |_, request| Some(answer(request, PUBLIC)));
    rig.run(Duration::from_secs(22), &mut |_, _| None);
    assert_eq!(rig.mapped().len(), 1, "one request is lost at 30 s");
    rig.run(Duration::from_secs(4), &mut |_, _| None);
    assert_eq!(rig.mapped(), []);
    assert_eq!(rig.failure(), "no answer from stun.example:3478 over UDP");
    assert_eq!(rig.forgotten, [at(SERVER)]);
    rig.run(Duration::from_secs(10), &mut |_, request| Some(answer(request, PUBLIC)));
    assert_eq!((rig.mapped().len(), rig.resolved.len()), (1, 2));
}

/// A dead server is queried ever more rarely, and its state is reported once per attempt.
#[test]
fn a_dead_server_is_queried_ever_more_rarely() {
    let mut rig = Rig::new(&[SERVER]);
    rig.run(Duration::from_secs(24 * 3600), &mut |_, _| None);
    let gaps: Vec<Duration> = rig.resolved.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let request = Duration::from_secs(5);
    assert_eq!(gaps[0], GATHER_PAUSE_FIRST + request);
    assert_eq!(gaps.last(), Some(&(GATHER_PAUSE_MAX + request)));
    assert!(rig.sent.len() < 1300, "{} datagrams in a day", rig.sent.len());
    assert_eq!(rig.changes, rig.resolved.len());
}

/// A dead IPv6 path does not affect the IPv4 mapping, and is retried independently.
#[test]
fn address_families_are_independent() {
    let mut rig = Rig::new(&[SERVER_V6, SERVER]);
    let mut v4_only = |to: SocketAddr, request: &[u8]| to.is_ipv4().then(|| answer(request, PUBLIC));
    rig.run(Duration::from_secs(600), &mut v4_only);
    assert_eq!(rig.mapped(), [(at(PUBLIC), at(BASE))]);
    assert_eq!(rig.reflexive.state(0), &ServerState::Working);
    assert_eq!(rig.resolved.len(), 1);
    let tries = rig.sent.iter().filter(|(_, to)| to.is_ipv6()).count();
    assert!((20..60).contains(&tries), "{tries}");
}

/// Errors are described, and failing names are resolved again.
#[test]
fn failures_are_described() {
    let mut rig = Rig::new(&[SERVER]);
    rig.run(Duration::from_secs(1), &mut |_, request| Some(refuse(request, 403)));
    assert_eq!(
        rig.failure(),
        "stun.example:3478 refuses: 403: the server forbids it to this user or address"
    );
    let mut rig = Rig::new(&[]);
    rig.run(Duration::from_secs(1), &mut |_, _| None);
    assert!(rig.failure().contains("no address"), "{}", rig.failure());
    let mut rig = Rig::new(&[]);
    rig.addresses = Err("cannot look it up".into());
    rig.run(Duration::from_secs(20), &mut |_, _| None);
    assert_eq!((rig.failure(), rig.resolved.len()), ("cannot look it up", 5));
}

/// Other sources, other transactions and malformed packets have no effect.
#[test]
fn only_answers_to_requests_count() {
    let mut rig = Rig::new(&[SERVER]);
    let mut asked = Vec::new();
    rig.run(Duration::from_millis(100), &mut |_, request| {
        asked = request.to_vec();
        None
    });
    let good = answer(&asked, PUBLIC);
    let mut other = good.clone();
    other[10] ^= 1;
    let now = rig.now;
    rig.reflexive
        .handle_datagram(at("198.51.100.2:3478"), at(BASE), &good, now);
    rig.reflexive.handle_datagram(at(SERVER), at(BASE), &other, now);
    rig.reflexive.handle_datagram(at(SERVER), at(BASE), &asked, now);
    rig.reflexive
        .handle_datagram(at(SERVER), at(BASE), &answer(&asked, "0.0.0.0:0"), now);
    for end in 0..good.len() {
        rig.reflexive.handle_datagram(at(SERVER), at(BASE), &good[..end], now);
    }
    assert_eq!(rig.mapped(), []);
    rig.reflexive.handle_datagram(at(SERVER), at(BASE), &good, now);
    assert_eq!(rig.mapped().len(), 1);
    rig.reflexive
        .handle_datagram(at(SERVER), at("192.168.1.6:7860"), &good, now);
    assert_eq!(rig.mapped(), [(at(PUBLIC), at(BASE))], "the same answer twice");
}
