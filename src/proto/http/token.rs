//! One-time tokens for WebSockets: what `/start` and the telephony webhook hand out, and what an upgrade must bring.
//!
//! In: the family of endpoints, an id, `now`. Out: a token, and once, within 300 s, the id again. A
//! token is `base64url({"aud","exp","jti","seq","iss"}) "." hex(HMAC-SHA256)`; `jti` is the id and
//! `aud` the family, so that one made for `/ws` is of no use on `/ws-client`. `seq` is its serial
//! number: one bit for each number says whether it was used. `iss` says on whose word it was made,
//! and is left out where that was anybody's. `exp` is in seconds since the [`Tokens`] were made,
//! not since 1970: a board's wall clock jumps by decades when it finds its time server, and the key
//! lives no longer than the process anyway. A token is verified first, and used up when the
//! connection has all that it needs besides: see [`Unused`]. A webhook that comes twice is answered
//! with one token, so a captured one that is sent again opens nothing: see `calls`. Refuses: what
//! this key did not sign, before anything of it is read, and what is expired, used, or for the
//! other family. Source: the fact sheet on telephony, its section on tokens; RFC 7519 for the names
//! of the members.

mod calls;
mod serials;

use std::fmt;
use std::time::Instant;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use self::calls::Calls;
use self::serials::{Serials, State};
use crate::limits::{TOKEN_BYTES_MAX, TOKEN_LIFE};
use crate::telephony::proof::CallKey;

/// The endpoints that a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// `/ws`, for telephony providers.
    #[serde(rename = "ws")]
    Call,
    /// `/ws-client`, for plain clients.
    #[serde(rename = "ws-client")]
    Client,
}

