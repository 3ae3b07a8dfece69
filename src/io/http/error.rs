//! The errors of HTTP requests: each gets its status and its `detail` here, or in the module that
//! rejects the request.
//!
//! In: errors of `proto`, and of reading a request. Out: JSON responses, `{"detail": ...}`, the
//! form that existing clients display. Source: R-099.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{self, HeaderName, HeaderValue};
use serde_json::json;

use crate::features::{Feature, MissingFeature};
use crate::limits;
use crate::proto::http::access::{self, AccessError, KeyError};
use crate::proto::http::cluster::sealed_id::BodyTooLong;
use crate::proto::http::route::{self, ErrorBody};
use crate::proto::http::{registry, start, token};
use crate::proto::metrics;
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::body::ValidationError;
use edge_runner_http::common::{BodyError, Reply, json_reply};

/// Why a request is rejected.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Rejected before its endpoint was called.
    #[error("{0}")]
    Denied(access::AccessError),
    /// The key of `--api-key` is missing or wrong.
    #[error("{0}")]
    Key(KeyError),
    #[error("{0}")]
    Route(route::RouteError),
    /// The build lacks the feature.
    #[error("this endpoint {0}")]
    MissingFeature(MissingFeature),
    /// The runner has made no authority.
    #[error("there is no certificate to trust here: the runner makes one with `--tls auto`")]
    NoAuthority,
    #[error("forms are not taken here; send JSON")]
    Form,
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The bot is a program, and the `body` exceeds the size of its arguments.
    #[error(
        "the bot is a program, which takes a `body` of {} bytes of JSON",
        limits::PROCESS_BODY_BYTES_MAX
    )]
    BodyTooLargeForProgram,
    /// The `body` exceeds what the id of a replica's session carries.
    #[error("{0}")]
    BodyTooLargeForId(BodyTooLong),
    #[error("{invalid}")]
    Invalid { invalid: ValidationError, body: Bytes },
    #[error("{0}")]
    Start(start::StartRequestError),
    #[error("{0}")]
    Full(registry::RegistryFull),
    #[error("{0}")]
    Unknown(registry::UnknownSession),
    /// No bot has the name. The names are for those with the key.
    #[error("no bot has this name{}", .0.as_ref().map_or_else(String::new, |names| format!("; there are: {names}")))]
    UnknownBot(Option<String>),
    #[error("{0}")]
    Offer(SessionRefusal),
    /// A WebSocket path was requested without an upgrade.
    #[error("this is a WebSocket: ask for an upgrade, version 13")]
    UpgradeRequired,
    /// A WebSocket lacks its token.
    #[error("a token is needed: /start gives one, for the path, `?token=` or a bearer header")]
    TokenRequired,
    #[error("{0}")]
    Token(token::TokenError),
    /// The client may not read `/metrics`.
    #[error("{0}")]
    Metrics(metrics::MetricsDenied),
    /// A module rejects the request.
    #[error("{}", .0.detail)]
    Module(Box<ModuleRefusal>),
}

