//! A caller for the fuzz targets of a session: enough of ICE, DTLS, SRTP and SCTP to choose any
//! byte of any layer.
//!
//! In: data to send, at any layer. Out: the outputs of the session, checked as they arrive: their
//! number is bounded, packets open with the keys of the handshake, checksums match, and events come
//! in a valid order. There is no socket and no waiting: datagrams arrive at once, and time is a
//! number. DTLS and the ciphers are those of `proto::webrtc::crypto`, so both ends of them are
//! tested. Sources: RFC 8445, RFC 8489, RFC 7714, RFC 3711, RFC 9260, RFC 8832.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use edge_runner_proto::event::SessionEvent;
use edge_runner_proto::limits;
use edge_runner_proto::session::{Session as _, SessionOutput};
use edge_runner_proto::webrtc::connection::{
    ConnectionContext, ConnectionSetup, IceSecret, NegotiationError, ReceivedPacket,
};
use edge_runner_proto::webrtc::crypto;
use edge_runner_proto::webrtc::gather::GatheredAddresses;
use edge_runner_proto::webrtc::session::{WebRtcCommand, WebRtcSession};
use str0m::crypto::CryptoProvider;
use str0m::crypto::dtls::{DtlsInstance, DtlsOutput, DtlsVersion, SrtpProfile};

use super::sctp::Association;

/// Outputs of a session between two inputs. An SCTP window is some hundreds of packets.
const OUTPUTS_MAX: usize = 2_000;
/// Datagrams that the two ends exchange until both are idle: many times both windows.
const EXCHANGES_MAX: usize = 20_000;
/// The longest datagram of the session: an Ethernet frame.
const DATAGRAM_BYTES_MAX: usize = 1_500;
const UFRAG: &str = "FUZZ";
const PASSWORD: &str = "anUnguessablePasswordOf28chr";
pub const SSRC: u32 = 0x1234_5678;
pub const PAYLOAD_TYPE: u8 = 111;
/// 20 ms of silence in Opus.
pub const SILENCE: [u8; 3] = [0xf8, 0xff, 0xfe];

static COMMON: LazyLock<ConnectionContext> = LazyLock::new(ConnectionContext::default);

pub fn runner() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 7860))
}

pub fn caller() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 9], 5000))
}

pub fn outsider() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 66], 6000))
}

pub fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(crypto::provider()))
}

/// The end that begins the DTLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    Caller,
    Session,
}

/// An iterator over operations: a kind, a length, and that many bytes.
pub struct Operations<'b>(pub &'b [u8]);

impl<'b> Iterator for Operations<'b> {
    type Item = (u8, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[kind, length], rest) = self.0.split_first_chunk()?;
        let (data, rest) = rest.split_at(usize::from(length).min(rest.len()));
        self.0 = rest;
        Some((kind, data))
    }
}

pub struct Call {
    pub session: WebRtcSession,
    pub now: Instant,
    /// The deadline of the session; `None` once it is closed.
    wake: Option<Instant>,
    ufrag: String,
    password: String,
    dtls: Box<dyn DtlsInstance>,
    dtls_wake: Option<Instant>,
    pub dtls_connected: bool,
    pub keys: Option<Keys>,
    pub association: Association,
    /// Datagrams of the caller that have not arrived yet.
    pub under_way: VecDeque<Vec<u8>>,
    /// The transaction id of the last check of the session.
    pub checked: Option<[u8; 12]>,
    pub events: Vec<SessionEvent>,
    /// Samples that the bot received.
    pub samples_received: usize,
    /// RTP payloads that the caller received.
    pub received: usize,
    pub strays: usize,
    /// Whether the caller is offline: nothing of the session reaches it.
    pub unplugged: bool,
    sequence: u16,
    /// Samples that the bot still has to send.
    pub speech: usize,
    judged: usize,
}

impl Call {
    /// Creates an offer and handles the answer.
    pub fn new(begins: Begins) -> Call {
        let now = Instant::now();
        let (session, answer) =
            WebRtcSession::accept(&offer(begins), &setup(), now).expect("the offer can be answered");
        let mut call = Call {
            session,
            now,
            wake: Some(now),
            ufrag: String::new(),
            password: String::new(),
            dtls: endpoint(begins, now),
            dtls_wake: None,
            dtls_connected: false,
            keys: None,
            association: Association::default(),
            under_way: VecDeque::new(),
            checked: None,
            events: Vec::new(),
            samples_received: 0,
            received: 0,
            strays: 0,
            unplugged: false,
            sequence: 100,
            speech: 0,
            judged: 0,
        };
        call.read(&answer);
        call.session.set_audio(16_000, 16_000, true, now);
        call.settle();
        call
    }

