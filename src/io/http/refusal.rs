//! What a request is refused with: every error of the server becomes a status and a `detail` here, and nowhere else.
//!
//! In: the refusals of `proto`, and those of reading a request. Out: answers in JSON, `{"detail": ...}`, since clients show
//! the `detail` to people and trip over anything else. Source: checklist R-099.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde_json::json;

use super::floor::{Reply, json_reply};
use crate::abilities::{Ability, Absent};
use crate::config::Transport;
use crate::limits;
use crate::proto::access::{self, Denied};
use crate::proto::body::Invalid;
use crate::proto::mediaroom::entry;
use crate::proto::offer::OfferRefusal;
use crate::proto::telephony::signature;
use crate::proto::videoroom::{self, dialin};
use crate::proto::whip::call;
use crate::proto::{messaging, metrics, route, start, table, token, whip};

/// Every way in which a request is refused.
pub enum Refusal {
    /// Before its endpoint saw it.
    Denied(access::Denied),
    /// Without the key of `--api-key`.
    NoKey,
    Route(route::Refusal),
    /// What this build lacks.
    Absent(Absent),
    /// There is no authority of this runner's making.
    NoAuthority,
    Form,
    Compressed,
    TooLarge,
    /// The bot is a program, and its arguments would not hold the `body`.
    TooMuchForProgram,
    TooSlow,
    Broken,
    Invalid {
        invalid: Invalid,
        body: Bytes,
    },
    Start(start::Refusal),
    Full(table::Full),
    Unknown(table::Unknown),
    Offer(OfferRefusal),
    /// An offer by one POST, or what is asked of the session that came of one.
    Whip(whip::Refusal),
    /// A WebSocket's path, asked for without an upgrade.
    NoUpgrade,
    /// A WebSocket without the token that it needs.
    NoToken,
    Token(token::Refusal),
    /// `/metrics`, asked for by somebody whom it is not for.
    Metrics(metrics::Denied),
    /// A webhook that is not its provider's.
    Signature(signature::Wrong),
    /// The runner was not told of a media-room server.
    Mediaroom(entry::Missing),
    /// The same of a number that leads to a video room.
    Caller(dialin::Wrong),
    /// A dialled number's webhook that is no call.
    DialIn(dialin::Refusal),
    /// A webhook of the messaging app that is not its provider's.
    Messaging(messaging::signature::Wrong),
    /// A check of its address without the right word.
    NotVerified(messaging::signature::NotVerified),
    /// A webhook of it that is about something else.
    Webhook(messaging::webhook::Refusal),
    /// A call that has a bot already.
    SameCall,
    /// There is no video room, or no token for it.
    Videoroom(videoroom::Failure),
    /// The same for a call.
    CallRoom(videoroom::Failure),
    /// A video room, from a runner of another transport alone.
    OtherTransport(Transport),
}

