//! Response bodies: bytes in memory, a range of a file, or a stream of events.
//!
//! In: bytes, an open file and a range, or a queue. Out: a body. The length of the first two is
//! known before their first byte, so they are never chunked. A stream has no end of its own and is
//! therefore not limited in its time: while nothing is queued it sends a comment now and then, and
//! a connection on which that fails is closed. A blocking thread reads a file in pieces, and the
//! next piece is read once the client has taken the previous one: a slow client holds one piece in
//! memory. A file that turns out shorter closes the connection, which in HTTP marks an incomplete
//! response.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep};

use crate::permits::{ConnPhase, ConnState};
use edge_runner_proto::limits::HTTP_HEARTBEAT;

/// Bytes of a file that are read at once.
const FILE_PIECE_BYTES: usize = 64 * 1024;
/// A comment in a stream of server-sent events.
const HEARTBEAT: Bytes = Bytes::from_static(b":\n\n");

/// A response body.
#[derive(Debug)]
pub enum ResponseBody {
    Whole(Full<Bytes>),
    File(FileRange),
    Events(EventStream),
}

/// Makes a body of bytes in memory.
pub fn whole(bytes: impl Into<Bytes>) -> ResponseBody {
    ResponseBody::Whole(Full::new(bytes.into()))
}

impl ResponseBody {
    /// Makes a body of a range of an open file; `conn_state` is the state of the connection.
    pub fn part(file: File, bytes: Range<u64>, conn_state: Arc<ConnState>) -> Self {
        ResponseBody::File(FileRange {
            file: Arc::new(file),
            bytes,
            reading: None,
            conn_state,
        })
    }
}

impl ResponseBody {
    /// Makes a body of server-sent events, which ends with the queue; `conn_state` is the state of
    /// the connection.
    pub fn events(queue: Receiver<Bytes>, conn_state: Arc<ConnState>) -> Self {
        conn_state.set_stream(true);
        ResponseBody::Events(EventStream {
            queue,
            heartbeat: Box::pin(sleep(HTTP_HEARTBEAT)),
            conn_state,
        })
    }
}

impl Default for ResponseBody {
    fn default() -> Self {
        ResponseBody::Whole(Full::default())
    }
}

/// A range of a file.
#[derive(Debug)]
pub struct FileRange {
    file: Arc<File>,
    /// The part still to be sent.
    bytes: Range<u64>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    /// Updated with each piece, so that a download does not count as idle.
    conn_state: Arc<ConnState>,
}

impl FileRange {
    fn left(&self) -> u64 {
        self.bytes.end.saturating_sub(self.bytes.start)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.left() == 0 {
            return Poll::Ready(None);
        }
        let (left, at) = (self.left(), self.bytes.start);
        let reading = self.reading.get_or_insert_with(|| {
            self.conn_state.set(ConnPhase::Answer);
            let file = self.file.clone();
            tokio::task::spawn_blocking(move || read(&file, at, left))
        });
        let read = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let read = read.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        if let Ok(piece) = &read {
            self.bytes.start += piece.len() as u64;
        }
        Poll::Ready(Some(read))
    }
}

/// A stream of server-sent events.
#[derive(Debug)]
pub struct EventStream {
    queue: Receiver<Bytes>,
    /// The time of the next comment.
    heartbeat: Pin<Box<Sleep>>,
    /// Updated with each piece, so that a stream that goes on does not count as idle.
    conn_state: Arc<ConnState>,
}

impl EventStream {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let piece = match self.queue.poll_recv(cx) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(piece)) => piece,
            Poll::Pending => {
                ready!(self.heartbeat.as_mut().poll(cx));
                HEARTBEAT
            }
        };
        self.heartbeat.as_mut().reset(Instant::now() + HTTP_HEARTBEAT);
        // A client that does not read stays late, whatever is buffered for it.
        if self.conn_state.phase() == ConnPhase::Streaming {
            self.conn_state.set(ConnPhase::Streaming);
        }
        Poll::Ready(Some(piece))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.conn_state.set_stream(false);
    }
}

