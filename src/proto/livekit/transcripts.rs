//! Transcripts of caller and bot as text streams, for the front-ends of LiveKit.
//!
//! In: the bot's RTVI messages about what is said, the bot's turns, and `now`. Out: the values of
//! data packets, each with the identity under which it is sent. The bot's text is one stream for
//! each turn, to which words are appended as they are spoken. What a caller says is a new stream
//! for each update, with the whole text so far. Source: `docs/spec/livekit.md` 5.4.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use super::wire::{DataValue, StreamChunk, StreamContent, StreamHeader, StreamTrailer, TextStreamHeader};
use crate::bot_message::BotText;
use crate::limits::ROOM_TRANSCRIPT_PAUSE;
use crate::sorting;

/// Bytes of text in one packet of a stream, as published clients send it.
const ROOM_STREAM_CHUNK_BYTES_MAX: usize = 15_000;
/// Bytes of the bot's transcript that wait for the end of its turn, if the bot sends no progress.
const ROOM_TRANSCRIPT_BYTES_MAX: usize = 16 * 1024;

/// The topic of transcripts.
pub const TRANSCRIPTION_TOPIC: &str = "lk.transcription";
const SEGMENT_ID: &str = "lk.segment_id";
const TRACK_ID: &str = "lk.transcribed_track_id";
const FINAL: &str = "lk.transcription_final";

/// The participant whose words a transcript has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptSpeaker {
    /// Empty for the bot itself.
    pub identity: String,
    /// The sid of the track with the speech, or empty.
    pub track_sid: String,
}

/// One packet of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscriptPacket {
    /// The identity under which it is sent; empty for the bot itself.
    pub identity: String,
    pub value: DataValue,
}

/// The transcripts of one connection to a room.
#[derive(Default)]
pub struct Transcripts {
    packets: VecDeque<TranscriptPacket>,
    /// The unique part of the ids of this connection.
    prefix: String,
    streams: u64,
    bot: Option<BotStream>,
    /// What the caller is saying: the identity, and the id of the segment.
    user: Option<(String, String)>,
    is_speaking: bool,
    /// Whether the bot sends `bot-output`, which has the same text as `bot-transcription`.
    has_output: bool,
    /// Sentences of `bot-transcription` in this turn.
    sentences: String,
    /// When the bot last spoke, or last had text.
    active_at: Option<Instant>,
}

/// The open stream of the bot.
struct BotStream {
    stream_id: String,
    next_index: u64,
    /// The segment that was appended last, and how many bytes of it.
    segment: Option<(u64, usize)>,
    ends_in_space: bool,
}

impl Transcripts {
    /// Starts the transcripts of a new connection. `prefix` is unique in the room.
    pub fn start(&mut self, prefix: &str) {
        *self = Transcripts {
            prefix: prefix.to_owned(),
            has_output: self.has_output,
            is_speaking: self.is_speaking,
            ..Transcripts::default()
        };
    }

    /// Handles what a caller said. Interim texts replace each other until the final one.
    pub fn handle_user(&mut self, who: &TranscriptSpeaker, text: &str, is_final: bool, unix_ms: i64) {
        if text.is_empty() {
            return;
        }
        if is_final {
            self.close();
        }
        let segment = match self.user.take() {
            Some((identity, segment)) if identity == who.identity => segment,
            _ => self.next_id(),
        };
        let stream_id = self.next_id();
        let attributes = attributes(&segment, &who.track_sid, is_final);
        self.push(&who.identity, header(&stream_id, attributes, unix_ms));
        for (index, piece) in (0..).zip(chunks(text)) {
            self.push(&who.identity, chunk(&stream_id, index, piece));
        }
        self.push(&who.identity, trailer(&stream_id, BTreeMap::new()));
        if !is_final {
            self.user = Some((who.identity.clone(), segment));
        }
    }

