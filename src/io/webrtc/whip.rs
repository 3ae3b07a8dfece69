//! Sessions opened by one POST: WHIP, WHEP and the calls endpoint.
//!
//! In: requests of those routes. Out: SDP answers with the headers of a resource, SDP fragments,
//! and keys for one session. Opening a session needs the key of `--api-key`, or one from
//! `client_secrets` or `/start`. Later requests need only the session's path, which cannot be
//! guessed. The rules are in `proto::webrtc::whip`.

use std::time::Instant;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use serde_json::Value;

use crate::features::Feature;
use crate::io::http::access::authorizations;
use crate::io::http::app::{RunnerApp, register};
use crate::io::http::body::{AcceptedBody, read};
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::http::lease::{RegistrationLease, requester, session_start};
use crate::io::http::refusal_log::log_client;
use crate::io::tasks::request_time;
use crate::io::webrtc::WebRtc;
use crate::logging;
use crate::proto::bots::{BotChoice, QUERY as BOT};
use crate::proto::http::access::KeyError;
use crate::proto::http::origin;
use crate::proto::http::route::Query;
use crate::proto::webrtc::offer::AnswerBody;
use crate::proto::webrtc::whip::call::{self, CallsRequest, PresentedKey};
use crate::proto::webrtc::whip::path::{ResourceMethod, WhipEndpoint, WhipRoute};
use crate::proto::webrtc::whip::{self, ResourceRequest, ResourceResponse, WhipError, WhipOffer, answer, offer};
use edge_runner_http::common::{PeerInfo, Reply};
use edge_runner_http::common::{json_reply, lock, unix_time_s, whole};

pub async fn serve(
    app: &RunnerApp,
    request: WhipRoute,
    head: &Parts,
    body: Incoming,
    peer: PeerInfo,
) -> Result<Reply, HttpError> {
    match request {
        WhipRoute::Create(via, name) => open(app, via, name, head, body, peer).await,
        WhipRoute::Endpoint(via) => Ok(endpoint(via)),
        WhipRoute::Options { via, methods } => Ok(options(via, methods)),
        WhipRoute::ClientSecrets => client_secret(app, head, body, peer).await,
        WhipRoute::Session(_, id, verb) => {
            let headers = &head.headers;
            let resource_request = match verb {
                ResourceMethod::Get => ResourceRequest::Get,
                ResourceMethod::Delete => ResourceRequest::Delete,
                ResourceMethod::Patch => patch(app, headers, body, peer).await?,
            };
            let changes = verb == ResourceMethod::Patch;
            let done = app
                .module::<WebRtc>(Feature::WebRtc)?
                .resource(&id, resource_request)
                .await?;
            Ok(match done {
                ResourceResponse::Restarted { fragment, etag } => {
                    let mut reply = text(StatusCode::OK, whip::FRAGMENT, fragment);
                    put(reply.headers_mut(), header::ETAG, &etag);
                    reply
                }
                ResourceResponse::NoContent if changes || verb == ResourceMethod::Get => empty(StatusCode::NO_CONTENT),
                ResourceResponse::NoContent => empty(StatusCode::OK),
            })
        }
    }
}

