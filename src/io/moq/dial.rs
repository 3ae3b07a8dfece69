//! Connections to a relay.
//!
//! In: the URL of `--moq-connect`. Out: a connection whose handshake begins, or the reason why
//! there is none. Each attempt of a session looks the name up again and takes the next of its
//! addresses: first the one that answered last, then IPv6 and IPv4 in turn. The relay's
//! certificate is verified by the system's authorities. With `http://`, it is that whose hash the
//! relay publishes at `/certificate.sha256` over plain HTTP, as MoQ clients do in development; who
//! can change that answer on the way can take the relay's place, so start-up and doctor warn. With
//! `--moq-tls-insecure` any is accepted. Source: `docs/spec/moq.md`; `moq-native`'s documentation
//! of its client.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use edge_runner_http::common::lock;
use sha2::{Digest as _, Sha256};
use tokio::net::lookup_host;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::arrivals::NoArrivals;
use super::certificate::native_roots;
use super::port::{ConnectionInbox, MoqPort};
use crate::io::addresses::local_address_towards;
use crate::io::rest;
use crate::io::services::Services;
use crate::io::tasks;
use crate::limits::{REST_ADDRESSES_MAX, REST_CONNECT};
use crate::proto::moq::link::{LinkTarget, MoqLink, client_config};
use crate::proto::moq::relay_url::RelayUrl;
use crate::proto::server::rest::{RestMethod, RestRequest};

/// Opens connections to one relay.
pub struct Dialer {
    port: Arc<MoqPort>,
    url: RelayUrl,
    trust: RelayTrust,
    roots: OnceCell<Arc<RootCertStore>>,
    /// The address that answered last.
    answered: Mutex<Option<IpAddr>>,
    /// The hash that the relay last published, of an `http` URL.
    published: Mutex<Option<CertificateHash>>,
}

/// The SHA-256 hash of a certificate.
pub type CertificateHash = [u8; 32];

/// The certificates that are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayTrust {
    /// With an `http` URL that whose hash is published, otherwise those of the system's
    /// authorities.
    ByUrl,
    /// That with this hash.
    Hash(CertificateHash),
    Any,
}

impl RelayTrust {
    /// Returns the certificates that `--moq-tls-insecure` lets in, or its absence.
    pub fn of(is_insecure: bool) -> RelayTrust {
        match is_insecure {
            true => RelayTrust::Any,
            false => RelayTrust::ByUrl,
        }
    }
}

impl Dialer {
    /// Binds the local port, and starts to read it.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn start(
        url: RelayUrl,
        bind: Option<SocketAddr>,
        trust: RelayTrust,
        services: &Services,
    ) -> io::Result<(Arc<Dialer>, tokio::task::AbortHandle)> {
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        let port = MoqPort::bind(bind.unwrap_or(any), None)?;
        let reading = port.clone().run(Arc::new(NoArrivals));
        let reader = services.spawn("the reader of the UDP port of Media over QUIC", reading);
        let dialer = Dialer {
            port,
            url,
            trust,
            roots: OnceCell::new(),
            answered: Mutex::new(None),
            published: Mutex::new(None),
        };
        Ok((Arc::new(dialer), reader.abort_handle()))
    }

    pub fn port(&self) -> &Arc<MoqPort> {
        &self.port
    }

    /// Remembers the address of the relay that answered.
    pub fn note_answer(&self, address: IpAddr) {
        *lock(&self.answered) = Some(address);
    }

    /// Returns the hash that the relay last published for its certificate, in Base64; `None`
    /// without an `http` URL.
    pub fn published_hash(&self) -> Option<String> {
        lock(&self.published).map(|hash| BASE64.encode(&hash))
    }

    /// Begins a connection. `attempt` counts those of a session that were not answered.
    ///
    /// # Errors
    /// Returns the reason, for the log and the caller of `/start`.
    pub async fn dial(self: Arc<Self>, attempt: usize) -> Result<(MoqLink, ConnectionInbox), String> {
        let (host, port) = (self.url.host(), self.url.port());
        let found = timeout(REST_CONNECT, lookup_host((host, port))).await;
        let found = found.map_err(|_| format!("looking up {host} took too long"))?;
        let found: Vec<SocketAddr> = found.map_err(|error| format!("looking up {host}: {error}"))?.collect();
        let answered = *lock(&self.answered);
        let reachable: Vec<SocketAddr> = interleave_families(&found, answered)
            .filter(|address| self.port.serves(address.ip()) && local_address_towards(*address).is_some())
            .take(REST_ADDRESSES_MAX)
            .collect();
        let Some(remote) = reachable.get(attempt % reachable.len().max(1)) else {
            return Err(format!("this machine has no route to an address of {host}"));
        };
        let target = LinkTarget {
            authority: self.url.authority(),
            path: self.url.path().to_owned(),
        };
        let tls = self.tls_config().await?;
        let config = client_config(tls).map_err(|error| error.to_string())?;
        let now = tasks::now();
        let (connection, inbox) = self
            .port
            .connect(config, *remote, host, now)
            .map_err(|error| error.to_string())?;
        Ok((MoqLink::client(connection, target, now), inbox))
    }

    async fn tls_config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?;
        let expected = match (self.trust, self.url.is_plain_http()) {
            (RelayTrust::Any, _) => None,
            (RelayTrust::Hash(hash), _) => Some(hash),
            (RelayTrust::ByUrl, true) => Some(self.fetch_hash().await?),
            (RelayTrust::ByUrl, false) => {
                let roots = self.roots.get_or_try_init(load_roots).await?;
                let config = builder.with_root_certificates(roots.clone());
                return Ok(config.with_no_client_auth());
            }
        };
        let verifier = Arc::new(RelayVerifier { expected, provider });
        let config = builder.dangerous().with_custom_certificate_verifier(verifier);
        Ok(config.with_no_client_auth())
    }

    /// Reads the hash of the relay's certificate, in hexadecimal digits, from the relay.
    async fn fetch_hash(&self) -> Result<CertificateHash, String> {
        let url = format!("http://{}/certificate.sha256", self.url.authority());
        let request = RestRequest {
            method: RestMethod::Get,
            url,
            authorization: None,
            body: None,
        };
        let response = rest::send(&request).await.map_err(|error| error.to_string())?;
        let hash = HEXLOWER_PERMISSIVE.decode(response.body.trim_ascii());
        match (response.status, hash.ok().and_then(|hash| hash.try_into().ok())) {
            (200, Some(hash)) => {
                *lock(&self.published) = Some(hash);
                Ok(hash)
            }
            (status, _) => Err(format!("{} has no hash at /certificate.sha256: {status}", self.url)),
        }
    }
}

