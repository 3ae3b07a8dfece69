//! Keys of the objects of a build: its images and its log.
//!
//! In: builds. Out: keys, which begin alike, so that one listing finds all objects of a build.

use crate::proto::build::Build;
use edge_runner_proto::uuid::Uuid;

/// Returns what the keys of a build's objects begin with.
pub fn objects_prefix(id: Uuid) -> String {
    format!("images/{id}/")
}

/// Returns the key of a stored image. Each attempt has its own, so that none overwrites another's.
pub fn image_key(build: &Build, name: &str) -> String {
    format!("{}{}/{name}", objects_prefix(build.id), build.attempt)
}

/// Returns the key of the log of a build that has ended. No attempt has this name.
pub fn log_key(id: Uuid) -> String {
    format!("{}log", objects_prefix(id))
}
