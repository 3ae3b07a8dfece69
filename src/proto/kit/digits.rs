//! Collects the keys of a telephone: "three digits or #, within 5 s".
//!
//! In: keys and the time. Out: the collected [`Digits`] once, at the count, at the terminator, or
//! after the time limit.

use std::time::{Duration, Instant};

/// When a collection of keys is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigitRules {
    /// Keys that are enough, from 1.
    pub count_max: usize,
    /// The key that ends the collection, and is not part of it.
    pub terminator: Option<char>,
    /// Time until the first key.
    pub first_within: Duration,
    /// Time between two keys.
    pub next_within: Duration,
}

impl DigitRules {
    /// Returns rules for `count_max` keys or `#`, each of them within `within`.
    pub fn new(count_max: usize, within: Duration) -> Self {
        DigitRules {
            count_max: count_max.max(1),
            terminator: Some('#'),
            first_within: within,
            next_within: within,
        }
    }
}

/// What ended a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigitsEnd {
    /// All keys were pressed.
    Complete,
    /// The terminator was pressed.
    Terminator,
    /// No further key was pressed in time.
    TimedOut,
}

/// The collected keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Digits {
    /// `0` to `9`, `*`, `#` and `A` to `D`, without the terminator.
    pub keys: String,
    /// Why the collection ended.
    pub end: DigitsEnd,
}

impl std::fmt::Debug for Digits {
    /// Omits the keys: they can be a PIN.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Digits({} keys, {:?})", self.keys.len(), self.end)
    }
}

/// A collection of keys.
///
/// ```
/// use std::time::{Duration, Instant};
/// # use edge_runner_proto::kit::{DigitCollector, DigitRules, DigitsEnd};
///
/// # let now = Instant::now();
/// let mut collector = DigitCollector::new(DigitRules::new(3, Duration::from_secs(5)), now);
/// assert_eq!(collector.handle_key('4', now), None);
/// assert_eq!(collector.handle_key('2', now), None);
/// let digits = collector.handle_key('#', now).expect("the terminator ends it");
/// assert_eq!((digits.keys.as_str(), digits.end), ("42", DigitsEnd::Terminator));
/// ```
pub struct DigitCollector {
    rules: DigitRules,
    keys: String,
    /// `None` after the end.
    deadline: Option<Instant>,
}

impl DigitCollector {
    /// Begins a collection.
    pub fn new(rules: DigitRules, now: Instant) -> Self {
        DigitCollector {
            deadline: Some(now + rules.first_within),
            keys: String::new(),
            rules,
        }
    }

    /// Handles a pressed key. Keys after the end are ignored.
    pub fn handle_key(&mut self, key: char, now: Instant) -> Option<Digits> {
        self.deadline?;
        if Some(key) == self.rules.terminator {
            return self.finish(DigitsEnd::Terminator);
        }
        self.keys.push(key);
        self.deadline = Some(now + self.rules.next_within);
        let is_complete = self.keys.chars().count() >= self.rules.count_max;
        is_complete.then(|| self.finish(DigitsEnd::Complete)).flatten()
    }

    /// Returns when to call [`DigitCollector::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Ends a collection whose next key is late.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Digits> {
        let is_late = self.deadline.is_some_and(|deadline| now >= deadline);
        is_late.then(|| self.finish(DigitsEnd::TimedOut)).flatten()
    }

    fn finish(&mut self, end: DigitsEnd) -> Option<Digits> {
        self.deadline.take()?;
        let keys = std::mem::take(&mut self.keys);
        Some(Digits { keys, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[allow(clippy::disallowed_methods, reason = "a base for the times of a test")]
    fn now() -> Instant {
        Instant::now()
    }

    /// Presses keys a second apart, and returns the result with the keys after it.
    fn press(rules: DigitRules, keys: &str) -> Option<(String, DigitsEnd)> {
        let mut at = now();
        let mut collector = DigitCollector::new(rules, at);
        let mut found = None;
        for key in keys.chars() {
            at += Duration::from_secs(1);
            assert_eq!(collector.handle_timeout(at), None);
            if let Some(digits) = collector.handle_key(key, at) {
                assert!(found.is_none(), "the end is told once");
                assert_eq!(collector.poll_timeout(), None);
                found = Some((digits.keys, digits.end));
            }
        }
        found
    }

    #[test]
    fn the_count_or_the_terminator_ends_it() {
        let rules = || DigitRules::new(3, LIMIT);
        let end = |keys: &str, end| Some((keys.to_owned(), end));
        assert_eq!(press(rules(), "12"), None);
        assert_eq!(press(rules(), "1234#"), end("123", DigitsEnd::Complete));
        assert_eq!(press(rules(), "1*#7"), end("1*", DigitsEnd::Terminator));
        assert_eq!(press(rules(), "#"), end("", DigitsEnd::Terminator));
        let without = DigitRules {
            terminator: None,
            ..rules()
        };
        assert_eq!(press(without, "1#2"), end("1#2", DigitsEnd::Complete));
        assert_eq!(press(DigitRules::new(0, LIMIT), "7"), end("7", DigitsEnd::Complete));
    }

    #[test]
    fn each_key_has_its_time() {
        let start = now();
        let rules = DigitRules {
            next_within: Duration::from_secs(2),
            ..DigitRules::new(3, LIMIT)
        };
        let mut collector = DigitCollector::new(rules, start);
        assert_eq!(collector.poll_timeout(), Some(start + LIMIT));
        let pressed = start + Duration::from_secs(4);
        assert_eq!(collector.handle_key('1', pressed), None);
        let deadline = pressed + Duration::from_secs(2);
        assert_eq!(collector.poll_timeout(), Some(deadline));
        assert_eq!(collector.handle_timeout(deadline - Duration::from_millis(1)), None);
        let digits = collector.handle_timeout(deadline).expect("it is late");
        assert_eq!((digits.keys.as_str(), digits.end), ("1", DigitsEnd::TimedOut));
        assert_eq!(collector.handle_timeout(deadline + LIMIT), None);
        assert_eq!(collector.handle_key('2', deadline), None);
    }

    #[test]
    fn keys_are_not_in_debug_output() {
        let digits = Digits {
            keys: "4711".to_owned(),
            end: DigitsEnd::Complete,
        };
        assert_eq!(format!("{digits:?}"), "Digits(4 keys, Complete)");
    }
}
