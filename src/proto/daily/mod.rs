//! Daily rooms: the requests to Daily's REST API, and their answers.
//!
//! In: the configuration, a `/start` request or a call, the Unix time, random bits; later status
//! and body of answers. Out: a [`RoomPlan`] with the requests for a room and a token, then the
//! [`DailyRoom`] or a [`DailyError`]. Daily's media protocol is closed, so the bot joins with the
//! vendor's library; the runner creates the room and the token and hands them over. [`dialin`] is
//! the dial-in webhook, [`properties`] validates room and token properties, [`reply`] writes
//! replies to clients, [`recent_calls`] remembers calls, and [`error`] describes failures. Source:
//! `docs/spec/daily.md` 1 and 2.

pub mod config;
pub mod dialin;
pub mod doctor;
pub mod endpoints;
pub mod error;
pub mod options;
pub mod properties;
pub mod recent_calls;
pub mod reply;
pub mod start;

use serde_json::{Map, Value, json};

pub use self::error::{ApiStep, DailyError};
use self::properties::{DroppedProperty, ROOM, TOKEN};
use crate::daily::config::Videoroom;
use crate::limits::ROOM_LIFE;
use crate::secret::Secret;
use crate::server::rest::{RestBody, RestMethod, RestRequest, bearer, encode_path_segment};

/// Bytes of a video room's URL; names have at most 128.
const VIDEOROOM_URL_BYTES_MAX: usize = 2_048;
/// Bytes of a meeting token; with a few properties in it, it has some hundreds.
const VIDEOROOM_TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The room and token properties of a `/start` request, unvalidated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoomRequest {
    pub room: Map<String, Value>,
    pub token: Map<String, Value>,
}

/// The purpose of a room.
#[derive(Clone, Copy, Debug)]
pub enum RoomPurpose<'a> {
    /// A client. The configured room serves as well as a new one.
    Client(&'a RoomRequest),
    /// A telephone call from this number. It needs a new room with a SIP address.
    Call { from: &'a str },
}

/// The requests for a room and a token.
#[derive(Debug)]
pub struct RoomPlan {
    pub room: RoomSource,
    /// Requested properties that are left out.
    pub dropped: Vec<DroppedProperty>,
    token: Map<String, Value>,
}

#[derive(Debug)]
pub enum RoomSource {
    New {
        create: RestRequest,
        /// Deletes the room if it stays unused.
        delete: RestRequest,
    },
    /// The configured room with this URL.
    Existing(String),
}

/// An existing room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DailyRoom {
    /// `http` or `https`, valid in a header.
    pub url: String,
    /// Whether joining requires a token.
    pub private: bool,
    /// The SIP address with its scheme, in rooms for calls.
    pub sip_uri: Option<String>,
}

/// Plans a room and its token.
///
/// # Errors
/// [`DailyError::NoKey`] and [`DailyError::RoomUrl`] for an invalid configuration.
pub fn plan(
    config: &Videoroom,
    asked: RoomPurpose<'_>,
    now_unix_s: u64,
    random: [u8; 4],
) -> Result<RoomPlan, DailyError> {
    let key = config.key.as_ref().ok_or(DailyError::NoKey)?;
    let end = now_unix_s + ROOM_LIFE.as_secs();
    let mut dropped = Vec::new();
    let mut token = match asked {
        RoomPurpose::Client(wanted) => properties::filter(&TOKEN, &wanted.token, &mut dropped),
        RoomPurpose::Call { .. } => Map::new(),
    };
    set_default(&mut token, "exp", json!(end));
    set_default(&mut token, "is_owner", json!(true));
    set_default(&mut token, "eject_at_token_exp", json!(false));
    let existing = config.room_url.as_ref().or(config.sample_room_url.as_ref());
    let room = match (asked, existing) {
        (RoomPurpose::Client(_), Some(url)) => {
            if !is_url(url) || room_name(url).is_none() {
                return Err(DailyError::RoomUrl);
            }
            RoomSource::Existing(url.clone())
        }
        (RoomPurpose::Client(wanted), None) => {
            let room = properties::filter(&ROOM, &wanted.room, &mut dropped);
            create(config, key, with_defaults(room, end), random)
        }
        (RoomPurpose::Call { from }, _) => {
            let sip = json!({"display_name": from, "video": false, "sip_mode": "dial-in", "num_endpoints": 1});
            let room = Map::from_iter([("sip".to_owned(), sip), ("start_video_off".to_owned(), json!(true))]);
            create(config, key, with_defaults(room, end), random)
        }
    };
    Ok(RoomPlan { room, dropped, token })
}

