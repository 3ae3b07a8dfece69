//! Formats a help text from a table of options.

use super::table::{Flag, FlagKind};
use crate::aliases::{self, Area};
use crate::features::Feature;

/// Marks an option or variable that is not in this build.
pub const ABSENT: &str = "[not in this build]";

/// Width of the text, in columns.
pub const WIDTH: usize = 100;
/// The column where descriptions begin.
const INDENT: usize = 32;

/// Appends options, with the descriptions that `described` returns.
pub fn entries<T: 'static>(
    text: &mut String,
    flags: impl Iterator<Item = &'static Flag<T>>,
    described: impl Fn(&Flag<T>) -> String,
) {
    for flag in flags {
        entry(text, &names(flag), &described(flag));
    }
}

/// Prepends the mark if this build lacks the feature.
pub fn mark_missing(feature: Option<Feature>, text: &str) -> String {
    match feature.and_then(Feature::missing) {
        Some(_) => format!("{ABSENT} {text}"),
        None => text.to_owned(),
    }
}

fn names<T>(flag: &Flag<T>) -> String {
    let mut names = match flag.short {
        Some(short) => format!("  -{short}, {}", flag.long),
        None => format!("      {}", flag.long),
    };
    for alias in aliases::aliases(Area::Option, flag.long) {
        names.push_str(&format!(", {alias}"));
    }
    match flag.kind {
        FlagKind::Switch(_) | FlagKind::Count(_) | FlagKind::Help | FlagKind::Version | FlagKind::Report => {}
        FlagKind::Value(word, _) | FlagKind::Repeatable(word, _) => names.push_str(&format!(" {word}")),
        FlagKind::Optional(words, _) => names.push_str(&format!(" [{words}]")),
        FlagKind::List(word, _) => names.push_str(&format!(" {word}...")),
    }
    names
}

/// Appends a name and its description, on one line if the name is short enough.
pub fn entry(text: &mut String, name: &str, help: &str) {
    let mut line = name.to_owned();
    if line.len() + 2 > INDENT {
        text.push_str(&line);
        text.push('\n');
        line.clear();
    }
    wrapped(text, line, INDENT, help);
}

/// Appends a paragraph without indent.
pub fn paragraph(text: &mut String, words: &str) {
    wrapped(text, String::new(), 0, words);
}

/// Appends `line` followed by the words, wrapped, with `indent` columns before each line.
fn wrapped(text: &mut String, mut line: String, indent: usize, words: &str) {
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line.clear();
            is_empty = true;
        }
        if is_empty {
            line.push_str(&" ".repeat(indent - line.len()));
        } else {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    text.push_str(&line);
    text.push('\n');
}
