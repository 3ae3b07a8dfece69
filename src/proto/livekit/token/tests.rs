//! Tests of access tokens.

use serde_json::{Value, json};

use super::*;

fn minted(identity: &str, room: &str, agent: Option<&str>) -> String {
    let params = TokenParams {
        key: "devkey",
        secret: &Secret::new("secret"),
        identity,
        room,
        agent,
    };
    mint(&params, 1_795_252_753).expose().to_owned()
}

/// Returns header and claims as text.
fn decoded(token: &str) -> [String; 2] {
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, _signature] = parts[..] else {
        panic!("three parts, not {}", parts.len())
    };
    [header, claims].map(|part| {
        let bytes = BASE64URL_NOPAD.decode(part.as_bytes()).expect("base64url, no padding");
        String::from_utf8(bytes).expect("text")
    })
}

/// Checks a token as the server does: the signature, then the times with 60 s of leeway.
fn accepts(token: &str, secret: &str, now_s: u64) -> bool {
    let Some((signed, signature)) = token.rsplit_once('.') else {
        return false;
    };
    let Ok(signature) = BASE64URL_NOPAD.decode(signature.as_bytes()) else {
        return false;
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(signed.as_bytes());
    if mac.verify_slice(&signature).is_err() {
        return false;
    }
    let claims: Value = serde_json::from_str(&decoded(token)[1]).expect("JSON");
    let (Some(from), Some(to)) = (claims["nbf"].as_u64(), claims["exp"].as_u64()) else {
        return false;
    };
    from <= now_s + 60 && now_s < to + 60
}

/// R-031: the vector of `docs/spec/livekit.md` 1, computed with another implementation.
#[test]
fn bot_token_matches_the_vector() {
    let token = minted("Agent-1a2b3c4d", "room-9f8e7d6c", Some("bot"));
    assert_eq!(
        token,
        concat!(
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJuYW1lIjoiQWdlbnQtMWEyYjNjNGQiLCJraW5kIjoiYWdlbnQiLCJ2aWRlb",
            "yI6eyJyb29tSm9pbiI6dHJ1ZSwicm9vbSI6InJvb20tOWY4ZTdkNmMiLCJjYW5QdWJsaXNoIjp0cnVlLCJjYW5TdWJzY3JpYmU",
            "iOnRydWUsImNhblB1Ymxpc2hEYXRhIjp0cnVlLCJjYW5VcGRhdGVPd25NZXRhZGF0YSI6dHJ1ZSwiYWdlbnQiOnRydWV9LCJhd",
            "HRyaWJ1dGVzIjp7ImxrLmFnZW50Lm5hbWUiOiJib3QiLCJsay5hZ2VudC5zdGF0ZSI6ImluaXRpYWxpemluZyJ9LCJzdWIiOiJ",
            "BZ2VudC0xYTJiM2M0ZCIsImlzcyI6ImRldmtleSIsIm5iZiI6MTc5NTI1Mjc1MywiZXhwIjoxNzk1Mjc0MzUzfQ.2h9GoTVGYT",
            "wIhx34aOxP8_YHDQhq4ekaGWZ2vsJ5XfI"
        )
    );
    assert_eq!(
        decoded(&token),
        [
            r#"{"alg":"HS256","typ":"JWT"}"#,
            concat!(
                r#"{"name":"Agent-1a2b3c4d","kind":"agent","video":{"roomJoin":true,"room":"room-9f8e7d6c","#,
                r#""canPublish":true,"canSubscribe":true,"canPublishData":true,"canUpdateOwnMetadata":true,"#,
                r#""agent":true},"attributes":{"lk.agent.name":"bot","lk.agent.state":"initializing"},"#,
                r#""sub":"Agent-1a2b3c4d","iss":"devkey","nbf":1795252753,"exp":1795274353}"#
            ),
        ]
    );
}

#[test]
fn caller_token_has_no_agent_grant() {
    let [_, claims] = decoded(&minted("User-1a2b3c4d", "room-9f8e7d6c", None));
    assert_eq!(
        claims,
        concat!(
            r#"{"name":"User-1a2b3c4d","video":{"roomJoin":true,"room":"room-9f8e7d6c","canPublish":true,"#,
            r#""canSubscribe":true,"canPublishData":true},"sub":"User-1a2b3c4d","iss":"devkey","#,
            r#""nbf":1795252753,"exp":1795274353}"#
        )
    );
}

/// The token of a request has no identity and lives only for the request.
#[test]
fn a_request_token_administers_one_room() {
    let now = 1_795_252_753;
    let secret = Secret::new("secret");
    for (sip, grant) in [(false, ""), (true, r#""sip":{"call":true},"#)] {
        let token = mint_for_request("devkey", &secret, "a room", sip, now);
        let times = format!(r#""nbf":{now},"exp":{}"#, now + ROOM_REQUEST_TOKEN_LIFE.as_secs());
        assert_eq!(
            decoded(token.expose())[1],
            format!(r#"{{"video":{{"roomAdmin":true,"room":"a room"}},{grant}"iss":"devkey",{times}}}"#)
        );
        assert!(accepts(token.expose(), "secret", now));
    }
}

#[test]
fn a_token_is_valid_for_six_hours_with_its_secret() {
    let token = minted("User-1", "room", None);
    let now = 1_795_252_753;
    for (secret, at, good) in [
        ("secret", now, true),
        ("secret", now + 6 * 3600 + 59, true),
        ("secret", now + 6 * 3600 + 60, false),
        ("secret", now - 60, true),
        ("secret", now - 61, false),
        ("Secret", now, false),
        ("", now, false),
    ] {
        assert_eq!(accepts(&token, secret, at), good, "{secret} {at}");
    }
    // A claim that was changed after signing.
    let [header, claims] = decoded(&token);
    let forged = [header, claims.replace("room\"", "roof\"")].map(|part| BASE64URL_NOPAD.encode(part.as_bytes()));
    let signature = token.rsplit('.').next().expect("a signature");
    assert!(!accepts(
        &format!("{}.{}.{signature}", forged[0], forged[1]),
        "secret",
        now
    ));
}

/// Names are any text. They are escaped and unchanged.
#[test]
fn encodes_unusual_names() {
    let longest = "ü".repeat(128);
    for name in [
        "",
        r#"","agent":true,"x":""#,
        "back\\slash",
        "line\r\nbreak\0",
        "Grüße 👋 \u{2028}",
        &longest,
    ] {
        let token = minted(name, name, None);
        assert!(
            token
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        );
        let claims: Value = serde_json::from_str(&decoded(&token)[1]).expect("JSON");
        assert_eq!(claims["sub"], name);
        assert_eq!(claims["name"], name);
        assert_eq!(
            claims["video"],
            json!({"roomJoin": true, "room": name, "canPublish": true, "canSubscribe": true, "canPublishData": true})
        );
        assert!(accepts(&token, "secret", 1_795_252_753));
    }
}

#[test]
fn a_clock_at_its_end_does_not_overflow() {
    let secret = Secret::new("");
    let params = TokenParams {
        key: "",
        secret: &secret,
        identity: "",
        room: "",
        agent: Some(""),
    };
    assert!(decoded(mint(&params, u64::MAX).expose())[1].contains(&u64::MAX.to_string()));
}

/// R-032: the identities of two sessions differ.
#[test]
fn derives_names_from_random_bits_and_session_id() {
    assert_eq!(room_name([0x9f, 0x8e, 0x07, 0x6c]), "room-9f8e076c");
    let id = "1a2b3c4d-3f2e-4a50-9d5c-7d5a5b0d1c11";
    assert_eq!(agent_identity(id), "Agent-1a2b3c4d");
    assert_eq!(user_identity(id), "User-1a2b3c4d");
    assert_eq!(agent_identity("1a2b3c4"), "Agent-1a2b3c4");
    assert_eq!(user_identity("ääääääääää"), "User-ääääääää");
    assert_eq!(user_identity(""), "User-");
}
