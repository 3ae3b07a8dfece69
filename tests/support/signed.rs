//! Signatures of telephony providers: webhooks and, for Twilio, the upgrade of a media socket, by
//! their published rules.
//!
//! In: the secret that provider and runner share, and the data to sign. Out: header lines. Calls
//! are in `provider`; the public host is [`HOST`].

use std::net::SocketAddr;

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;
use sha1::Sha1;
use sha2::Sha256;

use super::http::{self, Reply};
use super::provider::Provider;
use super::runner::TestRunner;

/// A signed webhook. Sent again, it is a replay: the same bytes, with the same time and signature.
pub struct Webhook {
    target: String,
    headers: Vec<String>,
    body: String,
}

pub const HOST: &str = "bots.example.net";
/// The token that signs for Twilio and Plivo.
pub const TOKEN: &str = "canary-token-4714";
/// The API key of the runner in tests with one.
pub const API_KEY: &str = "canary-api-key-4715";

fn pair() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a seed")
}

/// The public key of Telnyx, encoded as in its variable.
pub fn public_key() -> String {
    BASE64.encode(pair().public_key().as_ref())
}

fn sha1(message: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(TOKEN.as_bytes()).expect("a key");
    mac.update(message.as_bytes());
    BASE64.encode(&mac.finalize().into_bytes())
}

/// The form of a call's webhook, sorted by name. Only the `+` of numbers needs an escape.
pub fn form(provider: Provider, call_id: &str) -> Vec<(&'static str, String)> {
    let id = if provider == Provider::Plivo {
        "CallUUID"
    } else {
        "CallSid"
    };
    let number = |number: &str| number.to_owned();
    vec![
        (id, call_id.to_owned()),
        ("From", number(super::provider::FROM)),
        ("To", number(super::provider::TO)),
    ]
}

impl Webhook {
    /// Requests markup, like the provider.
    pub fn send(&self, runner: &TestRunner) -> Reply {
        self.send_to(runner.addr)
    }

    /// The same at another address, such as that of a proxy.
    pub fn send_to(&self, addr: SocketAddr) -> Reply {
        let headers: Vec<&str> = self.headers.iter().map(String::as_str).collect();
        http::request(addr, "POST", &self.target, &headers, self.body.as_bytes()).expect("an answer")
    }
}

/// The webhook of an incoming call. `nonce` distinguishes requests of Plivo; those of Telnyx have
/// the time of signing.
pub fn webhook(provider: Provider, call_id: &str, nonce: &str) -> Webhook {
    webhook_at("/", provider, &form(provider, call_id), nonce)
}

/// A webhook with this form, sorted by name, at a path with an optional query of one parameter.
pub fn webhook_at(target: &str, provider: Provider, form: &[(&'static str, String)], nonce: &str) -> Webhook {
    let body: Vec<String> = form
        .iter()
        .map(|(name, value)| format!("{name}={}", value.replace('+', "%2B")))
        .collect();
    let body = body.join("&");
    let joined: String = form.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
    let url = format!("https://{HOST}{target}");
    let mut headers = vec!["Content-Type: application/x-www-form-urlencoded".to_owned()];
    match provider {
        Provider::Twilio => headers.push(format!("X-Twilio-Signature: {}", sha1(&format!("{url}{joined}")))),
        Provider::Telnyx => {
            let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
            let signature = pair().sign(format!("{now}|{body}").as_bytes());
            headers.push(format!("telnyx-timestamp: {now}"));
            headers.push(format!(
                "telnyx-signature-ed25519: {}",
                BASE64.encode(signature.as_ref())
            ));
        }
        Provider::Plivo => {
            let mut mac = Hmac::<Sha256>::new_from_slice(TOKEN.as_bytes()).expect("a key");
            let before = if target.contains('?') { '.' } else { '?' };
            mac.update(format!("{url}{before}{joined}.{nonce}").as_bytes());
            headers.push(format!("X-Plivo-Signature-V3-Nonce: {nonce}"));
            let signature = BASE64.encode(&mac.finalize().into_bytes());
            headers.push(format!("X-Plivo-Signature-V3: {signature}"));
        }
        Provider::Exotel => {}
    }
    Webhook {
        target: target.to_owned(),
        headers,
        body,
    }
}

/// The path of the socket in the markup.
pub fn target(markup: &Reply) -> String {
    assert_eq!(markup.status, 200, "{}", markup.text());
    let text = markup.text();
    let (_, rest) = text.split_once(&format!("wss://{HOST}")).expect("a URL");
    rest.split(['"', '<']).next().expect("a path").to_owned()
}

/// The header with which Twilio signs the upgrade of a socket.
pub fn upgrade(target: &str) -> String {
    format!("X-Twilio-Signature: {}", sha1(&format!("wss://{HOST}{target}")))
}

/// Returns the path of `/ws` with a token from `/start`, when the runner issues one.
pub fn started(runner: &TestRunner, provider: Provider) -> Option<String> {
    let authorization = format!("Authorization: Bearer {API_KEY}");
    let body = json!({"transport": provider.transport()}).to_string();
    let headers = ["Content-Type: application/json", &authorization];
    let reply = http::request(runner.addr, "POST", "/start", &headers, body.as_bytes()).expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["token"].as_str().map(|token| format!("/ws/{token}"))
}
