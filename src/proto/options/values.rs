//! Values of variables, by kind: credentials, and the URLs to which they are sent.
//!
//! In: variables by their canonical names. Out: values in one form, and warnings. A URL is a scheme, a host, perhaps a port and a
//! path; slashes at its end are taken off. Refuses: credentials that could not stand in a request, and URLs of any other form. No
//! credential is ever repeated, nor a URL with an `@`.

use std::net::IpAddr;

use super::env::Variables;
use super::{UsageError, hosts};
use crate::aliases::{self, Area};

/// Returns a credential. It must be visible ASCII, since it becomes part of a header.
pub fn credential(variables: &Variables, name: &'static str) -> Result<Option<String>, UsageError> {
    match variables.get(name) {
        Some(text) if !text.bytes().all(|b| b.is_ascii_graphic()) => {
            Err(wrong(variables, name, "ASCII characters without white space"))
        }
        text => Ok(text.map(str::to_owned)),
    }
}

/// Returns the base of an API, over HTTP.
pub fn base(
    variables: &Variables,
    name: &'static str,
    warnings: &mut Vec<String>,
) -> Result<Option<String>, UsageError> {
    let wants = "the base of an API: http://HOST or https://HOST, with :PORT and /PATH if need be";
    let url = url(variables, name, &["http", "https"], wants)?;
    Ok(url.map(|url| {
        url.warn_if_unencrypted(warnings, "the provider's credentials travel");
        url.text
    }))
}

/// A URL of one form.
pub struct Url {
    /// Scheme and host in lower case, without a slash at its end.
    pub text: String,
    /// With its slash before it; may be empty.
    pub path: String,
    /// The variable that it is from.
    source: &'static str,
    secure: bool,
    /// Whether the host is this machine, as text shows it.
    loopback: bool,
}

impl Url {
    /// Warns of what travels unencrypted to another machine.
    pub fn warn_if_unencrypted(&self, warnings: &mut Vec<String>, what: &str) {
        if !self.secure && !self.loopback {
            warnings.push(format!("{} is not encrypted: {what} in the clear", self.source));
        }
    }
}

/// Returns a URL of one of these schemes.
pub fn url(
    variables: &Variables,
    name: &'static str,
    schemes: &[&str],
    wants: &str,
) -> Result<Option<Url>, UsageError> {
    let Some((source, text)) = variables.named(name) else {
        return Ok(None);
    };
    let url = parse_url(source, text, schemes).ok_or_else(|| UsageError::value(source, text, wants))?;
    Ok(Some(url))
}

/// Reads a URL of one of these schemes; `source` is what it is called in warnings.
pub fn parse_url(source: &'static str, text: &str, schemes: &[&str]) -> Option<Url> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let rest = rest.trim_end_matches('/');
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, _) = hosts::split_port(authority)?;
    let in_path = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%".contains(&b);
    if !schemes.contains(&&*scheme) || !hosts::is_host(host) || !path.bytes().all(in_path) {
        return None;
    }
    let bare = host.trim_matches(['[', ']']);
    Some(Url {
        text: format!("{scheme}://{}{path}", authority.to_ascii_lowercase()),
        path: path.to_owned(),
        source,
        secure: matches!(&*scheme, "https" | "wss"),
        loopback: bare.eq_ignore_ascii_case("localhost")
            || bare.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
    })
}

/// A misuse that does not repeat the value.
pub fn wrong(variables: &Variables, name: &'static str, wants: &str) -> UsageError {
    UsageError::redacted(found(variables, name), wants)
}

/// The name under which a variable was found.
pub fn found(variables: &Variables, name: &'static str) -> &'static str {
    variables.named(name).map_or(name, |(found, _)| found)
}

/// A name with those that count as well, for people who are to set it.
pub fn all_names(name: &'static str) -> String {
    match aliases::aliases(Area::Variable, name) {
        [] => name.to_owned(),
        others => format!("{name} (or {})", others.join(", ")),
    }
}