    /// Handles a segment of the bot's speech or text.
    pub fn handle_output(&mut self, output: &BotText, bot: &TranscriptSpeaker, unix_ms: i64, now: Instant) {
        self.has_output = true;
        self.sentences.clear();
        let Some(text) = output.delivered() else { return };
        let sent = match (&self.bot, output.segment_id) {
            (Some(stream), Some(segment)) => stream
                .segment
                .filter(|(last, _)| *last == segment)
                .map(|(_, bytes)| bytes),
            _ => None,
        };
        let rest = text.get(sent.unwrap_or(0)..).unwrap_or_default();
        self.append(rest, sent.is_none(), bot, unix_ms, now);
        if let (Some(stream), Some(segment)) = (&mut self.bot, output.segment_id) {
            stream.segment = Some((segment, text.len()));
        }
    }

    /// Handles a sentence of the model. It is shown at the end of the turn if the bot sends nothing
    /// better until then.
    pub fn handle_sentence(&mut self, text: &str, now: Instant) {
        if self.has_output || self.sentences.len() + text.len() >= ROOM_TRANSCRIPT_BYTES_MAX {
            return;
        }
        if needs_space(
            self.sentences.is_empty() || self.sentences.ends_with(char::is_whitespace),
            text,
        ) {
            self.sentences.push(' ');
        }
        self.sentences += text;
        self.active_at = Some(now);
    }

    /// Handles the begin or the end of the bot's speech.
    pub fn handle_speech(&mut self, is_speaking: bool, now: Instant) {
        self.is_speaking = is_speaking;
        self.active_at = Some(now);
    }

    /// Ends the bot's turn: it was interrupted, or the caller speaks.
    pub fn handle_turn_end(&mut self, bot: &TranscriptSpeaker, unix_ms: i64, now: Instant) {
        let sentences = std::mem::take(&mut self.sentences);
        if !sentences.is_empty() {
            self.append(&sentences, true, bot, unix_ms, now);
        }
        self.close();
    }

    /// Ends the turn of a bot that has been silent for a while.
    pub fn handle_timeout(&mut self, bot: &TranscriptSpeaker, unix_ms: i64, now: Instant) {
        if self.poll_timeout().is_some_and(|at| now >= at) {
            self.handle_turn_end(bot, unix_ms, now);
        }
    }

    /// Returns when the bot's turn is over without another event.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let has_text = self.bot.is_some() || !self.sentences.is_empty();
        let ends = has_text && !self.is_speaking;
        self.active_at.filter(|_| ends).map(|at| at + ROOM_TRANSCRIPT_PAUSE)
    }

    /// Returns the next packet.
    pub fn poll_packet(&mut self) -> Option<TranscriptPacket> {
        self.packets.pop_front()
    }

    /// Appends text to the stream of the turn, which it opens if necessary.
    fn append(&mut self, text: &str, is_new_segment: bool, bot: &TranscriptSpeaker, unix_ms: i64, now: Instant) {
        self.active_at = Some(now);
        if text.is_empty() {
            return;
        }
        let mut stream = match self.bot.take() {
            Some(stream) => stream,
            None => self.open(bot, unix_ms),
        };
        let separator = match is_new_segment && needs_space(stream.ends_in_space, text) {
            true => " ",
            false => "",
        };
        for piece in chunks(&format!("{separator}{text}")) {
            self.push("", chunk(&stream.stream_id, stream.next_index, piece));
            stream.next_index += 1;
        }
        stream.ends_in_space = text.ends_with(char::is_whitespace);
        self.bot = Some(stream);
    }

    fn open(&mut self, bot: &TranscriptSpeaker, unix_ms: i64) -> BotStream {
        let (segment, stream_id) = (self.next_id(), self.next_id());
        self.push(
            "",
            header(&stream_id, attributes(&segment, &bot.track_sid, false), unix_ms),
        );
        BotStream {
            stream_id,
            next_index: 0,
            segment: None,
            ends_in_space: true,
        }
    }

    /// Closes the stream of the bot's turn.
    fn close(&mut self) {
        if let Some(stream) = self.bot.take() {
            let is_final = sorting::map([(FINAL.to_owned(), "true".to_owned())]);
            self.push("", trailer(&stream.stream_id, is_final));
        }
    }

    fn push(&mut self, identity: &str, value: DataValue) {
        self.packets.push_back(TranscriptPacket {
            identity: identity.to_owned(),
            value,
        });
    }

    fn next_id(&mut self) -> String {
        self.streams += 1;
        format!("{}-{}", self.prefix, self.streams)
    }
}

