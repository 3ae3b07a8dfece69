//! A device as DTLS client.
//!
//! It starts the handshake, answers the cookie request, and repeats its last flight every second
//! until the next one arrives. It supports what the server half does: one suite, one group, one
//! SRTP profile. Sources: those of the server half.

use std::time::{Duration, Instant};

use p256::PublicKey;
use p256::ecdh::EphemeralSecret;
use p256::ecdsa::DerSignature;
use p256::ecdsa::signature::{Signer, Verifier};
use p256::elliptic_curve::Generate;
use sha2::{Digest, Sha256};

use super::record::{CHANGE_CIPHER_SPEC, HANDSHAKE, Protection, VERSION, prf};
use super::{
    CERTIFICATE, CERTIFICATE_VERIFY, CLIENT_HELLO, CLIENT_KEY_EXCHANGE, ECDSA_SHA256, EXTENSION_EXTENDED_MASTER_SECRET,
    EXTENSION_GROUPS, EXTENSION_POINT_FORMATS, EXTENSION_RENEGOTIATION, EXTENSION_USE_SRTP, Endpoint, Event, FINISHED,
    GROUP, HandshakeError, SRTP_PROFILE, SUITE, extension, handshake_header, length16, length24, srtp, take,
};

const EXTENSION_SIGNATURES: u16 = 13;
const REPEAT: Duration = Duration::from_secs(1);

