//! The connection details of a LiveKit session: room name, server URL, tokens, and the `/start`
//! reply.
//!
//! In: the configuration, the session id, random bits, the time. Out: [`ConnectionDetails`].
//! Rejects a configuration without a server. Source: `docs/spec/livekit.md` 1,
//!

use std::fmt;

use serde_json::json;

use super::room_service::RoomService;
use super::token::{self, TokenParams};
use super::{agent_name, missing_variables};
use crate::aliases::StartNames;
use crate::livekit::config::Mediaroom;
use crate::options::values::all_names;
use crate::secret::Secret;

/// The required variables that are not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingVariables(Vec<&'static str>);

impl MissingVariables {
    /// Wraps the names of the variables.
    pub fn new(names: Vec<&'static str>) -> Self {
        MissingVariables(names)
    }
}

impl fmt::Display for MissingVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().copied().map(all_names).collect();
        let missing = names.join(", ");
        write!(
            f,
            "LiveKit needs MEDIAROOM_URL, MEDIAROOM_API_KEY and MEDIAROOM_API_SECRET in the environment of the runner or in \
             its .env; not set: {missing}"
        )
    }
}

impl std::error::Error for MissingVariables {}

/// The server and the API key of the account on it.
#[derive(Clone, Copy, Debug)]
pub struct LiveKitCredentials<'c> {
    url: &'c str,
    key: &'c str,
    secret: &'c Secret,
    room_name: Option<&'c str>,
    agent_name: &'c str,
}

impl<'c> LiveKitCredentials<'c> {
    /// Reads the credentials from the configuration.
    ///
    /// # Errors
    /// [`MissingVariables`] names every variable that is not set.
    pub fn new(config: &'c Mediaroom) -> Result<Self, MissingVariables> {
        match (&config.url, &config.key, &config.secret) {
            (Some(url), Some(key), Some(secret)) => Ok(LiveKitCredentials {
                url,
                key,
                secret,
                room_name: config.room_name.as_deref(),
                agent_name: agent_name(config),
            }),
            _ => Err(MissingVariables(missing_variables(config))),
        }
    }

    /// Returns the API of the server, for a room.
    pub fn service(&self, room_name: &str) -> RoomService {
        RoomService::new(self.url, self.key, self.secret, room_name)
    }

    /// Creates the details of a session. `random` names the room if the configuration does not.
    pub fn connection_details(&self, session_id: &str, random: [u8; 4], now_s: u64) -> ConnectionDetails {
        let room_name = self
            .room_name
            .map_or_else(|| token::room_name(random), ToOwned::to_owned);
        let token = |identity: String, agent: Option<&str>| {
            let params = TokenParams {
                key: self.key,
                secret: self.secret,
                identity: &identity,
                room: &room_name,
                agent,
            };
            token::mint(&params, now_s)
        };
        ConnectionDetails {
            url: super::socket_base(self.url),
            bot_token: token(token::agent_identity(session_id), Some(self.agent_name)),
            user_token: token(token::user_identity(session_id), None),
            agent_name: self.agent_name.to_owned(),
            service: Some(self.service(&room_name)),
            room_name,
        }
    }
}

/// What a session and its caller need to join the room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionDetails {
    pub room_name: String,
    /// The server's URL, `ws` or `wss`.
    pub url: String,
    pub bot_token: Secret,
    /// The name of the agent that front-ends are shown.
    pub agent_name: String,
    /// The API of the server, where a credential allows its use.
    pub service: Option<RoomService>,
    user_token: Secret,
}

impl ConnectionDetails {
    /// Returns the JSON reply to the caller, with the caller's token.
    pub fn reply(&self, names: StartNames, session_id: &str) -> Vec<u8> {
        caller_reply(names, &self.url, &self.user_token, &self.room_name, session_id)
    }
}