fn attributes(segment: &str, track_sid: &str, is_final: bool) -> BTreeMap<String, String> {
    let mut attributes = sorting::map([
        (SEGMENT_ID.to_owned(), segment.to_owned()),
        (FINAL.to_owned(), is_final.to_string()),
    ]);
    if !track_sid.is_empty() {
        attributes.insert(TRACK_ID.to_owned(), track_sid.to_owned());
    }
    attributes
}

fn header(stream_id: &str, attributes: BTreeMap<String, String>, unix_ms: i64) -> DataValue {
    DataValue::StreamHeader(StreamHeader {
        stream_id: stream_id.to_owned(),
        timestamp: unix_ms,
        topic: TRANSCRIPTION_TOPIC.to_owned(),
        mime_type: "text/plain".to_owned(),
        total_length: None,
        attributes,
        content: Some(StreamContent::Text(TextStreamHeader::default())),
    })
}

fn chunk(stream_id: &str, chunk_index: u64, text: &str) -> DataValue {
    DataValue::StreamChunk(StreamChunk {
        stream_id: stream_id.to_owned(),
        chunk_index,
        content: Bytes::copy_from_slice(text.as_bytes()),
    })
}

fn trailer(stream_id: &str, attributes: BTreeMap<String, String>) -> DataValue {
    DataValue::StreamTrailer(StreamTrailer {
        stream_id: stream_id.to_owned(),
        reason: String::new(),
        attributes,
    })
}

/// Tells whether a space belongs before a text.
fn needs_space(follows_space: bool, text: &str) -> bool {
    !follows_space && !text.starts_with(char::is_whitespace)
}

