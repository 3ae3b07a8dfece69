//! Output of the client: results on stdout, messages on stderr.
//!
//! Text from the service is printed without control characters. With `--json`, the service's bytes
//! are printed unchanged after a check that they are one object. Source: decision I-28.

use std::io::{self, Write};

use serde_json::Value;

use super::{ClientError, object_of, text};
use crate::proto::build::BuildStatus;
use edge_runner_proto::aliases::{self, Area};

/// Characters of an error that are shown.
const REFUSAL_CHARS: usize = 500;

/// Members of a build that are printed first.
const FIRST: [&str; 6] = ["id", "status", "imageUri", "errorMessage", "region", "contextHash"];

/// Prints a message to stderr.
pub fn eprint_line(line: &str) {
    // Stderr may be closed.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints to stdout. A closed pipe is not an error.
fn print(text: &str) -> Result<(), ClientError> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(ClientError::Failed(format!("writing to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints the service's JSON.
pub fn raw(body: &[u8]) -> Result<(), ClientError> {
    object_of(body)?;
    let text = String::from_utf8_lossy(body);
    print(&format!("{}\n", text.trim()))
}

/// Prints a line per region.
pub fn regions(answer: &Value) -> Result<(), ClientError> {
    let Some(Value::Array(regions)) = answer.get("regions") else {
        return Err(ClientError::Failed("the service's answer has no list `regions`".into()));
    };
    let rows = regions
        .iter()
        .map(|region| (text(region, "code"), text(region, "display_name")));
    let rows: Vec<(String, String)> = rows.collect();
    let width = rows.iter().map(|(code, _)| code.chars().count()).max().unwrap_or(0);
    let lines: String = rows
        .iter()
        .map(|(code, name)| format!("{code:<width$}  {name}").trim_end().to_owned() + "\n")
        .collect();
    print(&lines)
}

/// Prints `name: value` per member of a build; further lines of a value are indented.
pub fn status(build: &Value) -> Result<(), ClientError> {
    let Some(members) = build.as_object() else {
        return Err(ClientError::Failed("the service's answer has no build".into()));
    };
    // An alias of a present member is not printed.
    let is_alias = |name: &str| {
        let canonical = aliases::canonical(Area::JsonKey, name);
        canonical != name && members.contains_key(canonical)
    };
    let first = FIRST.iter().filter_map(|name| members.get_key_value(*name));
    let rest = members
        .iter()
        .filter(|(name, _)| !FIRST.contains(&name.as_str()) && !is_alias(name));
    let mut lines = String::new();
    for (name, value) in first.chain(rest) {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let value: Vec<String> = value.trim_end().lines().map(sanitize).collect();
        lines.push_str(&format!("{}: {}\n", sanitize(name), value.join("\n  ")));
    }
    print(&lines)
}

/// Prints a page of log lines and returns their number.
pub fn lines(answer: &Value) -> Result<u32, ClientError> {
    let Some(Value::Array(lines)) = answer.get("logs") else {
        return Err(ClientError::Failed("the service's answer has no list `logs`".into()));
    };
    let mut text = String::new();
    for line in lines {
        text.push_str(&sanitize(line.as_str().unwrap_or_default()));
        text.push('\n');
    }
    print(&text)?;
    Ok(u32::try_from(lines.len()).unwrap_or(u32::MAX))
}

/// Prints the result of `cloud build`.
pub fn built(build: &Value, hash: &str, is_cached: bool, json: bool) -> Result<(), ClientError> {
    if json {
        let hash = Value::from(hash);
        return print(&format!(
            "{{\"build\":{build},\"contextHash\":{hash},\"cached\":{is_cached}}}\n"
        ));
    }
    let status = text(build, "status");
    let mut lines = format!("build {} {status}\n", text(build, "id"));
    let image = text(build, "imageUri");
    if status == BuildStatus::Success.name() && !image.is_empty() {
        lines.push_str(&format!("image {image}\n"));
    }
    print(&lines)
}

/// Formats an error answer with the code and message of the service or store.
pub fn refusal(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let json = serde_json::from_slice::<Value>(body).ok();
    let member = |name: &str| json.as_ref()?.get(name)?.as_str().map(str::to_owned);
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once('<')?.0.to_owned())
    };
    let code = member("code").or_else(|| element("Code"));
    let words = member("error").or_else(|| element("Message"));
    let message = match (code, words) {
        (Some(code), Some(words)) => format!("{code}: {words}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => text.trim().to_owned(),
    };
    let message: String = sanitize(&message).chars().take(REFUSAL_CHARS).collect();
    format!("the service answers {status}: {message}")
        .trim_end_matches(": ")
        .to_owned()
}

/// Replaces control characters and characters that change the text direction.
pub fn sanitize(text: &str) -> String {
    let unfit = |c: char| c.is_control() && c != '\t' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if unfit(c) { '\u{fffd}' } else { c }).collect()
}
