//! The POST policy of an upload grant: encoding, parsing, checking a form.
//!
//! In: the base64 text of a policy with a verified signature, and form fields. Out: expiration and
//! file size limits, or the violated condition. The encoder writes conditions in a fixed order
//! without spaces, because the text itself is signed. Field names are compared byte by byte.
//! Rejects bad base64 (standard alphabet, padded), bad JSON and unknown forms of conditions.
//! Source: Amazon S3 API Reference, "POST Policy"; `docs/spec/cloud-protocol.md` 4.1.

use std::fmt;

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use edge_runner_proto::time;

/// A parsed policy.
#[derive(Debug, PartialEq, Eq)]
pub struct Policy {
    /// Milliseconds since 1970 at which the policy expires.
    pub expires_ms: u64,
    conditions: Vec<Condition>,
    /// Smallest and largest size of the file, in bytes.
    size: (u64, u64),
}

#[derive(Debug, PartialEq, Eq)]
struct Condition {
    field: String,
    value: String,
    /// `starts-with` instead of equality.
    is_prefix: bool,
}

/// Why a text is not a valid policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    Base64,
    Json,
    /// `expiration` is missing or is not an ISO 8601 date in UTC.
    Expiration,
    /// `conditions` is missing, is not an array, or contains an unknown form.
    Conditions,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyError::Base64 => "the policy is not base64; send the field as the grant has it",
            PolicyError::Json => "the policy is not a JSON object",
            PolicyError::Expiration => "the policy's \"expiration\" is not like 2026-11-21T12:15:00.000Z",
            PolicyError::Conditions => {
                "the policy's \"conditions\" are not all of the forms {\"field\":\"value\"}, [\"eq\",\"$field\",\"value\"], \
                 [\"starts-with\",\"$field\",\"prefix\"], [\"content-length-range\",min,max]"
            }
        })
    }
}

impl std::error::Error for PolicyError {}

/// Why a form violates a policy. Messages name the field but not its value, which may be a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyViolation {
    /// The condition on this field is not met.
    Condition { field: String, is_prefix: bool },
    /// No condition covers this field.
    ExtraField(String),
}

impl fmt::Display for PolicyViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyViolation::Condition { field, is_prefix } => {
                let operator = if *is_prefix { "starts-with" } else { "eq" };
                write!(
                    f,
                    "Invalid according to Policy: Policy Condition failed: [\"{operator}\", \"${}\"]",
                    field.escape_default()
                )
            }
            PolicyViolation::ExtraField(field) => write!(
                f,
                "Invalid according to Policy: Extra input fields: {}",
                field.escape_default()
            ),
        }
    }
}

impl std::error::Error for PolicyViolation {}

/// Encodes a policy in base64, with an exact condition for each field in order, and the size
/// condition after `size_after` of them.
pub fn encode(expires_ms: u64, fields: &[(&str, &str)], size: (u64, u64), size_after: usize) -> String {
    let mut conditions: Vec<Value> = fields.iter().map(|(name, value)| json!({*name: value})).collect();
    conditions.insert(size_after, json!(["content-length-range", size.0, size.1]));
    let conditions = Value::Array(conditions);
    // The outer object is formatted by hand to fix the order of its members.
    let json = format!(
        r#"{{"expiration":"{}","conditions":{conditions}}}"#,
        time::iso_ms(expires_ms)
    );
    BASE64.encode(json.as_bytes())
}

