//! One-time tokens for WebSockets and Media over QUIC, issued by `/start` and the telephony webhook
//! and verified at the upgrade, or at the CONNECT request.
//!
//! In: the kind of socket, an id, `now`. Out: a token, and once, within 300 s, the id again. A
//! token is `base64url({"aud","exp","jti","seq","iss"}) "." hex(HMAC-SHA256)`. `jti` is the id;
//! `aud` is the kind of socket, so a token for `/ws` is rejected on `/ws-client`; `seq` is a serial
//! number, with one bit each for use; `iss` is the issuer, and absent for anonymous ones. `exp`
//! counts seconds since the [`SocketTokens`] were created, because a board's wall clock jumps when
//! it finds its time server.
//!
//! A token is redeemed only when the connection has everything else it needs: see
//! [`VerifiedToken`]. A repeated webhook gets the same token, so replaying a captured one opens
//! nothing: see `calls`. Tokens that this key did not sign are rejected before they are parsed.
//! Source: `docs/spec/telephony.md` 11; RFC 7519 for the names of the members.

mod calls;
mod serials;

use std::fmt;
use std::time::Instant;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use self::calls::CallTokens;
use self::serials::{SerialState, Serials};
use crate::limits::{TOKEN_BYTES_MAX, TOKEN_LIFE};
use crate::telephony::proof::CallKey;

/// The endpoints of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    /// `/ws`, for telephony providers.
    #[serde(rename = "ws")]
    Call,
    /// `/ws-client`, for plain clients.
    #[serde(rename = "ws-client")]
    Client,
    /// `/moq` on the UDP port of Media over QUIC; the id is that of a session.
    #[serde(rename = "moq")]
    Moq,
}

/// The authority on which a token was issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Issuer {
    /// An anonymous request.
    #[default]
    #[serde(rename = "anybody")]
    Anyone,
    /// A request with the API key.
    #[serde(rename = "key")]
    ApiKey,
    /// A verified webhook of a provider; the id is the [`CallKey`] of its call.
    #[serde(rename = "webhook")]
    Webhook,
}

/// The content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenClaims {
    /// The id for which it was issued.
    pub id: String,
    pub issuer: Issuer,
}

/// A rejected token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// This process did not issue it.
    Unrecognized,
    /// It was issued for the other endpoint, which is given here.
    WrongEndpoint(SocketKind),
    Expired,
    Used,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life_s = TOKEN_LIFE.as_secs();
        match self {
            TokenError::Unrecognized => {
                f.write_str("unknown token: this runner did not issue it, or it was restarted since")
            }
            TokenError::WrongEndpoint(SocketKind::Call) => f.write_str("the token was made for /ws"),
            TokenError::WrongEndpoint(SocketKind::Client) => f.write_str("the token was made for /ws-client"),
            TokenError::WrongEndpoint(SocketKind::Moq) => f.write_str("the token was made for /moq"),
            TokenError::Expired => write!(f, "the token has expired; it is good for {life_s} s at most"),
            TokenError::Used => f.write_str("the token was used before; each opens one connection"),
        }
    }
}

impl std::error::Error for TokenError {}

/// The signed part of a token.
#[derive(Serialize, Deserialize)]
struct TokenPayload {
    aud: SocketKind,
    exp: u64,
    jti: String,
    seq: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    iss: Issuer,
}

fn is_default(issuer: &Issuer) -> bool {
    *issuer == Issuer::default()
}

/// Issues tokens, and records their use.
pub struct SocketTokens {
    keyed: Hmac<Sha256>,
    created: Instant,
    serials: Serials,
    calls: CallTokens,
}

impl fmt::Debug for SocketTokens {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// A valid token that is not yet redeemed. Dropping it leaves the token valid, so that a connection
/// that fails for another reason can be retried. No other token can be verified during its life, so
/// one of two parallel uses fails.
#[derive(Debug)]
pub struct VerifiedToken<'t> {
    serials: &'t mut Serials,
    serial: u64,
    claims: TokenClaims,
}

impl VerifiedToken<'_> {
    pub fn claims(&self) -> &TokenClaims {
        &self.claims
    }

    /// Redeems the token; the last step, when the connection needs nothing else.
    pub fn redeem(self) -> TokenClaims {
        self.serials.redeem(self.serial);
        self.claims
    }
}

impl SocketTokens {
    /// Creates the issuer with a random key; `now` is the origin of expiry times.
    pub fn new(key: [u8; 32], now: Instant) -> Self {
        SocketTokens {
            keyed: Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"),
            created: now,
            serials: Serials::default(),
            calls: CallTokens::default(),
        }
    }

