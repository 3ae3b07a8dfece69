//! One connection: hyper around its socket, and the timeouts that close it.
//!
//! In: an accepted stream. Out: nothing; it returns when the connection is closed. hyper's own
//! timers cost an allocation and two locks per request and cannot tell an idle client from a slow
//! one, so the timeouts are kept here: the socket and the service set the phase, and [`Timeouts`]
//! turns phase and time into a deadline. One timer serves a connection, and a request costs one
//! clock reading.

use std::convert::Infallible;
use std::future::{Future as _, pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use log::debug;
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, timeout_at};

use crate::common::{ConnLimits, PeerInfo, Reply, UpgradeSlot, lock};
use crate::server::inspect::{FramingVerdict, InspectedStream};
use crate::server::{ConnPhase, ConnState, HttpService};
use crate::shutdown::Shutdown;
use crate::stream::MaybeTlsStream;
use edge_runner_proto::limits;
use edge_runner_proto::server::sniff::SniffedProtocol;

/// Serves one connection until it closes.
pub(super) async fn serve<S: HttpService>(
    tcp: TcpStream,
    peer: SocketAddr,
    server: Arc<S>,
    state: &Arc<ConnState>,
    mut shutdown: Shutdown,
) {
    let accepted = Instant::now();
    let conn_limits = server.conn_limits();
    // Responses are written whole; Nagle's algorithm would only delay them.
    if let Err(error) = tcp.set_nodelay(true) {
        debug!("{peer}: {error}");
    }
    let local = tcp.local_addr().ok();
    let deadline = accepted + conn_limits.first_head;
    let Some(stream) = open_in_time(tcp, peer, &*server, &mut shutdown, deadline).await else {
        return;
    };
    let peer = PeerInfo::new(peer, local, stream.is_secure());
    let (upgrade_slot, verdict) = (UpgradeSlot::default(), FramingVerdict::new());
    let requests = RequestHandler {
        server: &*server,
        peer,
        state,
        upgrade_slot: &upgrade_slot,
        verdict: &verdict,
    };
    let tracked = TrackedIo {
        stream: TokioIo::new(InspectedStream::new(stream, &verdict)),
        state: state.clone(),
    };
    let service = service_fn(|request| requests.answer(request));
    let mut connection = http1_builder().serve_connection(tracked, service);
    let mut timeouts = Timeouts::new(conn_limits, accepted);
    let mut timer = pin!(tokio::time::sleep_until(timeouts.deadline()));
    let mut stop = pin!(shutdown.wait());
    let mut stopping = false;
    let ended = poll_fn(|cx| {
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(result.map_err(|error| ConnError::Broken(error.to_string())));
        }
        if !stopping && stop.as_mut().poll(cx).is_ready() {
            stopping = true;
            Pin::new(&mut connection).graceful_shutdown();
            cx.waker().wake_by_ref();
        }
        let too_slow = timeouts.poll(state, timer.as_mut(), cx);
        too_slow.map(|phase| Err(ConnError::TooSlow(phase)))
    });
    match ended.await {
        Ok(()) => {}
        Err(ConnError::Broken(why)) => debug!("{peer}: connection closed: {why}"),
        Err(ConnError::TooSlow(phase)) => return debug!("{peer}: connection closed: too slow ({phase:?})"),
    }
    let parts = connection.into_parts();
    let stream = parts.io.stream.into_inner().into_inner();
    let upgrade_slot = lock(&upgrade_slot).take();
    match upgrade_slot {
        Some(upgrade) => upgrade(stream, parts.read_buf),
        None if !stopping => linger(stream, conn_limits).await,
        None => {}
    }
}

/// Returns hyper's settings for a connection.
fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(limits::HTTP_HEAD_BYTES_MAX)
        .max_header_size(limits::HTTP_HEAD_BYTES_MAX)
        .max_headers(limits::HTTP_HEADERS_MAX)
        .half_close(true)
        .writev(false);
    builder
}

/// Handles the requests of one connection.
struct RequestHandler<'c, S> {
    server: &'c S,
    peer: PeerInfo,
    state: &'c Arc<ConnState>,
    upgrade_slot: &'c UpgradeSlot,
    verdict: &'c FramingVerdict,
}

