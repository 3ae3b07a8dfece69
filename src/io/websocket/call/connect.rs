//! The socket of a call: that of `/start`, or the one to which the webhook of a provider leads.
//!
//! In: the target and the key. Out: the open socket, or a sentence about why there is none, as
//! those of [`dial`](crate::io::call::dial).

use std::time::Duration;

use edge_runner_http::common::random;

use crate::config::{Secret, Transport};
use crate::io::call::CallConfig;
use crate::io::call::dial::{bearer, refusal, shown, start};
use crate::io::rest;
use crate::io::websocket_client::{ClientSocket, SocketError, SocketLimits, SocketRequest, connect};
use crate::proto::caller::provider_webhook::{self, WebhookCall};
use crate::proto::caller::socket_protocol::SocketProtocol;
use crate::proto::caller::target::{self, CallTarget};
use crate::proto::caller::telephone::TelephoneStream;
use crate::proto::server::rest::{RestMethod, RestRequest};
use crate::proto::telephony::Provider;
use crate::proto::telephony::set_up::{CallWebhook, is_unsigned};

/// The limits of the connection.
const LIMITS: SocketLimits = SocketLimits {
    within: Duration::from_secs(15),
    message_bytes_max: 1024 * 1024,
    send_bytes_max: 256 * 1024,
    refusal_bytes_max: 4096,
};

/// Opens the socket of a call.
///
/// # Errors
/// A sentence for the user.
pub async fn open(config: &CallConfig, protocol: &mut SocketProtocol) -> Result<Box<ClientSocket>, String> {
    let mut signature = Vec::new();
    let url = match &config.target {
        CallTarget::Socket { url } | CallTarget::Telephone { url, .. } | CallTarget::Eval { url } => url.clone(),
        CallTarget::Started {
            base,
            transport: Transport::WebSocket,
        } => match start(base, Transport::WebSocket, config.api_key.as_ref()).await? {
            Some(response) => target::started_socket(base, &response).map_err(|why| format!("{base}: {why}"))?,
            None => target::default_socket(base),
        },
        CallTarget::Started {
            base,
            transport: Transport::Telephony(provider),
        } => {
            if let Some(call) = &config.webhook {
                let stream = protocol.telephone().ok_or("this target is no telephone")?;
                let url = call_webhook(base, provider, call, stream).await?;
                if provider.signs_upgrades {
                    let signed = provider.protocol.sign(&call.settings, &url, &[], "");
                    signature = signed.unwrap_or_default();
                }
                provider_webhook::reached(&url, &call.host, base)
            } else {
                match start(base, Transport::Telephony(provider), config.api_key.as_ref()).await? {
                    Some(response) => {
                        target::started_telephone(base, &response).map_err(|why| format!("{base}: {why}"))?
                    }
                    None => target::default_telephone(base),
                }
            }
        }
        _ => return Err("this target is no WebSocket".into()),
    };
    // A runner takes the header for a token, of which the URL may have one.
    let has_token = url.contains("token=")
        || matches!(config.target, CallTarget::Started { transport, .. } if transport.is_telephony());
    let authorization = config.api_key.as_ref().filter(|_| !has_token).map(bearer);
    let signature = signature.into_iter().map(|(name, value)| (name, Secret::new(value)));
    let headers = authorization.map(|value| ("authorization", value)).into_iter();
    let headers: Vec<(&'static str, Secret)> = headers.chain(signature).collect();
    let request = SocketRequest {
        url: &url,
        headers: &headers,
        limits: LIMITS,
    };
    // The path of a telephone's socket has a token.
    let place = match &config.target {
        CallTarget::Started { base, transport } if transport.is_telephony() => base,
        _ => shown(&url),
    };
    connect(request).await.map_err(|error| match error {
        SocketError::Refused { status, body } => refusal(place, status, &body),
        other => format!("{place}: {other}; is a runner running there?"),
    })
}

/// Sends the webhook of a call, signed if the credentials are there. Returns the URL of its stream.
async fn call_webhook(
    base: &str,
    provider: &Provider,
    call: &WebhookCall,
    stream: &mut TelephoneStream,
) -> Result<String, String> {
    let nonce = u64::from_be_bytes(random()).to_string();
    let [from, to] = &call.numbers;
    let public = format!("https://{}/", call.host);
    let webhook = CallWebhook::new(provider, &public, stream.call_id(), [from, to], &call.settings, &nonce);
    let request = RestRequest {
        method: RestMethod::Post,
        url: format!("{base}/"),
        authorization: None,
        body: Some(webhook.body),
    };
    let answer = rest::send_with(&request, &webhook.headers, rest::STANDARD).await;
    let answer = answer.map_err(|error| format!("{base}/: {error}; is a runner running there?"))?;
    let text = String::from_utf8_lossy(&answer.body);
    match answer.status {
        200 => {}
        status if is_unsigned(status, &text) => {
            let is_signed = !webhook.headers.is_empty();
            return Err(provider_webhook::unsigned(base, provider, &call.host, is_signed));
        }
        status => return Err(refusal(&format!("{base}/"), status, &answer.body)),
    }
    let markup = provider_webhook::read(&answer.body).map_err(|why| format!("{base}/: {why}"))?;
    stream.set_call(call.numbers.clone(), markup.parameters);
    Ok(markup.url)
}
