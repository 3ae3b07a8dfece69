//! How a chat model marks what it thinks, which its answers tell.
//!
//! Some templates write the opening `<think>` into the prompt, so that an answer has the closing
//! tag alone: all before it is reasoning. Whether that is so is known at the end of the first
//! answer, and kept for all sessions with that model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// How reasoning is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningMarks {
    /// By both tags, apart from the content, or there is none.
    #[default]
    Whole,
    /// Unknown: no answer was seen.
    Unknown,
    /// By the closing tag alone.
    Unopened,
}

/// The marks of one model, for all its sessions. Unknown at first.
#[derive(Clone, Debug, Default)]
pub struct SharedMarks(Arc<AtomicU8>);

impl SharedMarks {
    pub fn get(&self) -> ReasoningMarks {
        match self.0.load(Ordering::Relaxed) {
            0 => ReasoningMarks::Unknown,
            1 => ReasoningMarks::Whole,
            _ => ReasoningMarks::Unopened,
        }
    }

    pub fn set(&self, marks: ReasoningMarks) {
        let value = match marks {
            ReasoningMarks::Unknown => 0,
            ReasoningMarks::Whole => 1,
            ReasoningMarks::Unopened => 2,
        };
        self.0.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_share_what_they_learn() {
        let (first, second) = {
            let marks = SharedMarks::default();
            (marks.clone(), marks)
        };
        assert_eq!(first.get(), ReasoningMarks::Unknown);
        for marks in [ReasoningMarks::Whole, ReasoningMarks::Unopened, ReasoningMarks::Unknown] {
            first.set(marks);
            assert_eq!(second.get(), marks);
        }
    }
}
