//! The protobuf frames of plain WebSocket clients and of programs that are bots: one per binary
//! message.
//!
//! In: the bytes of a message. Out: a [`ProtobufFrame`] whose audio is a slice of those bytes; and
//! the bytes of audio, messages and interruptions. Audio is 16-bit signed little-endian PCM with
//! its rate in Hz and its number of channels. Rejected: bytes that are not a frame, and PCM with a
//! partial sample. Unknown fields are skipped, and unset fields have proto3's defaults. The limit
//! of the WebSocket message limits a frame. Source: `docs/spec/protobuf.md` 2; the schema is
//! written as structs, so that the build needs no generator.

use std::fmt;

use bytes::Bytes;
use prost::Message;

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProtobufFrame {
    /// Speech. Zero channels mean that the sender did not set them, which is mono.
    Audio {
        /// PCM as received: see [`samples`].
        pcm: Bytes,
        rate_hz: u32,
        channels: u32,
    },
    /// The JSON text of one message.
    Message(String),
    /// The peer requests an interruption.
    Interruption,
    Text(String),
    Transcription {
        text: String,
        user_id: String,
        timestamp: String,
    },
    /// A frame without a known content.
    Unset,
}

/// A rejected frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtobufError {
    /// The bytes do not match the schema.
    NoFrame,
    /// The PCM is not a whole number of 16-bit samples for every channel.
    PartialSample { pcm_bytes: usize, channels: u32 },
    /// Neither mono nor stereo.
    Channels(u32),
}

impl fmt::Display for ProtobufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtobufError::NoFrame => f.write_str("the bytes are not a protobuf Frame"),
            ProtobufError::PartialSample { pcm_bytes, channels } => {
                let (kind, number) = match channels {
                    2 => ("stereo", "a multiple of 4"),
                    _ => ("mono", "a multiple of 2"),
                };
                write!(f, "{pcm_bytes} bytes: 16-bit {kind} audio needs {number} bytes")
            }
            ProtobufError::Channels(channels) => write!(f, "audio of {channels} channels; 1 or 2 are understood"),
        }
    }
}

impl std::error::Error for ProtobufError {}

/// Decodes one message. Audio is not copied: it references the bytes of the message.
///
/// # Errors
///
/// Returns [`ProtobufError::NoFrame`] if the bytes do not match the schema.
pub fn decode(bytes: Bytes) -> Result<ProtobufFrame, ProtobufError> {
    let wire = WireFrame::decode(bytes).map_err(|_| ProtobufError::NoFrame)?;
    Ok(match wire.frame {
        Some(WireKind::Audio(audio)) => ProtobufFrame::Audio {
            pcm: audio.audio,
            rate_hz: audio.sample_rate,
            channels: audio.num_channels,
        },
        Some(WireKind::Message(message)) => ProtobufFrame::Message(message.data),
        Some(WireKind::Interruption(_)) => ProtobufFrame::Interruption,
        Some(WireKind::Text(text)) => ProtobufFrame::Text(text.text),
        Some(WireKind::Transcription(said)) => ProtobufFrame::Transcription {
            text: said.text,
            user_id: said.user_id,
            timestamp: said.timestamp,
        },
        None => ProtobufFrame::Unset,
    })
}

