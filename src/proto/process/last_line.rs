//! The last lines of a program that failed, made fit for a page and the log.
//!
//! In: lines of its stderr. Out: one short line without control characters, in which whatever may
//! be a key or a telephone number is left out. The line of a program that failed before it had its
//! media cannot quote what was said; that is why only such lines are shown.

use std::borrow::Cow;

use crate::text::cut;

/// Bytes of a line that are shown.
const SHOWN_BYTES_MAX: usize = 240;
/// What is between two lines.
const SEPARATOR: &str = " / ";
/// Characters of a word that may be a key, if it has a digit.
const KEY_CHARS_MIN: usize = 20;
/// Digits of a word that may be a telephone number.
const NUMBER_DIGITS_MIN: usize = 6;
/// What replaces a word.
const LEFT_OUT: &str = "(left out)";

/// Returns what is shown of lines, as one; `None` without words.
pub fn shown(lines: &str) -> Option<String> {
    let lines: Vec<String> = lines.lines().filter_map(shown_line).collect();
    (!lines.is_empty()).then(|| lines.join(SEPARATOR))
}

fn shown_line(line: &str) -> Option<String> {
    let mut text = String::new();
    let mut word = String::new();
    for letter in line.trim().chars() {
        if letter.is_alphanumeric() || matches!(letter, '_' | '-' | '+') {
            word.push(letter);
            continue;
        }
        text.push_str(harmless(&word));
        word.clear();
        text.push(if letter.is_control() { ' ' } else { letter });
    }
    text.push_str(harmless(&word));
    if let Cow::Owned(shorter) = cut(&text, SHOWN_BYTES_MAX) {
        text = shorter;
    }
    (!text.trim().is_empty()).then_some(text)
}

/// Returns a word, or what replaces one that may be a secret.
fn harmless(word: &str) -> &str {
    let digits = word.chars().filter(|letter| letter.is_numeric()).count();
    let is_key = digits > 0 && word.chars().count() >= KEY_CHARS_MIN;
    match is_key || digits >= NUMBER_DIGITS_MIN {
        true => LEFT_OUT,
        false => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_last_lines_are_shown_as_they_are() {
        for line in [
            "ModuleNotFoundError: No module named 'pipecatt'",
            "OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 7860): address already in use",
            "FileNotFoundError: [Errno 2] No such file or directory: '/opt/models/silero_vad.onnx'",
            "thread 'main' panicked at src/main.rs:4:5:",
        ] {
            assert_eq!(shown(line).as_deref(), Some(line));
        }
        assert_eq!(shown("  indented\t\u{7}end \r"), Some("indented  end".to_owned()));
        for empty in ["", "  ", "\u{7}"] {
            assert_eq!(shown(empty), None, "{empty:?}");
        }
    }

    #[test]
    fn several_lines_become_one() {
        assert_eq!(
            shown("Error: no model\n \nNode.js v20.20.2\n").as_deref(),
            Some("Error: no model / Node.js v20.20.2")
        );
    }

    #[test]
    fn keys_and_numbers_are_left_out() {
        for (line, expected) in [
            (
                "Incorrect API key provided: sk-proj-a1B2c3D4e5F6g7H8.",
                "Incorrect API key provided: (left out).",
            ),
            ("no route to +4915112345678", "no route to (left out)"),
            ("caller=4930123456;", "caller=(left out);"),
            (
                "wss://host/ws?token=abcdefghij0123456789&x=1",
                "wss://host/ws?token=(left out)&x=1",
            ),
        ] {
            assert_eq!(shown(line).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        let cut = shown(&"ä ".repeat(5000)).expect("words");
        assert!(cut.len() <= SHOWN_BYTES_MAX && cut.ends_with("ä…"), "{cut}");
    }
}
