//! A stream wrapper that checks the framing of requests while they are read.
//!
//! In: a stream, and the [`FramingVerdict`] of its connection. Out: the same bytes, unchanged, and
//! whether a request that hyper has parsed has to be rejected for its framing. The rules are in
//! `proto::server::request_framing`. Nothing is copied or stored.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use hyper::header::{self, HeaderMap};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::stream::MaybeTlsStream;
use edge_runner_proto::server::request_framing::{self, FramingError, RequestFraming};

/// The framing of a connection's requests, as far as it is known.
#[derive(Debug)]
pub(super) struct FramingVerdict {
    /// Requests that hyper has parsed.
    made: AtomicUsize,
    /// The first request of ambiguous length; `usize::MAX` if there is none.
    refused: AtomicUsize,
}

impl FramingVerdict {
    pub(super) fn new() -> Self {
        FramingVerdict {
            made: AtomicUsize::new(0),
            refused: AtomicUsize::new(usize::MAX),
        }
    }

    /// Checks the next request that hyper has parsed. Its head has been read, so its index is
    /// known.
    ///
    /// # Errors
    /// Returns why the request has to be rejected.
    pub(super) fn judge(&self, headers: &HeaderMap) -> Result<(), FramingError> {
        let nth = self.made.fetch_add(1, Ordering::Relaxed);
        if nth >= self.refused.load(Ordering::Relaxed) {
            return Err(FramingError::TwoLengths);
        }
        let codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        request_framing::check_transfer_codings(codings.map(|coding| coding.as_bytes()))
    }
}

/// A stream whose requests are checked.
pub(super) struct InspectedStream<'v> {
    stream: MaybeTlsStream,
    framing: RequestFraming,
    verdict: &'v FramingVerdict,
}

impl<'v> InspectedStream<'v> {
    pub(super) fn new(stream: MaybeTlsStream, verdict: &'v FramingVerdict) -> Self {
        InspectedStream {
            stream,
            framing: RequestFraming::default(),
            verdict,
        }
    }

    /// Returns the stream, for an upgraded connection.
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
        if let Some(nth) = inspected.framing.first_ambiguous() {
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
