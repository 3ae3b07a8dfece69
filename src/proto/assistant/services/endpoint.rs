//! Where a service of the bot `cascade` listens.
//!
//! In: `tcp://HOST:PORT`, a Wyoming server, or `http(s)://HOST/v1`, the base of a service with the
//! HTTP API of OpenAI; an empty path means `/v1`. Out: the endpoint, and the URLs below it. Rejects
//! other schemes, credentials, queries and fragments, and a key that would travel unencrypted
//! beyond a private network.

use std::fmt;

use crate::assistant::service_url::{ServiceVendor, is_near};
use crate::options::hosts;
use crate::secret::Secret;

/// The address of a service, by its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceEndpoint {
    /// A server of the Wyoming protocol.
    Wyoming(ServiceAuthority),
    /// A server of OpenAI's HTTP API.
    Http(HttpBase),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAuthority(String);

/// The base of the URLs of an HTTP service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpBase {
    is_secure: bool,
    authority: ServiceAuthority,
    /// Without a slash at its end.
    path: String,
}

/// Why a text is no address of a service, or a key does not belong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceEndpointError {
    Form,
    /// The port of a Wyoming server is missing.
    Port,
    /// The key would leave the private network unencrypted.
    InsecureKey,
    /// Wyoming has no keys.
    UselessKey,
}

impl fmt::Display for ServiceEndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServiceEndpointError::Form => {
                "a URL such as tcp://HOST:10300 (Wyoming) or http://HOST:8000/v1, without user, password and query"
            }
            ServiceEndpointError::Port => {
                "a URL with a port, such as tcp://HOST:10300 for a recogniser or tcp://HOST:10200 for a voice"
            }
            ServiceEndpointError::InsecureKey => {
                "an https:// URL for a service with a key: only on this machine and in private networks a key may be \
                 sent unencrypted"
            }
            ServiceEndpointError::UselessKey => "no key with a tcp:// URL: Wyoming has none",
        })
    }
}