impl Refusal {
    /// The one table from error to status.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Refusal::Route(route::Refusal::NotFound) => StatusCode::NOT_FOUND,
            Refusal::Absent(Absent(Ability::Page | Ability::Tls | Ability::Metrics)) => StatusCode::NOT_FOUND,
            Refusal::Absent(_) => StatusCode::NOT_IMPLEMENTED,
            Refusal::NoAuthority | Refusal::OtherTransport(_) => StatusCode::NOT_FOUND,
            Refusal::Route(route::Refusal::Method(_)) => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Metrics(metrics::Denied::Off) => StatusCode::NOT_FOUND,
            Refusal::Caller(_)
            | Refusal::NotVerified(_)
            | Refusal::NoToken
            | Refusal::Token(_)
            | Refusal::Signature(_)
            | Refusal::Metrics(metrics::Denied::Remote | metrics::Denied::Forwarded) => StatusCode::FORBIDDEN,
            Refusal::Denied(denied) => match denied {
                Denied::Host | Denied::Preflight => StatusCode::BAD_REQUEST,
                Denied::Misdirected => StatusCode::MISDIRECTED_REQUEST,
                Denied::Origin | Denied::Forged | Denied::Page | Denied::Uninvited => StatusCode::FORBIDDEN,
            },
            Refusal::NoKey | Refusal::Messaging(_) => StatusCode::UNAUTHORIZED,
            Refusal::NoUpgrade => StatusCode::UPGRADE_REQUIRED,
            Refusal::Broken => StatusCode::BAD_REQUEST,
            Refusal::SameCall => StatusCode::CONFLICT,
            Refusal::Form | Refusal::Compressed => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Refusal::TooLarge | Refusal::TooMuchForProgram => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Refusal::Invalid { .. } | Refusal::Start(start::Refusal::Invalid(_)) => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::Start(_) => StatusCode::BAD_REQUEST,
            Refusal::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Unknown(_) => StatusCode::NOT_FOUND,
            Refusal::Mediaroom(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::DialIn(_) | Refusal::Webhook(_) => StatusCode::BAD_REQUEST,
            Refusal::Videoroom(_) | Refusal::CallRoom(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::Whip(refusal) => match refusal {
                whip::Refusal::Type(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
                whip::Refusal::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
                whip::Refusal::NotText | whip::Refusal::Form(_) | whip::Refusal::Fragment(_) => StatusCode::BAD_REQUEST,
                whip::Refusal::Unfit(_) => StatusCode::UNPROCESSABLE_ENTITY,
                whip::Refusal::Stale => StatusCode::PRECONDITION_FAILED,
                whip::Refusal::SpentKey => StatusCode::UNAUTHORIZED,
                whip::Refusal::Offer(refusal) => of_offer(refusal),
            },
            Refusal::Offer(refusal) => of_offer(refusal),
        }
    }

    /// Returns what was wrong, in words that a caller can act on.
    pub(super) fn detail(&self) -> String {
        match self {
            Refusal::Denied(denied) => denied.to_string(),
            Refusal::NoKey => "a key is needed: `Authorization: Bearer KEY`, as --api-key has it".to_owned(),
            Refusal::Route(refusal) => refusal.to_string(),
            Refusal::Absent(absent) => format!("what is asked for here {absent}"),
            Refusal::NoAuthority => {
                "there is no certificate to trust here: the runner makes one with `--tls auto`".to_owned()
            }
            Refusal::Form => "forms are not taken here; send JSON".to_owned(),
            Refusal::Compressed => "compressed bodies are not taken here".to_owned(),
            Refusal::TooLarge => format!("the body is larger than {} bytes", limits::HTTP_BODY_BYTES_MAX),
            Refusal::TooMuchForProgram => {
                format!(
                    "the bot is a program, which takes a `body` of {} bytes of JSON",
                    limits::PROCESS_BODY_BYTES_MAX
                )
            }
            Refusal::TooSlow => format!("the body took longer than {} s", limits::HTTP_BODY.as_secs()),
            Refusal::Broken => "the body ended early or is badly framed".to_owned(),
            Refusal::Invalid { invalid, .. } => invalid.to_string(),
            Refusal::Start(refusal) => refusal.to_string(),
            Refusal::Full(refusal) => refusal.to_string(),
            Refusal::Unknown(refusal) => refusal.to_string(),
            Refusal::Whip(refusal) => refusal.to_string(),
            Refusal::Offer(refusal) => refusal.to_string(),
            Refusal::NoUpgrade => "this is a WebSocket: ask for an upgrade, version 13".to_owned(),
            Refusal::NoToken => {
                "a token is needed: /start gives one, for the path, `?token=` or a bearer header".to_owned()
            }
            Refusal::Token(refusal) => refusal.to_string(),
            Refusal::Metrics(denied) => denied.to_string(),
            Refusal::Mediaroom(missing) => missing.to_string(),
            Refusal::Signature(_) | Refusal::Caller(_) | Refusal::Messaging(_) => "invalid signature".to_owned(),
            Refusal::NotVerified(refusal) => refusal.to_string(),
            Refusal::Webhook(refusal) => refusal.to_string(),
            Refusal::DialIn(refusal) => refusal.to_string(),
            Refusal::SameCall => "this call has a bot already".to_owned(),
            Refusal::Videoroom(failure) => failure.to_string(),
            Refusal::CallRoom(failure) => format!("Failed to create room: {failure}"),
            Refusal::OtherTransport(only) => format!("no video rooms here: this runner serves {} alone", only.name()),
        }
    }

    /// Returns the answer; `is_call` to a client that looks for its error where the calls endpoint has it.
    pub(super) fn reply(&self, is_call: bool) -> Reply {
        let detail = match self {
            Refusal::Invalid { invalid, .. } => invalid.detail(),
            other => json!(other.detail()),
        };
        let body = match is_call {
            true => call::error(&detail),
            false => json!({"detail": detail}),
        };
        let mut reply = json_reply(self.status(), body.to_string());
        match self {
            Refusal::Route(route::Refusal::Method(allowed)) => {
                reply
                    .headers_mut()
                    .insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            Refusal::NoKey | Refusal::Whip(whip::Refusal::SpentKey) => {
                reply
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Refusal::NoUpgrade => {
                let headers = reply.headers_mut();
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
            Refusal::Full(_) | Refusal::Offer(OfferRefusal::Full | OfferRefusal::Share | OfferRefusal::Stopping) => {
                reply
                    .headers_mut()
                    .insert(header::RETRY_AFTER, HeaderValue::from(limits::RETRY_AFTER_S));
            }
            _ => {}
        }
        reply
    }
}

impl From<whip::Refusal> for Refusal {
    /// What the engine says of an offer is told and counted as of any other.
    fn from(refusal: whip::Refusal) -> Self {
        match refusal {
            whip::Refusal::Offer(refusal) => Refusal::Offer(refusal),
            other => Refusal::Whip(other),
        }
    }
}

/// The same of an offer.
fn of_offer(refusal: &OfferRefusal) -> StatusCode {
    match refusal {
        OfferRefusal::BadSdp(_) => StatusCode::BAD_REQUEST,
        OfferRefusal::UnknownConnection => StatusCode::NOT_FOUND,
        OfferRefusal::Full | OfferRefusal::Share | OfferRefusal::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        OfferRefusal::NoCandidate(_) | OfferRefusal::AnswerTooLong(_) | OfferRefusal::NoAnswer(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// the one table from refusal to status, each with a `detail` that can be acted on.
    #[test]
    fn every_refusal_of_an_offer_has_its_status() {
        for (refusal, status, word, retry) in [
            (OfferRefusal::BadSdp("no m-line".into()), 400, "no m-line", None),
            (OfferRefusal::UnknownConnection, 404, "Peer connection not found", None),
            (OfferRefusal::Full, 503, "try again later", Some("5")),
            (OfferRefusal::Stopping, 503, "stopping", Some("5")),
            (OfferRefusal::NoCandidate("192.0.2.1".into()), 500, "192.0.2.1", None),
            (
                OfferRefusal::AnswerTooLong("4097 of 4096 bytes".into()),
                500,
                "4097 of 4096 bytes",
                None,
            ),
        ] {
            let refusal = Refusal::Offer(refusal);
            assert!(refusal.detail().contains(word), "{}", refusal.detail());
            let reply = refusal.reply(false);
            assert_eq!(reply.status().as_u16(), status, "{word}");
            let found = reply.headers().get(header::RETRY_AFTER);
            assert_eq!(found.and_then(|value| value.to_str().ok()), retry, "{word}");
        }
    }
}
