//! Signatures of upload grants: key derivation, signing, verification.
//!
//! In: a secret, a day, a region, and the base64 text of a policy, which is not parsed here. Out: a
//! signature of 64 lower-case hex digits, or the result of a comparison in constant time.
//! [`GrantSigner`] selects the key of a day: the operator's, or one per UTC day, derived from the
//! service's secret. Source: AWS Signature Version 4 for POST uploads with other constants
//! ([`SigningScheme`]); `docs/spec/cloud-protocol.md` 4.2.

use std::fmt;

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use edge_runner_proto::time::{self, DAY_SECONDS};

/// The constants of a signature scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigningScheme {
    /// Value of the algorithm field.
    pub algorithm: &'static str,
    /// Prefix of the secret in the first derived key.
    pub prefix: &'static str,
    /// Service name in the credential scope.
    pub service: &'static str,
    /// Last component of the credential scope.
    pub terminator: &'static str,
}

/// The scheme of this service.
pub const STORE: SigningScheme = SigningScheme {
    algorithm: "STORE4-HMAC-SHA256",
    prefix: "STORE4",
    service: "store",
    terminator: "store4_request",
};

/// The scheme of Amazon S3 and of the stores that follow it.
pub const S3: SigningScheme = SigningScheme {
    algorithm: "AWS4-HMAC-SHA256",
    prefix: "AWS4",
    service: "s3",
    terminator: "aws4_request",
};

impl SigningScheme {
    /// Signs a text. `day` is `yyyymmdd`.
    pub fn sign(&self, secret: &[u8], day: &str, region: &str, text: &[u8]) -> String {
        let signature = hmac(&self.key(secret, day, region), text).finalize().into_bytes();
        HEXLOWER.encode(&signature)
    }

    /// Verifies a signature in constant time. Upper-case digits are rejected.
    pub fn verifies(&self, secret: &[u8], day: &str, region: &str, text: &[u8], signature: &[u8]) -> bool {
        let Ok(signature) = HEXLOWER.decode(signature) else {
            return false;
        };
        hmac(&self.key(secret, day, region), text)
            .verify_slice(&signature)
            .is_ok()
    }

    /// Derives the key for a day, region and service.
    fn key(&self, secret: &[u8], day: &str, region: &str) -> [u8; 32] {
        let first = hmac_sha256(&[self.prefix.as_bytes(), secret].concat(), day.as_bytes());
        [region, self.service, self.terminator]
            .iter()
            .fold(first, |key, part| hmac_sha256(&key, part.as_bytes()))
    }
}

fn hmac(key: &[u8], text: &[u8]) -> Hmac<Sha256> {
    let keyed: Hmac<Sha256> = Hmac::new_from_slice(key).expect("HMAC takes a key of any length");
    keyed.chain_update(text)
}

/// Returns the HMAC-SHA256 of a text.
pub(super) fn hmac_sha256(key: &[u8], text: &[u8]) -> [u8; 32] {
    hmac(key, text).finalize().into_bytes().into()
}

/// Verifies an HMAC-SHA256 in constant time.
pub(super) fn verify_hmac_sha256(key: &[u8], text: &[u8], tag: &[u8]) -> bool {
    hmac(key, text).verify_slice(tag).is_ok()
}

/// Selects the key that signs grants.
#[derive(Clone)]
pub enum GrantSigner {
    /// The operator's key, used every day.
    Fixed(SigningKey),
    /// A key per UTC day, derived from these random bytes. A leaked day key expires with the
    /// following day.
    ByDay([u8; 32]),
}

/// The public id of a key, and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// Part of the credential; contains no `/`.
    pub id: String,
    pub secret: Vec<u8>,
}

impl fmt::Debug for GrantSigner {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GrantSigner::Fixed(_) => "Signing::Fixed",
            GrantSigner::ByDay(_) => "Signing::ByDay",
        })
    }
}

impl fmt::Debug for SigningKey {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("id", &self.id).finish_non_exhaustive()
    }
}

