//! Changes of the text of the file: comments, order and everything else stay as they are.
//!
//! In: the text, and new values of options and variables. Out: the changed text. A value takes the
//! place of the old one; a new key goes behind the last one above the first section. Of a key that
//! is removed, a comment behind it stays. Rejects: a reference that is written as a section or with
//! a dotted key.

use std::ops::Range;

use toml::de::DeValue;

use super::document::known;
use super::{BOTS, SettingKey, key_of};
use crate::toml_text;

/// Returns the text with other values. `changes` are names of options with their dashes, or of
/// variables, and their new values; `None` removes one.
///
/// # Errors
/// The line, and what is wrong there, for a text that is no TOML, and for an entry of another form
/// than `key = value`.
pub fn edited(
    text: &str,
    keys: &[SettingKey],
    prefix: &str,
    changes: &[(&str, Option<String>)],
) -> Result<String, (usize, String)> {
    let mut text = text.to_owned();
    for (name, value) in changes {
        text = with(&text, keys, prefix, (name, value.as_deref()))?;
    }
    Ok(text)
}

/// Where the text has an entry.
struct EntrySpan {
    key: usize,
    value: Range<usize>,
}

fn with(
    text: &str,
    keys: &[SettingKey],
    prefix: &str,
    (name, value): (&str, Option<&str>),
) -> Result<String, (usize, String)> {
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let table = toml_text::parse(body)?;
    // A byte order mark is before all offsets.
    let behind = text.len() - body.len();
    let (mut found, mut last) = (None, None);
    for (key, entry) in toml_text::in_order(&table) {
        if key.get_ref() == BOTS {
            continue;
        }
        let at = EntrySpan {
            key: behind + key.span().start,
            value: behind + entry.span().start..behind + entry.span().end,
        };
        let is_found = known(keys, prefix, key.get_ref()).is_some_and(|known| known.name == name);
        let is_table = matches!(entry.get_ref(), DeValue::Table(_));
        if is_table && !text[at.value.start..].starts_with('{') {
            if is_found {
                let sentence = format!("`{}` is a section here: write it as `key = value`", key.get_ref());
                return Err((toml_text::line(body, key.span().start), sentence));
            }
            continue;
        }
        last = last.max(Some(at.value.end));
        if is_found {
            found = Some(at);
        }
    }
    Ok(match (found, value) {
        (Some(at), Some(value)) => {
            let (before, after) = (&text[..at.value.start], &text[at.value.end..]);
            format!("{before}{}{after}", quoted(value))
        }
        (Some(at), None) => without(text, &at),
        (None, Some(value)) => {
            let entry = format!("{} = {}", key_of(name, prefix), quoted(value));
            let at = match last {
                Some(end) => line_end(text, end),
                None if table.is_empty() => text.len(),
                // A key below a section would be one of its own.
                None => behind,
            };
            inserted(text, at, &entry)
        }
        (None, None) => text.to_owned(),
    })
}

/// Removes an entry, and its line unless a comment is left in it.
fn without(text: &str, at: &EntrySpan) -> String {
    let start = text[..at.key].rfind('\n').map_or(0, |end| end + 1);
    // A byte order mark stays.
    let start = start + text[start..].len() - text[start..].trim_start_matches('\u{feff}').len();
    let end = line_end(text, at.value.end);
    let rest = text[at.value.end..end].trim_start_matches([' ', '\t']);
    let kept = if rest.trim().is_empty() { "" } else { rest };
    format!("{}{kept}{}", &text[..start], &text[end..])
}

/// Inserts a line at the start of a line or at the end of the text.
fn inserted(text: &str, at: usize, line: &str) -> String {
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let (before, after) = text.split_at(at);
    let is_whole = before.is_empty() || before.ends_with(['\n', '\u{feff}']);
    let separator = if is_whole { "" } else { end };
    format!("{before}{separator}{line}{end}{after}")
}

/// Returns the end of the line of a byte, behind its line break.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

