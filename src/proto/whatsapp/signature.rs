//! Verifies webhook signatures and the challenge of the webhook address.
//!
//! In: headers, the raw body, the query of a GET. Out: nothing, or the reason of the rejection. No
//! body is parsed before its signature is verified. Comparisons take constant time. Source:
//! `docs/spec/whatsapp.md` 2 and 3; RFC 2104.

use std::fmt;

use data_encoding::HEXLOWER_PERMISSIVE;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::http::route::Query;
use crate::secret::Secret;

/// The header with the signature.
pub const HEADER: &str = "x-hub-signature-256";

/// The longest challenge that is echoed. Real ones are ten digits.
const CHALLENGE_CHARS_MAX: usize = 256;

/// Why the signature of a webhook is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookSignatureError {
    Missing,
    Malformed,
    Foreign,
}

impl fmt::Display for WebhookSignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebhookSignatureError::Missing => write!(f, "no {HEADER} header"),
            WebhookSignatureError::Malformed => {
                write!(f, "the {HEADER} header is not `sha256=` and 64 hexadecimal digits")
            }
            WebhookSignatureError::Foreign => write!(
                f,
                "{HEADER} is not the signature of this body; is MESSAGING_APP_SECRET the secret of the app that sends the \
                 webhooks?"
            ),
        }
    }
}

impl std::error::Error for WebhookSignatureError {}

/// Verifies that a body was signed with the app secret.
///
/// # Errors
/// [`WebhookSignatureError`]. The answer is 401.
pub fn verify(secret: &Secret, header: Option<&[u8]>, body: &[u8]) -> Result<(), WebhookSignatureError> {
    let header = header.ok_or(WebhookSignatureError::Missing)?;
    let hex = header
        .strip_prefix(b"sha256=")
        .ok_or(WebhookSignatureError::Malformed)?;
    let signature = HEXLOWER_PERMISSIVE
        .decode(hex)
        .map_err(|_| WebhookSignatureError::Malformed)?;
    if signature.len() != 32 {
        return Err(WebhookSignatureError::Malformed);
    }
    mac(secret.expose().as_bytes(), body)
        .verify_slice(&signature)
        .map_err(|_| WebhookSignatureError::Foreign)
}

/// The verify token is wrong, or the challenge is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChallengeError;

impl fmt::Display for ChallengeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verification failed")
    }
}

impl std::error::Error for ChallengeError {}

/// Returns the challenge to echo.
///
/// # Errors
/// [`ChallengeError`]. The answer is 403.
pub fn challenge(word: &Secret, query: Query<'_>) -> Result<String, ChallengeError> {
    let value = |name: &str| query.value(name).ok_or(ChallengeError);
    let (mode, challenge, given) = (value("hub.mode")?, value("hub.challenge")?, value("hub.verify_token")?);
    // Comparing hashes hides how much of the token is right.
    let hash = mac(CHALLENGE_KEY, given.as_bytes()).finalize().into_bytes();
    let is_right = mac(CHALLENGE_KEY, word.expose().as_bytes()).verify_slice(&hash).is_ok();
    let is_fit = challenge.len() <= CHALLENGE_CHARS_MAX && challenge.bytes().all(|byte| byte.is_ascii_graphic());
    (mode == "subscribe" && is_right && is_fit)
        .then_some(challenge)
        .ok_or(ChallengeError)
}

/// Any key works, since both hashes are computed here.
const CHALLENGE_KEY: &[u8] = b"hub.verify_token";

fn mac(key: &[u8], text: &[u8]) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.chain_update(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"object":"whatsapp_business_account","entry":[]}"#;
    const SIGNED: &str = "sha256=eefab58106e73358686845848feb95c56372e7391b3dc050b6a31c8c5f347ece";

    fn judged(header: &str, body: &[u8]) -> Result<(), WebhookSignatureError> {
        let secret = Secret::new("0123456789abcdef0123456789abcdef");
        verify(&secret, Some(header.as_bytes()), body)
    }

    /// R-020: the vector of `docs/spec/whatsapp.md` 3, confirmed with `openssl dgst -sha256 -hmac`.
    #[test]
    fn accepts_only_the_signed_body() {
        assert_eq!(judged(SIGNED, BODY), Ok(()));
        let upper = SIGNED.to_ascii_uppercase().replace("SHA256=", "sha256=");
        assert_eq!(judged(&upper, BODY), Ok(()));
        let spaced = [BODY, b" "].concat();
        assert_eq!(judged(SIGNED, &spaced), Err(WebhookSignatureError::Foreign));
        assert_eq!(
            judged(&SIGNED.replace("eef", "fef"), BODY),
            Err(WebhookSignatureError::Foreign)
        );
        for malformed in [
            "",
            "sha256=",
            "sha1=eefab581",
            &SIGNED["sha256=".len()..],
            &SIGNED[..SIGNED.len() - 2],
            &format!("{SIGNED}00"),
            &SIGNED.replace("eefa", "eefg"),
            "sha256=\u{e4}",
        ] {
            assert_eq!(
                judged(malformed, BODY),
                Err(WebhookSignatureError::Malformed),
                "{malformed}"
            );
        }
        assert_eq!(
            verify(&Secret::new("x"), None, BODY),
            Err(WebhookSignatureError::Missing)
        );
    }

    #[test]
    fn challenge_requires_the_verify_token() {
        let asked = |query: &str| challenge(&Secret::new("W\u{f6}rd 1"), Query::new(query));
        let good = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=W%C3%B6rd%201";
        assert_eq!(asked(good), Ok("1158201444".into()));
        let at_the_cap = "9".repeat(CHALLENGE_CHARS_MAX);
        assert_eq!(asked(&good.replace("1158201444", &at_the_cap)), Ok(at_the_cap));
        for bad in [
            "",
            &good.replace("subscribe", "unsubscribe"),
            &good.replace("hub.mode", "mode"),
            &good.replace("%201", "%202"),
            &good.replace("%201", ""),
            &good.replace("1158201444", ""),
            &good.replace("1158201444", "a%20b"),
            &good.replace("1158201444", "a%0D%0Ab"),
            &good.replace("1158201444", &"9".repeat(CHALLENGE_CHARS_MAX + 1)),
            "hub.challenge=1&hub.verify_token=W%C3%B6rd%201",
            "hub.mode=subscribe&hub.verify_token=W%C3%B6rd%201",
            "hub.mode=subscribe&hub.challenge=1",
        ] {
            assert_eq!(asked(bad), Err(ChallengeError), "{bad}");
        }
    }
}
