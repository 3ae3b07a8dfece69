//! Limits of audio: the codec, the order of arrival and the pacing.

use std::time::Duration;

// ---- audio: codec, jitter, pacing

/// Bytes of one encoded 20 ms packet: five times the size at 32 kb/s, and below every datagram
/// limit.
pub const OPUS_PACKET_BYTES_MAX: usize = 400;
/// Silent frames that are encoded before the last packet is repeated: by then, the decoder of a
/// device has settled.
pub const SILENT_FRAMES_ENCODED: u32 = 35;
/// Default complexity of the Opus encoder, 0 (cheap) to 10 (best): one core of an older board
/// carries several callers with it. Above it, speech at 28 kb/s sounds hardly better.
/// `boards/SPEED.md` has the cost of each.
pub const OPUS_COMPLEXITY_DEFAULT: u8 = 3;
/// Highest complexity of the Opus encoder (RFC 6716 section 2.1.5).
pub const OPUS_COMPLEXITY_MAX: u8 = 10;
/// Bytes of one received Opus packet: the capacity of a datagram on an ordinary network.
pub const OPUS_RECEIVED_BYTES_MAX: usize = 1_500;

// ---- audio: order of arrival

/// Packets held while an earlier one is missing; more in one gap are a burst, not a reordering.
pub const JITTER_HELD_MAX: usize = 16;
/// Shortest wait for a missing packet: the duration of one packet, so that swapped neighbours are
/// put in order.
pub const JITTER_WAIT_MIN: Duration = Duration::from_millis(20);
/// Longest wait for a missing packet; it adds to the latency of a conversation.
pub const JITTER_WAIT_MAX: Duration = Duration::from_millis(80);
/// Consecutive concealed frames; after 100 ms, concealment is noise.
pub const CONCEALED_FRAMES_MAX: u32 = 5;
/// Most silence that fills one pause between two packets: an Opus encoder that detects silence
/// sends a packet each 400 ms, and one may be lost. It fits into the queue of a bot.
pub const AUDIO_PAUSE_FILLED_MAX: Duration = Duration::from_millis(800);
/// Distance by which a sequence number may lag before it indicates a restarted sender (RFC 3550
/// appendix A.1).
pub const RTP_MISORDER_MAX: u64 = 100;

// ---- audio: pacing

/// Audio in the pacer; the rest stays in the bot's queue, where an interruption can drop it.
pub const PACER_QUEUE: Duration = Duration::from_millis(100);
/// Time that an incomplete last frame waits for more speech before it is padded with silence:
/// longer than the 100 ms of the longest provider frame, which a bot may echo as it arrives.
pub const UTTERANCE_REST_WAIT: Duration = Duration::from_millis(150);
/// Pause after which the bot counts as silent; shorter ones are between words, or between chunks of
/// a synthesiser.
pub const SPEECH_HANGOVER: Duration = Duration::from_millis(350);
