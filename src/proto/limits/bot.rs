//! Limits of bots: the contract, the built-in bots and bots as processes.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{MESSAGE_BYTES_MAX, ROOM_PARTICIPANTS_MAX};

// ---- bot: the contract

/// Idle time that bots written for Pipecat expect when the configuration names none.
pub const BOT_IDLE: Duration = Duration::from_secs(300);
/// Time that a bot has to return after its session ended, before the runner aborts it.
pub const BOT_GRACE: Duration = Duration::from_secs(10);
/// Time that sessions have to end once the runner stops, after the drain if there is one;
/// supervisors kill slow processes.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(2500);
/// Longest drain that `--drain` accepts: a long call, and within the stop timeouts that supervisors
/// accept.
pub const DRAIN_MAX: Duration = Duration::from_secs(3600);
/// PCM rates that a bot may request, in Hz: the range of Opus.
pub const RATES_HZ: RangeInclusive<u32> = 8_000..=48_000;
/// Audio frames queued for a slow bot: one second; older speech is useless.
pub const AUDIO_IN_FRAMES_MAX: usize = 50;
/// Speech queued for sending: enough to cover pauses of the bot, little enough to bound memory and
/// latency.
pub const AUDIO_OUT_QUEUE: Duration = Duration::from_millis(500);
/// Messages queued for the caller: a burst of a bot that reports a long answer word by word. It
/// bounds the cost of a client that never opens its data channel.
pub const MESSAGES_OUT_MAX: usize = 256;

// ---- bots as processes

/// Bytes of `RUNNER_ARGUMENTS`: Linux limits one variable, including its name, to 128 KiB.
pub const PROCESS_ARGUMENTS_BYTES_MAX: usize = 128 * 1024 - 32;
/// Time without a connection to `media_url` after which the log and the client are told: most
/// programs start faster.
pub const PROCESS_MEDIA_EXPECTED: Duration = Duration::from_secs(5);
/// Bytes of one message of a program: the limit of client libraries, and 20 s of speech.
pub const PROCESS_MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Rate of `--bot-audio pcm`, in Hz, without `--bot-rate`: enough for speech.
pub const PROCESS_PCM_RATE_HZ: u32 = 16_000;
/// Speech of a program queued for its session, in samples: 40 s at 24 kHz, a long answer that is
/// synthesised faster than it plays and can still be interrupted.
pub const PROCESS_OUT_SAMPLES_MAX: usize = 1024 * 1024;
/// Bytes of one log line of a program.
pub const PROCESS_LINE_BYTES_MAX: usize = 2_000;
/// Bytes per second that a program may log permanently: a few dozen lines, which a memory card
/// endures for years.
pub const PROCESS_LOG_BYTES_PER_S: usize = 8 * 1024;

// ---- internal

/// Bots of one runner: each has its figures in the metrics, and its processes.
pub const BOTS_MAX: usize = 32;
/// Seconds that `max-seconds` of a bot accepts: a greeting, and a whole day.
pub const BOT_SECONDS: RangeInclusive<u64> = 10..=86_400;
/// Time that a bot has to return after its session ended while the runner shuts down.
pub const BOT_GRACE_AT_SHUTDOWN: Duration = Duration::from_secs(1);
/// Time that tasks have to be dropped when the runtime shuts down.
pub const RUNTIME_END: Duration = Duration::from_millis(200);
/// Marks that a bot may have pending: one per sentence of a long speech.
pub const MARKS_MAX: usize = 64;
/// Bytes of the name of a mark: some providers truncate longer ones.
pub const MARK_BYTES_MAX: usize = 256;
/// Events other than audio queued for a slow bot: bursts of client messages, and one event for each
/// participant of a full room.
pub const EVENTS_IN_MAX: usize = 256 + ROOM_PARTICIPANTS_MAX;
/// Bytes of messages queued for a slow bot: four of the longest.
pub const MESSAGES_IN_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;
/// Bytes of messages queued for the caller: four of the longest.
pub const MESSAGES_OUT_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;
/// One utterance of the parrot: 960 kB at 16 kHz, the largest buffer of a session.
pub const PARROT_UTTERANCE_MAX: Duration = Duration::from_secs(30);
/// Bytes of the `body` among them in a video room: it is checked before the room exists, and room,
/// token and ids need the rest.
pub const PROCESS_BODY_BYTES_MAX: usize = PROCESS_ARGUMENTS_BYTES_MAX - 20 * 1024;
/// Speech of the caller queued for a program, in samples: 10 s at 16 kHz, while the program loads
/// its models.
pub const PROCESS_IN_SAMPLES_MAX: usize = 160_000;
/// Time that a program has to exit after it closed its media.
pub const PROCESS_HANG_UP_GRACE: Duration = Duration::from_secs(2);
/// Time to hand over the queued speech of a program that has exited: the full queue, with a
/// reserve.
pub const PROCESS_DRAIN_WITHIN: Duration = Duration::from_secs(60);
/// Time for a killed program to be reaped and its pipes to be read to their end.
pub const PROCESS_REST: Duration = Duration::from_millis(200);
/// Time of the closing handshake with a program.
pub const PROCESS_CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// Interval of checks for the end of a process group, of which the system sends no notification.
pub const PROCESS_GROUP_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes that a program may log in one burst: a stack trace, and a verbose start.
pub const PROCESS_LOG_BURST_BYTES: usize = 128 * 1024;
