//! The `traceparent` header of `/start`: the trace that a session belongs to.
//!
//! In: the headers of a request, or the `body` of a session. Out: a [`Traceparent`] for the bot,
//! its services and the log. Whatever is not valid is ignored, as the standard asks for; of a later
//! version, the parts that are known are kept. Source: W3C Trace Context, 2021, sections 3.2 and 4.

use serde_json::Value;

/// The name of the header, and of the member of a body.
pub const TRACEPARENT: &str = "traceparent";
/// Characters of version 00.
const CHARS: usize = 55;
/// Flags that are known: sampled, and random trace id.
const FLAGS: u8 = 3;

/// The trace and the span that asked for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traceparent(String);

impl Traceparent {
    /// Reads the values of the header. Two of them are invalid.
    pub fn of_headers<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> Option<Self> {
        match (values.next(), values.next()) {
            (Some(only), None) => Self::parse(std::str::from_utf8(only).ok()?.trim_matches([' ', '\t'])),
            _ => None,
        }
    }

    /// Reads the member of a body.
    pub fn of_body(body: &Value) -> Option<Self> {
        Self::parse(body[TRACEPARENT].as_str()?)
    }

    /// Adds the member to a body that is an object and has none.
    pub fn put(&self, body: &mut Value) {
        if let Value::Object(map) = body {
            map.entry(TRACEPARENT).or_insert_with(|| self.0.as_str().into());
        }
    }

    /// Returns the value of the header.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id of the trace.
    pub fn trace_id(&self) -> &str {
        &self.0[3..35]
    }

    fn parse(text: &str) -> Option<Self> {
        let known = text.get(..CHARS)?;
        let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_id = |part: &str| is_hex(part) && part.bytes().any(|byte| byte != b'0');
        let mut parts = known.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let has_lengths = (version.len(), trace.len(), span.len(), flags.len()) == (2, 32, 16, 2);
        let is_whole = match version {
            "00" => text.len() == CHARS,
            _ => text.len() == CHARS || text.as_bytes()[CHARS] == b'-',
        };
        if !has_lengths || !is_hex(version) || version == "ff" || !is_whole || !is_id(trace) || !is_id(span) {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok().filter(|_| is_hex(flags))? & FLAGS;
        Some(Traceparent(format!("00-{trace}-{span}-{flags:02x}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(values: &[&str]) -> Option<String> {
        let read = Traceparent::of_headers(values.iter().map(|value| value.as_bytes()));
        read.map(|trace| trace.as_str().to_owned())
    }

    #[test]
    fn a_valid_header_is_passed_on() {
        assert_eq!(read(&[VALID]).as_deref(), Some(VALID));
        assert_eq!(read(&[&format!(" {VALID}\t")]).as_deref(), Some(VALID));
        let trace = Traceparent::of_body(&json!({"traceparent": VALID})).expect("valid");
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        // Unknown flags are not passed on.
        let flags = VALID.replace("-01", "-ff");
        assert_eq!(read(&[&flags]), Some(VALID.replace("-01", "-03")));
    }

    /// Of a later version, the parts that are known are passed on, in the known version.
    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = VALID.replacen("00", "cc", 1);
        assert_eq!(read(&[&later]).as_deref(), Some(VALID));
        assert_eq!(read(&[&format!("{later}-what-ever")]).as_deref(), Some(VALID));
        assert_eq!(read(&[&format!("{later}.what")]), None);
    }

    #[test]
    fn an_invalid_header_is_ignored() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[VALID, VALID]), None);
        for invalid in [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}-"),
            &format!("{VALID}0"),
            &VALID.replacen("00", "ff", 1),
            &VALID.replacen("00", "0g", 1),
            &VALID.replacen("00", "0A", 1),
            &VALID.replace("4bf9", "4BF9"),
            &VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &VALID.replace("-01", "-0x"),
            &VALID.replace("-01", "-+1"),
            &VALID.replace("a3ce", "a-ce"),
            &VALID.replace('-', "_"),
            &VALID.replace("a3ce", "a\u{e9}e"),
            &"\u{e9}".repeat(40),
        ] {
            assert_eq!(read(&[invalid]), None, "{invalid}");
        }
        assert_eq!(Traceparent::of_body(&json!([VALID])), None);
        assert_eq!(Traceparent::of_body(&json!({"traceparent": 7})), None);
    }

    #[test]
    fn a_body_keeps_its_own() {
        let trace = Traceparent::of_body(&json!({"traceparent": VALID})).expect("valid");
        let put = |mut body: Value| {
            trace.put(&mut body);
            body
        };
        assert_eq!(put(json!({"a": 1})), json!({"a": 1, "traceparent": VALID}));
        assert_eq!(put(json!({"traceparent": "own"})), json!({"traceparent": "own"}));
        assert_eq!(put(json!([1])), json!([1]));
    }
}
