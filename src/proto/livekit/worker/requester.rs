//! Who has asked for a job: an attribute of the dispatch, for quotas of the runner that takes it.
//!
//! In: the requester of `/start`, at the runner that creates the dispatch. Out: a keyed digest of
//! its source, and from it the key of the quotas, at the runner that takes the job. All runners of
//! a server have its API secret, so they count one source alike, and none learns its address. A
//! request with the API key, and a dispatch of another program, have no such attribute.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::secret::Secret;
use crate::server::admission::Requester;
use crate::server::source::SourceKey;

/// The attribute of a dispatch that names the source of an anonymous request.
const SOURCE_ATTRIBUTE: &str = "edge.source";

/// Adds the requester to the attributes of a dispatch.
pub(super) fn write(attributes: &mut BTreeMap<String, String>, requester: Requester, secret: &Secret) {
    if requester.is_authorised {
        return;
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).expect("HMAC takes a key of any length");
    mac.update(format!("{SOURCE_ATTRIBUTE}\n{}", requester.source).as_bytes());
    let digest = mac.finalize().into_bytes();
    let tag = digest[..8].iter().fold(0, |tag, byte| tag << 8 | u64::from(*byte));
    attributes.insert(SOURCE_ATTRIBUTE.to_owned(), format!("{tag:016x}"));
}

/// Returns the source of an anonymous request.
pub(super) fn read(attributes: &BTreeMap<String, String>) -> Option<SourceKey> {
    let tag = attributes.get(SOURCE_ATTRIBUTE)?;
    u64::from_str_radix(tag, 16).ok().map(SourceKey::Remote)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn from(address: &str, is_authorised: bool) -> Requester {
        Requester {
            source: address.parse::<IpAddr>().expect("an address").into(),
            is_authorised,
            local_address: None,
        }
    }

    #[test]
    fn a_source_is_distinguished_without_its_address() {
        let tag = |address: &str, is_authorised, secret: &str| {
            let mut attributes = BTreeMap::new();
            write(&mut attributes, from(address, is_authorised), &Secret::new(secret));
            assert!(!format!("{attributes:?}").contains("192"));
            read(&attributes)
        };
        let own = tag("192.0.2.1", false, "secret");
        assert!(matches!(own, Some(SourceKey::Remote(_))));
        assert_eq!(tag("::ffff:192.0.2.1", false, "secret"), own);
        assert_ne!(tag("192.0.2.2", false, "secret"), own);
        assert_ne!(tag("192.0.2.1", false, "other"), own, "the digest needs the key");
        assert_eq!(tag("192.0.2.1", true, "secret"), None);
    }

    #[test]
    fn a_dispatch_of_another_program_has_no_source() {
        for attributes in [
            BTreeMap::new(),
            [(SOURCE_ATTRIBUTE.to_owned(), "no tag".to_owned())].into(),
        ] {
            assert_eq!(read(&attributes), None);
        }
    }
}
