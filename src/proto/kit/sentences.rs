//! Splits text that still arrives into sentences, for voices that speak one sentence at a time.
//!
//! In: pieces of text. Out: whole sentences. A sentence ends at `.`, `!`, `?` or `:` before a
//! space, at the marks of Chinese, Japanese, Hindi and Arabic, and at a line break; not at an
//! abbreviation, an initial or a number such as in `3.5` and `3. Mai`.

/// Bytes of a sentence; a longer one is split between words.
pub const SENTENCE_BYTES_MAX: usize = 600;
/// Words that end with a period within a sentence.
const ABBREVIATIONS: [&str; 21] = [
    "bzw", "ca", "co", "dr", "e.g", "etc", "fig", "fr", "hr", "i.e", "inc", "jr", "mr", "mrs", "ms", "nr", "prof",
    "sr", "st", "vs", "z.b",
];

/// Text that is not a whole sentence yet.
///
/// ```
/// # use edge_runner_proto::kit::SentenceSplitter;
/// let mut splitter = SentenceSplitter::default();
/// splitter.push("It is 3.5 degrees. Dr. Wei");
/// assert_eq!(splitter.next_sentence().as_deref(), Some("It is 3.5 degrees."));
/// assert_eq!(splitter.next_sentence(), None);
/// splitter.push("ss says so!");
/// assert_eq!(splitter.finish().as_deref(), Some("Dr. Weiss says so!"));
/// ```
#[derive(Default)]
pub struct SentenceSplitter(String);

impl std::fmt::Debug for SentenceSplitter {
    /// Omits the text: what is said must never reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SentenceSplitter({} bytes)", self.0.len())
    }
}

impl SentenceSplitter {
    /// Adds text. Take the sentences after each piece.
    pub fn push(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// Takes the next whole sentence, without the space around it.
    pub fn next_sentence(&mut self) -> Option<String> {
        loop {
            let end = sentence_end(&self.0).or_else(|| split_between_words(&self.0))?;
            let sentence = self.0[..end].trim().to_owned();
            self.0.drain(..end);
            if !sentence.is_empty() {
                return Some(sentence);
            }
        }
    }

    /// Takes the rest.
    pub fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.0);
        Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty())
    }
}

/// Returns the length of the first whole sentence of a text in bytes, with the space behind it.
pub fn sentence_end(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let is_mark = match c {
            '\n' | '。' | '！' | '？' | '।' | '؟' => true,
            '.' | '!' | '?' | ':' | '…' => {
                // Quotes and brackets that close belong to the sentence.
                while chars
                    .next_if(|(_, next)| ['"', '\'', ')', ']', '”', '’', '»'].contains(next))
                    .is_some()
                {}
                let is_before_space = chars.peek().is_some_and(|(_, next)| next.is_whitespace());
                is_before_space && !(c == '.' && is_abbreviated(&text[..at]))
            }
            _ => false,
        };
        if is_mark {
            let after = chars.peek().map_or(text.len(), |(at, _)| *at);
            let space = text[after..].find(|c: char| !c.is_whitespace());
            return Some(space.map_or(text.len(), |space| after + space));
        }
    }
    None
}

/// Whether the period behind a text ends an abbreviation, an initial or a number.
fn is_abbreviated(text: &str) -> bool {
    let from = text
        .rfind(|c: char| c.is_whitespace() || c == '(')
        .map_or(0, |at| at + 1);
    let word = &text[from..];
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase);
    // A year ends a sentence more often than it is an ordinal.
    let is_ordinal = is_number && word.len() <= 2;
    is_ordinal || is_initial || ABBREVIATIONS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Returns where a text that is too long for a sentence is split.
fn split_between_words(text: &str) -> Option<usize> {
    if text.len() < SENTENCE_BYTES_MAX {
        return None;
    }
    let mut end = SENTENCE_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let head = &text[..end];
    let space = head.rfind([',', ';']).map(|at| at + 1).or_else(|| head.rfind(' '));
    Some(space.filter(|at| *at > 0).unwrap_or(end))
}

