//! An allocation with a scripted server in virtual time: requests, responses and silence.

use std::collections::HashMap;

use turn_client_proto::types::attribute::{ChannelNumber, Lifetime, XorPeerAddress, XorRelayedAddress};
use turn_client_proto::types::stun::attribute::{Nonce, Realm};
use turn_client_proto::types::stun::message::{
    BINDING, IntegrityAlgorithm, IntegrityKey, LongTermCredentials, MessageWriteVec,
};
use turn_client_proto::types::stun::prelude::{MessageWrite, MessageWriteExt};

use super::*;
use crate::limits::{RELAY_PEER_FORGOTTEN, STUN_KEEP_ALIVE};

const LOCAL: &str = "192.168.1.5:50000";
const SERVER: &str = "198.51.100.1:3478";
const RELAYED: &str = "198.51.100.1:49200";
const PEER: &str = "203.0.113.7:40000";
const REALM: &str = "example";

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A TURN server that grants everything its script does not reject.
struct Server {
    key: IntegrityKey,
    nonce: String,
    /// An allocation exists; a restarted server has none.
    allocated: bool,
    silent: bool,
    /// The error codes for requests of a method.
    refuse: HashMap<u16, u16>,
    relayed: Vec<SocketAddr>,
    channels: HashMap<u16, SocketAddr>,
    /// The methods of authenticated requests.
    asked: Vec<Method>,
    /// Datagrams relayed to peers.
    passed: Vec<(SocketAddr, Vec<u8>)>,
}

impl Server {
    fn new() -> Self {
        let credentials = LongTermCredentials::new("user".into(), "secret".into());
        Server {
            key: credentials.to_key(REALM.into()).make_key(IntegrityAlgorithm::Sha1),
            nonce: "first".into(),
            allocated: false,
            silent: false,
            refuse: HashMap::new(),
            relayed: vec![at(RELAYED)],
            channels: HashMap::new(),
            asked: Vec::new(),
            passed: Vec::new(),
        }
    }

    fn error(&self, request: &Message<'_>, code: u16, signed: bool) -> Option<Vec<u8>> {
        let mut answer = Message::builder_error(request, MessageWriteVec::new());
        answer.add_attribute(&ErrorCode::builder(code).build().ok()?).ok()?;
        if matches!(code, 401 | 438) {
            answer.add_attribute(&Nonce::new(&self.nonce).ok()?).ok()?;
            answer.add_attribute(&Realm::new(REALM).ok()?).ok()?;
        } else if signed {
            answer
                .add_message_integrity_with_key(&self.key, IntegrityAlgorithm::Sha1)
                .ok()?;
        }
        Some(answer.finish())
    }

    fn handle(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        if self.silent {
            return None;
        }
        if let [0x40..=0x4f, ..] = datagram {
            let peer = self.channels[&u16::from_be_bytes([datagram[0], datagram[1]])];
            self.passed.push((peer, datagram[4..].to_vec()));
            return None;
        }
        let request = Message::from_bytes(datagram).expect("a STUN message");
        let id = request.transaction_id();
        let peer = request.attribute::<XorPeerAddress>().map(|peer| peer.addr(id));
        if request.has_class(MessageClass::Indication) {
            let data = request
                .attribute::<turn_client_proto::types::attribute::Data>()
                .expect("data");
            self.passed.push((peer.expect("a peer"), data.data().to_vec()));
            return None;
        }
        let Ok(nonce) = request.attribute::<Nonce>() else {
            return self.error(&request, 401, false);
        };
        if request.validate_integrity_with_key(&self.key).is_err() {
            return self.error(&request, 401, false);
        }
        if nonce.nonce() != self.nonce {
            return self.error(&request, 438, false);
        }
        self.asked.push(request.method());
        if let Some(code) = self.refuse.get(&request.method().value()) {
            return self.error(&request, *code, true);
        }
        if !self.allocated && request.method() != ALLOCATE {
            return self.error(&request, 437, true);
        }
        let mut answer = Message::builder_success(&request, MessageWriteVec::new());
        match request.method() {
            ALLOCATE => {
                self.allocated = true;
                for relayed in &self.relayed {
                    answer.add_attribute(&XorRelayedAddress::new(*relayed, id)).ok()?;
                }
                answer.add_attribute(&Lifetime::new(1800)).ok()?;
            }
            REFRESH => {
                let lifetime = request.attribute::<Lifetime>().expect("a lifetime").seconds();
                self.allocated = lifetime > 0;
                answer.add_attribute(&Lifetime::new(lifetime)).ok()?;
            }
            CHANNEL_BIND => {
                let channel = request.attribute::<ChannelNumber>().expect("a channel").channel();
                self.channels.insert(channel, peer.expect("a peer"));
            }
            CREATE_PERMISSION => {}
            other => panic!("{other}"),
        }
        answer
            .add_message_integrity_with_key(&self.key, IntegrityAlgorithm::Sha1)
            .ok()?;
        Some(answer.finish())
    }

