//! The self-signed certificate that this process presents in DTLS handshakes.
//!
//! In: random bytes from the operating system, the only input that `proto` does not receive as a
//! value. Out: an X.509 v3 certificate (ECDSA P-256 with SHA-256) and its PKCS #8 key, both in DER.
//! It is created once and shared by all sessions: peers identify it by its fingerprint, and a key
//! pair per call would only add delay. The validity period is fixed, so no clock is needed, and
//! spans every date that a board's clock may show, 1970 included. Without extensions it serves
//! clients and servers alike. The few DER headers are written here, because a builder crate would
//! be larger. Sources: RFC 5280 section 4.1, RFC 5758 section 3.2, RFC 8122.

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
/// From the clock of a board without a battery to the last second of UTCTime.
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

/// Why the certificate could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateError {
    /// The operating system provided no random bytes.
    NoRandomness,
    /// The key could not be encoded, or could not sign.
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

/// Returns the certificate of this process, and creates it on the first call.
///
/// # Errors
/// [`CertificateError`] if the operating system provides no random bytes; a later call tries again.
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

/// Builds the certificate of `key`. The serial number must be random: Firefox rejects a second
/// certificate with the same issuer and number.
fn self_signed(key: &SigningKey, mut serial: [u8; 16]) -> Result<DtlsCert, CertificateError> {
    // Positive and without a leading zero byte, as DER requires.
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

/// Encodes one DER element: tag, length, and the concatenated parts.
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

#[cfg(test)]
pub(super) mod tests {
    use p256::ecdsa::VerifyingKey;
    use p256::ecdsa::signature::Verifier;
    use p256::pkcs8::{DecodePrivateKey, DecodePublicKey};
    use x509_cert::Certificate;
    use x509_cert::der::{Decode, Encode};

    use super::*;

    fn made(seed: u8) -> DtlsCert {
        self_signed(&SigningKey::from_slice(&[0x2b; 32]).unwrap(), [seed; 16]).unwrap()
    }

    #[test]
    fn all_sessions_share_one_certificate() {
        assert!(std::ptr::eq(certificate().unwrap(), certificate().unwrap()));
    }

    /// A strict X.509 parser accepts it, and its own key signed it.
    #[test]
    fn the_certificate_is_p256_with_sha256_and_signed_by_its_own_key() {
        for der in [made(0x11), made(0xff), certificate().unwrap().clone()] {
            let parsed = Certificate::from_der(&der.certificate).unwrap();
            assert_eq!(parsed.to_der().unwrap(), der.certificate);
            let tbs = parsed.tbs_certificate();
            assert_eq!(tbs.version(), x509_cert::Version::V3);
            assert_eq!(tbs.signature().oid.to_string(), "1.2.840.10045.4.3.2");
            assert!(
                tbs.signature().parameters.is_none(),
                "RFC 5758 wants no parameters, not NULL"
            );
            assert_eq!(parsed.signature_algorithm(), tbs.signature());
            assert_eq!(tbs.issuer(), tbs.subject());
            assert_eq!(tbs.subject().to_string(), "CN=WebRTC");
            assert!(
                tbs.extensions().is_none(),
                "an extended key usage might forbid one of the roles"
            );

            let key = VerifyingKey::from_public_key_der(&tbs.subject_public_key_info().to_der().unwrap()).unwrap();
            let signature = DerSignature::from_bytes(parsed.signature().raw_bytes()).unwrap();
            key.verify(&tbs.to_der().unwrap(), &signature).unwrap();
            assert_eq!(
                SigningKey::from_pkcs8_der(&der.private_key).unwrap().verifying_key(),
                &key
            );
        }
    }

    /// A board without a battery starts in 1970, and a board must not outlive its certificate.
    #[test]
    fn the_dates_span_every_clock_of_a_board() {
        let parsed = Certificate::from_der(&made(0x11).certificate).unwrap();
        let validity = parsed.tbs_certificate().validity();
        assert_eq!(validity.not_before.to_unix_duration().as_secs(), 0);
        assert_eq!(validity.not_after.to_date_time().year(), 2049);
    }

    #[test]
    fn serial_numbers_are_positive_and_16_bytes_whatever_the_random_bytes() {
        for seed in [0x01, 0x40, 0x7f, 0x80, 0xff] {
            let parsed = Certificate::from_der(&made(seed).certificate).unwrap();
            let serial = parsed.tbs_certificate().serial_number().as_bytes();
            assert_eq!(serial.len(), 16);
            assert_eq!(serial[0] & 0xc0, 0x40);
            assert_eq!(serial[1..], [seed; 15]);
        }
    }

    #[test]
    fn lengths_are_written_in_their_shortest_form() {
        for (length, header) in [
            (0, &[4, 0][..]),
            (127, &[4, 127]),
            (128, &[4, 0x81, 128]),
            (256, &[4, 0x82, 1, 0]),
        ] {
            let element = der(4, &[&vec![7; length]]);
            assert_eq!(element[..header.len()], *header);
            assert_eq!(element.len(), header.len() + length);
        }
    }

    /// A certificate as Mbed TLS before 3.5 writes it: expired, with a NULL parameter in both
    /// signature algorithms.
    pub(crate) fn malformed() -> DtlsCert {
        let key = SigningKey::from_slice(&[0x2b; 32]).unwrap();
        let good = self_signed(&key, [0x2b; 16]).unwrap().certificate;
        let tbs = Certificate::from_der(&good)
            .unwrap()
            .tbs_certificate()
            .to_der()
            .unwrap();
        let (_, content) = tbs.split_at(3); // tag, 0x81, length
        let with_null = der(SEQUENCE, &[&ECDSA_WITH_SHA256[2..], &[5, 0]]);
        let at = content
            .windows(ECDSA_WITH_SHA256.len())
            .position(|part| part == ECDSA_WITH_SHA256)
            .unwrap();
        let (before, after) = (&content[..at], &content[at + ECDSA_WITH_SHA256.len()..]);
        let mut tbs = der(SEQUENCE, &[before, &with_null, after]);
        let date = tbs.windows(VALID_TO.len()).position(|part| part == VALID_TO).unwrap();
        tbs[date..date + VALID_TO.len()].copy_from_slice(b"700102000000Z");
        let signature: DerSignature = key.try_sign(&tbs).unwrap();
        let certificate = der(
            SEQUENCE,
            &[&tbs, &with_null, &der(BIT_STRING, &[&[0], signature.as_bytes()])],
        );
        DtlsCert {
            certificate,
            private_key: key.to_pkcs8_der().unwrap().as_bytes().to_vec(),
        }
    }
}
