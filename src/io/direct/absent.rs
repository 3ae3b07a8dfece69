//! The twin of `io::direct` in a build without `videoroom`, which refuses `--direct` when it reads the arguments.

use std::sync::Arc;

use super::RunError;
use crate::bot::Bot;
use crate::config::Config;
use crate::features::{Feature, MissingFeature};

/// # Errors
/// Always: there is no video room to go to.
pub async fn run(_config: Arc<Config>, _bot: Bot, _announce: impl FnOnce(&str)) -> Result<(), RunError> {
    Err(RunError::Bot(format!(
        "`--direct` {}",
        MissingFeature(Feature::Videoroom)
    )))
}
