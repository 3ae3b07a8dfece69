//! Replies to clients about Daily rooms.
//!
//! In: room, token, session id, and the configured member names. Out: the JSON of `/start` and of
//! the dial-in webhook, and the URL of the redirect. Client libraries pass unknown members to
//! Daily's library, which may reject them, so replies have no further members. Source:
//! `docs/spec/daily.md` 3 and 4; R-063.

use serde_json::{Map, Value};

use super::DailyRoom;
use crate::aliases::StartNames;
use crate::aliases::{self, Area};
use crate::secret::Secret;
use crate::server::rest::encode_path_segment;

/// Returns the JSON reply for a session in a room.
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

/// Returns the JSON reply for a session without a room.
pub fn roomless_reply(session_id: &str) -> Vec<u8> {
    serde_json::json!({"sessionId": session_id}).to_string().into_bytes()
}

/// Returns the URL at which a browser joins the room.
pub fn join_url(room: &DailyRoom, token: &Secret) -> String {
    if !room.private {
        return room.url.clone();
    }
    let joint = if room.url.contains('?') { '&' } else { '?' };
    format!("{}{joint}t={}", room.url, encode_path_segment(token.expose()))
}
