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

// ---- builder, unpacking, logs

// ---- client and packing