impl<S: HttpService> RequestHandler<'_, S> {
    /// Sets the phase at once; the returned future makes the response.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Result<Reply, Infallible>> + Send {
        let RequestHandler {
            server,
            peer,
            state,
            upgrade_slot,
            verdict,
        } = *self;
        let holds_permit = state.set(match request.body().is_end_stream() {
            true => ConnPhase::Answer,
            false => ConnPhase::Body,
        });
        let framing = verdict.judge(request.headers());
        let waits = request.headers().contains_key(header::EXPECT) && !request.body().is_end_stream();
        async move {
            if !holds_permit {
                // Another connection has the permit, and this one is about to be closed.
                pending::<()>().await;
            }
            let mut reply = match framing {
                Ok(()) => server.answer(request, peer, state, upgrade_slot).await,
                Err(refusal) => {
                    debug!("{peer}: {refusal}");
                    server.reject_framing(refusal)
                }
            };
            // The next bytes may be a request or a body: neither of two lengths can be trusted, and
            // a client that got no `100 Continue` may leave its body out.
            if framing.is_err() || waits && reply.status().as_u16() >= 400 {
                let close = HeaderValue::from_static("close");
                reply.headers_mut().insert(header::CONNECTION, close);
            }
            // The response ends an upload, `100 Continue` does not.
            if is_upload(state.phase()) {
                state.set(ConnPhase::Answer);
            }
            Ok(reply)
        }
    }
}

/// Opens a connection before the deadline. Returns `None` if it closed or was handed over.
async fn open_in_time<S: HttpService>(
    tcp: TcpStream,
    peer: SocketAddr,
    server: &S,
    shutdown: &mut Shutdown,
    deadline: Instant,
) -> Option<MaybeTlsStream> {
    let open_in_time = tokio::select! {
        biased;
        () = shutdown.wait() => return None,
        open_in_time = timeout_at(deadline, open(tcp, peer, server)) => open_in_time,
    };
    match open_in_time {
        Ok(Ok(stream)) => return stream,
        Ok(Err(why)) => debug!("{peer}: connection closed: {why}"),
        Err(_) => debug!("{peer}: connection closed: too slow (before a request)"),
    }
    None
}

/// Detects the protocol of a connection and does the TLS handshake. Returns `None` if the
/// connection was handed over.
async fn open<S: HttpService>(tcp: TcpStream, peer: SocketAddr, server: &S) -> Result<Option<MaybeTlsStream>, String> {
    let mut first = [0];
    match tcp.peek(&mut first).await {
        Ok(0) => return Err("nothing came".into()),
        Ok(_) => {}
        Err(error) => return Err(error.to_string()),
    }
    match SniffedProtocol::from_first_byte(first[0]) {
        SniffedProtocol::Http => Ok(Some(MaybeTlsStream::Plain(tcp))),
        SniffedProtocol::Framed => {
            let taken = Box::pin(server.serve_framed(tcp, peer)).await;
            taken.map(|()| None).map_err(|error| error.to_string())
        }
        SniffedProtocol::Tls => {
            let tls = server.tls().ok_or("it speaks TLS, which is off; see --tls")?;
            // Boxed: a handshake takes a kilobyte, and most connections have none.
            let handshake = Box::pin(tls.accept(tcp)).await;
            handshake.map(Some).map_err(|error| format!("TLS handshake: {error}"))
        }
    }
}

/// Tells whether a long body is being read.
fn is_upload(phase: ConnPhase) -> bool {
    matches!(phase, ConnPhase::Receiving | ConnPhase::Upload)
}

/// Why a connection was closed before both sides had finished.
enum ConnError {
    /// hyper's error.
    Broken(String),
    TooSlow(ConnPhase),
}