    /// Issues a token. `id` is that of a session, or random.
    pub fn mint(&mut self, family: SocketKind, id: &str, issuer: Issuer, now: Instant) -> String {
        let seconds_since_start = self.second(now);
        self.serials.expire(seconds_since_start);
        let exp = seconds_since_start + TOKEN_LIFE.as_secs();
        let seq = self.serials.issue(exp);
        self.sign(&TokenPayload {
            aud: family,
            exp,
            jti: id.to_owned(),
            seq,
            iss: issuer,
        })
    }

    /// Issues the token of a call from a verified webhook; `webhook` identifies the signed request.
    pub fn mint_for_call(&mut self, call: CallKey, webhook: [u8; 16], now: Instant) -> String {
        let second = self.second(now);
        self.serials.expire(second);
        let issued = self.calls.issue(call, webhook, &mut self.serials, second);
        self.sign(&TokenPayload {
            aud: SocketKind::Call,
            exp: issued.expires,
            jti: issued.call.to_string(),
            seq: issued.serial,
            iss: Issuer::Webhook,
        })
    }

    fn sign(&self, payload: &TokenPayload) -> String {
        let json = serde_json::to_vec(payload).expect("strings and numbers are JSON");
        let verify_signature = BASE64URL_NOPAD.encode(&json);
        let tag = self.mac(&verify_signature).finalize().into_bytes();
        format!("{verify_signature}.{}", HEXLOWER.encode(&tag))
    }