async fn open(
    app: &RunnerApp,
    via: WhipEndpoint,
    name: Option<String>,
    head: &Parts,
    body: Incoming,
    mut peer: PeerInfo,
) -> Result<Reply, HttpError> {
    let headers = &head.headers;
    let query = head.uri.query().unwrap_or_default();
    let shown = shown(via, headers, query);
    let of_session = shown.as_ref().and_then(PresentedKey::session_id);
    let of_session = of_session.filter(|id| lock(&app.table).is_unused(id, request_time()));
    let is_spent = of_session.is_none() && shown.as_ref().is_some_and(PresentedKey::is_client_secret);
    let access = app.access.current();
    let has_key = access.policy.is_key(shown.as_ref().map(PresentedKey::as_bytes));
    if is_spent {
        return Err(WhipError::SpentKey.into());
    }
    if !has_key && of_session.is_none() {
        return Err(HttpError::Key(match shown {
            Some(_) => KeyError::Wrong,
            None => KeyError::Missing,
        }));
    }
    peer.is_authorised |= has_key && access.policy.requires_key();
    let kind = content_type(headers);
    let body = read(app.conn_limits, headers, AcceptedBody::Anything, body).await?;
    let call = match via {
        WhipEndpoint::Whip | WhipEndpoint::Whep => CallsRequest::from_sdp(kind, &body)?,
        WhipEndpoint::Calls => CallsRequest::from_sdp_or_form(kind, &body)?,
    };
    drop(body);
    offer::check(via, &call.sdp)?;
    let named = Query::new(query).value(BOT);
    let lease = match of_session {
        Some(id) => Some(RegistrationLease::claim_once(&app.table, id, peer).map_err(|_| WhipError::SpentKey)?),
        None => None,
    };
    let user_agent = headers.get(header::USER_AGENT).map(HeaderValue::as_bytes);
    let opening = WhipOffer {
        call_data: answer::call_data(via, name.as_deref(), user_agent),
        sdp: call.sdp,
    };
    let mut own_body = answer::query_body(query);
    own_body.extend(call.session.map(|session| ("session".to_owned(), session)));
    let own_body = Value::Object(own_body);
    let choice = BotChoice {
        name: lease.as_ref().and_then(RegistrationLease::bot).or(named.as_deref()),
        endpoint: name.as_deref(),
        body: Some(lease.as_ref().map_or(&own_body, RegistrationLease::body)),
        ..BotChoice::default()
    };
    let bot = app.choose(choice, peer)?;
    let requester = requester(peer, lease.as_ref());
    let client = log_client(app, peer).or_authorised(requester.is_authorised);
    let begin = session_start(lease, bot, client.clone(), move |registered| {
        registered.unwrap_or(own_body)
    });
    let began = Instant::now();
    let answered = logging::for_client(
        client,
        app.module::<WebRtc>(Feature::WebRtc)?.open(opening, requester, begin),
    )
    .await;
    let answered = answered.map_err(HttpError::Offer)?;
    app.sessions.metrics().offer_answered(began.elapsed());
    Ok(created(app, via, answered))
}

/// Makes the response to an offer.
fn created(app: &RunnerApp, via: WhipEndpoint, answered: AnswerBody) -> Reply {
    let etag = answer::etag(answer::ufrag(&answered.sdp));
    let mut reply = text(StatusCode::CREATED, whip::SDP, answered.sdp);
    let headers = reply.headers_mut();
    put(headers, header::LOCATION, &via.resource_path(&answered.pc_id));
    put(headers, header::ETAG, &etag);
    for link in answer::links(&app.config.ice_servers) {
        put(headers, header::LINK, &link);
    }
    reply
}

async fn client_secret(app: &RunnerApp, head: &Parts, body: Incoming, peer: PeerInfo) -> Result<Reply, HttpError> {
    let shown = PresentedKey::from_request(authorizations(&head.headers), !is_of_browser(&head.headers), None);
    if !app
        .access
        .current()
        .policy
        .is_key(shown.as_ref().map(PresentedKey::as_bytes))
    {
        return Err(HttpError::Key(match head.headers.contains_key(header::AUTHORIZATION) {
            true => KeyError::Wrong,
            false => KeyError::Missing,
        }));
    }
    let body = read(app.conn_limits, &head.headers, AcceptedBody::Json, body).await?;
    app.check_open()?;
    let read = call::client_secret(&body, !app.config.bots.is_empty());
    let (body, bot) = read.map_err(|invalid| HttpError::Invalid { invalid, body })?;
    if app.sessions.bots().choose(BotChoice::named(bot.as_deref())).is_err() {
        return Err(app.unknown_bot(peer));
    }
    let id = register(app, bot.as_deref(), &body, peer)?;
    let reply = call::client_secret_reply(&id, &body, unix_time_s());
    let mut reply = json_reply(StatusCode::OK, reply);
    put(reply.headers_mut(), header::CACHE_CONTROL, "no-store");
    Ok(reply)
}

async fn patch(
    app: &RunnerApp,
    headers: &HeaderMap,
    body: Incoming,
    peer: PeerInfo,
) -> Result<ResourceRequest, HttpError> {
    const TYPES: &str = "application/trickle-ice-sdpfrag";
    let kind = whip::media_type(content_type(headers));
    if ![whip::FRAGMENT, whip::SDP]
        .iter()
        .any(|known| kind.eq_ignore_ascii_case(known.as_bytes()))
    {
        return Err(WhipError::UnsupportedType(TYPES).into());
    }
    let body: Bytes = read(app.conn_limits, headers, AcceptedBody::Anything, body).await?;
    // `If-Match` may be split over several headers.
    let tags: Vec<&[u8]> = headers
        .get_all(header::IF_MATCH)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    Ok(ResourceRequest::Patch {
        if_match: (!tags.is_empty()).then(|| tags.join(&b',')),
        body: body.into(),
        source: peer.client_address(),
    })
}

