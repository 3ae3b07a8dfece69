//! Properties of an allocation at a TURN server that may do anything.
//!
//! In: a byte of options, then operations: a kind, a length, and that many bytes. The kinds are in
//! [`Rig::step`]. The server knows the credentials, so it can sign; what it does not sign, and
//! what is no answer, brings no address and no data of a stranger. Each operation has a bounded
//! number of outputs, each message to the server is TURN, and nothing follows the end.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use edge_runner_proto::limits;
use edge_runner_proto::webrtc::relay::stream::TurnStreamReader;
use edge_runner_proto::webrtc::relay::{AllocationSetup, RelayOutput, TurnAllocation};
use turn_client_proto::types::attribute::{Data, Lifetime, XorPeerAddress, XorRelayedAddress};
use turn_client_proto::types::message::{ALLOCATE, DATA};
use turn_client_proto::types::stun::attribute::{ErrorCode, Nonce, Realm};
use turn_client_proto::types::stun::message::{
    IntegrityAlgorithm, IntegrityKey, LongTermCredentials, Message, MessageClass, MessageType, MessageWriteVec,
};
use turn_client_proto::types::stun::prelude::{MessageWrite, MessageWriteExt};

/// Operations of an input.
const OPERATIONS_MAX: usize = 256;
/// Outputs of one operation.
const OUTPUTS_MAX: usize = 64;
/// The last requests, which the server can answer.
const REQUESTS_KEPT: usize = 8;
/// The shortest time between two deadlines, so that they cannot become a busy loop.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const REALM: &str = "example";
/// Codes with a meaning of their own, and others.
const CODES: [u16; 12] = [300, 400, 401, 403, 437, 438, 440, 441, 442, 443, 486, 508];

struct Rig {
    relay: TurnAllocation,
    now: Instant,
    key: IntegrityKey,
    wrong_key: IntegrityKey,
    requests: Vec<Vec<u8>>,
    /// A signed Allocate answer was given.
    has_granted: bool,
    /// Addresses to which datagrams were sent.
    sent_to: BTreeSet<IpAddr>,
    is_up: bool,
    has_ended: bool,
    stream: TurnStreamReader,
    is_stream_broken: bool,
}

fn key(password: &str) -> IntegrityKey {
    let credentials = LongTermCredentials::new("user".into(), password.into());
    credentials.to_key(REALM.into()).make_key(IntegrityAlgorithm::Sha1)
}

fn peer(number: u8) -> SocketAddr {
    SocketAddr::new(
        Ipv4Addr::new(203, 0, 113, number).into(),
        40_000 + u16::from(number % 3),
    )
}

fn address(bytes: &[u8]) -> SocketAddr {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(9);
    SocketAddr::new(
        Ipv4Addr::new(byte(0), byte(1), byte(2), byte(3)).into(),
        u16::from_be_bytes([byte(4), byte(5)]),
    )
}

/// Reads the operations of an input.
fn operations(bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let (mut operations, mut rest) = (Vec::new(), bytes);
    while let [kind, length, behind @ ..] = rest
        && operations.len() < OPERATIONS_MAX
    {
        let (contents, after) = behind.split_at(behind.len().min(usize::from(*length)));
        operations.push((*kind, contents));
        rest = after;
    }
    operations
}

/// An allocation gets what a server sends, and what a session does.
pub fn turn(bytes: &[u8]) {
    let options = bytes.first().copied().unwrap_or_default();
    let now = Instant::now();
    let is_v6 = options & 1 == 1;
    let setup = AllocationSetup {
        local: if is_v6 {
            "[2001:db8::5]:50000"
        } else {
            "192.168.1.5:50000"
        }
        .parse()
        .expect("an address"),
        server: if is_v6 {
            "[2001:db8::1]:3478"
        } else {
            "198.51.100.1:3478"
        }
        .parse()
        .expect("an address"),
        over_stream: options & 2 == 2,
        username: "user",
        credential: "secret",
        sends_first: options & 4 == 4,
    };
    let mut rig = Rig {
        relay: TurnAllocation::new(&setup, now),
        now,
        key: key("secret"),
        wrong_key: key("wrong"),
        requests: Vec::new(),
        has_granted: false,
        sent_to: BTreeSet::new(),
        is_up: false,
        has_ended: false,
        stream: TurnStreamReader::default(),
        is_stream_broken: false,
    };
    rig.drain();
    for (kind, contents) in operations(bytes.get(1..).unwrap_or_default()) {
        rig.step(kind, contents);
        rig.drain();
    }
    stream_of_pieces(bytes);
}

/// A stream gives the same messages however it is cut.
fn stream_of_pieces(bytes: &[u8]) {
    let read = |size: usize| {
        let (mut reader, mut messages) = (TurnStreamReader::default(), Vec::new());
        for piece in bytes.chunks(size) {
            reader.push(piece);
            loop {
                match reader.next_message() {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(error) => return (messages, Some(error)),
                }
            }
        }
        (messages, None)
    };
    let whole = read(bytes.len().max(1));
    assert!(whole.0.iter().map(|message| message.len()).sum::<usize>() <= bytes.len());
    assert_eq!(read(7), whole);
}