impl GrantSigner {
    /// Returns the signing key at a time in milliseconds since 1970.
    pub fn key_at(&self, now_ms: u64) -> SigningKey {
        match self {
            GrantSigner::Fixed(pair) => pair.clone(),
            GrantSigner::ByDay(secret) => key_of_day(secret, day(now_ms)),
        }
    }

    /// Returns the key with this id if it is the operator's, today's or yesterday's.
    pub fn find(&self, id: &str, now_ms: u64) -> Option<SigningKey> {
        let yesterday_ms = now_ms.saturating_sub(DAY_SECONDS * 1000);
        [now_ms, yesterday_ms]
            .into_iter()
            .map(|ms| self.key_at(ms))
            .find(|pair| pair.id == id)
    }
}

/// Returns the UTC day of a time as `yyyymmdd`.
pub(super) fn day(ms: u64) -> String {
    let mut text = time::compact(ms);
    text.truncate(8);
    text
}

fn key_of_day(secret: &[u8; 32], day: String) -> SigningKey {
    let of = |what: &str| HEXLOWER.encode(&hmac_sha256(secret, format!("{what} {day}").as_bytes()));
    SigningKey {
        id: format!("SK{}", &of("id")[..18]),
        secret: of("key").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;

    use super::*;

    const SECRET: &[u8] = b"store-secret-for-tests";

    const POLICY: &str = concat!(
        r#"{"expiration":"2026-11-21T12:15:00.000Z","conditions":[{"bucket":"build-contexts"},"#,
        r#"{"key":"org-7/0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11.tar.gz"},{"Content-Type":"application/gzip"},"#,
        r#"["content-length-range",1,524288000],{"X-Store-Algorithm":"STORE4-HMAC-SHA256"},"#,
        r#"{"X-Store-Credential":"SKEXAMPLE01/20261121/us-west/store/store4_request"},"#,
        r#"{"X-Store-Date":"20261121T120000Z"},{"X-Store-Security-Token":"session-token-1"}]}"#,
    );

    fn hex(bytes: &[u8]) -> String {
        HEXLOWER.encode(bytes)
    }

    /// C-036, C-041: the test vector of `docs/spec/cloud-protocol.md` 4.2, with every intermediate
    /// key.
    #[test]
    fn the_documented_test_vector_matches() {
        let text = BASE64.encode(POLICY.as_bytes());
        assert_eq!((POLICY.len(), text.len()), (416, 556));
        assert!(text.ends_with("eS1Ub2tlbiI6InNlc3Npb24tdG9rZW4tMSJ9XX0="));
        let k1 = hmac_sha256(b"STORE4store-secret-for-tests", b"20261121");
        let k2 = hmac_sha256(&k1, b"us-west");
        let k3 = hmac_sha256(&k2, b"store");
        let k4 = hmac_sha256(&k3, b"store4_request");
        for (key, expected) in [
            (k1, "7856a905d4df91fcdec5078edc21b1c7212a27d557e8ff5beea2e44ab263229a"),
            (k2, "1e13704704f0edf9d8dc6e45801e9cc48f30a6bc62a102eb5ca6b28ce1dcfdfa"),
            (k3, "0bfe5018b3447d59e356c7a54073b7a1bf49fa2489f54fa3bc4105ea30ec1d43"),
            (k4, "68bff52369b85289c81bc7736f2264669f42298224fa5c9901a0976f6be11407"),
        ] {
            assert_eq!(hex(&key), expected);
        }
        assert_eq!(STORE.key(SECRET, "20261121", "us-west"), k4);
        let signature = "1a0cef5a2023848b24f1cb315d530f4462634bdd605c33bcb4bc51a3436bb36b";
        let sign = |region| STORE.sign(SECRET, "20261121", region, text.as_bytes());
        assert_eq!(sign("us-west"), signature);
        assert_eq!(
            sign("us-east"),
            "745743d3d14994228d79675f2d046847e12b022407c39f908073f6cb336eff0f"
        );
        let verifies = |text: &str, signature: &str| {
            STORE.verifies(SECRET, "20261121", "us-west", text.as_bytes(), signature.as_bytes())
        };
        assert!(verifies(&text, signature));
        for wrong in [
            "",
            &signature.to_uppercase(),
            &signature[..62],
            &format!("{signature}00"),
            &sign("us-east"),
        ] {
            assert!(!verifies(&text, wrong), "{wrong}");
        }
        assert!(!verifies(&text[..555], signature));
    }

    /// The same derivation with the constants of AWS; the values were computed by another program.
    #[test]
    fn aws_constants_give_aws_signatures() {
        let text = BASE64.encode(POLICY.as_bytes());
        let k1 = hmac_sha256(b"AWS4store-secret-for-tests", b"20261121");
        assert_eq!(
            hex(&k1),
            "e26eb84cc19f47a254b4cffd9b5de4d43842ef65e554e8e9fdd3bcbf502b2cbf"
        );
        assert_eq!(
            hex(&S3.key(SECRET, "20261121", "us-west")),
            "e259e4c897406ed81497f7cffd616c4dbcdcaa5611ce23ae55b046e97d7debff"
        );
        assert_eq!(
            S3.sign(SECRET, "20261121", "us-west", text.as_bytes()),
            "7fbd7c86d2ec6e96a10e1e90fff6c023adf1410205b24fb28f1c88fdf4dd9706"
        );
        // The derivation example of the AWS documentation.
        assert_eq!(
            hex(&SigningScheme { service: "iam", ..S3 }.key(
                b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                "20120215",
                "us-east-1"
            )),
            "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d"
        );
    }

    /// I-05: a day key verifies until the end of the following day.
    #[test]
    fn day_keys_verify_on_the_following_day() {
        let signing = GrantSigner::ByDay([7; 32]);
        let midnight = 1_795_219_200_000; // 2026-11-21T00:00:00Z
        assert_eq!(day(midnight), "20261121");
        let before = signing.key_at(midnight - 1_000);
        let after = signing.key_at(midnight);
        assert_eq!(
            before,
            signing.key_at(midnight - DAY_SECONDS * 1_000),
            "one key for the whole day"
        );
        assert!(before.id != after.id && before.secret != after.secret);
        for (id, at, found) in [
            (&before.id, midnight - 1, true),
            (&before.id, midnight, true),
            (&before.id, midnight + DAY_SECONDS * 1_000 - 1, true),
            (&before.id, midnight + DAY_SECONDS * 1_000, false),
            (&after.id, midnight - 1, false),
            (&after.id, midnight, true),
        ] {
            assert_eq!(signing.find(id, at).is_some(), found, "{id} at {at}");
        }
        assert_eq!(signing.find("SK", midnight), None);
        assert!(before.id.starts_with("SK") && before.id.len() == 20 && before.secret.len() == 64);
        assert_ne!(GrantSigner::ByDay([8; 32]).key_at(midnight).id, after.id);
    }

    /// I-05: the operator's key is used unchanged on every day.
    #[test]
    fn the_operators_key_is_used_unchanged() {
        let pair = SigningKey {
            id: "SKEXAMPLE01".into(),
            secret: SECRET.to_vec(),
        };
        let signing = GrantSigner::Fixed(pair.clone());
        for now_ms in [0, 1_795_219_200_000] {
            assert_eq!(signing.key_at(now_ms), pair);
            assert_eq!(signing.find("SKEXAMPLE01", now_ms), Some(pair.clone()));
            assert_eq!(signing.find("skexample01", now_ms), None);
        }
    }

    /// I-22: debug output shows no secret.
    #[test]
    fn debug_output_shows_no_secret() {
        let by_day = GrantSigner::ByDay([7; 32]);
        let pair = by_day.key_at(0);
        assert_eq!(
            format!("{by_day:?} {pair:?}"),
            format!("Signing::ByDay Pair {{ id: {:?}, .. }}", pair.id)
        );
    }
}
