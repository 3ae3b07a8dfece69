//! Text streams of participants: header, chunks and trailer become one text.
//!
//! In: the three packets of each stream, the sender, and `now`. Out: the text of a complete
//! stream. Streams of other topics, of bytes, above [`ROOM_STREAM_BYTES_MAX`], with missing chunks
//! or invalid UTF-8, and those that take too long are dropped. Source: `docs/spec/livekit.md` 5.4.

use std::time::{Duration, Instant};

use super::wire::{StreamChunk, StreamContent, StreamHeader, StreamTrailer};
use crate::limits::{ROOM_NAME_BYTES_MAX, ROOM_STREAM_BYTES_MAX};

/// Text streams that participants may have open at once.
const ROOM_STREAMS_MAX: usize = 16;
/// Time from the first to the last packet of a text stream.
const ROOM_STREAM_WITHIN: Duration = Duration::from_secs(30);

/// The topic of what a user typed.
pub const CHAT_TOPIC: &str = "lk.chat";

/// The open text streams of all participants, of one topic.
pub struct TextStreams {
    topic: &'static str,
    /// The oldest first.
    open: Vec<OpenStream>,
}

impl Default for TextStreams {
    /// Those of what users typed.
    fn default() -> Self {
        TextStreams::of_topic(CHAT_TOPIC)
    }
}

struct OpenStream {
    identity: String,
    stream_id: String,
    /// The index of the next chunk.
    next_index: u64,
    content: Vec<u8>,
    until: Instant,
}

impl TextStreams {
    pub fn of_topic(topic: &'static str) -> Self {
        TextStreams {
            topic,
            open: Vec::new(),
        }
    }

    /// Handles the header of a stream.
    pub fn handle_header(&mut self, identity: &str, header: &StreamHeader, now: Instant) {
        if header.topic != self.topic || matches!(header.content, Some(StreamContent::Bytes(_))) {
            return log::debug!("a stream of another topic is ignored");
        }
        let is_too_long = header
            .total_length
            .is_some_and(|bytes| bytes > ROOM_STREAM_BYTES_MAX as u64);
        if is_too_long || !(1..=ROOM_NAME_BYTES_MAX).contains(&header.stream_id.len()) {
            return log::debug!("a text stream is ignored: it is too long, or has no valid id");
        }
        self.open.retain(|stream| now < stream.until);
        if self.position(identity, &header.stream_id).is_some() {
            return log::debug!("a second header of a text stream is ignored");
        }
        if self.open.len() >= ROOM_STREAMS_MAX {
            return log::debug!("a text stream is ignored: {ROOM_STREAMS_MAX} are open");
        }
        self.open.push(OpenStream {
            identity: identity.to_owned(),
            stream_id: header.stream_id.clone(),
            next_index: 0,
            content: Vec::new(),
            until: now + ROOM_STREAM_WITHIN,
        });
    }

    /// Handles a chunk. A stream that it does not continue is dropped.
    pub fn handle_chunk(&mut self, identity: &str, chunk: &StreamChunk, now: Instant) {
        let Some(at) = self.position(identity, &chunk.stream_id) else {
            return;
        };
        let stream = &mut self.open[at];
        let is_next = chunk.chunk_index == stream.next_index && now < stream.until;
        if !is_next || stream.content.len() + chunk.content.len() > ROOM_STREAM_BYTES_MAX {
            log::debug!("a text stream is dropped: it is too long or slow, or a chunk is missing");
            self.open.remove(at);
            return;
        }
        stream.next_index += 1;
        stream.content.extend_from_slice(&chunk.content);
    }

    /// Handles the trailer. Returns the text of a complete stream.
    pub fn handle_trailer(&mut self, identity: &str, trailer: &StreamTrailer, now: Instant) -> Option<String> {
        let at = self.position(identity, &trailer.stream_id)?;
        let stream = self.open.remove(at);
        if !trailer.reason.is_empty() || now >= stream.until {
            log::debug!("a text stream is dropped: it was aborted, or took too long");
            return None;
        }
        match String::from_utf8(stream.content) {
            Ok(text) => Some(text),
            Err(_) => {
                log::debug!("a text stream is dropped: it is not UTF-8");
                None
            }
        }
    }

    /// Drops the streams of a participant that has left.
    pub fn handle_left(&mut self, identity: &str) {
        self.open.retain(|stream| stream.identity != identity);
    }

