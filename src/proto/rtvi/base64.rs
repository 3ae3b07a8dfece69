//! Base64 as JSON carries audio and files: standard alphabet, padding allowed and not demanded.
//!
//! In: text. Out: bytes, or nothing when a character is not of the alphabet, the length cannot be, or bits are left over.
//! Source: RFC 4648 section 4.

/// Decodes a text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0_u32, 0);
    for digit in digits {
        bits = bits << 6 | value(*digit)?;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
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
