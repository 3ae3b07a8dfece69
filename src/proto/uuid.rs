//! Random UUIDs of version 4. Source: RFC 9562.
//!
//! In: 16 random bytes, or text in either case. Out: text in lower case.

use std::fmt;

/// A UUID of version 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(u128);

impl Uuid {
    /// Creates a UUID from random bytes.
    pub fn v4(mut random: [u8; 16]) -> Uuid {
        random[6] = random[6] & 0x0f | 0x40;
        random[8] = random[8] & 0x3f | 0x80;
        Uuid(u128::from_be_bytes(random))
    }

    /// Returns the 16 bytes.
    pub fn as_bytes(&self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Parses the form with hyphens, in either case; `None` for other versions.
    pub fn parse(text: &str) -> Option<Uuid> {
        let bytes = text.as_bytes();
        if bytes.len() != 36 || [8, 13, 18, 23].iter().any(|&at| bytes[at] != b'-') {
            return None;
        }
        let mut value = 0;
        let mut digits = 0;
        for byte in bytes.iter().filter(|&&byte| byte != b'-') {
            value = value << 4 | u128::from(char::from(*byte).to_digit(16)?);
            digits += 1;
        }
        let of_version_4 = bytes[14] == b'4' && matches!(bytes[19], b'8' | b'9' | b'a' | b'b' | b'A' | b'B');
        (digits == 32 && of_version_4).then_some(Uuid(value))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        write!(
            f,
            "{}-{}-{}-{}-{}",
            &digits[..8],
            &digits[8..12],
            &digits[12..16],
            &digits[16..20],
            &digits[20..]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_its_own_text() {
        for random in [[0; 16], [0xff; 16], *b"0123456789abcdef"] {
            let uuid = Uuid::v4(random);
            assert_eq!(Uuid::parse(&uuid.to_string()), Some(uuid));
            assert_eq!(Uuid::parse(&uuid.to_string().to_uppercase()), Some(uuid));
        }
        assert_eq!(Uuid::v4([0; 16]).to_string(), "00000000-0000-4000-8000-000000000000");
    }

    #[test]
    fn rejects_other_text() {
        for text in [
            "",
            "0",
            "00000000-0000-1000-8000-000000000000",
            "00000000-0000-4000-c000-000000000000",
            "0000000000004000800000000000000000000",
            "00000000-0000-4000-8000-00000000000",
            "00000000-0000-4000-8000-00000000000g",
            "00000000-0000-4000-8000-0000000000-0",
            "{0000000-0000-4000-8000-00000000000}",
            "00000000-0000-4000-8000-0000000000\u{e9}",
        ] {
            assert_eq!(Uuid::parse(text), None, "{text}");
        }
    }
}
