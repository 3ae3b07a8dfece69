//! Limits of the registration at a LiveKit server, and of the jobs that it assigns.

use std::time::Duration;

// ---- jobs of a LiveKit server

/// Bytes of the metadata of a job: the server's own limit.
pub const JOB_METADATA_BYTES_MAX: usize = 512 * 1024;
/// Share of the processor above which the runner reports the load at which the server prefers
/// others, in hundredths.
pub const WORKER_CPU_PERCENT_MAX: u8 = 85;
/// Time that a room waits for its first caller, if the job names none: the server's default.
pub const JOB_EMPTY_TIMEOUT: Duration = Duration::from_secs(300);
/// Time that a room without callers lasts, if the job names none: the server's default.
pub const JOB_DEPARTURE_TIMEOUT: Duration = Duration::from_secs(20);
/// URLs that `MEDIAROOM_URL` may name.
pub const ROOM_SERVERS_MAX: usize = 8;
/// Time for a runner to take the job of `/start`. A server that has not asked for workers in the
/// last minute asks for 5 s, and lists no job before that.
pub const DISPATCH_WITHIN: Duration = Duration::from_secs(6);

// ---- internal

/// Bytes of the name of a deployment, which its error names: the server's own limit.
pub const DEPLOYMENT_BYTES_MAX: usize = 64;
/// Bytes of one message about jobs: the server's own limit.
pub const WORKER_MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes queued for the server; the messages of the runner have some hundreds.
pub const WORKER_SEND_BYTES_MAX: usize = 256 * 1024;
/// Bytes of the attributes of a job, names included: the server's own limit.
pub const JOB_ATTRIBUTES_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the id of a job or a dispatch; those of a stock server have 15.
pub const JOB_ID_BYTES_MAX: usize = 128;
/// Jobs that were accepted and are not assigned yet. Each also holds a place of `--max-sessions`.
pub const JOB_OFFERS_MAX: usize = 64;
/// Time that a place is kept for an accepted job: the server assigns it within 3 s of the first
/// question, or never.
pub const JOB_PROMISE_KEPT: Duration = Duration::from_secs(5);
/// Lateness of timers that counts as overload when it lasts for [`WORKER_LATE_FOR`].
pub const WORKER_LATE: Duration = Duration::from_millis(50);
/// See [`WORKER_LATE`].
pub const WORKER_LATE_FOR: Duration = Duration::from_secs(5);
/// Time that a session waits until the server has the outcome of its job, before it leaves.
pub const JOB_REPORT_WITHIN: Duration = Duration::from_millis(300);
/// Time that a bot stays beyond the time after which the server closes a room without callers.
pub const JOB_STAY_MARGIN: Duration = Duration::from_secs(10);
/// Interval at which `/start` asks whether a runner has taken the job.
pub const DISPATCH_POLL: Duration = Duration::from_millis(200);
/// Requests to `/start` that wait for a runner to take their job; each holds its body. One source
/// may have three quarters of them.
pub const DISPATCHES_MAX: usize = 64;
/// Lost bots that a runner looks for at once, and as many bots that it has asked for and awaits;
/// the server repeats what is refused above that.
pub const WATCHES_MAX: usize = 64;
