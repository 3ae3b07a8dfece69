//! Digests: HMAC-SHA1 for SRTP and STUN, SHA-256 and SHA-1 for certificate fingerprints.
//!
//! In: any bytes. Out: 20 or 32 bytes. Some old SDP still has SHA-1 fingerprints; str0m prefers
//! SHA-256. Sources: RFC 2104, RFC 3711 section 4.2, RFC 8489, RFC 8122.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use str0m::crypto::{Sha1HmacProvider, Sha1Provider, Sha256Provider};

use super::foreign_extension;

#[derive(Debug)]
pub(super) struct Digests;

impl Sha1HmacProvider for Digests {
    fn sha1_hmac(&self, key: &[u8], payloads: &[&[u8]]) -> [u8; 20] {
        let mut mac = Hmac::<Sha1>::new_from_slice(key).expect("HMAC takes a key of any length");
        if let Some((packet, rest)) = payloads.split_first() {
            mac.update(&foreign_extension::as_received(packet));
            rest.iter().for_each(|payload| mac.update(payload));
        }
        mac.finalize().into_bytes().into()
    }
}

impl Sha1Provider for Digests {
    fn sha1(&self, data: &[u8]) -> [u8; 20] {
        Sha1::digest(data).into()
    }
}

impl Sha256Provider for Digests {
    fn sha256(&self, data: &[u8]) -> [u8; 32] {
        Sha256::digest(data).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_sha1_gives_the_values_of_rfc_2202() {
        let tag = Digests.sha1_hmac(&[0x0b; 20], &[b"Hi There"]);
        assert_eq!(
            tag,
            *b"\xb6\x17\x31\x86\x55\x05\x72\x64\xe2\x8b\xc0\xb6\xfb\x37\x8c\x8e\xf1\x46\xbe\x00"
        );
        // Case 6: a key longer than the block.
        let tag = Digests.sha1_hmac(
            &[0xaa; 80],
            &[b"Test Using Larger Than Block-Size Key - Hash Key First"],
        );
        assert_eq!(
            tag,
            *b"\xaa\x4a\xe5\xe1\x52\x72\xd0\x0e\x95\x70\x56\x37\xce\x8a\x3b\x55\xed\x40\x21\x12"
        );
    }

    #[test]
    fn hmac_does_not_see_where_one_slice_ends() {
        assert_eq!(
            Digests.sha1_hmac(b"k", &[b"ab", b"", b"c"]),
            Digests.sha1_hmac(b"k", &[b"abc"])
        );
    }

    #[test]
    fn digests_of_abc_are_those_of_fips_180() {
        assert_eq!(
            Digests.sha1(b"abc"),
            *b"\xa9\x99\x3e\x36\x47\x06\x81\x6a\xba\x3e\x25\x71\x78\x50\xc2\x6c\x9c\xd0\xd8\x9d"
        );
        assert_eq!(
            Digests.sha256(b"abc"),
            *b"\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23\xb0\x03\x61\xa3\x96\x17\x7a\x9c\xb4\x10\xff\x61\xf2\x00\x15\xad"
        );
    }
}