    fn read(&mut self, answer: &str) {
        let value = |name: &str| {
            let line = answer.lines().find_map(|line| line.strip_prefix(name));
            line.expect("an answer has it").trim().to_owned()
        };
        self.ufrag = value("a=ice-ufrag:");
        self.password = value("a=ice-pwd:");
    }

    /// Renegotiates on the same connection.
    pub fn renegotiate(&mut self) -> Result<String, NegotiationError> {
        let answer = self.session.renegotiate(&offer(Begins::Caller));
        self.settle();
        answer
    }

    /// Restarts with a new connection in the same session.
    pub fn restart(&mut self) -> bool {
        let Ok(answer) = self.session.restart(&offer(Begins::Caller), &setup(), self.now) else {
            return false;
        };
        self.read(&answer);
        self.dtls = endpoint(Begins::Caller, self.now);
        self.dtls_wake = None;
        self.dtls_connected = false;
        self.keys = None;
        // Received texts are kept.
        let texts = std::mem::take(&mut self.association.texts);
        self.association = Association::default();
        self.association.texts = texts;
        self.under_way.clear();
        self.settle();
        true
    }

    /// Sends a check, which connects ICE. The handshake begins, and its records wait in
    /// [`Call::under_way`].
    pub fn check(&mut self) {
        let check = self.sealed(0x0001, [7; 12], &self.check_attributes(), true);
        self.arrive(caller(), &check);
        self.drain();
        self.poll_dtls();
    }

    /// Returns the attributes of a check by the controlling end.
    pub fn check_attributes(&self) -> Vec<u8> {
        let mut attributes = self.user_name();
        attribute(&mut attributes, 0x0024, &0x6e00_01ff_u32.to_be_bytes());
        attribute(&mut attributes, 0x802a, &[0, 0, 0, 0, 0, 0, 0, 1]);
        attribute(&mut attributes, 0x0025, &[]);
        attributes
    }

    pub fn user_name(&self) -> Vec<u8> {
        let mut attributes = Vec::new();
        attribute(&mut attributes, 0x0006, format!("{}:{UFRAG}", self.ufrag).as_bytes());
        attributes
    }

    /// Creates a STUN message; `for_session` selects the password that signs it.
    pub fn sealed(&self, kind: u16, transaction: [u8; 12], attributes: &[u8], for_session: bool) -> Vec<u8> {
        let password = if for_session { &self.password } else { PASSWORD };
        sealed(kind, transaction, attributes, password)
    }

    /// Connects like a well-behaved client. Returns whether it connected within 10 s.
    pub fn connect(&mut self) -> bool {
        for _ in 0..100 {
            if self.dtls_connected && self.events.contains(&SessionEvent::Joined) {
                return true;
            }
            if self.wake.is_none() {
                return false;
            }
            self.check();
            self.settle();
            self.advance(Duration::from_millis(100));
        }
        false
    }

    /// Connects, and opens the data channel.
    pub fn connected(begins: Begins) -> Call {
        let mut call = Call::new(begins);
        assert!(call.connect(), "an honest caller connects: {:?}", call.events);
        call.advance(Duration::from_millis(50));
        call
    }

    pub fn is_gone(&self) -> bool {
        self.wake.is_none()
    }

    /// Delivers a datagram, and nothing else yet.
    pub fn arrive(&mut self, source: SocketAddr, contents: &[u8]) {
        let packet = ReceivedPacket::from_datagram(source, runner(), contents);
        self.session.handle_packet(&packet, self.now);
        self.drain();
    }

    /// Delivers all pending datagrams, and those that follow, until both ends are idle.
    pub fn settle(&mut self) {
        for _ in 0..EXCHANGES_MAX {
            self.drain();
            self.poll_dtls();
            match self.under_way.pop_front() {
                Some(datagram) if self.wake.is_some() => self.arrive(caller(), &datagram),
                _ => return self.judge(),
            }
        }
        panic!("the two ends never rest");
    }