    fn count(&self, method: Method) -> usize {
        self.asked.iter().filter(|asked| **asked == method).count()
    }
}

/// An allocation, its server, and their clock.
struct Rig {
    relay: TurnAllocation,
    server: Server,
    now: Instant,
    start: Instant,
    up: Vec<SocketAddr>,
    lost: Option<AllocationEnd>,
}

impl Rig {
    fn new(server: Server) -> Self {
        Rig::with(server, SERVER, "secret", false)
    }

    fn with(server: Server, address: &str, credential: &str, over_stream: bool) -> Self {
        let start = Instant::now();
        let setup = AllocationSetup {
            local: at(LOCAL),
            server: at(address),
            over_stream,
            username: "user",
            credential,
            sends_first: false,
        };
        Rig {
            relay: TurnAllocation::new(&setup, start),
            server,
            now: start,
            start,
            up: Vec::new(),
            lost: None,
        }
    }

    /// Runs for a time, or until the allocation ends.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < 10_000, "a busy loop");
            match self.relay.poll_output() {
                RelayOutput::Transmit(message) => {
                    if let Some(answer) = self.server.handle(&message) {
                        self.relay.handle_message(&answer, self.now, |_, _| panic!("data"));
                    }
                }
                RelayOutput::Up(addresses) => self.up = addresses,
                RelayOutput::Ended(loss) => {
                    self.lost = Some(loss);
                    return;
                }
                RelayOutput::Timeout(due) if due >= end => {
                    self.now = end;
                    return;
                }
                RelayOutput::Timeout(due) => {
                    self.now = due.max(self.now);
                    self.relay.handle_timeout(self.now);
                }
            }
        }
    }

    fn seconds(&mut self, seconds: u64) {
        self.run(Duration::from_secs(seconds));
    }

    /// Sends as a session does. Immediate output goes to the server.
    fn send(&mut self, peer: &str, contents: &[u8]) {
        if let Some(message) = self.relay.send(at(peer), contents, self.now) {
            let message = message.to_vec();
            self.server.handle(&message);
        }
    }

    /// Delivers a packet of a peer, which has a permission by now.
    fn hear(&mut self, peer: &str) {
        let message = indication(peer, &[7]);
        assert_eq!(self.received(&message), [(at(peer), vec![7])]);
    }

    /// Gets a permission for a peer, and delivers a packet of it.
    fn meet(&mut self, peer: &str) {
        self.send(peer, CHECK);
        self.seconds(1);
        self.hear(peer);
    }

    fn received(&mut self, message: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut received = Vec::new();
        self.relay
            .handle_message(message, self.now, |peer, data| received.push((peer, data.to_vec())));
        received
    }
}

/// Returns a Data indication, for a peer without a channel.
fn indication(peer: &str, contents: &[u8]) -> Vec<u8> {
    let mut message = Message::builder_indication(turn_client_proto::types::message::DATA, MessageWriteVec::new());
    let peer = XorPeerAddress::new(at(peer), message.transaction_id());
    message.add_attribute(&peer).expect("room");
    message
        .add_attribute(&turn_client_proto::types::attribute::Data::new(contents))
        .expect("room");
    message.finish()
}

const CHECK: &[u8] = &[0, 1, 0, 0];
const MEDIA: &[u8] = &[0x80, 111, 0, 1, 5];

