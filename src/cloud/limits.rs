//! Caps and time limits of the cloud service and its client, each with its unit and its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

// ---- requests and keys

/// Largest JSON body of a request, in bytes. Real bodies have a few hundred bytes.
pub const JSON_BYTES_MAX: usize = 64 * 1024;
/// Length of an API key in bytes. A bearer token of another length is not hashed.
pub const KEY_BYTES: RangeInclusive<usize> = 16..=256;
/// Keys in `keys.json`. Keeps the file below [`edge_runner_proto::limits::KEY_FILE_BYTES_MAX`].
pub const KEYS_MAX: usize = 300;
/// Length of a key's name in characters.
pub const KEY_NAME_CHARS_MAX: usize = 100;
/// Time from the end of a request's head to the last byte of its answer. Rehashing an archive on a
/// slow card takes this long.
pub const CLOUD_ANSWER: Duration = Duration::from_secs(120);
/// Time an upload may stall, for example during a handover between mobile cells.
pub const UPLOAD_STALL: Duration = Duration::from_secs(60);
/// Time a client may stop reading an image; the same as for uploads.
pub const DOWNLOAD_STALL: Duration = UPLOAD_STALL;
/// Time that running uploads get after the service begins to stop.
pub const UPLOADS_GRACE: Duration = Duration::from_secs(10);

// ---- records, queue, sweep

/// Length of a build file's path in bytes, the limit of file systems for one name.
pub const BUILD_FILE_BYTES_MAX: usize = 255;
/// Records that one step of a sweep handles. Bounds the time that a request waits for a sweep.
pub const SWEEP_STEP: usize = 256;
/// Time that `GET /builds/{id}` waits for the result of a command that has exited.
pub const RECONCILE_WITHIN: Duration = Duration::from_secs(2);

// ---- builder, unpacking, logs

/// Size of one tar extension header in bytes. It is buffered whole and holds a name and times.
pub const TAR_EXTENSION_BYTES_MAX: u64 = 64 * 1024;
/// Bytes extracted at a time.
pub const UNPACK_BUFFER_BYTES: usize = 32 * 1024;
/// Length of one path component in bytes, the limit of file systems.
pub const UNPACK_COMPONENT_BYTES_MAX: usize = 255;
/// Length of a path or link target in bytes, the limit of Linux.
pub const UNPACK_PATH_BYTES_MAX: usize = 4095;
/// Components of a path. Each costs a system call per entry; deep package trees have about fifty.
pub const UNPACK_DEPTH_MAX: usize = 256;
/// Bytes of all components and link targets of an archive, which stay in memory. A hundred thousand
/// files have about three million.
pub const UNPACK_NAMES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Links followed to resolve one name, the limit of Linux.
pub const UNPACK_LINK_HOPS_MAX: usize = 40;
/// Characters of a name that are shown in a message.
pub const UNPACK_SHOWN_CHARS_MAX: usize = 200;
/// Folders open at once while a tree is removed. Commands may create deeper trees than archives.
pub const REMOVE_DEPTH_MAX: usize = 64;
/// Names of a folder that are read at once while it is removed.
pub const REMOVE_NAMES_MAX: usize = 1024;
/// Time to wait for the service's own stop after a signal has ended a command. Both may have got
/// the same signal.
pub const BUILD_STOP_WITHIN: Duration = Duration::from_millis(100);
/// Length of a line in a build's log in bytes.
pub const BUILD_LINE_BYTES_MAX: usize = 8192;

// ---- client and packing

/// Timeout of `POST /builds`, which is not retried. It exceeds [`CLOUD_ANSWER`], so that the client
/// sees the service's own timeout.
pub const CLIENT_CREATE: Duration = Duration::from_secs(CLOUD_ANSWER.as_secs() + 30);
/// Largest answer that the client reads, in bytes: a page of log lines of full length.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
