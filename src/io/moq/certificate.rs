//! The TLS certificate of Media over QUIC in serve mode.
//!
//! In: the configured source, the names of this machine, the clock; later SIGHUP. Out: the TLS
//! configuration for QUIC, and the hash of the served certificate for browsers if it is
//! self-signed. A new certificate applies to new connections; calls keep theirs. A renewal and the
//! registration of a session exclude each other, so a caller connects to the certificate whose hash
//! it received (`proto::moq::certificate` says when). SIGHUP waits for no caller: one that received
//! the hash of the certificate before and has not connected yet has to ask again. Rejects, before
//! anything listens: files that are missing, not PEM, or do not match. A later failure keeps the
//! old certificate. The files of `--tls` are judged again each time they are read.

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
use crate::proto::moq::certificate::{is_renewal_due, refusal_by_hash, validity};
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
    files: Option<MoqCertificateFiles>,
    /// The names of a certificate that the runner makes.
    names: Vec<String>,
    /// The validity of the served certificate if the runner made it.
    made: Mutex<Option<Validity>>,
    provider: Arc<CryptoProvider>,
    waiting: WaitingRegistry,
}

/// Files of a certificate and its key.
struct MoqCertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// They are those of `--tls`, and served only while this system trusts their authority.
    are_of_https: bool,
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
        let files = |certificate: &Path, key: &Path, are_of_https| MoqCertificateFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            are_of_https,
        };
        let (files, names) = match settings {
            MoqCertificate::Files { certificate, key } => (Some(files(certificate, key, false)), host_names.to_vec()),
            MoqCertificate::FilesOfTls { certificate, key } => {
                (Some(files(certificate, key, true)), host_names.to_vec())
            }
            MoqCertificate::SelfSigned { host: Some(host) } => (None, vec![host.clone()]),
            MoqCertificate::SelfSigned { host: None } => (None, host_names.to_vec()),
        };
        let read = match &files {
            Some(files) => files.read(&provider)?,
            None => None,
        };
        let (made, first) = match read {
            Some(read) => (None, read),
            None => {
                let (validity, made) = make(&names, &provider)?;
                (Some(validity), made)
            }
        };
        Ok(Arc::new(ServedCertificate {
            current: Arc::new(CurrentCertificate::new(first)),
            files,
            names,
            made: Mutex::new(made),
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
        is_self_signed(first).then(|| hash(first)).flatten()
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
    Ok(hash(&first_of_file(path)?))
}

fn first_of_file(path: &Path) -> Result<CertificateDer<'static>, MoqCertificateError> {
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    let text = read(path)?;
    let first = CertificateDer::pem_slice_iter(&text).next().and_then(Result::ok);
    first.ok_or_else(|| MoqCertificateError::File {
        path: path.to_owned(),
        source: TlsFileError::NoCertificate,
    })
}

/// Logs a warning if `/start` cannot give the hash of the relay's certificate in this file, or
/// browsers refuse the certificate by it. Blocks.
pub fn warn_of_relay_file(path: &Path) {
    match first_of_file(path) {
        Ok(first) => warn_of_refusal(&first, path),
        Err(error) => log::warn!("--moq-tls-cert: {error}; /start fails until the file is right"),
    }
}

/// Logs a warning if browsers refuse this certificate by its hash.
fn warn_of_refusal(certificate: &CertificateDer<'_>, path: &Path) {
    let refused = Certificate::read(certificate)
        .ok()
        .and_then(|parsed| refusal_by_hash(&parsed, unix_time_s()));
    if let Some(refused) = refused {
        log::warn!(
            "browsers refuse the certificate {} for Media over QUIC by its hash: {refused}",
            path.display()
        );
    }
}

impl MoqCertificateFiles {
    /// Reads the files; `None` if they are not to be served.
    fn read(&self, provider: &CryptoProvider) -> Result<Option<Arc<CertifiedKey>>, MoqCertificateError> {
        let read = read_files(&self.certificate, &self.key, provider)?;
        if self.are_of_https && !is_trusted(&read.cert, &native_roots()) {
            log::info!(
                "this system does not trust the authority of {}; Media over QUIC has a self-signed certificate, which \
                 callers accept by its hash",
                self.certificate.display()
            );
            return Ok(None);
        }
        if let Some(first) = read.cert.first().filter(|first| is_self_signed(first)) {
            warn_of_refusal(first, &self.certificate);
        }
        Ok(Some(read))
    }
}

fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    Certificate::read(certificate).is_ok_and(|parsed| parsed.is_self_issued())
}

impl WatchedCertificate for ServedCertificate {
    fn reload(&self) {
        let Some(files) = &self.files else {
            return self.renew_if_due();
        };
        match files.read(&self.provider) {
            Ok(Some(read)) => {
                let mut made = lock(&self.made);
                self.current.set(read);
                *made = None;
                log::info!("SIGHUP: the certificate of Media over QUIC was read again");
            }
            Ok(None) => {
                self.make_if(|made| made.is_none());
                self.renew_if_due();
            }
            Err(error) => log::error!("SIGHUP: the certificate of Media over QUIC stays as it was: {error}"),
        }
    }

    fn renew_if_due(&self) {
        // Held until the new certificate is served, so that no session registers in between.
        let waiting = self.waiting.lock();
        let is_due = |served| is_renewal_due(served, unix_time_s(), waiting.len());
        self.make_if(|made| made.is_some_and(is_due));
    }
}

impl ServedCertificate {
    /// Makes a certificate and serves it, if the validity of the one that was made before asks for
    /// it.
    fn make_if(&self, is_wanted: impl FnOnce(Option<Validity>) -> bool) {
        let mut made = lock(&self.made);
        if !is_wanted(*made) {
            return;
        }
        match make(&self.names, &self.provider) {
            Ok((validity, next)) => {
                self.current.set(next);
                *made = Some(validity);
                log::info!("the certificate of Media over QUIC was renewed");
            }
            Err(error) => log::error!("the certificate of Media over QUIC could not be renewed: {error}"),
        }
    }
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

/// Returns the authorities that this system trusts. Blocks.
pub fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Returns whether one of these authorities issued a certificate that is valid now. Browsers accept
/// no other for QUIC, except by its hash.
pub fn is_trusted(chain: &[CertificateDer<'static>], roots: &RootCertStore) -> bool {
    let [first, intermediates @ ..] = chain else {
        return false;
    };
    let algorithms = ring::default_provider().signature_verification_algorithms;
    ParsedCertificate::try_from(first).is_ok_and(|parsed| {
        let now = UnixTime::now();
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms.all).is_ok()
    })
}

#[cfg(test)]
mod tests;
