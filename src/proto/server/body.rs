//! JSON bodies of requests: typed access to their fields, and validation errors.
//!
//! In: the raw bytes of a body within the size cap. Out: typed fields, or [`ValidationError`], the
//! list of problems that a 422 carries as `{"detail":[{"loc":[...],"msg":"...","type":"..."}]}`.
//! `null` counts as absent, and a canonical name wins over its aliases. [`redact_for_log`] returns
//! the form of a rejected body that may be logged. Rejected: text that is not JSON, is nested
//! deeper than 128 levels, or is not an object. Source: the error shape of FastAPI; R-096 to R-099.

mod redact;

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::aliases::{self, Area};
pub use redact::redact_for_log;

/// Problems that one 422 response lists.
const PROBLEMS_MAX: usize = 16;

/// One step of the path to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocStep {
    Name(&'static str),
    Index(usize),
}

/// One problem of a body. It never contains the rejected input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    pub loc: Vec<LocStep>,
    pub msg: Cow<'static, str>,
    /// The machine-readable kind, such as `missing` or `string_type`.
    pub kind: &'static str,
}

/// A rejected body, with at least one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError(pub Vec<FieldProblem>);

impl ValidationError {
    /// Returns the `detail` of a 422 response.
    pub fn detail(&self) -> Value {
        self.0
            .iter()
            .map(|problem| {
                let steps = problem.loc.iter().map(|step| match step {
                    LocStep::Name(name) => json!(name),
                    LocStep::Index(index) => json!(index),
                });
                let loc: Vec<Value> = std::iter::once(json!("body")).chain(steps).collect();
                json!({"loc": loc, "msg": problem.msg, "type": problem.kind})
            })
            .collect()
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, problem) in self.0.iter().enumerate() {
            f.write_str(if nth == 0 { "body" } else { "; body" })?;
            for step in &problem.loc {
                match step {
                    LocStep::Name(name) => write!(f, ".{name}")?,
                    LocStep::Index(index) => write!(f, "[{index}]")?,
                }
            }
            write!(f, ": {}", problem.msg)?;
        }
        Ok(())
    }
}

impl std::error::Error for ValidationError {}

/// Parses a body that must be a JSON object.
///
/// # Errors
/// Returns a [`ValidationError`] with one problem if the body is not JSON, or JSON of another type.
pub fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, ValidationError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(ValidationError(vec![FieldProblem {
            loc: Vec::new(),
            msg: "Input should be a valid dictionary".into(),
            kind: "dict_type",
        }])),
        Err(error) => Err(ValidationError(vec![FieldProblem {
            loc: vec![LocStep::Index(offset(bytes, error.line(), error.column()))],
            msg: format!("JSON decode error: {error}").into(),
            kind: "json_invalid",
        }])),
    }
}

/// Returns the byte offset of a parse error from its line and column.
fn offset(bytes: &[u8], line: usize, column: usize) -> usize {
    let before: usize = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    (before + column.saturating_sub(1)).min(bytes.len())
}

/// Takes typed fields from an object, and collects their problems, so that one response lists all.
pub struct ObjectReader {
    map: Map<String, Value>,
    at: Vec<LocStep>,
    problems: Vec<FieldProblem>,
}

impl ObjectReader {
    /// Creates a reader of an object at the path `at` of the body.
    pub fn new(map: Map<String, Value>, at: Vec<LocStep>) -> Self {
        ObjectReader {
            map,
            at,
            problems: Vec::new(),
        }
    }

    /// Takes a field of any type by its canonical name or an alias, and returns the name that was
    /// found.
    pub fn take(&mut self, name: &'static str) -> Option<(&'static str, Value)> {
        aliases::first(Area::JsonKey, name, |name| match self.map.remove(name) {
            None | Some(Value::Null) => None,
            Some(value) => Some((name, value)),
        })
    }

    /// Takes an optional string of at most `bytes_max` bytes.
    pub fn string(&mut self, name: &'static str, bytes_max: usize) -> Option<String> {
        match self.take(name)? {
            (name, Value::String(text)) if text.len() > bytes_max => self.reject(
                name,
                format!("String should have at most {bytes_max} bytes"),
                "string_too_long",
            ),
            (_, Value::String(text)) => Some(text),
            (name, _) => self.reject(name, "Input should be a valid string", "string_type"),
        }
    }

    /// Takes a required string. A missing one is a problem, and yields an empty string.
    pub fn required_string(&mut self, name: &'static str, bytes_max: usize) -> String {
        if self.map.get(name).is_none_or(Value::is_null) {
            return self.missing(name).unwrap_or_default();
        }
        self.string(name, bytes_max).unwrap_or_default()
    }

    /// Takes an optional boolean.
    pub fn flag(&mut self, name: &'static str) -> Option<bool> {
        match self.take(name)? {
            (_, Value::Bool(flag)) => Some(flag),
            (name, _) => self.reject(name, "Input should be a valid boolean", "bool_type"),
        }
    }

    /// Takes an optional integer from 0 to 65535.
    pub fn small_integer(&mut self, name: &'static str) -> Option<u16> {
        let (name, value) = self.take(name)?;
        match value.as_i64().map(u16::try_from) {
            Some(Ok(number)) => Some(number),
            Some(Err(_)) => self.reject(name, "Input should be from 0 to 65535", "int_range"),
            None => self.reject(name, "Input should be a valid integer", "int_type"),
        }
    }

    /// Takes an optional object.
    pub fn object(&mut self, name: &'static str) -> Option<Map<String, Value>> {
        match self.take(name)? {
            (_, Value::Object(map)) => Some(map),
            (name, _) => self.reject(name, "Input should be a valid dictionary", "dict_type"),
        }
    }

