//! Caps and time limits of the cloud service and its client, each with its unit and its reason.

use std::time::Duration;

// ---- requests and keys

/// Bytes of a request's JSON: the longest sensible one has a few hundred.
pub const JSON_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a kept image that are read at once; a slow client holds as many in memory.
pub const FILE_PIECE_BYTES: usize = 64 * 1024;
/// How long an upload may bring no byte: a mobile network between two masts.
pub const UPLOAD_STALL: Duration = Duration::from_secs(60);
/// How long the rest of a refused upload is read and dropped, so that its sender gets to read why.
pub const REFUSED_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of the same.
pub const REFUSED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long uploads may go on once the service is stopping.
pub const UPLOADS_GRACE: Duration = Duration::from_secs(10);

// ---- grants and uploads

// ---- records, queue, sweep

/// Bytes of the path of a build file: what file systems allow for one name.
pub const BUILD_FILE_BYTES_MAX: usize = 255;
/// Builds on a page of `GET /builds` when the client does not say, and at most, as in the published API.
pub const BUILDS_PAGE: usize = 20;
pub const BUILDS_PAGE_MAX: usize = 100;
/// Between two sweeps, unless something is kept for less.
pub const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// The same at least, however short the times are that things are kept.
pub const SWEEP_EVERY_MIN: Duration = Duration::from_millis(100);
/// How long after the end of its grant an upload still counts as coming: its last bytes are written to a slow disk.
pub const UPLOAD_REST: Duration = Duration::from_secs(300);
/// Records that one step of a sweep takes, so that a request waits no longer than for these.
pub const SWEEP_STEP: usize = 256;
/// How long the answer about a build waits for the result of a command that has ended.
pub const RECONCILE_WITHIN: Duration = Duration::from_secs(2);
/// Between two tries to record what became of a build, while there is no space for it.
pub const RECORD_AGAIN: Duration = Duration::from_secs(1);
/// Seconds after which a client whose build found no place should come again: most builds take longer.
pub const CROWDED_RETRY_S: u32 = 30;

// ---- builder, unpacking, logs

// ---- client and packing
