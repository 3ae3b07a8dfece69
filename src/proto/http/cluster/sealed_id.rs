//! Session ids that any replica understands: the id carries the body of `/start`, sealed.
//!
//! In: a body as JSON text, whether its requester was authorised, 16 random bytes, the time. Out:
//! `UUID "." base64url(seal)`, and from that the same again. The UUID is the name of the session.
//! The seal is AES-256-GCM over a byte of flags, the second of expiry and the body; its key belongs
//! to this UUID alone, so the nonce is constant and a UUID with the seal of another is rejected.
//! Also rejected: other keys, any changed or missing byte, unknown flags, and other text. Source:
//! `docs/spec/decisions.md` D-23.

use std::fmt;
use std::sync::Arc;

use aes_gcm::Aes256Gcm;
use aes_gcm::aead::AeadInOut;
use aes_gcm::aead::inout::InOutBuf;
use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use super::ClusterKey;
use crate::limits::{SEALED_BODY_BYTES_MAX, SEALED_ID_BYTES_MAX};
use crate::uuid::Uuid;

/// The bytes of a seal beside the body: flags, expiry, and the tag of GCM.
pub const OVERHEAD_BYTES: usize = 1 + 8 + TAG_BYTES;

const TAG_BYTES: usize = 16;

/// The flag of a body that an authorised request registered.
const AUTHORISED: u8 = 1;

/// Seals and opens session ids.
pub struct SealedIds {
    keyed: Hmac<Sha256>,
}

impl fmt::Debug for SealedIds {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedIds").finish_non_exhaustive()
    }
}

/// What an id carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSession {
    pub uuid: Uuid,
    /// JSON text.
    pub body: Box<str>,
    pub is_authorised: bool,
    /// The second since 1970 at which it expires.
    pub expires_s: u64,
}

/// The body is too long for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyTooLong;

impl fmt::Display for BodyTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "with --cluster-key-file, the session id carries the `body`, which may have {SEALED_BODY_BYTES_MAX} bytes of \
             JSON; send a name by which the bot finds the rest"
        )
    }
}

impl std::error::Error for BodyTooLong {}

impl SealedIds {
    pub fn new(key: &ClusterKey) -> Self {
        SealedIds {
            keyed: Hmac::new_from_slice(&key.derive("edge-runner session ids 1"))
                .expect("HMAC takes a key of any length"),
        }
    }

    /// Makes the id of a session.
    ///
    /// # Errors
    /// [`BodyTooLong`] above [`SEALED_BODY_BYTES_MAX`].
    pub fn seal(&self, session: &SealedSession) -> Result<Arc<str>, BodyTooLong> {
        if session.body.len() > SEALED_BODY_BYTES_MAX {
            return Err(BodyTooLong);
        }
        let mut sealed = Vec::with_capacity(OVERHEAD_BYTES + session.body.len());
        sealed.push(if session.is_authorised { AUTHORISED } else { 0 });
        sealed.extend_from_slice(&session.expires_s.to_be_bytes());
        sealed.extend_from_slice(session.body.as_bytes());
        let tag = self
            .cipher(session.uuid)
            .encrypt_inout_detached(&[0; 12].into(), &[], InOutBuf::from(&mut sealed[..]))
            .expect("GCM takes far longer texts");
        sealed.extend_from_slice(&tag);
        Ok(format!("{}.{}", session.uuid, BASE64URL_NOPAD.encode(&sealed)).into())
    }

    /// Opens an id. Expiry is for the caller to check: a session that lives outlasts its id.
    pub fn open(&self, id: &str) -> Option<SealedSession> {
        if id.len() > SEALED_ID_BYTES_MAX {
            return None;
        }
        let (uuid, sealed) = id.split_once('.')?;
        let uuid = Uuid::parse(uuid)?;
        let mut sealed = BASE64URL_NOPAD.decode(sealed.as_bytes()).ok()?;
        let at = sealed.len().checked_sub(TAG_BYTES)?;
        let tag = sealed.split_off(at);
        let tag: [u8; TAG_BYTES] = tag.try_into().ok()?;
        self.cipher(uuid)
            .decrypt_inout_detached(&[0; 12].into(), &[], InOutBuf::from(&mut sealed[..]), &tag.into())
            .ok()?;
        let (flags, rest) = sealed.split_first()?;
        let (expires, body) = rest.split_first_chunk::<8>()?;
        let body = std::str::from_utf8(body).ok()?;
        // The seal proves that a replica wrote it; another version may have written otherwise.
        serde_json::from_str::<Value>(body).ok()?;
        (*flags & !AUTHORISED == 0).then(|| SealedSession {
            uuid,
            body: body.into(),
            is_authorised: *flags == AUTHORISED,
            expires_s: u64::from_be_bytes(*expires),
        })
    }

