//! Environment variables: those of the process, those of a `.env` file, and the lookup by any
//! accepted name.
//!
//! In: the text of the file. Out: names and values. A line is `NAME=value`, optionally with
//! `export` before it, spaces around `=`, quotes around the value and a `# comment` after it;
//! quoted values may contain line breaks. Any other line is skipped with a warning that has its
//! number but not its content, which may be a secret. Nothing is expanded: `$X` and `${X}` stay as
//! they are. Variables of the process take precedence over the file, and an empty one counts as
//! unset. Source: the format of python-dotenv, so that existing files work.

use std::collections::{BTreeMap, BTreeSet};

use crate::aliases::{self, Area};
use crate::sorting;

/// The variables of the process and of its `.env` file.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    values: BTreeMap<String, String>,
    /// The names of the variables of the process.
    of_process: BTreeSet<String>,
    /// The names of the variables of the file of settings, each with its key and place.
    of_settings: BTreeMap<String, String>,
}

/// A variable that the file of settings sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsVariable {
    pub name: &'static str,
    pub value: String,
    /// Its key and place, for messages.
    pub place: String,
}

impl Variables {
    /// Merges two sets of variables; those of the process take precedence.
    pub fn new(
        process: impl IntoIterator<Item = (String, String)>,
        file: impl IntoIterator<Item = (String, String)>,
    ) -> Variables {
        let mut values = sorting::map(file);
        let process: Vec<_> = process.into_iter().collect();
        let of_process = process.iter().map(|(name, _)| name.clone()).collect();
        values.extend(process);
        Variables {
            values,
            of_process,
            of_settings: BTreeMap::new(),
        }
    }

    /// Adds the variables of the file of settings, which the others take precedence over.
    pub fn with_settings(mut self, settings: Vec<SettingsVariable>) -> Variables {
        for SettingsVariable { name, value, place } in settings {
            self.values.insert(name.to_owned(), value);
            self.of_settings.insert(name.to_owned(), place);
        }
        self
    }

    /// Replaces variables by those of a section of the file of settings, which takes precedence
    /// over all others: under any of their names, and a value replaces the file with one, and vice
    /// versa.
    pub fn replaced_by(mut self, settings: Vec<SettingsVariable>) -> Variables {
        const FILE: &str = "_FILE";
        for variable in &settings {
            let name = variable.name;
            let other = match name.strip_suffix(FILE) {
                Some(value) => value.to_owned(),
                None => format!("{name}{FILE}"),
            };
            for canonical in [name, other.as_str()] {
                let aliases = aliases::aliases(Area::Variable, canonical);
                for name in aliases.iter().copied().chain([canonical]) {
                    self.values.remove(name);
                    self.of_process.remove(name);
                    self.of_settings.remove(name);
                }
            }
        }
        self.with_settings(settings)
    }

    /// Returns the key and place of a variable that the file of settings sets.
    pub fn place(&self, name: &str) -> Option<&str> {
        self.of_settings.get(name).map(String::as_str)
    }

    /// Returns the value of a variable by its canonical name or an alias, and the name that is set.
    /// The canonical name takes precedence.
    pub fn named(&self, canonical: &'static str) -> Option<(&'static str, &str)> {
        aliases::first(Area::Variable, canonical, |name| Some((name, self.literal(name)?)))
    }

    /// Returns the value of the first of these names that the process sets. If it sets none,
    /// returns that of the first name that the file sets.
    pub fn nearest<'n>(&self, names: &'n [String]) -> Option<(&'n String, &str)> {
        let first = |of_process: bool| {
            let names = names
                .iter()
                .filter(|name| self.of_process.contains(*name) == of_process);
            names
                .map(|name| (name, self.literal(name)))
                .find_map(|(name, text)| Some((name, text?)))
        };
        first(true).or_else(|| first(false))
    }

    /// Returns the trimmed value of a variable by exactly this name; `None` if it is empty.
    pub fn literal(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// Returns the unchanged value of a variable by exactly this name, to be passed on.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Returns whether the process sets the variable of exactly this name, so that the file cannot.
    pub fn is_of_process(&self, name: &str) -> bool {
        self.of_process.contains(name)
    }

    /// Returns the names of all variables, including empty ones.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Returns the value of a variable by its canonical name or an alias.
    pub fn get(&self, canonical: &'static str) -> Option<&str> {
        self.named(canonical).map(|(_, value)| value)
    }
}