impl RoomPlan {
    /// Returns the request for a token of this room. A token without a room name would open every
    /// room of the account.
    ///
    /// # Errors
    /// [`DailyError`] if the URL has no room name.
    pub fn token(&self, config: &Videoroom, room_url: &str) -> Result<RestRequest, DailyError> {
        let name = room_name(room_url).ok_or(DailyError::Unreadable {
            step: ApiStep::Room,
            what: "its `url` names no room",
        })?;
        let mut properties = self.token.clone();
        properties.insert("room_name".to_owned(), json!(name));
        Ok(RestRequest {
            method: RestMethod::Post,
            url: format!("{}/meeting-tokens", config.url),
            authorization: config.key.as_ref().map(bearer),
            body: Some(RestBody::json(&json!({"properties": properties}))),
        })
    }
}

fn create(config: &Videoroom, key: &Secret, properties: Map<String, Value>, random: [u8; 4]) -> RoomSource {
    let wants = |name: &str| !matches!(properties.get(name), None | Some(Value::Null | Value::Bool(false)));
    let is_for_telephone = wants("sip") || wants("enable_dialout");
    let prefix = if is_for_telephone { "bot-telephony-" } else { "bot-" };
    let name = format!("{prefix}{:08x}", u32::from_be_bytes(random));
    RoomSource::New {
        delete: RestRequest {
            method: RestMethod::Delete,
            url: format!("{}/rooms/{}", config.url, encode_path_segment(&name)),
            authorization: Some(bearer(key)),
            body: None,
        },
        create: RestRequest {
            method: RestMethod::Post,
            url: format!("{}/rooms", config.url),
            authorization: Some(bearer(key)),
            body: Some(RestBody::json(
                &json!({"name": name, "privacy": "public", "properties": properties}),
            )),
        },
    }
}

/// Adds the default properties: an expiry, and a page that admits people at once.
fn with_defaults(mut room: Map<String, Value>, end: u64) -> Map<String, Value> {
    set_default(&mut room, "exp", json!(end));
    set_default(&mut room, "eject_at_room_exp", json!(true));
    for off in [
        "enable_chat",
        "enable_prejoin_ui",
        "enable_emoji_reactions",
        "start_video_off",
    ] {
        room.entry(off).or_insert(json!(false));
    }
    room
}

/// Sets a member that is absent or `null`. A room must not lack an expiry.
fn set_default(map: &mut Map<String, Value>, name: &str, value: Value) {
    if map.get(name).is_none_or(Value::is_null) {
        map.insert(name.to_owned(), value);
    }
}

/// Returns the room name in a room's URL, which is its path; `None` if it has none.
pub fn room_name(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let (_, path) = rest.split_once('/')?;
    let name = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    (!name.is_empty()).then_some(name)
}

/// Parses the answer to the request for a room.
///
/// # Errors
/// [`DailyError`] if Daily refused or the answer cannot be used.
pub fn parse_room(status: u16, body: &[u8], key: &Secret) -> Result<DailyRoom, DailyError> {
    let answer = error::parse_answer(ApiStep::Room, status, body, key)?;
    let unreadable = |what| DailyError::Unreadable {
        step: ApiStep::Room,
        what,
    };
    let url = answer["url"].as_str().ok_or(unreadable("its `url` is missing"))?;
    if !is_url(url) {
        return Err(unreadable("its `url` is none"));
    }
    let sip_uri = answer["config"]["sip_uri"]["endpoint"].as_str();
    Ok(DailyRoom {
        url: url.to_owned(),
        private: answer["privacy"] == "private",
        sip_uri: sip_uri
            .filter(|uri| (1..=VIDEOROOM_URL_BYTES_MAX).contains(&uri.len()))
            .map(with_sip_scheme),
    })
}

/// Parses the answer to the request for a token.
///
/// # Errors
/// [`DailyError`] if Daily refused or the answer cannot be used.
pub fn parse_token(status: u16, body: &[u8], key: &Secret) -> Result<Secret, DailyError> {
    let answer = error::parse_answer(ApiStep::Token, status, body, key)?;
    let unreadable = |what| DailyError::Unreadable {
        step: ApiStep::Token,
        what,
    };
    let token = answer["token"].as_str().ok_or(unreadable("its `token` is missing"))?;
    let fits = (1..=VIDEOROOM_TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    match fits {
        true => Ok(Secret::new(token)),
        false => Err(unreadable("its `token` is none")),
    }
}

/// Tells whether a text is a URL that is safe for bots, clients and a header.
fn is_url(text: &str) -> bool {
    (text.starts_with("https://") || text.starts_with("http://"))
        && text.len() <= VIDEOROOM_URL_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Adds the scheme `sip:` if the address lacks it. Daily sends both forms.
fn with_sip_scheme(uri: &str) -> String {
    let has_scheme = uri.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("sip:"));
    if has_scheme {
        uri.to_owned()
    } else {
        format!("sip:{uri}")
    }
}

#[cfg(test)]
mod tests;
