//! An accepted connection, with or without TLS.
//!
//! The HTTP server, the WebSockets and the upgrade between them share this type, so only the
//! acceptor knows whether a client uses TLS.

#[cfg_attr(not(feature = "tls"), path = "stream/no_tls.rs")]
mod tls_stream;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use self::tls_stream::TlsStream;

/// An accepted connection.
#[derive(Debug)]
pub enum MaybeTlsStream {
    Plain(TcpStream),
    /// Boxed: a TLS session takes a kilobyte, and most connections have none.
    Tls(Box<TlsStream>),
}

impl MaybeTlsStream {
    /// Returns the TCP socket, for its options. Writing to it directly would break TLS.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            MaybeTlsStream::Plain(tcp) => tcp,
            MaybeTlsStream::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Tells whether the connection is encrypted.
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
