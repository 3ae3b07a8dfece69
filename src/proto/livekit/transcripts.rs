//! Transcripts of caller and bot as text streams, for the front-ends of LiveKit.
//!
//! In: the bot's RTVI messages about what is said, the bot's turns, and `now`. Out: the values of
//! data packets, each with the identity under which it is sent. The bot's text is one stream for
//! each turn, to which words are appended as they are spoken. What a caller says is a new stream
//! for each update, with the whole text so far. Source: `docs/spec/livekit.md` 5.4.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use super::TRANSCRIPTION_TOPIC;
use super::wire::{DataValue, StreamChunk, StreamContent, StreamHeader, StreamTrailer, TextStreamHeader};
use crate::bot_message::BotText;
use crate::limits::ROOM_TRANSCRIPT_PAUSE;
use crate::sorting;

/// Bytes of text in one packet of a stream, as published clients send it.
const ROOM_STREAM_CHUNK_BYTES_MAX: usize = 15_000;
/// Bytes of the bot's transcript that wait for the end of its turn, if the bot sends no progress.
const ROOM_TRANSCRIPT_BYTES_MAX: usize = 16 * 1024;

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
mod tests;
