//! Every cap and every time limit of the runner, each with its unit and its reason.
//!
//! Values only. A number that bounds memory, time, a queue or the log stands here and nowhere else; the room that uses it
//! names it. Each has a test at the limit and one past it, in that room.

use std::ops::RangeInclusive;
use std::time::Duration;

// ---- bot: the contract

/// What upstream bots expect when they ask for no other idle time.
pub const BOT_IDLE: Duration = Duration::from_secs(300);
/// How long a bot may go on after its session ended, before it is aborted.
pub const BOT_GRACE: Duration = Duration::from_secs(10);
/// From the first SIGINT or SIGTERM to the end of the process; a supervisor's patience.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(2500);
/// Rates of PCM that a bot may ask for, in Hz: the range of Opus.
pub const RATES_HZ: RangeInclusive<u32> = 8_000..=48_000;
/// Audio frames that wait for a slow bot: a second of them; older speech is worthless.
pub const AUDIO_IN_FRAMES_MAX: usize = 50;
/// Other events that wait for a slow bot: a burst of client messages at the start of a talk fits many times.
pub const EVENTS_IN_MAX: usize = 256;
/// Speech that waits to be sent: enough to ride over a bot's own pauses, little enough to stay small.
pub const AUDIO_OUT_QUEUE: Duration = Duration::from_millis(500);
/// Messages that wait for the caller's channel; clients that never open one cost no more than this.
pub const MESSAGES_OUT_MAX: usize = 64;

// ---- sessions

/// Live sessions by default: what four slow cores carry with room to spare.
pub const SESSIONS_MAX_DEFAULT: usize = 32;

// ---- audio: codec, jitter, pacing

/// Bytes of one encoded 20 ms packet at most: 16 times what 32 kb/s needs, and below every datagram limit.
pub const OPUS_PACKET_BYTES_MAX: usize = 1_275;
/// Bytes of one received Opus packet at most: what a datagram on an ordinary network can hold.
pub const OPUS_RECEIVED_BYTES_MAX: usize = 1_500;

// ---- crypto: DTLS

/// First wait before a handshake flight is sent again; dimpl varies it by a quarter, so it never exceeds 1 s: a
/// microcontroller gives up after 3 s of silence.
pub const DTLS_RETRANSMIT: Duration = Duration::from_millis(800);
