//! The URL of a speech-to-speech service.
//!
//! In: any form that operators know: `http`, `https`, `ws` or `wss`, a base such as `/v1` or the
//! whole path, with or without a query. Out: a `ws` or `wss` URL, and what is known of its vendor.
//! `/realtime` is added to an empty path and to `/v1`, `/openai` and `/openai/v1`; any other path
//! stays. Rejects other schemes, credentials in the URL, fragments, and the dated `api-version` of
//! the protocol that Azure has retired.

use std::fmt;
use std::net::IpAddr;

use crate::address_scope::AddressScope;
use crate::options::hosts;

/// Paths that are a base.
const BASES: [&str; 4] = ["", "/v1", "/openai", "/openai/v1"];

/// The URL of a service.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServiceUrl {
    is_secure: bool,
    /// In lower case, with the port if one is given.
    authority: String,
    path: String,
    /// Without the question mark.
    query: String,
}

/// Why a text is no URL of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceUrlError {
    Form,
    Fragment,
    RetiredVersion,
}

impl fmt::Display for ServiceUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServiceUrlError::Form => {
                "a URL such as wss://HOST/v1/realtime or http://HOST:8000/v1, without user and password"
            }
            ServiceUrlError::Fragment => "a URL without `#`",
            ServiceUrlError::RetiredVersion => {
                "a URL without `api-version`: Azure has retired the protocol that it selects; use /openai/v1/realtime"
            }
        })
    }
}

/// The form of the protocol that a service speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The generally available form.
    #[default]
    Ga,
    /// The older form, which compatible servers still use.
    Beta,
    /// Azure, by the host names of its services.
    Azure,
    /// xAI, by its host name.
    Xai,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Dialect; 4] = [Dialect::Ga, Dialect::Beta, Dialect::Azure, Dialect::Xai];

    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Ga => "ga",
            Dialect::Beta => "beta",
            Dialect::Azure => "azure",
            Dialect::Xai => "xai",
        }
    }
}

/// The company that runs a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceVendor {
    /// OpenAI's own.
    OpenAi,
    /// Azure's.
    Azure,
    /// xAI's.
    Xai,
    /// Any other server.
    Other,
}

impl ServiceUrl {
    /// Parses a URL and completes its path.
    ///
    /// # Errors
    /// [`ServiceUrlError`] with what is expected.
    pub fn parse(text: &str) -> Result<Self, ServiceUrlError> {
        let mut url = Self::exact(text)?;
        if parameters(&url.query)
            .any(|(name, value)| name == "api-version" && value.starts_with(|c: char| c.is_ascii_digit()))
        {
            return Err(ServiceUrlError::RetiredVersion);
        }
        let path = url.path.trim_end_matches('/');
        url.path = match BASES.contains(&path) {
            true => format!("{}/realtime", if path.is_empty() { "/v1" } else { path }),
            false => path.to_owned(),
        };
        Ok(url)
    }

    /// Tells whether a text has the scheme of an HTTP endpoint.
    pub fn is_http(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        scheme.is_some_and(|scheme| scheme == "http" || scheme == "https")
    }

