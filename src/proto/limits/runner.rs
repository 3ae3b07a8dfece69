//! Limits of the runner as a process: sessions, command line, log, metrics, doctor and watchdog.

use std::ops::RangeInclusive;
use std::time::Duration;

// ---- sessions

/// Live sessions by default: a load that four slow cores carry easily.
pub const SESSIONS_MAX_DEFAULT: usize = 32;
/// WebRTC sessions that were answered and are not yet connected: half of the default session limit.
/// All devices of a home that reconnect after a power cut fit.
pub const PENDING_OFFERS_MAX: usize = 16;

// ---- records of calls

/// Bytes of the records of ended calls (`--calls-kept`); the oldest are dropped. Two hundred calls
/// of two minutes take a third of it.
pub const CALLS_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the files of `--calls-dir`; the oldest are deleted. Sixty thousand calls of two
/// minutes.
pub const CALLS_DIR_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Age at which such a file is deleted.
pub const CALLS_DIR_AGE: Duration = Duration::from_secs(90 * 86_400);
/// Bytes of the files of `--record`; the oldest are deleted. Nine hours of telephone calls.
pub const RECORDINGS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes of the events that wait to be posted (`--events`); the oldest are dropped. Two hundred
/// calls of two minutes.
pub const CALL_EVENTS_BYTES_MAX: usize = 1024 * 1024;

// ---- registered sessions

/// Sessions that `/start` created, used or not.
pub const REGISTERED_MAX: usize = 4_096;
/// Bytes of all bodies that are stored for them.
pub const REGISTERED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Registered sessions of one source address: a quarter, so that one address cannot lock out the
/// others.
pub const REGISTERED_SHARE_MAX: usize = REGISTERED_MAX / 4;
/// Lifetime of a registered session that is never used.
pub const REGISTERED_UNUSED: Duration = Duration::from_secs(300);

// ---- tokens of WebSockets

/// Lifetime of a token: that of the session to which it may belong.
pub const TOKEN_LIFE: Duration = REGISTERED_UNUSED;

// ---- replicas

/// Bytes of a `body` of `/start` that travels inside the session id: the id is in the path of a
/// request, whose head has 32 KiB.
pub const SEALED_BODY_BYTES_MAX: usize = 8 * 1024;
/// Difference between the clocks of two replicas. An id that expires later than its lifetime and
/// this difference from now is refused.
pub const CLUSTER_CLOCK_SKEW: Duration = Duration::from_secs(60);
/// Time after the expiry of an id in which a client whose replica is gone may restart elsewhere:
/// longer than nearly all calls. Without it, only calls of five minutes would survive a dead
/// replica.
pub const CLUSTER_RESTART_WITHIN: Duration = Duration::from_secs(3_600);
/// Bytes of the name of a replica, which is part of the ids of its connections.
pub const REPLICA_NAME_BYTES_MAX: usize = 32;
/// Bytes of the key of a cluster: a shorter one is no key of 128 bits in hexadecimal digits, a
/// longer one is a file that was named by mistake.
pub const CLUSTER_KEY_BYTES: RangeInclusive<usize> = 32..=512;

// ---- command line

/// Highest limit of live sessions that an option accepts; a board has no memory for the queues of
/// more.
pub const SESSIONS_MAX_HIGHEST: usize = 4_096;
/// Worker threads: far above the cores of any supported board.
pub const WORKERS_MAX: usize = 64;
/// Processes that wait for a call: far more than begin at once.
pub const WARM_MAX: usize = 32;
/// Private memory of a bot's process that may be asked for, in MiB: an interpreter needs the least,
/// and no board has the most.
pub const BOT_MEMORY_MIB: RangeInclusive<u64> = 16..=1_048_576;
/// ICE servers that are passed to clients; browsers warn from five on.
pub const ICE_SERVERS_MAX: usize = 16;
/// URLs of one ICE server: four schemes on two address families.
pub const ICE_URLS_MAX: usize = 8;
/// Networks of trusted proxies: a chain of several, or the ranges of a content delivery network.
pub const TRUSTED_PROXIES_MAX: usize = 64;
/// Additional addresses to offer; each is a line in every section of every answer.
pub const ICE_ADDRESSES_MAX: usize = 8;
/// Bytes of an API key: a shorter one can be guessed, a longer one is a file that was named by
/// mistake.
pub const API_KEY_BYTES: RangeInclusive<usize> = 16..=512;
/// Bytes of a key or certificate file: a chain with many names has 16 KiB.
pub const KEY_FILE_BYTES_MAX: u64 = 256 * 1024;
/// Bytes of any file that an option names: 20 s of stereo sound in 16 bits at 24 kHz.
pub const OPTION_FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;

