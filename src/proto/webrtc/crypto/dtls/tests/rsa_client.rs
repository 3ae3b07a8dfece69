//! A DTLS client with an RSA key: dimpl with ring's signatures.
//!
//! dimpl's client calls every signature ECDSA, so two bytes of CertificateVerify are corrected on
//! the wire and in its transcript. It hashes the CertificateRequest as received, which verifies
//! that the server hashed what it sent.

use dimpl::CryptoError as DimplError;
use dimpl::crypto::{
    Buf, HashAlgorithm, HashContext, HashProvider, KeyProvider, SignatureAlgorithm, SigningKey as Signs,
};
use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;

use super::*;

const CERTIFICATE_VERIFY: u8 = 15;
const ECDSA_SHA256: [u8; 2] = [4, 3];
const RSA_SHA256: [u8; 2] = [4, 1];

fn key(bits: usize) -> DtlsCert {
    let (certificate, private_key): (&[u8], &[u8]) = match bits {
        2048 => (
            include_bytes!("../../../../../../tests/data/dtls/rsa2048.der"),
            include_bytes!("../../../../../../tests/data/dtls/rsa2048.key"),
        ),
        _ => (
            include_bytes!("../../../../../../tests/data/dtls/rsa4096.der"),
            include_bytes!("../../../../../../tests/data/dtls/rsa4096.key"),
        ),
    };
    DtlsCert {
        certificate: certificate.to_vec(),
        private_key: private_key.to_vec(),
    }
}

fn client(cert: DtlsCert, mtu: usize, now: Instant) -> Box<dyn DtlsInstance> {
    let provider = CryptoProvider {
        key_provider: &Keys,
        hash_provider: &Hashes,
        ..rust_crypto::default_provider()
    };
    foreign_with(provider, &[], mtu, cert, true, now)
}

#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, der: &[u8]) -> Result<Box<dyn Signs>, DimplError> {
        Ok(match KeyPair::from_pkcs8(der) {
            Ok(key) => Box::new(Key(key)),
            // The key of dimpl's self-test.
            Err(_) => return rust_crypto::default_provider().key_provider.load_private_key(der),
        })
    }
}

#[derive(Debug)]
struct Key(KeyPair);

impl Signs for Key {
    fn sign(&mut self, data: &[u8], _: HashAlgorithm, out: &mut Buf) -> Result<(), DimplError> {
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), data, &mut signature)
            .expect("a signature");
        out.clear();
        out.extend_from_slice(&signature);
        Ok(())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn supported_hash_algorithms(&self) -> &[HashAlgorithm] {
        &[HashAlgorithm::SHA256]
    }
}

#[derive(Debug)]
struct Hashes;

impl HashProvider for Hashes {
    fn create_hash(&self, algorithm: HashAlgorithm) -> Box<dyn HashContext> {
        Box::new(Hash(
            rust_crypto::default_provider().hash_provider.create_hash(algorithm),
        ))
    }
}

#[derive(Debug)]
struct Hash(Box<dyn HashContext>);

impl HashContext for Hash {
    fn update(&mut self, transcript: &[u8]) {
        let mut transcript = transcript.to_vec();
        say_rsa(&mut transcript, 0);
        self.0.update(&transcript);
    }

    fn clone_and_finalize(&self, out: &mut Buf) {
        self.0.clone_and_finalize(out);
    }
}

/// Corrects the algorithm in messages that start at `from`.
fn say_rsa(bytes: &mut [u8], from: usize) {
    let mut at = from;
    let mut found = Vec::new();
    for message in messages(&bytes[from..]) {
        let body = at + records::MESSAGE_HEADER_BYTES;
        if message.kind == CERTIFICATE_VERIFY && message.offset == 0 {
            found.push(body);
        }
        at = body + message.body.len();
    }
    for body in found {
        assert_eq!(bytes[body..body + 2], ECDSA_SHA256);
        bytes[body..body + 2].copy_from_slice(&RSA_SHA256);
    }
}

/// Corrects the algorithm on the wire to the server.
fn say_rsa_on_the_wire(to: usize, packet: &mut Vec<u8>) {
    if to == 0 {
        let mut parts: Vec<_> = records(packet).map(<[u8]>::to_vec).collect();
        for record in parts.iter_mut().filter(|record| is_handshake_in_clear(record)) {
            say_rsa(record, RECORD_HEADER_BYTES);
        }
        *packet = parts.concat();
    }
}

