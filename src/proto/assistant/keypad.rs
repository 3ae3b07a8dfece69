//! The keys of a telephone, gathered into one text for the model.
//!
//! In: keys and the time. Out: the text at `#`, after a pause, and at the cap.

use std::time::{Duration, Instant};

/// Time without a key after which the keys are complete.
const WITHIN: Duration = Duration::from_secs(2);
const KEYS_MAX: usize = 32;

/// The keys that were pressed.
#[derive(Debug, Default)]
pub struct Keypad {
    keys: String,
    until: Option<Instant>,
}

impl Keypad {
    /// Adds a key. Returns the text if it completes the keys.
    pub fn push(&mut self, key: char, now: Instant) -> Option<String> {
        if key != '#' {
            self.keys.push(key);
            self.until = Some(now + WITHIN);
        }
        match key == '#' || self.keys.len() >= KEYS_MAX {
            true => self.take(),
            false => None,
        }
    }

    /// Returns when to call [`Keypad::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.until
    }

    /// Returns the text if the pause is over.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<String> {
        match self.until.is_some_and(|until| now >= until) {
            true => self.take(),
            false => None,
        }
    }

    fn take(&mut self) -> Option<String> {
        self.until = None;
        let keys = std::mem::take(&mut self.keys);
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