/// Returns the whole words in the first `bytes` bytes of a text, without the space behind them.
///
/// Between the characters of a script without spaces, a word may end anywhere.
pub(crate) fn whole_words(text: &str, bytes: usize) -> &str {
    let ends_word = |end: usize| {
        let (before, behind) = text.split_at(end);
        let (Some(last), Some(next)) = (before.chars().next_back(), behind.chars().next()) else {
            return true;
        };
        let is_unspaced = next.is_alphanumeric() && (has_no_spaces(last) || has_no_spaces(next));
        is_unspaced || next.is_whitespace() && !last.is_whitespace()
    };
    let ends = (0..=bytes.min(text.len())).rev();
    let end = ends
        .into_iter()
        .find(|end| text.is_char_boundary(*end) && ends_word(*end));
    &text[..end.unwrap_or(0)]
}

/// Returns whether a character belongs to Chinese or Japanese, which have no spaces between words.
fn has_no_spaces(character: char) -> bool {
    matches!(character, '\u{2e80}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ffef}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sentences of a text that arrives in pieces of so many characters.
    fn sentences(text: &str, piece: usize) -> Vec<String> {
        let mut splitter = SentenceSplitter::default();
        let mut found = Vec::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(piece) {
            splitter.push(&piece.iter().collect::<String>());
            found.extend(std::iter::from_fn(|| splitter.next_sentence()));
        }
        found.extend(splitter.finish());
        found
    }

    #[test]
    fn sentences_end_at_their_marks_however_they_arrive() {
        for (text, expected) in [
            ("Hello! How are you? Fine.", &["Hello!", "How are you?", "Fine."][..]),
            ("One\n\ntwo\nthree", &["One", "two", "three"]),
            (
                "He said: \"Go.\" Then (at last.) he went.",
                &["He said:", "\"Go.\"", "Then (at last.)", "he went."],
            ),
            ("Wait… what?  Yes", &["Wait…", "what?", "Yes"]),
            ("你好。再见！", &["你好。", "再见！"]),
            ("كيف حالك؟ بخير", &["كيف حالك؟", "بخير"]),
            ("Pi is 3.14 and v1.2.3 is out.", &["Pi is 3.14 and v1.2.3 is out."]),
            (
                "Dr. A. Weiss, e.g. on 3. Mai, z.B. here.",
                &["Dr. A. Weiss, e.g. on 3. Mai, z.B. here."],
            ),
            ("It was 1984. It rained.", &["It was 1984.", "It rained."]),
            ("", &[]),
            (" \n \n", &[]),
        ] {
            for piece in [1, 3, 1_000] {
                assert_eq!(sentences(text, piece), expected, "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_long_sentence_is_split_between_words() {
        let words = "word ".repeat(500);
        let parts = sentences(&words, 7);
        assert!(parts.len() > 4);
        assert!(
            parts
                .iter()
                .all(|part| part.len() <= SENTENCE_BYTES_MAX && part.ends_with("word"))
        );
        assert_eq!(parts.join(" "), words.trim());
        let dense = "ä".repeat(1_000);
        assert_eq!(sentences(&dense, 10).concat(), dense);
    }

    #[test]
    fn the_space_behind_a_sentence_is_part_of_its_length() {
        assert_eq!(sentence_end("Yes.  No"), Some(6));
        assert_eq!(sentence_end("Yes. "), Some(5));
        assert_eq!(sentence_end("Yes."), None);
    }

    #[test]
    fn a_word_that_is_not_whole_is_left_out() {
        for (text, bytes, words) in [
            ("for ten minutes.", 5, "for"),
            ("for ten minutes.", 7, "for ten"),
            ("for ten minutes.", 8, "for ten"),
            ("for ten minutes.", 15, "for ten"),
            ("for ten minutes.", 16, "for ten minutes."),
            ("for ten minutes.", usize::MAX, "for ten minutes."),
            ("It is **bold**.", 7, "It is"),
            ("Gr\u{fc}\u{df} dich.", 5, ""),
            ("Gr\u{fc}\u{df} dich.", 7, "Gr\u{fc}\u{df}"),
            ("\u{4f60}\u{597d}\u{ff0c}Anna.", 5, "\u{4f60}"),
            ("\u{4f60}\u{597d}\u{ff0c}Anna.", 6, "\u{4f60}"),
            ("\u{4f60}\u{597d}\u{ff0c}Anna.", 11, "\u{4f60}\u{597d}\u{ff0c}"),
            ("", 3, ""),
        ] {
            assert_eq!(whole_words(text, bytes), words, "{text} to {bytes}");
        }
    }
}
