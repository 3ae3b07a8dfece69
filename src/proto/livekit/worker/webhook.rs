//! Webhooks of a LiveKit server: whether one is genuine, and whether it tells of a lost bot.
//!
//! In: the token and the body of a webhook, the API key and secret, the time. Out: the room whose
//! bot was lost. Rejects: forged and old tokens, tokens of another body, and bodies that are no
//! events. Source: `docs/spec/livekit.md` 6.7; RFC 7515.

use std::fmt;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::room_api::{ListedParticipant, or_default};
use crate::limits::ROOM_CLOCK_LEEWAY;
use crate::livekit::config::MediaroomWorker;
use crate::livekit::roster::is_valid_id;
use crate::secret::Secret;

/// Why a webhook is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookDenied {
    /// There is no token, or it is none.
    Malformed,
    /// The token is not signed with the API secret, or not for the API key.
    BadSignature,
    /// The token is not good yet, or no longer: this many seconds away from this machine's clock.
    Stale { off_s: u64 },
    /// The token belongs to another body.
    OtherBody,
    /// The body is no event.
    NoEvent,
}

impl fmt::Display for WebhookDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WebhookDenied::Stale { off_s } => {
                return write!(
                    f,
                    "the token of a webhook of LiveKit is good at another time, {off_s} s away from this machine's clock; {} s \
                     are allowed",
                    ROOM_CLOCK_LEEWAY.as_secs()
                );
            }
            WebhookDenied::Malformed => "a webhook of LiveKit needs its token in the Authorization header",
            WebhookDenied::BadSignature => {
                "the token is not signed with MEDIAROOM_API_SECRET for MEDIAROOM_API_KEY; `webhook.api_key` of the server \
                 must be that key"
            }
            WebhookDenied::OtherBody => "the token belongs to another body",
            WebhookDenied::NoEvent => "the body is no event of LiveKit",
        })
    }
}

impl std::error::Error for WebhookDenied {}

#[derive(Deserialize)]
struct WebhookClaims {
    #[serde(default)]
    iss: String,
    exp: u64,
    #[serde(default)]
    nbf: u64,
    #[serde(default)]
    sha256: String,
}

