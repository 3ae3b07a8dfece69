//! How many services a page asks at once, and how often.
//!
//! In: counts of services, and the time. Out: whether they may be asked, or when to try again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Services that are asked at once: the three of a form, and as many that no page waits for any
/// more.
pub(super) const ASKED_AT_ONCE_MAX: usize = 6;

/// Services that are asked within [`ASKED_WINDOW`]: the form can be sent ten times.
pub(super) const ASKED_PER_WINDOW_MAX: usize = 30;

/// See [`ASKED_PER_WINDOW_MAX`].
pub(super) const ASKED_WINDOW: Duration = Duration::from_secs(60);

/// Time that a service has to answer. The person waits for it in front of the page.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(6);

/// The services that are asked now, and were asked lately.
#[derive(Debug, Default)]
pub struct AskedServices {
    now: usize,
    lately: VecDeque<Instant>,
}

impl AskedServices {
    /// Counts services that are about to be asked.
    ///
    /// # Errors
    /// The time after which to try again.
    pub fn begin(&mut self, count: usize, now: Instant) -> Result<(), Duration> {
        let is_past = |at: &Instant| *at + ASKED_WINDOW <= now;
        while self.lately.front().is_some_and(is_past) {
            self.lately.pop_front();
        }
        if count == 0 {
            return Ok(());
        }
        if self.now + count > ASKED_AT_ONCE_MAX {
            return Err(ANSWER_WITHIN);
        }
        let over = (self.lately.len() + count).saturating_sub(ASKED_PER_WINDOW_MAX);
        if let Some(last) = over.checked_sub(1).and_then(|last| self.lately.get(last)) {
            return Err(*last + ASKED_WINDOW - now);
        }
        self.now += count;
        self.lately.extend(std::iter::repeat_n(now, count));
        Ok(())
    }

    /// Counts services that have been asked.
    pub fn end(&mut self, count: usize) {
        self.now = self.now.saturating_sub(count);
    }
}
