//! The cloud agent service: its parts, from start to end; and its client.

pub mod app;
pub mod archives;
pub mod builder;
pub mod client;
pub mod disk;
pub mod guard;
pub mod house;
pub mod keys;
pub mod log;
pub mod records;
pub mod sweep;
pub mod turns;
pub mod unpack;
pub mod upload;

use crate::config::cloud::CloudConfig;
use crate::io::RunError;

/// Serves until a signal, and ends in good order. `announce` gets the banner for stdout once, when requests are answered.
///
/// # Errors
/// [`RunError`] when it cannot serve.
pub async fn run(config: CloudConfig, announce: impl FnOnce(&str)) -> Result<(), RunError> {
    let _ = (config, announce);
    Err(RunError::Command("`cloud serve` is not in this build yet".into()))
}
