//! Removes what a model thinks from what it says.
//!
//! In: pieces of content, cut anywhere. Out: the content without `<think>…</think>`, without a
//! closing tag that has no opening one, and without white space at its beginning. A piece that may
//! be the beginning of a tag is held back until it is known.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The state between two pieces.
#[derive(Debug, Default)]
pub struct ReasoningFilter {
    is_reasoning: bool,
    has_text: bool,
    /// The beginning of a tag.
    held: String,
}

impl ReasoningFilter {
    /// Reads a piece, and appends what is said.
    pub fn push(&mut self, piece: &str, text: &mut String) {
        for character in piece.chars() {
            self.held.push(character);
            // What is no beginning of a tag is said, one character at a time: the rest may be one.
            while !self.held.is_empty() && !is_beginning(&self.held) {
                let first = self.held.remove(0);
                self.say(first, text);
            }
            if self.held == OPEN || self.held == CLOSE {
                self.is_reasoning = self.held == OPEN;
                self.held.clear();
            }
        }
    }

    /// Returns what was held back at the end of the content.
    pub fn finish(mut self) -> String {
        let mut text = String::new();
        for character in std::mem::take(&mut self.held).chars() {
            self.say(character, &mut text);
        }
        text
    }

    fn say(&mut self, character: char, text: &mut String) {
        if !self.is_reasoning && (self.has_text || !character.is_whitespace()) {
            self.has_text = true;
            text.push(character);
        }
    }
}

fn is_beginning(held: &str) -> bool {
    OPEN.starts_with(held) || CLOSE.starts_with(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_never_said_however_it_is_cut() {
        for (content, said) in [
            ("Hello <b>you</b>.", "Hello <b>you</b>."),
            ("<think>secret</think>\n\nHello.", "Hello."),
            ("Yes. <think>a<b</think>No.<think>open", "Yes. No."),
            ("</think>\n Hello", "Hello"),
            ("1 < 2 <thin", "1 < 2 <thin"),
            ("<<think>x</think>>ä", "<>ä"),
            ("<think>a</think", ""),
            ("", ""),
        ] {
            let characters: Vec<char> = content.chars().collect();
            for length in 1..=characters.len().max(1) {
                let (mut filter, mut text) = (ReasoningFilter::default(), String::new());
                for piece in characters.chunks(length) {
                    filter.push(&piece.iter().collect::<String>(), &mut text);
                }
                text.push_str(&filter.finish());
                assert_eq!(text, said, "{content:?} by {length}");
            }
        }
    }
}