    fn cipher(&self, uuid: Uuid) -> Aes256Gcm {
        let key: [u8; 32] = self
            .keyed
            .clone()
            .chain_update(uuid.as_bytes())
            .finalize()
            .into_bytes()
            .into();
        Aes256Gcm::new(&key.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn ids(key: &str) -> SealedIds {
        SealedIds::new(&ClusterKey::new(Secret::new(key)))
    }

    fn session(body: &str) -> SealedSession {
        SealedSession {
            uuid: Uuid::v4([9; 16]),
            body: body.into(),
            is_authorised: false,
            expires_s: 1_795_252_753,
        }
    }

    /// D-23: every replica with the key opens what one of them sealed; without it, none does.
    #[test]
    fn an_id_carries_its_body() {
        let (a, b) = (ids("key"), ids("key"));
        for body in [r#"{}"#, r#"{"name":"Zoë","n":[1,2]}"#, "null", r#""text""#] {
            for is_authorised in [false, true] {
                let made = SealedSession {
                    is_authorised,
                    ..session(body)
                };
                let id = a.seal(&made).expect("it fits");
                assert!(id.starts_with("09090909-0909-4909-8909-090909090909."), "{id}");
                assert!(
                    id.bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
                );
                assert!(!id.contains("name"));
                assert_eq!(b.open(&id), Some(made));
            }
        }
        let id = a.seal(&session("{}")).expect("it fits");
        assert_eq!(id.len(), 73);
        assert_eq!(ids("another key").open(&id), None);
    }

    /// An id that was computed independently, from the description of the format.
    #[test]
    fn an_id_has_its_documented_form() {
        let ids = ids("0123456789abcdef0123456789abcdef");
        let uuid = "056305c4-5f0e-4f3c-9d7e-6c1f0a2b3c4d";
        let session = SealedSession {
            uuid: Uuid::parse(uuid).expect("a UUID"),
            body: r#"{"a":1}"#.into(),
            is_authorised: true,
            expires_s: 1_795_253_053,
        };
        let id = format!("{uuid}.Kw-i2y5Rg4v6HABCvxZt6s5ooeX6ZCqwb5EpG6_NoMA");
        assert_eq!(ids.seal(&session).as_deref(), Ok(&id[..]));
        assert_eq!(ids.open(&id), Some(session));
    }

    /// The longest body fits its limits, and one byte more does not.
    #[test]
    fn a_long_body_is_rejected() {
        let body = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let ids = ids("key");
        let longest = session(&body(SEALED_BODY_BYTES_MAX));
        let id = ids.seal(&longest).expect("it fits");
        assert!(id.len() <= SEALED_ID_BYTES_MAX, "{}", id.len());
        assert!(id.len() + 4 > SEALED_ID_BYTES_MAX, "{}", id.len());
        assert_eq!(ids.open(&id), Some(longest));
        assert_eq!(ids.seal(&session(&body(SEALED_BODY_BYTES_MAX + 1))), Err(BodyTooLong));
    }

    /// Any changed byte, any truncation and anything appended is rejected.
    #[test]
    fn a_changed_id_is_rejected() {
        let ids = ids("key");
        let id = ids.seal(&session(r#"{"a":1}"#)).expect("it fits");
        for at in 0..id.len() {
            assert_eq!(ids.open(&id[..at]), None, "cut at {at}");
            let mut changed = id.as_bytes().to_vec();
            changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(ids.open(&changed), None, "changed at {at}");
        }
        for more in ["A", "AAAA", ".", "=", "%", " "] {
            assert_eq!(ids.open(&format!("{id}{more}")), None, "{more}");
        }
        let (_, seal) = id.split_once('.').expect("a dot");
        assert_eq!(
            ids.open(&format!("{}.{seal}", Uuid::v4([8; 16]))),
            None,
            "the seal of another"
        );
        assert_eq!(ids.open(&"x".repeat(1 << 20)), None);
    }

    /// A sealed body that no JSON value can hold is rejected with its id: a number beyond the
    /// range, levels beyond the limit of the parser.
    #[test]
    fn a_body_without_a_value_is_rejected() {
        let ids = ids("key");
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        for (body, is_good) in [
            ("1e999".to_owned(), false),
            (deep(4_000), false),
            (deep(100), true),
            ("1e99".to_owned(), true),
            ("{".to_owned(), false),
            (String::new(), false),
        ] {
            let id = ids.seal(&session(&body)).expect("it fits");
            assert_eq!(ids.open(&id).is_some(), is_good, "{body}");
        }
    }

    /// A UUID in upper case is the same session.
    #[test]
    fn the_case_of_the_uuid_does_not_matter() {
        let ids = ids("key");
        let made = SealedSession {
            uuid: Uuid::v4([0xab; 16]),
            ..session("{}")
        };
        let id = ids.seal(&made).expect("it fits");
        let (uuid, seal) = id.split_once('.').expect("a dot");
        assert_eq!(ids.open(&format!("{}.{seal}", uuid.to_uppercase())), Some(made));
    }
}