/// On whose word a token was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Issuer {
    /// Anybody's who asked.
    #[default]
    #[serde(rename = "anybody")]
    Anybody,
    /// That of somebody with the API key.
    #[serde(rename = "key")]
    ApiKey,
    /// That of a provider whose webhook was verified; the id is the [`CallKey`] of the call that it
    /// named.
    #[serde(rename = "webhook")]
    Webhook,
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The id that it was made with.
    pub id: String,
    pub issuer: Issuer,
}

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No token of this process.
    Foreign,
    /// It was made for the other family, which is named here.
    MadeFor(Family),
    Expired,
    Used,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life_s = TOKEN_LIFE.as_secs();
        match self {
            Refusal::Foreign => f.write_str("the token is none that this runner has made since it started"),
            Refusal::MadeFor(Family::Call) => f.write_str("the token was made for /ws"),
            Refusal::MadeFor(Family::Client) => f.write_str("the token was made for /ws-client"),
            Refusal::Expired => write!(f, "the token has expired; it is good for {life_s} s at most"),
            Refusal::Used => f.write_str("the token was used before; each opens one connection"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The signed part of a token.
#[derive(Serialize, Deserialize)]
struct Payload {
    aud: Family,
    exp: u64,
    jti: String,
    seq: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    iss: Issuer,
}

fn is_default(issuer: &Issuer) -> bool {
    *issuer == Issuer::default()
}

/// Makes tokens, and remembers which of them were used.
pub struct Tokens {
    keyed: Hmac<Sha256>,
    made: Instant,
    serials: Serials,
    calls: Calls,
}

impl fmt::Debug for Tokens {
    /// The key is no part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// A token that is good, and opens a connection as soon as it is used up. Dropped, it stays good:
/// so a connection that fails for another reason may be tried again. While this lives no other
/// token is verified, so of two parallel uses one fails.
#[derive(Debug)]
pub struct Unused<'t> {
    serials: &'t mut Serials,
    serial: u64,
    claims: Claims,
}

impl Unused<'_> {
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Uses the token up: ask last, when nothing else stands in the way of the connection.
    pub fn use_up(self) -> Claims {
        self.serials.use_up(self.serial);
        self.claims
    }
}

impl Tokens {
    /// Begins with a random key; `now` is the second from which expiry is counted.
    pub fn new(key: [u8; 32], now: Instant) -> Self {
        Tokens {
            keyed: Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"),
            made: now,
            serials: Serials::default(),
            calls: Calls::default(),
        }
    }

    /// Makes a token. `id` is the name of a session, or random.
    pub fn mint(&mut self, family: Family, id: &str, issuer: Issuer, now: Instant) -> String {
        let second = self.second(now);
        self.serials.expire(second);
        let exp = second + TOKEN_LIFE.as_secs();
        let seq = self.serials.issue(exp);
        self.sign(&Payload {
            aud: family,
            exp,
            jti: id.to_owned(),
            seq,
            iss: issuer,
        })
    }

    /// Makes the token of a call that a verified webhook named; `webhook` names what the provider
    /// signed.
    pub fn mint_for_call(&mut self, call: CallKey, webhook: [u8; 16], now: Instant) -> String {
        let second = self.second(now);
        self.serials.expire(second);
        let issued = self.calls.issue(call, webhook, &mut self.serials, second);
        self.sign(&Payload {
            aud: Family::Call,
            exp: issued.expires,
            jti: issued.call.to_string(),
            seq: issued.serial,
            iss: Issuer::Webhook,
        })
    }

    fn sign(&self, payload: &Payload) -> String {
        let json = serde_json::to_vec(payload).expect("strings and numbers are JSON");
        let signed = BASE64URL_NOPAD.encode(&json);
        let tag = self.mac(&signed).finalize().into_bytes();
        format!("{signed}.{}", HEXLOWER.encode(&tag))
    }

    /// Looks whether a token is good. Nothing is used up by that.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn verify(&mut self, token: &str, family: Family, now: Instant) -> Result<Unused<'_>, Refusal> {
        let Payload {
            aud,
            exp,
            jti,
            seq,
            iss,
        } = self.signed(token).ok_or(Refusal::Foreign)?;
        if aud != family {
            return Err(Refusal::MadeFor(aud));
        }
        if self.second(now) >= exp {
            return Err(Refusal::Expired);
        }
        match self.serials.state(seq) {
            State::Fresh => Ok(Unused {
                serials: &mut self.serials,
                serial: seq,
                claims: Claims { id: jti, issuer: iss },
            }),
            State::Used => Err(Refusal::Used),
            State::Expired => Err(Refusal::Expired),
            State::Unknown => Err(Refusal::Foreign),
        }
    }

    /// Reads a token that this key signed; nothing else reaches a parser.
    fn signed(&self, token: &str) -> Option<Payload> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, tag) = token.split_once('.')?;
        let tag = HEXLOWER.decode(tag.as_bytes()).ok()?;
        // In constant time, so that nobody finds the tag byte by byte.
        self.mac(signed).verify_slice(&tag).ok()?;
        let json = BASE64URL_NOPAD.decode(signed.as_bytes()).ok()?;
        serde_json::from_slice(&json).ok()
    }

    fn mac(&self, signed: &str) -> Hmac<Sha256> {
        self.keyed.clone().chain_update(signed)
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.made).as_secs()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telephony::named::TWILIO;

    const ID: &str = "056305c4-5f0e-4f3c-9d7e-6c1f0a2b3c4d";

    fn tokens() -> (Tokens, Instant) {
        let now = Instant::now();
        (Tokens::new([7; 32], now), now)
    }

    impl Tokens {
        /// Verifies a token and uses it up.
        fn take(&mut self, token: &str, family: Family, now: Instant) -> Result<Claims, Refusal> {
            self.verify(token, family, now).map(Unused::use_up)
        }
    }

    fn id(text: &str) -> Result<Claims, Refusal> {
        Ok(Claims {
            id: text.to_owned(),
            issuer: Issuer::Anybody,
        })
    }

    #[test]
    fn a_token_gives_its_id_once() {
        let (mut tokens, now) = tokens();
        let token = tokens.mint(Family::Client, ID, Issuer::Anybody, now);
        assert_eq!(tokens.take(&token, Family::Client, now), id(ID));
        for _ in 0..2 {
            assert_eq!(tokens.take(&token, Family::Client, now), Err(Refusal::Used));
        }
        let other = tokens.mint(Family::Client, "other", Issuer::Anybody, now);
        assert_eq!(tokens.take(&other, Family::Client, now), id("other"));
    }

    /// The form that the reference peer gives its tokens, held against an HMAC that was computed elsewhere.
    #[test]
    fn a_token_has_its_documented_form() {
        let (mut tokens, now) = tokens();
        let token = tokens.mint(Family::Call, "a", Issuer::Anybody, now + Duration::from_millis(9_999));
        let (signed, tag) = token.split_once('.').expect("two parts");
        let json = BASE64URL_NOPAD
            .decode(signed.as_bytes())
            .expect("base64url without padding");
        assert_eq!(json, br#"{"aud":"ws","exp":309,"jti":"a","seq":0}"#);
        assert_eq!(tag, "0f100743a0be561f2021d1ae598eb9e923a1b5b00b639678234d4dc9840dd4d8");
        // In a path, a query and a header it stands as it is.
        assert!(
            token
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        );
    }

    #[test]
    fn a_token_is_good_for_300_seconds() {
        let (mut tokens, made) = tokens();
        let now = made + Duration::from_secs(1_000);
        let [first, second] = ["first", "second"].map(|id| tokens.mint(Family::Call, id, Issuer::Anybody, now));
        let at = |after_ms| now + Duration::from_millis(after_ms);
        assert_eq!(tokens.take(&first, Family::Call, at(299_999)), id("first"));
        assert_eq!(tokens.take(&second, Family::Call, at(300_000)), Err(Refusal::Expired));
        // Once used and expired it is expired.
        assert_eq!(tokens.take(&first, Family::Call, at(300_000)), Err(Refusal::Expired));
    }

    /// A refusal for any other reason does not use the token up.
    #[test]
    fn a_token_opens_only_the_family_that_it_was_made_for() {
        let (mut tokens, now) = tokens();
        for (made_for, other) in [(Family::Call, Family::Client), (Family::Client, Family::Call)] {
            let token = tokens.mint(made_for, &format!("{made_for:?}"), Issuer::Anybody, now);
            assert_eq!(tokens.take(&token, other, now), Err(Refusal::MadeFor(made_for)));
            assert!(tokens.take(&token, made_for, now).is_ok());
        }
    }

    /// Every byte counts: no other text opens what a token opens, so the memory of ids is a memory of texts.
    #[test]
    fn a_token_with_any_byte_changed_is_foreign() {
        let (mut tokens, now) = tokens();
        let token = tokens.mint(Family::Call, ID, Issuer::Anybody, now);
        for at in 0..token.len() {
            for other in "Aa0-_.=\u{e9}".chars().filter(|c| !token[at..].starts_with(*c)) {
                let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
                assert_eq!(
                    tokens.take(&changed, Family::Call, now),
                    Err(Refusal::Foreign),
                    "{changed}"
                );
            }
            assert_eq!(tokens.take(&token[..at], Family::Call, now), Err(Refusal::Foreign));
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
            assert_eq!(tokens.take(text, Family::Call, now), Err(Refusal::Foreign), "{text}");
        }
        let mut elsewhere = Tokens::new([8; 32], now);
        assert_eq!(elsewhere.take(&token, Family::Call, now), Err(Refusal::Foreign));
        assert!(
            tokens.take(&token, Family::Call, now).is_ok(),
            "none of that used it up"
        );
    }

    /// What is too long is refused whoever signed it; the tokens of sessions are far from that.
    #[test]
    fn a_token_has_a_length_at_most() {
        let (mut tokens, now) = tokens();
        let mut of_length = |bytes: usize| {
            let ids = (1..).map(|length| "x".repeat(length));
            let mut made = ids.map(|id| tokens.mint(Family::Client, &id, Issuer::Anybody, now));
            made.find(|token| token.len() >= bytes)
                .expect("a longer id makes a longer token")
        };
        let (fits, too_long) = (of_length(TOKEN_BYTES_MAX - 1), of_length(TOKEN_BYTES_MAX + 1));
        assert!(fits.len() <= TOKEN_BYTES_MAX && too_long.len() > TOKEN_BYTES_MAX);
        assert!(tokens.take(&fits, Family::Client, now).is_ok());
        assert_eq!(tokens.take(&too_long, Family::Client, now), Err(Refusal::Foreign));

        let in_a_century = now + Duration::from_secs(100 * 365 * 86_400);
        let token = tokens.mint(Family::Client, ID, Issuer::Anybody, in_a_century);
        assert_eq!(tokens.take(&token, Family::Client, in_a_century), id(ID));
    }

    /// Whatever else stands in the way of a connection, its token is good for the next try; once
    /// used up it is not.
    #[test]
    fn a_token_is_used_up_by_nothing_but_its_use() {
        let (mut tokens, now) = tokens();
        let token = tokens.mint(Family::Call, ID, Issuer::Anybody, now);
        for _ in 0..3 {
            let unused = tokens.verify(&token, Family::Call, now).expect("a good token");
            assert_eq!(unused.claims().id, ID);
        }
        assert_eq!(tokens.take(&token, Family::Call, now), id(ID));
        assert_eq!(tokens.take(&token, Family::Call, now), Err(Refusal::Used));
    }

    /// A token says on whose word it was made; the one of a webhook names its call, and is the same
    /// however often it is asked for.
    #[test]
    fn a_token_says_on_whose_word_it_was_made() {
        let (mut tokens, now) = tokens();
        for issuer in [Issuer::Anybody, Issuer::ApiKey] {
            let token = tokens.mint(Family::Call, ID, issuer, now);
            let claims = tokens.take(&token, Family::Call, now).expect("a good token");
            assert_eq!((claims.id.as_str(), claims.issuer), (ID, issuer));
        }
        let call = CallKey::of(TWILIO, "CA01");
        let token = tokens.mint_for_call(call, [1; 16], now);
        assert!(token.len() <= TOKEN_BYTES_MAX, "{} bytes", token.len());
        assert_eq!(tokens.mint_for_call(call, [1; 16], now + TOKEN_LIFE), token);
        assert_eq!(tokens.mint_for_call(call, [2; 16], now), token);
        assert_eq!(
            tokens.verify(&token, Family::Client, now).err(),
            Some(Refusal::MadeFor(Family::Call))
        );
        let claims = tokens.take(&token, Family::Call, now).expect("a good token");
        assert_eq!((claims.id, claims.issuer), (call.to_string(), Issuer::Webhook));
        for webhook in [[1; 16], [2; 16]] {
            let again = tokens.mint_for_call(call, webhook, now);
            assert_eq!(tokens.take(&again, Family::Call, now), Err(Refusal::Used));
        }
        let back = tokens.mint_for_call(call, [3; 16], now);
        assert!(tokens.take(&back, Family::Call, now).is_ok());
    }

    /// However many tokens others use up, a fresh one is good, and a used one is used until it has
    /// expired.
    #[test]
    fn used_tokens_cost_no_fresh_one_its_use() {
        let (mut tokens, now) = tokens();
        let honest = tokens.mint(Family::Client, "honest", Issuer::Anybody, now);
        for burnt in 0..20_000 {
            let token = tokens.mint(Family::Client, "burnt", Issuer::Anybody, now);
            assert!(tokens.take(&token, Family::Client, now).is_ok(), "{burnt}");
            assert_eq!(tokens.take(&token, Family::Client, now), Err(Refusal::Used));
        }
        assert_eq!(tokens.take(&honest, Family::Client, now), id("honest"));
        let expired = now + TOKEN_LIFE;
        for at in [now, expired - Duration::from_millis(1)] {
            assert_eq!(tokens.take(&honest, Family::Client, at).err(), Some(Refusal::Used));
        }
        assert_eq!(tokens.take(&honest, Family::Client, expired), Err(Refusal::Expired));
    }

    #[test]
    fn no_debug_form_shows_the_key_or_a_token() {
        let (mut tokens, now) = tokens();
        let token = tokens.mint(Family::Call, ID, Issuer::Anybody, now);
        let shown = format!("{tokens:?} {:?} {}", Refusal::Foreign, Refusal::Foreign);
        assert!(shown.starts_with("Tokens { .. }"), "{shown}");
        assert!(!shown.contains(&token) && !shown.contains("7, 7"));
    }
}