/// Appends the samples of a frame's PCM; stereo is averaged. A WAV header before them is skipped.
///
/// # Errors
///
/// Returns an error for a partial sample or more than two channels; nothing is appended then.
pub fn samples(pcm: &[u8], channels: u32, into: &mut Vec<i16>) -> Result<(), ProtobufError> {
    let pcm = without_wav_header(pcm);
    match channels {
        0 | 1 => {
            let (pairs, rest) = pcm.as_chunks::<2>();
            if !rest.is_empty() {
                return Err(partial_sample(pcm, 1));
            }
            into.extend(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
        }
        2 => {
            let (quads, rest) = pcm.as_chunks::<4>();
            if !rest.is_empty() {
                return Err(partial_sample(pcm, 2));
            }
            into.extend(quads.iter().map(|&[a, b, c, d]| {
                let sum = i32::from(i16::from_le_bytes([a, b])) + i32::from(i16::from_le_bytes([c, d]));
                (sum / 2) as i16
            }));
        }
        more => return Err(ProtobufError::Channels(more)),
    }
    Ok(())
}

/// Removes the WAV header that some libraries add to every frame.
fn without_wav_header(pcm: &[u8]) -> &[u8] {
    match pcm.split_at_checked(44) {
        Some((head, rest)) if head.starts_with(b"RIFF") && &head[8..16] == b"WAVEfmt " && &head[36..40] == b"data" => {
            rest
        }
        _ => pcm,
    }
}

fn partial_sample(pcm: &[u8], channels: u32) -> ProtobufError {
    ProtobufError::PartialSample {
        pcm_bytes: pcm.len(),
        channels,
    }
}

// Wire keys: field number and type in one byte. Fields are encoded by hand, since an encoder of
// structs would copy the samples twice, fifty times a second. A test compares the result with that
// encoder.
const FRAME_AUDIO: u8 = 2 << 3 | LENGTH_DELIMITED;
const FRAME_MESSAGE: u8 = 4 << 3 | LENGTH_DELIMITED;
const FRAME_INTERRUPTION: u8 = 5 << 3 | LENGTH_DELIMITED;
const AUDIO_AUDIO: u8 = 3 << 3 | LENGTH_DELIMITED;
const AUDIO_SAMPLE_RATE: u8 = 4 << 3;
const AUDIO_NUM_CHANNELS: u8 = 5 << 3;
const MESSAGE_DATA: u8 = 1 << 3 | LENGTH_DELIMITED;
const LENGTH_DELIMITED: u8 = 2;

/// Encodes mono audio. Id, name and timestamp stay unset, since no client reads them.
pub fn audio(pcm: &[i16], rate_hz: u32) -> Vec<u8> {
    let pcm_bytes = pcm.len() * 2;
    let body = 1 + varint_bytes(pcm_bytes) + pcm_bytes + 1 + varint_bytes(rate_hz as usize) + 2;
    let mut frame = begin(FRAME_AUDIO, body);
    frame.push(AUDIO_AUDIO);
    put_varint(pcm_bytes, &mut frame);
    for sample in pcm {
        frame.extend_from_slice(&sample.to_le_bytes());
    }
    frame.push(AUDIO_SAMPLE_RATE);
    put_varint(rate_hz as usize, &mut frame);
    frame.extend([AUDIO_NUM_CHANNELS, 1]);
    frame
}

/// Encodes the JSON text of one message.
pub fn message(text: &str) -> Vec<u8> {
    let mut frame = begin(FRAME_MESSAGE, 1 + varint_bytes(text.len()) + text.len());
    frame.push(MESSAGE_DATA);
    put_varint(text.len(), &mut frame);
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// Encodes an interruption.
pub fn interruption() -> Vec<u8> {
    begin(FRAME_INTERRUPTION, 0)
}

/// Starts a frame with a body of `body_bytes`, and reserves exactly its length.
fn begin(key: u8, body_bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(1 + varint_bytes(body_bytes) + body_bytes);
    frame.push(key);
    put_varint(body_bytes, &mut frame);
    frame
}

fn varint_bytes(value: usize) -> usize {
    prost::length_delimiter_len(value)
}

fn put_varint(value: usize, into: &mut Vec<u8>) {
    prost::encode_length_delimiter(value, into).expect("a vector grows");
}

#[derive(Clone, PartialEq, Message)]
struct WireFrame {
    #[prost(oneof = "WireKind", tags = "1, 2, 3, 4, 5")]
    frame: Option<WireKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum WireKind {
    #[prost(message, tag = "1")]
    Text(WireText),
    #[prost(message, tag = "2")]
    Audio(WireAudio),
    #[prost(message, tag = "3")]
    Transcription(WireTranscription),
    #[prost(message, tag = "4")]
    Message(WireMessage),
    #[prost(message, tag = "5")]
    Interruption(WireInterruption),
}

#[derive(Clone, PartialEq, Message)]
struct WireText {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    text: String,
}

#[derive(Clone, PartialEq, Message)]
struct WireAudio {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(bytes = "bytes", tag = "3")]
    audio: Bytes,
    #[prost(uint32, tag = "4")]
    sample_rate: u32,
    #[prost(uint32, tag = "5")]
    num_channels: u32,
    #[prost(uint64, optional, tag = "6")]
    pts: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct WireTranscription {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    text: String,
    #[prost(string, tag = "4")]
    user_id: String,
    #[prost(string, tag = "5")]
    timestamp: String,
}

#[derive(Clone, PartialEq, Message)]
struct WireMessage {
    #[prost(string, tag = "1")]
    data: String,
}

#[derive(Clone, PartialEq, Message)]
struct WireInterruption {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[cfg(test)]
mod tests;
