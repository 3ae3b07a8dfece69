//! The checks of signatures that only telephony needs.
//!
//! In: key, message and signature as bytes. Out: whether they fit, compared in constant time.
//! Sources: RFC 2104 (HMAC), RFC 8032 (Ed25519).

use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{ED25519, UnparsedPublicKey};
use sha1::Sha1;

/// Tells whether a signature is the HMAC-SHA1 of a message that comes in two parts.
pub fn is_hmac_sha1(key: &str, message: [&[u8]; 2], signature: &[u8]) -> bool {
    let mut mac = Hmac::<Sha1>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    message.iter().for_each(|part| mac.update(part));
    mac.verify_slice(signature).is_ok()
}

/// Tells whether a signature is the Ed25519 one of a message; a key of another length signs
/// nothing.
pub fn is_ed25519(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}
