//! Hangs up a call at its provider when the session ends before the caller hangs up, or when a call
//! that was dialled is ended while it rings.
//!
//! In: the call id from the handshake, and the credentials. Out: the request that ends the call,
//! and the meaning of its response. Any peer can open a media socket and claim a call id, so an id
//! must stay within its path segment: some providers read a path without an id as "every call of
//! the account". No request is made for providers without such an API, without credentials, or for
//! an id that is empty or changes the path. Source: `docs/spec/telephony.md` 7.

use serde_json::Value;

use super::provider::Provider;
use super::settings::Settings;
use crate::call_control::HangUpOutcome;
use crate::hang_up::HangUpApi;
use crate::limits::HANG_UP_ID_BYTES_MAX;
use crate::server::rest::{RestRequest, encode_path_segment, redact_reason};

/// Returns the request that ends a call; `None` if the provider has no such API, or a credential or
/// a valid id is missing.
pub fn request(provider: &Provider, call_id: &str, settings: &Settings) -> Option<RestRequest> {
    provider.protocol.hang_up(&call_segment(call_id)?, settings)
}

/// Returns the request that ends a call that was dialled and still rings; `None` as for
/// [`request`].
pub fn cancel(provider: &Provider, call_id: &str, settings: &Settings) -> Option<RestRequest> {
    provider.protocol.cancel(&call_segment(call_id)?, settings)
}

fn call_segment(call_id: &str) -> Option<String> {
    segment_of(call_id).filter(|_| call_id.len() <= HANG_UP_ID_BYTES_MAX)
}

/// Returns a text as one path segment; `None` if it could change the path.
pub fn segment_of(text: &str) -> Option<String> {
    is_segment(text).then(|| encode_path_segment(text))
}

/// Returns whether a text is safe in a path, even if a server decodes `%2F` before it resolves
/// dots.
fn is_segment(text: &str) -> bool {
    text.split(['/', '\\'])
        .all(|piece| !matches!(piece.trim(), "" | "." | ".."))
}

impl HangUpApi for Provider {
    fn name(&self) -> &'static str {
        self.vendor()
    }

    fn outcome(&self, status: u16, body: &[u8]) -> HangUpOutcome {
        outcome(self, status, body)
    }
}

/// Returns the meaning of the status and body of a response.
pub fn outcome(provider: &Provider, status: u16, body: &[u8]) -> HangUpOutcome {
    let problem = ApiProblem::read(body);
    let is_over = |(over, code): &(u16, &str)| *over == status && problem.has_code(code);
    match status {
        200..=299 => HangUpOutcome::Done,
        404 => HangUpOutcome::AlreadyOver,
        _ if provider.call_over_codes.iter().any(is_over) => HangUpOutcome::AlreadyOver,
        408 | 429 | 500..=599 => HangUpOutcome::Retry(problem.words(status)),
        _ => HangUpOutcome::Refused(problem.words(status)),
    }
}

/// Returns why a request was refused, from the status and body of the response.
pub fn refusal(status: u16, body: &[u8]) -> String {
    ApiProblem::read(body).words(status)
}

/// The error body of a response, in the forms of all providers.
#[derive(Default)]
struct ApiProblem {
    codes: Vec<String>,
    text: Option<String>,
}

impl ApiProblem {
    fn read(body: &[u8]) -> Self {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return ApiProblem::default();
        };
        let list = match body["errors"].as_array() {
            Some(list) => list.as_slice(),
            None => std::slice::from_ref(&body),
        };
        let text = list
            .iter()
            .flat_map(|error| [&error["message"], &error["detail"], &error["title"], &error["error"]])
            .find_map(Value::as_str);
        ApiProblem {
            codes: list.iter().filter_map(|error| code(&error["code"])).collect(),
            text: text.map(redact_reason).filter(|text| !text.is_empty()),
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

/// Returns a code, number or string; a longer number could be a telephone number.
fn code(value: &Value) -> Option<String> {
    let code = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    (!code.is_empty() && code.len() <= 6 && code.bytes().all(|byte| byte.is_ascii_digit())).then_some(code)
}

#[cfg(test)]
mod tests;