    fn position(&self, identity: &str, stream_id: &str) -> Option<usize> {
        let is_it = |stream: &OpenStream| stream.identity == identity && stream.stream_id == stream_id;
        self.open.iter().position(is_it)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::livekit::wire::{ByteStreamHeader, TextStreamHeader};

    fn header(stream_id: &str) -> StreamHeader {
        StreamHeader {
            stream_id: stream_id.into(),
            topic: CHAT_TOPIC.into(),
            content: Some(StreamContent::Text(TextStreamHeader::default())),
            ..StreamHeader::default()
        }
    }

    fn chunk(stream_id: &str, chunk_index: u64, content: &[u8]) -> StreamChunk {
        StreamChunk {
            stream_id: stream_id.into(),
            chunk_index,
            content: content.to_vec().into(),
        }
    }

    fn trailer(stream_id: &str) -> StreamTrailer {
        StreamTrailer {
            stream_id: stream_id.into(),
            ..StreamTrailer::default()
        }
    }

    /// Two participants may use one stream id, and a character may be cut between chunks.
    #[test]
    fn collects_a_text_for_each_sender() {
        let now = Instant::now();
        let mut streams = TextStreams::default();
        streams.handle_header("ann", &header("s"), now);
        streams.handle_header("bob", &header("s"), now);
        let text = "Gr\u{fc}\u{df}e".as_bytes();
        streams.handle_chunk("ann", &chunk("s", 0, &text[..3]), now);
        streams.handle_chunk("bob", &chunk("s", 0, b"hi"), now);
        streams.handle_chunk("ann", &chunk("s", 1, &text[3..]), now);
        assert_eq!(streams.handle_trailer("eve", &trailer("s"), now), None);
        assert_eq!(
            streams.handle_trailer("ann", &trailer("s"), now).as_deref(),
            Some("Gr\u{fc}\u{df}e")
        );
        assert_eq!(streams.handle_trailer("bob", &trailer("s"), now).as_deref(), Some("hi"));
        assert_eq!(streams.handle_trailer("bob", &trailer("s"), now), None, "only once");
    }

    #[test]
    fn drops_streams_that_are_incomplete_or_not_text() {
        let now = Instant::now();
        let mut streams = TextStreams::default();
        let mut outcome = |header: &StreamHeader, chunks: &[StreamChunk], reason: &str| {
            streams.handle_header("ann", header, now);
            chunks.iter().for_each(|chunk| streams.handle_chunk("ann", chunk, now));
            let trailer = StreamTrailer {
                reason: reason.into(),
                ..trailer("s")
            };
            streams.handle_trailer("ann", &trailer, now)
        };
        let complete = [chunk("s", 0, b"a"), chunk("s", 1, b"b")];
        assert_eq!(outcome(&header("s"), &complete, "").as_deref(), Some("ab"));
        assert_eq!(outcome(&header("s"), &[], "").as_deref(), Some(""));
        assert_eq!(outcome(&header("s"), &complete, "aborted"), None);
        assert_eq!(outcome(&header("s"), &complete[1..], ""), None);
        assert_eq!(outcome(&header("s"), &[chunk("s", 0, b"\xff")], ""), None);
        let other = StreamHeader {
            topic: "lk.agent.session".into(),
            ..header("s")
        };
        assert_eq!(outcome(&other, &complete, ""), None);
        let bytes = StreamHeader {
            content: Some(StreamContent::Bytes(ByteStreamHeader::default())),
            ..header("s")
        };
        assert_eq!(outcome(&bytes, &complete, ""), None);
    }

    /// Each cap: one at it, and one past it.
    #[test]
    fn bounds_length_number_and_time() {
        let now = Instant::now();
        let mut streams = TextStreams::default();
        let announced = |bytes| StreamHeader {
            total_length: Some(bytes),
            ..header("s")
        };
        for (announced, sent, is_kept) in [
            (announced(ROOM_STREAM_BYTES_MAX as u64), ROOM_STREAM_BYTES_MAX, true),
            (announced(ROOM_STREAM_BYTES_MAX as u64 + 1), 1, false),
            (header("s"), ROOM_STREAM_BYTES_MAX + 1, false),
        ] {
            streams.handle_header("ann", &announced, now);
            streams.handle_chunk("ann", &chunk("s", 0, &vec![b'x'; sent]), now);
            assert_eq!(streams.handle_trailer("ann", &trailer("s"), now).is_some(), is_kept);
        }
        for number in 0..=ROOM_STREAMS_MAX {
            streams.handle_header("ann", &header(&number.to_string()), now);
        }
        let last = ROOM_STREAMS_MAX.to_string();
        assert_eq!(
            streams.handle_trailer("ann", &trailer(&last), now),
            None,
            "one too many"
        );
        let late = now + ROOM_STREAM_WITHIN;
        let just = late - Duration::from_millis(1);
        assert_eq!(streams.handle_trailer("ann", &trailer("0"), just).as_deref(), Some(""));
        assert_eq!(streams.handle_trailer("ann", &trailer("1"), late), None);
        // Streams whose time is over make room.
        streams.handle_header("bob", &header("new"), late);
        assert_eq!(
            streams.handle_trailer("bob", &trailer("new"), late).as_deref(),
            Some("")
        );
        streams.handle_header("bob", &header("new"), late);
        streams.handle_left("bob");
        assert_eq!(streams.handle_trailer("bob", &trailer("new"), late), None);
    }
}
