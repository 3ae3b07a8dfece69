//! The certificate of a microcontroller, as Mbed TLS writes it, and its fingerprint.
//!
//! Out: DER and a key. Before Mbed TLS 3.5.0 the signature algorithm has a NULL parameter, which
//! strict parsers reject; only the fingerprint matters. Sources: RFC 5280, RFC 5758 section 3.2
//! (which forbids the NULL).

use p256::ecdsa::signature::Signer;
use p256::ecdsa::{DerSignature, SigningKey};
use p256::elliptic_curve::Generate;
use p256::pkcs8::EncodePublicKey;
use sha2::{Digest, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateForm {
    Valid,
    /// As Mbed TLS 2.28 and 3.4 write it.
    NullParameters,
}

/// A certificate, its key, and its fingerprint as the offer states it.
#[derive(Clone)]
pub struct Identity {
    pub certificate: Vec<u8>,
    pub key: SigningKey,
    pub fingerprint: String,
}

impl Identity {
    /// Creates a key and its certificate, valid from 2018 to 2028.
    pub fn generate(form: CertificateForm) -> Self {
        let key = SigningKey::generate();
        let mut algorithm = b"\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02".to_vec();
        if form == CertificateForm::NullParameters {
            algorithm.extend_from_slice(b"\x05\x00");
        }
        let algorithm = sequence(&[&algorithm]);
        let public_key = key.verifying_key().to_public_key_der().expect("a P-256 key");
        // CN=dtls_srtp
        let common_name = sequence(&[b"\x06\x03\x55\x04\x03", &der(0x0c, b"dtls_srtp")]);
        let name = sequence(&[&der(0x31, &common_name)]);
        let validity = sequence(&[&der(0x17, b"180101000000Z"), &der(0x17, b"280101000000Z")]);
        let version = der(0xa0, &der(0x02, &[2]));
        let serial = der(0x02, b"peer");
        let body = sequence(&[
            &version,
            &serial,
            &algorithm,
            &name,
            &validity,
            &name,
            public_key.as_bytes(),
        ]);
        let signature: DerSignature = key.sign(&body);
        let bits = der(0x03, &[&[0], signature.as_bytes()].concat());
        let certificate = sequence(&[&body, &algorithm, &bits]);
        let fingerprint = fingerprint(&certificate);
        Self {
            certificate,
            key,
            fingerprint,
        }
    }
}

/// Upper-case hexadecimal with colons.
pub fn fingerprint(certificate: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(certificate).into();
    digest.map(|byte| format!("{byte:02X}")).join(":")
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    der(0x30, &parts.concat())
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).expect("a small certificate").to_be_bytes();
    let head: &[u8] = match (high, low) {
        (0, 0..0x80) => &[tag, low],
        (0, _) => &[tag, 0x81, low],
        _ => &[tag, 0x82, high, low],
    };
    [head, content].concat()
}