// ---- log

/// Window in which log lines that callers cause are counted.
pub const LINES_WINDOW: Duration = Duration::from_secs(60);
/// Log lines that one address may cause per window: those of forty sessions.
pub const LINES_PER_CALLER_MAX: u32 = 120;
/// Log lines that all addresses may cause per window: at most 100 MB a day, which a memory card
/// endures for years.
pub const LINES_MAX: u32 = 480;
/// Log lines that callers with the API key may cause per window, apart from all others: those of
/// 160 sessions.
pub const LINES_AUTHORISED_MAX: u32 = 480;

// ---- doctor

/// Time of one check; a provider that has not answered by then fails it.
pub const DOCTOR_CHECK: Duration = Duration::from_secs(15);
/// Open files of a runner without callers, with a reserve.
pub const OPEN_FILES_BASE: u64 = 64;
/// Open files of a session: its socket, if it does not share one.
pub const OPEN_FILES_SESSION: u64 = 1;
/// Open files of a session whose bot is a program: pipes, listener and media socket.
pub const OPEN_FILES_PROGRAM: u64 = 8;
/// Open files of a session in a media room beside its WebSocket: two UDP ports in both address
/// families.
pub const OPEN_FILES_ROOM: u64 = 4;
/// Memory of a runner without callers, with a reserve of the same size.
pub const MEMORY_BASE_BYTES: u64 = 16 * 1024 * 1024;
/// Memory of a session: 0.5 MiB while both sides speak, with a reserve of the same size.
pub const MEMORY_SESSION_BYTES: u64 = 1024 * 1024;

// ---- internal

/// The longest recording of a call (`--record`); the call goes on without one.
pub const RECORDING_MAX: Duration = Duration::from_secs(3600);
/// Time after which an event that was not accepted is dropped; a start counts anew.
pub const CALL_EVENT_AGE_MAX: Duration = Duration::from_secs(3 * 86_400);
/// First pause after an event was not accepted; it doubles up to the next value, less up to a half
/// by chance.
pub const CALL_EVENT_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
pub const CALL_EVENT_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Readers of `/calls/events` at once; further ones are refused.
pub const CALL_READERS_MAX: usize = 16;
/// Events that wait for a reader of `/calls/events`; one with more is too slow, and its stream
/// ends.
pub const CALL_READER_QUEUE: usize = 64;
/// Listeners (`--listen-in`) of one call; a supervisor, a trainee and two more.
pub const LISTENERS_OF_CALL_MAX: usize = 4;
/// Listeners of all calls. Each costs as much as the bot's half of a WebRTC call.
pub const LISTENERS_MAX: usize = 8;
/// Pieces of sound that wait for a listener: two seconds of a call with one caller. One with more
/// is too slow, and is dropped.
pub const LISTENER_QUEUE: usize = 256;
/// Age at which a pending session may be evicted for an offer whose address holds as many permits:
/// a phone that connects through relays takes 4 s.
pub const PENDING_OFFERS_YIELD_AFTER: Duration = Duration::from_secs(5);
/// Bytes of such an id: a UUID, a dot, and the body with 25 bytes more in base64.
pub const SEALED_ID_BYTES_MAX: usize = 37 + (SEALED_BODY_BYTES_MAX + 25).div_ceil(3) * 4;
/// Bytes of log lines that wait while stderr is not read: some 2,000 lines.
pub const LOG_WAITING_BYTES_MAX: usize = 256 * 1024;
/// Interval at which a live session publishes its counters; scrapers come every few seconds.
pub const METRICS_INTERVAL: Duration = Duration::from_secs(1);
/// Time of one name resolution; a resolver answers within a second or not at all.
pub const DOCTOR_RESOLVE: Duration = Duration::from_secs(5);
/// Interval at which the watchdog thread checks the runtime; a supervisor with a short watchdog
/// timeout shortens it.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(500);