#[test]
fn a_client_with_an_rsa_key_is_accepted() {
    let now = Instant::now();
    // The smaller MTU fragments certificate and signature.
    for (bits, mtu) in [(2048, MTU), (2048, 500), (4096, MTU), (4096, 500)] {
        let device = key(bits);
        let (mut left, mut right) = (ours(false, now), client(device.clone(), mtu, now));
        let (server, client, _, refused) = carry(&mut *left, &mut *right, now, say_rsa_on_the_wire);
        assert_eq!(refused, [], "{bits} bits, {mtu} bytes");
        assert!(server.connected && client.connected && client.keys && server.keys);
        assert_eq!(server.peer_certificate, device.certificate);
        left.send_application_data(b"pong").unwrap();
        right.send_application_data(b"ping").unwrap();
        let (server, client, _) = shake(&mut *left, &mut *right, now);
        assert_eq!((server.data, client.data), (b"ping".to_vec(), b"pong".to_vec()));
    }
}

/// Returns a server, and an RSA client's last flight.
fn before_the_last_flight(mtu: usize, now: Instant) -> (Box<dyn DtlsInstance>, Vec<Vec<u8>>) {
    let (mut server, mut client) = (ours(false, now), client(key(4096), mtu, now));
    server.handle_timeout(now).unwrap();
    client.handle_timeout(now).unwrap();
    let hello = drain(&mut *client).packets;
    hello.iter().for_each(|packet| server.handle_packet(packet).unwrap());
    let flight = drain(&mut *server).packets;
    flight.iter().for_each(|packet| client.handle_packet(packet).unwrap());
    let mut flight = drain(&mut *client).packets;
    flight.iter_mut().for_each(|packet| say_rsa_on_the_wire(0, packet));
    (server, flight)
}

/// The fragments arrive in reverse and then twice, without another cost than time.
#[test]
fn fragments_may_arrive_in_any_order() {
    let (mut server, flight) = before_the_last_flight(500, Instant::now());
    assert!(flight.len() > 3, "{}", flight.len());
    for packet in flight.iter().rev().chain(&flight) {
        server.handle_packet(packet).unwrap();
    }
    assert!(drain(&mut *server).connected);
}

/// The fragments of OpenSSL, as aiortc sends them.
#[test]
fn a_flight_of_many_fragments_in_one_datagram_is_accepted() {
    let (mut server, flight) = before_the_last_flight(256, Instant::now());
    let datagram: Vec<u8> = flight.concat();
    let count = records(&datagram).count();
    assert!(count > RECORDS_PER_PACKET_MAX, "{count}");
    server.handle_packet(&datagram).unwrap();
    assert!(drain(&mut *server).connected);
}

#[test]
fn a_wrong_signature_is_rejected_with_the_reason() {
    let now = Instant::now();
    let other = DtlsCert {
        certificate: key(2048).certificate,
        // Another length than the test's own key.
        private_key: key(4096).private_key,
    };
    // The key of another certificate.
    let (mut server, mut thief) = (ours(false, now), client(other, MTU, now));
    let (server, _, _, refused) = carry(&mut *server, &mut *thief, now, say_rsa_on_the_wire);
    assert!(!server.connected);
    assert_eq!(refused[0], (0, HandshakeError::BadSignature));
    // Changes algorithm, hash, and the first and last byte of the signature.
    for (at, xor) in [(25, 1), (26, 2), (29, 1), (29 + 255, 1)] {
        let (mut server, mut client) = (ours(false, now), client(key(2048), MTU, now));
        let mut changed = 0;
        let (server, _, _, refused) = carry(&mut *server, &mut *client, now, |to, packet| {
            say_rsa_on_the_wire(to, packet);
            if to == 0 {
                change_message(packet, CERTIFICATE_VERIFY, |record| {
                    record[at] ^= xor;
                    changed += 1;
                });
            }
        });
        assert!(changed > 0 && !server.connected, "byte {at}");
        assert_eq!(refused[0], (0, HandshakeError::BadSignature), "byte {at}");
    }
}

/// A third party that removes RSA from the request is detected, because the signed transcripts
/// differ.
#[test]
fn a_request_changed_by_a_third_party_fails_the_handshake() {
    let now = Instant::now();
    let (mut server, mut client) = (ours(false, now), client(key(2048), MTU, now));
    let (server, client, _, refused) = carry(&mut *server, &mut *client, now, |to, packet| {
        say_rsa_on_the_wire(to, packet);
        if to == 1 {
            change_message(packet, 13, |record| {
                let at = record.windows(2).rposition(|part| part == RSA_SHA256).expect("RSA");
                record[at] = 2;
            });
        }
    });
    assert!(!server.connected && !client.connected);
    assert_eq!(refused[0], (0, HandshakeError::BadSignature));
}