fn up() -> Rig {
    let mut rig = Rig::new(Server::new());
    rig.seconds(1);
    assert_eq!(rig.up, [at(RELAYED)]);
    rig
}

/// The challenge is answered, and the relayed address is available at once.
#[test]
fn an_allocation_is_made() {
    let rig = up();
    assert_eq!(rig.server.asked, [ALLOCATE]);
    assert_eq!(rig.lost, None);
}

/// Over IPv6 both families are requested. A server with one family is asked again for that.
#[test]
fn address_families_are_those_that_the_server_has() {
    let mut server = Server::new();
    server.relayed.push(at("[2001:db8::5]:49201"));
    let mut rig = Rig::with(server, "[2001:db8::1]:3478", "secret", false);
    rig.seconds(1);
    assert_eq!(rig.up, [at(RELAYED), at("[2001:db8::5]:49201")]);
    let mut server = Server::new();
    server.refuse.insert(ALLOCATE.value(), 440);
    let mut rig = Rig::with(server, "[2001:db8::1]:3478", "secret", false);
    while rig.server.count(ALLOCATE) == 0 {
        rig.run(Duration::from_millis(1));
    }
    rig.server.refuse.clear();
    rig.seconds(1);
    assert_eq!(rig.up, [at(RELAYED)]);
}

/// An error response ends the attempt at once.
#[test]
fn refusals_are_reported_at_once() {
    let mut rig = Rig::with(Server::new(), SERVER, "wrong", false);
    rig.seconds(60);
    assert_eq!(
        rig.lost.as_ref().map(ToString::to_string),
        Some("401: wrong username or credential".into())
    );
    assert!(rig.now - rig.start < Duration::from_millis(200));
    for code in [300, 400, 403, 437, 442, 486, 500, 508] {
        let mut server = Server::new();
        server.refuse.insert(ALLOCATE.value(), code);
        let mut rig = Rig::new(server);
        rig.seconds(60);
        assert!(
            matches!(&rig.lost, Some(AllocationEnd::Refused { code: reported, .. }) if *reported == code),
            "{code}"
        );
        assert!(rig.now - rig.start < Duration::from_millis(200), "{code}");
    }
    let mut server = Server::new();
    server.relayed = vec![at("0.0.0.0:49200")];
    let mut rig = Rig::new(server);
    rig.seconds(1);
    assert_eq!(rig.lost, Some(AllocationEnd::NoAddress));
}

/// An unanswered request times out after 5 s, over UDP and over a stream.
#[test]
fn a_silent_server_is_given_up_after_5_s() {
    for over_stream in [false, true] {
        let mut server = Server::new();
        server.silent = true;
        let mut rig = Rig::with(server, SERVER, "secret", over_stream);
        rig.seconds(60);
        assert_eq!(rig.lost, Some(AllocationEnd::NoAnswer));
        let took = rig.now - rig.start;
        assert!((4..=6).contains(&took.as_secs()), "{took:?}");
    }
}

/// The allocation lives while the server answers, through stale nonces, with one refresh per 25 s.
#[test]
fn a_working_allocation_is_kept_alive() {
    let mut rig = up();
    for hour in 0..3 {
        rig.server.nonce = format!("nonce {hour}");
        rig.seconds(3600);
        assert_eq!(rig.lost, None);
    }
    let refreshes = rig.server.count(REFRESH) as u64;
    let signs = 3 * 3600 / STUN_KEEP_ALIVE.as_secs();
    assert!((signs..signs + 20).contains(&refreshes), "{refreshes}");
}

/// A restarted server does not know the allocation, which the next refresh detects.
#[test]
fn a_restarted_server_is_noticed() {
    let mut rig = up();
    rig.seconds(100);
    rig.server.allocated = false;
    rig.server.nonce = "of another life".into();
    let before = rig.now;
    rig.seconds(3600);
    assert_eq!(rig.lost, Some(AllocationEnd::Forgotten));
    assert!(rig.now - before <= STUN_KEEP_ALIVE + Duration::from_secs(1));
}

