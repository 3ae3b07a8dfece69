//! Caps and time limits of the cloud service and its client, each with its unit and its reason.

// ---- requests and keys

/// Bytes of a request's JSON: the longest sensible one has a few hundred.
pub const JSON_BYTES_MAX: usize = 64 * 1024;

// ---- grants and uploads

// ---- records, queue, sweep

// ---- builder, unpacking, logs

// ---- client and packing
