//! Upload grants and their security tokens.
//!
//! In: [`GrantTerms`], a signer, the time. Out: the JSON of the grant with its members in a fixed
//! order, since clients send the fields in the order received. The token identifies the upload
//! without a database lookup: `base64url({"org","uploadId","exp"}) "."
//! base64url(HMAC-SHA256(secret, "token " + first part))`, where `exp` is in milliseconds since
//! 1970. A token is parsed after its signature has been verified. Source:
//! `docs/spec/cloud-protocol.md` 3 and 4.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};

use crate::proto::build::{Org, Slug};
use crate::proto::policy;
use crate::proto::sign::{self, GrantSigner, STORE, SigningKey};
use edge_runner_proto::time;
use edge_runner_proto::uuid::Uuid;

/// Name of the upload store: a form field, and part of the URL.
pub const BUCKET: &str = "build-contexts";

/// Required content type of an upload.
pub(super) const CONTENT_TYPE: &str = "application/gzip";

/// What a grant authorizes.
#[derive(Clone, Copy, Debug)]
pub struct GrantTerms<'a> {
    pub org: &'a Org,
    pub upload: Uuid,
    /// Code of the region.
    pub region: &'a Slug,
    /// Where clients post the form.
    pub url: &'a str,
    /// Largest size of the file in bytes.
    pub size_max: u64,
    /// Milliseconds since 1970 at which the grant expires.
    pub expires_ms: u64,
}

/// The answer of `POST /builds/upload-url`.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadGrant<F = UploadFields> {
    pub upload_id: String,
    pub upload_url: String,
    pub upload_fields: F,
    pub expires_at: String,
}

/// The form fields except `file`.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct UploadFields {
    pub key: String,
    pub bucket: &'static str,
    #[serde(rename = "Content-Type")]
    pub content_type: &'static str,
    #[serde(rename = "Policy")]
    pub policy: String,
    #[serde(rename = "X-Store-Algorithm")]
    pub algorithm: &'static str,
    #[serde(rename = "X-Store-Credential")]
    pub credential: String,
    #[serde(rename = "X-Store-Date")]
    pub date: String,
    #[serde(rename = "X-Store-Security-Token")]
    pub token: String,
    #[serde(rename = "X-Store-Signature")]
    pub signature: String,
}

impl<F> fmt::Debug for UploadGrant<F> {
    /// Omits the fields, which authorize an upload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadGrant")
            .field("upload_id", &self.upload_id)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// Returns the store key of an upload's archive.
pub fn archive_key(org: &Org, upload: Uuid) -> String {
    format!("{org}/{upload}.tar.gz")
}

/// Issues a grant at a time in milliseconds since 1970.
pub fn issue(signing: &GrantSigner, terms: &GrantTerms<'_>, now_ms: u64) -> UploadGrant {
    let SigningKey { id, secret } = signing.key_at(now_ms);
    let date = time::compact(now_ms);
    let day = &date[..8];
    let key = archive_key(terms.org, terms.upload);
    let credential = format!("{id}/{day}/{}/{}/{}", terms.region, STORE.service, STORE.terminator);
    let token = UploadClaims {
        org: terms.org.to_string(),
        upload_id: terms.upload.to_string(),
        exp: terms.expires_ms,
    };
    let token = token.sign(&secret);
    let policy = policy::encode(
        terms.expires_ms,
        &[
            ("bucket", BUCKET),
            ("key", &key),
            ("Content-Type", CONTENT_TYPE),
            ("X-Store-Algorithm", STORE.algorithm),
            ("X-Store-Credential", &credential),
            ("X-Store-Date", &date),
            ("X-Store-Security-Token", &token),
        ],
        (1, terms.size_max),
        3,
    );
    let signature = STORE.sign(&secret, day, terms.region.as_str(), policy.as_bytes());
    UploadGrant {
        upload_id: terms.upload.to_string(),
        upload_url: terms.url.to_owned(),
        upload_fields: UploadFields {
            key,
            bucket: BUCKET,
            content_type: CONTENT_TYPE,
            policy,
            algorithm: STORE.algorithm,
            credential,
            date,
            token,
            signature,
        },
        expires_at: time::iso_ms(terms.expires_ms),
    }
}

/// Claims of a security token.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UploadClaims {
    pub(super) org: String,
    #[serde(rename = "uploadId")]
    pub(super) upload_id: String,
    /// Milliseconds since 1970.
    pub(super) exp: u64,
}

impl UploadClaims {
    fn sign(&self, secret: &[u8]) -> String {
        let json = serde_json::to_vec(self).expect("strings and numbers are JSON");
        let payload = BASE64URL_NOPAD.encode(&json);
        let tag = sign::hmac_sha256(secret, format!("token {payload}").as_bytes());
        format!("{payload}.{}", BASE64URL_NOPAD.encode(&tag))
    }

