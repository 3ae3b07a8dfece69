//! Response bodies: bytes in memory, or a range of a file.
//!
//! In: bytes, or an open file and a range. Out: a body whose length is known before its first byte,
//! so it is never chunked. A blocking thread reads a file in pieces, and the next piece is read
//! once the client has taken the previous one: a slow client holds one piece in memory. A file that
//! turns out shorter closes the connection, which in HTTP marks an incomplete response.

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
use tokio::task::JoinHandle;

use crate::permits::{ConnPhase, ConnState};

/// Bytes of a file that are read at once.
const FILE_PIECE_BYTES: usize = 64 * 1024;

/// A response body.
#[derive(Debug)]
pub enum ResponseBody {
    Whole(Full<Bytes>),
    File(FileRange),
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
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Whole(full) => full.is_end_stream(),
            ResponseBody::File(part) => part.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Whole(full) => full.size_hint(),
            ResponseBody::File(part) => SizeHint::with_exact(part.left()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use http_body_util::BodyExt as _;

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