    /// Parses a URL whose path stays as it is.
    ///
    /// # Errors
    /// [`ServiceUrlError`] with what is expected.
    pub fn exact(text: &str) -> Result<Self, ServiceUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(ServiceUrlError::Form)?;
        let is_secure = match &*scheme.to_ascii_lowercase() {
            "wss" | "https" => true,
            "ws" | "http" => false,
            _ => return Err(ServiceUrlError::Form),
        };
        if rest.contains('#') {
            return Err(ServiceUrlError::Fragment);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, _) = hosts::split_port(authority).ok_or(ServiceUrlError::Form)?;
        let is_plain = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b))
        };
        if !hosts::is_host(host) || !is_plain(path) || !is_plain(query) {
            return Err(ServiceUrlError::Form);
        }
        Ok(ServiceUrl {
            is_secure,
            authority: authority.to_ascii_lowercase(),
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }

    /// Returns the URL with this model, unless it names one.
    pub fn with_model(mut self, model: &str) -> Self {
        if self.model().is_none() && !model.is_empty() {
            let separator = if self.query.is_empty() { "" } else { "&" };
            self.query = format!("{}{separator}model={}", self.query, percent_encoded(model));
        }
        self
    }

    /// Returns the model in the query.
    pub fn model(&self) -> Option<&str> {
        parameters(&self.query).find_map(|(name, value)| (name == "model" && !value.is_empty()).then_some(value))
    }

    /// Returns the whole URL, as that of a WebSocket.
    pub fn text(&self) -> String {
        self.with_scheme(if self.is_secure { "wss" } else { "ws" })
    }

    /// Returns the whole URL, as that of an HTTP endpoint.
    pub fn http_text(&self) -> String {
        self.with_scheme(if self.is_secure { "https" } else { "http" })
    }

    fn with_scheme(&self, scheme: &str) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{scheme}://{}{}{mark}{}", self.authority, self.path, self.query)
    }

    /// Returns the host without port and brackets.
    pub fn host(&self) -> &str {
        let host = hosts::split_port(&self.authority).map_or(&*self.authority, |(host, _)| host);
        host.trim_matches(['[', ']'])
    }

    /// Returns whether the URL has TLS.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Tells whether a key may be sent: over TLS, or to this machine or its private network.
    pub fn may_carry_key(&self) -> bool {
        self.is_secure || is_near(self.host())
    }

    /// Returns the host if it is neither this machine nor in its network.
    pub fn third_party(&self) -> Option<&str> {
        third_party(self.host())
    }

    /// Returns the vendor, by the host.
    pub fn vendor(&self) -> ServiceVendor {
        ServiceVendor::of_host(self.host())
    }
}

/// Returns a host if it is neither this machine nor in its network.
pub(super) fn third_party(host: &str) -> Option<&str> {
    (!is_near(host) && !host.ends_with(".local")).then_some(host)
}

/// Tells whether a host is this machine or in its private network, as far as its name or address
/// tells.
pub(super) fn is_near(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => matches!(
            AddressScope::of(address),
            AddressScope::Loopback | AddressScope::LinkLocal | AddressScope::Private
        ),
        Err(_) => host == "localhost",
    }
}

impl ServiceVendor {
    /// Returns the vendor of a host in lower case.
    pub(super) fn of_host(host: &str) -> Self {
        if host == "api.openai.com" {
            ServiceVendor::OpenAi
        } else if host.ends_with(".openai.azure.com") || host.ends_with(".cognitiveservices.azure.com") {
            ServiceVendor::Azure
        } else if host == "api.x.ai" {
            ServiceVendor::Xai
        } else {
            ServiceVendor::Other
        }
    }

    /// Returns the dialect that the vendor speaks.
    pub fn dialect(self) -> Dialect {
        match self {
            ServiceVendor::OpenAi | ServiceVendor::Other => Dialect::Ga,
            ServiceVendor::Azure => Dialect::Azure,
            ServiceVendor::Xai => Dialect::Xai,
        }
    }
}

