//! Backoff for a socket reader whose reads fail: no delay after a few errors in a row, growing
//! delays after more.
//!
//! In: each error and each success. Out: the delay before the next read, and whether it deserves a
//! warning. Occasional network errors cost no packet; a permanent error, such as a closed
//! descriptor, must not keep a core busy.

use std::time::Duration;

/// Consecutive errors of a datagram socket that cause no pause: ICMP errors for each datagram of a
/// batch.
const READ_ERRORS_FREE: u32 = 10;
/// First pause after further errors; it doubles with each.
const READ_PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause between reads of a failing socket: one attempt per second is cheap, and a socket
/// that recovers is soon in use again.
const READ_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Counts consecutive errors and derives the delay after each.
#[derive(Debug, Default)]
pub struct Backoff {
    errors: u32,
}

/// The delay after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffDelay {
    pub length: Duration,
    /// True for the first delay since the last success.
    pub is_first: bool,
}

impl Backoff {
    /// Records an error. `None` means that the next read may follow at once.
    pub fn handle_error(&mut self) -> Option<BackoffDelay> {
        self.errors = self.errors.saturating_add(1);
        let pauses = self.errors.checked_sub(READ_ERRORS_FREE + 1)?;
        // After 16 doublings every configuration has reached the maximum.
        let doubled = READ_PAUSE_FIRST.saturating_mul(1 << pauses.min(16));
        Some(BackoffDelay {
            length: doubled.min(READ_PAUSE_MAX),
            is_first: pauses == 0,
        })
    }

    /// Records a success, which resets the count.
    pub fn handle_success(&mut self) {
        self.errors = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Permanent errors for an hour of virtual time: ten retries at once, then delays that double
    /// up to the maximum.
    #[test]
    fn permanent_errors_back_off_to_one_read_per_second() {
        let mut backoff = Backoff::default();
        for _ in 0..READ_ERRORS_FREE {
            assert_eq!(backoff.handle_error(), None);
        }
        let first = backoff.handle_error().expect("a pause");
        assert_eq!((first.length, first.is_first), (READ_PAUSE_FIRST, true));
        let (mut waited, mut before, mut tries) = (first.length, first.length, 1);
        while waited < Duration::from_secs(3_600) {
            let pause = backoff.handle_error().expect("a pause");
            assert!(!pause.is_first);
            assert_eq!(pause.length, (before * 2).min(READ_PAUSE_MAX));
            (waited, before, tries) = (waited + pause.length, pause.length, tries + 1);
        }
        assert!(tries < 3_620, "{tries}");
    }

    /// A success in between restarts the count.
    #[test]
    fn occasional_errors_cause_no_delay() {
        let mut backoff = Backoff::default();
        for _ in 0..1_000 {
            for _ in 0..READ_ERRORS_FREE {
                assert_eq!(backoff.handle_error(), None);
            }
            backoff.handle_success();
        }
    }

    #[test]
    fn the_error_count_does_not_overflow() {
        let mut backoff = Backoff { errors: u32::MAX - 1 };
        for _ in 0..3 {
            assert_eq!(backoff.handle_error().map(|pause| pause.length), Some(READ_PAUSE_MAX));
        }
    }
}
