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
mod tests {
    use super::*;

    fn read(bytes: impl Into<Bytes>) -> Result<ProtobufFrame, ProtobufError> {
        decode(bytes.into())
    }

    fn wire(kind: WireKind) -> Vec<u8> {
        WireFrame { frame: Some(kind) }.encode_to_vec()
    }

    /// A microphone frame of the stock client, byte for byte: name, PCM, rate, channels, no id.
    const FROM_CLIENT: &[u8] = b"\x12\x12\x12\x05audio\x1a\x04\x01\x02\xff\xff\x20\x80\x7d\x28\x01";

    #[test]
    fn decodes_microphone_audio_without_a_copy() {
        let bytes = Bytes::from_static(FROM_CLIENT);
        let within = bytes.as_ptr_range();
        let Ok(ProtobufFrame::Audio { pcm, rate_hz, channels }) = decode(bytes) else {
            panic!("it is audio");
        };
        assert_eq!((&pcm[..], rate_hz, channels), (&[1, 2, 0xff, 0xff][..], 16_000, 1));
        assert!(within.contains(&pcm.as_ptr()), "the PCM is a slice of the message");
        let mut decoded = vec![7];
        assert_eq!(samples(&pcm, channels, &mut decoded), Ok(()));
        assert_eq!(decoded, [7, 0x0201, -1], "samples are appended");
    }

    /// Frames encoded by hand equal those of the derived encoder, in one allocation of their exact
    /// length.
    #[test]
    fn hand_encoded_frames_match_the_schema() {
        for count in [1, 3, 61, 62, 160, 480, 960, 8_000, 48_000] {
            let pcm: Vec<i16> = (0..count).map(|at| (at as i16).wrapping_mul(257)).collect();
            for rate_hz in [1, 127, 128, 8_000, 16_000, 24_000, 48_000, u32::MAX] {
                let expected = wire(WireKind::Audio(WireAudio {
                    audio: pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
                    sample_rate: rate_hz,
                    num_channels: 1,
                    ..WireAudio::default()
                }));
                let frame = audio(&pcm, rate_hz);
                assert_eq!(frame, expected, "{count} samples, {rate_hz} Hz");
                assert_eq!(frame.capacity(), frame.len());
            }
        }
        for text in ["{}", "\u{e9}", &"x".repeat(125), &"x".repeat(126), &"x".repeat(200_000)] {
            let frame = message(text);
            let expected = wire(WireKind::Message(WireMessage { data: text.into() }));
            assert_eq!(frame, expected, "{} bytes", text.len());
            assert_eq!(frame.capacity(), frame.len());
        }
        assert_eq!(
            interruption(),
            wire(WireKind::Interruption(WireInterruption::default()))
        );
    }

    #[test]
    fn distinguishes_every_frame_kind() {
        assert_eq!(
            read(message("{\"a\":1}")),
            Ok(ProtobufFrame::Message("{\"a\":1}".into()))
        );
        assert_eq!(read(message("")), Ok(ProtobufFrame::Message(String::new())));
        assert_eq!(read(interruption()), Ok(ProtobufFrame::Interruption));
        let silence = ProtobufFrame::Audio {
            pcm: Bytes::new(),
            rate_hz: 24_000,
            channels: 1,
        };
        assert_eq!(read(audio(&[], 24_000)), Ok(silence));
        let text = WireText {
            text: "hello".into(),
            ..WireText::default()
        };
        assert_eq!(
            read(wire(WireKind::Text(text))),
            Ok(ProtobufFrame::Text("hello".into()))
        );
        let said = WireTranscription {
            id: 7,
            text: "hello".into(),
            user_id: "ann".into(),
            timestamp: "12:00".into(),
            ..WireTranscription::default()
        };
        let expected = ProtobufFrame::Transcription {
            text: "hello".into(),
            user_id: "ann".into(),
            timestamp: "12:00".into(),
        };
        assert_eq!(read(wire(WireKind::Transcription(said))), Ok(expected));
    }

    /// An empty message has no content, like one of a later schema; unknown fields are skipped.
    #[test]
    fn skips_unknown_fields() {
        assert_eq!(read(&b""[..]), Ok(ProtobufFrame::Unset));
        assert_eq!(read(&b"\x4a\x02hi"[..]), Ok(ProtobufFrame::Unset), "field 9");
        let mut later = vec![0x12, 0x0b];
        later.extend(b"\x52\x03new\x20\x80\x7d\x28\x01\x30\x07");
        later[1] = (later.len() - 2) as u8;
        let expected = ProtobufFrame::Audio {
            pcm: Bytes::new(),
            rate_hz: 16_000,
            channels: 1,
        };
        assert_eq!(read(later), Ok(expected), "field 10, and a time stamp");
    }

    #[test]
    fn rejects_bytes_that_are_not_a_frame() {
        let cut: [&[u8]; 8] = [
            b"\x12",
            b"\x12\x05\x1a",
            &FROM_CLIENT[..FROM_CLIENT.len() - 1],
            b"\x22\x03\x0a\x01\xff",                         // a message that is no UTF-8
            b"\x12\x02\x18\x01",                             // PCM with the type of a number
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // a length above every memory
            b"{\"label\":\"rtvi-ai\"}",
            b"\x00\x00",
        ];
        for bytes in cut {
            assert_eq!(read(bytes), Err(ProtobufError::NoFrame), "{bytes:02x?}");
        }
        // The depth of nested groups is limited.
        assert_eq!(read(vec![0x0b; 100_000]), Err(ProtobufError::NoFrame));
    }

    #[test]
    fn averages_stereo_and_rejects_partial_samples() {
        let mut decoded = Vec::new();
        let stereo: Vec<u8> = [i16::MIN, i16::MIN, i16::MAX, i16::MAX, 100, 300]
            .iter()
            .flat_map(|sample| sample.to_le_bytes())
            .collect();
        assert_eq!(samples(&stereo, 2, &mut decoded), Ok(()));
        assert_eq!(decoded, [i16::MIN, i16::MAX, 200]);
        // Unset channels mean mono.
        assert_eq!(samples(&stereo[..2], 0, &mut decoded), Ok(()));
        assert_eq!(decoded.pop(), Some(i16::MIN));

        assert_eq!(samples(&[1, 2, 3], 1, &mut decoded), Err(partial_sample(&[1, 2, 3], 1)));
        assert_eq!(
            samples(&stereo[..6], 2, &mut decoded),
            Err(partial_sample(&stereo[..6], 2))
        );
        assert_eq!(samples(&stereo, 3, &mut decoded), Err(ProtobufError::Channels(3)));
        assert_eq!(decoded.len(), 3, "what is refused appends nothing");
        assert_eq!(
            partial_sample(&[1], 1).to_string(),
            "1 bytes: 16-bit mono audio needs a multiple of 2 bytes"
        );
    }

    /// Pipecat's client transport adds one by default; its 44 bytes would be a click in every
    /// frame.
    #[test]
    fn skips_a_wav_header() {
        let head = b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\xc0\x5d\0\0\x80\xbb\0\0\x02\0\x10\0data\x04\0\0\0";
        let wav = [head.as_slice(), &[1, 2, 3, 4]].concat();
        assert_eq!(without_wav_header(&wav), [1, 2, 3, 4]);
        assert_eq!(without_wav_header(&wav[..44]), [0; 0]);
        assert_eq!(without_wav_header(&wav[..43]), &wav[..43]);
        assert_eq!(without_wav_header(&wav[4..]), &wav[4..]);
        assert_eq!(without_wav_header(&[0; 100]), [0; 100]);
    }
}