/// Returns the address that answered, then the others with the families in turn, beginning with the
/// first one.
fn interleave_families(found: &[SocketAddr], answered: Option<IpAddr>) -> impl Iterator<Item = SocketAddr> {
    let has_answered = move |address: &&SocketAddr| Some(address.ip()) == answered;
    let others = move || found.iter().filter(move |address| !has_answered(address));
    let is_v4 = others().next().is_some_and(SocketAddr::is_ipv4);
    let mut first = others().filter(move |address| address.is_ipv4() == is_v4);
    let mut second = others().filter(move |address| address.is_ipv4() != is_v4);
    let mut takes_first = false;
    let interleave_families = std::iter::from_fn(move || {
        takes_first = !takes_first;
        match takes_first {
            true => first.next().or_else(|| second.next()),
            false => second.next().or_else(|| first.next()),
        }
    });
    found
        .iter()
        .filter(has_answered)
        .take(1)
        .chain(interleave_families)
        .copied()
}

async fn load_roots() -> Result<Arc<RootCertStore>, String> {
    // Some hundred kilobytes of files: not in the way of the media tasks.
    let load = tokio::task::spawn_blocking(|| Arc::new(native_roots()));
    match load.await {
        Ok(roots) if !roots.is_empty() => Ok(roots),
        _ => Err("no certificates to trust were found on this system; install the package `ca-certificates`".into()),
    }
}

/// Accepts the certificate with this hash, or any.
#[derive(Debug)]
struct RelayVerifier {
    expected: Option<CertificateHash>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for RelayVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.expected {
            Some(expected) if Sha256::digest(certificate)[..] != expected[..] => Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    /// QUIC has no TLS 1.2.
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(
            tokio_rustls::rustls::PeerIncompatible::Tls12NotOffered,
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_families_take_turns() {
        let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        let (a, b, c) = (address("[::1]:1"), address("[::2]:1"), address("192.0.2.1:1"));
        let order = |found: &[SocketAddr], answered: Option<SocketAddr>| -> Vec<SocketAddr> {
            interleave_families(found, answered.map(|address| address.ip())).collect()
        };
        assert_eq!(order(&[a, b, c], None), [a, c, b]);
        assert_eq!(order(&[c, a, b], None), [c, a, b]);
        assert_eq!(order(&[a, b, c], Some(b)), [b, a, c], "the one that answered is first");
        assert_eq!(order(&[a, c], Some(b)), [a, c], "it has no such address any more");
        assert_eq!(order(&[], Some(b)), []);
    }
}
