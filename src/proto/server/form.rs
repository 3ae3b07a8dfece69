//! Parses `application/x-www-form-urlencoded` bodies and queries.
//!
//! In: any bytes. Out: decoded pairs in order, at most [`FORM_PAIRS_MAX`]. As in browsers, every
//! input is valid: an invalid escape stays unchanged, invalid UTF-8 becomes the replacement
//! character, and a name without `=` has an empty value. Source: URL standard, section 5.1.

use crate::limits::FORM_PAIRS_MAX;

/// Returns the pairs of a form or query.
pub fn parse(form: &[u8]) -> Vec<(String, String)> {
    form.split(|byte| *byte == b'&')
        .filter(|piece| !piece.is_empty())
        .take(FORM_PAIRS_MAX)
        .map(|piece| {
            let mut halves = piece.splitn(2, |byte| *byte == b'=');
            let mut half = || decode(halves.next().unwrap_or_default());
            (half(), half())
        })
        .collect()
}

/// Returns the first value of a name.
pub fn find<'p>(pairs: &'p [(String, String)], name: &str) -> Option<&'p str> {
    pairs
        .iter()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.as_str())
}

fn decode(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, decode_escape(after)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Decodes the two digits after a `%`.
fn decode_escape(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> Vec<(String, String)> {
        parse(text)
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn decodes_pairs_in_order() {
        assert_eq!(
            of(b"From=%2B15550001111&To=client%3Aann&Note=a+b%20c&To=second"),
            [
                pair("From", "+15550001111"),
                pair("To", "client:ann"),
                pair("Note", "a b c"),
                pair("To", "second"),
            ]
        );
        assert_eq!(find(&of(b"a=1&b=2&b=3"), "b"), Some("2"));
        assert_eq!(find(&of(b"a=1"), "b"), None);
        assert_eq!(of("N%C3%A4me=\u{e4}".as_bytes()), [pair("N\u{e4}me", "\u{e4}")]);
    }

    /// Any input is a valid form.
    #[test]
    fn accepts_malformed_input() {
        assert_eq!(of(b""), []);
        assert_eq!(of(b"&&a&=b&c=&"), [pair("a", ""), pair("", "b"), pair("c", "")]);
        assert_eq!(
            of(b"a=%&b=%4&c=%zz&d=%+1"),
            [pair("a", "%"), pair("b", "%4"), pair("c", "%zz"), pair("d", "% 1"),]
        );
        assert_eq!(of(b"a=%ff%41&b=\xff"), [pair("a", "\u{fffd}A"), pair("b", "\u{fffd}")]);
        assert_eq!(of(b"a==b=c"), [pair("a", "=b=c")]);
        assert_eq!(of(br#"{"json":1}"#), [pair(r#"{"json":1}"#, "")]);
    }

    #[test]
    fn the_number_of_pairs_is_limited() {
        let many = |count: usize| vec!["a=1"; count].join("&");
        assert_eq!(of(many(FORM_PAIRS_MAX).as_bytes()).len(), FORM_PAIRS_MAX);
        assert_eq!(of(many(FORM_PAIRS_MAX + 1).as_bytes()).len(), FORM_PAIRS_MAX);
    }
}