impl HttpError {
    /// Returns the status of an error.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            HttpError::Route(route::RouteError::NotFound) => StatusCode::NOT_FOUND,
            HttpError::MissingFeature(MissingFeature(Feature::Page | Feature::Tls)) => StatusCode::NOT_FOUND,
            HttpError::MissingFeature(_) => StatusCode::NOT_IMPLEMENTED,
            HttpError::NoAuthority => StatusCode::NOT_FOUND,
            HttpError::Route(route::RouteError::Method(_)) => StatusCode::METHOD_NOT_ALLOWED,
            HttpError::Metrics(metrics::MetricsDenied::Off) => StatusCode::NOT_FOUND,
            HttpError::TokenRequired | HttpError::Token(_) | HttpError::Metrics(_) => StatusCode::FORBIDDEN,
            HttpError::Denied(denied) => match denied {
                AccessError::Host | AccessError::Preflight => StatusCode::BAD_REQUEST,
                AccessError::Misdirected => StatusCode::MISDIRECTED_REQUEST,
                AccessError::Origin
                | AccessError::OriginMissing
                | AccessError::Csrf
                | AccessError::WebhookFromPage
                | AccessError::NotUserInitiated
                | AccessError::OperatorPage
                | AccessError::SettingsPage => StatusCode::FORBIDDEN,
            },
            HttpError::Key(_) => StatusCode::UNAUTHORIZED,
            HttpError::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
            HttpError::Body(BodyError::Broken) => StatusCode::BAD_REQUEST,
            HttpError::Form | HttpError::Body(BodyError::Compressed) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            HttpError::Body(BodyError::TooLarge { .. })
            | HttpError::BodyTooLargeForProgram
            | HttpError::BodyTooLargeForId(_) => StatusCode::PAYLOAD_TOO_LARGE,
            HttpError::Body(BodyError::TooSlow { .. }) => StatusCode::REQUEST_TIMEOUT,
            HttpError::Invalid { .. } | HttpError::Start(start::StartRequestError::Invalid(_)) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            HttpError::Start(_) => StatusCode::BAD_REQUEST,
            HttpError::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
            HttpError::Unknown(_) | HttpError::UnknownBot(_) => StatusCode::NOT_FOUND,
            HttpError::Module(refusal) => refusal.status,
            HttpError::Offer(refusal) => of_offer(refusal),
        }
    }

    /// Returns the refusal of an admission, or what was wrong with an offer.
    pub(super) fn offer_error(&self) -> Option<&SessionRefusal> {
        match self {
            HttpError::Offer(why) => Some(why),
            HttpError::Full(registry::RegistryFull::Capacity) => Some(&SessionRefusal::Full),
            HttpError::Full(registry::RegistryFull::SourceShare) => Some(&SessionRefusal::SourceQuota),
            _ => None,
        }
    }

    /// Returns the response; `error_body` is that of the endpoint.
    pub(super) fn reply(&self, error_body: ErrorBody) -> Reply {
        let detail = match self {
            HttpError::Invalid { invalid, .. } => invalid.detail(),
            other => json!(other.to_string()),
        };
        let mut reply = json_reply(self.status(), error_body(&detail).to_string());
        match self {
            HttpError::Route(route::RouteError::Method(allowed)) => {
                reply
                    .headers_mut()
                    .insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            HttpError::Module(refusal) => {
                if let Some((name, value)) = refusal.header.clone() {
                    reply.headers_mut().insert(name, value);
                }
            }
            HttpError::Key(_) => {
                reply
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            HttpError::UpgradeRequired => {
                let headers = reply.headers_mut();
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
            HttpError::Full(_)
            | HttpError::Offer(
                SessionRefusal::Full
                | SessionRefusal::BotFull(_)
                | SessionRefusal::SourceQuota
                | SessionRefusal::Stopping,
            ) => {
                retry_later(&mut reply);
            }
            _ => {}
        }
        reply
    }
}

fn retry_later(reply: &mut Reply) {
    reply
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(limits::RETRY_AFTER_S));
}

/// Why a module rejects a request.
#[derive(Debug)]
pub struct ModuleRefusal {
    pub status: StatusCode,
    /// The `detail` of the response.
    pub detail: String,
    /// What the operator sees at the default level; `None` logs at DEBUG alone.
    pub warning: Option<String>,
    pub header: Option<(HeaderName, HeaderValue)>,
}

impl ModuleRefusal {
    /// Returns a rejection that is not logged above DEBUG.
    pub fn new(status: StatusCode, detail: impl ToString) -> Self {
        ModuleRefusal {
            status,
            detail: detail.to_string(),
            warning: None,
            header: None,
        }
    }

    /// Returns a rejection whose `detail` is logged.
    pub fn logged(status: StatusCode, detail: impl ToString) -> Self {
        let detail = detail.to_string();
        ModuleRefusal {
            warning: Some(detail.clone()),
            ..ModuleRefusal::new(status, detail)
        }
    }

    /// Asks the client to try again later.
    pub fn with_retry(self) -> Self {
        ModuleRefusal {
            header: Some((header::RETRY_AFTER, HeaderValue::from(limits::RETRY_AFTER_S))),
            ..self
        }
    }
}

impl From<ModuleRefusal> for HttpError {
    fn from(refusal: ModuleRefusal) -> Self {
        HttpError::Module(Box::new(refusal))
    }
}

/// Returns the status of an offer's error.
fn of_offer(refusal: &SessionRefusal) -> StatusCode {
    match refusal {
        SessionRefusal::BadSdp(_) => StatusCode::BAD_REQUEST,
        SessionRefusal::UnknownConnection => StatusCode::NOT_FOUND,
        SessionRefusal::CallerNotAllowed(_) => StatusCode::FORBIDDEN,
        SessionRefusal::OtherReplica(_) => StatusCode::MISDIRECTED_REQUEST,
        SessionRefusal::Full | SessionRefusal::BotFull(_) | SessionRefusal::SourceQuota | SessionRefusal::Stopping => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        SessionRefusal::NoCandidate(_) | SessionRefusal::AnswerTooLong(_) | SessionRefusal::Internal(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// every offer error has its status and a `detail` with advice.
    #[test]
    fn every_offer_error_has_its_status() {
        for (refusal, status, text, retry) in [
            (SessionRefusal::BadSdp("no m-line".into()), 400, "no m-line", None),
            (
                SessionRefusal::UnknownConnection,
                404,
                "Peer connection not found",
                None,
            ),
            (
                SessionRefusal::OtherReplica("b".into()),
                421,
                "replica `b` made it",
                None,
            ),
            (SessionRefusal::Full, 503, "try again later", Some("5")),
            (SessionRefusal::BotFull("sales".into()), 503, "bot `sales`", Some("5")),
            (SessionRefusal::Stopping, 503, "stopping", Some("5")),
            (SessionRefusal::NoCandidate("192.0.2.1".into()), 500, "192.0.2.1", None),
            (
                SessionRefusal::AnswerTooLong("4097 of 4096 bytes".into()),
                500,
                "4097 of 4096 bytes",
                None,
            ),
        ] {
            let refusal = HttpError::Offer(refusal);
            assert!(refusal.to_string().contains(text), "{refusal}");
            let reply = refusal.reply(route::error_body);
            assert_eq!(reply.status().as_u16(), status, "{text}");
            let found = reply.headers().get(header::RETRY_AFTER);
            assert_eq!(found.and_then(|value| value.to_str().ok()), retry, "{text}");
        }
    }
}
