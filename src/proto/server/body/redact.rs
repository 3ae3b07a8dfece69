//! The form of a rejected body that may be logged.
//!
//! In: any bytes. Out: at most 5000 characters of the body. The value of each field whose name
//! suggests a secret, a person's number or a session description becomes `***`, as do bearer tokens
//! and telephone numbers anywhere; control characters are escaped. This works on text, since most
//! rejected bodies cannot be parsed, and masks in case of doubt. Source: R-097, R-098.

/// Characters of a rejected body that are logged.
const LOGGED_BODY_CHARS_MAX: usize = 5_000;

/// Fields whose names contain one of these words are masked.
const SECRET_WORDS: [&str; 15] = [
    "key",
    "token",
    "secret",
    "credential",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "auth",
    "cookie",
    "signature",
    "phone",
    "caller",
    "sdp",
    "candidate",
];
/// Fields with exactly these names are masked: they contain telephone numbers.
const SECRET_NAMES: [&str; 3] = ["from", "to", "number"];
/// Number of digits, ignoring separators, from which a sequence can be a telephone number.
const PHONE_DIGITS_MIN: usize = 7;
const MASK: &str = "***";

/// Returns the form of a body for the log.
pub fn redact_for_log(body: &[u8]) -> String {
    let cut = LOGGED_BODY_CHARS_MAX;
    // A character has at most four bytes, so this part of the body is enough.
    let head = &body[..body.len().min(cut * 4)];
    let text: Vec<char> = String::from_utf8_lossy(head).chars().take(cut).collect();
    printable(&redact(&text))
}

/// Escapes characters that could forge or hide parts of a log line: control characters, line
/// separators, direction marks.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(c.escape_unicode());
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

