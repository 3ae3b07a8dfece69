//! Properties of what the services of telephone numbers, of WhatsApp calls and of rooms answer, and
//! of requests to dial.
//!
//! In: the body of a response of any status, of a report, or of a request. Whatever it is, requests
//! that follow stay below the provider's address, and words for people are bounded and have no
//! control characters.

use edge_runner_proto::config::Secret;
use edge_runner_proto::daily::{dialin, parse_room, parse_token};
use edge_runner_proto::limits;
use edge_runner_proto::server::rest::RestRequest;
use edge_runner_proto::telephony::dial::{DialOutcome, Dialling, OutboundRequest, answered_by};
use edge_runner_proto::telephony::set_up::{NumberWebhook, SetUpStep, next_step};
use edge_runner_proto::telephony::settings::Settings;
use edge_runner_proto::telephony::{PROVIDERS, Provider, hangup};
use edge_runner_proto::whatsapp::doctor;
use edge_runner_proto::whatsapp::graph::{self, GraphOutcome};

const NUMBER: &str = "+15550001111";
const URL: &str = "https://bot.example.net/";
/// Bytes of a sentence: two URLs, a name, and what is said of them.
const WORDS_BYTES_MAX: usize = 3_000;
/// Bytes of a token of Daily, and of a field of its webhook.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
const FIELD_BYTES_MAX: usize = 256;
/// Responses that set up a number.
const ANSWERS_MAX: usize = 3;

/// An answer of each service.
pub fn answers(bytes: &[u8]) {
    let settings = Settings::from([
        ("TELCO_A_ACCOUNT_SID", "AC01"),
        ("TELCO_A_AUTH_TOKEN", "a-token"),
        ("TELCO_B_API_KEY", "b-key"),
        ("TELCO_C_AUTH_ID", "MA01"),
        ("TELCO_C_AUTH_TOKEN", "c-token"),
    ]);
    for provider in PROVIDERS {
        set_up(provider, bytes, &settings);
        dial(provider, bytes, &settings);
        for status in [200, 401, 404, 422, 500] {
            let _ = hangup::outcome(provider, status, bytes);
            shown(&hangup::refusal(status, bytes));
        }
    }
    rooms(bytes);
    graph(bytes);
    if let Ok(request) = OutboundRequest::parse(bytes, NUMBER) {
        let again = OutboundRequest::parse(bytes, NUMBER).expect("it was read before");
        assert_eq!(format!("{request:?}"), format!("{again:?}"));
        assert!(!format!("{request:?}").contains(NUMBER), "numbers are not logged");
    }
}

/// The same body as each of the responses.
fn set_up(provider: &Provider, bytes: &[u8], settings: &Settings) {
    let target = NumberWebhook {
        number: NUMBER,
        url: URL,
    };
    for count in 0..=ANSWERS_MAX {
        let answers = vec![(200, bytes.to_vec()); count];
        match next_step(provider, target, &answers, settings) {
            SetUpStep::Ask(request) => stays(&request),
            SetUpStep::Change { what, request } => {
                shown(&what);
                stays(&request);
            }
            SetUpStep::Done => {}
            SetUpStep::Failed(why) => shown(&why),
        }
    }
}

fn dial(provider: &Provider, bytes: &[u8], settings: &Settings) {
    let request = OutboundRequest::parse(br#"{"to":"+15550002222"}"#, NUMBER).expect("a request");
    let dialling = Dialling {
        provider,
        settings,
        request: &request,
        host: "bot.example.net",
        id: "056305c4-5f0e-4f3c-9d7e-6c1f0a2b3c4d",
    };
    match dialling.application(200, bytes) {
        Ok(application) => {
            if let Some(request) = dialling.request(Some(&application)) {
                stays(&request);
            }
        }
        Err(why) => shown(&why),
    }
    for status in [200, 404, 503] {
        match dialling.outcome(status, bytes) {
            DialOutcome::Placed(id) => assert!(id.len() <= limits::HANG_UP_ID_BYTES_MAX),
            DialOutcome::Refused(why) | DialOutcome::Unknown(why) => shown(&why),
        }
    }
    let _ = answered_by(provider, bytes);
}

/// The Graph API's answers. Only a success that it says is one, and only an outcome that is unclear
/// may be tried again.
fn graph(bytes: &[u8]) {
    for status in [200, 400, 401, 429, 503] {
        match graph::parse_answer(status, bytes) {
            GraphOutcome::Done => assert_eq!(status, 200),
            GraphOutcome::Refused(error) => shown(&error.to_string()),
            GraphOutcome::Unclear(error) => {
                assert!(!error.is_duplicate(), "the call is answered");
                shown(&error.to_string());
            }
        }
        shown(&doctor::answer(status, bytes).text);
    }
}

/// Daily's answers and its webhook.
fn rooms(bytes: &[u8]) {
    let key = Secret::new("daily-key");
    for status in [200, 400, 401, 500] {
        match parse_room(status, bytes, &key) {
            Ok(room) => assert!(room.url.bytes().all(|byte| byte.is_ascii_graphic()), "{}", room.url),
            Err(error) => shown(&error.to_string()),
        }
        match parse_token(status, bytes, &key) {
            Ok(token) => assert!(token.expose().len() <= TOKEN_BYTES_MAX),
            Err(error) => shown(&error.to_string()),
        }
    }
    if let Ok(webhook) = dialin::parse_object(bytes) {
        let _ = dialin::is_test(&webhook);
        if let Ok(call) = dialin::parse_call(webhook) {
            assert!(call.call_id.len() <= FIELD_BYTES_MAX);
        }
    }
}

/// A request of the runner: to an address of the provider's API, on a path without `..`.
fn stays(request: &RestRequest) {
    let url = &request.url;
    assert!(url.starts_with("https://api."), "{url}");
    assert!(url.bytes().all(|byte| byte.is_ascii_graphic()), "{url:?}");
    assert!(!url.split(['/', '?']).any(|part| matches!(part, "." | "..")), "{url}");
}

fn shown(words: &str) {
    assert!(words.len() <= WORDS_BYTES_MAX, "{} bytes", words.len());
    assert!(!words.contains(char::is_control), "{words:?}");
}
