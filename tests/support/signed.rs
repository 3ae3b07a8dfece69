//! What telephony providers sign: webhooks and, at one of them, the upgrade of a media socket, by their published rules.
//!
//! In: the secret that provider and runner share, and what is to be signed. Out: header lines. [`Line`](super::provider::Line)s
//! and calls are in `provider`; the public host is [`HOST`].

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;
use sha1::Sha1;
use sha2::Sha256;

use super::http::{self, Reply};
use super::provider::Provider;
use super::runner::TestRunner;

pub const HOST: &str = "bots.example.net";
/// What signs at providers a and c.
pub const TOKEN: &str = "canary-token-4714";
/// The key that asks for tokens where a test has one.
pub const API_KEY: &str = "canary-api-key-4715";

fn pair() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a seed")
}

/// The public key of provider b, as its variable takes it.
pub fn public_key() -> String {
    BASE64.encode(pair().public_key().as_ref())
}

fn sha1(message: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(TOKEN.as_bytes()).expect("a key");
    mac.update(message.as_bytes());
    BASE64.encode(&mac.finalize().into_bytes())
}

/// The form of a call's webhook. Its names stand in order, and nothing in it needs an escape but the `+` of numbers.
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

/// Asks the runner's webhook for markup, as the provider does; `nonce` makes each request of provider c another.
pub fn webhook(runner: &TestRunner, provider: Provider, call_id: &str, nonce: &str) -> Reply {
    let form = form(provider, call_id);
    let body: Vec<String> = form
        .iter()
        .map(|(name, value)| format!("{name}={}", value.replace('+', "%2B")))
        .collect();
    let body = body.join("&");
    let joined: String = form.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
    let url = format!("https://{HOST}/");
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
            mac.update(format!("{url}?{joined}.{nonce}").as_bytes());
            headers.push(format!("X-Plivo-Signature-V3-Nonce: {nonce}"));
            let signature = BASE64.encode(&mac.finalize().into_bytes());
            headers.push(format!("X-Plivo-Signature-V3: {signature}"));
        }
        Provider::Exotel => {}
    }
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    http::request(runner.addr, "POST", "/", &headers, body.as_bytes()).expect("an answer")
}

/// The path of the socket that markup names.
pub fn target(markup: &Reply) -> String {
    assert_eq!(markup.status, 200, "{}", markup.text());
    let text = markup.text();
    let (_, rest) = text.split_once(&format!("wss://{HOST}")).expect("a URL");
    rest.split(['"', '<']).next().expect("a path").to_owned()
}

/// The header with which provider a signs the upgrade of a socket.
pub fn upgrade(target: &str) -> String {
    format!("X-Twilio-Signature: {}", sha1(&format!("wss://{HOST}{target}")))
}

/// A path of `/ws` with a token that somebody with the API key asked for, where the runner hands one out.
pub fn started(runner: &TestRunner, provider: Provider) -> Option<String> {
    let authorization = format!("Authorization: Bearer {API_KEY}");
    let body = json!({"transport": provider.transport()}).to_string();
    let headers = ["Content-Type: application/json", &authorization];
    let reply = http::request(runner.addr, "POST", "/start", &headers, body.as_bytes()).expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["token"].as_str().map(|token| format!("/ws/{token}"))
}
