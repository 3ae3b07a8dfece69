//! Attempts at something that fails for a time: pauses that grow, and one line for the log per
//! change.

use std::time::Duration;

/// Pauses between attempts; the last one stays.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// What comes after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    pub after: Duration,
    /// What the log says.
    pub words: String,
    /// Whether the log has not said it yet.
    pub is_new: bool,
}

/// The attempts so far.
#[derive(Debug, Default)]
pub struct Attempts {
    failures: usize,
    /// What was last said about a failure; empty once it works.
    said: String,
}

impl Attempts {
    /// Handles a failure, in words for the log.
    pub fn handle_failure(&mut self, words: &str) -> Retry {
        let after = PAUSES[self.failures.min(PAUSES.len() - 1)];
        self.failures += 1;
        let is_new = self.said != words;
        words.clone_into(&mut self.said);
        Retry {
            after,
            words: format!("{words}; next attempt in {} s", after.as_secs()),
            is_new,
        }
    }

    /// Handles a success that lasts: the next pause is the first one.
    pub fn handle_success(&mut self) {
        self.failures = 0;
    }

    /// Returns whether the log has said that it fails, and forgets it.
    pub fn take_failed(&mut self) -> bool {
        !std::mem::take(&mut self.said).is_empty()
    }
}
