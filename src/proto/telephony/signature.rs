//! Webhook signatures: the parts that several providers share.
//!
//! In: the request as the provider saw it (public URL, headers, raw body) and the time in Unix
//! seconds. Out: a [`SignatureStatus`] with a [`Fingerprint`] that identifies a repeated webhook,
//! or a [`SignatureError`]. The error contains the signed URL without its query, since the usual
//! mistake is a `--proxy` other than the host that the provider calls. Signatures are compared in
//! constant time. Missing, malformed, wrong and (if the provider dates them) old signatures are
//! rejected. Without a credential, or with verification disabled, the status is "not checked".
//! Source: `docs/spec/telephony.md` 9.

use std::fmt;

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::limits::SIGNATURE_AGE_MAX_S;
use crate::secret::Secret;

#[cfg_attr(not(feature = "telephony"), path = "signature/keyed/absent.rs")]
pub(super) mod keyed;

/// A webhook request as the provider sent it.
#[derive(Clone, Copy)]
pub struct WebhookRequest<'r> {
    /// `https://{proxy}{path}[?query]`: the URL that the provider calls, not the listening address.
    pub url: &'r str,
    /// Returns the header with a name in lower case.
    pub header: &'r dyn Fn(&str) -> Option<&'r str>,
    pub body: &'r [u8],
}

/// Identifies the signed content: a repeated webhook has the same fingerprint.
pub type Fingerprint = [u8; 16];

/// The result of verifying a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureStatus {
    Verified(Fingerprint),
    /// There is no credential, or verification is disabled.
    NotChecked,
}

/// A request that does not come from the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureError {
    Missing {
        header: &'static str,
    },
    Malformed {
        header: &'static str,
    },
    /// The signature does not match the request. The URL has no query.
    Foreign {
        header: &'static str,
        url: String,
    },
    /// The signature does not cover the URL, so either the key or the body is wrong.
    ForeignBody {
        header: &'static str,
    },
    /// The token of the account did not sign this, and the header names another key.
    OtherKey {
        header: &'static str,
    },
    Stale {
        off_s: u64,
    },
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignatureError::Missing { header } => write!(f, "no {header} header"),
            SignatureError::Malformed { header } => write!(f, "the {header} header cannot be read"),
            SignatureError::Foreign { header, url } => write!(
                f,
                "{header} is not the signature of this request to {url}; is that the address that the provider calls \
                 (`--proxy`), and the token that of the account?"
            ),
            SignatureError::ForeignBody { header } => write!(
                f,
                "{header} is not the signature of this body; is the public key that of the account?"
            ),
            SignatureError::OtherKey { header } => {
                write!(f, "signed with a key of its own ({header}), which is not supported")
            }
            SignatureError::Stale { off_s } => write!(
                f,
                "signed {off_s} s away from this machine's clock, {SIGNATURE_AGE_MAX_S} s are allowed"
            ),
        }
    }
}

impl std::error::Error for SignatureError {}

impl SignatureError {
    /// Adds the URL for which the signature was expected.
    pub(super) fn at(self, place: &str) -> Self {
        match self {
            SignatureError::Foreign { header, .. } => SignatureError::Foreign {
                header,
                url: place.to_owned(),
            },
            other => other,
        }
    }
}

/// Identifies a request by its signature, which is unique for a message and a key.
pub fn verified(signature: &[u8]) -> SignatureStatus {
    let mut fingerprint = [0; 16];
    fingerprint.copy_from_slice(&Sha256::digest(signature)[..16]);
    SignatureStatus::Verified(fingerprint)
}

/// Returns whether a signature is the HMAC-SHA256 of a message.
pub fn is_hmac_sha256(key: &Secret, message: &[u8], signature: &[u8]) -> bool {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.expose().as_bytes()).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.verify_slice(signature).is_ok()
}

/// Returns the HMAC-SHA256 of a message.
pub(super) fn hmac_sha256(key: &Secret, message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.expose().as_bytes()).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// Returns whether the body of a webhook is a form.
pub(super) fn is_form(webhook: &WebhookRequest<'_>) -> bool {
    (webhook.header)("content-type").is_some_and(|kind| {
        kind.split(';')
            .next()
            .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
    })
}

/// Decodes the base64 of a header.
pub(super) fn base64(header: &'static str, text: &str) -> Result<Vec<u8>, SignatureError> {
    BASE64
        .decode(text.trim().as_bytes())
        .map_err(|_| SignatureError::Malformed { header })
}

/// Splits a URL into the part before the query, and the query. Requests have no fragment.
pub(super) fn split_query(url: &str) -> (&str, Option<&str>) {
    match url.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (url, None),
    }
}

/// Returns the concatenated names and values of sorted parameters.
pub(super) fn concatenated(pairs: &[(String, String)]) -> String {
    pairs.iter().flat_map(|(name, value)| [name.as_str(), value]).collect()
}
