//! Base64 as JSON carries audio and files: standard alphabet, padding allowed and not demanded.
//!
//! In: text. Out: bytes, or nothing when a character is not of the alphabet, the length cannot be,
//! or bits are left over. Source: RFC 4648 section 4.

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
    fn the_vectors_of_the_rfc_decode() {
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
    fn what_is_no_base64_is_refused() {
        for text in ["A", "AAAAA", "Zg===", "Z=g=", "Zm9v\n", "Zh==", "Zm9-", "\u{e9}AAA"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