/// Returns the JSON reply to a caller: the server's URL for clients, the caller's token, the room
/// and the session. Except with [`StartNames::Canonical`], URL and token have their names of
/// LiveKit's own front-ends too.
pub fn caller_reply(names: StartNames, url: &str, token: &Secret, room_name: &str, session_id: &str) -> Vec<u8> {
    let mut reply = json!({
        "url": url,
        "token": token.expose(),
        "roomName": room_name,
        "sessionId": session_id,
    });
    if names != StartNames::Canonical {
        reply["server_url"] = url.into();
        reply["participant_token"] = token.expose().into();
    }
    reply.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::BASE64URL_NOPAD;
    use serde_json::Value;

    fn config() -> Mediaroom {
        Mediaroom {
            url: Some("https://media.example.net".into()),
            key: Some("devkey".into()),
            secret: Some(Secret::new("secret")),
            ..Mediaroom::default()
        }
    }

    fn claims(token: &str) -> Value {
        let claims = token.split('.').nth(1).expect("three parts");
        serde_json::from_slice(&BASE64URL_NOPAD.decode(claims.as_bytes()).expect("base64url")).expect("JSON")
    }

    /// the error names each missing variable and no other.
    #[test]
    fn names_missing_variables() {
        let names = ["MEDIAROOM_URL", "MEDIAROOM_API_KEY", "MEDIAROOM_API_SECRET"];
        for absent in 1..8_u8 {
            let mut config = config();
            let is_absent = |at: u8| absent & (1 << at) != 0;
            config.url = config.url.filter(|_| !is_absent(0));
            config.key = config.key.filter(|_| !is_absent(1));
            config.secret = config.secret.filter(|_| !is_absent(2));
            let missing = LiveKitCredentials::new(&config)
                .expect_err("something is missing")
                .to_string();
            let (_, listed) = missing.split_once("not set: ").expect("a list");
            for (at, name) in names.into_iter().enumerate() {
                assert_eq!(
                    listed.split(", ").any(|each| each.starts_with(&format!("{name} (or "))),
                    is_absent(at as u8),
                    "{missing}"
                );
            }
        }
    }

    /// each session has a room of its own unless one is configured.
    #[test]
    fn grants_bot_and_caller_the_same_room() {
        let mut config = config();
        let details = |config: &Mediaroom| {
            let access = LiveKitCredentials::new(config).expect("nothing is missing");
            access.connection_details(
                "2b1f1a52-3f2e-4a50-9d5c-7d5a5b0d1c11",
                [0x9f, 0x8e, 0x7d, 0x6c],
                1_795_252_753,
            )
        };
        let made = details(&config);
        assert_eq!(
            (&*made.room_name, &*made.url),
            ("room-9f8e7d6c", "wss://media.example.net")
        );
        let bot = claims(made.bot_token.expose());
        assert_eq!(
            (&bot["sub"], &bot["video"]["agent"]),
            (&json!("Agent-2b1f1a52"), &json!(true))
        );
        assert_eq!(
            (&bot["kind"], &bot["attributes"]["lk.agent.name"]),
            (&json!("agent"), &json!("bot"))
        );
        let reply = |names| -> Value { serde_json::from_slice(&made.reply(names, "2b1f1a52")).expect("JSON") };
        let canonical = reply(StartNames::Canonical);
        assert_eq!(
            (&canonical["server_url"], &canonical["participant_token"]),
            (&Value::Null, &Value::Null)
        );
        let reply = reply(StartNames::Both);
        assert_eq!(
            (&reply["server_url"], &reply["participant_token"]),
            (&reply["url"], &reply["token"])
        );
        let user = claims(reply["token"].as_str().expect("a token"));
        assert_eq!(
            (&user["sub"], &user["video"]["agent"]),
            (&json!("User-2b1f1a52"), &Value::Null)
        );
        for claims in [&bot, &user] {
            assert_eq!(claims["video"]["room"], "room-9f8e7d6c");
        }
        assert_eq!(
            (&reply["url"], &reply["roomName"], &reply["sessionId"]),
            (
                &json!("wss://media.example.net"),
                &json!("room-9f8e7d6c"),
                &json!("2b1f1a52")
            )
        );
        assert!(
            !String::from_utf8(made.reply(StartNames::Both, "s"))
                .expect("text")
                .contains(made.bot_token.expose())
        );

        config.room_name = Some("team-room".into());
        config.url = Some("ws://127.0.0.1:7880".into());
        let made = details(&config);
        assert_eq!((&*made.room_name, &*made.url), ("team-room", "ws://127.0.0.1:7880"));
    }
}
