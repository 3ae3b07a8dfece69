//! Validates and normalizes host names, origins and the public host name.
//!
//! In: texts. Out: normalized texts, or usage errors. A host is a DNS name, an IPv4 address or an
//! IPv6 address in brackets; a port is 1 to 65535. An origin is the scheme, the host, and the port
//! unless it is the default of the scheme. Source: RFC 3986 section 3.2, RFC 6454 section 6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Env, UsageError};
use crate::options::host::Host;
use crate::sorting;

/// Maximum length of a DNS name, in bytes.
const NAME_BYTES_MAX: usize = 253;
/// Maximum length of a label of a DNS name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// Returns whether a host, with or without a port, leads to this machine alone.
pub fn is_local_name(host: &str) -> bool {
    let host = split_port(host).map_or(host, |(host, _)| host);
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Splits off the port; `None` if the text after the host is not a port.
pub fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let end = match text.strip_prefix('[') {
        Some(bracketed) => bracketed.find(']')? + 2,
        None => text.find(':').unwrap_or(text.len()),
    };
    let (host, rest) = text.split_at(end);
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Some((host, None)),
        None => None,
        Some(port) => match port.parse() {
            Ok(0) | Err(_) => None,
            Ok(port) => Some((host, Some(port))),
        },
    }
}

