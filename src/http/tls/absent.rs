//! Replaces `tls` in a build without the feature `tls`: plain HTTP only.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::notify;
use crate::shutdown::Shutdown;
use crate::stream::MaybeTlsStream;
use edge_runner_proto::config::TlsSettings;

/// Never constructed.
#[derive(Debug)]
pub enum TlsError {}

impl std::error::Error for TlsError {}

impl fmt::Display for TlsError {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// Never constructed: TLS is always off.
pub enum ServerTls {}

impl ServerTls {
    /// Returns `None`.
    ///
    /// # Errors
    /// None.
    pub fn open(_settings: &TlsSettings) -> Result<Option<Arc<ServerTls>>, TlsError> {
        Ok(None)
    }

    /// # Errors
    /// None.
    pub async fn accept(&self, _tcp: TcpStream) -> io::Result<MaybeTlsStream> {
        match *self {}
    }

    pub fn set_port(&self, _port: u16) {
        match *self {}
    }

    pub fn authority(&self) -> Option<Bytes> {
        match *self {}
    }

    pub fn log_authority(&self) {
        match *self {}
    }
}

/// Never implemented.
pub trait WatchedCertificate: Send + Sync + 'static {}

/// Listens for SIGHUP, whose default action would end the process.
pub struct CertificateWatcher(Option<Signal>);

impl CertificateWatcher {
    /// Starts to listen.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn listen() -> io::Result<CertificateWatcher> {
        Ok(CertificateWatcher(Some(signal(SignalKind::hangup())?)))
    }

    /// Creates a watcher that ignores SIGHUP.
    pub fn without_signals() -> CertificateWatcher {
        CertificateWatcher(None)
    }

    /// Answers every SIGHUP, until shutdown.
    pub async fn run(
        self,
        _tls: Option<Arc<ServerTls>>,
        _other: Option<Arc<dyn WatchedCertificate>>,
        mut shutdown: Shutdown,
    ) {
        let Some(mut hangups) = self.0 else {
            return shutdown.wait().await;
        };
        loop {
            tokio::select! {
                () = shutdown.wait() => return,
                received = hangups.recv() => {
                    if received.is_none() {
                        return;
                    }
                    log::debug!("SIGHUP: there is no certificate to read again");
                    notify::reloaded();
                }
            }
        }
    }
}
