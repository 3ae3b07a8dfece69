//! Wyoming: events of speech services over TCP.
//!
//! An event is a line of JSON with its type, then `data_length` bytes of a JSON object, then
//! `payload_length` bytes. In: pieces of the stream, cut anywhere. Out: events; and the bytes of
//! events to send, with the data behind the line as Python's library writes it. Data within the
//! line is read too, and `null` counts as absent. Lines, data and payloads beyond their caps, and
//! what is no JSON, are errors. Source: the library `wyoming` 1.10.

use bytes::{Buf as _, Bytes, BytesMut};
use serde_json::{Map, Value, json};

use crate::assistant::cascade::RECOGNIZER_RATE_HZ;
use crate::limits::{WYOMING_DATA_BYTES_MAX, WYOMING_LINE_BYTES_MAX, WYOMING_PAYLOAD_BYTES_MAX};

/// An event of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct WyomingEvent {
    pub kind: String,
    pub data: Map<String, Value>,
    pub payload: Bytes,
}

impl WyomingEvent {
    /// Returns a text of the data, empty without one.
    pub fn text(&self, name: &str) -> &str {
        self.data.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a number of the data.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.data.get(name).and_then(Value::as_u64)
    }
}

/// Why a stream is not Wyoming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WyomingError {
    /// A line or data is no JSON object, or lacks the type.
    Form,
    /// A line, data or a payload is longer than its cap.
    TooLong,
}

/// The head of an event whose data and payload have not arrived.
#[derive(Debug)]
struct EventHead {
    kind: String,
    data: Map<String, Value>,
    data_bytes: usize,
    payload_bytes: usize,
}

/// Reads one stream.
#[derive(Debug, Default)]
pub struct WyomingReader {
    buffer: BytesMut,
    head: Option<EventHead>,
    /// Bytes of the buffer without a line break.
    searched: usize,
}

impl WyomingReader {
    /// Adds bytes. All events must be taken before the next call: this bounds the memory.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole event.
    ///
    /// # Errors
    /// [`WyomingError`]. The reader must not be used afterwards.
    pub fn next_event(&mut self) -> Result<Option<WyomingEvent>, WyomingError> {
        if self.head.is_none() {
            self.head = self.take_head()?;
        }
        match &self.head {
            Some(head) if self.buffer.len() >= head.data_bytes + head.payload_bytes => {}
            _ => return Ok(None),
        }
        let Some(mut head) = self.head.take() else {
            return Ok(None);
        };
        if head.data_bytes > 0 {
            let data = self.buffer.split_to(head.data_bytes);
            head.data.extend(object(&data)?);
        }
        Ok(Some(WyomingEvent {
            kind: head.kind,
            data: head.data,
            payload: self.buffer.split_to(head.payload_bytes).freeze(),
        }))
    }

    fn take_head(&mut self) -> Result<Option<EventHead>, WyomingError> {
        let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        let end = found.map_or(self.buffer.len(), |at| self.searched + at);
        if end > WYOMING_LINE_BYTES_MAX {
            return Err(WyomingError::TooLong);
        }
        if found.is_none() {
            self.searched = end;
            return Ok(None);
        }
        self.searched = 0;
        let line = self.buffer.split_to(end);
        self.buffer.advance(1);
        let mut line = object(&line)?;
        let length = |name: &str, max: usize| match line.get(name) {
            None | Some(Value::Null) => Ok(0),
            Some(value) => match value.as_u64() {
                Some(bytes) if bytes <= max as u64 => Ok(bytes as usize),
                Some(_) => Err(WyomingError::TooLong),
                None => Err(WyomingError::Form),
            },
        };
        let (data_bytes, payload_bytes) = (
            length("data_length", WYOMING_DATA_BYTES_MAX)?,
            length("payload_length", WYOMING_PAYLOAD_BYTES_MAX)?,
        );
        let Some(Value::String(kind)) = line.remove("type") else {
            return Err(WyomingError::Form);
        };
        let data = match line.remove("data") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(data)) => data,
            Some(_) => return Err(WyomingError::Form),
        };
        Ok(Some(EventHead {
            kind,
            data,
            data_bytes,
            payload_bytes,
        }))
    }
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, WyomingError> {
    serde_json::from_slice(bytes).map_err(|_| WyomingError::Form)
}