/// Cuts a text at characters into pieces for one packet each.
fn chunks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = rest.len().min(ROOM_STREAM_CHUNK_BYTES_MAX);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, tail) = rest.split_at(end);
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bot_message::SpokenText;

    fn bot() -> TranscriptSpeaker {
        TranscriptSpeaker {
            identity: String::new(),
            track_sid: "TR_own".into(),
        }
    }

    fn ann() -> TranscriptSpeaker {
        TranscriptSpeaker {
            identity: "ann".into(),
            track_sid: "TR_ann".into(),
        }
    }

    fn started() -> Transcripts {
        let mut transcripts = Transcripts::default();
        transcripts.start("PA_own");
        transcripts
    }

    /// Sender, attributes at the end, text, and whether it is complete.
    type SeenStream = (String, BTreeMap<String, String>, String, bool);

    /// Returns the streams in their order.
    fn streams(transcripts: &mut Transcripts) -> Vec<SeenStream> {
        let mut streams: Vec<(String, SeenStream)> = Vec::new();
        while let Some(TranscriptPacket { identity, value }) = transcripts.poll_packet() {
            match value {
                DataValue::StreamHeader(header) => {
                    assert_eq!(
                        (header.topic.as_str(), header.mime_type.as_str()),
                        (TRANSCRIPTION_TOPIC, "text/plain")
                    );
                    assert!(header.content.is_some() && header.timestamp == 9);
                    let seen = (identity, header.attributes, String::new(), false);
                    streams.push((header.stream_id, seen));
                }
                DataValue::StreamChunk(chunk) => {
                    let stream = streams
                        .iter_mut()
                        .find(|stream| stream.0 == chunk.stream_id)
                        .expect("a header");
                    assert_eq!((&stream.1.0, stream.1.3), (&identity, false));
                    stream.1.2 += std::str::from_utf8(&chunk.content).expect("cut at characters");
                }
                DataValue::StreamTrailer(trailer) => {
                    let stream = streams
                        .iter_mut()
                        .find(|stream| stream.0 == trailer.stream_id)
                        .expect("a header");
                    stream.1.1.extend(trailer.attributes);
                    stream.1.3 = true;
                }
                other => panic!("{other:?}"),
            }
        }
        streams.into_iter().map(|(_, seen)| seen).collect()
    }

    fn output(segment: u64, text: &str, spoken: usize) -> BotText {
        let status = match spoken {
            0 => "new",
            _ if spoken == text.len() => "completed",
            _ => "in-progress",
        };
        BotText {
            text: text.into(),
            segment_id: Some(segment),
            will_be_spoken: Some(true),
            spoken_status: Some(status.into()),
            spoken_progress: Some(SpokenText {
                accumulated_text: text[..spoken].into(),
            }),
        }
    }

    /// A turn is one stream: words are appended as they are spoken, and sentences are separated.
    #[test]
    fn the_bots_turn_is_one_stream() {
        let start = Instant::now();
        let mut transcripts = started();
        transcripts.handle_speech(true, start);
        for (segment, text, spoken) in [
            (1, "Hello there.", 0),
            (1, "Hello there.", 5),
            (1, "Hello there.", 12),
            (2, "How are you?", 0),
            (2, "How are you?", 12),
        ] {
            transcripts.handle_output(&output(segment, text, spoken), &bot(), 9, start);
        }
        assert_eq!(transcripts.poll_timeout(), None, "it speaks");
        let stop = start + Duration::from_secs(2);
        transcripts.handle_speech(false, stop);
        let just = stop + ROOM_TRANSCRIPT_PAUSE - Duration::from_millis(1);
        transcripts.handle_timeout(&bot(), 9, just);
        let open = streams(&mut transcripts);
        let [(identity, attributes, text, false)] = &open[..] else {
            panic!("{open:?}")
        };
        assert_eq!((identity.as_str(), text.as_str()), ("", "Hello there. How are you?"));
        assert_eq!(
            (attributes[TRACK_ID].as_str(), attributes[FINAL].as_str()),
            ("TR_own", "false")
        );
        assert_eq!(transcripts.poll_timeout(), Some(stop + ROOM_TRANSCRIPT_PAUSE));
        transcripts.handle_timeout(&bot(), 9, stop + ROOM_TRANSCRIPT_PAUSE);
        let Some(TranscriptPacket {
            value: DataValue::StreamTrailer(trailer),
            ..
        }) = transcripts.poll_packet()
        else {
            panic!("a trailer")
        };
        assert_eq!(
            (trailer.attributes[FINAL].as_str(), trailer.reason.as_str()),
            ("true", "")
        );
        assert_eq!(transcripts.poll_timeout(), None);

        // The next turn is another stream and another segment.
        transcripts.handle_output(&output(3, "Bye.", 4), &bot(), 9, stop);
        transcripts.handle_turn_end(&bot(), 9, stop);
        let next = streams(&mut transcripts);
        assert_eq!((next.len(), next[0].2.as_str(), next[0].3), (1, "Bye.", true));
        assert_ne!(next[0].1[SEGMENT_ID], attributes[SEGMENT_ID]);
    }

    /// Text that is shown and not spoken appears at once.
    #[test]
    fn shown_text_appears_at_once() {
        let now = Instant::now();
        let mut transcripts = started();
        let plain = BotText {
            text: "hello".into(),
            ..BotText::default()
        };
        let shown = BotText {
            will_be_spoken: Some(false),
            spoken_status: Some("new".into()),
            segment_id: Some(1),
            ..plain.clone()
        };
        transcripts.handle_output(&plain, &bot(), 9, now);
        transcripts.handle_output(&shown, &bot(), 9, now);
        transcripts.handle_timeout(&bot(), 9, now + ROOM_TRANSCRIPT_PAUSE);
        let shown = streams(&mut transcripts);
        assert_eq!((shown.len(), shown[0].2.as_str(), shown[0].3), (1, "hello hello", true));
    }

    /// `bot-transcription` has the text of `bot-output` once more, and earlier.
    #[test]
    fn sentences_of_the_model_are_shown_only_without_bot_output() {
        let now = Instant::now();
        let mut transcripts = started();
        transcripts.handle_sentence("One.", now);
        transcripts.handle_sentence("Two.", now);
        assert!(streams(&mut transcripts).is_empty());
        transcripts.handle_timeout(&bot(), 9, now + ROOM_TRANSCRIPT_PAUSE);
        let shown = streams(&mut transcripts);
        assert_eq!((shown.len(), shown[0].2.as_str(), shown[0].3), (1, "One. Two.", true));

        transcripts.handle_sentence("Three.", now);
        transcripts.handle_output(&output(1, "Three.", 6), &bot(), 9, now);
        transcripts.handle_sentence("Four.", now);
        transcripts.handle_turn_end(&bot(), 9, now);
        let shown = streams(&mut transcripts);
        assert_eq!((shown.len(), shown[0].2.as_str()), (1, "Three."));

        let mut transcripts = started();
        for _ in 0..10 {
            transcripts.handle_sentence(&"x".repeat(ROOM_TRANSCRIPT_BYTES_MAX / 4), now);
        }
        assert!(transcripts.sentences.len() <= ROOM_TRANSCRIPT_BYTES_MAX);
    }

    /// Each update of a caller is a whole text under the caller's name, in one segment until the
    /// final one, which also ends the bot's turn.
    #[test]
    fn a_caller_is_transcribed_under_its_identity() {
        let now = Instant::now();
        let mut transcripts = started();
        transcripts.handle_output(&output(1, "Yes?", 4), &bot(), 9, now);
        streams(&mut transcripts);
        for (text, is_final) in [("I", false), ("I am", false), ("I am Ann.", true), ("", true)] {
            transcripts.handle_user(&ann(), text, is_final, 9);
        }
        let Some(DataValue::StreamTrailer(_)) = transcripts.packets.iter().map(|packet| packet.value.clone()).nth(6)
        else {
            panic!("the bot's turn ends: {:?}", transcripts.packets)
        };
        transcripts.packets.remove(6);
        let said = streams(&mut transcripts);
        let texts: Vec<_> = said
            .iter()
            .map(|(who, attributes, text, done)| (who.as_str(), text.as_str(), attributes[FINAL].as_str(), *done))
            .collect();
        assert_eq!(
            texts,
            [
                ("ann", "I", "false", true),
                ("ann", "I am", "false", true),
                ("ann", "I am Ann.", "true", true)
            ]
        );
        assert!(
            said.iter().all(|(_, attributes, ..)| attributes[TRACK_ID] == "TR_ann"
                && attributes[SEGMENT_ID] == said[0].1[SEGMENT_ID])
        );
        transcripts.handle_user(&ann(), "Next", true, 9);
        let bob = TranscriptSpeaker {
            identity: "bob".into(),
            ..TranscriptSpeaker::default()
        };
        transcripts.handle_user(&bob, "Me too", false, 9);
        transcripts.handle_user(&ann(), "And I", false, 9);
        let more = streams(&mut transcripts);
        let mut segments: Vec<_> = said[..1]
            .iter()
            .chain(&more)
            .map(|(_, attributes, ..)| &attributes[SEGMENT_ID])
            .collect();
        segments.dedup();
        assert_eq!(segments.len(), 4);
        assert!(!more[1].1.contains_key(TRACK_ID));
    }

    #[test]
    fn long_texts_are_cut_at_characters() {
        let text = "\u{e9}".repeat(ROOM_STREAM_CHUNK_BYTES_MAX);
        let pieces: Vec<&str> = chunks(&text).collect();
        assert_eq!(pieces.concat(), text);
        assert!(pieces.len() == 2 && pieces.iter().all(|piece| piece.len() <= ROOM_STREAM_CHUNK_BYTES_MAX));
    }
}