/// Verifies the token of a webhook: signature, key, times, and the hash of the body.
///
/// # Errors
/// [`WebhookDenied`] with the reason.
pub fn verify(authorization: &str, body: &[u8], key: &str, secret: &Secret, now_s: u64) -> Result<(), WebhookDenied> {
    let token = authorization.strip_prefix("Bearer ").unwrap_or(authorization).trim();
    let (signed, tag) = token.rsplit_once('.').ok_or(WebhookDenied::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(WebhookDenied::Malformed)?;
    let decode = |part: &str| {
        BASE64URL_NOPAD
            .decode(part.as_bytes())
            .map_err(|_| WebhookDenied::Malformed)
    };
    let (header, claims, tag) = (decode(header)?, decode(claims)?, decode(tag)?);
    let header: Value = serde_json::from_slice(&header).map_err(|_| WebhookDenied::Malformed)?;
    if header["alg"] != "HS256" {
        return Err(WebhookDenied::BadSignature);
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).expect("HMAC takes a key of any length");
    mac.update(signed.as_bytes());
    mac.verify_slice(&tag).map_err(|_| WebhookDenied::BadSignature)?;
    let claims: WebhookClaims = serde_json::from_slice(&claims).map_err(|_| WebhookDenied::Malformed)?;
    if claims.iss != key {
        return Err(WebhookDenied::BadSignature);
    }
    let leeway_s = ROOM_CLOCK_LEEWAY.as_secs();
    let (late_s, early_s) = (now_s.saturating_sub(claims.exp), claims.nbf.saturating_sub(now_s));
    if now_s >= claims.exp.saturating_add(leeway_s) || early_s > leeway_s {
        return Err(WebhookDenied::Stale {
            off_s: late_s.max(early_s),
        });
    }
    match claims.sha256 == BASE64.encode(&Sha256::digest(body)) {
        true => Ok(()),
        false => Err(WebhookDenied::OtherBody),
    }
}

/// An event of the server. Members are written in either form.
#[derive(Deserialize)]
struct RoomWebhook {
    event: String,
    #[serde(default, deserialize_with = "or_default")]
    room: EventRoom,
    #[serde(default, deserialize_with = "or_default")]
    participant: ListedParticipant,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventRoom {
    name: String,
}

/// Returns the room whose bot was lost, and the registration of its name; `None` for other events.
/// A bot that left by itself is not lost.
///
/// # Errors
/// [`WebhookDenied::NoEvent`] if the body is no event.
pub fn lost_bot<'c>(
    body: &[u8],
    registrations: &[&'c MediaroomWorker],
) -> Result<Option<(&'c MediaroomWorker, String)>, WebhookDenied> {
    let event: RoomWebhook = serde_json::from_slice(body).map_err(|_| WebhookDenied::NoEvent)?;
    let is_end = matches!(&*event.event, "participant_left" | "participant_connection_aborted");
    let who = event.participant;
    let room = event.room.name;
    let is_lost = is_end && !who.has_left() && is_valid_id(&room);
    let of = registrations.iter().find(|worker| who.is_named(&worker.agent_name));
    Ok(of.filter(|_| is_lost).map(|worker| (*worker, room)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::JobType;
    use crate::livekit::token::sign;

    const NOW_S: u64 = 1_795_252_753;

    fn token(body: &[u8], change: impl FnOnce(&mut Value), secret: &str) -> String {
        let mut claims = json!({"iss": "devkey", "nbf": NOW_S, "exp": NOW_S + 300,
            "sha256": BASE64.encode(&Sha256::digest(body))});
        change(&mut claims);
        sign(&claims, &Secret::new(secret)).expose().to_owned()
    }

    #[test]
    fn only_the_server_s_webhooks_are_genuine() {
        let body = br#"{"event":"participant_left"}"#;
        let check = |token: &str| verify(token, body, "devkey", &Secret::new("secret"), NOW_S);
        let good = token(body, |_| (), "secret");
        assert_eq!(check(&good), Ok(()));
        assert_eq!(check(&format!("Bearer {good}")), Ok(()));
        for (denied, token) in [
            (WebhookDenied::BadSignature, token(body, |_| (), "other")),
            (
                WebhookDenied::BadSignature,
                token(body, |claims| claims["iss"] = json!("x"), "secret"),
            ),
            (
                WebhookDenied::Stale { off_s: 61 },
                token(body, |claims| claims["exp"] = json!(NOW_S - 61), "secret"),
            ),
            (
                WebhookDenied::Stale { off_s: 60 },
                token(body, |claims| claims["exp"] = json!(NOW_S - 60), "secret"),
            ),
            (
                WebhookDenied::Stale { off_s: 61 },
                token(body, |claims| claims["nbf"] = json!(NOW_S + 61), "secret"),
            ),
            (
                WebhookDenied::Malformed,
                token(body, |claims| claims["exp"] = Value::Null, "secret"),
            ),
            (WebhookDenied::OtherBody, token(b"other", |_| (), "secret")),
            (
                WebhookDenied::OtherBody,
                token(body, |claims| claims["sha256"] = json!(""), "secret"),
            ),
            (WebhookDenied::Malformed, String::new()),
            (WebhookDenied::Malformed, "a.b".into()),
            (WebhookDenied::Malformed, "a.b.c.d".into()),
        ] {
            assert_eq!(check(&token), Err(denied), "{token}");
        }
        for near in [("exp", NOW_S - 59), ("nbf", NOW_S + 60)] {
            let token = token(body, |claims| claims[near.0] = json!(near.1), "secret");
            assert_eq!(check(&token), Ok(()), "{near:?}");
        }
        let stale = WebhookDenied::Stale { off_s: 604_800 }.to_string();
        assert!(stale.contains("604800 s away from this machine's clock"), "{stale}");
        // A token without a signature.
        let none = BASE64URL_NOPAD.encode(br#"{"alg":"none"}"#);
        let claims = good.split('.').nth(1).expect("claims");
        assert_eq!(check(&format!("{none}.{claims}.")), Err(WebhookDenied::BadSignature));
    }

    fn event(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut event = json!({
            "event": "participant_left",
            "room": {"sid": "RM_1", "name": "talk"},
            "participant": {"identity": "agent-AJ_1", "kind": "AGENT", "attributes": {"lk.agent.name": "bot"},
                "disconnectReason": "CONNECTION_TIMEOUT"},
        });
        change(&mut event);
        event.to_string().into_bytes()
    }

    #[test]
    fn a_lost_bot_is_one_that_did_not_leave() {
        let worker = |agent_name: &str| MediaroomWorker {
            job_type: JobType::Room,
            agent_name: agent_name.to_owned(),
            deployment: String::new(),
            target_load_percent: 70,
        };
        let (bot, seller) = (worker("bot"), worker("seller"));
        let registrations = [&seller, &bot];
        let lost = |change: fn(&mut Value)| -> Result<Option<String>, WebhookDenied> {
            let found = lost_bot(&event(change), &registrations)?;
            Ok(found.map(|(worker, room)| {
                assert_eq!(worker.agent_name, "bot");
                room
            }))
        };
        let room = Ok(Some("talk".to_owned()));
        assert_eq!(lost(|_| ()), room);
        assert_eq!(
            lost(|event| event["event"] = json!("participant_connection_aborted")),
            room
        );
        assert_eq!(
            lost(|event| event["participant"]["attributes"] = json!({"lk.agent_name": "bot"})),
            room
        );
        for change in [
            (|event| event["event"] = json!("participant_joined")) as fn(&mut Value),
            |event| event["participant"]["disconnectReason"] = json!("CLIENT_INITIATED"),
            |event| event["participant"]["disconnectReason"] = json!(1),
            |event| event["participant"]["kind"] = json!("STANDARD"),
            |event| event["participant"]["attributes"] = json!({"lk.agent.name": "other"}),
            |event| event["participant"]["attributes"] = json!({}),
            |event| event["room"] = json!({}),
        ] {
            assert_eq!(lost(change), Ok(None));
        }
        let of_seller = event(|event| event["participant"]["attributes"] = json!({"lk.agent.name": "seller"}));
        let found = lost_bot(&of_seller, &registrations);
        assert_eq!(found, Ok(Some((&seller, "talk".to_owned()))));
        for no_event in [&b"[]"[..], b""] {
            assert_eq!(lost_bot(no_event, &registrations), Err(WebhookDenied::NoEvent));
        }
    }
}
