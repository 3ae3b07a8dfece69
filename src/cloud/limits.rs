//! Caps and time limits of the cloud service and its client, each with its unit and its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

// ---- requests and keys

/// Bytes of a request's JSON: the longest sensible one has a few hundred.
pub const JSON_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an API key, and with it of what a request's bearer is hashed for.
pub const KEY_BYTES: RangeInclusive<usize> = 16..=256;
/// Keys in `keys.json`: one for every developer of a company; the file stays below
/// [`edge_runner_proto::limits::KEY_FILE_BYTES_MAX`].
pub const KEYS_MAX: usize = 300;
/// Characters of a key's name.
pub const KEY_NAME_CHARS_MAX: usize = 100;
/// From the end of a request's head to the last byte of its answer: an archive may have to be
/// hashed anew from a slow card.
pub const CLOUD_ANSWER: Duration = Duration::from_secs(120);
/// How long an upload may bring no byte: a mobile network between two masts.
pub const UPLOAD_STALL: Duration = Duration::from_secs(60);
/// How long a client may take nothing of an image: as long as an upload may bring nothing.
pub const DOWNLOAD_STALL: Duration = UPLOAD_STALL;
/// How long uploads may go on once the service is stopping.
pub const UPLOADS_GRACE: Duration = Duration::from_secs(10);

// ---- grants and uploads

// ---- records, queue, sweep

/// Bytes of the path of a build file: what file systems allow for one name.
pub const BUILD_FILE_BYTES_MAX: usize = 255;
/// Records that one step of a sweep takes, so that a request waits no longer than for these.
pub const SWEEP_STEP: usize = 256;
/// How long the answer about a build waits for the result of a command that has ended.
pub const RECONCILE_WITHIN: Duration = Duration::from_secs(2);

// ---- builder, unpacking, logs

/// Bytes of one extension header of a tar archive, which is kept whole: a name and some times.
pub const TAR_EXTENSION_BYTES_MAX: u64 = 64 * 1024;
/// Bytes that are unpacked at once, before the tree says what becomes of them.
pub const UNPACK_BUFFER_BYTES: usize = 32 * 1024;
/// Bytes of one component of a name: what file systems take.
pub const UNPACK_COMPONENT_BYTES_MAX: usize = 255;
/// Bytes of a whole name, and of a link's target: what the system takes.
pub const UNPACK_PATH_BYTES_MAX: usize = 4095;
/// Components of a name: each costs a system call for every entry below it; the deepest trees of
/// packages have some fifty.
pub const UNPACK_DEPTH_MAX: usize = 256;
/// Bytes of all components and targets of an archive, which are remembered: a hundred thousand
/// files have some three million.
pub const UNPACK_NAMES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Links that one name may lead through: as many as the system follows.
pub const UNPACK_LINK_HOPS_MAX: usize = 40;
/// Characters of a name in a message.
pub const UNPACK_SHOWN_CHARS_MAX: usize = 200;
/// Folders that are open at once while a tree is removed: commands may make deeper ones than
/// archives.
pub const REMOVE_DEPTH_MAX: usize = 64;
/// Names of a folder that are remembered at once while it is removed.
pub const REMOVE_NAMES_MAX: usize = 1024;
/// How long the service's own stop may come after the same signal has ended a command.
pub const BUILD_STOP_WITHIN: Duration = Duration::from_millis(100);
/// Bytes of a line in a build's log.
pub const BUILD_LINE_BYTES_MAX: usize = 8192;

// ---- client and packing

/// The creation of a build, which is asked for once: longer than the service's own limit, so that
/// its answer is not missed.
pub const CLIENT_CREATE: Duration = Duration::from_secs(CLOUD_ANSWER.as_secs() + 30);
/// Bytes of an answer to the client: a page of the longest lines.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
