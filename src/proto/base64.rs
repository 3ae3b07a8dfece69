//! Base64 in JSON audio and files: standard alphabet, optional padding.
//!
//! In: text. Out: bytes; `None` for an invalid character, length, or trailing bits. Source: RFC
//! 4648 section 4.

use data_encoding::BASE64_NOPAD;

/// Decodes a text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    BASE64_NOPAD.decode(digits.as_bytes()).ok().filter(|_| padding <= 2)
}

#[cfg(test)]
mod tests {
    use super::decode;

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

    #[test]
    fn rejects_invalid_base64() {
        for text in ["A", "AAAAA", "Zg===", "Z=g=", "Zm9v\n", "Zh==", "Zm9-", "\u{e9}AAA"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
