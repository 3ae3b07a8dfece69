//! The key of a telephone call, for which its tokens are issued.
//!
//! In: the name of its provider, and the provider's id. Out: a hash, for ids of any length.

use std::fmt;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// The key of one call among the calls of all providers: 128 bits of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey([u8; 16]);

impl CallKey {
    /// Returns the key of a call of the provider with this name.
    pub fn new(provider: &str, call_id: &str) -> CallKey {
        let hash = Sha256::new_with_prefix(provider)
            .chain_update([0])
            .chain_update(call_id);
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finalize()[..16]);
        CallKey(key)
    }

    /// Returns the bytes of the key.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}
