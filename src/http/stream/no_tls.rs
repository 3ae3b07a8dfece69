//! The TLS session type of a build without TLS: it has no values.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// An uninhabited TLS session.
#[derive(Debug)]
pub enum TlsStream {}

impl TlsStream {
    pub fn get_ref(&self) -> (&TcpStream, ()) {
        match *self {}
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(self: Pin<&mut Self>, _cx: &mut Context<'_>, _buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

impl AsyncWrite for TlsStream {
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