    /// Advances the clock.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        let mut idle = 0;
        loop {
            let next = [self.wake, self.dtls_wake].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            idle = if next > self.now { 0 } else { idle + 1 };
            assert!(idle < 1_000, "the session spins");
            self.now = self.now.max(next);
            if self.wake.is_some_and(|wake| wake <= self.now) {
                self.session.handle_timeout(self.now);
                self.drain();
                self.speak();
            }
            if self.dtls_wake.is_some_and(|wake| wake <= self.now) {
                self.dtls_wake = None;
                let _ = self.dtls.handle_timeout(self.now);
            }
            self.settle();
        }
    }

    fn speak(&mut self) {
        let taken = self.session.bot_audio_capacity().unwrap_or_default().min(self.speech);
        self.speech -= taken;
        let pcm: Vec<i16> = (0..taken).map(|at| (at % 50) as i16 * 200).collect();
        self.session.handle_bot_audio(&pcm, self.now);
        self.drain();
    }

    fn drain(&mut self) {
        for _ in 0..OUTPUTS_MAX {
            match self.session.poll_output(self.now) {
                SessionOutput::Timeout(deadline) => {
                    self.wake = Some(deadline.at);
                    return;
                }
                SessionOutput::Closed => {
                    self.wake = None;
                    return;
                }
                SessionOutput::Command(WebRtcCommand::Transmit(mut transmit)) => {
                    let destination = transmit.destination;
                    let contents = transmit.contents().to_vec();
                    assert!(!contents.is_empty() && contents.len() <= DATAGRAM_BYTES_MAX);
                    match destination == caller() {
                        true if self.unplugged => {}
                        true => self.receive(&contents),
                        // Other addresses get only checks, and answers to their own checks.
                        false => {
                            assert!(contents[0] < 4, "{destination} is sent {} bytes", contents.len());
                            self.strays += 1;
                        }
                    }
                }
                SessionOutput::Audio(frame) => {
                    assert_eq!(frame.rate_hz, 16_000);
                    self.samples_received += frame.pcm.len();
                }
                SessionOutput::Command(_) | SessionOutput::BotAudioWanted => {}
                SessionOutput::Event(event) => self.events.push(event),
            }
        }
        panic!("the session's output has no end");
    }

    /// Handles a datagram of the session.
    fn receive(&mut self, contents: &[u8]) {
        match contents[0] {
            0..4 => self.receive_stun(contents),
            20..64 => {
                let _ = self.dtls.handle_packet(contents);
            }
            128..192 => {
                let keys = self.keys.as_mut().expect("media only after the handshake");
                if (192..224).contains(&contents[1]) {
                    keys.open_rtcp(contents);
                } else {
                    keys.open_rtp(contents);
                    self.received += 1;
                }
            }
            other => panic!("a datagram of no kind: {other}"),
        }
    }

    fn receive_stun(&mut self, message: &[u8]) {
        let transaction: [u8; 12] = message[8..20].try_into().expect("twelve bytes");
        if message[..2] != [0, 1] {
            return;
        }
        self.checked = Some(transaction);
        let answer = self.sealed(0x0101, transaction, &mapped(runner()), false);
        self.under_way.push_back(answer);
    }

    fn poll_dtls(&mut self) {
        let mut buffer = vec![0; 4096];
        let mut plain: Vec<Vec<u8>> = Vec::new();
        loop {
            match self.dtls.poll_output(&mut buffer) {
                DtlsOutput::Packet(packet) => self.under_way.push_back(packet.to_vec()),
                DtlsOutput::Timeout(at) => {
                    self.dtls_wake = Some(at);
                    break;
                }
                DtlsOutput::Connected => self.dtls_connected = true,
                DtlsOutput::KeyingMaterial(material, profile) => {
                    assert_eq!(profile, SrtpProfile::AEAD_AES_256_GCM);
                    self.keys = Some(Keys::new(&material, self.dtls.is_active()));
                }
                DtlsOutput::ApplicationData(data) => plain.push(data.to_vec()),
                DtlsOutput::BufferTooSmall { needed } => buffer.resize(needed, 0),
                _ => {}
            }
        }
        if self.dtls_connected && self.dtls.is_active() {
            self.association.begin();
        }
        for packet in plain {
            self.association.handle_packet(&packet);
        }
        let mut sent = false;
        while let Some(packet) = self.association.poll() {
            self.send_plain(&packet);
            sent = true;
        }
        if sent {
            self.poll_dtls();
        }
    }

    /// Sends bytes as application data of DTLS.
    pub fn send_plain(&mut self, bytes: &[u8]) {
        if self.dtls_connected {
            let _ = self.dtls.send_application_data(bytes);
        }
    }

    /// Sends 20 ms of silence.
    pub fn send_audio(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
        let packet = rtp(self.sequence, u32::from(self.sequence) * 960, &SILENCE);
        self.send_rtp(&packet);
    }

    /// Seals an RTP packet, if it is one, and sends it.
    pub fn send_rtp(&mut self, packet: &[u8]) {
        let sealed = self.keys.as_mut().and_then(|keys| keys.seal_rtp(packet));
        self.arrive(caller(), sealed.as_deref().unwrap_or(packet));
    }

    pub fn send_rtcp(&mut self, packet: &[u8]) {
        let sealed = self.keys.as_mut().and_then(|keys| keys.seal_rtcp(packet));
        self.arrive(caller(), sealed.as_deref().unwrap_or(packet));
    }

    /// Checks the events: each occurs once, and none follows the end.
    fn judge(&mut self) {
        for at in self.judged..self.events.len() {
            let before = &self.events[..at];
            assert!(
                !before.iter().any(|event| matches!(event, SessionEvent::Left(_))),
                "after the end: {:?}",
                self.events
            );
            let last = |one: &SessionEvent, other: &SessionEvent| {
                before.iter().rev().find(|event| *event == one || *event == other)
            };
            match &self.events[at] {
                SessionEvent::Joined => assert!(!before.contains(&SessionEvent::Joined)),
                SessionEvent::Message(text) => {
                    assert!(before.contains(&SessionEvent::Joined) && text.len() <= limits::MESSAGE_BYTES_MAX);
                }
                SessionEvent::Lost => assert_ne!(
                    last(&SessionEvent::Lost, &SessionEvent::Restored),
                    Some(&SessionEvent::Lost)
                ),
                SessionEvent::Restored => assert_eq!(
                    last(&SessionEvent::Lost, &SessionEvent::Restored),
                    Some(&SessionEvent::Lost)
                ),
                SessionEvent::SpeechStarted => assert_ne!(
                    last(&SessionEvent::SpeechStarted, &SessionEvent::SpeechStopped),
                    Some(&SessionEvent::SpeechStarted)
                ),
                SessionEvent::SpeechStopped => assert_eq!(
                    last(&SessionEvent::SpeechStarted, &SessionEvent::SpeechStopped),
                    Some(&SessionEvent::SpeechStarted)
                ),
                SessionEvent::Left(_) => {}
                other => panic!("no event of a WebRTC session: {other:?}"),
            }
        }
        self.judged = self.events.len();
    }

    /// Returns the texts that the bot received.
    pub fn texts(&self) -> Vec<&str> {
        let texts = self.events.iter().filter_map(|event| match event {
            SessionEvent::Message(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

fn setup() -> ConnectionSetup<'static> {
    static LOCAL: LazyLock<[SocketAddr; 1]> = LazyLock::new(|| [runner()]);
    static NOTHING: GatheredAddresses = GatheredAddresses {
        reflexive: Vec::new(),
        relayed: Vec::new(),
    };
    ConnectionSetup {
        context: &COMMON,
        local: &*LOCAL,
        tcp: &[],
        gathered: &NOTHING,
        embedded: None,
        device: None,
        seed: 0x1234_5678_9abc_def0,
        secret: IceSecret([7; 32]),
    }
}

fn endpoint(begins: Begins, now: Instant) -> Box<dyn DtlsInstance> {
    let certificate = crypto::certificate().expect("a certificate");
    let made = provider()
        .dtls_provider
        .new_dtls(certificate, now, DtlsVersion::Dtls12, None);
    let mut dtls = made.expect("an endpoint");
    dtls.set_active(begins == Begins::Caller);
    let _ = dtls.handle_timeout(now);
    if begins == Begins::Caller {
        let _ = dtls.handle_packet(&[]);
    }
    dtls
}

fn offer(begins: Begins) -> String {
    let certificate = crypto::certificate().expect("a certificate");
    let digest = provider().sha256_provider.sha256(&certificate.certificate);
    let fingerprint: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    let setup = match begins {
        Begins::Caller => "actpass",
        Begins::Session => "passive",
    };
    let transport = format!(
        "c=IN IP4 0.0.0.0\r\na=ice-ufrag:{UFRAG}\r\na=ice-pwd:{PASSWORD}\r\na=fingerprint:sha-256 {}\r\na=setup:{setup}\r\n",
        fingerprint.join(":")
    );
    format!(
        "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n\
         m=audio 9 UDP/TLS/RTP/SAVPF {PAYLOAD_TYPE}\r\n{transport}a=mid:0\r\n\
         a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid\r\na=sendrecv\r\na=rtcp-mux\r\n\
         a=rtpmap:{PAYLOAD_TYPE} opus/48000/2\r\na=fmtp:{PAYLOAD_TYPE} minptime=10;useinbandfec=1\r\n\
         a=ssrc:{SSRC} cname:fuzz\r\n\
         m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n{transport}a=mid:1\r\na=sctp-port:5000\r\n\
         a=max-message-size:262144\r\n"
    )
}

pub fn rtp(sequence: u16, timestamp: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80, PAYLOAD_TYPE];
    packet.extend(sequence.to_be_bytes());
    packet.extend(timestamp.to_be_bytes());
    packet.extend(SSRC.to_be_bytes());
    packet.extend(payload);
    packet
}

/// Appends an attribute of STUN.
pub fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend(kind.to_be_bytes());
    to.extend((value.len() as u16).to_be_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Returns the only attribute of an answer: the address of the sender.
pub fn mapped(address: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(address) = address else {
        panic!("these addresses are IPv4");
    };
    let mut value = vec![0, 1];
    value.extend((address.port() ^ 0x2112).to_be_bytes());
    value.extend((u32::from(*address.ip()) ^ 0x2112_a442).to_be_bytes());
    let mut attributes = Vec::new();
    attribute(&mut attributes, 0x0020, &value);
    attributes
}

/// Creates a STUN message with MESSAGE-INTEGRITY and FINGERPRINT after the given attributes.
fn sealed(kind: u16, transaction: [u8; 12], attributes: &[u8], password: &str) -> Vec<u8> {
    let mut message = kind.to_be_bytes().to_vec();
    message.extend([0, 0]);
    message.extend(0x2112_a442_u32.to_be_bytes());
    message.extend(transaction);
    message.extend(attributes);
    let set_length = |message: &mut Vec<u8>, more: usize| {
        let length = (message.len() - 20 + more) as u16;
        message[2..4].copy_from_slice(&length.to_be_bytes());
    };
    set_length(&mut message, 24);
    let tag = provider()
        .sha1_hmac_provider
        .sha1_hmac(password.as_bytes(), &[&message]);
    attribute(&mut message, 0x0008, &tag);
    set_length(&mut message, 8);
    let sum = super::sctp::crc(&message, 0xedb8_8320) ^ 0x5354_554e;
    attribute(&mut message, 0x8028, &sum.to_be_bytes());
    message
}

/// AES-256-GCM for SRTP, from the keys of one handshake.
pub struct Keys {
    out: Direction,
    back: Direction,
    /// The number of sealed SRTCP packets.
    reports: u32,
}

struct Direction {
    rtp: ([u8; 32], [u8; 12]),
    rtcp: ([u8; 32], [u8; 12]),
    /// For each source, the roll-over counter and sequence number of the highest packet.
    highest: BTreeMap<u32, u64>,
}

impl Keys {
    fn new(material: &[u8], is_client: bool) -> Keys {
        let client = Direction::new(&material[..32], &material[64..76]);
        let server = Direction::new(&material[32..64], &material[76..88]);
        let (out, back) = if is_client { (client, server) } else { (server, client) };
        Keys { out, back, reports: 0 }
    }

    fn seal_rtp(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let header = header_bytes(packet)?;
        let index = self.out.index(packet);
        let (key, salt) = self.out.rtp;
        let mut sealed = packet[..header].to_vec();
        sealed.resize(packet.len() + 16, 0);
        let (aad, body) = sealed.split_at_mut(header);
        let iv = rtp_iv(salt, packet, index);
        let mut cipher = provider().srtp_provider.aead_aes_256_gcm().create_cipher(key, true);
        cipher.encrypt(&iv, aad, &packet[header..], body).expect("it fits");
        Some(sealed)
    }

    fn open_rtp(&mut self, packet: &[u8]) {
        let header = header_bytes(packet).expect("the session sends whole packets");
        let index = self.back.index(packet);
        let (key, salt) = self.back.rtp;
        let mut plain = vec![0; packet.len() - header];
        let mut cipher = provider().srtp_provider.aead_aes_256_gcm().create_cipher(key, false);
        let iv = rtp_iv(salt, packet, index);
        let length = cipher.decrypt(&iv, &[&packet[..header]], &packet[header..], &mut plain);
        assert!(length.expect("the tag fits") <= limits::OPUS_PACKET_BYTES_MAX);
    }

    fn seal_rtcp(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let (head, body) = packet.split_at_checked(8)?;
        self.reports += 1;
        let index = (1 << 31 | self.reports).to_be_bytes();
        let (key, salt) = self.out.rtcp;
        let mut sealed = head.to_vec();
        sealed.resize(packet.len() + 16, 0);
        let mut cipher = provider().srtp_provider.aead_aes_256_gcm().create_cipher(key, true);
        let aad = [head, &index].concat();
        let iv = rtcp_iv(salt, packet, self.reports);
        cipher.encrypt(&iv, &aad, body, &mut sealed[8..]).expect("it fits");
        sealed.extend(index);
        Some(sealed)
    }

    fn open_rtcp(&mut self, packet: &[u8]) {
        let (body, index) = packet.split_last_chunk::<4>().expect("an index");
        let (key, salt) = self.back.rtcp;
        let mut plain = vec![0; body.len()];
        let mut cipher = provider().srtp_provider.aead_aes_256_gcm().create_cipher(key, false);
        let iv = rtcp_iv(salt, packet, u32::from_be_bytes(*index) & 0x7fff_ffff);
        let aad = [&body[..8], index].concat();
        let opened = cipher.decrypt(&iv, &[&aad], &body[8..], &mut plain);
        assert!(opened.is_ok(), "a report's tag fits");
    }
}

impl Direction {
    fn new(key: &[u8], salt: &[u8]) -> Direction {
        let derived = |label: u8| {
            let mut out = [0; 96];
            for (round, block) in out.chunks_mut(32).enumerate() {
                let mut input = [0; 16];
                input[..12].copy_from_slice(salt);
                input[7] ^= label;
                input[15] = round as u8;
                provider().srtp_provider.srtp_aes_256_ecb_round(key, &input, block);
            }
            let mut key = [0; 32];
            key[..16].copy_from_slice(&out[..16]);
            key[16..].copy_from_slice(&out[32..48]);
            key
        };
        let salt = |label: u8| derived(label)[..12].try_into().expect("twelve bytes");
        Direction {
            rtp: (derived(0), salt(2)),
            rtcp: (derived(3), salt(5)),
            highest: BTreeMap::new(),
        }
    }

    /// Returns the index nearest to the highest so far (RFC 3711 section 3.3.1).
    fn index(&mut self, packet: &[u8]) -> u64 {
        let sequence = u64::from(u16::from_be_bytes([packet[2], packet[3]]));
        let source = u32::from_be_bytes(packet[8..12].try_into().expect("four bytes"));
        let highest = self.highest.entry(source).or_insert(sequence);
        let base = *highest & !0xffff | sequence;
        let near = [base.checked_sub(0x1_0000), Some(base), Some(base + 0x1_0000)];
        let index = near.into_iter().flatten().min_by_key(|index| index.abs_diff(*highest));
        let index = index.expect("three to choose from");
        *highest = (*highest).max(index);
        index
    }
}

/// Returns the length of an RTP header (RFC 3550 section 5.1); `None` when the packet is shorter.
fn header_bytes(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    let mut length = 12 + 4 * usize::from(first & 0x0f);
    if first & 0x10 != 0 {
        let words = packet.get(length + 2..length + 4)?;
        length += 4 + 4 * usize::from(u16::from_be_bytes([words[0], words[1]]));
    }
    (first >> 6 == 2 && length <= packet.len()).then_some(length)
}

fn rtp_iv(salt: [u8; 12], packet: &[u8], index: u64) -> [u8; 12] {
    let mut iv = [0; 12];
    iv[2..6].copy_from_slice(&packet[8..12]);
    iv[6..].copy_from_slice(&index.to_be_bytes()[2..]);
    xor(iv, salt)
}

fn rtcp_iv(salt: [u8; 12], packet: &[u8], index: u32) -> [u8; 12] {
    let mut iv = [0; 12];
    iv[2..6].copy_from_slice(&packet[4..8]);
    iv[8..].copy_from_slice(&index.to_be_bytes());
    xor(iv, salt)
}

fn xor(mut one: [u8; 12], other: [u8; 12]) -> [u8; 12] {
    one.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
    one
}
