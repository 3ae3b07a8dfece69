//! Words that a text must contain, for `--expect-text`.
//!
//! In: a pattern, such as `good morning|hello *name`, and texts. Out: whether a text matches.
//! Letters match in either case, and whatever is between words counts as one space. `*` stands for
//! any text, and `|` separates alternatives. A pattern matches whole words at any place of a text.

use std::fmt;

use crate::text::beginning;

/// Bytes of texts that are compared, the last ones.
const TEXTS_BYTES_MAX: usize = 64 * 1024;
/// What the texts of the bot are, in the description of a failure.
pub const BOT_TEXTS: &str = "the bot's texts";
/// Bytes of texts in the description of a failure.
const QUOTED_BYTES_MAX: usize = 500;

/// A pattern of words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordPattern {
    /// As it was given.
    source: String,
    /// For each alternative, the parts between its asterisks.
    alternatives: Vec<Vec<String>>,
}

impl fmt::Display for WordPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl WordPattern {
    /// Reads a pattern. Returns `None` if an alternative has neither a letter nor a digit.
    pub fn parse(source: &str) -> Option<WordPattern> {
        let alternatives: Vec<Vec<String>> = source
            .split('|')
            .map(|words| format!(" {} ", words.trim()).split('*').map(normalized).collect())
            .collect();
        let is_word = |part: &String| part.chars().any(char::is_alphanumeric);
        let all_have_words = alternatives.iter().all(|parts: &Vec<String>| parts.iter().any(is_word));
        all_have_words.then(|| WordPattern {
            source: source.trim().to_owned(),
            alternatives,
        })
    }

    /// Returns whether a text contains one of the alternatives.
    pub fn matches(&self, text: &str) -> bool {
        self.matches_normalized(&normalized(&format!(" {text} ")))
    }

    fn matches_normalized(&self, text: &str) -> bool {
        self.alternatives.iter().any(|parts| contains_in_order(text, parts))
    }
}

/// Texts, one behind the other, as far as they are compared.
#[derive(Clone, Debug, Default)]
pub struct SaidTexts {
    texts: String,
    normalized: String,
}

impl SaidTexts {
    /// Adds a text. Those before it are dropped as far as all exceed 64 KiB.
    pub fn push(&mut self, text: &str) {
        for piece in [" ", text] {
            self.texts.push_str(piece);
        }
        for piece in [" ", text, " "] {
            normalize_onto(&mut self.normalized, piece);
        }
        for texts in [&mut self.texts, &mut self.normalized] {
            let mut surplus = texts.len().saturating_sub(TEXTS_BYTES_MAX);
            while !texts.is_char_boundary(surplus) {
                surplus += 1;
            }
            texts.drain(..surplus);
        }
    }

    /// Returns whether the texts contain a pattern.
    pub fn contain(&self, words: &WordPattern) -> bool {
        words.matches_normalized(&self.normalized)
    }

    /// Describes the texts, `what` they are, for the sentence about a failure.
    pub fn quoted(&self, what: &str) -> String {
        match self.texts.trim() {
            "" => format!("{what} are empty"),
            texts if texts.len() > QUOTED_BYTES_MAX => {
                format!("{what} begin with \"{}\"", beginning(texts, QUOTED_BYTES_MAX))
            }
            texts => format!("{what} are \"{texts}\""),
        }
    }
}

fn contains_in_order(text: &str, parts: &[String]) -> bool {
    let mut rest = text;
    for part in parts {
        // A space alone is the edge of an alternative that begins or ends with an asterisk.
        let part = if part == " " { "" } else { part };
        match rest.find(part) {
            // Words around an asterisk may be neighbours, with one space between them.
            Some(at) => rest = &rest[at + part.trim_end().len()..],
            None => return false,
        }
    }
    true
}

/// Returns a text in lower case, with one space in place of everything between words.
fn normalized(text: &str) -> String {
    let mut normalized = String::with_capacity(text.len());
    normalize_onto(&mut normalized, text);
    normalized
}

fn normalize_onto(normalized: &mut String, text: &str) {
    for letter in text.chars() {
        if letter.is_alphanumeric() {
            normalized.extend(letter.to_lowercase());
        } else if letter == '\'' || letter == '\u{2019}' {
            // `don't` is one word, whichever apostrophe it has.
        } else if !normalized.ends_with(' ') {
            normalized.push(' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_match_in_any_case_and_with_any_punctuation() {
        let matches = |pattern: &str, text: &str| WordPattern::parse(pattern).expect("a pattern").matches(text);
        for (pattern, text) in [
            ("hello", "Hello!"),
            ("good morning", "Well, GOOD -- morning."),
            ("don't", "I don\u{2019}t know"),
            ("bye|hello", "Hello"),
            ("hello * bye", "hello and good bye"),
            ("hello * bye", "hello bye"),
            ("appoint*", "Your appointment"),
            ("*ment is", "Your appointment is"),
            ("your * monday", "Your appointment: Monday"),
            ("gr\u{fc}n", "GR\u{dc}N"),
            ("42", "It is 42 degrees"),
        ] {
            assert!(matches(pattern, text), "{pattern} in {text}");
        }
        for (pattern, text) in [
            ("hell", "Hello"),
            ("good morning", "morning, good"),
            ("hello * bye", "bye, hello"),
            ("appoint", "Your appointment"),
            ("42", "142"),
            ("hello", ""),
        ] {
            assert!(!matches(pattern, text), "{pattern} in {text}");
        }
    }

    #[test]
    fn texts_are_one_text_and_bounded() {
        let pattern = |words: &str| WordPattern::parse(words).expect("a pattern");
        let mut texts = SaidTexts::default();
        assert!(!texts.contain(&pattern("good")));
        assert_eq!(texts.quoted("the texts"), "the texts are empty");
        for text in ["Well, good", "MORNING!", ""] {
            texts.push(text);
        }
        assert!(texts.contain(&pattern("good morning")) && texts.contain(&pattern("well*morning")));
        assert!(!texts.contain(&pattern("goodmorning")) && !texts.contain(&pattern("morning good")));
        assert_eq!(texts.quoted("the texts"), "the texts are \"Well, good MORNING!\"");
        for _ in 0..20 {
            texts.push(&"\u{e4}".repeat(4_000));
        }
        assert!(texts.texts.len() <= TEXTS_BYTES_MAX && texts.normalized.len() <= TEXTS_BYTES_MAX);
        texts.push("bye");
        assert!(texts.contain(&pattern("bye")) && !texts.contain(&pattern("good")));
        assert!(texts.quoted("the texts").len() < 600);
    }

    #[test]
    fn a_pattern_needs_a_word_in_each_alternative() {
        for pattern in ["", " ", "*", "...", "hello|", "|hello"] {
            assert_eq!(WordPattern::parse(pattern), None, "{pattern}");
        }
        assert_eq!(WordPattern::parse(" a|b ").map(|it| it.to_string()), Some("a|b".into()));
    }
}
