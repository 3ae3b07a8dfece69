//! The client of the cloud agent service: regions, builds, their status and logs, and the packing and uploading of folders.
//!
//! In: a [`ClientConfig`]. Out: what was asked for, on stdout, and how it ended.

mod pack;
mod show;
mod upload;

use crate::config::cloud::ClientConfig;

/// How asking ended, if not well; in words for stderr.
#[derive(Debug)]
pub enum End {
    Failed(String),
    /// The time to wait has passed, and the build goes on.
    GoesOn(String),
}

/// Asks the service, and prints what it says.
///
/// # Errors
/// [`End`].
pub async fn run(config: ClientConfig) -> Result<(), End> {
    Err(End::Failed(format!("asking {} is not in this build yet", config.base)))
}
