//! The DTLS of a microcontroller, mostly as server, independent of the runner's library: 1.2,
//! cookie exchange, ECDSA P-256, SRTP keys.
//!
//! In: datagrams. Out: datagrams, events, and violations of what Mbed TLS with the firmware's
//! settings accepts. It has one suite (ECDHE-ECDSA-AES128-GCM-SHA256), one group (P-256) and one
//! SRTP profile (AES_CM_128_HMAC_SHA1_80). It repeats a flight only when the peer repeats its own.
//! Sources: RFC 6347, RFC 5246, RFC 7627, RFC 8422, RFC 5764.

mod client;
mod record;

use std::collections::BTreeMap;
use std::time::Instant;

use p256::PublicKey;
use p256::ecdh::EphemeralSecret;
use p256::ecdsa::signature::{Signer, Verifier};
use p256::ecdsa::{DerSignature, VerifyingKey};
use p256::elliptic_curve::Generate;
use sha2::{Digest, Sha256};

use self::record::{ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE, Protection, Record, VERSION, Writer, prf, records};
use super::certificate::{Identity, fingerprint};
use super::srtp::{self, Context};

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const HELLO_VERIFY_REQUEST: u8 = 3;
const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const CERTIFICATE_REQUEST: u8 = 13;
const SERVER_HELLO_DONE: u8 = 14;
const CERTIFICATE_VERIFY: u8 = 15;
const CLIENT_KEY_EXCHANGE: u8 = 16;
const FINISHED: u8 = 20;

const SUITE: [u8; 2] = [0xc0, 0x2b];
const GROUP: [u8; 2] = [0, 23];
const ECDSA_SHA256: [u8; 2] = [4, 3];
const SRTP_PROFILE: [u8; 2] = [0, 1];
const EXTENSION_POINT_FORMATS: u16 = 11;
const EXTENSION_GROUPS: u16 = 10;
const EXTENSION_USE_SRTP: u16 = 14;
const EXTENSION_EXTENDED_MASTER_SECRET: u16 = 23;
const EXTENSION_RENEGOTIATION: u16 = 0xff01;
const COOKIE: &[u8] = b"a cookie of sixteen";
/// The DER prefix of a P-256 key in a certificate.
const KEY_PREFIX: &[u8] = b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00\x04";
const CLOSE_NOTIFY: u8 = 0;

pub enum Event {
    Keys {
        outgoing: Box<Context>,
        incoming: Box<Context>,
    },
    Data(Vec<u8>),
    /// The runner closed, which the device ignores.
    Closed,
}

/// Why a packet is rejected.
type HandshakeError = String;

pub struct Endpoint {
    identity: Identity,
    /// The fingerprint in the answer.
    peer_fingerprint: String,
    writer: Writer,
    incoming: Option<Protection>,
    transcript: Vec<u8>,
    sent_messages: u16,
    expected_message: u16,
    pieces: BTreeMap<u16, Message>,
    exchange: Option<EphemeralSecret>,
    client_random: [u8; 32],
    server_random: [u8; 32],
    extended_master_secret: bool,
    master: [u8; 48],
    peer_key: Option<VerifyingKey>,
    last_flight: Vec<Vec<u8>>,
    /// The network loses the server's ChangeCipherSpec and Finished once.
    pub loses_finished: bool,
    done: bool,
    is_client: bool,
    /// The server's key share.
    peer_point: Option<PublicKey>,
    /// When a client repeats its flight.
    repeat_at: Option<Instant>,
    pub datagrams: Vec<Vec<u8>>,
    pub events: Vec<Event>,
    pub violations: Vec<HandshakeError>,
}

/// A partially received handshake message.
struct Message {
    kind: u8,
    body: Vec<u8>,
    missing: usize,
}

