//! A connection's bytes, with TLS around them or without.
//!
//! The one type that the HTTP server, the WebSockets and the upgrade between them share, so that no room but the one that
//! accepts knows which of the two a caller chose.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[cfg(not(feature = "tls"))]
mod no_tls;

#[cfg(not(feature = "tls"))]
use no_tls::TlsStream;

/// TLS around a connection.
#[cfg(feature = "tls")]
type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// An accepted connection.
#[derive(Debug)]
pub enum MaybeTlsStream {
    Plain(TcpStream),
    /// On the heap: the state of TLS is a kilobyte, and most connections have none.
    Tls(Box<TlsStream>),
}

impl MaybeTlsStream {
    /// Returns the socket below, for its options; who writes to it past TLS breaks the connection.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            MaybeTlsStream::Plain(tcp) => tcp,
            MaybeTlsStream::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Tells whether nobody on the way can read what is sent.
    pub fn is_secure(&self) -> bool {
        matches!(self, MaybeTlsStream::Tls(_))
    }
}

impl AsyncRead for MaybeTlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            MaybeTlsStream::Tls(tls) => Pin::new(tls.as_mut()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for MaybeTlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            MaybeTlsStream::Tls(tls) => Pin::new(tls.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            MaybeTlsStream::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            MaybeTlsStream::Tls(tls) => Pin::new(tls.as_mut()).poll_shutdown(cx),
        }
    }
}
