//! Requests to REST APIs of providers, as values that `io` sends.
//!
//! A request has a method, an absolute `http` or `https` URL, a credential and a body. Its debug
//! form omits credential, URL and body, since they may contain secrets and telephone numbers.
//! Source: RFC 3986 section 3.3 (path segments), RFC 7617 (Basic), RFC 6750 (Bearer).

use std::fmt;

use data_encoding::BASE64;
use serde_json::Value;

use crate::limits::{REST_REASON_CHARS_MAX, REST_REASON_WORD_CHARS_MAX};
use crate::secret::Secret;

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestMethod {
    Get,
    Post,
    Patch,
    Delete,
}

impl RestMethod {
    /// Returns the method as in the request line.
    pub fn name(self) -> &'static str {
        match self {
            RestMethod::Get => "GET",
            RestMethod::Post => "POST",
            RestMethod::Patch => "PATCH",
            RestMethod::Delete => "DELETE",
        }
    }
}

/// The body of a request.
#[derive(Clone, PartialEq, Eq)]
pub struct RestBody {
    pub content_type: &'static str,
    pub bytes: Vec<u8>,
}

impl RestBody {
    /// Returns a form from encoded text.
    pub fn form(text: &str) -> Self {
        RestBody {
            content_type: "application/x-www-form-urlencoded",
            bytes: text.as_bytes().to_vec(),
        }
    }

    pub fn json(value: &Value) -> Self {
        RestBody {
            content_type: "application/json",
            bytes: value.to_string().into_bytes(),
        }
    }
}

/// One request.
#[derive(Clone, PartialEq, Eq)]
pub struct RestRequest {
    pub method: RestMethod,
    /// Absolute URL with scheme; parts from a peer are encoded by [`encode_path_segment`].
    pub url: String,
    /// The value of the `Authorization` header.
    pub authorization: Option<Secret>,
    pub body: Option<RestBody>,
}

impl RestRequest {
    /// Returns a GET request.
    pub fn get(url: String, authorization: Secret) -> Self {
        RestRequest {
            method: RestMethod::Get,
            url,
            authorization: Some(authorization),
            body: None,
        }
    }
}

impl fmt::Debug for RestRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// Returns the header value of Basic authentication.
pub fn basic(user: &str, password: &Secret) -> Secret {
    let pair = format!("{user}:{}", password.expose());
    Secret::new(format!("Basic {}", BASE64.encode(pair.as_bytes())))
}

/// Returns the header value of a bearer token.
pub fn bearer(key: &Secret) -> Secret {
    Secret::new(format!("Bearer {}", key.expose()))
}

/// Encodes text as one path segment. `:` remains, since ids of calls contain it. `.` and `..` also
/// remain and keep their meaning: the caller must reject them.
pub fn encode_path_segment(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    out
}

/// Removes possible phone numbers, ids and keys from the text of a provider.
pub fn redact_reason(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_stays_one_segment() {
        assert_eq!(encode_path_segment("v3:abc-DEF_1.~"), "v3:abc-DEF_1.~");
        assert_eq!(encode_path_segment("a/b?c#d"), "a%2Fb%3Fc%23d");
        assert_eq!(encode_path_segment("50% of \u{e4}\r\n"), "50%25%20of%20%C3%A4%0D%0A");
        assert_eq!(encode_path_segment(""), "");
    }

    /// The examples of RFC 7617 section 2 and RFC 6750 section 2.1.
    #[test]
    fn credentials_match_the_examples_of_the_standards() {
        let aladdin = basic("Aladdin", &Secret::new("open sesame"));
        assert_eq!(aladdin.expose(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(
            bearer(&Secret::new("mF_9.B5f-4.1JqM")).expose(),
            "Bearer mF_9.B5f-4.1JqM"
        );
    }

    #[test]
    fn the_debug_form_omits_secrets() {
        let request = RestRequest {
            method: RestMethod::Post,
            url: "https://api.example.net/calls/+15550001111".into(),
            authorization: Some(bearer(&Secret::new("hunter2"))),
            body: Some(RestBody::form("To=%2B15550002222")),
        };
        assert_eq!(format!("{request:?}"), "Request { method: Post, .. }");
    }
}
