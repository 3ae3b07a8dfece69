//! Access tokens of LiveKit servers, and the names in them.
//!
//! In: API key and secret, identity, room, and the time. Out: a JWT in compact form, signed with
//! HS256. The members are in the order in which LiveKit's libraries write them; none is `null`.
//! Names are validated where they enter the program, not here. Source: `docs/spec/livekit.md` 1;
//! RFC 7515, RFC 7519.

use std::collections::BTreeMap;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use sha2::Sha256;

use super::{NAME_ATTRIBUTE, STATE_ATTRIBUTE};
use crate::limits::ROOM_TOKEN_LIFE;
use crate::secret::Secret;
use std::time::Duration;

/// Validity of the token of one request to a LiveKit server about a room.
const ROOM_REQUEST_TOKEN_LIFE: Duration = Duration::from_secs(120);

/// The state of a bot that has not joined, as front-ends read it.
const INITIALIZING: &str = "initializing";
/// Characters of the session id in an identity. Eight tell the sessions of one room apart.
const ID_CHARS: usize = 8;

/// The parameters of a participant's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenParams<'a> {
    /// The API key, by which the server finds the secret.
    pub key: &'a str,
    pub secret: &'a Secret,
    pub identity: &'a str,
    pub room: &'a str,
    /// The name of the agent, if the token belongs to a bot.
    pub agent: Option<&'a str>,
}

#[derive(Serialize)]
struct JwtHeader {
    alg: &'static str,
    typ: &'static str,
}

#[derive(Serialize)]
struct AccessClaims<'a> {
    name: &'a str,
    /// Front-ends find the bot by its kind, which the grant does not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    video: VideoGrant<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'static str, &'a str>,
    sub: &'a str,
    iss: &'a str,
    nbf: u64,
    exp: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VideoGrant<'a> {
    room_join: bool,
    room: &'a str,
    can_publish: bool,
    can_subscribe: bool,
    can_publish_data: bool,
    /// Absent means no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    can_update_own_metadata: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    agent: bool,
}

#[derive(Serialize)]
struct RequestClaims<'a> {
    video: AdminGrant<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sip: Option<SipGrant>,
    iss: &'a str,
    nbf: u64,
    exp: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdminGrant<'a> {
    room_admin: bool,
    room: &'a str,
}

#[derive(Serialize)]
struct SipGrant {
    call: bool,
}

/// Creates a token that is valid for [`ROOM_TOKEN_LIFE`] from `now_s`, in Unix seconds.
pub fn mint(params: &TokenParams<'_>, now_s: u64) -> Secret {
    let is_agent = params.agent.is_some();
    let state = |name| [(NAME_ATTRIBUTE, name), (STATE_ATTRIBUTE, INITIALIZING)];
    let claims = AccessClaims {
        name: params.identity,
        kind: is_agent.then_some("agent"),
        video: VideoGrant {
            room_join: true,
            room: params.room,
            can_publish: true,
            can_subscribe: true,
            can_publish_data: true,
            can_update_own_metadata: is_agent,
            agent: is_agent,
        },
        attributes: (params.agent.map(state).into_iter().flatten())
            .filter(|(_, value)| !value.is_empty())
            .collect(),
        sub: params.identity,
        iss: params.key,
        nbf: now_s,
        exp: now_s.saturating_add(ROOM_TOKEN_LIFE.as_secs()),
    };
    sign(&claims, params.secret)
}

/// Creates the token of one request about the participants of a room. `sip` allows transfers of
/// telephone calls.
pub fn mint_for_request(key: &str, secret: &Secret, room: &str, sip: bool, now_s: u64) -> Secret {
    let claims = RequestClaims {
        video: AdminGrant { room_admin: true, room },
        sip: sip.then_some(SipGrant { call: true }),
        iss: key,
        nbf: now_s,
        exp: now_s.saturating_add(ROOM_REQUEST_TOKEN_LIFE.as_secs()),
    };
    sign(&claims, secret)
}

/// Returns the token with these claims.
pub(super) fn sign(claims: &impl Serialize, secret: &Secret) -> Secret {
    let header = JwtHeader {
        alg: "HS256",
        typ: "JWT",
    };
    let mut token = format!("{}.{}", encode_part(&header), encode_part(claims));
    let key = secret.expose().as_bytes();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(token.as_bytes());
    let tag = BASE64URL_NOPAD.encode(&mac.finalize().into_bytes());
    token.push('.');
    token.push_str(&tag);
    Secret::new(token)
}

fn encode_part(json: &impl Serialize) -> String {
    BASE64URL_NOPAD.encode(&serde_json::to_vec(json).expect("strings and numbers are JSON"))
}

/// Returns the name of a new room.
pub fn room_name(random: [u8; 4]) -> String {
    format!("room-{}", HEXLOWER.encode(&random))
}

/// Returns the identity of a session's bot. A second participant with the same identity would evict
/// the first.
pub fn agent_identity(session_id: &str) -> String {
    format!("Agent-{}", id_prefix(session_id))
}

/// Returns the identity of a session's caller.
pub fn user_identity(session_id: &str) -> String {
    format!("User-{}", id_prefix(session_id))
}

fn id_prefix(session_id: &str) -> &str {
    let end = session_id.char_indices().nth(ID_CHARS);
    end.map_or(session_id, |(end, _)| &session_id[..end])
}

#[cfg(test)]
mod tests {
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
}
