//! The settings of the records of calls.

use std::path::PathBuf;

/// What is kept of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallsConfig {
    /// Calls that are kept after their end; 0 keeps no records.
    pub kept: usize,
    /// Whether the texts of both sides are kept.
    pub has_texts: bool,
    /// Folder to which the records of ended calls are written.
    pub dir: Option<PathBuf>,
}

impl CallsConfig {
    /// The default of `--calls-kept`.
    pub const KEPT_DEFAULT: usize = 200;
}

impl Default for CallsConfig {
    fn default() -> Self {
        CallsConfig {
            kept: CallsConfig::KEPT_DEFAULT,
            has_texts: true,
            dir: None,
        }
    }
}