/// Returns a text as a basic string of TOML.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SettingKind;

    fn keys() -> Vec<SettingKey> {
        let names = [
            "--port",
            "--bot",
            "--api-key",
            "--ice-servers",
            "RUNNER_BOT_MINUTES",
            "REALTIME_MODEL",
        ];
        let key = |name| SettingKey {
            name,
            kind: SettingKind::One,
            feature: None,
        };
        names.map(key).into()
    }

    fn edit(text: &str, name: &str, value: Option<&str>) -> String {
        let edited = edited(text, &keys(), "RUNNER_", &[(name, value.map(str::to_owned))]).expect("TOML");
        toml_text::parse(edited.trim_start_matches('\u{feff}')).expect("the result is TOML, too");
        edited
    }

    #[test]
    fn a_value_is_replaced_where_it_is() {
        let text = "# mine\nport = 80 # as ever\n bot  =  'parrot'# no\r\nREALTIME_MODEL = \"\"\"a\nb\"\"\"\n\n[bots.a]\nbot = \"echo\"\n";
        assert_eq!(
            edit(text, "--bot", Some("cascade")),
            text.replace("'parrot'", "\"cascade\"")
        );
        assert_eq!(
            edit(text, "REALTIME_MODEL", Some("c")),
            text.replace("\"\"a\nb\"\"", "c")
        );
        assert_eq!(edit(text, "--port", Some("81")), text.replace("80", "\"81\""));
        let reference = "api-key = { file = \"/k\" } # a\nice-servers = [\n  \"a\", # one\n]\n";
        let edited = edit(reference, "--api-key", Some("k"));
        assert_eq!(edited, reference.replace("{ file = \"/k\" }", "\"k\""));
        let edited = edit(reference, "--ice-servers", Some("b"));
        assert_eq!(edited, "api-key = { file = \"/k\" } # a\nice-servers = \"b\"\n");
        // Another name of it, and one in quotes.
        assert_eq!(edit("\"bot\" = 'a'", "--bot", Some("b")), "\"bot\" = \"b\"");
    }

    #[test]
    fn a_new_key_is_above_the_sections() {
        let model = |text: &str| edit(text, "REALTIME_MODEL", Some("m"));
        assert_eq!(model(""), "REALTIME_MODEL = \"m\"\n");
        assert_eq!(model("# a"), "# a\nREALTIME_MODEL = \"m\"\n");
        assert_eq!(model("port = 1 # a"), "port = 1 # a\nREALTIME_MODEL = \"m\"\n");
        assert_eq!(
            model("port = 1\r\n# b\r\n[bots.a]\r\nbot = \"echo\"\r\n"),
            "port = 1\r\nREALTIME_MODEL = \"m\"\r\n# b\r\n[bots.a]\r\nbot = \"echo\"\r\n"
        );
        assert_eq!(
            model("\u{feff}# c\n[bots.a]\nbot = \"echo\"\n"),
            "\u{feff}REALTIME_MODEL = \"m\"\n# c\n[bots.a]\nbot = \"echo\"\n"
        );
        assert_eq!(edit("", "RUNNER_BOT_MINUTES", Some("5")), "bot-minutes = \"5\"\n");
    }

    #[test]
    fn a_key_is_removed_and_its_comment_stays() {
        let remove = |text: &str| edit(text, "--bot", None);
        assert_eq!(remove("port = 1\nbot = \"a\"\n# b\n"), "port = 1\n# b\n");
        assert_eq!(remove("bot = \"a\" # why\n# b\n"), "# why\n# b\n");
        assert_eq!(remove("\u{feff}bot = \"a\""), "\u{feff}");
        assert_eq!(remove("port = 1\n"), "port = 1\n");
        assert_eq!(
            remove("port = 1\n[bots.a]\nbot = \"a\"\n"),
            "port = 1\n[bots.a]\nbot = \"a\"\n"
        );
    }

    /// What is written is what is read.
    #[test]
    fn values_are_quoted() {
        for value in [
            "",
            "a\"b\\c",
            "\u{7f}\u{1}\n\t",
            "'\"\"\"",
            "ä # no comment",
            "{ file = \"x\" }",
        ] {
            let text = edit("port = 1\n", "--bot", Some(value));
            let table = toml_text::parse(&text).expect("TOML");
            let (_, read) = table
                .iter()
                .find(|(key, _)| key.get_ref() == "bot")
                .expect("it is there");
            assert_eq!(toml_text::string(read.get_ref()).as_deref(), Some(value), "{text}");
        }
    }

    /// The text of such an entry is not in one place.
    #[test]
    fn a_reference_in_another_form_is_left_alone() {
        for text in ["api-key.file = '/k'\n", "[api-key]\nfile = '/k'\n"] {
            let refused = edited(text, &keys(), "", &[("--api-key", Some("k".to_owned()))]).expect_err("refused");
            assert_eq!(
                refused,
                (1, "`api-key` is a section here: write it as `key = value`".to_owned())
            );
            assert_eq!(edit(text, "--port", Some("1")), format!("port = \"1\"\n{text}"));
        }
    }

    #[test]
    fn what_is_no_toml_is_left_alone() {
        assert_eq!(
            edited("a = \n", &keys(), "", &[("--bot", None)])
                .expect_err("refused")
                .0,
            1
        );
    }
}
