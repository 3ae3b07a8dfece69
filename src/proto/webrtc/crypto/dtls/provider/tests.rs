//! Which keys are rejected, and with which error. The certificates were made with OpenSSL.

use dimpl::crypto::{HashAlgorithm, SignatureAlgorithm};

use super::super::handshake_error::take_handshake_error;
use super::*;

macro_rules! certificate {
    ($name:literal) => {
        include_bytes!(concat!("../../../../../../tests/data/dtls/", $name, ".der"))
    };
}

/// Returns the error for a certificate in each role, with an invalid signature.
fn refusals(certificate: &[u8], algorithm: SignatureAlgorithm) -> [Option<String>; 2] {
    let roles: [&dyn SignatureVerifier; 2] = [&ServerVerifier, &ClientVerifier];
    roles.map(|verifier| {
        take_handshake_error();
        let verified = verifier.verify_signature(certificate, b"data", &[0x55; 256], HashAlgorithm::SHA256, algorithm);
        assert!(verified.is_err());
        take_handshake_error().map(|refusal| refusal.to_string())
    })
}

#[test]
fn unsupported_keys_are_named() {
    let cases: [(&[u8], &str); 6] = [
        (certificate!("secp224r1"), "a key on the curve secp224r1"),
        (certificate!("secp521r1"), "a key on the curve secp521r1"),
        (certificate!("ed25519"), "a key for Ed25519"),
        (certificate!("pss"), "a key for RSASSA-PSS"),
        (certificate!("rsa1024"), "an RSA key of 1024 bits"),
        (certificate!("secp384r1"), ""),
    ];
    for (certificate, kind) in cases {
        for algorithm in [SignatureAlgorithm::ECDSA, SignatureAlgorithm::RSA] {
            for said in refusals(certificate, algorithm) {
                let words = (!kind.is_empty()).then(|| {
                    format!(
                        "the client's certificate has {kind}; P-256, P-384 and, of a DTLS client, RSA of 2048 to 4096 bits \
                         are taken"
                    )
                });
                assert_eq!(said, words);
            }
        }
    }
}

#[test]
fn rsa_keys_are_accepted_from_clients_only() {
    let [server, client] = refusals(certificate!("rsa2048"), SignatureAlgorithm::RSA);
    assert_eq!(server, None, "the signature is wrong, the key is not");
    assert!(client.unwrap().contains("an RSA key of 2048 bits"));
}

#[test]
fn no_certificate_causes_a_panic() {
    for good in [
        &certificate!("rsa2048")[..],
        certificate!("secp384r1"),
        certificate!("ed25519"),
    ] {
        for length in 0..good.len() {
            refusals(&good[..length], SignatureAlgorithm::RSA);
        }
        for at in 0..good.len() {
            let mut changed = good.to_vec();
            changed[at] ^= 0x81;
            refusals(&changed, SignatureAlgorithm::RSA);
        }
    }
}