/// Appends the bytes of an event.
pub fn write_event(into: &mut Vec<u8>, kind: &str, data: &Value, payload: &[u8]) {
    let data = match data {
        Value::Null => String::new(),
        data => data.to_string(),
    };
    let mut head = json!({"type": kind, "version": "1.10.2"});
    if !data.is_empty() {
        head["data_length"] = data.len().into();
    }
    if !payload.is_empty() {
        head["payload_length"] = payload.len().into();
    }
    into.extend_from_slice(head.to_string().as_bytes());
    into.push(b'\n');
    into.extend_from_slice(data.as_bytes());
    into.extend_from_slice(payload);
}

/// Appends the beginning of an utterance: what is asked for, and the format of the audio.
pub fn write_transcribe(into: &mut Vec<u8>, model: Option<&str>, language: Option<&str>) {
    write_event(
        into,
        "transcribe",
        &without_nulls(json!({"name": model, "language": language})),
        &[],
    );
    write_event(into, "audio-start", &audio_format(), &[]);
}

/// Appends samples at [`RECOGNIZER_RATE_HZ`].
pub fn write_audio(into: &mut Vec<u8>, pcm: &[i16]) {
    write_event(into, "audio-chunk", &audio_format(), &payload_of(pcm));
}

/// Appends a request for wake words by these names, or for those that the server has loaded, and
/// the format of the audio.
pub fn write_detect(into: &mut Vec<u8>, names: &[String]) {
    write_event(into, "detect", &json!({"names": names}), &[]);
    write_event(into, "audio-start", &audio_format(), &[]);
}

/// Appends samples at [`RECOGNIZER_RATE_HZ`], with a time in milliseconds that a detection repeats.
pub fn write_timed_audio(into: &mut Vec<u8>, pcm: &[i16], timestamp_ms: u64) {
    let mut data = audio_format();
    data["timestamp"] = timestamp_ms.into();
    write_event(into, "audio-chunk", &data, &payload_of(pcm));
}

/// Appends the end of an utterance.
pub fn write_audio_stop(into: &mut Vec<u8>) {
    write_event(into, "audio-stop", &Value::Null, &[]);
}

/// Appends a request to speak a text.
pub fn write_synthesize(into: &mut Vec<u8>, text: &str, voice: Option<&str>, language: Option<&str>) {
    let mut data = json!({"text": text});
    if voice.is_some() || language.is_some() {
        data["voice"] = without_nulls(match voice {
            Some(voice) => json!({"name": voice}),
            None => json!({"language": language}),
        });
    }
    write_event(into, "synthesize", &data, &[]);
}

/// Appends a request to a server that handles texts.
pub fn write_handle(into: &mut Vec<u8>, text: &str, language: Option<&str>) {
    write_event(
        into,
        "transcript",
        &without_nulls(json!({"text": text, "language": language})),
        &[],
    );
}