impl Policy {
    /// Parses a policy.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn parse(text: &[u8]) -> Result<Policy, PolicyError> {
        let json = BASE64.decode(text).map_err(|_| PolicyError::Base64)?;
        let document: Map<String, Value> = serde_json::from_slice(&json).map_err(|_| PolicyError::Json)?;
        let expires_ms = document
            .get("expiration")
            .and_then(Value::as_str)
            .and_then(time::parse_iso)
            .ok_or(PolicyError::Expiration)?;
        let listed = document
            .get("conditions")
            .and_then(Value::as_array)
            .ok_or(PolicyError::Conditions)?;
        let mut policy = Policy {
            expires_ms,
            conditions: Vec::with_capacity(listed.len()),
            size: (0, u64::MAX),
        };
        for condition in listed {
            policy.push_condition(condition).ok_or(PolicyError::Conditions)?;
        }
        Ok(policy)
    }

    /// Adds a condition. Returns `None` for an unknown form.
    fn push_condition(&mut self, condition: &Value) -> Option<()> {
        let (field, value, is_prefix) = match condition {
            Value::Object(members) if members.len() == 1 => {
                let (field, value) = members.iter().next()?;
                (field.as_str(), value.as_str()?, false)
            }
            Value::Array(parts) if parts.len() == 3 => match parts[0].as_str()? {
                "content-length-range" => {
                    let (min, max) = (parts[1].as_u64()?, parts[2].as_u64()?);
                    self.size = (self.size.0.max(min), self.size.1.min(max));
                    return (self.size.0 <= self.size.1).then_some(());
                }
                "eq" => (parts[1].as_str()?.strip_prefix('$')?, parts[2].as_str()?, false),
                "starts-with" => (parts[1].as_str()?.strip_prefix('$')?, parts[2].as_str()?, true),
                _ => return None,
            },
            _ => return None,
        };
        self.conditions.push(Condition {
            field: field.to_owned(),
            value: value.to_owned(),
            is_prefix,
        });
        Some(())
    }

    /// Checks a form. Returns the smallest and largest size of the file, in bytes.
    ///
    /// # Errors
    /// [`PolicyViolation`]: the first unmet condition, else the first uncovered field.
    pub fn check(&self, fields: &[(String, String)]) -> Result<(u64, u64), PolicyViolation> {
        for condition in &self.conditions {
            let met = |(name, value): &(String, String)| {
                *name == condition.field
                    && match condition.is_prefix {
                        true => value.starts_with(&condition.value),
                        false => *value == condition.value,
                    }
            };
            if !fields.iter().any(met) {
                return Err(PolicyViolation::Condition {
                    field: condition.field.clone(),
                    is_prefix: condition.is_prefix,
                });
            }
        }
        let uncovered = fields
            .iter()
            .find(|(name, _)| !is_free(name) && !self.conditions.iter().any(|condition| condition.field == *name));
        match uncovered {
            Some((name, _)) => Err(PolicyViolation::ExtraField(name.clone())),
            None => Ok(self.size),
        }
    }
}

