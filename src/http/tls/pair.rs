//! A certificate and its key in PEM, checked against each other.
//!
//! In: the bytes of one file with both, or of two files. Out: a [`CertificatePair`], or a
//! [`TlsFileError`]. Trust in the certificate is not checked here.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, InconsistentKeys};

use edge_runner_proto::server::tls::parsed::Certificate;

/// A certificate with its chain and its key.
#[derive(Debug)]
pub struct CertificatePair {
    pub key: Arc<CertifiedKey>,
    /// The parsed first certificate.
    pub certificate: Certificate,
}

/// What is wrong with a certificate or its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFileError {
    /// There is no certificate in PEM form.
    #[error("there is no certificate in it, in PEM form (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// The first certificate is invalid.
    #[error("its first certificate cannot be read")]
    BadCertificate,
    /// There is no key in PEM form.
    #[error("there is no private key in it, in PEM form (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
    /// The key is encrypted with a password.
    #[error(
        "its private key is encrypted, and the runner cannot ask for the password; `openssl pkey -in FILE -out NEW` \
         removes it"
    )]
    Encrypted,
    #[error("its private key cannot be used: {0}")]
    BadKey(String),
    /// The key belongs to another certificate.
    #[error("its private key is that of another certificate")]
    Mismatch,
}

impl TlsFileError {
    /// Tells whether the fault is in the key rather than the certificate.
    pub fn is_of_key(&self) -> bool {
        matches!(
            self,
            TlsFileError::NoKey | TlsFileError::Encrypted | TlsFileError::BadKey(_) | TlsFileError::Mismatch
        )
    }
}

impl CertificatePair {
    /// Parses certificates and a key; both arguments may be the same text.
    ///
    /// # Errors
    /// Returns a [`TlsFileError`] that says what is wrong.
    pub fn read(certificates: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<CertificatePair, TlsFileError> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<_, _>>()
            .map_err(|_| TlsFileError::NoCertificate)?;
        let first = chain.first().ok_or(TlsFileError::NoCertificate)?;
        let certificate = Certificate::read(first).map_err(|_| TlsFileError::BadCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
            match key.windows(encrypted.len()).any(|words| words == encrypted) {
                true => TlsFileError::Encrypted,
                false => TlsFileError::NoKey,
            }
        })?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsFileError::Mismatch,
            Error::InvalidCertificate(_) => TlsFileError::BadCertificate,
            other => TlsFileError::BadKey(other.to_string()),
        })?;
        Ok(CertificatePair {
            key: Arc::new(key),
            certificate,
        })
    }
}
