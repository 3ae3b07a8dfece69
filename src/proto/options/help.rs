//! The parts of a help text, made from a table of options.

use super::table::{Flag, FlagKind};
use crate::aliases::{self, Area};
use crate::features::Feature;

/// The mark of the help at what is not in this build.
pub const ABSENT: &str = "[not in this build]";

/// Columns of the whole text.
pub const WIDTH: usize = 100;
/// Column at which descriptions begin.
const INDENT: usize = 32;

/// Adds options with what they do, in the words of `described`.
pub fn entries<T: 'static>(
    text: &mut String,
    flags: impl Iterator<Item = &'static Flag<T>>,
    described: impl Fn(&Flag<T>) -> String,
) {
    for flag in flags {
        entry(text, &names(flag), &described(flag));
    }
}

/// Returns a text of the help with the mark of what is not in this build.
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
        FlagKind::Switch(_) | FlagKind::Count(_) | FlagKind::Help | FlagKind::Version => {}
        FlagKind::Value(word, _) | FlagKind::Repeatable(word, _) => names.push_str(&format!(" {word}")),
        FlagKind::List(word, _) => names.push_str(&format!(" {word}...")),
    }
    names
}

/// Adds a name and its description, which begins on the same line where the name leaves room.
pub fn entry(text: &mut String, name: &str, help: &str) {
    let mut line = name.to_owned();
    if line.len() + 2 > INDENT {
        text.push_str(&line);
        text.push('\n');
        line.clear();
    }
    wrapped(text, line, INDENT, help);
}

/// Adds sentences from the first column on.
pub fn paragraph(text: &mut String, words: &str) {
    wrapped(text, String::new(), 0, words);
}

/// Adds words after what stands in `line`, in lines that begin at a column.
fn wrapped(text: &mut String, mut line: String, indent: usize, words: &str) {
    let mut bare = true;
    for word in words.split_whitespace() {
        if !bare && line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line.clear();
            bare = true;
        }
        if bare {
            line.push_str(&" ".repeat(indent - line.len()));
        } else {
            line.push(' ');
        }
        line.push_str(word);
        bare = false;
    }
    text.push_str(&line);
    text.push('\n');
}
