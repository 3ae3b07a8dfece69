//! Validates the values of variables: credentials, and the URLs that they are sent to.
//!
//! In: variables by their canonical names. Out: normalized values, and warnings. A URL is a scheme,
//! a host, and optionally a port and a path; trailing slashes are removed. Rejects credentials with
//! characters that a header cannot contain, and URLs of any other form. No message contains a
//! credential, nor a URL with an `@`.

use std::net::IpAddr;

use super::env::Variables;
use super::{Env, UsageError, hosts};
use crate::aliases::{self, Area};
use crate::secret::Secret;

/// Returns a credential. It must be visible ASCII, because it becomes part of a header.
pub fn credential(variables: &Variables, name: &'static str) -> Result<Option<String>, UsageError> {
    match variables.get(name) {
        Some(text) if !text.bytes().all(|b| b.is_ascii_graphic()) => {
            Err(wrong(variables, name, "ASCII characters without white space"))
        }
        text => Ok(text.map(str::to_owned)),
    }
}

/// Reads a key from its file or its variable, unless the name under which it is found is not for
/// this service.
///
/// # Errors
/// [`UsageError`] without the key.
pub fn key_of(
    env: &Env<'_>,
    name: &'static str,
    file: &'static str,
    is_for_service: impl Fn(&str) -> bool,
) -> Result<Option<Secret>, UsageError> {
    let variables = &env.variables;
    if let Some(path) = variables.literal(file) {
        if variables.literal(name).is_some() {
            return Err(UsageError::Combination(format!(
                "{name} and {file} both name the key; set one of them"
            )));
        }
        let text = read_file(env, file, path)?;
        let key = text.lines().next().unwrap_or_default().trim();
        return match !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Some(Secret::new(key))),
            false => Err(UsageError::redacted(file, "a file whose first line is the key")),
        };
    }
    let key = credential(variables, name)?.filter(|_| is_for_service(found(variables, name)));
    Ok(key.map(Secret::new))
}

/// Reads the file that a variable names. An error has neither its name nor its content: some users
/// put the key itself there.
///
/// # Errors
/// [`UsageError`] that names the variable.
pub fn read_file(env: &Env<'_>, name: &str, path: &str) -> Result<String, UsageError> {
    env.read_text(path)
        .map_err(|error| UsageError::Combination(format!("{name}: reading the file that it names: {error}")))
}

/// Returns the base URL of an HTTP API.
pub fn base(
    variables: &Variables,
    name: &'static str,
    warnings: &mut Vec<String>,
) -> Result<Option<String>, UsageError> {
    let wants = "the base URL of an API: http://HOST or https://HOST, optionally with :PORT and /PATH";
    let url = url(variables, name, &["http", "https"], wants)?;
    Ok(url.map(|url| {
        url.warn_if_unencrypted(warnings, "the provider's credentials travel");
        url.text
    }))
}

/// A normalized URL.
pub struct Url {
    /// With scheme and host in lower case, and without a trailing slash.
    pub text: String,
    /// Empty, or with a leading slash.
    pub path: String,
    /// The name of its variable.
    source: &'static str,
    secure: bool,
    /// Whether the host is `localhost` or a loopback address.
    loopback: bool,
}

impl Url {
    /// Warns if the URL leads to another machine without encryption.
    pub fn warn_if_unencrypted(&self, warnings: &mut Vec<String>, what: &str) {
        if !self.secure && !self.loopback {
            warnings.push(format!("{} is not encrypted: {what} in the clear", self.source));
        }
    }
}

/// Returns a URL with one of these schemes.
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

/// Parses a URL with one of these schemes; `source` is its name in warnings.
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

/// Returns the error about an invalid value, without the value.
pub fn wrong(variables: &Variables, name: &'static str, wants: &str) -> UsageError {
    UsageError::redacted(found(variables, name), wants)
}

/// Returns the name under which a variable is set.
pub fn found(variables: &Variables, name: &'static str) -> &'static str {
    variables.named(name).map_or(name, |(found, _)| found)
}

/// Returns a name with its aliases, for messages.
pub fn all_names(name: &'static str) -> String {
    match aliases::aliases(Area::Variable, name) {
        [] => name.to_owned(),
        others => format!("{name} (or {})", others.join(", ")),
    }
}