/// Returns whether the text is a host without a port.
pub fn is_host(text: &str) -> bool {
    if let Some(bracketed) = text.strip_prefix('[') {
        return bracketed
            .strip_suffix(']')
            .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    let label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    // A name whose last label is a number must be an IPv4 address.
    let address = name
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    name.len() <= NAME_BYTES_MAX && name.split('.').all(label) && (!address || name.parse::<Ipv4Addr>().is_ok())
}

/// Returns the public host of `--proxy`, `HOST` or `HOST:PORT`, and a warning if a scheme or
/// slashes were removed.
///
/// # Errors
/// [`UsageError`] if the rest is not a host.
pub fn proxy(text: &str) -> Result<(String, Option<String>), UsageError> {
    let prefix = ["https://", "http://"].into_iter().find(|prefix| {
        text.get(..prefix.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(prefix))
    });
    let stripped = text[prefix.map_or(0, str::len)..].trim_end_matches('/');
    let host = match split_port(stripped) {
        Some((host, _)) if is_host(host) => stripped.to_ascii_lowercase(),
        _ => {
            return Err(UsageError::value(
                "--proxy",
                text,
                "HOST or HOST:PORT, such as bots.example.net",
            ));
        }
    };
    let warning = (stripped != text).then(|| format!("`--proxy` takes a host name: using `{host}` for `{text}`"));
    Ok((host, warning))
}

/// Returns the normal form of an origin, and a warning if slashes were removed; `None` if the text
/// is not an origin.
pub fn origin(text: &str) -> Option<(String, Option<String>)> {
    // The origin of pages from files and in sandboxes.
    if text == "null" {
        return Some((text.to_owned(), None));
    }
    let stripped = text.trim_end_matches('/');
    let (scheme, authority) = stripped.split_once("://")?;
    let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let (host, port) = split_port(authority)?;
    if !scheme_fits || !is_host(host) {
        return None;
    }
    let scheme = scheme.to_ascii_lowercase();
    let host = host.to_ascii_lowercase();
    let normal = match (scheme.as_str(), port) {
        (_, None) | ("http", Some(80)) | ("https", Some(443)) => format!("{scheme}://{host}"),
        (_, Some(port)) => format!("{scheme}://{host}:{port}"),
    };
    let warning = (stripped != text).then(|| format!("an origin has no path: using `{normal}` for `{text}`"));
    Some((normal, warning))
}

/// Resolves the value of `--host`. A name resolves to its first IPv4 address, which more callers
/// can reach, or else to its first IPv6 address.
///
/// # Errors
/// [`UsageError`] for an invalid address or a name that cannot be resolved.
pub fn host(args: Option<&str>, env: &Env<'_>) -> Result<Host, UsageError> {
    let Some(text) = args else {
        return Ok(Host::Localhost);
    };
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(Host::Localhost);
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    if let Ok(address) = bare.parse() {
        return Ok(Host::Address(address));
    }
    let wants = "an IP address, `localhost`, or a name that this machine can resolve";
    if !is_host(text) {
        return Err(UsageError::value("--host", text, wants));
    }
    let found = (env.lookup_host)(text);
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    address
        .map(|address| Host::Address(*address))
        .ok_or_else(|| UsageError::value("--host", text, wants))
}

/// Returns the names of this machine and those of `--allowed-hosts`, in lower case and without a
/// trailing dot.
///
/// # Errors
/// [`UsageError`] for an invalid name.
pub fn host_names(allowed: &[String], env: &Env<'_>) -> Result<Vec<String>, UsageError> {
    let mut names = Vec::new();
    let asked = allowed.iter().flat_map(|text| text.split(','));
    for name in asked.map(str::trim).filter(|name| !name.is_empty()) {
        if !is_host(name) {
            let wants = "host names such as bot.example.net, without scheme and port";
            return Err(UsageError::value("--allowed-hosts", name, wants));
        }
        names.push(name.trim_end_matches('.').to_ascii_lowercase());
    }
    let own = env.names.iter().filter(|name| is_host(name));
    names.extend(own.map(|name| name.trim_end_matches('.').to_ascii_lowercase()));
    sorting::sort(&mut names);
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses() {
        for good in [
            "localhost",
            "a.example.net",
            "a-b.c",
            "raspberrypi.local",
            "192.0.2.1",
            "[2001:db8::1]",
            "a.net.",
            "1.a",
        ] {
            assert!(is_host(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "a..b",
            "-a",
            "a-",
            "a b",
            "192.0.2",
            "192.0.2.256",
            "::1",
            "[::1",
            "[a]",
            "a/b",
            "a@b",
            "é",
        ] {
            assert!(!is_host(bad), "{bad}");
        }
        assert!(is_host(&"a".repeat(LABEL_BYTES_MAX)));
        assert!(!is_host(&"a".repeat(LABEL_BYTES_MAX + 1)));
    }

    #[test]
    fn splits_ports_from_hosts() {
        assert_eq!(split_port("a:1"), Some(("a", Some(1))));
        assert_eq!(split_port("a"), Some(("a", None)));
        assert_eq!(split_port("[::1]:65535"), Some(("[::1]", Some(65535))));
        for bad in ["a:", "a:0", "a:65536", "a:b", "[::1]1", "[::1", "::1"] {
            assert_eq!(split_port(bad), None, "{bad}");
        }
    }

    ///
    #[test]
    fn proxy_strips_scheme_and_slashes_with_a_warning() {
        for text in [
            "https://Bots.example.net/",
            "http://bots.example.net//",
            "HTTPS://bots.example.net",
            "bots.example.net/",
        ] {
            let (host, warning) = proxy(text).expect("a host");
            assert_eq!(host, "bots.example.net");
            assert!(warning.expect("a warning").contains(text));
        }
        assert_eq!(proxy("bots.example.net"), Ok(("bots.example.net".into(), None)));
        assert_eq!(proxy("b.net:8443"), Ok(("b.net:8443".into(), None)));
        for bad in [
            "",
            "https://",
            "b.net/path",
            "wss://b.net",
            "b net",
            "b.net:0",
            "b.net?x",
            "--direct",
        ] {
            assert!(proxy(bad).is_err(), "{bad}");
        }
        let secret = proxy("https://u:hunter2@b.net").expect_err("a usage error").to_string();
        assert!(!secret.contains("hunter2"), "{secret}");
    }

    /// All texts of up to five syntax characters, and one of two bytes.
    #[test]
    fn no_text_causes_a_panic() {
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            let longer = texts
                .iter()
                .flat_map(|text| "a1[]:./é".chars().map(move |c| format!("{text}{c}")));
            texts = longer.collect();
            for text in &texts {
                let split = split_port(text);
                assert!(split.is_none_or(|(host, _)| text.starts_with(host)));
                assert!(proxy(text).map_or(true, |(host, _)| !host.is_empty()));
                origin(&format!("a://{text}"));
            }
        }
    }

    /// the normal form is that of browsers.
    #[test]
    fn origins_are_normalized() {
        let form = |text: &str| origin(text).map(|(origin, _)| origin);
        assert_eq!(
            form("https://App.Example.net:443").as_deref(),
            Some("https://app.example.net")
        );
        assert_eq!(form("http://a:80").as_deref(), Some("http://a"));
        assert_eq!(form("http://localhost:5173").as_deref(), Some("http://localhost:5173"));
        assert_eq!(form("capacitor://localhost").as_deref(), Some("capacitor://localhost"));
        assert_eq!(form("null").as_deref(), Some("null"));
        let (slash, warning) = origin("https://a.net/").expect("an origin");
        assert_eq!(slash, "https://a.net");
        assert!(warning.is_some());
        for bad in [
            "",
            "*",
            "a.net",
            "https://",
            "https://a.net/x",
            "https://*.a.net",
            "://a",
            "https://a:x",
            "https://u@a",
        ] {
            assert_eq!(origin(bad), None, "{bad}");
        }
    }
}
