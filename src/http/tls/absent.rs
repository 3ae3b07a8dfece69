//! The twin of `io::tls` in a build without `tls`, which refuses `--tls` when it reads the arguments: plain HTTP alone.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::notify;
use crate::shutdown::Shutdown;
use crate::stream::Stream;
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
pub enum Tls {}

impl Tls {
    /// # Errors
    /// None.
    pub fn open(_settings: &TlsSettings) -> Result<Option<Arc<Tls>>, TlsError> {
        Ok(None)
    }

    /// # Errors
    /// None.
    pub async fn accept(&self, _tcp: TcpStream) -> io::Result<Stream> {
        match *self {}
    }

    pub fn authority(&self) -> Option<Bytes> {
        match *self {}
    }
}

/// Listens for SIGHUP, since that would end the process otherwise.
pub struct Keeper(Signal);

impl Keeper {
    /// Starts to listen.
    ///
    /// # Errors
    /// The operating system's.
    pub fn listen() -> io::Result<Keeper> {
        signal(SignalKind::hangup()).map(Keeper)
    }

    /// Answers every SIGHUP, until the end.
    pub async fn run(mut self, _tls: Option<Arc<Tls>>, mut shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.wait() => return,
                received = self.0.recv() => {
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

/// A connection inside TLS, of which there is none.
#[derive(Debug)]
pub enum Layer {}

impl Layer {
    pub fn get_ref(&self) -> (&TcpStream, ()) {
        match *self {}
    }
}

impl AsyncRead for Layer {
    fn poll_read(self: Pin<&mut Self>, _cx: &mut Context<'_>, _buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

impl AsyncWrite for Layer {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, _bytes: &[u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}