fn redact(text: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let word = run(text, at, is_word);
        if word > at {
            let name: String = text[at..word].iter().collect::<String>().to_ascii_lowercase();
            let value = if is_secret(&name) {
                value_after(text, word, name == "bearer")
            } else {
                None
            };
            if let Some(value) = value {
                out.extend(&text[at..value.start]);
                out.push_str(MASK);
                at = value.end;
            } else if name.starts_with("eyj") || is_phone_number(&text[at..word]) {
                out.push_str(MASK);
                at = word;
            } else {
                out.push_str(&text[at..word].iter().collect::<String>());
                at = word;
            }
        } else if let Some(end) = phone_number_end(text, at) {
            out.push_str(MASK);
            at = end;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

fn is_secret(name: &str) -> bool {
    name == "bearer" || SECRET_NAMES.contains(&name) || SECRET_WORDS.iter().any(|word| name.contains(word))
}

fn is_phone_number(word: &[char]) -> bool {
    word.len() >= PHONE_DIGITS_MIN && word.iter().all(|c| c.is_ascii_digit() || *c == '-')
}

/// Returns the end of a number written with `+`, spaces, dots and brackets.
fn phone_number_end(text: &[char], at: usize) -> Option<usize> {
    if text[at] != '+' {
        return None;
    }
    let end = run(text, at + 1, |c| {
        c.is_ascii_digit() || matches!(c, ' ' | '-' | '.' | '(' | ')' | '/')
    });
    let digits = text[at..end].iter().filter(|c| c.is_ascii_digit()).count();
    (digits >= PHONE_DIGITS_MIN).then_some(end)
}

/// Returns the value after the name that ends at `at`: after a colon or an equals sign, or after a
/// space if `spaced`. Quotes may be escaped, as in JSON inside a JSON string.
fn value_after(text: &[char], at: usize, spaced: bool) -> Option<std::ops::Range<usize>> {
    let blank = |c: char| c.is_whitespace();
    let quoted = run(text, at, |c| matches!(c, '"' | '\'' | '\\'));
    let sign = run(text, quoted, blank);
    let start = match text.get(sign) {
        Some(':' | '=') => run(text, sign + 1, blank),
        _ if spaced && sign > at => sign,
        _ => return None,
    };
    let start_of_text = run(text, start, |c| c == '\\');
    let end = match text.get(start_of_text)? {
        quote @ ('"' | '\'') => closing_quote(text, start_of_text + 1, *quote, start_of_text > start),
        '{' | '[' => closing_bracket(text, start_of_text),
        _ => run(text, start, |c| !matches!(c, ',' | '}' | ']' | '&' | ';' | '\n' | '\r')),
    };
    Some(start..end)
}

/// Returns the end of a string, including its quote. In nested JSON, the escaped quote closes it.
fn closing_quote(text: &[char], mut at: usize, quote: char, nested: bool) -> usize {
    while let Some(c) = text.get(at) {
        match c {
            '\\' if !nested => at += 1,
            c if *c == quote => return at + 1,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// Returns the end of an object or list, or of the text if it is incomplete. Brackets in strings
/// are ignored.
fn closing_bracket(text: &[char], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(c) = text.get(at) {
        match c {
            '"' => {
                at = closing_quote(text, at + 1, '"', false);
                continue;
            }
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn run(text: &[char], from: usize, matches: impl Fn(char) -> bool) -> usize {
    text[from.min(text.len())..]
        .iter()
        .position(|c| !matches(*c))
        .map_or(text.len(), |length| from + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R-097: the body is logged without keys, tokens, credentials and telephone numbers.
    #[test]
    fn masks_secrets_in_json_and_other_text() {
        for (body, logged) in [
            (
                r#"{"transport":5,"api_key":"sk-1"}"#,
                r#"{"transport":5,"api_key":***}"#,
            ),
            (
                r#"{"body":{"apiToken" : "a\"b"},"x":1}"#,
                r#"{"body":{"apiToken" : ***},"x":1}"#,
            ),
            (
                r#"{"credentials":{"a":["x}"],"b":"y"},"x":1}"#,
                r#"{"credentials":***,"x":1}"#,
            ),
            (r#"{"token":["a","b"#, r#"{"token":***"#),
            (r#"{"token":"cut off"#, r#"{"token":***"#),
            (r#"{"token":123456, "x":1}"#, r#"{"token":***, "x":1}"#),
            (
                r#"{"body":"{\"secret\":\"abc\",\"x\":1}"}"#,
                r#"{"body":"{\"secret\":***,\"x\":1}"}"#,
            ),
            ("{'password': 'hunter2', 'x': 1}", "{'password': ***, 'x': 1}"),
            ("token=abc&x=1", "token=***&x=1"),
            ("Authorization: Bearer abc.def\nx", r"Authorization: ***\nx"),
            (r#"{"h":"Bearer abc.def"}"#, r#"{"h":"Bearer ***}"#),
            (r#"{"jwt":"eyJhbGciOi"}"#, r#"{"jwt":"***"}"#),
            (r#"{"a":"+1 (555) 000-1111","b":15550001111}"#, r#"{"a":"***","b":***}"#),
            (r#"{"From":"+15550001111","x":1}"#, r#"{"From":***,"x":1}"#),
            (
                r#"{"sdp":"v=0\r\n","type":"pranswer"}"#,
                r#"{"sdp":***,"type":"pranswer"}"#,
            ),
            (r#"{"transport":["token"]}"#, r#"{"transport":["token"]}"#),
            ("key", "key"),
            ("key:", "key:"),
            (r#"key:\"#, r#"key:\"#),
        ] {
            assert_eq!(redact_for_log(body.as_bytes()), logged, "{body}");
        }
    }

    /// R-098: at most 5000 characters of the body.
    #[test]
    fn truncates_the_body_by_characters() {
        let cap = LOGGED_BODY_CHARS_MAX;
        assert_eq!(cap, 5000);
        assert_eq!(redact_for_log("a".repeat(cap).as_bytes()).chars().count(), cap);
        assert_eq!(redact_for_log("a".repeat(cap + 1).as_bytes()).chars().count(), cap);
        assert_eq!(
            redact_for_log("\u{1f600}".repeat(cap + 1).as_bytes()).chars().count(),
            cap
        );
    }

    /// A body can neither forge nor hide a log line.
    #[test]
    fn escapes_control_characters() {
        assert_eq!(
            redact_for_log(b"a\r\n[ERROR] b\x1b[31m\x00"),
            r"a\r\n[ERROR] b\u{1b}[31m\u{0}"
        );
        assert_eq!(redact_for_log("\u{202e}x\u{2028}".as_bytes()), r"\u{202e}x\u{2028}");
        assert_eq!(redact_for_log(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }

    /// Every prefix of a body can be logged.
    #[test]
    fn every_prefix_of_a_body_is_accepted() {
        let body = r#"{"key":{"a":["\"}"]},"b":"{\"token\":\"x\"}","t":"+1 555 000 11 11",'pwd'='\'',"k\":\\"#;
        for end in 0..=body.len() {
            redact_for_log(&body.as_bytes()[..end]);
        }
    }
}
