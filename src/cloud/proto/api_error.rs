//! Error answers of the cloud service: status, code and message, as JSON or XML.
//!
//! In: a reason. Out: an [`ApiError`]. Messages are for people; programs use the codes, all of
//! which are defined here or in `verify`. Source: `docs/spec/cloud-protocol.md` 2.3 and 4.3.

use std::borrow::Cow;

use crate::limits::JSON_BYTES_MAX;
use crate::proto::keys::KeyKind;
use edge_runner_proto::limits::RETRY_AFTER_S;

/// An error answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: u16,
    /// Machine-readable code.
    pub code: &'static str,
    /// Human-readable message. Contains no key, signature, policy or token.
    pub text: Cow<'static, str>,
    pub header: ErrorHeader,
}

/// An additional header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorHeader {
    None,
    /// `Allow`: the accepted methods.
    Allow(&'static str),
    /// `Retry-After`, in seconds.
    RetryAfterS(u32),
    /// `WWW-Authenticate: Bearer`.
    Challenge,
    /// `Content-Range: bytes */N`.
    WholeBytes(u64),
}

/// Message of every 500 answer.
const INTERNAL: &str = "Internal server error";

impl ApiError {
    /// Creates an error without an additional header.
    pub fn new(status: u16, code: &'static str, text: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError {
            status,
            code,
            text: text.into(),
            header: ErrorHeader::None,
        }
    }

    /// Sets the additional header.
    pub fn with_header(mut self, header: ErrorHeader) -> ApiError {
        self.header = header;
        self
    }

    /// 400: invalid body, query or path.
    pub fn bad_request(text: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(400, "GENERIC_BAD_REQUEST", text)
    }

    /// 404: not found, or owned by another organization.
    pub fn not_found(text: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(404, "NOT_FOUND", text)
    }

    /// 404: a build that is not there, or not the organization's.
    pub fn unknown_build() -> ApiError {
        ApiError::not_found("there is no build with this identifier")
    }

    /// 401: the key is missing or is not valid for this surface.
    pub fn unauthorized(kind: KeyKind) -> ApiError {
        let code = match kind {
            KeyKind::Private => "UNAUTHORIZED",
            KeyKind::Public => "401",
        };
        ApiError::new(401, code, "Unauthorized").with_header(ErrorHeader::Challenge)
    }

    /// 403: a path of another organization, existing or not.
    pub fn forbidden() -> ApiError {
        ApiError::new(403, "FORBIDDEN", "this key is of another organization")
    }

    /// 405, with the accepted methods.
    pub fn method(allowed: &'static str) -> ApiError {
        let text = format!("this path takes {allowed}");
        ApiError::new(405, "METHOD_NOT_ALLOWED", text).with_header(ErrorHeader::Allow(allowed))
    }

    /// 501: an operation that this service does not implement.
    pub fn not_implemented(kind: KeyKind) -> ApiError {
        let code = match kind {
            KeyKind::Private => "NOT_IMPLEMENTED",
            KeyKind::Public => "501",
        };
        ApiError::new(501, code, "this service has builds, uploads and regions only")
    }

    /// 413: the JSON body is too large.
    pub fn too_large() -> ApiError {
        let text = format!("the body is larger than {JSON_BYTES_MAX} bytes");
        ApiError::new(413, "PAYLOAD_TOO_LARGE", text)
    }

    /// 408: the body arrives too slowly.
    pub fn too_slow(text: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(408, "RequestTimeout", text)
    }

    /// 416: the range is not satisfiable.
    pub fn range(whole_bytes: u64) -> ApiError {
        let text = format!("this image has {whole_bytes} bytes");
        ApiError::new(416, "RANGE_NOT_SATISFIABLE", text).with_header(ErrorHeader::WholeBytes(whole_bytes))
    }

    /// 429: too many builds of the organization wait.
    pub fn too_many(text: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(429, "TOO_MANY_REQUESTS", text).with_header(ErrorHeader::RetryAfterS(RETRY_AFTER_S))
    }

    /// 503: too little disk space for a grant.
    pub fn storage_full() -> ApiError {
        let text = "the service is low on disk space; try again later";
        ApiError::new(503, "STORAGE_FULL", text).with_header(ErrorHeader::RetryAfterS(RETRY_AFTER_S))
    }

    /// 503: the database or the object store does not answer. The log says which.
    pub fn unavailable() -> ApiError {
        let text = "the service cannot reach what it needs; try again later";
        ApiError::new(503, "SERVICE_UNAVAILABLE", text).with_header(ErrorHeader::RetryAfterS(RETRY_AFTER_S))
    }

    /// 500. `why` is logged; the answer has a request number instead, see [`ApiError::redacted`].
    pub fn internal(reason: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(500, "INTERNAL_SERVER_ERROR", reason)
    }

    /// Tells whether the message is internal and must not be sent.
    pub fn is_internal(&self) -> bool {
        self.status == 500
    }

    /// Replaces the message by the request number, under which the log has the reason.
    pub fn redacted(self, request: u32) -> ApiError {
        ApiError {
            text: format!("{INTERNAL} (request {request:08x})").into(),
            ..self
        }
    }

    /// Returns the JSON body.
    pub fn json(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        format!(r#"{{"error":{},"code":{}}}"#, quoted(&self.text), quoted(self.code))
    }

    /// Returns the XML body, in the format of object stores.
    pub fn xml(&self) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>",
            escaped(self.code),
            escaped(&self.text)
        )
    }
}

