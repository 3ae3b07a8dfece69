//! Limits of the registration at a LiveKit server, and of the jobs that it assigns.

use std::time::Duration;

// ---- jobs of a LiveKit server

/// Bytes of one message about jobs: the server's own limit.
pub const WORKER_MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes queued for the server; the messages of the runner have some hundreds.
pub const WORKER_SEND_BYTES_MAX: usize = 256 * 1024;
/// Bytes of the metadata of a job: the server's own limit.
pub const JOB_METADATA_BYTES_MAX: usize = 512 * 1024;
/// Bytes of the attributes of a job, names included: the server's own limit.
pub const JOB_ATTRIBUTES_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the id of a job or a dispatch; those of a stock server have 15.
pub const JOB_ID_BYTES_MAX: usize = 128;
/// Jobs that were accepted and are not assigned yet. Each also holds a place of `--max-sessions`.
pub const JOB_OFFERS_MAX: usize = 64;
/// Time that a place is kept for an accepted job: the server assigns it within 3 s of the first
/// question, or never.
pub const JOB_PROMISE_KEPT: Duration = Duration::from_secs(5);
/// Jobs whose assignment did not come in time, remembered in case it comes later.
pub const JOB_PROMISES_REMEMBERED: usize = 64;
/// Interval of load reports: that of the published workers.
pub const WORKER_STATUS_INTERVAL: Duration = Duration::from_millis(2_500);
/// Interval of checks whether timers are late.
pub const WORKER_TICK: Duration = Duration::from_millis(500);
/// Lateness of timers that counts as overload when it lasts for [`WORKER_LATE_FOR`].
pub const WORKER_LATE: Duration = Duration::from_millis(50);
/// See [`WORKER_LATE`].
pub const WORKER_LATE_FOR: Duration = Duration::from_secs(5);
/// Share of the processor above which the runner reports the load at which the server prefers
/// others, in hundredths.
pub const WORKER_CPU_PERCENT_MAX: u8 = 85;
/// Time without any frame after which the server counts as lost: it pings every 10 s.
pub const WORKER_SILENCE_MAX: Duration = Duration::from_secs(25);
/// Interval of the runner's own pings.
pub const WORKER_PING_INTERVAL: Duration = Duration::from_secs(10);
/// Time from the URL of the server to an open WebSocket.
pub const WORKER_DIAL_WITHIN: Duration = Duration::from_secs(10);
/// Time for the server to answer the registration.
pub const WORKER_REGISTER_WITHIN: Duration = Duration::from_secs(10);
/// Time for the server to take a message.
pub const WORKER_SEND_WITHIN: Duration = Duration::from_secs(5);
/// Pauses between rounds of attempts to register; the last one repeats for ever. Up to a quarter of
/// each, and up to [`WORKER_JITTER`], is added at random, so that the runners of a restarted server
/// do not return all at once.
pub const WORKER_PAUSES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(10),
];
/// See [`WORKER_PAUSES`].
pub const WORKER_JITTER: Duration = Duration::from_millis(250);
/// Time that a registration must have lasted for its loss to start the pauses anew.
pub const WORKER_SETTLED: Duration = Duration::from_secs(10);
/// Life of the token with which the runner registers: it is verified once, at the upgrade.
pub const WORKER_TOKEN_LIFE: Duration = Duration::from_secs(600);
/// Time that a session waits until the server has the outcome of its job, before it leaves.
pub const JOB_REPORT_WITHIN: Duration = Duration::from_millis(300);
/// Time that a bot stays beyond the time after which the server closes a room without callers.
pub const JOB_STAY_MARGIN: Duration = Duration::from_secs(10);
/// Time that a room waits for its first caller, if the job names none: the server's default.
pub const JOB_EMPTY_TIMEOUT: Duration = Duration::from_secs(300);
/// Time that a room without callers lasts, if the job names none: the server's default.
pub const JOB_DEPARTURE_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest such times that a job may name.
pub const JOB_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// URLs that `MEDIAROOM_URL` may name.
pub const MEDIAROOM_URLS_MAX: usize = 8;
/// Bytes of the name of a deployment: the server's own limit.
pub const DEPLOYMENT_BYTES_MAX: usize = 64;
/// Interval at which `/start` asks whether a runner has taken the job.
pub const DISPATCH_POLL: Duration = Duration::from_millis(200);
/// Time for a runner to take the job of `/start`. A server that has not asked for workers in the
/// last minute asks for 5 s, and lists no job before that.
pub const DISPATCH_WITHIN: Duration = Duration::from_secs(6);
/// Requests to `/start` that wait for a runner to take their job; each holds its body. One source
/// may have three quarters of them.
pub const DISPATCHES_MAX: usize = 64;
/// Longest random pause of a runner before it looks for a bot that was lost: runners that were all
/// told of it look one after the other.
pub const WATCH_WAIT_MAX: Duration = Duration::from_secs(2);
/// Pauses before a server that failed at all of its URLs is asked about a lost bot again: as long
/// as the restart of a node or of Redis may take.
pub const WATCH_PAUSES: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(10)];
/// Time for a new bot to be in its room, after which it is asked for again: the server gives a
/// runner that is gone some seconds to answer, and takes it for alive longer than its participants.
pub const WATCH_CONFIRM_AFTER: Duration = Duration::from_secs(10);
/// Times that a runner asks for a new bot.
pub const WATCH_DISPATCHES_MAX: usize = 3;
/// Lost bots that a runner looks for at once, and as many bots that it has asked for and awaits;
/// the server repeats what is refused above that.
pub const WATCHES_MAX: usize = 64;
/// Life of a token with which the runner calls the API of the server.
pub const SERVICE_TOKEN_LIFE: Duration = Duration::from_secs(60);
