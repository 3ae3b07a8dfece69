//! What telephony providers ask: where to bring a call's audio, and, by the upgrade itself, whether it may come.
//!
//! In: their requests. Out: markup, or an address. Refuses: signatures that are not the provider's.

use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;

use super::body::{AcceptedBody, read};
use super::{HttpError, RunnerApp, mint_token};
use crate::config::Transport;
use crate::proto::http::route;
use crate::proto::http::token::SocketKind;
use crate::proto::telephony::proof::{self, CallKey};
use crate::proto::telephony::signature::{Standing, Webhook};
use crate::proto::telephony::verify;
use crate::proto::telephony::{PROVIDERS, Provider, webhook};
use edge_runner_http::common::{Reply, lock, unix_time_s, whole};

/// Verifies the upgrade of a call, where its provider signs it, and returns who signed. Where the
/// URL that was signed is not known for sure, a signature that does not fit is none.
pub(super) fn verify_upgrade(app: &RunnerApp, head: &Parts) -> Result<Option<&'static Provider>, HttpError> {
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let host = app.config.proxy.as_deref().or(text("host")).unwrap_or("localhost");
    let url = format!("wss://{host}{}", head.uri.path());
    let only = app.config.transport.and_then(Transport::provider);
    let known = only.filter(|_| app.config.proxy.is_some());
    verify::verify_upgrade(&PROVIDERS, known, &app.config.telephony, &url, &text).map_err(HttpError::Signature)
}

/// Tells a telephony provider where to bring a call's audio.
pub(super) async fn webhook(app: &RunnerApp, head: &Parts, body: Incoming) -> Result<Reply, HttpError> {
    let headers = &head.headers;
    let Some(provider) = app.config.transport.and_then(Transport::provider) else {
        return Err(HttpError::Route(route::RouteError::Method(route::ROOT_METHODS)));
    };
    let body = read(app.times, headers, AcceptedBody::Anything, body).await?;
    // A provider that is refused here has somewhere else to go; one that is refused at the socket only hangs up.
    app.check_open()?;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // A provider that comes without `--proxy` takes no markup, and none of those signs anything.
    let host = app.config.proxy.as_deref().or(text("host")).unwrap_or("localhost");
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let called = Webhook {
        url: &format!("https://{host}{target}"),
        header: &text,
        body: &body,
    };
    let telephony = &app.config.telephony;
    let standing = verify::verify(provider, telephony, &called, unix_time_s()).map_err(HttpError::Signature)?;
    let token = match standing {
        Standing::Verified(fingerprint) if proof::is_protected(provider, telephony) => {
            let call = CallKey::of(provider, &provider.call_id(&body));
            Some(lock(&app.tokens).mint_for_call(call, fingerprint, Instant::now()))
        }
        _ => mint_token(app, SocketKind::Call, None, false),
    };
    let url = webhook::socket_url(host, token.as_deref());
    let webhook::Reply { content_type, body } = provider.protocol.reply(&url, &body);
    let mut reply = Reply::new(whole(body));
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(reply)
}
