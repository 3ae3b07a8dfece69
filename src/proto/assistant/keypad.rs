//! The keys of a telephone, gathered into one text for the model.
//!
//! In: keys and the time. Out: the text at `#`, after a pause, and at the cap.

use std::time::{Duration, Instant};

use crate::kit::{DigitCollector, DigitRules, Digits};

/// Time without a key after which the keys are complete.
const WITHIN: Duration = Duration::from_secs(2);
const KEYS_MAX: usize = 32;

/// The keys that were pressed.
#[derive(Default)]
pub struct Keypad {
    /// `None` before the first key.
    collector: Option<DigitCollector>,
}

impl Keypad {
    /// Adds a key. Returns the text if it completes the keys.
    pub fn push(&mut self, key: char, now: Instant) -> Option<String> {
        let rules = || DigitRules::new(KEYS_MAX, WITHIN);
        let collector = self.collector.get_or_insert_with(|| DigitCollector::new(rules(), now));
        let digits = collector.handle_key(key, now);
        self.take(digits)
    }

    /// Returns when to call [`Keypad::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.collector.as_ref().and_then(DigitCollector::poll_timeout)
    }

    /// Returns the text if the pause is over.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<String> {
        let digits = self
            .collector
            .as_mut()
            .and_then(|collector| collector.handle_timeout(now));
        self.take(digits)
    }

    fn take(&mut self, digits: Option<Digits>) -> Option<String> {
        let keys = digits?.keys;
        self.collector = None;
        (!keys.is_empty()).then(|| format!("The caller pressed these keys of the telephone: {keys}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_complete_at_the_hash_and_after_a_pause() {
        let (mut keypad, now) = (Keypad::default(), Instant::now());
        assert_eq!(keypad.push('1', now), None);
        assert_eq!(keypad.handle_timeout(now + Duration::from_millis(1_999)), None);
        assert_eq!(keypad.push('2', now + Duration::from_secs(1)), None);
        let text = keypad.push('#', now).expect("complete");
        assert!(text.ends_with(": 12"), "{text}");
        assert_eq!((keypad.push('#', now), keypad.poll_timeout()), (None, None));
        keypad.push('3', now);
        let text = keypad.handle_timeout(now + WITHIN).expect("complete");
        assert!(text.ends_with(": 3"), "{text}");
    }

    #[test]
    fn keys_are_bounded() {
        let (mut keypad, now) = (Keypad::default(), Instant::now());
        let texts: Vec<String> = (0..KEYS_MAX + 1).filter_map(|_| keypad.push('5', now)).collect();
        assert_eq!(texts.len(), 1);
    }
}
