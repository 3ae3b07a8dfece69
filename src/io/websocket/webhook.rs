//! Telephony webhooks: the markup that names the WebSocket of a call, and the signature of
//! upgrades.
//!
//! In: providers' requests. Out: markup, or the provider that signed. Rejects: invalid signatures.

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use serde_json::json;

use crate::config::Transport;
use crate::io::bots::SessionBot;
use crate::io::http::app::{RunnerApp, mint_token};
use crate::io::http::body::{AcceptedBody, read};
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::http::requested_call::{CallFacts, RequestedCall};
use crate::io::tasks::request_time;
use crate::io::websocket::dial;
use crate::proto::bots::BotChoice;
use crate::proto::http::token::SocketKind;
use crate::proto::http::{registry, route};
use crate::proto::telephony::dial::ledger::DialledWebhook;
use crate::proto::telephony::proof::{self, CallKey};
use crate::proto::telephony::signature::{SignatureError, SignatureStatus, WebhookRequest};
use crate::proto::telephony::verify;
use crate::proto::telephony::{PROVIDERS, Provider, webhook};
use edge_runner_http::common::{PeerInfo, Reply, lock, unix_time_s, whole};

/// Verifies the upgrade of a call if its provider signs upgrades, and returns the provider. Where
/// the signed URL is not known for sure, a mismatch counts as no signature.
pub fn verify_upgrade(app: &RunnerApp, head: &Parts) -> Result<Option<&'static Provider>, HttpError> {
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let url = format!("wss://{}{}", public_host(app, head), head.uri.path());
    let only = app.config.transport.and_then(Transport::provider);
    let known = only.filter(|_| app.config.proxy.is_some());
    verify::verify_upgrade(&PROVIDERS, known, &app.config.telephony, &url, &text).map_err(unsigned)
}

/// Answers a webhook that a provider sends as GET, which would be answered with the page; `None`
/// for any other request. Markup is for a POST alone: its form is signed.
///
/// # Errors
/// [`HttpError`] with advice for a provider that takes markup, and while no call is taken.
pub fn answer_get(app: &RunnerApp, head: &Parts) -> Result<Option<Reply>, HttpError> {
    let provider = app.config.transport.and_then(Transport::provider);
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let Some(provider) = provider.filter(|provider| !provider.call_id(query).is_empty()) else {
        return Ok(None);
    };
    if provider.takes_markup {
        let detail = format!(
            "the webhook of {} came as GET: choose POST for it in the settings of the number",
            provider.name
        );
        return Err(ModuleRefusal {
            header: Some((header::ALLOW, HeaderValue::from_static(route::POST_METHODS))),
            ..ModuleRefusal::logged(StatusCode::METHOD_NOT_ALLOWED, detail)
        }
        .into());
    }
    app.check_open()?;
    let token = mint_token(app, SocketKind::Call, None, false);
    let url = webhook::socket_url(public_host(app, head), token.as_deref(), None);
    Ok(Some(respond(provider.protocol.reply(&url, &[]))))
}

/// Returns the host of media sockets. Providers that work without `--proxy` take no markup and sign
/// nothing.
fn public_host<'h>(app: &'h RunnerApp, head: &'h Parts) -> &'h str {
    let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    app.config.proxy.as_deref().or(named).unwrap_or("localhost")
}

/// Answers a provider with the address for a call's audio.
pub async fn webhook(
    app: &RunnerApp,
    head: &Parts,
    body: Incoming,
    (peer, requested): (PeerInfo, &RequestedCall),
) -> Result<Reply, HttpError> {
    let headers = &head.headers;
    let Some(provider) = app.config.transport.and_then(Transport::provider) else {
        return Err(HttpError::Route(route::RouteError::Method(route::ROOT_METHODS)));
    };
    let body = read(app.conn_limits, headers, AcceptedBody::Anything, body).await?;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = public_host(app, head);
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let called = WebhookRequest {
        url: &format!("https://{host}{target}"),
        header: &text,
        body: &body,
    };
    let telephony = &app.config.telephony;
    let signature = verify::verify(provider, telephony, &called, unix_time_s()).map_err(unsigned)?;
    let query = head.uri.query().unwrap_or_default();
    if dial::handle_report(app, query, &body) || dial::handle_end(app, query, &body) {
        return Ok(Reply::default());
    }
    let call_id = provider.call_id(&body);
    let call = CallKey::of(provider, &call_id);
    // The end of a call is reported to the URL of its answer, unless another one is set.
    if webhook::reports_end(&body) {
        lock(&app.tokens).forget_return(call);
        return Ok(Reply::default());
    }
    let dialled = dial::handle_webhook(app, query, (call, call_id.as_str()));
    if dialled == DialledWebhook::Ended {
        return Ok(respond(webhook::markup("  <Hangup/>\n")));
    }
    let is_dialled = dialled == DialledWebhook::Answered;
    let numbers = provider.numbers(&body);
    requested.set(CallFacts {
        // What its provider asks for twice is one call.
        id: Some(registry::session_id(call.bytes())),
        transport: Some(Transport::Telephony(provider)),
        call_data: json!({"from": numbers[0], "to": numbers[1]}),
        ..CallFacts::default()
    });
    // A provider can redirect a call that is rejected here; at the WebSocket it would only hang up.
    app.check_open()?;
    let mint = |fingerprint| lock(&app.tokens).mint_for_call(call, fingerprint, request_time());
    let bot = match provider.url_names_bot {
        // `POST /calls` named it, and the ledger of dialled calls has the name.
        _ if is_dialled => None,
        true => Some(called_bot(app, numbers.each_ref().map(Option::as_deref), peer)?),
        false => None,
    };
    let token = match signature {
        SignatureStatus::Verified(fingerprint) if is_dialled || proof::is_protected(provider, telephony) => {
            Some(mint(fingerprint))
        }
        // The provider alone knows the id of a dialled call.
        SignatureStatus::NotChecked if is_dialled => Some(mint(call.bytes())),
        _ => mint_token(app, SocketKind::Call, None, false),
    };
    let name = bot.as_ref().and_then(|bot| bot.row().name());
    let url = webhook::socket_url(host, token.as_deref(), name.map(|name| &**name));
    Ok(respond(provider.protocol.reply(&url, &body)))
}

fn respond(webhook::WebhookReply { content_type, body }: webhook::WebhookReply) -> Reply {
    let mut reply = Reply::new(whole(body));
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// Returns the bot of the number that was dialled, if the telephone may call it.
fn called_bot(app: &RunnerApp, [from, to]: [Option<&str>; 2], peer: PeerInfo) -> Result<SessionBot, HttpError> {
    let choice = BotChoice {
        dialled: [to, None],
        ..BotChoice::default()
    };
    let bot = app.choose(choice, peer)?;
    bot.check_caller(from).map_err(HttpError::Offer)?;
    Ok(bot)
}

/// Rejects a request that the provider has not signed.
fn unsigned(wrong: SignatureError) -> HttpError {
    ModuleRefusal {
        detail: "invalid signature".to_owned(),
        ..ModuleRefusal::logged(StatusCode::FORBIDDEN, wrong)
    }
    .into()
}