/// A session's first datagram detects it even sooner.
#[test]
fn a_permission_error_ends_a_lost_allocation() {
    let mut rig = up();
    rig.server.allocated = false;
    rig.server.nonce = "of another life".into();
    rig.send(PEER, CHECK);
    rig.seconds(1);
    assert_eq!(rig.lost, Some(AllocationEnd::Forgotten));
}

/// One lost refresh changes nothing; two in a row end the allocation.
#[test]
fn two_unanswered_refreshes_end_the_allocation() {
    let mut rig = up();
    rig.server.silent = true;
    rig.seconds(STUN_KEEP_ALIVE.as_secs() + 2);
    rig.server.silent = false;
    rig.seconds(600);
    assert_eq!(rig.lost, None);
    rig.server.silent = true;
    let before = rig.now;
    rig.seconds(600);
    assert_eq!(rig.lost, Some(AllocationEnd::NoAnswer));
    assert!(rig.now - before < STUN_KEEP_ALIVE + Duration::from_secs(12));
}

/// The first datagram requests a permission. Once the peer was heard, datagrams pass. Media
/// requests a channel with 4 bytes of overhead; checks do not.
#[test]
fn peers_get_a_permission_and_then_a_channel() {
    let mut rig = up();
    rig.send(PEER, CHECK);
    rig.seconds(1);
    rig.send(PEER, CHECK);
    assert!(rig.server.passed.is_empty(), "no peer was heard");
    rig.hear(PEER);
    rig.send(PEER, CHECK);
    rig.send("203.0.113.7:40001", CHECK);
    rig.send("203.0.113.8:40001", CHECK);
    rig.seconds(1);
    let passed = [(at(PEER), CHECK.to_vec()), (at("203.0.113.7:40001"), CHECK.to_vec())];
    assert_eq!(rig.server.passed, passed);
    assert_eq!(
        (rig.server.count(CREATE_PERMISSION), rig.server.count(CHANNEL_BIND)),
        (2, 0)
    );
    rig.send(PEER, MEDIA);
    rig.seconds(1);
    assert_eq!((rig.server.passed.len(), rig.server.count(CHANNEL_BIND)), (3, 1));
    let message = rig.relay.send(at(PEER), MEDIA, rig.now).expect("a message");
    assert_eq!(message, [&[0x40, 0, 0, 5], MEDIA].concat());
}

/// No candidate makes the relay send to its address.
#[test]
fn the_relay_sends_only_to_peers_that_sent_packets() {
    let mut rig = up();
    for _ in 0..20 {
        for peer in ["10.0.0.1:1", "240.0.0.1:1", PEER] {
            rig.send(peer, CHECK);
            rig.send(peer, MEDIA);
        }
        rig.seconds(1);
    }
    assert!(rig.server.passed.is_empty());
    assert_eq!(
        (rig.server.count(CREATE_PERMISSION), rig.server.count(CHANNEL_BIND)),
        (3, 0)
    );
}

/// Data of peers is delivered with their address, through channels and indications. Data of unknown
/// peers and malformed packets are ignored.
#[test]
fn data_of_peers_is_delivered() {
    let mut rig = up();
    assert!(rig.received(&[0x40, 0, 0, 1, 9]).is_empty(), "no such channel");
    assert!(rig.received(&indication(PEER, &[8])).is_empty(), "no permission");
    rig.meet(PEER);
    rig.send(PEER, MEDIA);
    rig.seconds(1);
    assert_eq!(rig.received(&[0x40, 0, 0, 1, 9]), [(at(PEER), vec![9])]);
    let indication = indication(PEER, &[8]);
    assert_eq!(rig.received(&indication), [(at(PEER), vec![8])]);
    for end in 0..indication.len() {
        assert!(rig.received(&indication[..end]).is_empty());
    }
    for index in 0..indication.len() {
        let mut changed = indication.clone();
        changed[index] ^= 0xff;
        let _ = rig.received(&changed);
    }
    let mut strange = Message::builder_request(BINDING, MessageWriteVec::new());
    let _ = strange.add_attribute(&Lifetime::new(0));
    assert!(rig.received(&strange.finish()).is_empty());
    rig.seconds(60);
    assert_eq!(rig.lost, None);
}

