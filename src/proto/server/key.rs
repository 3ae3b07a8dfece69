//! The API key of `--api-key`, and its comparison.
//!
//! In: the configured key, random bytes, and the `Authorization` headers of a request. Out: yes or
//! no. The time does not depend on the key: keyed digests are compared, with a random key per
//! process. Rejected: a missing or repeated header, a scheme other than `Bearer`, and any other
//! key. Source: RFC 6750 section 2.1.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::secret::Secret;

/// The configured API key, as a keyed digest.
pub struct ApiKey {
    keyed: Hmac<Sha256>,
    tag: [u8; 32],
}

impl fmt::Debug for ApiKey {
    /// Omits the key and its digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey")
    }
}

impl ApiKey {
    /// Creates the digest of a key; `random` must differ for every process.
    pub fn new(key: &Secret, random: [u8; 32]) -> Self {
        let keyed = Hmac::<Sha256>::new_from_slice(&random).expect("HMAC takes a key of any length");
        let tag = keyed.clone().chain_update(key.expose()).finalize().into_bytes().into();
        ApiKey { keyed, tag }
    }

    /// Returns whether the only `Authorization` header of a request contains the key.
    pub fn matches_header<'h>(&self, mut authorizations: impl Iterator<Item = &'h [u8]>) -> bool {
        let (Some(only), None) = (authorizations.next(), authorizations.next()) else {
            return false;
        };
        bearer(only).is_some_and(|key| self.matches(key))
    }

    /// Returns whether this is the key.
    pub fn matches(&self, shown: &[u8]) -> bool {
        self.keyed.clone().chain_update(shown).verify_slice(&self.tag).is_ok()
    }
}

/// Returns the credential after `Bearer`, in any case.
pub fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, key) = authorization.trim_ascii().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef";

    fn opens(authorizations: &[&str]) -> bool {
        let key = ApiKey::new(&Secret::new(KEY), [7; 32]);
        key.matches_header(authorizations.iter().map(|text| text.as_bytes()))
    }

    #[test]
    fn accepts_the_key_with_any_case_of_the_scheme() {
        for header in [
            "Bearer 0123456789abcdef",
            "bearer 0123456789abcdef",
            "BEARER  0123456789abcdef ",
        ] {
            assert!(opens(&[header]), "{header}");
        }
    }

    #[test]
    fn rejects_everything_else() {
        for headers in [
            &[][..],
            &[""],
            &["Bearer"],
            &["Bearer "],
            &[KEY],
            &["Basic 0123456789abcdef"],
            &["Bearer 0123456789abcde"],
            &["Bearer 0123456789abcdef0"],
            &["Bearer 0123456789abcdeF"],
            &["Bearer 0123456789abcdef, Bearer 0123456789abcdef"],
            &["Bearer\t0123456789abcdef"],
            &["Bearer0123456789abcdef"],
            &["Bearer \u{e9}"],
            &["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"],
            &["Bearer x", "Bearer 0123456789abcdef"],
        ] {
            assert!(!opens(headers), "{headers:?}");
        }
    }

    #[test]
    fn the_debug_form_omits_the_key() {
        assert_eq!(format!("{:?}", ApiKey::new(&Secret::new(KEY), [7; 32])), "ApiKey");
    }
}
