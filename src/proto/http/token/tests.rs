//! Tests of the tokens.

use std::time::Duration;

use super::*;
use crate::limits::SEALED_BODY_BYTES_MAX;
use crate::secret::Secret;
use crate::telephony::named::TWILIO;

const ID: &str = "056305c4-5f0e-4f3c-9d7e-6c1f0a2b3c4d";

fn tokens() -> (SocketTokens, RequestTime) {
    let now = start();
    (SocketTokens::new([7; 32], now.now), now)
}

fn start() -> RequestTime {
    RequestTime {
        now: Instant::now(),
        unix_s: 1_795_252_753,
    }
}

fn replica(key: &str, process: u8) -> SocketTokens {
    let key = ClusterKey::new(Secret::new(key));
    SocketTokens::of_replica(&key, ProcessId::new([process; 8]))
}

impl SocketTokens {
    /// Verifies and redeems a token.
    fn take(&mut self, token: &str, family: SocketKind, now: RequestTime) -> Result<TokenClaims, TokenError> {
        self.verify(token, family, now).map(VerifiedToken::redeem)
    }
}

fn id(text: &str) -> Result<TokenClaims, TokenError> {
    Ok(TokenClaims {
        id: text.to_owned(),
        issuer: Issuer::Anyone,
    })
}