    /// Takes a required list of at most `items_max` items.
    pub fn required_list(&mut self, name: &'static str, items_max: usize) -> Vec<Value> {
        match self.take(name) {
            Some((_, Value::Array(items))) if items.len() > items_max => {
                self.reject(name, format!("List should have at most {items_max} items"), "too_long")
            }
            Some((_, Value::Array(items))) => Some(items),
            Some(_) => self.reject(name, "Input should be a valid list", "list_type"),
            None => self.missing(name),
        }
        .unwrap_or_default()
    }

    /// Adds a problem of a field; returns `None` for its value.
    pub fn reject<T>(
        &mut self,
        name: &'static str,
        msg: impl Into<Cow<'static, str>>,
        kind: &'static str,
    ) -> Option<T> {
        let mut loc = self.at.clone();
        loc.push(LocStep::Name(name));
        self.push_problem(FieldProblem {
            loc,
            msg: msg.into(),
            kind,
        });
        None
    }

    /// Adds the problems of an inner object.
    pub fn merge(&mut self, inner: ValidationError) {
        inner.0.into_iter().for_each(|problem| self.push_problem(problem));
    }

    /// Finishes reading.
    ///
    /// # Errors
    /// Returns a [`ValidationError`] with all problems.
    pub fn finish(self) -> Result<(), ValidationError> {
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(ValidationError(self.problems))
        }
    }

    fn missing<T>(&mut self, name: &'static str) -> Option<T> {
        self.reject(name, "Field required", "missing")
    }

    fn push_problem(&mut self, problem: FieldProblem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(bytes: &[u8]) -> FieldProblem {
        let mut problems = parse_object(bytes).expect_err("refused").0;
        assert_eq!(problems.len(), 1);
        problems.remove(0)
    }

    /// R-099: invalid JSON is reported with its position, and without the input.
    #[test]
    fn reports_invalid_json_with_its_position() {
        let broken = problem(b"{\"a\": 1,\n \"s3cret\"");
        assert_eq!(broken.kind, "json_invalid");
        assert_eq!(broken.loc, [LocStep::Index(17)]);
        assert!(!broken.msg.contains("s3cret"), "{}", broken.msg);
        assert_eq!(problem(b"").kind, "json_invalid");
        assert_eq!(problem(b"\xff\xfe").kind, "json_invalid");
        assert_eq!(problem(b"{\"a\":\"\xff\"}").kind, "json_invalid");
        assert_eq!(problem("[".repeat(200_000).as_bytes()).kind, "json_invalid");
        assert_eq!(problem(b"[]").kind, "dict_type");
        assert_eq!(problem(b"null").kind, "dict_type");
    }

    /// R-099: the shape of a 422 response, with every problem of a body.
    #[test]
    fn reports_all_problems_at_once_in_the_fastapi_shape() {
        let map = parse_object(br#"{"a": 1, "b": "x", "c": 70000, "d": null}"#).expect("an object");
        let mut fields = ObjectReader::new(map, vec![LocStep::Name("list"), LocStep::Index(2)]);
        assert_eq!(fields.string("a", 9), None);
        assert_eq!(fields.flag("b"), None);
        assert_eq!(fields.small_integer("c"), None);
        assert_eq!(fields.required_string("d", 9), "");
        let invalid = fields.finish().expect_err("four problems");
        assert_eq!(
            invalid.detail(),
            json!([
                {"loc": ["body", "list", 2, "a"], "msg": "Input should be a valid string", "type": "string_type"},
                {"loc": ["body", "list", 2, "b"], "msg": "Input should be a valid boolean", "type": "bool_type"},
                {"loc": ["body", "list", 2, "c"], "msg": "Input should be from 0 to 65535", "type": "int_range"},
                {"loc": ["body", "list", 2, "d"], "msg": "Field required", "type": "missing"},
            ])
        );
        assert!(
            invalid
                .to_string()
                .starts_with("body.list[2].a: Input should be a valid string; body.list[2].b: ")
        );
    }

    /// A canonical name takes precedence over its alias in any order; `null` counts as absent.
    #[test]
    fn canonical_names_win_over_aliases() {
        let read = |text: &str| {
            let map = parse_object(text.as_bytes()).expect("an object");
            ObjectReader::new(map, Vec::new()).string("videoroomRoom", 9)
        };
        assert_eq!(read(r#"{"dailyRoom":"a","videoroomRoom":"c"}"#).as_deref(), Some("c"));
        assert_eq!(read(r#"{"dailyRoom":"a","videoroomRoom":null}"#).as_deref(), Some("a"));
        assert_eq!(read("{}"), None);
    }

    #[test]
    fn strings_and_lists_are_limited() {
        let fields = |text: &str| ObjectReader::new(parse_object(text.as_bytes()).expect("an object"), Vec::new());
        assert_eq!(fields(r#"{"a":"123"}"#).string("a", 3).as_deref(), Some("123"));
        let mut over = fields(r#"{"a":"1234","b":[1,2]}"#);
        assert_eq!(over.string("a", 3), None);
        assert_eq!(over.required_list("b", 1), Vec::<Value>::new());
        assert_eq!(over.finish().map_err(|invalid| invalid.0.len()), Err(2));
        assert_eq!(fields(r#"{"b":[1,2]}"#).required_list("b", 2).len(), 2);
    }

    /// The response stays short for any number of problems.
    #[test]
    fn the_number_of_problems_is_limited() {
        let mut fields = ObjectReader::new(Map::new(), Vec::new());
        for _ in 0..=PROBLEMS_MAX {
            fields.required_string("a", 1);
        }
        assert_eq!(fields.finish().map_err(|invalid| invalid.0.len()), Err(PROBLEMS_MAX));
    }
}
