//! Replaces `tls::acme` in a build without the feature `acme`: it is never opened.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::CurrentCertificate;
use super::auto::BoxError;
use edge_runner_proto::config::TlsSettings;

/// The protocol of a validation.
pub const VALIDATION_ALPN: &[u8] = b"acme-tls/1";

/// Never constructed.
pub enum AcmeTls {}

impl AcmeTls {
    /// # Errors
    /// Always: options reject `--tls acme` in this build.
    pub fn open(_settings: &TlsSettings, _provider: Arc<CryptoProvider>) -> Result<AcmeTls, BoxError> {
        Err("ACME is not in this build".into())
    }

    pub fn set_port(&self, _port: u16) {
        match *self {}
    }

    pub fn retry(&self) {
        match *self {}
    }

    pub async fn run(self: Arc<Self>) {
        match *self {}
    }
}

/// Never constructed.
pub struct CertificateByName {
    pub own: Arc<CurrentCertificate>,
    pub acme: Arc<AcmeTls>,
}

impl ResolvesServerCert for CertificateByName {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match *self.acme {}
    }
}

impl fmt::Debug for CertificateByName {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.acme {}
    }
}
