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
mod tests;
