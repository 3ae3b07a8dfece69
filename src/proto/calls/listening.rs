//! What listening in needs: connections of WebRTC, and an API key.

use super::config::CallsConfig;
use super::options::LISTEN_IN;
use crate::features::Feature;
use crate::options::UsageError;

/// Checks what `--listen-in` needs.
///
/// # Errors
/// [`UsageError`] that says what is missing.
pub fn check(config: &CallsConfig, has_api_key: bool) -> Result<(), UsageError> {
    let needs = match Feature::WebRtc.missing() {
        _ if !config.listen_in => return Ok(()),
        Some(missing) => missing.to_string(),
        None if has_api_key => return Ok(()),
        None => "needs an API key: set `--api-key-file FILE`, or `auto` for one that the runner makes".to_owned(),
    };
    Err(UsageError::Combination(format!("`{LISTEN_IN}` {needs}")))
}
