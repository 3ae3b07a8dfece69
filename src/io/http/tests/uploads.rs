//! Long bodies: a service that accepts them, and one that rejects them unread.

use http_body_util::BodyExt as _;

use super::hostile::never;
use super::*;
use crate::proto::server::request_framing;
use edge_runner_http::common::{self, json_reply};
use hyper::StatusCode;

/// A service that reads uploads, or rejects them unread; answers with the number of bytes.
struct Taker {
    conn_limits: ConnLimits,
    refuses: bool,
}

impl HttpService for Taker {
    fn conn_limits(&self) -> ConnLimits {
        self.conn_limits
    }

    fn tls(&self) -> Option<&ServerTls> {
        None
    }

    fn reject_framing(&self, refusal: request_framing::FramingError) -> common::Reply {
        json_reply(StatusCode::BAD_REQUEST, refusal.to_string())
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        _: PeerInfo,
        doing: &Arc<ConnState>,
        _: &UpgradeSlot,
    ) -> common::Reply {
        if self.refuses {
            return json_reply(StatusCode::FORBIDDEN, "refused");
        }
        let mut body = request.into_body();
        let (mut bytes, mut phase) = (0, ConnPhase::Receiving);
        loop {
            assert!(doing.set(phase), "the permit is held");
            match body.frame().await {
                Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, |data| data.len()),
                Some(Err(_)) => return json_reply(StatusCode::BAD_REQUEST, "broken"),
                None => return json_reply(StatusCode::OK, bytes.to_string()),
            }
            phase = ConnPhase::Upload;
        }
    }
}

/// Starts the service and connects to it.
async fn client(conn_limits: ConnLimits, refuses: bool) -> (Client, ShutdownTrigger) {
    let (client, stop, _) = served(conn_limits, refuses).await;
    (client, stop)
}

/// Like `client`, with the server's task.
async fn served(conn_limits: ConnLimits, refuses: bool) -> (Client, ShutdownTrigger, JoinHandle<()>) {
    let listeners = bind(config().host, 0).await.expect("a free port");
    let address = listeners.addresses()[0];
    let (stop, shutdown) = Shutdown::channel();
    let served = tokio::spawn(serve(listeners, Arc::new(Taker { conn_limits, refuses }), shutdown));
    let stream = TcpStream::connect(address).await.expect("it listens");
    let read = Vec::new();
    (Client { stream, read }, stop, served)
}

/// I-07: an upload has no total time limit; the limit of a response does not apply.
#[tokio::test]
async fn an_upload_may_take_longer_than_an_answer() {
    let conn_limits = ConnLimits {
        answer: Duration::ZERO,
        body: Duration::ZERO,
        ..never()
    };
    let (mut client, _stop) = client(conn_limits, false).await;
    client
        .send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        .await;
    client.send("4\r\ndefg\r\n0\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, &*reply.body), (200, &b"7"[..]));
}

/// I-07: an upload without a byte for too long is cut off, for every client.
#[tokio::test]
async fn a_stalled_upload_is_cut_off() {
    let conn_limits = ConnLimits {
        stall_body: Duration::ZERO,
        ..never()
    };
    let (mut client, _stop) = client(conn_limits, false).await;
    client
        .send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n")
        .await;
    assert_eq!(client.rest().await, b"");
}

/// I-07: an upload that began with `100 Continue` counts as an upload, not as idle.
#[tokio::test]
async fn continue_does_not_end_an_upload() {
    let conn_limits = ConnLimits {
        idle: Duration::ZERO,
        head: Duration::ZERO,
        answer: Duration::ZERO,
        ..never()
    };
    let (mut client, _stop) = client(conn_limits, false).await;
    client
        .send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n")
        .await;
    assert_eq!(client.head().await.status, 100);
    client.send("12345").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, &*reply.body), (200, &b"5"[..]));
}

/// I-06: a rejected body is read and discarded, so that its sender can read the response: here more
/// than the kernel's buffers hold.
#[tokio::test]
async fn a_rejection_reaches_a_client_that_still_sends() {
    const BYTES: usize = 32 * 1024 * 1024;
    let conn_limits = ConnLimits {
        linger_bytes: 2 * BYTES,
        ..never()
    };
    let (mut client, _stop) = client(conn_limits, true).await;
    client
        .send(format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {BYTES}\r\n\r\n"))
        .await;
    for _ in 0..BYTES / 65_536 {
        client.send([0; 65_536]).await;
    }
    let reply = client.reply().await;
    assert_eq!((reply.status, &*reply.body), (403, &b"refused"[..]));
}

/// I-06: a rejected body is read up to a size or a time, whichever comes first; then the connection
/// is closed.
#[tokio::test]
async fn a_rejected_body_is_read_up_to_a_limit() {
    /// More than both kernels buffer of an unread connection.
    const BYTES: usize = 256 * 1024 * 1024;
    for (linger, linger_bytes) in [
        (never().linger, 1024 * 1024),
        (never().linger, 0),
        (Duration::ZERO, usize::MAX),
    ] {
        let conn_limits = ConnLimits {
            linger,
            linger_bytes,
            ..never()
        };
        let (mut client, _stop) = client(conn_limits, true).await;
        client
            .send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000000\r\n\r\n")
            .await;
        let reply = client.reply().await;
        assert_eq!((reply.status, &*reply.body), (403, &b"refused"[..]));
        let mut sent_bytes = 0;
        let closed = async {
            while sent_bytes < BYTES {
                match client.stream.write(&[0; 65_536]).await {
                    Ok(bytes) => sent_bytes += bytes,
                    Err(_) => return true,
                }
            }
            false
        };
        let closed = tokio::time::timeout(GUARD, closed).await.expect("it is read or closed");
        assert!(
            closed,
            "{linger:?}, {linger_bytes} bytes: all of {sent_bytes} bytes were taken"
        );
        let least = if linger.is_zero() { 0 } else { linger_bytes };
        assert!(sent_bytes >= least, "closed after {sent_bytes} of {least} bytes");
    }
}

/// Starts an upload of five bytes, two of which are sent after `100 Continue`.
async fn begun(conn_limits: ConnLimits) -> (Client, ShutdownTrigger, JoinHandle<()>) {
    let (mut client, stop, served) = served(conn_limits, false).await;
    client
        .send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        .await;
    assert_eq!(client.head().await.status, 100);
    client.send("12").await;
    (client, stop, served)
}

/// I-29: at a stop an upload has a grace period and no more. The clock is paused.
#[tokio::test]
async fn an_upload_that_never_ends_is_cut_off_at_a_stop() {
    let grace = Duration::from_secs(10);
    let (client, stop, served) = begun(ConnLimits { grace, ..never() }).await;
    tokio::time::pause();
    let stopped = tokio::time::Instant::now();
    stop.set();
    served.await.expect("without a panic");
    // Timers have a resolution of a millisecond.
    assert_eq!(stopped.elapsed().as_secs(), 10);
    tokio::time::resume();
    assert_eq!(client.rest().await, b"");
}

/// I-29: an upload that ends in time is answered, and the service ends at once.
#[tokio::test]
async fn an_upload_that_ends_in_time_is_answered_after_a_stop() {
    let (mut client, stop, served) = begun(ConnLimits {
        grace: Duration::from_secs(3600),
        ..never()
    })
    .await;
    stop.set();
    client.send("345").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, &*reply.body), (200, &b"5"[..]));
    assert_eq!(client.rest().await, b"");
    let ended = tokio::time::timeout(GUARD, served).await;
    ended.expect("the server ends").expect("without a panic");
}