impl Endpoint {
    pub fn new(is_client: bool, identity: &Identity, peer_fingerprint: &str) -> Self {
        Self {
            identity: identity.clone(),
            peer_fingerprint: peer_fingerprint.to_owned(),
            writer: Writer::default(),
            incoming: None,
            transcript: Vec::new(),
            sent_messages: 0,
            expected_message: 0,
            pieces: BTreeMap::new(),
            exchange: None,
            client_random: [0; 32],
            server_random: <[u8; 32]>::generate(),
            extended_master_secret: false,
            master: [0; 48],
            peer_key: None,
            last_flight: Vec::new(),
            loses_finished: false,
            done: false,
            is_client,
            peer_point: None,
            repeat_at: None,
            datagrams: Vec::new(),
            events: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub fn handle_datagram(&mut self, datagram: &[u8]) {
        for record in records(datagram) {
            if let Err(refused) = self.handle_record(&record) {
                self.violations.push(format!("DTLS: {refused}"));
            }
        }
    }

    /// Sends application data after the handshake.
    pub fn send(&mut self, data: &[u8]) {
        let record = self.writer.record(DATA, 1, data);
        self.datagrams.push(record);
    }

    fn handle_record(&mut self, record: &Record) -> Result<(), HandshakeError> {
        let opened;
        // Records of unknown epochs are skipped.
        if record.epoch() > 1 {
            return Ok(());
        }
        let content = if record.epoch() == 0 {
            record.content
        } else {
            // Without keys, a record of the next epoch is early and will be repeated.
            let Some(incoming) = &self.incoming else { return Ok(()) };
            opened = incoming.open(record).ok_or("a record that does not authenticate")?;
            &opened[..]
        };
        match (record.kind, record.epoch()) {
            (HANDSHAKE, _) => self.handle_pieces(content)?,
            (DATA, 1) => self.events.push(Event::Data(content.to_vec())),
            (ALERT, _) if content.get(1) == Some(&CLOSE_NOTIFY) => self.events.push(Event::Closed),
            (ALERT, _) => return Err(format!("alert {content:?}")),
            (CHANGE_CIPHER_SPEC, 0) => {}
            (kind, epoch) => return Err(format!("record of type {kind} in epoch {epoch}")),
        }
        Ok(())
    }

    /// Reassembles fragments and handles each message in order.
    fn handle_pieces(&mut self, mut content: &[u8]) -> Result<(), HandshakeError> {
        while let Some((head, rest)) = content.split_first_chunk::<12>() {
            let (kind, sequence) = (head[0], u16::from_be_bytes([head[4], head[5]]));
            let (length, offset, piece) = (u24(&head[1..4]), u24(&head[6..9]), u24(&head[9..12]));
            let (bytes, rest) = rest
                .split_at_checked(piece)
                .ok_or("a handshake message that is cut off")?;
            content = rest;
            if kind == CLIENT_HELLO && piece != length {
                return Err("a ClientHello in pieces, which Mbed TLS refuses".into());
            }
            if sequence < self.expected_message {
                // The peer missed the last flight and gets it again for a whole flight of its own.
                if matches!(kind, CLIENT_HELLO | FINISHED) {
                    self.datagrams.extend_from_slice(&self.last_flight);
                }
                continue;
            }
            let message = self.pieces.entry(sequence).or_insert_with(|| Message {
                kind,
                body: vec![0; length],
                missing: length,
            });
            let place = message
                .body
                .get_mut(offset..offset + piece)
                .ok_or("a piece beyond its message")?;
            place.copy_from_slice(bytes);
            message.missing = message.missing.saturating_sub(piece);
            while self
                .pieces
                .get(&self.expected_message)
                .is_some_and(|message| message.missing == 0)
            {
                let message = self.pieces.remove(&self.expected_message).expect("looked up above");
                self.expected_message += 1;
                self.handle_message(message.kind, &message.body)?;
            }
        }
        Ok(())
    }

    fn handle_message(&mut self, kind: u8, body: &[u8]) -> Result<(), HandshakeError> {
        let before = self.transcript.len();
        let header = handshake_header(kind, self.expected_message - 1, body.len());
        self.transcript.extend_from_slice(&[&header[..], body].concat());
        match kind {
            HELLO_VERIFY_REQUEST if self.is_client => self.handle_cookie(body),
            SERVER_HELLO if self.is_client => self.handle_server_hello(body),
            SERVER_KEY_EXCHANGE if self.is_client => self.handle_server_key_exchange(body),
            CERTIFICATE_REQUEST if self.is_client => Ok(()),
            SERVER_HELLO_DONE if self.is_client => self.handle_server_hello_done(),
            FINISHED if self.is_client => self.handle_server_finished(body, before),
            CLIENT_HELLO => self.handle_hello(body),
            CERTIFICATE => self.handle_certificate(body),
            CLIENT_KEY_EXCHANGE => self.handle_key_exchange(body),
            CERTIFICATE_VERIFY => {
                let signature = body
                    .get(4..)
                    .and_then(|b| DerSignature::from_bytes(b).ok())
                    .ok_or("a bad signature")?;
                let key = self.peer_key.as_ref().ok_or("a signature before the certificate")?;
                key.verify(&self.transcript[..before], &signature)
                    .map_err(|_| "a wrong signature".into())
            }
            FINISHED => {
                let hash: [u8; 32] = Sha256::digest(&self.transcript[..before]).into();
                if prf::<12>(&self.master, b"client finished", &hash) != *body {
                    return Err("a wrong Finished".into());
                }
                self.finish();
                Ok(())
            }
            other => Err(format!("handshake message {other}")),
        }
    }

    fn handle_hello(&mut self, body: &[u8]) -> Result<(), HandshakeError> {
        let hello = Hello::parse(body).ok_or("a ClientHello that does not parse")?;
        if hello.cookie != COOKIE {
            // Neither message is part of the transcript.
            self.transcript.clear();
            let length = u8::try_from(COOKIE.len()).expect("short");
            let request = [&VERSION[..], &[length], COOKIE].concat();
            let record = self.handshake(HELLO_VERIFY_REQUEST, &request);
            self.transcript.clear();
            self.flight(vec![record]);
            return Ok(());
        }
        let offers = |list: &[u8], wanted: [u8; 2]| list.chunks_exact(2).any(|entry| entry == wanted);
        if !offers(hello.suites, SUITE) {
            return Err("no ECDHE-ECDSA-AES128-GCM-SHA256 in the ClientHello".into());
        }
        let extension = |wanted: u16| {
            hello
                .extensions
                .iter()
                .find(|(kind, _)| *kind == wanted)
                .map(|(_, data)| *data)
        };
        if !offers(
            extension(EXTENSION_GROUPS).and_then(|d| d.get(2..)).unwrap_or_default(),
            GROUP,
        ) {
            return Err("no P-256 in the ClientHello".into());
        }
        // Two bytes of length, the profiles, an empty key identifier.
        let profiles = extension(EXTENSION_USE_SRTP)
            .and_then(|d| d.get(2..d.len() - 1))
            .unwrap_or_default();
        if !offers(profiles, SRTP_PROFILE) {
            return Err("no AES_CM_128_HMAC_SHA1_80 in the ClientHello".into());
        }
        self.extended_master_secret = extension(EXTENSION_EXTENDED_MASTER_SECRET).is_some();
        self.client_random = hello.random;
        self.answer_hello();
        Ok(())
    }

    /// ServerHello to ServerHelloDone.
    fn answer_hello(&mut self) {
        let mut extensions = vec![
            extension(EXTENSION_RENEGOTIATION, &[0]),
            extension(EXTENSION_USE_SRTP, &[&[0, 2][..], &SRTP_PROFILE, &[0]].concat()),
            extension(EXTENSION_POINT_FORMATS, &[1, 0]),
        ];
        if self.extended_master_secret {
            extensions.push(extension(EXTENSION_EXTENDED_MASTER_SECRET, &[]));
        }
        let extensions = extensions.concat();
        let hello = [
            &VERSION[..],
            &self.server_random,
            &[0],
            &SUITE,
            &[0],
            &length16(&extensions),
            &extensions,
        ]
        .concat();

        let certificate = self.identity.certificate.clone();
        let listed = [&length24(&certificate)[..], &certificate].concat();

        let exchange = EphemeralSecret::generate();
        let point = exchange.public_key().to_sec1_bytes();
        self.exchange = Some(exchange);
        let length = u8::try_from(point.len()).expect("65 bytes");
        let parameters = [&[3][..], &GROUP, &[length], &point].concat();
        let signed = [&self.client_random[..], &self.server_random, &parameters].concat();
        let signature: DerSignature = self.identity.key.sign(&signed);
        let signature = signature.as_bytes();
        let exchange = [&parameters[..], &ECDSA_SHA256, &length16(signature), signature].concat();

        // ECDSA keys, one signature algorithm, no authorities.
        let request = [&[1, 64, 0, 2][..], &ECDSA_SHA256, &[0, 0]].concat();
        let flight = vec![
            self.handshake(SERVER_HELLO, &hello),
            self.handshake(CERTIFICATE, &[&length24(&listed)[..], &listed].concat()),
            self.handshake(SERVER_KEY_EXCHANGE, &exchange),
            self.handshake(CERTIFICATE_REQUEST, &request),
            self.handshake(SERVER_HELLO_DONE, &[]),
        ];
        self.flight(flight);
    }

    fn handle_certificate(&mut self, body: &[u8]) -> Result<(), HandshakeError> {
        // The length of the list, then that of its first certificate.
        let length = body.get(3..6).map(u24).ok_or("no certificate")?;
        let certificate = body.get(6..6 + length).ok_or("a certificate that is cut off")?;
        let found = fingerprint(certificate);
        if found != self.peer_fingerprint {
            return Err(format!(
                "certificate {found}, the answer said {}",
                self.peer_fingerprint
            ));
        }
        let at = certificate
            .windows(KEY_PREFIX.len())
            .position(|w| w == KEY_PREFIX)
            .ok_or("no P-256 key")?;
        let point = certificate
            .get(at + KEY_PREFIX.len() - 1..)
            .and_then(|b| b.get(..65))
            .ok_or("a short key")?;
        self.peer_key = VerifyingKey::from_sec1_bytes(point).ok();
        Ok(())
    }

    fn handle_key_exchange(&mut self, body: &[u8]) -> Result<(), HandshakeError> {
        let point = body
            .get(1..)
            .and_then(|b| PublicKey::from_sec1_bytes(b).ok())
            .ok_or("a bad key share")?;
        let shared = self
            .exchange
            .as_ref()
            .ok_or("a key share out of turn")?
            .diffie_hellman(&point);
        self.derive(shared.raw_secret_bytes());
        Ok(())
    }

    /// ChangeCipherSpec and Finished, then the SRTP keys.
    fn finish(&mut self) {
        let hash: [u8; 32] = Sha256::digest(&self.transcript).into();
        let verify = prf::<12>(&self.master, b"server finished", &hash);
        let change = self.writer.record(CHANGE_CIPHER_SPEC, 0, &[1]);
        let header = handshake_header(FINISHED, self.sent_messages, verify.len());
        let finished = self.writer.record(HANDSHAKE, 1, &[&header[..], &verify].concat());
        self.flight(vec![change, finished]);
        if std::mem::take(&mut self.loses_finished) {
            self.datagrams.clear();
        }
        if !std::mem::replace(&mut self.done, true) {
            let (outgoing, incoming) = self.srtp_contexts();
            self.events.push(Event::Keys { outgoing, incoming });
        }
    }

    /// A record with one whole message of the transcript.
    fn handshake(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
        let message = [&handshake_header(kind, self.sent_messages, body.len())[..], body].concat();
        self.sent_messages += 1;
        self.transcript.extend_from_slice(&message);
        self.writer.record(HANDSHAKE, 0, &message)
    }

    /// Sends one record per datagram, as Mbed TLS does with small buffers, and keeps them for
    /// retransmission.
    fn flight(&mut self, records: Vec<Vec<u8>>) {
        self.datagrams.extend_from_slice(&records);
        self.last_flight = records;
    }
}

/// The used parts of a ClientHello.
struct Hello<'a> {
    random: [u8; 32],
    cookie: &'a [u8],
    suites: &'a [u8],
    extensions: Vec<(u16, &'a [u8])>,
}

impl<'a> Hello<'a> {
    fn parse(body: &'a [u8]) -> Option<Self> {
        let random = body.get(2..34)?.try_into().ok()?;
        let mut rest = &body[34..];
        let _session = take(&mut rest, 1)?;
        let cookie = take(&mut rest, 1)?;
        let suites = take(&mut rest, 2)?;
        let _compression = take(&mut rest, 1)?;
        let mut listed = take(&mut rest, 2)?;
        let mut extensions = Vec::new();
        while let Some((kind, after)) = listed.split_first_chunk::<2>() {
            listed = after;
            extensions.push((u16::from_be_bytes(*kind), take(&mut listed, 2)?));
        }
        Some(Self {
            random,
            cookie,
            suites,
            extensions,
        })
    }
}

/// Splits off a field with a length prefix of this many bytes.
fn take<'a>(rest: &mut &'a [u8], length_bytes: usize) -> Option<&'a [u8]> {
    let (length, after) = rest.split_at_checked(length_bytes)?;
    let length = length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
    let (field, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(field)
}

fn handshake_header(kind: u8, sequence: u16, length: usize) -> Vec<u8> {
    let length = &u32::try_from(length).expect("short").to_be_bytes()[1..];
    [&[kind], length, &sequence.to_be_bytes(), &[0; 3], length].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &length16(data), data].concat()
}

fn length16(data: &[u8]) -> [u8; 2] {
    u16::try_from(data.len()).expect("short").to_be_bytes()
}

fn length24(data: &[u8]) -> [u8; 3] {
    let [_, bytes @ ..] = u32::try_from(data.len()).expect("short").to_be_bytes();
    bytes
}

fn u24(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte))
}