impl fmt::Debug for ServiceUrl {
    /// Omits the query, which may hold a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceUrl({})", self.host())
    }
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte) {
            true => encoded.push(byte.into()),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(text: &str) -> String {
        ServiceUrl::parse(text).expect(text).with_model("m/1 b").text()
    }

    #[test]
    fn every_form_becomes_the_whole_url() {
        for (given, whole) in [
            (
                "https://api.openai.com/v1",
                "wss://api.openai.com/v1/realtime?model=m/1%20b",
            ),
            (
                "https://api.openai.com/v1/",
                "wss://api.openai.com/v1/realtime?model=m/1%20b",
            ),
            ("http://HOST:8000", "ws://host:8000/v1/realtime?model=m/1%20b"),
            (
                "ws://[::1]:8765/v1/realtime",
                "ws://[::1]:8765/v1/realtime?model=m/1%20b",
            ),
            (
                "wss://r.openai.azure.com/openai/v1",
                "wss://r.openai.azure.com/openai/v1/realtime?model=m/1%20b",
            ),
            ("wss://h/other?key=1", "wss://h/other?key=1&model=m/1%20b"),
            ("wss://h/v1/realtime?model=given", "wss://h/v1/realtime?model=given"),
        ] {
            assert_eq!(completed(given), whole);
        }
    }

    #[test]
    fn the_path_of_an_endpoint_stays() {
        let url = ServiceUrl::exact("HTTPS://H:1/v1/?a=b").expect("a URL");
        assert_eq!(url.http_text(), "https://h:1/v1/?a=b");
        let is_http = ["HTTPS://h/x", "http://h", "wss://h", "./http"].map(ServiceUrl::is_http);
        assert_eq!(is_http, [true, true, false, false]);
    }

    #[test]
    fn what_is_no_url_of_a_service_is_rejected() {
        for (text, why) in [
            ("api.openai.com/v1", ServiceUrlError::Form),
            ("ftp://h/v1", ServiceUrlError::Form),
            ("wss://user:key@h/v1", ServiceUrlError::Form),
            ("wss:///v1", ServiceUrlError::Form),
            ("wss://h/a b", ServiceUrlError::Form),
            ("wss://h/v1#x", ServiceUrlError::Fragment),
            (
                "wss://r.openai.azure.com/openai/realtime?api-version=2024-10-01-preview",
                ServiceUrlError::RetiredVersion,
            ),
        ] {
            assert_eq!(ServiceUrl::parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn a_key_stays_on_encrypted_and_private_ways() {
        for (text, may) in [
            ("wss://far.example.net/v1", true),
            ("ws://far.example.net/v1", false),
            ("ws://8.8.8.8/v1", false),
            ("ws://localhost:8000/v1", true),
            ("ws://127.0.0.1:8000/v1", true),
            ("ws://[::1]:8000/v1", true),
            ("http://192.168.1.7:8080/v1", true),
            ("http://[fd00::7]:8080/v1", true),
            ("http://100.64.0.1/v1", false),
        ] {
            assert_eq!(ServiceUrl::parse(text).expect(text).may_carry_key(), may, "{text}");
        }
    }

    #[test]
    fn a_third_party_is_outside_the_network() {
        for (text, party) in [
            ("wss://api.openai.com/v1", Some("api.openai.com")),
            ("wss://8.8.8.8/v1", Some("8.8.8.8")),
            ("ws://localhost:8000/v1", None),
            ("wss://10.1.2.3/v1", None),
            ("ws://[fe80::1]/v1", None),
            ("wss://nas.local/v1", None),
        ] {
            assert_eq!(ServiceUrl::parse(text).expect(text).third_party(), party, "{text}");
        }
    }

    #[test]
    fn the_vendor_is_known_by_the_whole_host() {
        for (text, vendor) in [
            ("wss://api.openai.com/v1", ServiceVendor::OpenAi),
            ("wss://API.OPENAI.COM:443/v1", ServiceVendor::OpenAi),
            ("wss://api.openai.com.example.net/v1", ServiceVendor::Other),
            ("wss://me.openai.azure.com/openai/v1", ServiceVendor::Azure),
            ("wss://api.x.ai/v1", ServiceVendor::Xai),
            ("ws://localhost/v1", ServiceVendor::Other),
        ] {
            assert_eq!(ServiceUrl::parse(text).expect(text).vendor(), vendor, "{text}");
        }
        assert!(!format!("{:?}", ServiceUrl::parse("wss://h/v1?key=hunter2")).contains("hunter2"));
    }
}
