//! Limits of the services of the bot `cascade`: recognisers, chat models and voices.

use std::time::Duration;

// ---- services of the bot `cascade`

/// Time to the first byte of the first answer of a service: it may load its model.
pub const SERVICE_FIRST_BYTE_COLD: Duration = Duration::from_secs(60);
/// Time to the first byte of later answers: it may load its model again. While it sends comments,
/// the first limit holds.
pub const SERVICE_FIRST_BYTE_WARM: Duration = Duration::from_secs(30);
/// Silence of a service within an answer. Comments and empty events do not end it.
pub const SERVICE_SILENCE: Duration = Duration::from_secs(10);
/// Time without text or audio for the caller, at the beginning of an answer or within it: a model
/// may reason for some time before it speaks.
pub const SERVICE_OUTPUT_WITHIN: Duration = Duration::from_secs(120);

// ---- internal

/// Time from the name lookup to the open connection of a service: it stands on the local network,
/// or answers as fast as if it did.
pub const SERVICE_CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Bytes of one line, and of one event, of a stream of events: several times the longest text, and
/// the functions of an answer at once.
pub const SSE_LINE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a whole stream of events: a long answer, of which each word has a JSON object.
pub const SSE_STREAM_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of text of one answer: half an hour of speech.
pub const CHAT_TEXT_BYTES_MAX: usize = 32 * 1024;
/// Functions that one answer may call.
pub const CHAT_CALLS_MAX: usize = 16;
/// Bytes of names and arguments of the functions of one answer.
pub const CHAT_CALLS_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the header line of a Wyoming event.
pub const WYOMING_LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the data of a Wyoming event: a list of 176 voices has 88 KB.
pub const WYOMING_DATA_BYTES_MAX: usize = 256 * 1024;
/// Bytes of the payload of a Wyoming event: 20 s of speech.
pub const WYOMING_PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Samples of one utterance that a recogniser receives, at 16 kHz: 40 s, more than a turn may last.
pub const UTTERANCE_SAMPLES_MAX: usize = 40 * 16_000;
/// Bytes of a transcript.
pub const TRANSCRIPT_BYTES_MAX: usize = 16 * 1024;
/// Length of the audio of one request to a voice: the text at its limit, spoken slowly.
pub const SPEECH_MAX: Duration = Duration::from_secs(600);
