//! Signature algorithms that only telephony uses.
//!
//! In: key, message and signature as bytes. Out: whether the signature is valid, compared in
//! constant time. Source: RFC 2104 (HMAC), RFC 8032 (Ed25519).

use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{ED25519, UnparsedPublicKey};
use sha1::Sha1;

/// Returns whether a signature is the HMAC-SHA1 of a message in two parts.
pub fn is_hmac_sha1(key: &str, message: [&[u8]; 2], signature: &[u8]) -> bool {
    let mut mac = Hmac::<Sha1>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    message.iter().for_each(|part| mac.update(part));
    mac.verify_slice(signature).is_ok()
}

/// Returns the HMAC-SHA1 of a message in two parts.
pub fn hmac_sha1(key: &str, message: [&[u8]; 2]) -> Vec<u8> {
    let mut mac = Hmac::<Sha1>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    message.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

/// Returns whether a signature is the Ed25519 signature of a message; false for a key of another
/// length.
pub fn is_ed25519(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}