impl Endpoint {
    /// Starts the handshake, or repeats an unanswered flight.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.is_client || self.done || self.repeat_at.is_some_and(|at| now < at) {
            return;
        }
        if self.repeat_at.replace(now + REPEAT).is_none() {
            self.client_random = <[u8; 32]>::generate();
            self.say_hello(&[]);
        } else {
            self.datagrams.extend_from_slice(&self.last_flight);
        }
    }

    fn say_hello(&mut self, cookie: &[u8]) {
        let extensions = [
            extension(EXTENSION_GROUPS, &[&[0, 2][..], &GROUP].concat()),
            extension(EXTENSION_POINT_FORMATS, &[1, 0]),
            extension(EXTENSION_SIGNATURES, &[&[0, 2][..], &ECDSA_SHA256].concat()),
            extension(EXTENSION_USE_SRTP, &[&[0, 2][..], &SRTP_PROFILE, &[0]].concat()),
            extension(EXTENSION_EXTENDED_MASTER_SECRET, &[]),
            extension(EXTENSION_RENEGOTIATION, &[0]),
        ]
        .concat();
        let length = u8::try_from(cookie.len()).expect("a cookie of DTLS 1.2");
        let hello = [
            &VERSION[..],
            &self.client_random,
            &[0, length],
            cookie,
            &[0, 2],
            &SUITE,
            &[1, 0],
            &length16(&extensions),
            &extensions,
        ]
        .concat();
        let record = self.handshake(CLIENT_HELLO, &hello);
        self.flight(vec![record]);
    }

    /// The request and its answer are not part of the transcript.
    pub(super) fn handle_cookie(&mut self, body: &[u8]) -> Result<(), HandshakeError> {
        let mut rest = body.get(2..).ok_or("a short HelloVerifyRequest")?;
        let cookie = take(&mut rest, 1).ok_or("a HelloVerifyRequest without a cookie")?;
        self.transcript.clear();
        self.say_hello(cookie);
        Ok(())
    }

    pub(super) fn handle_server_hello(&mut self, body: &[u8]) -> Result<(), HandshakeError> {
        let short = "a short ServerHello";
        self.server_random = body.get(2..34).and_then(|b| b.try_into().ok()).ok_or(short)?;
        let mut rest = &body[34..];
        let _session = take(&mut rest, 1).ok_or(short)?;
        if rest.get(..3) != Some(&[SUITE[0], SUITE[1], 0]) {
            return Err("another suite than the offered one".into());
        }
        rest = &rest[3..];
        let mut listed = take(&mut rest, 2).ok_or(short)?;
        let mut has_srtp = false;
        while let Some((kind, after)) = listed.split_first_chunk::<2>() {
            listed = after;
            let data = take(&mut listed, 2).ok_or(short)?;
            match u16::from_be_bytes(*kind) {
                EXTENSION_USE_SRTP => has_srtp = data.get(2..4) == Some(&SRTP_PROFILE),
                EXTENSION_EXTENDED_MASTER_SECRET => self.extended_master_secret = true,
                _ => {}
            }
        }
        if !has_srtp {
            return Err("no AES_CM_128_HMAC_SHA1_80 in the ServerHello".into());
        }
        Ok(())
    }

    pub(super) fn handle_server_key_exchange(&mut self, body: &[u8]) -> Result<(), HandshakeError> {
        let length = usize::from(*body.get(3).ok_or("a short key exchange")?);
        let (parameters, signed) = body.split_at_checked(4 + length).ok_or("a short key exchange")?;
        if parameters[..3] != [3, GROUP[0], GROUP[1]] || signed.get(..2) != Some(&ECDSA_SHA256) {
            return Err("another group or signature than the offered one".into());
        }
        let signature = signed
            .get(4..)
            .and_then(|b| DerSignature::from_bytes(b).ok())
            .ok_or("a bad signature")?;
        let key = self.peer_key.as_ref().ok_or("a key exchange before the certificate")?;
        let covered = [&self.client_random[..], &self.server_random, parameters].concat();
        key.verify(&covered, &signature).map_err(|_| "a wrong signature")?;
        self.peer_point = Some(PublicKey::from_sec1_bytes(&parameters[4..]).map_err(|_| "a bad key share")?);
        Ok(())
    }

    /// Certificate to Finished.
    pub(super) fn handle_server_hello_done(&mut self) -> Result<(), HandshakeError> {
        let point = self.peer_point.ok_or("no key exchange")?;
        let certificate = self.identity.certificate.clone();
        let listed = [&length24(&certificate)[..], &certificate].concat();
        let certificate = self.handshake(CERTIFICATE, &[&length24(&listed)[..], &listed].concat());

        let exchange = EphemeralSecret::generate();
        let own = exchange.public_key().to_sec1_bytes();
        let length = u8::try_from(own.len()).expect("65 bytes");
        let share = self.handshake(CLIENT_KEY_EXCHANGE, &[&[length][..], &own].concat());
        self.derive(exchange.diffie_hellman(&point).raw_secret_bytes());

        let signature: DerSignature = self.identity.key.sign(&self.transcript);
        let signature = signature.as_bytes();
        let verify = self.handshake(
            CERTIFICATE_VERIFY,
            &[&ECDSA_SHA256[..], &length16(signature), signature].concat(),
        );

        let hash: [u8; 32] = Sha256::digest(&self.transcript).into();
        let finished = prf::<12>(&self.master, b"client finished", &hash);
        let change = self.writer.record(CHANGE_CIPHER_SPEC, 0, &[1]);
        let message = [
            &handshake_header(FINISHED, self.sent_messages, finished.len())[..],
            &finished,
        ]
        .concat();
        self.transcript.extend_from_slice(&message);
        let finished = self.writer.record(HANDSHAKE, 1, &message);
        self.flight(vec![certificate, share, verify, change, finished]);
        Ok(())
    }

    pub(super) fn handle_server_finished(&mut self, body: &[u8], before: usize) -> Result<(), HandshakeError> {
        let hash: [u8; 32] = Sha256::digest(&self.transcript[..before]).into();
        if prf::<12>(&self.master, b"server finished", &hash) != *body {
            return Err("a wrong Finished".into());
        }
        if !std::mem::replace(&mut self.done, true) {
            let (incoming, outgoing) = self.srtp_contexts();
            self.events.push(Event::Keys { outgoing, incoming });
        }
        Ok(())
    }

    /// Derives the record keys from the shared secret.
    pub(super) fn derive(&mut self, premaster: &[u8]) {
        let randoms = [self.client_random, self.server_random].concat();
        self.master = if self.extended_master_secret {
            let hash: [u8; 32] = Sha256::digest(&self.transcript).into();
            prf(premaster, b"extended master secret", &hash)
        } else {
            prf(premaster, b"master secret", &randoms)
        };
        let seed = [self.server_random, self.client_random].concat();
        let keys: [u8; 40] = prf(&self.master, b"key expansion", &seed);
        let client = Protection::new(&keys[..16], &keys[32..36]);
        let server = Protection::new(&keys[16..32], &keys[36..]);
        let (incoming, outgoing) = if self.is_client {
            (server, client)
        } else {
            (client, server)
        };
        self.incoming = Some(incoming);
        self.writer.protect_with(outgoing);
    }

    /// The server's and the client's SRTP contexts.
    pub(super) fn srtp_contexts(&self) -> (Box<srtp::Context>, Box<srtp::Context>) {
        let randoms = [self.client_random, self.server_random].concat();
        let material: [u8; 60] = prf(&self.master, b"EXTRACTOR-dtls_srtp", &randoms);
        let (server, client) = srtp::server_contexts(&material);
        (Box::new(server), Box::new(client))
    }
}