    /// Verifies a token without redeeming it.
    ///
    /// # Errors
    /// Returns a [`TokenError`].
    pub fn verify(&mut self, token: &str, family: SocketKind, now: Instant) -> Result<VerifiedToken<'_>, TokenError> {
        let TokenPayload {
            aud,
            exp,
            jti,
            seq,
            iss,
        } = self.signed(token).ok_or(TokenError::Unrecognized)?;
        if aud != family {
            return Err(TokenError::WrongEndpoint(aud));
        }
        if self.second(now) >= exp {
            return Err(TokenError::Expired);
        }
        match self.serials.state(seq) {
            SerialState::Fresh => Ok(VerifiedToken {
                serials: &mut self.serials,
                serial: seq,
                claims: TokenClaims { id: jti, issuer: iss },
            }),
            SerialState::Used => Err(TokenError::Used),
            SerialState::Expired => Err(TokenError::Expired),
            SerialState::Unknown => Err(TokenError::Unrecognized),
        }
    }

    /// Parses a token that this key signed; other tokens do not reach the parser.
    fn signed(&self, token: &str) -> Option<TokenPayload> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, tag) = token.split_once('.')?;
        let tag = HEXLOWER.decode(tag.as_bytes()).ok()?;
        // The comparison takes constant time, so that the tag cannot be found byte by byte.
        self.mac(signed).verify_slice(&tag).ok()?;
        let json = BASE64URL_NOPAD.decode(signed.as_bytes()).ok()?;
        serde_json::from_slice(&json).ok()
    }

    fn mac(&self, signed: &str) -> Hmac<Sha256> {
        self.keyed.clone().chain_update(signed)
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.created).as_secs()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telephony::named::TWILIO;

    const ID: &str = "056305c4-5f0e-4f3c-9d7e-6c1f0a2b3c4d";

    fn tokens() -> (SocketTokens, Instant) {
        let now = Instant::now();
        (SocketTokens::new([7; 32], now), now)
    }

    impl SocketTokens {
        /// Verifies and redeems a token.
        fn take(&mut self, token: &str, family: SocketKind, now: Instant) -> Result<TokenClaims, TokenError> {
            self.verify(token, family, now).map(VerifiedToken::redeem)
        }
    }

    fn id(text: &str) -> Result<TokenClaims, TokenError> {
        Ok(TokenClaims {
            id: text.to_owned(),
            issuer: Issuer::Anyone,
        })
    }

    #[test]
    fn a_token_returns_its_id_once() {
        let (mut tokens, now) = tokens();
        let token = tokens.mint(SocketKind::Client, ID, Issuer::Anyone, now);
        assert_eq!(tokens.take(&token, SocketKind::Client, now), id(ID));
        for _ in 0..2 {
            assert_eq!(tokens.take(&token, SocketKind::Client, now), Err(TokenError::Used));
        }
        let other = tokens.mint(SocketKind::Client, "other", Issuer::Anyone, now);
        assert_eq!(tokens.take(&other, SocketKind::Client, now), id("other"));
    }

    /// A token in Pipecat's form, checked against an independently computed HMAC.
    #[test]
    fn a_token_has_its_documented_form() {
        let (mut tokens, now) = tokens();
        let token = tokens.mint(
            SocketKind::Call,
            "a",
            Issuer::Anyone,
            now + Duration::from_millis(9_999),
        );
        let (signed, tag) = token.split_once('.').expect("two parts");
        let json = BASE64URL_NOPAD
            .decode(signed.as_bytes())
            .expect("base64url without padding");
        assert_eq!(json, br#"{"aud":"ws","exp":309,"jti":"a","seq":0}"#);
        assert_eq!(tag, "0f100743a0be561f2021d1ae598eb9e923a1b5b00b639678234d4dc9840dd4d8");
        // It needs no encoding in a path, a query or a header.
        assert!(
            token
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        );
    }

    #[test]
    fn a_token_is_valid_for_300_seconds() {
        let (mut tokens, made) = tokens();
        let now = made + Duration::from_secs(1_000);
        let [first, second] = ["first", "second"].map(|id| tokens.mint(SocketKind::Call, id, Issuer::Anyone, now));
        let at = |after_ms| now + Duration::from_millis(after_ms);
        assert_eq!(tokens.take(&first, SocketKind::Call, at(299_999)), id("first"));
        assert_eq!(
            tokens.take(&second, SocketKind::Call, at(300_000)),
            Err(TokenError::Expired)
        );
        // A used token is reported as expired after its time.
        assert_eq!(
            tokens.take(&first, SocketKind::Call, at(300_000)),
            Err(TokenError::Expired)
        );
    }

    /// A rejection for any other reason does not redeem the token.
    #[test]
    fn a_token_is_valid_for_its_endpoint_only() {
        let (mut tokens, now) = tokens();
        for (made_for, other) in [
            (SocketKind::Call, SocketKind::Client),
            (SocketKind::Client, SocketKind::Call),
        ] {
            let token = tokens.mint(made_for, &format!("{made_for:?}"), Issuer::Anyone, now);
            assert_eq!(
                tokens.take(&token, other, now),
                Err(TokenError::WrongEndpoint(made_for))
            );
            assert!(tokens.take(&token, made_for, now).is_ok());
        }
    }

    /// Every byte counts: no other text is equivalent to a token, so recording ids records texts.
    #[test]
    fn rejects_a_token_with_any_byte_changed() {
        let (mut tokens, now) = tokens();
        let token = tokens.mint(SocketKind::Call, ID, Issuer::Anyone, now);
        for at in 0..token.len() {
            for other in "Aa0-_.=\u{e9}".chars().filter(|c| !token[at..].starts_with(*c)) {
                let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
                assert_eq!(
                    tokens.take(&changed, SocketKind::Call, now),
                    Err(TokenError::Unrecognized),
                    "{changed}"
                );
            }
            assert_eq!(
                tokens.take(&token[..at], SocketKind::Call, now),
                Err(TokenError::Unrecognized)
            );
        }
        for text in [
            "",
            ".",
            "..",
            &token.to_uppercase(),
            &format!("{token}\n"),
            &format!(" {token}"),
            &format!("{token}.{token}"),
        ] {
            assert_eq!(
                tokens.take(text, SocketKind::Call, now),
                Err(TokenError::Unrecognized),
                "{text}"
            );
        }
        let mut elsewhere = SocketTokens::new([8; 32], now);
        assert_eq!(
            elsewhere.take(&token, SocketKind::Call, now),
            Err(TokenError::Unrecognized)
        );
        assert!(
            tokens.take(&token, SocketKind::Call, now).is_ok(),
            "none of that used it up"
        );
    }

    /// Oversized tokens are rejected even with a valid signature; real ones are far shorter.
    #[test]
    fn limits_the_length_of_a_token() {
        let (mut tokens, now) = tokens();
        let mut of_length = |bytes: usize| {
            let ids = (1..).map(|length| "x".repeat(length));
            let mut made = ids.map(|id| tokens.mint(SocketKind::Client, &id, Issuer::Anyone, now));
            made.find(|token| token.len() >= bytes)
                .expect("a longer id makes a longer token")
        };
        let (fits, too_long) = (of_length(TOKEN_BYTES_MAX - 1), of_length(TOKEN_BYTES_MAX + 1));
        assert!(fits.len() <= TOKEN_BYTES_MAX && too_long.len() > TOKEN_BYTES_MAX);
        assert!(tokens.take(&fits, SocketKind::Client, now).is_ok());
        assert_eq!(
            tokens.take(&too_long, SocketKind::Client, now),
            Err(TokenError::Unrecognized)
        );

        let in_a_century = now + Duration::from_secs(100 * 365 * 86_400);
        let token = tokens.mint(SocketKind::Client, ID, Issuer::Anyone, in_a_century);
        assert_eq!(tokens.take(&token, SocketKind::Client, in_a_century), id(ID));
    }

    /// A token survives a connection that fails for another reason; once redeemed, it does not.
    #[test]
    fn only_redeeming_uses_a_token() {
        let (mut tokens, now) = tokens();
        let token = tokens.mint(SocketKind::Call, ID, Issuer::Anyone, now);
        for _ in 0..3 {
            let unused = tokens.verify(&token, SocketKind::Call, now).expect("a good token");
            assert_eq!(unused.claims().id, ID);
        }
        assert_eq!(tokens.take(&token, SocketKind::Call, now), id(ID));
        assert_eq!(tokens.take(&token, SocketKind::Call, now), Err(TokenError::Used));
    }

    /// A token names its issuer; that of a webhook names its call, and is the same for every retry.
    #[test]
    fn a_token_names_its_issuer() {
        let (mut tokens, now) = tokens();
        for issuer in [Issuer::Anyone, Issuer::ApiKey] {
            let token = tokens.mint(SocketKind::Call, ID, issuer, now);
            let claims = tokens.take(&token, SocketKind::Call, now).expect("a good token");
            assert_eq!((claims.id.as_str(), claims.issuer), (ID, issuer));
        }
        let call = CallKey::of(TWILIO, "CA01");
        let token = tokens.mint_for_call(call, [1; 16], now);
        assert!(token.len() <= TOKEN_BYTES_MAX, "{} bytes", token.len());
        assert_eq!(tokens.mint_for_call(call, [1; 16], now + TOKEN_LIFE), token);
        assert_eq!(tokens.mint_for_call(call, [2; 16], now), token);
        assert_eq!(
            tokens.verify(&token, SocketKind::Client, now).err(),
            Some(TokenError::WrongEndpoint(SocketKind::Call))
        );
        let claims = tokens.take(&token, SocketKind::Call, now).expect("a good token");
        assert_eq!((claims.id, claims.issuer), (call.to_string(), Issuer::Webhook));
        for webhook in [[1; 16], [2; 16]] {
            let again = tokens.mint_for_call(call, webhook, now);
            assert_eq!(tokens.take(&again, SocketKind::Call, now), Err(TokenError::Used));
        }
        let back = tokens.mint_for_call(call, [3; 16], now);
        assert!(tokens.take(&back, SocketKind::Call, now).is_ok());
    }

    /// However many tokens are used, a fresh one stays valid, and a used one stays used until it
    /// expires.
    #[test]
    fn used_tokens_do_not_affect_fresh_ones() {
        let (mut tokens, now) = tokens();
        let honest = tokens.mint(SocketKind::Client, "honest", Issuer::Anyone, now);
        for burnt in 0..20_000 {
            let token = tokens.mint(SocketKind::Client, "burnt", Issuer::Anyone, now);
            assert!(tokens.take(&token, SocketKind::Client, now).is_ok(), "{burnt}");
            assert_eq!(tokens.take(&token, SocketKind::Client, now), Err(TokenError::Used));
        }
        assert_eq!(tokens.take(&honest, SocketKind::Client, now), id("honest"));
        let expired = now + TOKEN_LIFE;
        for at in [now, expired - Duration::from_millis(1)] {
            assert_eq!(
                tokens.take(&honest, SocketKind::Client, at).err(),
                Some(TokenError::Used)
            );
        }
        assert_eq!(
            tokens.take(&honest, SocketKind::Client, expired),
            Err(TokenError::Expired)
        );
    }

    #[test]
    fn debug_forms_omit_the_key_and_tokens() {
        let (mut tokens, now) = tokens();
        let token = tokens.mint(SocketKind::Call, ID, Issuer::Anyone, now);
        let shown = format!("{tokens:?} {:?} {}", TokenError::Unrecognized, TokenError::Unrecognized);
        assert!(shown.starts_with("Tokens { .. }"), "{shown}");
        assert!(!shown.contains(&token) && !shown.contains("7, 7"));
    }
}
