//! The settings of the records of calls.

/// What is kept of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallsConfig {
    /// Calls that are kept after their end; 0 keeps no records.
    pub kept: usize,
    /// Whether the texts of both sides are kept.
    pub has_texts: bool,
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
        }
    }
}
