//! The files of keys and of the signing secret.

use crate::config::cloud::KeysConfig;

/// Does what `cloud keys` asks for, and returns what stdout is to have.
///
/// # Errors
/// In words: what could not be done, and what to do.
pub fn edit(config: &KeysConfig) -> Result<String, String> {
    Err(format!(
        "the keys of {} cannot be edited in this build yet",
        config.data_dir.display()
    ))
}
