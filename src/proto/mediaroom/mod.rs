//! The open-source media room, joined natively: access tokens, signalling, two peer connections, one life.
//!
//! [`entry`] is what a session begins with; [`token`] proves who may join; [`signal`] speaks with the server, in the messages of [`wire`], and knows who is there
//! ([`roster`]); [`peer`] is one peer connection of the two; [`ears`] makes one sound, or several, of the participants'
//! voices; [`session`] is the whole life of a bot in a room. What stands here is what `/start` says of it.
//! Source: the rooms fact sheet, part B.

pub mod ears;
pub mod entry;
pub mod peer;
pub mod roster;
pub mod session;
pub mod signal;
pub mod token;
pub mod wire;

use serde::Serialize;

use crate::config::{Mediaroom, Secret};

/// Returns the variables that a session needs and that are not set.
pub fn missing(config: &Mediaroom) -> Vec<&'static str> {
    let needed = [
        ("MEDIAROOM_URL", config.url.is_some()),
        ("MEDIAROOM_API_KEY", config.key.is_some()),
        ("MEDIAROOM_API_SECRET", config.secret.is_some()),
    ];
    needed
        .into_iter()
        .filter(|(_, is_set)| !is_set)
        .map(|(name, _)| name)
        .collect()
}

/// Returns the URL of a server over HTTP, without a slash at its end. The schemes of sockets and of HTTP stand for each other.
pub fn http_base(url: &str) -> String {
    let base = url.trim_end_matches('/');
    match base.split_once("://") {
        Some(("ws", rest)) => format!("http://{rest}"),
        Some(("wss", rest)) => format!("https://{rest}"),
        _ => base.to_owned(),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply<'a> {
    url: &'a str,
    token: &'a str,
    session_id: &'a str,
    room_name: &'a str,
}

/// Returns the JSON of the reply to a start in a media room; the token is the caller's.
pub fn reply(url: &str, room_name: &str, user_token: &Secret, session_id: &str) -> Vec<u8> {
    let reply = Reply {
        url,
        token: user_token.expose(),
        session_id,
        room_name,
    };
    serde_json::to_vec(&reply).expect("strings are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R-068: what a client needs to join, and no member that it would choke on.
    #[test]
    fn the_reply_says_where_to_join_and_with_what() {
        let reply = reply("wss://rooms.example", "room-\"1\"", &Secret::new("a.b.c"), "s1");
        assert_eq!(
            String::from_utf8(reply).expect("text"),
            r#"{"url":"wss://rooms.example","token":"a.b.c","sessionId":"s1","roomName":"room-\"1\""}"#
        );
    }

    #[test]
    fn each_variable_that_is_missing_is_named() {
        let none = Mediaroom::default();
        assert_eq!(
            missing(&none),
            ["MEDIAROOM_URL", "MEDIAROOM_API_KEY", "MEDIAROOM_API_SECRET"]
        );
        let half = Mediaroom {
            url: Some("ws://localhost:7880".into()),
            secret: Some(Secret::new("secret")),
            ..none
        };
        assert_eq!(missing(&half), ["MEDIAROOM_API_KEY"]);
        let whole = Mediaroom {
            key: Some("devkey".into()),
            ..half
        };
        assert!(missing(&whole).is_empty());
    }
}
