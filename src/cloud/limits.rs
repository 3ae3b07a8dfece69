//! Caps and time limits of the cloud service and its client, each with its unit and its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

// ---- requests and keys

/// Bytes of a request's JSON: the longest sensible one has a few hundred.
pub const JSON_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an API key, and with it of what a request's bearer is hashed for.
pub const KEY_BYTES: RangeInclusive<usize> = 16..=256;
/// Keys in `keys.json`: one for every developer of a company; the file stays below [`edge_runner_proto::limits::KEY_FILE_BYTES_MAX`].
pub const KEYS_MAX: usize = 300;
/// Characters of a key's name.
pub const KEY_NAME_CHARS_MAX: usize = 100;
/// Regions of a service; clouds have dozens.
pub const REGIONS_MAX: usize = 100;
/// Characters of a region's name for people.
pub const REGION_NAME_CHARS_MAX: usize = 100;
/// Lines of a page of a log when the client does not say, and at most, as in the published API.
pub const LOG_PAGE: usize = 500;
pub const LOG_PAGE_MAX: usize = 10_000;
/// From the end of a request's head to the last byte of its answer: an archive may have to be hashed anew from a slow card.
pub const CLOUD_ANSWER: Duration = Duration::from_secs(120);
/// How much longer than [`UPLOAD_STALL`] a connection waits for a byte, so that its client is told why it ends.
pub const UPLOAD_STALL_MARGIN: Duration = Duration::from_secs(5);
/// Characters of a request's `Host`, which becomes a part of URLs.
pub const HOST_BYTES_MAX: usize = 255;
/// How much longer than uploads and commands the end of the service may take: what became of them has to be recorded.
pub const STOP_MARGIN: Duration = Duration::from_secs(5);
/// How long after its change a small file is read at every look: clocks of file systems go by seconds at worst.
pub const REREAD_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of a request's path in the log: the longest sensible one has 160.
pub const LOGGED_PATH_BYTES_MAX: usize = 300;
/// How long an upload may bring no byte: a mobile network between two masts.
pub const UPLOAD_STALL: Duration = Duration::from_secs(60);
/// How long a client may take nothing of an image: as long as an upload may bring nothing.
pub const DOWNLOAD_STALL: Duration = UPLOAD_STALL;
/// How long the rest of a refused upload is read and dropped, so that its sender gets to read why.
pub const REFUSED_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of the same.
pub const REFUSED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long uploads may go on once the service is stopping.
pub const UPLOADS_GRACE: Duration = Duration::from_secs(10);

// ---- grants and uploads

/// Bytes of an upload that are written at once. Each upload has two such pieces in memory: one that fills, one that is written.
pub const UPLOAD_PIECE_BYTES: usize = 256 * 1024;

/// Bytes of an upload that may be in the system's memory and not on disk.
pub const UNSYNCED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bytes of an archive that are hashed at once.
pub const HASH_PIECE_BYTES: usize = 64 * 1024;

/// How long the connection of an upload may stand still while the disk works on what has come, before its deadline is renewed.
pub const UPLOAD_RENEWED_EVERY: Duration = Duration::from_secs(10);

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

// ---- builder, unpacking, logs

/// Bytes of one extension header of a tar archive, which is kept whole: a name and some times.
pub const TAR_EXTENSION_BYTES_MAX: u64 = 64 * 1024;
/// Bytes that are unpacked at once, before the tree says what becomes of them.
pub const UNPACK_BUFFER_BYTES: usize = 32 * 1024;
/// Bytes of one component of a name: what file systems take.
pub const UNPACK_COMPONENT_BYTES_MAX: usize = 255;
/// Bytes of a whole name, and of a link's target: what the system takes.
pub const UNPACK_PATH_BYTES_MAX: usize = 4095;
/// Components of a name: each costs a system call for every entry below it; the deepest trees of packages have some fifty.
pub const UNPACK_DEPTH_MAX: usize = 256;
/// Bytes of all components and targets of an archive, which are remembered: a hundred thousand files have some three million.
pub const UNPACK_NAMES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Links that one name may lead through: as many as the system follows.
pub const UNPACK_LINK_HOPS_MAX: usize = 40;
/// Components that are looked at for all links of an archive together, a second's work: links of links multiply.
pub const UNPACK_LINK_STEPS_MAX: u64 = 10_000_000;
/// Characters of a name in a message.
pub const UNPACK_SHOWN_CHARS_MAX: usize = 200;
/// Bytes that are read of an archive at once.
pub const UNPACK_READ_BYTES: usize = 64 * 1024;
/// Folders that are open at once while a tree is removed: commands may make deeper ones than archives.
pub const REMOVE_DEPTH_MAX: usize = 64;
/// Names of a folder that are remembered at once while it is removed.
pub const REMOVE_NAMES_MAX: usize = 1024;
/// Bytes of what a command writes to `BUILD_RESULT`.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an image's URI, which stands in every answer about its build.
pub const IMAGE_URI_BYTES_MAX: usize = 2048;
/// Bytes of an image: what JSON's numbers carry without loss.
pub const IMAGE_SIZE_MAX: u64 = (1 << 53) - 1;
/// Characters of the end of stderr that a build's error tells.
pub const ERROR_STDERR_CHARS_MAX: usize = 2000;
/// Bytes of a pipe of a command that are read at once.
pub const BUILD_PIPE_BYTES: usize = 16 * 1024;
/// How long a command may take to be gone after SIGKILL, before its folder is removed in spite of it: it waits for a disk or a driver.
pub const BUILD_KILL_REST: Duration = Duration::from_secs(5);
/// How long the service's own stop may come after the same signal has ended a command.
pub const BUILD_STOP_WITHIN: Duration = Duration::from_millis(100);
/// Bytes of a line in a build's log.
pub const BUILD_LINE_BYTES_MAX: usize = 8192;
/// Bytes of a build's log.
pub const BUILD_LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Of these, what commands leave to the service's own lines: one for each step of each attempt.
pub const BUILD_LOG_OWN_BYTES: u64 = 64 * 1024;
/// Bytes of one page of a log, as JSON: ten thousand ordinary lines. A client that reads slowly
/// holds one in memory, and there may be as many of those as there are connections.
pub const BUILD_LOG_PAGE_BYTES_MAX: usize = 1024 * 1024;

