//! What a provider is told when it asks, by `POST /`, what to do with a call: open a media socket to this runner.
//!
//! In: the socket's whole URL, token included, and the form that the provider sent. Out: the markup of providers a, b and c,
//! byte for byte as the reference writes it, or for d, which takes no markup, the JSON of its dynamic address with a note for
//! people. Of the form only the caller's and the called number are used, for provider a, whose stream tells neither.
//! Refuses nothing: a form that cannot be read is an empty one. Source: the fact sheet on telephony, section 8.

use serde_json::json;

use super::Provider;
use crate::limits::CALLER_BYTES_MAX;
use crate::proto::form;

/// The answer to a webhook; its status is 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub content_type: &'static str,
    pub body: String,
}

/// Returns the public URL of the media socket. The token is in the path, since provider a drops a query.
pub fn socket_url(host: &str, token: Option<&str>) -> String {
    match token {
        Some(token) => format!("wss://{host}/ws/{token}"),
        None => format!("wss://{host}/ws"),
    }
}

/// Answers a webhook with the URL of the media socket.
pub fn reply(provider: Provider, socket_url: &str, body: &[u8]) -> Reply {
    let url = escaped(socket_url);
    let markup = match provider {
        Provider::A => {
            let parameters = parameters(body);
            format!("  <Connect>\n    <Stream url=\"{url}\">{parameters}</Stream>\n  </Connect>\n")
        }
        Provider::B => {
            format!("  <Connect>\n    <Stream url=\"{url}\" bidirectionalMode=\"rtp\"></Stream>\n  </Connect>\n")
        }
        Provider::C => format!(
            "  <Stream bidirectional=\"true\" keepCallAlive=\"true\" \
             contentType=\"audio/x-mulaw;rate=8000\">{url}</Stream>\n"
        ),
        Provider::D => return dynamic_address(socket_url),
    };
    Reply {
        content_type: "application/xml",
        body: format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response>\n{markup}</Response>"),
    }
}

/// Who calls whom, as parameters that come back in the stream's `start`. Nothing when the form tells neither.
fn parameters(body: &[u8]) -> String {
    let pairs = form::pairs(body);
    let mut lines = String::new();
    for (field, name) in [("From", "from_number"), ("To", "to_number")] {
        let value = form::value(&pairs, field).unwrap_or_default();
        if !value.is_empty() && value.len() <= CALLER_BYTES_MAX {
            lines += &format!("\n      <Parameter name=\"{name}\" value=\"{}\"/>", escaped(value));
        }
    }
    if !lines.is_empty() {
        lines += "\n    ";
    }
    lines
}

/// What provider d takes, if it is pointed at the runner by `https`, and what a person should have configured.
fn dynamic_address(socket_url: &str) -> Reply {
    let body = json!({
        "error": "telephony_d does not use this webhook",
        "websocket_url": socket_url,
        "note": "Set websocket_url as the address of the Voicebot applet in the provider's flow editor.",
        "url": socket_url,
    });
    Reply {
        content_type: "application/json",
        body: body.to_string(),
    }
}

/// Writes text as XML that is good in content and in attributes; control characters, which XML has no word for, are left
/// out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&apos;",
            '\u{fffe}' | '\u{ffff}' => {}
            _ if letter.is_control() => {}
            _ => out.push(letter),
        }
    }
    out
}