/// The variables by which other programs find a proxy for their requests.
const PROXY_VARIABLES: [&str; 6] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// Returns a warning if a variable names a proxy, which is not used: where the network lets only
/// the proxy out, every request would fail without a reason.
pub fn unused_proxy_warning(variables: &Variables) -> Option<String> {
    let name = PROXY_VARIABLES.iter().find(|name| variables.literal(name).is_some())?;
    Some(format!(
        "{name} is set, and not used: requests to services and providers go out directly; unset it if that is intended, \
         else let them pass the firewall"
    ))
}

/// One variable of a `.env` file.
#[derive(Debug, PartialEq, Eq)]
pub struct EnvLine {
    /// The number of its first line, from 1.
    pub number: usize,
    pub name: String,
    pub value: String,
}

/// The content of a `.env` file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EnvFile {
    /// In the order of the file; the last value of a repeated name wins.
    pub variables: Vec<EnvLine>,
    /// For each skipped line, a sentence to put after the name of the file.
    pub warnings: Vec<String>,
}

/// Parses the text of a `.env` file.
pub fn parse(text: &str) -> EnvFile {
    let mut file = EnvFile::default();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut line = 1;
    while !rest.is_empty() {
        let taken = match statement(rest) {
            Ok(Statement { variable, taken }) => {
                file.variables.extend(variable.map(|(name, value)| EnvLine {
                    number: line,
                    name,
                    value,
                }));
                taken
            }
            Err(why) => {
                file.warnings.push(format!("line {line}: {why}; the line is skipped"));
                line_length(rest)
            }
        };
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    file
}

/// One statement, and its length in bytes with its line break.
struct Statement {
    variable: Option<(String, String)>,
    taken: usize,
}

fn line_length(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |at| at + 1)
}

fn statement(text: &str) -> Result<Statement, &'static str> {
    let taken = line_length(text);
    let line = text[..taken].trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(Statement { variable: None, taken });
    }
    if line.contains('\0') {
        return Err("a NUL byte");
    }
    let (name, _) = line.split_once('=').ok_or("no `=`; NAME=value is expected")?;
    let name = match name.trim().split_once(char::is_whitespace) {
        Some(("export", name)) => name.trim(),
        _ => name.trim(),
    };
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || !name.chars().all(known) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("a name that is not made of letters, digits and `_`");
    }
    // A quoted value may span lines, so it is parsed from the whole text.
    let equals = text.find('=').ok_or("no `=`; NAME=value is expected")?;
    let after = text[equals + 1..].trim_start_matches([' ', '\t']);
    let start = text.len() - after.len();
    match after.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let (value, length) = quoted(&after[1..], quote)?;
            let tail_start = start + 1 + length;
            let tail = line_length(&text[tail_start..]);
            let comment = text[tail_start..tail_start + tail].trim();
            if !comment.is_empty() && !comment.starts_with('#') {
                return Err("text after the closing quote");
            }
            Ok(Statement {
                variable: Some((name.to_owned(), value)),
                taken: tail_start + tail,
            })
        }
        _ => {
            let value = bare(&text[equals + 1..taken]);
            Ok(Statement {
                variable: Some((name.to_owned(), value.to_owned())),
                taken,
            })
        }
    }
}

/// Returns an unquoted value: the text before a `#` that follows white space.
fn bare(text: &str) -> &str {
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        // A `#` directly after `=` belongs to the value, as in NAME=#fff.
        if c == '#' && at > 0 && before.is_whitespace() {
            return text[..at].trim();
        }
        before = c;
    }
    text.trim()
}

/// Returns the value up to the closing quote, and its length in bytes including that quote.
fn quoted(text: &str, quote: char) -> Result<(String, usize), &'static str> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\0' => return Err("a NUL byte"),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                Some(escaped) if escaped == quote || escaped == '\\' => value.push(escaped),
                Some('n') if quote == '"' => value.push('\n'),
                Some('r') if quote == '"' => value.push('\r'),
                Some('t') if quote == '"' => value.push('\t'),
                Some(other) => value.extend(['\\', other]),
                None => break,
            },
            c if c == quote => return Ok((value, at + 1)),
            c => value.push(c),
        }
    }
    Err("the closing quote is missing")
}

#[cfg(test)]
mod tests;
