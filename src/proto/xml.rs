//! Text in XML: the markup of telephony providers, and reports for JUnit.

/// Escapes text for XML content and attributes; control characters, which XML cannot represent, are
/// dropped.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&apos;",
            '\u{fffe}' | '\u{ffff}' => {}
            _ if letter.is_control() => {}
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// XML has no code for these characters, escaped or not.
    #[test]
    fn characters_that_xml_lacks_are_dropped() {
        assert_eq!(escaped("a\u{fffe}b\u{ffff}c\0d\u{7f}e\nf"), "abcdef");
        assert_eq!(escaped("<&>\"'\u{fffd}"), "&lt;&amp;&gt;&quot;&apos;\u{fffd}");
    }
}
