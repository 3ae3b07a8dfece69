//! Parts of texts.

use std::borrow::Cow;

/// What a text ends with that was cut.
const CUT: &str = "…";

/// Returns the part of a text in its first `bytes_max` bytes, without half a character.
pub fn beginning(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns a text within `bytes_max` bytes: a longer one ends behind a word, with an ellipsis. One
/// word that is longer is cut.
pub fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let part = beginning(text, bytes_max.saturating_sub(CUT.len()));
    let ends_word = text[part.len()..].starts_with(char::is_whitespace);
    let end = part.rfind(char::is_whitespace).filter(|_| !ends_word);
    let part = end.map_or(part, |end| &part[..end]).trim_end();
    Cow::Owned(format!("{part}{CUT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_ends_behind_a_word() {
        for (text, bytes_max, expected) in [
            ("no model here", 13, "no model here"),
            ("no model here", 12, "no model…"),
            ("no model here", 11, "no model…"),
            ("no model here", 10, "no…"),
            ("unbroken", 6, "unb…"),
            ("äöü", 5, "ä…"),
        ] {
            assert_eq!(cut(text, bytes_max), expected, "{bytes_max}");
        }
    }
}
