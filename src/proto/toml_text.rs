//! Files in TOML, as far as the file of settings and the scenarios of `edge-runner call` read them
//! alike: where a mistake is, what was found in place of what is expected, and plain values.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::sorting;

/// Parses a text. The error is the line, and what is wrong there.
pub(crate) fn parse(text: &str) -> Result<DeTable<'_>, (usize, String)> {
    DeTable::parse(text).map(Spanned::into_inner).map_err(|wrong| {
        let at = wrong.span().map_or(0, |span| span.start);
        let message = wrong.message().lines().next().unwrap_or_default();
        (line(text, at), format!("no valid TOML: {message}"))
    })
}

/// Returns the number of the line of a byte.
pub(crate) fn line(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Returns the entries of a table in the order of the text, so that its first mistake is reported.
pub(crate) fn in_order<'t, 'd>(table: &'t DeTable<'d>) -> Vec<(&'t Spanned<DeString<'d>>, &'t Spanned<DeValue<'d>>)> {
    let mut pairs: Vec<_> = table.iter().collect();
    sorting::sort_by_key(&mut pairs, |(key, _)| key.span().start);
    pairs
}

pub(crate) fn string(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    }
}

/// Returns the text that an option would be typed with.
pub(crate) fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|number| number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Returns what a value is, for messages.
pub(crate) fn found(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "`true` or `false`",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(list) if list.is_empty() => "an empty list",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
