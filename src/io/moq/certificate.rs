//! The TLS certificate of Media over QUIC in serve mode.
//!
//! In: the configured source, the names of this machine, the clock; later SIGHUP. Out: the TLS
//! configuration for QUIC, and the hash of the served certificate for browsers if it is
//! self-signed. A new certificate applies to new connections; calls keep theirs. A renewal and the
//! registration of a session exclude each other, so a caller connects to the certificate whose hash
//! it received (`proto::moq::certificate` says when). Rejects, before anything listens: files that
//! are missing, not PEM, or do not match. A later failure keeps the old certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use data_encoding::BASE64;
use edge_runner_http::common::{lock, unix_time_s};
use edge_runner_http::store;
use edge_runner_http::tls::pair::{CertificatePair, TlsFileError};
use edge_runner_http::tls::{CurrentCertificate, WatchedCertificate, addresses};
use rcgen::KeyPair;
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ParsedCertificate};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use super::arrivals::WaitingRegistry;
use crate::proto::moq::certificate::{is_renewal_due, validity};
use crate::proto::moq::config::MoqCertificate;
use crate::proto::server::tls::parsed::Certificate;
use crate::proto::server::tls::{CertificateName, Validity, certificate_names, issue};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum MoqCertificateError {
    #[error("reading {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The contents of a file are unusable.
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: TlsFileError },
    #[error("making a certificate: {0}")]
    Make(String),
}

/// The certificate for new connections.
pub struct ServedCertificate {
    current: Arc<CurrentCertificate>,
    source: CertificateFrom,
    provider: Arc<CryptoProvider>,
    waiting: WaitingRegistry,
}

enum CertificateFrom {
    SelfSigned {
        names: Vec<String>,
        served: Mutex<Validity>,
    },
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
}

impl ServedCertificate {
    /// Reads or makes the certificate. `host_names` are the names of this machine. Blocks.
    ///
    /// # Errors
    /// Returns a [`MoqCertificateError`] that names the file and the fault.
    pub fn open(
        settings: &MoqCertificate,
        host_names: &[String],
        waiting: WaitingRegistry,
    ) -> Result<Arc<ServedCertificate>, MoqCertificateError> {
        let provider = Arc::new(ring::default_provider());
        let files = |certificate: &Path, key: &Path| CertificateFrom::Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        let (source, first) = match settings {
            MoqCertificate::Files { certificate, key } => {
                (files(certificate, key), read_files(certificate, key, &provider)?)
            }
            MoqCertificate::FilesOfTls { certificate, key } => {
                let read = read_files(certificate, key, &provider)?;
                match is_trusted(&read.cert) {
                    true => (files(certificate, key), read),
                    false => self_signed(host_names.to_vec(), &provider)?,
                }
            }
            MoqCertificate::SelfSigned { host: Some(host) } => self_signed(vec![host.clone()], &provider)?,
            MoqCertificate::SelfSigned { host: None } => self_signed(host_names.to_vec(), &provider)?,
        };
        Ok(Arc::new(ServedCertificate {
            current: Arc::new(CurrentCertificate::new(first)),
            source,
            provider,
            waiting,
        }))
    }

    /// Returns the TLS configuration of a QUIC server, without its ALPN protocols.
    ///
    /// # Errors
    /// Returns an error of the library.
    pub fn tls_config(&self) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(self.current.clone());
        // A caller connects once, and a resumed session would keep an old certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// Returns the hash of the certificate for new connections, in Base64; `None` if an authority
    /// signed it. Call it after the session of the caller was registered, so that no renewal
    /// follows.
    pub fn hash(&self) -> Option<String> {
        // The clock may have jumped since the last check.
        self.renew_if_due();
        let current = self.current.get();
        let first = current.cert.first()?;
        let parsed = Certificate::read(first).ok()?;
        (parsed.subject == parsed.issuer).then(|| hash(first)).flatten()
    }
}

