//! Base64 in JSON audio and files, as encoders of many languages write it: the standard alphabet or
//! the URL-safe one, optional padding, and line breaks, which Ruby's `encode64`, Python's
//! `encodebytes` and MIME encoders add.
//!
//! In: text. Out: bytes. Rejected: other characters, an invalid length, trailing bits, and padding
//! before the end. Source: RFC 4648 sections 3.3, 4 and 5; RFC 2045 section 6.8.

use data_encoding::BASE64_NOPAD;

/// Decodes a text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    decode_into(text, &mut bytes).then_some(bytes)
}

/// Decodes a text into `bytes`, which reuses their memory. Returns whether the text is base64;
/// otherwise `bytes` hold nothing useful.
pub fn decode_into(text: &str, bytes: &mut Vec<u8>) -> bool {
    // Nearly all texts are in the usual form, which is decoded without a copy.
    decode_usual(text.as_bytes(), bytes) || decode_usual(&usual_form(text), bytes)
}

/// Decodes the standard alphabet without white space.
fn decode_usual(text: &[u8], bytes: &mut Vec<u8>) -> bool {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = &text[..text.len() - padding];
    let Ok(length) = BASE64_NOPAD.decode_len(digits.len()) else {
        return false;
    };
    bytes.resize(length, 0);
    padding <= 2 && BASE64_NOPAD.decode_mut(digits, bytes).is_ok()
}

/// Returns a text without white space and in the standard alphabet.
fn usual_form(text: &str) -> Vec<u8> {
    let digits = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    digits
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648 section 10, with padding and without.
    #[test]
    fn decodes_the_vectors_of_the_rfc() {
        for (text, plain) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decode(text).as_deref(), Some(plain.as_bytes()), "{text}");
            assert_eq!(
                decode(text.trim_end_matches('=')).as_deref(),
                Some(plain.as_bytes()),
                "{text}"
            );
        }
        assert_eq!(decode("+/8A"), Some(vec![0xfb, 0xff, 0x00]));
    }

    /// The forms of other encoders: line breaks within and at the end, between padding, and with
    /// carriage returns; indentation; the URL-safe alphabet of RFC 4648 section 5.
    #[test]
    fn decodes_white_space_and_the_url_safe_alphabet() {
        for (text, plain) in [
            ("Zm9v\n", &b"foo"[..]),
            ("\nZm9v\r\nYmFy\r\n", b"foobar"),
            ("Z m\t9 v", b"foo"),
            ("Zg=\n=\n", b"f"),
            ("\n", b""),
            ("-_8A", &[0xfb, 0xff, 0x00]),
            ("-_8", &[0xfb, 0xff]),
            ("+_8\n=", &[0xfb, 0xff]),
        ] {
            assert_eq!(decode(text).as_deref(), Some(plain), "{text:?}");
        }
        let mut bytes = vec![7; 100];
        assert!(decode_into("Zm9v\n", &mut bytes) && bytes == b"foo");
        assert!(!decode_into("Zm9v*", &mut bytes));
    }

    #[test]
    fn rejects_invalid_base64() {
        for text in [
            "A",
            "AAAAA",
            "Zg===",
            "Zg==\n=",
            "Z=g=",
            "Zg==\nZg==",
            "Zh==",
            "Zm9*",
            "Zm9v,",
            "\u{e9}AAA",
            "\u{a0}AAAA",
        ] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
