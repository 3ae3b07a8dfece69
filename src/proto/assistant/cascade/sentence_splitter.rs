//! Splits text that still arrives into sentences.
//!
//! In: pieces of text. Out: whole sentences without the space around them, at most
//! [`SENTENCE_BYTES_MAX`] long.

/// Bytes of a sentence; a longer one is split between words.
const SENTENCE_BYTES_MAX: usize = 600;

/// The text that is not a whole sentence yet.
#[derive(Debug, Default)]
pub struct SentenceSplitter(String);

impl SentenceSplitter {
    pub fn push(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// Takes the next sentence.
    pub fn next_sentence(&mut self) -> Option<String> {
        let end = end(&self.0)?;
        let sentence: String = self.0.drain(..end).collect();
        Some(sentence.trim().to_owned())
    }

    /// Takes the rest.
    pub fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.0);
        Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty())
    }
}

fn end(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let after = at + c.len_utf8();
        match c {
            '\n' | '\u{3002}' | '\u{ff01}' | '\u{ff1f}' => return Some(after),
            '.' | '!' | '?' | ':' if chars.peek().is_some_and(|(_, next)| next.is_whitespace()) => return Some(after),
            _ => {}
        }
        if after >= SENTENCE_BYTES_MAX {
            return Some(text[..after].rfind(' ').filter(|space| *space > 0).unwrap_or(after));
        }
    }
    None
}
