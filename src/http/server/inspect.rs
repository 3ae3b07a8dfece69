//! A connection's stream, whose requests are followed as they are read.
//!
//! In: a stream, and the [`FramingVerdict`] of its connection. Out: the same bytes, untouched; and, once
//! the HTTP library has made a request of them, whether it is to be refused for its framing. What
//! it says is `proto::request_framing`'s. Nothing is copied or kept of the bytes.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use hyper::header::{self, HeaderMap};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::stream::MaybeTlsStream;
use edge_runner_proto::server::request_framing::{self, Framing, Refusal};

/// What is known of the framing of a connection's requests.
#[derive(Debug)]
pub(super) struct FramingVerdict {
    /// Requests that the library has made.
    made: AtomicUsize,
    /// The first one whose length is ambiguous; beyond all when there is none.
    refused: AtomicUsize,
}

impl FramingVerdict {
    pub(super) fn new() -> Self {
        FramingVerdict {
            made: AtomicUsize::new(0),
            refused: AtomicUsize::new(usize::MAX),
        }
    }

    /// Judges the next request that the library has made. Its head has been read, so its place in
    /// the stream is known.
    ///
    /// # Errors
    /// Why it is to be refused.
    pub(super) fn judge(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let nth = self.made.fetch_add(1, Ordering::Relaxed);
        if nth >= self.refused.load(Ordering::Relaxed) {
            return Err(Refusal::TwoLengths);
        }
        let codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        request_framing::judge(codings.map(|coding| coding.as_bytes()))
    }
}

/// A stream whose requests are followed.
pub(super) struct InspectedStream<'v> {
    stream: MaybeTlsStream,
    framing: Framing,
    verdict: &'v FramingVerdict,
}

impl<'v> InspectedStream<'v> {
    pub(super) fn new(stream: MaybeTlsStream, verdict: &'v FramingVerdict) -> Self {
        InspectedStream {
            stream,
            framing: Framing::default(),
            verdict,
        }
    }

    /// Returns the stream, for what is no request any more.
    pub(super) fn into_inner(self) -> MaybeTlsStream {
        self.stream
    }
}

impl AsyncRead for InspectedStream<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let inspected = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut inspected.stream).poll_read(cx, buf))?;
        inspected.framing.handle(&buf.filled()[before..]);
        if let Some(nth) = inspected.framing.refused() {
            inspected.verdict.refused.store(nth, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for InspectedStream<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
