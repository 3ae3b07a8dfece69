//! The conversation as text, to be repeated on a new connection, and the sentences of an answer.
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

/// Returns the length of the first whole sentence of a text in bytes, with the space behind it.
pub fn sentence_end(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let after = at + c.len_utf8();
        match c {
            '\u{3002}' | '\u{ff01}' | '\u{ff1f}' => return Some(after),
            '.' | '!' | '?' | '\n' if chars.peek().is_some_and(|(_, next)| next.is_whitespace()) => {
                let space = text[after..].find(|c: char| !c.is_whitespace());
                return Some(space.map_or(text.len(), |space| after + space));
            }
            _ => {}
        }
    }
    None
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

    #[test]
    fn sentences_end_at_punctuation_and_space() {
        assert_eq!(sentence_end("Hello. How"), Some(7));
        assert_eq!(sentence_end("It costs 3.50"), None);
        assert_eq!(sentence_end("Hello."), None, "more may follow");
        assert_eq!(sentence_end("\u{3053}\u{3002}x"), Some(6));
    }
}