impl Rig {
    fn step(&mut self, kind: u8, contents: &[u8]) {
        match kind % 8 {
            0 => self.receive(contents),
            1 => {
                self.now += Duration::from_millis(u64::from(contents.first().copied().unwrap_or(1)) * 250);
                self.relay.handle_timeout(self.now);
            }
            2 => {
                if let Some(answer) = self.answer(contents) {
                    self.receive(&answer);
                }
            }
            3 => {
                let [number, data @ ..] = contents else { return };
                let to = peer(number % 8);
                let sent = self.relay.send(to, data, self.now).map(<[u8]>::to_vec);
                assert!(sent.is_none() || (self.is_up && !self.has_ended));
                assert!(sent.is_none_or(|sent| sent.len() <= data.len() + 128));
                self.sent_to.insert(to.ip());
            }
            // Channel data.
            4 => {
                let channel = 0x4000 + u16::from(contents.first().copied().unwrap_or_default() % 4);
                let data = contents.get(1..).unwrap_or_default();
                let mut message = channel.to_be_bytes().to_vec();
                message.extend((data.len() as u16).to_be_bytes());
                message.extend(data);
                self.receive(&message);
            }
            5 if !self.is_stream_broken => {
                self.stream.push(contents);
                loop {
                    match self.stream.next_message() {
                        Ok(Some(message)) => self.receive(&message),
                        Ok(None) => return,
                        Err(_) => {
                            self.is_stream_broken = true;
                            return;
                        }
                    }
                }
            }
            6 => {
                let [number, data @ ..] = contents else { return };
                if let Some(message) = indication(peer(*number), data) {
                    self.receive(&message);
                }
            }
            7 if contents.first() == Some(&0) => self.relay.close(self.now),
            _ => {}
        }
    }

    fn receive(&mut self, message: &[u8]) {
        let (sent_to, is_up, has_ended) = (&self.sent_to, self.is_up, self.has_ended);
        self.relay.handle_message(message, self.now, |from, data| {
            assert!(is_up && !has_ended, "data without an allocation");
            assert!(sent_to.contains(&from.ip()), "data of a stranger, {from}");
            assert!(data.len() <= message.len());
        });
    }

    /// Answers one of the last requests: `[request, code or success, signature, address or nonce]`.
    fn answer(&mut self, contents: &[u8]) -> Option<Vec<u8>> {
        let [which, code, signature, rest @ ..] = contents else {
            return None;
        };
        let at = usize::from(*which) % self.requests.len().max(1);
        let request = self.requests.get(self.requests.len().checked_sub(at + 1)?)?;
        let request = Message::from_bytes(request).expect("a request");
        let is_success = code % 2 == 0;
        let mut answer = match is_success {
            true => Message::builder_success(&request, MessageWriteVec::new()),
            false => Message::builder_error(&request, MessageWriteVec::new()),
        };
        let text = String::from_utf8_lossy(rest);
        if is_success {
            let relayed = XorRelayedAddress::new(address(rest), request.transaction_id());
            answer.add_attribute(&relayed).ok()?;
            let seconds = rest.get(6).map_or(1800, |seconds| u32::from(*seconds) * 16);
            answer.add_attribute(&Lifetime::new(seconds)).ok()?;
        } else {
            let code = CODES[usize::from(code / 2) % CODES.len()];
            answer
                .add_attribute(&ErrorCode::builder(code).reason(&text).build().ok()?)
                .ok()?;
            if matches!(code, 401 | 438) {
                let nonce = if text.is_empty() { "first" } else { &text };
                answer.add_attribute(&Nonce::new(nonce).ok()?).ok()?;
                answer.add_attribute(&Realm::new(REALM).ok()?).ok()?;
            }
        }
        let key = match signature % 4 {
            0 => None,
            1 => Some(&self.wrong_key),
            _ => Some(&self.key),
        };
        if let Some(key) = key {
            answer
                .add_message_integrity_with_key(key, IntegrityAlgorithm::Sha1)
                .ok()?;
        }
        self.has_granted |= is_success && signature % 4 > 1 && request.method() == ALLOCATE;
        Some(answer.finish())
    }

    fn drain(&mut self) {
        for _ in 0..OUTPUTS_MAX {
            match self.relay.poll_output() {
                RelayOutput::Timeout(at) => {
                    assert!(self.has_ended || at + PAUSE_MIN > self.now);
                    return;
                }
                _ if self.has_ended => panic!("an output after the end"),
                RelayOutput::Transmit(message) => {
                    let parsed = Message::from_bytes(&message).expect("a STUN message");
                    if parsed.has_class(MessageClass::Request) {
                        if self.requests.len() == REQUESTS_KEPT {
                            self.requests.remove(0);
                        }
                        self.requests.push(message);
                    }
                }
                RelayOutput::Up(addresses) => {
                    assert!(self.has_granted, "an address without a signature");
                    assert!(!addresses.is_empty() && addresses.len() <= 2, "{addresses:?}");
                    self.is_up = true;
                }
                RelayOutput::Ended(end) => {
                    self.has_ended = true;
                    let text = end.to_string();
                    assert!(!text.is_empty() && text.chars().count() <= limits::GATHER_REASON_CHARS_MAX + 100);
                    assert!(!text.contains(char::is_control), "{text:?}");
                }
            }
        }
        panic!("the allocation does not come to rest");
    }
}

fn indication(from: SocketAddr, data: &[u8]) -> Option<Vec<u8>> {
    let class = MessageType::from_class_method(MessageClass::Indication, DATA);
    let mut message = Message::builder(class, 7.into(), MessageWriteVec::new());
    message.add_attribute(&XorPeerAddress::new(from, 7.into())).ok()?;
    message.add_attribute(&Data::new(data)).ok()?;
    Some(message.finish())
}
