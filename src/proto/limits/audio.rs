//! Limits of audio: the codec, the order of arrival and the pacing.

use std::time::Duration;

// ---- audio: codec, jitter, pacing

/// Default complexity of the Opus encoder, 0 (cheap) to 10 (best): one core of an older board
/// carries several callers with it. Above it, speech at 28 kb/s sounds hardly better.
/// `boards/SPEED.md` has the cost of each.
pub const OPUS_COMPLEXITY_DEFAULT: u8 = 3;
/// Highest complexity of the Opus encoder (RFC 6716 section 2.1.5).
pub const OPUS_COMPLEXITY_MAX: u8 = 10;

// ---- internal

/// Bytes of one encoded 20 ms packet: five times the size at 32 kb/s, and below every datagram
/// limit.
pub const OPUS_PACKET_BYTES_MAX: usize = 400;
/// Bytes of one received Opus packet: the capacity of a datagram on an ordinary network.
pub const OPUS_RECEIVED_BYTES_MAX: usize = 1_500;
/// Longest wait for a missing packet; it adds to the latency of a conversation.
pub const JITTER_WAIT_MAX: Duration = Duration::from_millis(80);
/// Consecutive concealed frames; after 100 ms, concealment is noise.
pub const CONCEALED_FRAMES_MAX: u32 = 5;
/// Audio in the pacer; the rest stays in the bot's queue, where an interruption can drop it.
pub const PACER_QUEUE: Duration = Duration::from_millis(100);
/// Pause after which the bot counts as silent; shorter ones are between words, or between chunks of
/// a synthesiser.
pub const SPEECH_HANGOVER: Duration = Duration::from_millis(350);