/// The text tells an operator what to look at: the endpoint, the lifetime, or the clocks.
#[test]
fn a_rejection_says_why() {
    for (error, words) in [
        (TokenError::Unrecognized, "did not issue it"),
        (TokenError::WrongEndpoint(SocketKind::Call), "made for /ws"),
        (TokenError::WrongEndpoint(SocketKind::Client), "made for /ws-client"),
        (TokenError::WrongEndpoint(SocketKind::Moq), "made for /moq"),
        (TokenError::Expired, "good for 300 s"),
        (
            TokenError::ExpiredByClock,
            "by the clock of this replica; it is good for 300 s",
        ),
        (TokenError::ClockSkew, "clocks of the replicas differ"),
        (TokenError::Used, "used before"),
    ] {
        assert!(error.to_string().contains(words), "{error:?}: {error}");
    }
    let call = TokenError::WrongEndpoint(SocketKind::Call).to_string();
    assert!(call.ends_with("/ws"), "{call}");
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
    let mut elsewhere = SocketTokens::new([8; 32], now.now);
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
    let (fits, too_long) = (of_length(TOKEN_BYTES_MAX), of_length(TOKEN_BYTES_MAX + 1));
    assert!(fits.len() == TOKEN_BYTES_MAX && too_long.len() > TOKEN_BYTES_MAX);
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
    for at in [now, now + (TOKEN_LIFE - Duration::from_millis(1))] {
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

/// D-24: a token of one replica is good at another and at its maker, once at each, until it
/// expires by the calendar; its seal stays with it.
#[test]
fn a_replica_s_token_is_good_at_every_replica() {
    let now = start();
    let (mut a, mut b) = (replica("key", 1), replica("key", 2));
    let sealed = format!("{ID}.{}", "x".repeat(100));
    for wire in [ID, &sealed] {
        let token = a.mint(SocketKind::Client, wire, Issuer::Anyone, now);
        assert!(
            token
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        );
        for replica in [&mut b, &mut a] {
            let wrong = replica.take(&token, SocketKind::Call, now);
            assert_eq!(wrong, Err(TokenError::WrongEndpoint(SocketKind::Client)));
            assert_eq!(replica.take(&token, SocketKind::Client, now), id(wire));
            assert_eq!(replica.take(&token, SocketKind::Client, now), Err(TokenError::Used));
        }
    }
    let token = a.mint(SocketKind::Client, ID, Issuer::Anyone, now);
    let mut c = replica("key", 3);
    let expired = c.take(&token, SocketKind::Client, now + TOKEN_LIFE);
    assert_eq!(expired, Err(TokenError::ExpiredByClock));
    assert!(c.take(&token, SocketKind::Client, now + TOKEN_LIFE / 2).is_ok());
    assert!(replica("key", 4).take(&token, SocketKind::Client, now).is_ok());
    let behind = RequestTime {
        unix_s: now.unix_s - 3_600,
        ..now
    };
    assert_eq!(
        replica("key", 4).take(&token, SocketKind::Client, behind),
        Err(TokenError::ClockSkew)
    );
}

/// The clock of the maker may be ahead by the skew, and not by a second more.
#[test]
fn a_replica_s_token_may_be_of_a_clock_ahead_by_the_skew() {
    let now = start();
    let token = replica("key", 1).mint(SocketKind::Client, ID, Issuer::Anyone, now);
    let behind = |seconds: u64| RequestTime {
        unix_s: now.unix_s - seconds,
        ..now
    };
    let skew_s = CLUSTER_CLOCK_SKEW.as_secs();
    let mut b = replica("key", 2);
    assert_eq!(
        b.take(&token, SocketKind::Client, behind(skew_s + 1)),
        Err(TokenError::ClockSkew)
    );
    assert_eq!(b.take(&token, SocketKind::Client, behind(skew_s)), id(ID));
}

/// A replica whose clock is set back does not keep its tokens for longer than they live. Those
/// of a process alone live by the monotonic clock.
#[test]
fn a_replica_s_own_token_does_not_outlive_a_clock_that_is_set_back() {
    let now = start();
    let behind = |seconds: u64| RequestTime {
        unix_s: now.unix_s - seconds,
        ..now
    };
    let skew_s = CLUSTER_CLOCK_SKEW.as_secs();
    let mut a = replica("key", 1);
    let token = a.mint(SocketKind::Client, ID, Issuer::Anyone, now);
    for seconds in [skew_s + 1, 86_400] {
        let taken = a.take(&token, SocketKind::Client, behind(seconds));
        assert_eq!(taken, Err(TokenError::ClockSkew));
    }
    assert_eq!(a.take(&token, SocketKind::Client, behind(skew_s)), id(ID));
    let mut alone = SocketTokens::new([7; 32], now.now);
    let token = alone.mint(SocketKind::Client, ID, Issuer::Anyone, now);
    assert_eq!(alone.take(&token, SocketKind::Client, behind(86_400)), id(ID));
}

/// The token proper and the seal behind it have a limit each; both at their limits are taken.
#[test]
fn a_replica_s_token_is_taken_up_to_its_caps() {
    let now = start();
    let (mut a, mut b) = (replica("key", 1), replica("key", 2));
    let mut of_length = |bytes: usize| {
        let ids = (1..).map(|length| "x".repeat(length));
        let mut made = ids.map(|id| a.mint(SocketKind::Client, &id, Issuer::Anyone, now));
        made.find(|token| token.len() >= bytes)
            .expect("a longer id makes a longer token")
    };
    let (fits, too_long) = (
        of_length(CLUSTER_TOKEN_BYTES_MAX),
        of_length(CLUSTER_TOKEN_BYTES_MAX + 1),
    );
    assert!(fits.len() == CLUSTER_TOKEN_BYTES_MAX && too_long.len() > CLUSTER_TOKEN_BYTES_MAX);
    let unknown = Err(TokenError::Unrecognized);
    assert_eq!(b.take(&too_long, SocketKind::Client, now), unknown);
    // The dot belongs to neither.
    let sealed = |seal_bytes: usize| format!("{fits}.{}", "x".repeat(seal_bytes - 1));
    assert_eq!(
        b.take(&sealed(SEALED_ID_BYTES_MAX + 1), SocketKind::Client, now),
        unknown
    );
    assert!(b.take(&sealed(SEALED_ID_BYTES_MAX), SocketKind::Client, now).is_ok());
}

/// A token that was computed independently, from the description of the format.
#[test]
fn a_replica_s_token_has_its_documented_form() {
    let now = start();
    let key = "0123456789abcdef0123456789abcdef";
    let token = replica(key, 1).mint(SocketKind::Client, ID, Issuer::Anyone, now);
    let (signed, tag) = token.split_once('.').expect("two parts");
    let json = BASE64URL_NOPAD.decode(signed.as_bytes()).expect("base64url");
    assert_eq!(
        String::from_utf8_lossy(&json),
        format!(r#"{{"aud":"ws-client","exp":1795253053,"jti":"{ID}","seq":0,"run":"0101010101010101"}}"#)
    );
    assert_eq!(tag, "c2c27741a59ecaf141d4e0e2d3be2aba7c305346d44d7ca263c866c6e18e7dfc");
}

#[test]
fn rejects_a_replica_s_token_with_any_byte_changed() {
    let now = start();
    let token = replica("key", 1).mint(SocketKind::Call, ID, Issuer::Anyone, now);
    let mut b = replica("key", 2);
    for at in 0..token.len() {
        for other in "Aa0-_.=\u{e9}".chars().filter(|c| !token[at..].starts_with(*c)) {
            let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
            assert_eq!(
                b.take(&changed, SocketKind::Call, now),
                Err(TokenError::Unrecognized),
                "{changed}"
            );
        }
        assert_eq!(
            b.take(&token[..at], SocketKind::Call, now),
            Err(TokenError::Unrecognized)
        );
    }
    assert_eq!(
        replica("another key", 2).take(&token, SocketKind::Call, now),
        Err(TokenError::Unrecognized)
    );
    let mut alone = SocketTokens::new([7; 32], now.now);
    assert_eq!(alone.take(&token, SocketKind::Call, now), Err(TokenError::Unrecognized));
    let of_one = alone.mint(SocketKind::Call, ID, Issuer::Anyone, now);
    assert_eq!(b.take(&of_one, SocketKind::Call, now), Err(TokenError::Unrecognized));
    assert!(b.take(&token, SocketKind::Call, now).is_ok());
}

/// The token of a call from a webhook at one replica proves the call at another.
#[test]
fn a_webhook_s_token_names_its_call_at_every_replica() {
    let now = start();
    let (mut a, mut b) = (replica("key", 1), replica("key", 2));
    let call = CallKey::of(TWILIO, "CA01");
    let token = a.mint_for_call(call, [1; 16], now);
    assert!(token.len() <= CLUSTER_TOKEN_BYTES_MAX, "{} bytes", token.len());
    let claims = b.take(&token, SocketKind::Call, now).expect("a good token");
    assert_eq!((claims.id, claims.issuer), (call.to_string(), Issuer::Webhook));
    assert_eq!(b.take(&token, SocketKind::Call, now), Err(TokenError::Used));
    assert_eq!(a.mint_for_call(call, [1; 16], now), token);
}

/// The longest id that `/start` makes fits, and oversized tokens are rejected unread.
#[test]
fn limits_the_length_of_a_replica_s_token() {
    let now = start();
    let (mut a, mut b) = (replica("key", 1), replica("key", 2));
    let longest = format!("{ID}.{}", "x".repeat(SEALED_ID_BYTES_MAX - 37));
    let token = a.mint(SocketKind::Client, &longest, Issuer::ApiKey, now);
    assert!(token.len() > SEALED_BODY_BYTES_MAX);
    assert_eq!(b.take(&token, SocketKind::Client, now).expect("it fits").id, longest);
    let more = format!(
        "{}{}",
        a.mint(SocketKind::Client, &longest, Issuer::Anyone, now),
        "x".repeat(400)
    );
    assert_eq!(b.take(&more, SocketKind::Client, now), Err(TokenError::Unrecognized));
    let long = a.mint(
        SocketKind::Client,
        &"x".repeat(CLUSTER_TOKEN_BYTES_MAX),
        Issuer::Anyone,
        now,
    );
    assert_eq!(b.take(&long, SocketKind::Client, now), Err(TokenError::Unrecognized));
}
