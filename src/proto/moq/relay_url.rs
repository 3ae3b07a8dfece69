//! URLs of Media over QUIC: that of the relay in `--moq-connect`, and those that callers receive.
//!
//! In: texts. Out: a [`RelayUrl`], `SCHEME://HOST[:PORT][/PATH]`. The default port is 443 for
//! `https` and 80 for `http`, the default path `/moq`. Callers receive `https` with an explicit
//! port, because browsers know no other scheme. `moqt` and `moql` are taken for `https`: the
//! relay knows the path of a connection only by WebTransport, and callers come that way.
//! Source: RFC 3986; `docs/spec/moq.md`.

use std::fmt;

use crate::options::hosts;

/// Bytes of the URL of a relay, which may hold a token.
const MOQ_URL_BYTES_MAX: usize = 2_048;

/// The path of the runner itself, and of a relay whose URL has none.
pub const PATH: &str = "/moq";

/// The URL of a relay.
#[derive(Clone, PartialEq, Eq)]
pub struct RelayUrl {
    scheme: String,
    /// A name or an address; an IPv6 address in brackets.
    host: String,
    port: u16,
    /// Path and query. The query may hold a token of the relay.
    path: String,
}

/// Why a text is not the URL of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayUrlError {
    /// There is no scheme, or a character that a URL cannot have.
    NotAUrl,
    /// It is longer than `MOQ_URL_BYTES_MAX`.
    TooLong,
    /// The host is missing or invalid. A user name before it is invalid, too.
    Host,
    /// The port is not from 1 to 65535.
    Port,
    /// Only `http` and `https` have a default port.
    PortMissing,
}

impl fmt::Display for RelayUrlError {
    /// Says what is expected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayUrlError::NotAUrl => f.write_str("a URL such as https://relay.example.net/moq"),
            RelayUrlError::TooLong => write!(f, "a URL of at most {MOQ_URL_BYTES_MAX} bytes"),
            RelayUrlError::Host => f.write_str("a URL with a host"),
            RelayUrlError::Port => f.write_str("a URL with a port from 1 to 65535, or without one"),
            RelayUrlError::PortMissing => f.write_str("a URL with a port, unless it is http or https"),
        }
    }
}

impl std::error::Error for RelayUrlError {}

impl RelayUrl {
    /// Parses `SCHEME://HOST[:PORT][/PATH][?QUERY]`.
    ///
    /// # Errors
    /// [`RelayUrlError`], whose text says what is expected.
    pub fn parse(text: &str) -> Result<RelayUrl, RelayUrlError> {
        if text.len() > MOQ_URL_BYTES_MAX {
            return Err(RelayUrlError::TooLong);
        }
        let (scheme, rest) = text.split_once("://").ok_or(RelayUrlError::NotAUrl)?;
        let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
        let in_url = |b: u8| b.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&b);
        if !scheme_fits || !rest.bytes().all(in_url) {
            return Err(RelayUrlError::NotAUrl);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = match hosts::split_port(authority) {
            Some((host, port)) if hosts::is_host(host) => (host, port),
            None if !authority.contains('@') => return Err(RelayUrlError::Port),
            _ => return Err(RelayUrlError::Host),
        };
        let scheme = scheme.to_ascii_lowercase();
        let port = match (port, scheme.as_str()) {
            (Some(port), _) => port,
            (None, "https") => 443,
            (None, "http") => 80,
            (None, _) => return Err(RelayUrlError::PortMissing),
        };
        let before_path = if path.starts_with('/') { "" } else { PATH };
        Ok(RelayUrl {
            scheme,
            host: host.to_ascii_lowercase(),
            port,
            path: format!("{before_path}{path}"),
        })
    }

    /// Returns the host to resolve and to verify: a name or an address, without brackets.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the UDP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns host and port, for `:authority`.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns path and query, for `:path`. They must not reach a log: the query may hold a token.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether the relay's certificate is known by the hash that it publishes over HTTP.
    pub fn is_plain_http(&self) -> bool {
        self.scheme == "http"
    }

