//! Replaces `io::direct` in a build without `videoroom`, which rejects `--direct` as an argument.

use std::sync::Arc;

use super::RunError;
use crate::bot::Bot;
use crate::config::Config;
use crate::features::{Feature, MissingFeature};

/// Fails.
///
/// # Errors
/// Always: this build has no video rooms.
pub async fn run(_config: Arc<Config>, _bot: Bot, _announce: impl FnOnce(&str)) -> Result<(), RunError> {
    Err(RunError::Bot(format!(
        "`--direct` {}",
        MissingFeature(Feature::Videoroom)
    )))
}
