//! The tokens of a registered runner: for the registration, for calls of the server's API, and for
//! callers whose room asks for the bot.
//!
//! In: API key and secret, names, and the time. Out: a JWT. Source: `docs/spec/livekit.md` 1, 6.1
//! and 6.6.

use serde::Serialize;

use super::agent_dispatch::AgentDispatch;
use crate::limits::ROOM_TOKEN_LIFE;
use crate::livekit::token::sign;
use crate::secret::Secret;
use std::time::Duration;

/// Life of the token with which the runner registers: it is verified once, at the upgrade.
const WORKER_TOKEN_LIFE: Duration = Duration::from_secs(600);
/// Life of a token with which the runner calls the API of the server.
const SERVICE_TOKEN_LIFE: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct WorkerClaims<'a> {
    iss: &'a str,
    nbf: u64,
    exp: u64,
    video: WorkerGrant,
}

#[derive(Serialize)]
struct WorkerGrant {
    agent: bool,
}

/// Returns the token with which a worker registers. It names neither identity nor room.
pub(super) fn worker_token(key: &str, secret: &Secret, now_s: u64) -> Secret {
    let claims = WorkerClaims {
        iss: key,
        nbf: now_s,
        exp: now_s.saturating_add(WORKER_TOKEN_LIFE.as_secs()),
        video: WorkerGrant { agent: true },
    };
    sign(&claims, secret)
}

#[derive(Serialize)]
struct ServiceClaims<'a> {
    iss: &'a str,
    nbf: u64,
    exp: u64,
    video: ServiceGrant<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ServiceGrant<'a> {
    room_create: bool,
    room_admin: bool,
    room: &'a str,
}

/// Returns a token for calls of the API that concern this room.
pub(super) fn service_token(key: &str, secret: &Secret, room: &str, now_s: u64) -> Secret {
    let claims = ServiceClaims {
        iss: key,
        nbf: now_s,
        exp: now_s.saturating_add(SERVICE_TOKEN_LIFE.as_secs()),
        video: ServiceGrant {
            room_create: true,
            room_admin: true,
            room,
        },
    };
    sign(&claims, secret)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallerClaims<'a> {
    name: &'a str,
    video: CallerGrant<'a>,
    room_config: RoomConfig<'a>,
    sub: &'a str,
    iss: &'a str,
    nbf: u64,
    exp: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallerGrant<'a> {
    room_join: bool,
    room: &'a str,
    can_publish: bool,
    can_subscribe: bool,
    can_publish_data: bool,
}

#[derive(Serialize)]
struct RoomConfig<'a> {
    agents: [&'a AgentDispatch; 1],
}

/// Returns a caller's token that also names the bot. A server that makes the room anew, because it
/// was restarted, asks for the bot again.
pub(super) fn caller_token(
    (key, secret): (&str, &Secret),
    identity: &str,
    room: &str,
    agent: &AgentDispatch,
    now_s: u64,
) -> Secret {
    let claims = CallerClaims {
        name: identity,
        video: CallerGrant {
            room_join: true,
            room,
            can_publish: true,
            can_subscribe: true,
            can_publish_data: true,
        },
        room_config: RoomConfig { agents: [agent] },
        sub: identity,
        iss: key,
        nbf: now_s,
        exp: now_s.saturating_add(ROOM_TOKEN_LIFE.as_secs()),
    };
    sign(&claims, secret)
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64URL_NOPAD;
    use serde_json::{Value, json};

    use super::*;

    const NOW_S: u64 = 1_795_252_753;

    fn claims(token: &Secret) -> Value {
        let part = token.expose().split('.').nth(1).expect("three parts");
        serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).expect("base64url")).expect("JSON")
    }

    #[test]
    fn each_token_grants_what_it_is_for() {
        let secret = Secret::new("secret");
        assert_eq!(
            claims(&worker_token("devkey", &secret, NOW_S)),
            json!({"iss": "devkey", "nbf": NOW_S, "exp": NOW_S + 600, "video": {"agent": true}})
        );
        assert_eq!(
            claims(&service_token("devkey", &secret, "r", NOW_S)),
            json!({"iss": "devkey", "nbf": NOW_S, "exp": NOW_S + 60,
                "video": {"roomCreate": true, "roomAdmin": true, "room": "r"}})
        );
        let agent = AgentDispatch::new("bot", "", &json!({"lang": "en"}), "1b9d");
        assert_eq!(
            claims(&caller_token(("devkey", &secret), "User-1", "r", &agent, NOW_S)),
            json!({
                "name": "User-1", "sub": "User-1", "iss": "devkey", "nbf": NOW_S, "exp": NOW_S + 6 * 3600,
                "video": {"roomJoin": true, "room": "r", "canPublish": true, "canSubscribe": true, "canPublishData": true},
                "roomConfig": {"agents": [{
                    "agentName": "bot", "metadata": r#"{"lang":"en"}"#, "attributes": {"edge.session_id": "1b9d"},
                }]},
            })
        );
    }
}
