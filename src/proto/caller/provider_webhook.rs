//! The webhook of a telephony provider with which a call begins, and its answer, as the provider
//! reads it.
//!
//! In: the markup, or JSON of the runner. Out: the [`MarkupStream`]: the URL of the media socket
//! and the parameters for its `start`. The markup is searched for the few tags that providers know,
//! so whatever is around them does not matter. Source: `docs/spec/telephony.md` 8.

use serde_json::{Map, Value};

use crate::options::values::all_names;
use crate::telephony::Provider;
use crate::telephony::settings::{Holds, Settings};

/// A call that begins with the webhook of a provider.
#[derive(Clone, Debug)]
pub struct WebhookCall {
    /// The public host of the runner.
    pub host: String,
    /// The numbers of the caller and of the called; empty ones are left out of the stream.
    pub numbers: [String; 2],
    /// The credentials that sign it.
    pub settings: Settings,
}

/// What the answer says about the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkupStream {
    pub url: String,
    /// An object of texts.
    pub parameters: Value,
}

/// Parameters of one stream.
const PARAMETERS_MAX: usize = 100;

/// Reads an answer.
///
/// # Errors
/// A sentence about what is missing.
pub fn read(answer: &[u8]) -> Result<MarkupStream, String> {
    let text = String::from_utf8_lossy(answer);
    let missing = "its answer to the webhook names no media WebSocket: does the runner have `-t` of this provider?";
    if let Ok(json) = serde_json::from_str::<Value>(&text) {
        let url = json["url"].as_str().filter(|url| is_socket(url));
        return Ok(MarkupStream {
            url: url.ok_or(missing)?.to_owned(),
            parameters: Value::Object(Map::new()),
        });
    }
    let (tag, behind) = tags(&text, "Stream").next().ok_or(missing)?;
    let content = behind.split('<').next().unwrap_or_default();
    let url = attribute(tag, "url").unwrap_or_else(|| unescaped(content.trim()));
    let parameters = tags(&text, "Parameter").take(PARAMETERS_MAX).filter_map(|(tag, _)| {
        let value = attribute(tag, "value")?;
        Some((attribute(tag, "name")?, Value::from(value)))
    });
    let headers = attribute(tag, "extraHeaders").unwrap_or_default();
    let headers = headers.split(',').take(PARAMETERS_MAX).filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), Value::from(value)))
    });
    let parameters = Value::Object(parameters.chain(headers).collect());
    match is_socket(&url) {
        true => Ok(MarkupStream { url, parameters }),
        false => Err(missing.to_owned()),
    }
}

/// Describes a runner that rejects the webhook of a call.
pub fn unsigned(url: &str, provider: &Provider, host: &str, is_signed: bool) -> String {
    let vendor = provider.vendor_name();
    let advice = match (is_signed, provider.verifies_with) {
        (true, _) => format!("it needs the same credentials of {vendor}, and `--proxy {host}`"),
        (false, names) if names.is_empty() || provider.setting(|holds| holds == Holds::PublicKey).is_some() => {
            format!("only {vendor} can sign for it; call without `--proxy`, by a token of `/start`")
        }
        (false, names) => {
            let names: Vec<String> = names.iter().map(|name| all_names(name)).collect();
            format!("set {} to sign as {vendor}", names.join(" and "))
        }
    };
    format!("{url}/: the runner verifies signatures, and rejected the webhook: {advice}")
}

/// Returns the URL with which this machine reaches a stream: the public host of the runner is at
/// the address that is called.
pub fn reached(stream: &str, host: &str, base: &str) -> String {
    let path = stream
        .strip_prefix("wss://")
        .and_then(|rest| rest.strip_prefix(host))
        .filter(|path| path.is_empty() || path.starts_with(['/', '?']));
    match path {
        Some(path) => format!("{}{path}", super::target::socket_base(base)),
        None => stream.to_owned(),
    }
}

fn is_socket(url: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
    (url.starts_with("wss://") || url.starts_with("ws://")) && url.chars().all(is_plain)
}

/// Returns the tags with this name: what is in them, and the text behind them.
fn tags<'t>(text: &'t str, name: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
    text.split('<').enumerate().skip(1).filter_map(move |(_, part)| {
        let inside = part.strip_prefix(name)?;
        let (tag, behind) = inside.split_once('>')?;
        let is_whole_name = tag.is_empty() || tag.starts_with([' ', '\t', '\r', '\n', '/']);
        is_whole_name.then_some((tag, behind))
    })
}

/// Returns an attribute of a tag.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let begin = tag.match_indices(name).find(|(at, _)| {
        let (before, behind) = (&tag[..*at], &tag[at + name.len()..]);
        before.ends_with([' ', '\t', '\r', '\n']) && behind.trim_start().starts_with('=')
    })?;
    let value = tag[begin.0 + name.len()..].trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
    let (value, _) = value[1..].split_once(quote)?;
    Some(unescaped(value))
}

fn unescaped(text: &str) -> String {
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    let mut text = text.to_owned();
    for (entity, letter) in entities {
        text = text.replace(entity, letter);
    }
    text
}

#[cfg(test)]
mod tests;
