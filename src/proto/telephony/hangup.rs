//! Hanging a call up at its provider, when the session has ended before the caller did.
//!
//! In: the call's id as the provider's handshake told it, and the credentials. Out: the one request that ends the call, and
//! later what its answer means. Any peer can open a media socket and claim a call id, so an id never leaves its segment of
//! the path: provider c takes a path without one for "every call of the account".
//! Refuses: provider d, which ends a call with its socket; missing credentials; ids that are empty or change the path.
//! Source: the fact sheet on telephony, section 7.

use serde_json::{Value, json};

use super::Provider;
use crate::config::{Account, Telephony};
use crate::limits::{HANG_UP_ID_BYTES_MAX, REST_REASON_CHARS_MAX, REST_REASON_WORD_CHARS_MAX};
use crate::proto::rest::{Body, Method, Request, basic, bearer, segment};

/// Returns the request that ends a call; `None` when there is nothing to hang up, or nothing to do it with.
pub fn request(provider: Provider, call_id: &str, telephony: &Telephony) -> Option<Request> {
    if !is_segment(call_id) || call_id.len() > HANG_UP_ID_BYTES_MAX {
        return None;
    }
    let call = segment(call_id);
    match provider {
        Provider::A => {
            let (id, account) = usable(&telephony.a)?;
            Some(Request {
                method: Method::Post,
                url: format!("{}/2010-04-01/Accounts/{id}/Calls/{call}.json", telephony.a_url),
                authorization: Some(basic(&account.id, &account.token)),
                body: Some(Body::form("Status=completed")),
            })
        }
        Provider::B => {
            let key = telephony.b_key.as_ref()?;
            Some(Request {
                method: Method::Post,
                url: format!("{}/v2/calls/{call}/actions/hangup", telephony.b_url),
                authorization: Some(bearer(key)),
                body: Some(Body::json(&json!({}))),
            })
        }
        Provider::C => {
            let (id, account) = usable(&telephony.c)?;
            Some(Request {
                method: Method::Delete,
                url: format!("{}/v1/Account/{id}/Call/{call}/", telephony.c_url),
                authorization: Some(basic(&account.id, &account.token)),
                body: None,
            })
        }
        Provider::D => None,
    }
}

/// Returns an account with its id as a segment.
fn usable(account: &Option<Account>) -> Option<(String, &Account)> {
    let account = account.as_ref()?;
    is_segment(&account.id).then(|| (segment(&account.id), account))
}

/// Tells whether a text can stand in a path without changing it, even where a server decodes `%2F` before it resolves dots.
fn is_segment(text: &str) -> bool {
    text.split(['/', '\\'])
        .all(|piece| !matches!(piece.trim(), "" | "." | ".."))
}

/// What a provider's answer means. The words are for the log: without credentials, ids and phone numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    /// The provider does not know the call, or not any more.
    AlreadyOver,
    /// Asking again would change nothing.
    Refused(String),
    /// The provider stumbled; the same request may succeed.
    Retry(String),
}

/// Says what the status and body of an answer mean.
pub fn verdict(provider: Provider, status: u16, body: &[u8]) -> Verdict {
    let problem = Problem::read(body);
    match (provider, status) {
        (_, 200..=299) => Verdict::Done,
        (_, 404) => Verdict::AlreadyOver,
        (Provider::A, 400) if problem.has_code("21220") => Verdict::AlreadyOver,
        (Provider::B, 422) if problem.has_code("90018") => Verdict::AlreadyOver,
        (_, 408 | 429 | 500..=599) => Verdict::Retry(problem.words(status)),
        _ => Verdict::Refused(problem.words(status)),
    }
}

/// What the body of a refusal tells, whichever provider wrote it.
#[derive(Default)]
struct Problem {
    codes: Vec<String>,
    text: Option<String>,
}

impl Problem {
    fn read(body: &[u8]) -> Self {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return Problem::default();
        };
        let list = match body["errors"].as_array() {
            Some(list) => list.as_slice(),
            None => std::slice::from_ref(&body),
        };
        let text = list
            .iter()
            .flat_map(|error| [&error["message"], &error["detail"], &error["title"], &error["error"]])
            .find_map(Value::as_str);
        Problem {
            codes: list.iter().filter_map(|error| code(&error["code"])).collect(),
            text: text.map(bland).filter(|text| !text.is_empty()),
        }
    }

    fn has_code(&self, wanted: &str) -> bool {
        self.codes.iter().any(|code| code == wanted)
    }

    fn words(&self, status: u16) -> String {
        let mut words = match status {
            300..=399 => format!("status {status}, a redirect, which is not followed"),
            401 | 403 => format!("status {status}, the provider does not take the credentials"),
            429 => format!("status {status}, too many requests"),
            _ => format!("status {status}"),
        };
        if let Some(code) = self.codes.first() {
            words += &format!(", code {code}");
        }
        if let Some(text) = &self.text {
            words += &format!(": {text}");
        }
        words
    }
}

/// Reads a code, number or string; a longer number could be somebody's.
fn code(value: &Value) -> Option<String> {
    let code = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    (!code.is_empty() && code.len() <= 6 && code.bytes().all(|byte| byte.is_ascii_digit())).then_some(code)
}

/// Takes from a provider's words whatever could be a phone number, an id or a key.
fn bland(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        if word.chars().count() > REST_REASON_WORD_CHARS_MAX {
            return "\u{2026}".to_owned();
        }
        word.chars()
            .filter(|letter| !letter.is_control())
            .map(|letter| if letter.is_numeric() { '#' } else { letter })
            .collect()
    });
    let words = words.collect::<Vec<String>>().join(" ");
    words.chars().take(REST_REASON_CHARS_MAX).collect()
}
