//! Parts of texts.

/// Returns the part of a text in its first `bytes_max` bytes, without half a character.
pub fn beginning(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