/// Reads one piece. Blocks.
fn read(file: &File, at: u64, left: u64) -> io::Result<Bytes> {
    let mut piece = vec![0; left.min(FILE_PIECE_BYTES as u64) as usize];
    let read = file.read_at(&mut piece, at)?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    piece.truncate(read);
    Ok(piece.into())
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            ResponseBody::Whole(full) => Pin::new(full).poll_frame(cx).map_err(|never| match never {}),
            ResponseBody::File(part) => {
                let piece = ready!(part.poll_piece(cx));
                Poll::Ready(piece.map(|read| read.map(Frame::data)))
            }
            ResponseBody::Events(stream) => {
                let piece = ready!(stream.poll_piece(cx));
                Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Whole(full) => full.is_end_stream(),
            ResponseBody::File(part) => part.left() == 0,
            ResponseBody::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Whole(full) => full.size_hint(),
            ResponseBody::File(part) => SizeHint::with_exact(part.left()),
            ResponseBody::Events(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use http_body_util::BodyExt as _;
    use tokio::sync::mpsc::channel;

    use super::*;
    use crate::testing::TempDir;

    fn part(folder: &TempDir, bytes: Range<u64>) -> ResponseBody {
        let file = File::open(folder.path("image")).expect("it is there");
        ResponseBody::part(file, bytes, ConnState::detached())
    }

    /// I-11: a file of several pieces, and any range of it, is sent whole and with a known length.
    #[tokio::test]
    async fn ranges_of_a_file_are_sent_whole() {
        let folder = TempDir::new();
        let text: Vec<u8> = (0..FILE_PIECE_BYTES * 2 + 5).map(|at| (at % 251) as u8).collect();
        fs::write(folder.path("image"), &text).expect("written");
        let piece = FILE_PIECE_BYTES as u64;
        for bytes in [
            0..text.len() as u64,
            0..0,
            3..4,
            piece - 1..piece + 1,
            piece..text.len() as u64,
        ] {
            let part = part(&folder, bytes.clone());
            assert_eq!(part.size_hint().exact(), Some(bytes.end - bytes.start));
            let sent = part.collect().await.expect("readable").to_bytes();
            assert_eq!(sent, &text[bytes.start as usize..bytes.end as usize], "{bytes:?}");
        }
    }

    /// A stream sends what is queued at once, a comment when nothing is, and ends with its queue.
    #[tokio::test(start_paused = true)]
    async fn a_stream_of_events_sends_comments_between_them() {
        let (queue, waiting) = channel(2);
        let mut stream = ResponseBody::events(waiting, ConnState::detached());
        assert_eq!((stream.size_hint().exact(), stream.is_end_stream()), (None, false));
        let begun = Instant::now();
        queue.try_send(Bytes::from_static(b"event: a\n\n")).expect("room");
        let mut seen = Vec::new();
        for _ in 0..3 {
            let frame = stream.frame().await.expect("a piece").expect("no error");
            seen.push((
                frame.into_data().expect("data"),
                begun.elapsed() / HTTP_HEARTBEAT.as_secs() as u32,
            ));
        }
        let second = std::time::Duration::from_secs(1);
        assert_eq!(
            seen,
            [
                (Bytes::from_static(b"event: a\n\n"), std::time::Duration::ZERO),
                (HEARTBEAT, second),
                (HEARTBEAT, 2 * second)
            ]
        );
        drop(queue);
        assert!(stream.frame().await.is_none());
    }

    /// A file that shrank closes the connection.
    #[tokio::test]
    async fn a_file_that_shrank_breaks_the_response() {
        let folder = TempDir::new();
        fs::write(folder.path("image"), "short").expect("written");
        let mut part = part(&folder, 0..10);
        let frame = part.frame().await.expect("a piece").expect("readable");
        assert_eq!(frame.into_data().ok().as_deref(), Some(&b"short"[..]));
        let error = part.frame().await.expect("an end").expect_err("there is no more");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