impl ServiceEndpoint {
    /// Parses an address.
    ///
    /// # Errors
    /// [`ServiceEndpointError`] with what is expected.
    pub fn parse(text: &str) -> Result<Self, ServiceEndpointError> {
        let (scheme, rest) = text.split_once("://").ok_or(ServiceEndpointError::Form)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = hosts::split_port(authority).ok_or(ServiceEndpointError::Form)?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>?\\^`{|}".contains(&byte);
        if !hosts::is_host(host) || !path.bytes().all(is_plain) {
            return Err(ServiceEndpointError::Form);
        }
        let authority = ServiceAuthority(authority.to_ascii_lowercase());
        let path = path.trim_end_matches('/');
        let is_secure = match &*scheme.to_ascii_lowercase() {
            "tcp" if !path.is_empty() => return Err(ServiceEndpointError::Form),
            "tcp" if port.is_none() => return Err(ServiceEndpointError::Port),
            "tcp" => return Ok(ServiceEndpoint::Wyoming(authority)),
            "https" => true,
            "http" => false,
            _ => return Err(ServiceEndpointError::Form),
        };
        Ok(ServiceEndpoint::Http(HttpBase {
            is_secure,
            authority,
            path: if path.is_empty() { "/v1" } else { path }.to_owned(),
        }))
    }

    /// Returns the host without port and brackets, for the log.
    pub fn host(&self) -> &str {
        match self {
            ServiceEndpoint::Wyoming(authority) => authority.host(),
            ServiceEndpoint::Http(base) => base.authority.host(),
        }
    }

    /// Returns the host as in the URL, with its port if it has one.
    pub fn address(&self) -> &str {
        match self {
            ServiceEndpoint::Wyoming(authority) => authority.text(),
            ServiceEndpoint::Http(base) => base.authority.text(),
        }
    }

    /// Returns the vendor, by the host.
    pub fn vendor(&self) -> ServiceVendor {
        ServiceVendor::of_host(self.host())
    }

    /// Tells whether the connection is encrypted.
    pub fn is_secure(&self) -> bool {
        matches!(self, ServiceEndpoint::Http(base) if base.is_secure)
    }

    /// Tells whether the service is on this machine or in a private network, as far as its host
    /// tells.
    pub fn is_near(&self) -> bool {
        is_near(self.host())
    }
}

impl ServiceAuthority {
    /// Returns host and port as in a URL.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn host(&self) -> &str {
        let host = hosts::split_port(&self.0).map_or(&*self.0, |(host, _)| host);
        host.trim_matches(['[', ']'])
    }
}

impl HttpBase {
    /// Returns the URL of a path below the base, such as `chat/completions`.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}{}/{path}", self.authority.0, self.path)
    }
}

/// A service and the key for it.
#[derive(Clone, Debug)]
pub struct ServiceAccess {
    endpoint: ServiceEndpoint,
    key: Option<Secret>,
}

impl ServiceAccess {
    /// Joins an address and its key.
    ///
    /// # Errors
    /// [`ServiceEndpointError::InsecureKey`] and [`ServiceEndpointError::UselessKey`].
    pub fn new(endpoint: ServiceEndpoint, key: Option<Secret>) -> Result<Self, ServiceEndpointError> {
        match (&endpoint, &key) {
            (_, None) => {}
            (ServiceEndpoint::Wyoming(_), Some(_)) => return Err(ServiceEndpointError::UselessKey),
            (ServiceEndpoint::Http(base), Some(_)) if base.is_secure || endpoint.is_near() => {}
            (ServiceEndpoint::Http(_), Some(_)) => return Err(ServiceEndpointError::InsecureKey),
        }
        Ok(ServiceAccess { endpoint, key })
    }

    /// Returns where the service is.
    pub fn endpoint(&self) -> &ServiceEndpoint {
        &self.endpoint
    }

    /// Returns the header that carries the key, its name in lower case.
    pub fn header(&self) -> Option<(&'static str, Secret)> {
        let key = self.key.as_ref()?;
        Some(match self.endpoint.vendor() {
            ServiceVendor::Azure => ("api-key", key.clone()),
            _ => ("authorization", Secret::new(format!("Bearer {}", key.expose()))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> String {
        match ServiceEndpoint::parse(text).expect(text) {
            ServiceEndpoint::Wyoming(authority) => authority.text().to_owned(),
            ServiceEndpoint::Http(base) => base.url("models"),
        }
    }

    #[test]
    fn every_form_of_an_address_is_understood() {
        for (given, whole) in [
            ("tcp://NAS:10300", "nas:10300"),
            ("TCP://[::1]:10300/", "[::1]:10300"),
            ("http://nas:11434", "http://nas:11434/v1/models"),
            ("https://api.openai.com/v1/", "https://api.openai.com/v1/models"),
            ("http://nas/api/v3", "http://nas/api/v3/models"),
        ] {
            assert_eq!(url(given), whole);
        }
    }

    #[test]
    fn what_is_no_address_is_rejected() {
        for (text, why) in [
            ("nas:10300", ServiceEndpointError::Form),
            ("ws://nas/v1", ServiceEndpointError::Form),
            ("http://user:key@nas/v1", ServiceEndpointError::Form),
            ("http://nas/v1?key=1", ServiceEndpointError::Form),
            ("http://nas?key=1", ServiceEndpointError::Form),
            ("http://nas/v1#x", ServiceEndpointError::Form),
            ("http:///v1", ServiceEndpointError::Form),
            ("tcp://nas:10300/v1", ServiceEndpointError::Form),
            ("tcp://nas", ServiceEndpointError::Port),
        ] {
            assert_eq!(ServiceEndpoint::parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn keys_stay_on_encrypted_and_private_ways() {
        let access = |text: &str| ServiceAccess::new(ServiceEndpoint::parse(text).expect(text), Some(Secret::new("k")));
        for (text, header) in [
            ("https://far.example.net/v1", ("authorization", "Bearer k")),
            ("http://192.168.1.7:8080/v1", ("authorization", "Bearer k")),
            ("http://localhost:8080/v1", ("authorization", "Bearer k")),
            ("https://me.openai.azure.com/openai/v1", ("api-key", "k")),
        ] {
            let sent = access(text).expect(text).header().expect("a header");
            assert_eq!((sent.0, sent.1.expose()), header, "{text}");
        }
        let refused = |text: &str| access(text).expect_err(text);
        assert_eq!(refused("http://far.example.net/v1"), ServiceEndpointError::InsecureKey);
        assert_eq!(refused("http://8.8.8.8/v1"), ServiceEndpointError::InsecureKey);
        assert_eq!(refused("tcp://localhost:10300"), ServiceEndpointError::UselessKey);
        let open = ServiceEndpoint::parse("http://far.example.net/v1").expect("an address");
        assert!(
            ServiceAccess::new(open, None)
                .expect("no key to protect")
                .header()
                .is_none()
        );
    }
}
