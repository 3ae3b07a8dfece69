//! What both sides of a conversation said, as text.
//!
//! In: texts of both sides, and pieces of what the caller is saying. Out: the last texts, oldest
//! first, and what the caller has said so far. Texts and their number are bounded.

use std::collections::VecDeque;
use std::fmt;

/// Bytes of one text.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of what a caller says in one turn.
const TURN_BYTES_MAX: usize = 32 * 1024;

/// Who said a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The caller.
    Caller,
    /// The bot.
    Bot,
}

/// The last texts of a conversation.
///
/// ```
/// # use edge_runner_proto::kit::{Speaker, Transcript};
/// let mut transcript = Transcript::new(20);
/// transcript.add(Speaker::Bot, "Good day.");
/// assert_eq!(transcript.push_piece("turn 1", "I need"), Some("I need"));
/// assert_eq!(transcript.push_piece("turn 1", " a plumber"), Some("I need a plumber"));
/// assert_eq!(transcript.complete("turn 1", "I need a plumber."), "I need a plumber.");
/// assert_eq!(transcript.to_text(), "Bot: Good day.\nCaller: I need a plumber.\n");
/// ```
pub struct Transcript {
    texts_max: usize,
    texts: VecDeque<(Speaker, String)>,
    /// The turn that the caller speaks, and its text so far.
    turn: (String, String),
}

impl fmt::Debug for Transcript {
    /// Omits the texts: what was said must never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transcript({} texts)", self.texts.len())
    }
}

impl Transcript {
    /// Creates a transcript that keeps this many texts.
    pub fn new(texts_max: usize) -> Self {
        Transcript {
            texts_max: texts_max.max(1),
            texts: VecDeque::new(),
            turn: (String::new(), String::new()),
        }
    }

    /// Adds a text. Of a long one, the first 4 KiB are kept.
    pub fn add(&mut self, speaker: Speaker, text: &str) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if self.texts.len() == self.texts_max {
            self.texts.pop_front();
        }
        let mut end = TEXT_BYTES_MAX.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.texts.push_back((speaker, text[..end].to_owned()));
    }

    /// Adds a piece of what the caller says in a turn. Returns what the turn has so far; `None` if
    /// it is too long.
    pub fn push_piece(&mut self, turn_id: &str, piece: &str) -> Option<&str> {
        self.begin(turn_id);
        if self.turn.1.len() + piece.len() > TURN_BYTES_MAX {
            return None;
        }
        self.turn.1.push_str(piece);
        Some(&self.turn.1)
    }

    /// The whole text of a turn, which replaces its pieces. Returns it without space around it.
    pub fn complete(&mut self, turn_id: &str, text: &str) -> &str {
        self.begin(turn_id);
        self.turn.1.clear();
        self.turn.1.push_str(text.trim());
        self.add(Speaker::Caller, text);
        &self.turn.1
    }

    fn begin(&mut self, turn_id: &str) {
        if self.turn.0 != turn_id {
            self.turn = (turn_id.to_owned(), String::new());
        }
    }

    /// Returns the texts, oldest first.
    pub fn texts(&self) -> impl Iterator<Item = (Speaker, &str)> {
        self.texts.iter().map(|(speaker, text)| (*speaker, text.as_str()))
    }

    /// Returns the texts, one per line with its speaker.
    pub fn to_text(&self) -> String {
        self.texts()
            .map(|(speaker, text)| format!("{speaker:?}: {text}\n"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_texts_are_kept() {
        let mut transcript = Transcript::new(20);
        for number in 0..25 {
            transcript.add(Speaker::Caller, &number.to_string());
        }
        transcript.add(Speaker::Bot, "  ");
        transcript.add(Speaker::Bot, &"\u{e9}".repeat(5_000));
        let texts: Vec<_> = transcript.texts().collect();
        assert_eq!((texts.len(), texts[0]), (20, (Speaker::Caller, "6")));
        assert_eq!(texts[19].1.len(), 4_096);
        assert!(!format!("{transcript:?}").contains('6'));
    }

    #[test]
    fn pieces_of_a_turn_are_joined_and_replaced_by_its_text() {
        let mut transcript = Transcript::new(20);
        transcript.push_piece("a", "one");
        assert_eq!(transcript.push_piece("a", " two"), Some("one two"));
        assert_eq!(transcript.push_piece("b", "other"), Some("other"), "another turn");
        assert_eq!(transcript.complete("a", " One, two. "), "One, two.");
        assert_eq!(transcript.texts().collect::<Vec<_>>(), [(Speaker::Caller, "One, two.")]);
        assert_eq!(
            transcript.push_piece("c", &"x".repeat(TURN_BYTES_MAX)).map(str::len),
            Some(TURN_BYTES_MAX)
        );
        assert_eq!(transcript.push_piece("c", "x"), None);
        assert_eq!(transcript.complete("c", " "), "");
        assert_eq!(transcript.texts().count(), 1, "nothing was said");
    }
}
