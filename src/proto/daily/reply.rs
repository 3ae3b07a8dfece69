//! What clients are told of a video room.
//!
//! In: room, token, session, and the names that the configuration chose. Out: the JSON of `/start` and of the dial-in webhook,
//! and where `GET /videoroom` leads. Client libraries hand everything they do not know to the vendor's library, which may
//! refuse it, so there is not one member more than needed. Source: the rooms fact sheet, A3, A4 and appendix; R-063.

use serde_json::{Map, Value};

use super::DailyRoom;
use crate::aliases::{self, Area};
use crate::config::{Secret, StartNames};
use crate::server::rest::encode_path_segment;

/// Returns the JSON of the reply to whoever asked for a room.
pub fn start_reply(names: StartNames, room: &DailyRoom, token: &Secret, session_id: &str) -> Vec<u8> {
    let mut reply = Map::new();
    for (name, value) in [("videoroomRoom", room.url.as_str()), ("videoroomToken", token.expose())] {
        let aliases = aliases::aliases(Area::JsonKey, name);
        let chosen = match names {
            StartNames::Canonical => [&[name], &[][..]],
            StartNames::Alias => [aliases, &[]],
            StartNames::Both => [&[name], aliases],
        };
        for name in chosen.into_iter().flatten() {
            reply.insert((*name).to_owned(), value.into());
        }
    }
    reply.insert("sessionId".to_owned(), session_id.into());
    Value::Object(reply).to_string().into_bytes()
}

/// Returns the JSON of the reply to whoever started a bot without a room.
pub fn roomless_reply(session_id: &str) -> Vec<u8> {
    serde_json::json!({"sessionId": session_id}).to_string().into_bytes()
}

/// Returns the URL under which a browser enters the room.
pub fn join_url(room: &DailyRoom, token: &Secret) -> String {
    if !room.private {
        return room.url.clone();
    }
    let joint = if room.url.contains('?') { '&' } else { '?' };
    format!("{}{joint}t={}", room.url, encode_path_segment(token.expose()))
}