/// Over a stream, channel messages are padded to four bytes.
#[test]
fn channel_data_is_padded_on_a_stream() {
    let mut rig = Rig::with(Server::new(), SERVER, "secret", true);
    rig.seconds(1);
    rig.meet(PEER);
    rig.send(PEER, MEDIA);
    rig.seconds(1);
    let message = rig.relay.send(at(PEER), MEDIA, rig.now).expect("a message");
    assert_eq!(message, [&[0x40, 0, 0, 5], MEDIA, &[0, 0, 0]].concat());
}

/// A peer in use keeps permission and channel for hours. Those of an idle one expire and are
/// requested again on use.
#[test]
fn unused_permissions_and_channels_expire() {
    let mut rig = up();
    rig.meet(PEER);
    for _ in 0..360 {
        rig.send(PEER, MEDIA);
        rig.seconds(10);
    }
    let channels = rig.server.count(CHANNEL_BIND);
    assert!(
        rig.server.count(CREATE_PERMISSION) >= 13 && channels >= 6,
        "{:?}",
        rig.server.asked.len()
    );
    let (before, passed) = (rig.server.asked.len(), rig.server.passed.len());
    assert_eq!(passed, 360);
    rig.run(2 * RELAY_PEER_FORGOTTEN);
    let asked = &rig.server.asked[before..];
    assert!(asked.iter().all(|method| *method == REFRESH), "{asked:?}");
    assert_eq!(rig.lost, None);
    rig.meet(PEER);
    rig.send(PEER, CHECK);
    assert_eq!(rig.server.passed.len(), passed + 1);
}

/// A forbidden peer is not requested with every check, and others are served.
#[test]
fn a_forbidden_peer_is_not_requested_again() {
    let mut rig = up();
    rig.server.refuse.insert(CREATE_PERMISSION.value(), 403);
    for _ in 0..10 {
        rig.send(PEER, CHECK);
        rig.seconds(1);
    }
    assert_eq!((rig.server.count(CREATE_PERMISSION), rig.lost.clone()), (1, None));
    rig.server.refuse.clear();
    rig.meet("203.0.113.8:1");
    rig.send("203.0.113.8:1", CHECK);
    assert_eq!(rig.server.passed, [(at("203.0.113.8:1"), CHECK.to_vec())]);
}

/// Nothing is sent to a family without a relayed address.
#[test]
fn peers_of_another_family_are_unreachable() {
    let mut rig = up();
    rig.send("[2001:db8::9]:1", CHECK);
    rig.seconds(1);
    assert_eq!(rig.server.asked, [ALLOCATE]);
}

/// The allocation is released even with a stale nonce. Without an allocation nothing is sent.
#[test]
fn an_allocation_is_released() {
    let mut rig = up();
    rig.server.nonce = "another".into();
    rig.relay.close(rig.now);
    rig.seconds(1);
    assert_eq!(
        (rig.lost.clone(), rig.server.allocated),
        (Some(AllocationEnd::Released), false)
    );
    let mut server = Server::new();
    server.silent = true;
    let mut rig = Rig::new(server);
    rig.relay.close(rig.now);
    rig.seconds(1);
    assert_eq!(rig.lost, Some(AllocationEnd::Released));
}

/// Unanswered requests are remembered up to the cap; responses to the newest still count.
#[test]
fn pending_requests_are_capped() {
    let mut rig = up();
    rig.server.silent = true;
    for n in 0..2 * RELAY_REQUESTS_MAX {
        let peer = format!("10.0.{}.{}:1", n / 250, n % 250 + 1);
        rig.relay.send(at(&peer), CHECK, rig.now);
        rig.run(Duration::from_millis(60));
    }
    assert_eq!(rig.relay.pending_requests.len(), RELAY_REQUESTS_MAX);
    rig.server.silent = false;
    rig.server.refuse.insert(CREATE_PERMISSION.value(), 437);
    rig.send("10.1.0.1:1", CHECK);
    rig.seconds(1);
    assert_eq!(rig.lost, Some(AllocationEnd::Forgotten));
}