/// Waits for the client to close its side. Closing earlier would reset the connection and lose the
/// response, which a rejection sends before the whole body has arrived.
async fn linger(mut stream: MaybeTlsStream, conn_limits: ConnLimits) {
    let drained = async {
        // An error means that the client is gone.
        stream.shutdown().await?;
        let mut left = conn_limits.linger_bytes;
        while left > 0 {
            match poll_fn(|cx| discard(&mut stream, cx)).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        Ok(())
    };
    // Timeout and error are fine too.
    let _: Result<io::Result<()>, _> = tokio::time::timeout(conn_limits.linger, drained).await;
}

/// Reads and discards. The buffer is on the stack, because the connection's task lives for long.
fn discard(stream: &mut MaybeTlsStream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let mut buffer = [0; 4096];
    let mut buffer = ReadBuf::new(&mut buffer);
    let read = Pin::new(stream).poll_read(cx, &mut buffer);
    read.map_ok(|()| buffer.filled().len())
}

/// The current phase, when it began, and its deadline.
#[derive(Debug)]
struct Timeouts {
    conn_limits: ConnLimits,
    seen: u64,
    phase: ConnPhase,
    since: Instant,
}

impl Timeouts {
    /// Starts with a connection accepted at that time.
    fn new(conn_limits: ConnLimits, accepted: Instant) -> Self {
        Timeouts {
            conn_limits,
            seen: 0,
            phase: ConnPhase::First,
            since: accepted,
        }
    }

    /// Updates the phase; returns whether it has changed. Reads the clock only then.
    fn update(&mut self, (seen, phase): (u64, ConnPhase), now: impl FnOnce() -> Instant) -> bool {
        let changed = seen != self.seen;
        if changed {
            (self.seen, self.phase, self.since) = (seen, phase, now());
        }
        changed
    }

    /// Polls for the deadline; returns the phase that took too long.
    fn poll(&mut self, state: &ConnState, mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<ConnPhase> {
        let mut now = None;
        if self.update(state.get(), || *now.insert(Instant::now())) && self.deadline() < timer.deadline() {
            timer.as_mut().reset(self.deadline());
        }
        while timer.as_mut().poll(cx).is_ready() {
            if *now.get_or_insert_with(Instant::now) >= self.deadline() {
                return Poll::Ready(self.phase);
            }
            timer.as_mut().reset(self.deadline());
        }
        Poll::Pending
    }

    fn deadline(&self) -> Instant {
        self.since
            + match self.phase {
                ConnPhase::First => self.conn_limits.first_head,
                ConnPhase::Idle | ConnPhase::Streaming => self.conn_limits.idle,
                ConnPhase::Head => self.conn_limits.head,
                ConnPhase::Body | ConnPhase::Answer => self.conn_limits.answer,
                ConnPhase::Receiving | ConnPhase::Upload => self.conn_limits.stall_body,
                ConnPhase::Stall | ConnPhase::Evicted => self.conn_limits.stall,
            }
    }
}

/// A socket that records the phase of its connection.
struct TrackedIo<'v> {
    stream: TokioIo<InspectedStream<'v>>,
    state: Arc<ConnState>,
}

impl TrackedIo<'_> {
    /// A completed write ends a request; a blocked one waits for the client. Writes during an
    /// upload are `100 Continue` and change nothing, and the pieces of a stream set their phase.
    fn record_write<T>(&self, written: &Poll<io::Result<T>>) {
        let next = if written.is_ready() {
            ConnPhase::Idle
        } else {
            ConnPhase::Stall
        };
        let phase = self.state.phase();
        let goes_on = phase == ConnPhase::Streaming && written.is_ready();
        if phase != next && !is_upload(phase) && !goes_on {
            self.state.set(next);
        }
    }
}

impl Read for TrackedIo<'_> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() && self.state.phase() == ConnPhase::Idle {
            self.state.set(ConnPhase::Head);
        }
        read
    }
}

impl Write for TrackedIo<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.record_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.record_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // TLS accepts a response before the network does.
        let phase = self.state.phase();
        if matches!(phase, ConnPhase::Idle | ConnPhase::Streaming | ConnPhase::Stall) {
            self.record_write(&flushed);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permits::Permits;

    /// The deadline of the first head counts from the accept; later heads have their own.
    #[tokio::test]
    async fn the_first_head_has_one_deadline() {
        let conn_limits = ConnLimits::default();
        let accepted = Instant::now();
        let permit = Permits::new(1).acquire(None).await.expect("a permit");
        let state = &permit.state;
        let mut timeouts = Timeouts::new(conn_limits, accepted);
        assert_eq!(timeouts.deadline(), accepted + conn_limits.first_head);
        let half = accepted + conn_limits.first_head / 2;
        assert!(!timeouts.update(state.get(), || half));
        for (phase, time) in [
            (ConnPhase::Answer, conn_limits.answer),
            (ConnPhase::Stall, conn_limits.stall),
            (ConnPhase::Receiving, conn_limits.stall_body),
            (ConnPhase::Upload, conn_limits.stall_body),
            (ConnPhase::Idle, conn_limits.idle),
            (ConnPhase::Streaming, conn_limits.idle),
            (ConnPhase::Head, conn_limits.head),
        ] {
            state.set(phase);
            assert!(timeouts.update(state.get(), || half));
            assert_eq!(timeouts.deadline(), half + time, "{phase:?}");
            assert!(!timeouts.update(state.get(), || half));
        }
    }
}
