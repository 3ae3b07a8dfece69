//! Removes what a model thinks from what it says.
//!
//! In: pieces of content, cut anywhere, and how the model marks its reasoning. Out: the content
//! without `<think>…</think>` and without white space at its beginning. A piece that may be the
//! beginning of a tag is held back until it is known. So is all of an answer that may turn out to
//! be reasoning, since only a closing tag ends it.

use crate::assistant::reasoning_marks::ReasoningMarks;
use crate::limits::CHAT_TEXT_BYTES_MAX;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The state between two pieces.
#[derive(Debug, Default)]
pub struct ReasoningFilter {
    marks: ReasoningMarks,
    is_reasoning: bool,
    /// Whether all before a closing tag may be reasoning; what was written since.
    is_undecided: bool,
    undecided: String,
    has_text: bool,
    /// The beginning of a tag.
    held: String,
}

impl ReasoningFilter {
    pub fn new(marks: ReasoningMarks) -> Self {
        ReasoningFilter {
            marks,
            is_undecided: marks != ReasoningMarks::Whole,
            ..ReasoningFilter::default()
        }
    }

    /// Reads a piece, and appends what is said.
    pub fn push(&mut self, piece: &str, text: &mut String) {
        for character in piece.chars() {
            self.held.push(character);
            // What is no beginning of a tag is said, one character at a time: the rest may be one.
            while !self.held.is_empty() && !is_beginning(&self.held) {
                let first = self.held.remove(0);
                self.say(first, text);
            }
            if self.held == OPEN {
                self.held.clear();
                self.handle_reasoning(text);
                self.is_reasoning = true;
            } else if self.held == CLOSE {
                self.held.clear();
                if !std::mem::take(&mut self.is_reasoning) {
                    self.marks = ReasoningMarks::Unopened;
                    if std::mem::take(&mut self.is_undecided) {
                        self.undecided.clear();
                        self.has_text = false;
                    }
                }
            }
        }
    }

    /// The model thinks outside of its content, or opens its reasoning: the content is said.
    pub fn handle_reasoning(&mut self, text: &mut String) {
        self.marks = ReasoningMarks::Whole;
        self.is_undecided = false;
        text.push_str(&std::mem::take(&mut self.undecided));
    }

    /// Returns what was held back at the end of the content, and how the model marks its reasoning.
    /// `is_cut` tells that the model reached a limit, perhaps while it was thinking.
    pub fn finish(mut self, is_cut: bool) -> (String, ReasoningMarks) {
        let mut text = String::new();
        for character in std::mem::take(&mut self.held).chars() {
            self.say(character, &mut text);
        }
        if self.is_undecided && (self.marks == ReasoningMarks::Unknown || !is_cut) {
            text.insert_str(0, &self.undecided);
            if !is_cut && !text.is_empty() {
                self.marks = ReasoningMarks::Whole;
            }
        }
        (text, self.marks)
    }

    fn say(&mut self, character: char, text: &mut String) {
        if !self.is_reasoning && (self.has_text || !character.is_whitespace()) {
            self.has_text = true;
            if !self.is_undecided {
                text.push(character);
            } else if self.undecided.len() + character.len_utf8() <= CHAT_TEXT_BYTES_MAX {
                // Reasoning may be longer than any answer.
                self.undecided.push(character);
            }
        }
    }
}

fn is_beginning(held: &str) -> bool {
    OPEN.starts_with(held) || CLOSE.starts_with(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads content in every cut, and returns what is said and what is learnt.
    fn read(marks: ReasoningMarks, content: &str, is_cut: bool) -> (String, ReasoningMarks) {
        let characters: Vec<char> = content.chars().collect();
        let mut outcomes = (1..=characters.len().max(1)).map(|length| {
            let (mut filter, mut text) = (ReasoningFilter::new(marks), String::new());
            for piece in characters.chunks(length) {
                filter.push(&piece.iter().collect::<String>(), &mut text);
            }
            let (rest, marks) = filter.finish(is_cut);
            (text + &rest, marks)
        });
        let first = outcomes.next().expect("one length at least");
        assert!(outcomes.all(|outcome| outcome == first), "{content:?}");
        first
    }

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
            for marks in [ReasoningMarks::Whole, ReasoningMarks::Unknown] {
                assert_eq!(read(marks, content, false).0, said, "{content:?}");
            }
        }
    }

    #[test]
    fn all_before_a_closing_tag_alone_is_reasoning() {
        use ReasoningMarks::{Unknown, Unopened, Whole};
        for (marks, content, is_cut, said, learnt) in [
            (
                Unknown,
                "I should greet.\n</think>\n\nHello.",
                false,
                "Hello.",
                Unopened,
            ),
            (Unknown, "Hello.", false, "Hello.", Whole),
            (Unknown, "Hello", true, "Hello", Unknown),
            (Unknown, "", false, "", Unknown),
            (Unopened, "I should greet.</think>Hello.", false, "Hello.", Unopened),
            (Unopened, "I should", true, "", Unopened),
            (Unopened, "Hello.", false, "Hello.", Whole),
            (Unopened, "<think>a</think>Hello.", false, "Hello.", Whole),
            (Whole, "Late</think>Hello.", false, "LateHello.", Unopened),
        ] {
            assert_eq!(
                read(marks, content, is_cut),
                (said.to_owned(), learnt),
                "{marks:?} {content:?}"
            );
        }
    }

    #[test]
    fn reasoning_beside_the_content_ends_the_wait() {
        let (mut filter, mut text) = (ReasoningFilter::new(ReasoningMarks::Unknown), String::new());
        filter.push("Hel", &mut text);
        assert_eq!(text, "");
        filter.handle_reasoning(&mut text);
        filter.push("lo", &mut text);
        assert_eq!((&*text, filter.finish(false).1), ("Hello", ReasoningMarks::Whole));
    }
}