/// Tells whether a field needs no condition.
fn is_free(name: &str) -> bool {
    matches!(name, "Policy" | "X-Store-Signature" | "file") || name.starts_with("x-ignore-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Policy, PolicyError> {
        Policy::parse(BASE64.encode(json.as_bytes()).as_bytes())
    }

    fn of(conditions: &str) -> Result<Policy, PolicyError> {
        parse(&format!(
            r#"{{"expiration":"2026-11-21T12:15:00.000Z","conditions":[{conditions}]}}"#
        ))
    }

    fn check(conditions: &str, fields: &[(&str, &str)]) -> Result<(u64, u64), String> {
        let fields: Vec<(String, String)> = fields
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let policy = of(conditions).expect("a policy");
        policy.check(&fields).map_err(|violation| violation.to_string())
    }

    /// The encoded text has the documented signature.
    #[test]
    fn a_policy_is_encoded_as_documented() {
        let written = encode(
            1_795_263_300_000,
            &[
                ("bucket", "build-contexts"),
                ("key", "org-7/0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11.tar.gz"),
                ("Content-Type", "application/gzip"),
                ("X-Store-Algorithm", "STORE4-HMAC-SHA256"),
                (
                    "X-Store-Credential",
                    "SKEXAMPLE01/20261121/us-west/store/store4_request",
                ),
                ("X-Store-Date", "20261121T120000Z"),
                ("X-Store-Security-Token", "session-token-1"),
            ],
            (1, 524_288_000),
            3,
        );
        let signature =
            super::super::sign::STORE.sign(b"store-secret-for-tests", "20261121", "us-west", written.as_bytes());
        assert_eq!(
            signature,
            "1a0cef5a2023848b24f1cb315d530f4462634bdd605c33bcb4bc51a3436bb36b"
        );
        let read = Policy::parse(written.as_bytes()).expect("what is written can be read");
        assert_eq!((read.expires_ms, read.size), (1_795_263_300_000, (1, 524_288_000)));
        assert_eq!(read.conditions.len(), 7);
    }

    #[test]
    fn an_invalid_policy_is_rejected() {
        for text in ["!", "e30", "e30=\n", "_-8=", " e30="] {
            assert_eq!(Policy::parse(text.as_bytes()), Err(PolicyError::Base64), "{text}");
        }
        for json in ["", "{", "[]", "null", "{} {}", "\u{feff}{}", "{\"a\":\"\\ud800\"}"] {
            assert_eq!(parse(json), Err(PolicyError::Json), "{json}");
        }
        for json in [
            "{}",
            r#"{"expiration":1795263300,"conditions":[]}"#,
            r#"{"expiration":"2026-11-21","conditions":[]}"#,
            r#"{"expiration":"2026-11-21T12:15:00+01:00","conditions":[]}"#,
            r#"{"Expiration":"2026-11-21T12:15:00Z","conditions":[]}"#,
        ] {
            assert_eq!(parse(json), Err(PolicyError::Expiration), "{json}");
        }
        for json in [
            r#"{"expiration":"2026-11-21T12:15:00Z"}"#,
            r#"{"expiration":"2026-11-21T12:15:00Z","conditions":{}}"#,
        ] {
            assert_eq!(parse(json), Err(PolicyError::Conditions), "{json}");
        }
        for condition in [
            "1",
            "{}",
            r#"{"a":"b","c":"d"}"#,
            r#"{"a":1}"#,
            r#"["eq","a","b"]"#,
            r#"["eq","$a"]"#,
            r#"["eq","$a","b","c"]"#,
            r#"["EQ","$a","b"]"#,
            r#"["eq","$a",1]"#,
            r#"["ends-with","$a","b"]"#,
            r#"["content-length-range",1]"#,
            r#"["content-length-range","1","2"]"#,
            r#"["content-length-range",-1,2]"#,
            r#"["content-length-range",2,1]"#,
            r#"["content-length-range",1.5,2]"#,
        ] {
            assert_eq!(of(condition), Err(PolicyError::Conditions), "{condition}");
        }
        assert!(of("").is_ok());
    }

    /// C-032, C-072: each form of condition, met and unmet; names are case-sensitive.
    #[test]
    fn conditions_are_checked() {
        for (condition, fields, met) in [
            (r#"{"a":"b"}"#, &[("a", "b")][..], true),
            (r#"{"a":"b"}"#, &[("a", "bc")], false),
            (r#"{"a":"b"}"#, &[("A", "b")], false),
            (r#"{"a":"b"}"#, &[], false),
            (r#"{"$a":"b"}"#, &[("a", "b")], false),
            (r#"["eq","$a","b"]"#, &[("a", "b")], true),
            (r#"["eq","$a","b"]"#, &[("a", "B")], false),
            (r#"["eq","$$a","b"]"#, &[("$a", "b")], true),
            (r#"["starts-with","$a","b"]"#, &[("a", "bc")], true),
            (r#"["starts-with","$a","b"]"#, &[("a", "cb")], false),
            (r#"["starts-with","$a",""]"#, &[("a", "anything")], true),
            (r#"["starts-with","$a",""]"#, &[], false),
            (r#"{"a":"b"},["starts-with","$a","c"]"#, &[("a", "b")], false),
            (
                r#"["starts-with","$a","b"],["starts-with","$a","bc"]"#,
                &[("a", "bcd")],
                true,
            ),
        ] {
            assert_eq!(check(condition, fields).is_ok(), met, "{condition} with {fields:?}");
        }
        assert_eq!(
            check(
                r#"{"token":"secret"},["starts-with","$b","c"]"#,
                &[("b", "d"), ("token", "secret")]
            ),
            Err("Invalid according to Policy: Policy Condition failed: [\"starts-with\", \"$b\"]".into())
        );
        assert_eq!(
            check(r#"{"token":"secret"}"#, &[]),
            Err("Invalid according to Policy: Policy Condition failed: [\"eq\", \"$token\"]".into()),
            "the value is not shown"
        );
    }

    #[test]
    fn every_field_needs_a_condition() {
        let free = [
            ("Policy", "p"),
            ("X-Store-Signature", "s"),
            ("file", ""),
            ("x-ignore-me", "1"),
        ];
        assert_eq!(check("", &free), Ok((0, u64::MAX)));
        for name in [
            "policy",
            "x-store-signature",
            "X-Ignore-me",
            "success_action_status",
            "",
            "a\nb",
        ] {
            let extra = check(r#"{"a":"b"}"#, &[("a", "b"), (name, "")]).expect_err("an extra field");
            assert!(
                extra.contains("Extra input fields: ") && !extra.contains('\n'),
                "{extra}"
            );
        }
    }

    /// C-071: several size ranges intersect.
    #[test]
    fn size_ranges_intersect() {
        assert_eq!(check(r#"["content-length-range",1,9]"#, &[]), Ok((1, 9)));
        assert_eq!(check(r#"["content-length-range",9,9]"#, &[]), Ok((9, 9)));
        assert_eq!(
            check(r#"["content-length-range",1,9],["content-length-range",0,5]"#, &[]),
            Ok((1, 5))
        );
        assert_eq!(
            of(r#"["content-length-range",1,4],["content-length-range",5,9]"#),
            Err(PolicyError::Conditions)
        );
    }
}