    /// Returns the URL that callers receive, with the query.
    pub fn for_callers(&self) -> String {
        format!("https://{}{}", self.authority(), self.path)
    }
}

impl fmt::Display for RelayUrl {
    /// Omits the query, which may hold a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.split('?').next().unwrap_or_default();
        write!(f, "{}://{}:{}{path}", self.scheme, self.host, self.port)
    }
}

impl fmt::Debug for RelayUrl {
    /// Omits the query, which may hold a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelayUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every form of the page, with the URL that callers receive.
    #[test]
    fn has_the_defaults_of_the_page() {
        for (text, host, port, path, for_callers) in [
            (
                "https://r.example.net",
                "r.example.net",
                443,
                "/moq",
                "https://r.example.net:443/moq",
            ),
            (
                "https://r.example.net/",
                "r.example.net",
                443,
                "/",
                "https://r.example.net:443/",
            ),
            ("http://r/anon", "r", 80, "/anon", "https://r:80/anon"),
            ("https://R:4443/a/b", "r", 4443, "/a/b", "https://r:4443/a/b"),
            ("moqt://r:4443/x", "r", 4443, "/x", "https://r:4443/x"),
            ("moql://192.0.2.1:1", "192.0.2.1", 1, "/moq", "https://192.0.2.1:1/moq"),
            ("HTTPS://[::1]:4443/moq", "::1", 4443, "/moq", "https://[::1]:4443/moq"),
            (
                "https://r?jwt=a.b",
                "r",
                443,
                "/moq?jwt=a.b",
                "https://r:443/moq?jwt=a.b",
            ),
        ] {
            let url = RelayUrl::parse(text).expect(text);
            let read = (url.host(), url.port(), url.path(), &*url.for_callers());
            assert_eq!(read, (host, port, path, for_callers), "{text}");
        }
    }

    #[test]
    fn the_authority_of_an_ipv6_address_has_brackets() {
        for (text, authority) in [
            ("https://[::1]:4443/moq", "[::1]:4443"),
            ("https://r", "r:443"),
            ("https://192.0.2.1:1/", "192.0.2.1:1"),
        ] {
            assert_eq!(&*RelayUrl::parse(text).expect(text).authority(), authority, "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, error) in [
            ("", RelayUrlError::NotAUrl),
            ("relay.example.net", RelayUrlError::NotAUrl),
            ("://r:1", RelayUrlError::NotAUrl),
            ("1a://r:1", RelayUrlError::NotAUrl),
            ("https://r/a b", RelayUrlError::NotAUrl),
            ("https://r/a#b", RelayUrlError::NotAUrl),
            ("https://", RelayUrlError::Host),
            ("https:///moq", RelayUrlError::Host),
            ("https://u:p@r", RelayUrlError::Host),
            ("https://u@r", RelayUrlError::Host),
            ("https://r:0/", RelayUrlError::Port),
            ("https://r:x/", RelayUrlError::Port),
            ("https://[::1/", RelayUrlError::Port),
            ("moqt://r/x", RelayUrlError::PortMissing),
        ] {
            assert_eq!(RelayUrl::parse(text), Err(error), "{text}");
        }
        let longest = |bytes| RelayUrl::parse(&format!("https://r/{}", "a".repeat(bytes - 10)));
        assert!(longest(MOQ_URL_BYTES_MAX).is_ok());
        assert_eq!(longest(MOQ_URL_BYTES_MAX + 1), Err(RelayUrlError::TooLong));
    }

    #[test]
    fn logs_have_no_query() {
        let url = RelayUrl::parse("https://r/room?jwt=hunter2").expect("a URL");
        assert_eq!(url.to_string(), "https://r:443/room");
        assert_eq!(format!("{url:?}"), "RelayUrl(https://r:443/room)");
    }

    /// All texts of up to five syntax characters, and one of two bytes.
    #[test]
    fn no_text_causes_a_panic() {
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            let longer = texts
                .iter()
                .flat_map(|text| "a1[]:./?é".chars().map(move |c| format!("{text}{c}")));
            texts = longer.collect();
            for text in &texts {
                let _ = RelayUrl::parse(&format!("https://{text}"));
            }
        }
    }
}
