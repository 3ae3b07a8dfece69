//! Caps and time limits of the cloud service and its client, each with its unit and its reason.

// ---- requests and keys

/// Bytes of a request's JSON: the longest sensible one has a few hundred.
pub const JSON_BYTES_MAX: usize = 64 * 1024;

// ---- grants and uploads

// ---- records, queue, sweep

/// Bytes of the path of a build file: what file systems allow for one name.
pub const BUILD_FILE_BYTES_MAX: usize = 255;
/// Builds on a page of `GET /builds` when the client does not say, and at most, as in the published API.
pub const BUILDS_PAGE: usize = 20;
pub const BUILDS_PAGE_MAX: usize = 100;

// ---- builder, unpacking, logs

// ---- client and packing