/// Returns the SHA-256 hash of a certificate in DER, in Base64.
fn hash(certificate: &CertificateDer<'_>) -> Option<String> {
    Some(BASE64.encode(&Sha256::digest(certificate)))
}

/// Returns the hash of the first certificate of a PEM file.
///
/// # Errors
/// Returns a [`MoqCertificateError`] that names the file and the fault.
pub fn hash_of_file(path: &Path) -> Result<Option<String>, MoqCertificateError> {
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    let text = read(path)?;
    let first = CertificateDer::pem_slice_iter(&text).next().and_then(Result::ok);
    let first = first.ok_or_else(|| MoqCertificateError::File {
        path: path.to_owned(),
        source: TlsFileError::NoCertificate,
    })?;
    Ok(hash(&first))
}

impl WatchedCertificate for ServedCertificate {
    fn reload(&self) {
        let CertificateFrom::Files { certificate, key } = &self.source else {
            return self.renew_if_due();
        };
        match read_files(certificate, key, &self.provider) {
            Ok(read) => {
                self.current.set(read);
                log::info!("SIGHUP: the certificate of Media over QUIC was read again");
            }
            Err(error) => log::error!("SIGHUP: the certificate of Media over QUIC stays as it was: {error}"),
        }
    }

    fn renew_if_due(&self) {
        let CertificateFrom::SelfSigned { names, served } = &self.source else {
            return;
        };
        // Held until the new certificate is served, so that no session registers in between.
        let waiting = self.waiting.lock();
        let mut served = lock(served);
        if !is_renewal_due(*served, unix_time_s(), waiting.len()) {
            return;
        }
        match make(names, &self.provider) {
            Ok((validity, next)) => {
                self.current.set(next);
                *served = validity;
                log::info!("the certificate of Media over QUIC was renewed");
            }
            Err(error) => log::error!("the certificate of Media over QUIC could not be renewed: {error}"),
        }
    }
}

fn self_signed(
    names: Vec<String>,
    provider: &CryptoProvider,
) -> Result<(CertificateFrom, Arc<CertifiedKey>), MoqCertificateError> {
    let (validity, first) = make(&names, provider)?;
    let served = Mutex::new(validity);
    Ok((CertificateFrom::SelfSigned { names, served }, first))
}

/// Makes a certificate for one name, or for all names and addresses of this machine.
fn make(names: &[String], provider: &CryptoProvider) -> Result<(Validity, Arc<CertifiedKey>), MoqCertificateError> {
    let failed = |error: &dyn std::fmt::Display| MoqCertificateError::Make(error.to_string());
    let names: Vec<CertificateName> = certificate_names(names, &addresses());
    let validity = validity(unix_time_s());
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let der = issue::self_signed(&names, validity, &key).map_err(|error| failed(&error))?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let made = CertifiedKey::from_der(vec![der.into()], key.into(), provider).map_err(|error| failed(&error))?;
    Ok((validity, Arc::new(made)))
}

fn read(path: &Path) -> Result<Vec<u8>, MoqCertificateError> {
    store::read_bounded(path).map_err(|source| MoqCertificateError::Read {
        path: path.to_owned(),
        source,
    })
}

fn read_files(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, MoqCertificateError> {
    let pair = CertificatePair::read(&read(certificate)?, &read(key)?, provider);
    let pair = pair.map_err(|source| MoqCertificateError::File {
        path: if source.is_of_key() { key } else { certificate }.to_owned(),
        source,
    })?;
    Ok(pair.key)
}

/// Returns whether this system trusts the authority of a certificate. Browsers accept no other for
/// QUIC, except by its hash.
fn is_trusted(chain: &[CertificateDer<'static>]) -> bool {
    let [first, intermediates @ ..] = chain else {
        return false;
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let algorithms = ring::default_provider().signature_verification_algorithms;
    ParsedCertificate::try_from(first).is_ok_and(|parsed| {
        let now = UnixTime::now();
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, now, algorithms.all).is_ok()
    })
}

#[cfg(test)]
mod tests;