// ---- client and packing

/// Bytes that a size option takes at most: more than any disk has, so that `--min-free` can be above what is free, and far from
/// where sums of sizes overflow.
pub const SIZE_HIGHEST: u64 = 1 << 50;
/// Seconds of a grant: the key that signs it is one day's, and yesterday's still verifies.
pub const GRANT_TTL_HIGHEST: Duration = Duration::from_secs(86_400);
/// Uploads at once: half of the connections, so that polls find one.
pub const UPLOADS_HIGHEST: usize = 128;
/// Commands at once.
pub const BUILDS_HIGHEST: usize = 64;
/// Waiting builds of one organization; each is a row that is read at start.
pub const PENDING_HIGHEST: usize = 100_000;
/// Runs of one build.
pub const ATTEMPTS_HIGHEST: u32 = 100;
/// Entries of a context; each is remembered while it is unpacked.
pub const ENTRIES_HIGHEST: u64 = 10_000_000;
/// A week: a command that takes longer hangs.
pub const BUILD_TIMEOUT_HIGHEST: Duration = Duration::from_secs(7 * 86_400);
/// An hour from SIGTERM to SIGKILL.
pub const BUILD_GRACE_HIGHEST: Duration = Duration::from_secs(3_600);
/// A century: whoever wants longer says 0, which is for ever.
pub const KEEP_HIGHEST: Duration = Duration::from_secs(100 * 365 * 86_400);
/// A week of waiting for a build.
pub const WAIT_HIGHEST: Duration = Duration::from_secs(7 * 86_400);
/// Ten questions a second about one build are more than anybody needs.
pub const POLL_LEAST: Duration = Duration::from_millis(100);
/// Lines of a log that a client prints.
pub const LOG_LINES_HIGHEST: u32 = 10_000_000;
/// Lines of a log in one answer, where a client reads all of them.
pub const LOG_PAGE_LINES: u32 = 1_000;
/// The same, where it prints the answer as it is; the most that a service gives.
pub const LOG_PAGE_LINES_HIGHEST: u32 = 10_000;
/// Bytes of the files of a context before compression, and of the archive: what the real service takes.
pub const CONTEXT_BYTES_MAX: u64 = 500 * 1024 * 1024;
/// Files of a context; more of them are a home directory, and each costs a path in memory.
pub const CONTEXT_FILES_MAX: usize = 500_000;
/// Bytes of an ignore file: thousands of patterns.
pub const IGNORE_BYTES_MAX: u64 = 256 * 1024;
/// One request of the client but an upload: a service that reconciles, or whose disk is slow, needs some seconds.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// The creation of a build, which is asked for once: longer than the service's own limit, so that its answer is not missed.
pub const CLIENT_CREATE: Duration = Duration::from_secs(CLOUD_ANSWER.as_secs() + 30);
/// What a question about a build gets at least, however little is left of the time to wait: the last one is asked at its end.
pub const LAST_POLL: Duration = Duration::from_secs(1);
/// An upload of which nothing moves; at its end the service writes to its disk what it had only taken.
pub const CLIENT_UPLOAD_STALL: Duration = Duration::from_secs(180);
/// Bytes of an answer to the client: a page of the longest lines.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Between the tries of a request that may succeed a moment later.
pub const CLIENT_PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// From one drawing of a bar to the next.
pub const BAR_EVERY: Duration = Duration::from_millis(100);
