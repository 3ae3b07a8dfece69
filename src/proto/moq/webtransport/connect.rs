//! The extended CONNECT that opens a session (RFC 9220; draft-ietf-webtrans-http3, section 3):
//! its request and response as field sections, and the sub-protocol as structured fields.

use super::qpack::{FieldWriter, QpackError, decode_fields};
use crate::moq::link::event::MOQ_PROTOCOL;

/// The most sub-protocols of a request that are kept. Browsers with MoQ send 8.
const PROTOCOLS_MAX: usize = 32;

/// The request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    pub authority: String,
    /// Path and query.
    pub path: String,
    pub origin: Option<String>,
    /// The sub-protocols in the client's order.
    pub protocols: Vec<String>,
}

/// Why a request opens no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Answer with this HTTP status.
    Status(u16),
    /// The connection cannot go on: the field section is not valid.
    Decompression,
}

impl From<QpackError> for RequestError {
    fn from(error: QpackError) -> Self {
        match error {
            QpackError::Invalid => Self::Decompression,
            QpackError::TooLarge => Self::Status(431),
        }
    }
}

/// Parses the field section of a request. Only a complete CONNECT for WebTransport is accepted.
pub fn parse_request(section: &[u8]) -> Result<ConnectRequest, RequestError> {
    let mut fields = RequestFields::default();
    decode_fields(section, |name, value| fields.add(name, value))?;
    let bad = RequestError::Status(400);
    if fields.is_malformed {
        return Err(bad);
    }
    let text = |bytes: Option<Vec<u8>>| bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let method = fields.method.ok_or(bad)?;
    if method != b"CONNECT" {
        return Err(RequestError::Status(404));
    }
    // CONNECT without `:protocol` asks for a TCP tunnel (RFC 9114, section 4.4).
    match fields.protocol.as_deref() {
        Some(b"webtransport" | b"webtransport-h3") => {}
        Some(_) => return Err(RequestError::Status(501)),
        None => return Err(bad),
    }
    if fields.scheme.as_deref() != Some(b"https") {
        return Err(bad);
    }
    Ok(ConnectRequest {
        authority: text(fields.authority).ok_or(bad)?,
        path: text(fields.path).filter(|path| path.starts_with('/')).ok_or(bad)?,
        origin: text(fields.origin),
        protocols: parse_strings(&fields.protocols).unwrap_or_default(),
    })
}

#[derive(Default)]
struct RequestFields {
    method: Option<Vec<u8>>,
    protocol: Option<Vec<u8>>,
    scheme: Option<Vec<u8>>,
    authority: Option<Vec<u8>>,
    path: Option<Vec<u8>>,
    origin: Option<Vec<u8>>,
    protocols: Vec<u8>,
    is_malformed: bool,
}

impl RequestFields {
    fn add(&mut self, name: &[u8], value: &[u8]) {
        let field = match name {
            b":method" => &mut self.method,
            b":protocol" => &mut self.protocol,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            b"origin" => &mut self.origin,
            // Lines of a list are joined (RFC 9110, section 5.3).
            b"wt-available-protocols" => {
                if !self.protocols.is_empty() {
                    self.protocols.push(b',');
                }
                return self.protocols.extend_from_slice(value);
            }
            _ => return self.is_malformed |= name.first() == Some(&b':'),
        };
        self.is_malformed |= field.is_some();
        *field = Some(value.to_vec());
    }
}

/// The field section of a request.
pub fn request_section(authority: &str, path: &str) -> Vec<u8> {
    FieldWriter::new()
        .indexed(15)
        .indexed(23)
        .named(0, authority)
        .named(1, path)
        .literal(":protocol", "webtransport")
        // Draft 02 has no `WT-Available-Protocols`, but asks for its own version.
        .literal("sec-webtransport-http3-draft02", "1")
        .literal("wt-available-protocols", &quoted(MOQ_PROTOCOL))
        .finish()
}

/// The response of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    pub status: u16,
    /// The sub-protocol that the server chose.
    pub protocol: Option<String>,
}

/// Parses the field section of a response. `None` if it has no valid status.
pub fn parse_response(section: &[u8]) -> Result<Option<ConnectResponse>, QpackError> {
    let (mut status, mut protocol) = (None, None);
    decode_fields(section, |name, value| match name {
        b":status" if value.len() == 3 => {
            status = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        }
        b"wt-protocol" => protocol = parse_strings(value).and_then(|list| list.into_iter().next()),
        _ => {}
    })?;
    Ok(status.map(|status| ConnectResponse { status, protocol }))
}

/// The field section of a response. One with status 200 accepts the session.
pub fn response_section(status: u16) -> Vec<u8> {
    let fields = FieldWriter::new();
    if status != 200 {
        return fields.named(24, &status.to_string()).finish();
    }
    fields
        .indexed(25)
        .literal("sec-webtransport-http3-draft", "draft02")
        .literal("wt-protocol", &quoted(MOQ_PROTOCOL))
        .finish()
}

/// A string of structured fields (RFC 9651, section 3.3.3), for text without `"` and `\`.
fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// Parses a list of strings (RFC 9651, section 4.2.1) without its parameters. `None` for anything
/// else: the field is then ignored as a whole.
fn parse_strings(field: &[u8]) -> Option<Vec<String>> {
    let mut strings = Vec::new();
    let mut rest = field.trim_ascii();
    while !rest.is_empty() && strings.len() < PROTOCOLS_MAX {
        let (string, after) = parse_string(rest)?;
        strings.push(string);
        rest = skip_parameters(after)?;
        if let Some(after) = rest.strip_prefix(b",") {
            rest = after.trim_ascii_start();
            if rest.is_empty() {
                return None;
            }
        } else if !rest.is_empty() {
            return None;
        }
    }
    Some(strings)
}

fn parse_string(input: &[u8]) -> Option<(String, &[u8])> {
    let mut rest = input.strip_prefix(b"\"")?;
    let mut string = String::new();
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((string, rest)),
            b'\\' => {
                let (&escaped, after) = rest.split_first()?;
                if !matches!(escaped, b'"' | b'\\') {
                    return None;
                }
                rest = after;
                string.push(char::from(escaped));
            }
            0x20..=0x7e => string.push(char::from(byte)),
            _ => return None,
        }
    }
}

/// Skips `;name=value` up to the comma or the end. A value may be a string with a comma.
fn skip_parameters(input: &[u8]) -> Option<&[u8]> {
    let mut rest = input.trim_ascii_start();
    if rest.first() != Some(&b';') {
        return Some(rest);
    }
    while let Some(&byte) = rest.first() {
        rest = match byte {
            b',' => return Some(rest),
            b'"' => parse_string(rest)?.1,
            _ => &rest[1..],
        };
    }
    Some(rest)
}
