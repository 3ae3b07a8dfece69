//! The replacement of `signature::keyed` in a build without `telephony`: no signature is valid.

pub fn is_hmac_sha1(_key: &str, _message: [&[u8]; 2], _signature: &[u8]) -> bool {
    false
}

pub fn hmac_sha1(_key: &str, _message: [&[u8]; 2]) -> Vec<u8> {
    Vec::new()
}

pub fn is_ed25519(_key: &[u8], _message: &[u8], _signature: &[u8]) -> bool {
    false
}