/// Returns the key of a request. Devices that support only Basic authentication send it as the
/// password. Browsers add Basic credentials by themselves, so the calls endpoint, which takes forms
/// without a preflight, ignores those of browsers.
fn shown(via: WhipEndpoint, headers: &HeaderMap, query: &str) -> Option<PresentedKey> {
    let token = Query::new(query).value(answer::TOKEN);
    let takes_basic = via != WhipEndpoint::Calls || !is_of_browser(headers);
    PresentedKey::from_request(authorizations(headers), takes_basic, token)
}

/// Returns whether a browser sent a POST: it names the page's origin, or its relation to it.
fn is_of_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site")
}

fn content_type(headers: &HeaderMap) -> &[u8] {
    headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes)
}

/// Answers a GET of an endpoint. A player recognises WHEP by the content type.
fn endpoint(via: WhipEndpoint) -> Reply {
    match via {
        WhipEndpoint::Whep => text(StatusCode::OK, whip::SDP, ""),
        WhipEndpoint::Whip | WhipEndpoint::Calls => empty(StatusCode::NO_CONTENT),
    }
}

/// Answers OPTIONS with what can be sent. Some clients look for PATCH in the headers of a
/// preflight.
fn options(via: WhipEndpoint, methods: &'static str) -> Reply {
    let mut reply = empty(StatusCode::OK);
    let headers = reply.headers_mut();
    put(headers, header::ALLOW, methods);
    put(headers, header::ACCESS_CONTROL_ALLOW_METHODS, origin::ALLOWED_METHODS);
    put(headers, HeaderName::from_static("accept-patch"), whip::FRAGMENT);
    let posted = match via {
        WhipEndpoint::Whip | WhipEndpoint::Whep => whip::SDP,
        WhipEndpoint::Calls => "application/sdp, multipart/form-data",
    };
    put(headers, HeaderName::from_static("accept-post"), posted);
    reply
}

fn empty(status: StatusCode) -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = status;
    reply
}

fn text(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Reply {
    let mut reply = Reply::new(whole(text));
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

/// Adds a header, unless its value is invalid in a header.
fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.append(name, value);
    }
}

impl From<WhipError> for HttpError {
    /// Counts and logs an offer's error like that of any other offer.
    fn from(refusal: WhipError) -> Self {
        let status = match refusal {
            WhipError::Offer(refusal) => return HttpError::Offer(refusal),
            WhipError::UnsupportedType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            WhipError::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            WhipError::NotUtf8 | WhipError::BadForm(_) | WhipError::BadFragment(_) => StatusCode::BAD_REQUEST,
            WhipError::UnsupportedOffer(_) => StatusCode::UNPROCESSABLE_ENTITY,
            WhipError::StaleEtag => StatusCode::PRECONDITION_FAILED,
            WhipError::SpentKey => StatusCode::UNAUTHORIZED,
        };
        let asks_for_key = status == StatusCode::UNAUTHORIZED;
        let header = asks_for_key.then_some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        let refusal = ModuleRefusal {
            header,
            ..ModuleRefusal::new(status, refusal)
        };
        refusal.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::refusal::SessionRefusal;

    #[test]
    fn an_error_has_its_status_and_a_spent_key_asks_for_another() {
        for (error, status, asks_for_key) in [
            (WhipError::UnsupportedType("a/b"), 415, false),
            (WhipError::TooLong, 413, false),
            (WhipError::NotUtf8, 400, false),
            (WhipError::BadForm("no"), 400, false),
            (WhipError::BadFragment("no"), 400, false),
            (WhipError::UnsupportedOffer("no"), 422, false),
            (WhipError::StaleEtag, 412, false),
            (WhipError::SpentKey, 401, true),
        ] {
            let detail = error.to_string();
            let HttpError::Module(refusal) = HttpError::from(error) else {
                panic!("{detail}: a refusal of the module");
            };
            assert_eq!((refusal.status.as_u16(), &refusal.detail), (status, &detail));
            assert_eq!(refusal.header.is_some(), asks_for_key, "{detail}");
        }
        let of_offer = HttpError::from(WhipError::Offer(SessionRefusal::Full));
        assert!(matches!(of_offer, HttpError::Offer(SessionRefusal::Full)));
    }
}