/// Tells whether an `Accept` header names XML.
pub fn wants_xml(accept: &str) -> bool {
    accept.split(',').any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/xml") || kind.eq_ignore_ascii_case("text/xml")
    })
}

/// Escapes text for XML. Control characters have no representation and are replaced.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-001, C-003: each surface has its own codes, and a 401 has a challenge.
    #[test]
    fn each_surface_has_its_codes() {
        let private = ApiError::unauthorized(KeyKind::Private);
        assert_eq!(private.json(), r#"{"error":"Unauthorized","code":"UNAUTHORIZED"}"#);
        assert_eq!((private.status, private.header), (401, ErrorHeader::Challenge));
        assert_eq!(
            ApiError::unauthorized(KeyKind::Public).json(),
            r#"{"error":"Unauthorized","code":"401"}"#
        );
        assert_eq!(ApiError::not_implemented(KeyKind::Private).code, "NOT_IMPLEMENTED");
        assert_eq!(ApiError::not_implemented(KeyKind::Public).code, "501");
    }

    /// I-24: a 500 answer contains only a request number.
    #[test]
    fn an_internal_error_is_redacted() {
        let error = ApiError::internal("/var/lib/builds.db: disk I/O error");
        assert!(error.is_internal());
        assert_eq!(
            error.redacted(0x1a2b).json(),
            r#"{"error":"Internal server error (request 00001a2b)","code":"INTERNAL_SERVER_ERROR"}"#
        );
    }

    /// I-30: any message is escaped correctly in both formats.
    #[test]
    fn messages_are_escaped() {
        let error = ApiError::bad_request("`<a b=\"c\">` & \u{1}\n");
        assert_eq!(
            error.json(),
            r#"{"error":"`<a b=\"c\">` & \u0001\n","code":"GENERIC_BAD_REQUEST"}"#
        );
        assert_eq!(
            error.xml(),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>GENERIC_BAD_REQUEST</Code>\
             <Message>`&lt;a b=&quot;c&quot;&gt;` &amp; \u{fffd}\u{fffd}</Message></Error>"
        );
    }

    /// I-30: XML is chosen only when `Accept` names it.
    #[test]
    fn xml_is_chosen_by_accept() {
        for accept in [
            "application/xml",
            "TEXT/XML",
            "application/json, text/xml;q=0.9",
            " application/xml ; charset=utf-8",
        ] {
            assert!(wants_xml(accept), "{accept}");
        }
        for accept in ["", "*/*", "application/json", "application/xhtml+xml", "application/*"] {
            assert!(!wants_xml(accept), "{accept}");
        }
    }
}
