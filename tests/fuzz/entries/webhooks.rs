//! Properties of the webhooks of telephony providers and LiveKit servers, which anybody can send.
//!
//! In: a line for each header that may sign one, and the body. Whatever they are, a signature is
//! good for one key alone, markup has no element of the form, and no identity is longer than its
//! limit.

use edge_runner_proto::config::Secret;
use edge_runner_proto::livekit::worker::webhook;
use edge_runner_proto::telephony::settings::{Settings, Telephony};
use edge_runner_proto::telephony::signature::{SignatureStatus, WebhookRequest};
use edge_runner_proto::telephony::webhook::socket_url;
use edge_runner_proto::telephony::{PROVIDERS, Provider, verify};

/// When the webhooks of the corpus were signed.
const NOW_S: u64 = 1_795_252_753;
const URL: &str = "https://bot.example.net/?bot=kitchen";
/// Bytes of markup, and of each number in it, of which XML may escape each.
const MARKUP_BYTES_MAX: usize = 512 + 2 * 6 * 256;
/// The beginnings of the elements of markup.
const ELEMENTS: [&str; 10] = [
    "?xml version=\"1.0\"",
    "Response>",
    "/Response>",
    "Connect>",
    "/Connect>",
    "Stream url=\"wss://",
    "Stream bidirectional=\"true\"",
    "/Stream>",
    "Parameter name=\"from_number\" value=\"",
    "Parameter name=\"to_number\" value=\"",
];

/// The credentials of the corpus, or others.
fn telephony(token: &str, public_key: &str) -> Telephony {
    Telephony {
        settings: Settings::from([
            ("TELCO_A_ACCOUNT_SID", "AC01"),
            ("TELCO_A_AUTH_TOKEN", token),
            ("TELCO_B_PUBLIC_KEY", public_key),
            ("TELCO_C_AUTH_ID", "MA01"),
            ("TELCO_C_AUTH_TOKEN", token),
        ]),
        verify_webhooks: true,
        unverified_calls: false,
        dial_from: None,
    }
}

/// A webhook for each provider, and for LiveKit.
pub fn webhooks(bytes: &[u8]) {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let mut line = || std::str::from_utf8(lines.next().unwrap_or_default()).ok();
    let (signature, nonce) = (line(), line());
    let body = lines.next().unwrap_or_default();
    let header = |name: &str| match name {
        "content-type" => Some("application/x-www-form-urlencoded"),
        _ if name.contains("nonce") || name.contains("timestamp") => nonce,
        _ => signature,
    };
    let request = WebhookRequest {
        url: URL,
        header: &header,
        body,
    };
    let own = telephony("a-token", "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=");
    let other = telephony("another", "ebVWLo/mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ=");
    for provider in PROVIDERS {
        let is_verified = |telephony: &Telephony| {
            let status = verify::verify(provider, telephony, &request, NOW_S);
            matches!(status, Ok(SignatureStatus::Verified(_)))
        };
        assert!(!is_verified(&own) || !is_verified(&other), "{}", provider.name);
        markup(provider, body);
        for number in provider.numbers(body).into_iter().flatten() {
            assert!(number.len() <= body.len());
        }
        let _ = provider.call_id(body);
    }
    let is_signed = |secret: &str| {
        let token = signature.unwrap_or_default();
        webhook::verify(token, body, "devkey", &Secret::new(secret), NOW_S).is_ok()
    };
    assert!(!is_signed("secret") || !is_signed("another"));
    assert!(matches!(webhook::lost_bot(body, &[]), Ok(None) | Err(_)));
}

/// The caller's numbers stay text.
fn markup(provider: &Provider, body: &[u8]) {
    let reply = provider
        .protocol
        .reply(&socket_url("bot.example.net", Some("t0-_"), Some("kitchen")), body);
    if !provider.takes_markup {
        return;
    }
    assert!(reply.body.len() <= MARKUP_BYTES_MAX, "{}", reply.body.len());
    for element in reply.body.split('<').skip(1) {
        assert!(
            ELEMENTS.iter().any(|known| element.starts_with(known)),
            "{}",
            reply.body
        );
    }
}
