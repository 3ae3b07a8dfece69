//! The settings of the records of calls.

use std::path::PathBuf;

use crate::secret::SecretBytes;

/// What is kept of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallsConfig {
    /// Calls that are kept after their end; 0 keeps no records.
    pub kept: usize,
    /// Whether the texts of both sides are kept.
    pub has_texts: bool,
    /// Folder to which the records of ended calls are written.
    pub dir: Option<PathBuf>,
    /// Where events of calls are posted.
    pub events: Option<EventsConfig>,
}

/// The receiver of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsConfig {
    pub url: String,
    /// The key of the signatures.
    pub secret: SecretBytes,
}

impl CallsConfig {
    /// The default of `--calls-kept`.
    pub const KEPT_DEFAULT: usize = 200;

    /// Returns the folders with what is kept of calls.
    pub fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        self.dir.iter()
    }
}

impl Default for CallsConfig {
    fn default() -> Self {
        CallsConfig {
            kept: CallsConfig::KEPT_DEFAULT,
            has_texts: true,
            dir: None,
            events: None,
        }
    }
}
