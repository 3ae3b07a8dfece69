//! The self-signed certificate this process shows in every DTLS handshake.
//!
//! In: random bytes. Out: an X.509 v3 certificate (ECDSA P-256, SHA-256) and its PKCS #8 key, both DER. It is made once
//! and shared by all sessions: peers know it by its fingerprint alone, and a key pair per session would cost a
//!  handshake budget for nothing. Its dates are fixed and span every clock a board may have, 1970
//! included. It carries no extensions, so it serves as client and as server.
//! The few DER headers are written here: a builder crate would be larger than the certificate is worth.
//! Sources: RFC 5280, RFC 5480, RFC 5758, RFC 8122.

use std::fmt;
use std::sync::OnceLock;

use p256::ecdsa::signature::Signer;
use p256::ecdsa::{DerSignature, SigningKey};
use p256::elliptic_curve::Generate;
use p256::pkcs8::{EncodePrivateKey, EncodePublicKey};
use str0m::crypto::dtls::DtlsCert;

/// DER of `ecdsa-with-SHA256`, without parameters (RFC 5758 section 3.2).
const ECDSA_WITH_SHA256: &[u8] = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
/// DER of the object identifier `commonName`.
const COMMON_NAME: &[u8] = b"\x06\x03\x55\x04\x03";
/// From the clock of a board without a battery to the last second that a UTCTime can say.
const VALID_FROM: &[u8] = b"700101000000Z";
const VALID_TO: &[u8] = b"491231235959Z";
const SUBJECT: &[u8] = b"WebRTC";

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const EXPLICIT_0: u8 = 0xa0;

/// The certificate could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateError {
    /// The operating system gave no random bytes.
    NoRandomness,
    /// The key could not be encoded or could not sign.
    Key,
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CertificateError::NoRandomness => "no random bytes from the operating system for the DTLS certificate",
            CertificateError::Key => "the key of the DTLS certificate could not be used",
        })
    }
}

impl std::error::Error for CertificateError {}

/// Gives the certificate of this process, made on the first call; calling it at start shows a fault early.
///
/// # Errors
/// When the operating system has no randomness; a later call tries again.
pub fn certificate() -> Result<&'static DtlsCert, CertificateError> {
    static MADE: OnceLock<DtlsCert> = OnceLock::new();
    if let Some(made) = MADE.get() {
        return Ok(made);
    }
    let key = SigningKey::try_generate().map_err(|_| CertificateError::NoRandomness)?;
    let serial = <[u8; 16]>::try_generate().map_err(|_| CertificateError::NoRandomness)?;
    let made = self_signed(&key, serial)?;
    Ok(MADE.get_or_init(|| made))
}

/// Writes the certificate of `key`. The serial number must be random: Firefox refuses a second certificate with the same
/// issuer and number.
fn self_signed(key: &SigningKey, mut serial: [u8; 16]) -> Result<DtlsCert, CertificateError> {
    // Positive, and without a leading zero byte, which DER forbids.
    serial[0] = serial[0] & 0x7f | 0x40;
    let public_key = key
        .verifying_key()
        .to_public_key_der()
        .map_err(|_| CertificateError::Key)?;
    let attribute = der(SEQUENCE, &[COMMON_NAME, &der(UTF8_STRING, &[SUBJECT])]);
    let name = der(SEQUENCE, &[&der(SET, &[&attribute])]);
    let to_be_signed = der(
        SEQUENCE,
        &[
            &der(EXPLICIT_0, &[&der(INTEGER, &[&[2]])]), // v3
            &der(INTEGER, &[&serial]),
            ECDSA_WITH_SHA256,
            &name,
            &der(SEQUENCE, &[&der(UTC_TIME, &[VALID_FROM]), &der(UTC_TIME, &[VALID_TO])]),
            &name,
            public_key.as_bytes(),
        ],
    );
    let signature: DerSignature = key.try_sign(&to_be_signed).map_err(|_| CertificateError::Key)?;
    let unused_bits = &[0][..];
    let certificate = der(
        SEQUENCE,
        &[
            &to_be_signed,
            ECDSA_WITH_SHA256,
            &der(BIT_STRING, &[unused_bits, signature.as_bytes()]),
        ],
    );
    let private_key = key
        .to_pkcs8_der()
        .map_err(|_| CertificateError::Key)?
        .as_bytes()
        .to_vec();
    Ok(DtlsCert {
        certificate,
        private_key,
    })
}

/// One DER element: tag, length, and the parts as its content.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).expect("a certificate with one key is far below 64 KiB");
    let [high, low] = length.to_be_bytes();
    let header: &[u8] = match length {
        0..=0x7f => &[tag, low],
        0x80..=0xff => &[tag, 0x81, low],
        _ => &[tag, 0x82, high, low],
    };
    [header, &content].concat()
}
