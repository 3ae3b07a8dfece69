//! The twin of `io::tls` in a build without `tls`, which refuses `--tls` when it reads the arguments: plain HTTP alone.

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

/// Why there is no HTTPS; there never was any.
#[derive(Debug)]
pub enum TlsError {}

impl std::error::Error for TlsError {}

impl fmt::Display for TlsError {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// TLS for the server's connections, which is always off.
pub enum ServerTls {}

impl ServerTls {
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

    pub fn authority(&self) -> Option<Bytes> {
        match *self {}
    }
}

/// Listens for SIGHUP, since that would end the process otherwise.
pub struct CertificateWatcher(Option<Signal>);

impl CertificateWatcher {
    /// Starts to listen.
    ///
    /// # Errors
    /// The operating system's.
    pub fn listen() -> io::Result<CertificateWatcher> {
        Ok(CertificateWatcher(Some(signal(SignalKind::hangup())?)))
    }

    /// Leaves the signals of the process alone.
    pub fn without_signals() -> CertificateWatcher {
        CertificateWatcher(None)
    }

    /// Answers every SIGHUP, until the end.
    pub async fn run(self, _tls: Option<Arc<ServerTls>>, mut shutdown: Shutdown) {
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
                    log::info!("SIGHUP: there is no certificate to read again");
                    notify::reloaded();
                }
            }
        }
    }
}