    /// Parses a token after verifying its signature.
    pub(super) fn verify(token: &str, secret: &[u8]) -> Option<UploadClaims> {
        let (payload, tag) = token.split_once('.')?;
        let tag = BASE64URL_NOPAD.decode(tag.as_bytes()).ok()?;
        let signed = format!("token {payload}");
        if !sign::verify_hmac_sha256(secret, signed.as_bytes(), &tag) {
            return None;
        }
        let json = BASE64URL_NOPAD.decode(payload.as_bytes()).ok()?;
        serde_json::from_slice(&json).ok()
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;
    use serde_json::Value;

    use super::*;

    const NOW_MS: u64 = 1_795_262_400_000; // 2026-11-21T12:00:00Z

    fn grant() -> UploadGrant {
        let signing = GrantSigner::Fixed(SigningKey {
            id: "SKEXAMPLE01".into(),
            secret: b"store-secret-for-tests".to_vec(),
        });
        let terms = GrantTerms {
            org: &Slug::parse("org-7").expect("a name"),
            upload: Uuid::parse("0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11").expect("a UUID"),
            region: &Slug::parse("us-west").expect("a name"),
            url: "https://uploads.example.net/build-contexts",
            size_max: 524_288_000,
            expires_ms: NOW_MS + 900_000,
        };
        issue(&signing, &terms, NOW_MS)
    }

    /// C-028 to C-041: all members in order, with the values of `docs/spec/cloud-protocol.md` 3.
    /// Another program computed the HMAC values.
    #[test]
    fn a_grant_has_its_documented_form() {
        let grant = grant();
        let token = concat!(
            "eyJvcmciOiJvcmctNyIsInVwbG9hZElkIjoiMGI5ZTNmNTItNmExZC00YzU1LTlkMGUtMmY2YTBjN2QxZTExIiwiZXhwIjoxNzk1MjYzMzAwMDAwfQ",
            ".VketcFyykHODUt6QHi-C4Hp7qe7QuIwZ3D9-9V5HZyQ"
        );
        assert_eq!(grant.upload_fields.token, token);
        let policy = &grant.upload_fields.policy;
        let signature = "faabd26bda2f5e19ed083898b5db908cc9a70afcbe09b2f77ca82f2724323715";
        let expected = format!(
            concat!(
                r#"{{"uploadId":"0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11","uploadUrl":"https://uploads.example.net/build-contexts","#,
                r#""uploadFields":{{"key":"org-7/0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11.tar.gz","bucket":"build-contexts","#,
                r#""Content-Type":"application/gzip","Policy":"{}","X-Store-Algorithm":"STORE4-HMAC-SHA256","#,
                r#""X-Store-Credential":"SKEXAMPLE01/20261121/us-west/store/store4_request","#,
                r#""X-Store-Date":"20261121T120000Z","X-Store-Security-Token":"{}","X-Store-Signature":"{}"}},"#,
                r#""expiresAt":"2026-11-21T12:15:00.000Z"}}"#
            ),
            policy, token, signature
        );
        assert_eq!(serde_json::to_string(&grant).expect("JSON"), expected);
        let document = BASE64.decode(policy.as_bytes()).expect("base64");
        let document: Value = serde_json::from_slice(&document).expect("JSON");
        assert_eq!(document["expiration"], *grant.expires_at);
        assert_eq!(document["conditions"][3][2], 524_288_000);
    }

    /// I-06: a changed token is rejected.
    #[test]
    fn a_changed_token_is_rejected() {
        let token = grant().upload_fields.token;
        let secret = b"store-secret-for-tests";
        let claims = UploadClaims::verify(&token, secret).expect("a token");
        assert_eq!(claims.org, "org-7");
        assert_eq!(claims.upload_id, "0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11");
        assert_eq!(claims.exp, NOW_MS + 900_000);
        assert_eq!(UploadClaims::verify(&token, b"another"), None);
        for at in 0..token.len() {
            for other in "Aa0-_.=\u{e9}".chars().filter(|c| !token[at..].starts_with(*c)) {
                let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
                assert_eq!(UploadClaims::verify(&changed, secret), None, "{changed}");
            }
            assert_eq!(UploadClaims::verify(&token[..at], secret), None);
        }
        for text in ["", ".", "session-token-1", &format!("{token}."), &format!("{token}\n")] {
            assert_eq!(UploadClaims::verify(text, secret), None, "{text}");
        }
    }

    /// I-22: debug output shows no field.
    #[test]
    fn debug_output_shows_no_field() {
        let grant = grant();
        let shown = format!("{grant:?}");
        let fields = &grant.upload_fields;
        for hidden in [&fields.policy, &fields.signature, &fields.token] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }
}