fn payload_of(pcm: &[i16]) -> Vec<u8> {
    pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

fn audio_format() -> Value {
    json!({"rate": RECOGNIZER_RATE_HZ, "width": 2, "channels": 1})
}

fn without_nulls(mut data: Value) -> Value {
    if let Value::Object(fields) = &mut data {
        fields.retain(|_, value| !value.is_null());
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &[u8], piece_bytes: usize) -> Result<Vec<WyomingEvent>, WyomingError> {
        let (mut reader, mut events) = (WyomingReader::default(), Vec::new());
        for piece in stream.chunks(piece_bytes) {
            reader.push(piece);
            while let Some(event) = reader.next_event()? {
                events.push(event);
            }
        }
        Ok(events)
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let mut stream = Vec::new();
        write_transcribe(&mut stream, Some("base"), None);
        write_audio(&mut stream, &[1, -2]);
        write_audio_stop(&mut stream);
        write_synthesize(&mut stream, "a\nb", None, Some("de"));
        stream.extend_from_slice(b"{\"type\":\"info\",\"data\":{\"a\":1,\"b\":2},\"data_length\":7,\"payload_length\":null,\"x\":[]}\n{\"b\":3}");
        let whole = read(&stream, stream.len()).expect("events");
        for piece_bytes in 1..stream.len() {
            assert_eq!(read(&stream, piece_bytes).as_ref(), Ok(&whole), "{piece_bytes}");
        }
        let kinds: Vec<&str> = whole.iter().map(|event| &*event.kind).collect();
        assert_eq!(
            kinds,
            [
                "transcribe",
                "audio-start",
                "audio-chunk",
                "audio-stop",
                "synthesize",
                "info"
            ]
        );
        assert_eq!((whole[0].text("name"), whole[0].text("language")), ("base", ""));
        assert!(!whole[0].data.contains_key("language"));
        assert_eq!((whole[1].number("rate"), whole[1].number("x")), (Some(16_000), None));
        assert_eq!(&whole[2].payload[..], [1, 0, 0xFE, 0xFF]);
        assert_eq!(whole[4].text("text"), "a\nb");
        assert_eq!(Value::from(whole[5].data.clone()), json!({"a": 1, "b": 3}));
    }

    #[test]
    fn what_is_not_wyoming_is_rejected() {
        for (stream, why) in [
            (&b"no\n"[..], WyomingError::Form),
            (b"\n", WyomingError::Form),
            (b"[]\n", WyomingError::Form),
            (b"{}\n", WyomingError::Form),
            (b"{\"type\":1}\n", WyomingError::Form),
            (b"{\"type\":\"a\",\"data\":1}\n", WyomingError::Form),
            (b"{\"type\":\"a\",\"data_length\":-1}\n", WyomingError::Form),
            (b"{\"type\":\"a\",\"data_length\":2}\n[]", WyomingError::Form),
            (b"{\"type\":\"a\",\"data_length\":1048577}\n", WyomingError::TooLong),
            (
                b"{\"type\":\"a\",\"payload_length\":1000000000}\n",
                WyomingError::TooLong,
            ),
            (
                b"{\"type\":\"a\",\"payload_length\":18446744073709551615}\n",
                WyomingError::TooLong,
            ),
        ] {
            assert_eq!(read(stream, 5), Err(why), "{}", String::from_utf8_lossy(stream));
        }
    }

    #[test]
    fn lines_data_and_payloads_have_a_cap() {
        let line = |bytes: usize| {
            let mut line = b"{\"type\":\"".to_vec();
            line.resize(bytes - 2, b'a');
            line.extend_from_slice(b"\"}");
            line
        };
        assert_eq!(
            read(&[line(WYOMING_LINE_BYTES_MAX), b"\n".to_vec()].concat(), 1000).map(|it| it.len()),
            Ok(1)
        );
        assert_eq!(
            read(&line(WYOMING_LINE_BYTES_MAX + 1), 1000),
            Err(WyomingError::TooLong)
        );
        let mut stream = Vec::new();
        let text = "x".repeat(WYOMING_DATA_BYTES_MAX - 8);
        write_event(
            &mut stream,
            "a",
            &json!({"a": text}),
            &vec![1; WYOMING_PAYLOAD_BYTES_MAX],
        );
        let events = read(&stream, 16_384).expect("an event at the caps");
        assert_eq!(
            (events[0].text("a").len(), events[0].payload.len()),
            (text.len(), WYOMING_PAYLOAD_BYTES_MAX)
        );
    }
}
