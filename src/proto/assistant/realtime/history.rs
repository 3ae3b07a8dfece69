//! The conversation as text, to be repeated on a new connection.
//!
//! In: texts of both sides. Out: the last of them, oldest first. Assistant audio cannot be put
//! back, but its text can.

use std::collections::VecDeque;

use crate::assistant::beginning;

/// Texts that are repeated.
const TEXTS_MAX: usize = 20;
/// Bytes of one text.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// Who said a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    Caller,
    Bot,
}

/// The last texts of a conversation.
#[derive(Debug, Default)]
pub struct History(VecDeque<(Speaker, String)>);

impl History {
    pub fn add(&mut self, speaker: Speaker, text: &str) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if self.0.len() == TEXTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((speaker, beginning(text, TEXT_BYTES_MAX).to_owned()));
    }

    pub fn texts(&self) -> impl Iterator<Item = (Speaker, &str)> {
        self.0.iter().map(|(speaker, text)| (*speaker, text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_texts_are_kept() {
        let mut history = History::default();
        for number in 0..25 {
            history.add(Speaker::Caller, &number.to_string());
        }
        history.add(Speaker::Bot, "  ");
        history.add(Speaker::Bot, &"\u{e9}".repeat(5_000));
        let texts: Vec<_> = history.texts().collect();
        assert_eq!((texts.len(), texts[0]), (20, (Speaker::Caller, "6")));
        assert_eq!(texts[19].1.len(), 4_096);
    }
}
