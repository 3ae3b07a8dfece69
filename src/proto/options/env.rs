//! Environment variables: those of the process, under them those of a `.env` file, and the lookup by any accepted name.
//!
//! Text of the file enters, names and values leave. A line is `NAME=value`, with `export` before it, spaces around `=`, quotes
//! around the value and a `# comment` after it if you like; quoted values may run over lines. A line that is none of that is
//! skipped with a warning that names its number and never its content, which may be a secret. Nothing is expanded: `$X` and
//! `${X}` stay as they are. A variable of the process wins over the file, and an empty one counts as unset.
//! Source: the format of python-dotenv, so that existing files work.

use std::collections::{BTreeMap, BTreeSet};

use crate::aliases::{self, Area};

/// What the process and its `.env` say.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    values: BTreeMap<String, String>,
    /// The names that the process has.
    of_process: BTreeSet<String>,
}

impl Variables {
    /// Puts the file's variables under those of the process.
    pub fn new(
        process: impl IntoIterator<Item = (String, String)>,
        file: impl IntoIterator<Item = (String, String)>,
    ) -> Variables {
        let mut values: BTreeMap<_, _> = file.into_iter().collect();
        let process: Vec<_> = process.into_iter().collect();
        let of_process = process.iter().map(|(name, _)| name.clone()).collect();
        values.extend(process);
        Variables { values, of_process }
    }

    /// Returns the value of a variable by its canonical name or an alias, with the name under which it was found. Canonical
    /// wins when both are set.
    pub fn named(&self, canonical: &'static str) -> Option<(&'static str, &str)> {
        aliases::first(Area::Variable, canonical, |name| Some((name, self.literal(name)?)))
    }

    /// Returns the value of a variable by the first of these names that the process sets; only where it sets none of them, by
    /// the first that the file sets.
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

    /// Returns the value of a variable by exactly this name.
    pub fn literal(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// Returns the value of a variable by exactly this name as it is, for who passes it on.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Tells whether the process sets the variable of exactly this name, so that the file has no
    /// say in it.
    pub fn is_of_process(&self, name: &str) -> bool {
        self.of_process.contains(name)
    }

    /// The names of all variables, set or empty.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Returns the value of a variable by its canonical name or an alias.
    pub fn get(&self, canonical: &'static str) -> Option<&str> {
        self.named(canonical).map(|(_, value)| value)
    }
}

/// One variable of a `.env` file.
#[derive(Debug, PartialEq, Eq)]
pub struct EnvLine {
    /// Where it begins, counted from 1.
    pub number: usize,
    pub name: String,
    pub value: String,
}

/// What a `.env` file holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EnvFile {
    /// In the file's order; of a name that stands twice the later value counts.
    pub variables: Vec<EnvLine>,
    /// One sentence for each line that was skipped.
    pub warnings: Vec<String>,
}

/// Reads the text of a `.env` file.
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
                file.warnings
                    .push(format!(".env line {line}: {why}; the line is skipped"));
                line_length(rest)
            }
        };
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    file
}

/// One statement, and how many bytes it takes with its line break.
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
    let (name, _) = line.split_once('=').ok_or("no `=`, where NAME=value is due")?;
    let name = match name.trim().split_once(char::is_whitespace) {
        Some(("export", name)) => name.trim(),
        _ => name.trim(),
    };
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || !name.chars().all(known) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("a name that is not made of letters, digits and `_`");
    }
    // A quoted value may go on past this line, so it is read from the whole text.
    let equals = text.find('=').ok_or("no `=`, where NAME=value is due")?;
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

/// Returns an unquoted value: what stands before a `#` that has white space before it.
fn bare(text: &str) -> &str {
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        // Directly after `=` a `#` belongs to the value, as in NAME=#fff.
        if c == '#' && at > 0 && before.is_whitespace() {
            return text[..at].trim();
        }
        before = c;
    }
    text.trim()
}

/// Returns the value up to the closing quote, and how many bytes it takes with that quote.
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
    Err("a quote that is never closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String)> {
        let file = parse(text);
        assert_eq!(file.warnings, Vec::<String>::new(), "{text:?}");
        pairs(file)
    }

    fn pairs(file: EnvFile) -> Vec<(String, String)> {
        let lines = file.variables.into_iter();
        lines.map(|line| (line.name, line.value)).collect()
    }

    fn value(text: &str) -> String {
        values(text).pop().expect("one variable").1
    }

    #[test]
    fn a_file_as_people_write_it_is_read_as_they_mean_it() {
        let text =
            "\u{feff}# keys\r\nDAILY_API_KEY = abc=def==  # mine\r\n\r\nexport LIVEKIT_URL='wss://x/#y'\r\n  EMPTY=\n";
        let expected = [
            ("DAILY_API_KEY", "abc=def=="),
            ("LIVEKIT_URL", "wss://x/#y"),
            ("EMPTY", ""),
        ];
        assert_eq!(
            values(text),
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn values_keep_what_belongs_to_them() {
        assert_eq!(value("A=#fff"), "#fff");
        assert_eq!(value("A= # nothing"), "");
        assert_eq!(value("A=a#b"), "a#b");
        assert_eq!(value("A=\"a # b\" # c"), "a # b");
        assert_eq!(value(r#"A="x\ny\"z\\\q""#), "x\ny\"z\\\\q");
        assert_eq!(value(r"A='x\ny\'z'"), r"x\ny'z");
        assert_eq!(value("A=$HOME/${B}"), "$HOME/${B}");
        assert_eq!(value("export=1"), "1");
        assert_eq!(value("A={\"urls\": \"stun:a\"}"), "{\"urls\": \"stun:a\"}");
    }

    #[test]
    fn a_quoted_value_may_run_over_lines_and_the_count_goes_on() {
        let file = parse("PEM=\"-----\nabc\n-----\"\nwrong\nB=2");
        assert!(file.warnings[0].starts_with(".env line 4:"), "{:?}", file.warnings);
        let numbers: Vec<_> = file.variables.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [1, 5]);
        assert_eq!(
            pairs(file),
            [
                ("PEM".to_owned(), "-----\nabc\n-----".to_owned()),
                ("B".to_owned(), "2".to_owned())
            ]
        );
    }

    #[test]
    fn a_malformed_line_is_skipped_with_its_number_and_without_its_content() {
        for bad in [
            "hunter2",
            "=hunter2",
            "1A=hunter2",
            "A B=hunter2",
            "A=\"hunter2",
            "A='hunter2' 3",
            "A=hunter2\0",
            "A='hunter2\0'",
        ] {
            let file = parse(&format!("X=1\n{bad}\nY=2\n"));
            let names: Vec<_> = file.variables.iter().map(|line| line.name.as_str()).collect();
            assert_eq!(names, ["X", "Y"], "{bad:?}");
            assert_eq!(file.warnings.len(), 1, "{bad:?}");
            assert!(file.warnings[0].contains("line 2"), "{:?}", file.warnings);
            assert!(!file.warnings[0].contains("hunter2"), "{:?}", file.warnings);
        }
    }

    /// Every text of up to five of the characters that mean something, and one of two bytes.
    #[test]
    fn any_text_ends_without_a_panic() {
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            let longer = texts
                .iter()
                .flat_map(|text| "A=\"\\\n #é".chars().map(move |c| format!("{text}{c}")));
            texts = longer.collect();
            for text in &texts {
                assert!(parse(text).warnings.len() <= text.lines().count());
            }
        }
    }

    fn variables(process: &[(&str, &str)], file: &[(&str, &str)]) -> Variables {
        let own = |list: &[(&str, &str)]| {
            list.iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect::<Vec<_>>()
        };
        Variables::new(own(process), own(file))
    }

    #[test]
    fn the_process_wins_over_the_file() {
        let both = variables(&[("VIDEOROOM_API_KEY", "a")], &[("VIDEOROOM_API_KEY", "b"), ("C", "c")]);
        assert_eq!(both.get("VIDEOROOM_API_KEY"), Some("a"));
        assert_eq!(both.get("C"), Some("c"));
    }

    /// R-027: either name of the key is read, the canonical one first, whichever place it comes from.
    #[test]
    fn canonical_wins_over_alias_and_empty_counts_as_unset() {
        let both = variables(&[("DAILY_API_KEY", "alias")], &[("VIDEOROOM_API_KEY", "canonical")]);
        assert_eq!(
            both.named("VIDEOROOM_API_KEY"),
            Some(("VIDEOROOM_API_KEY", "canonical"))
        );
        let alias = variables(&[("DAILY_API_KEY", "alias"), ("VIDEOROOM_API_KEY", " ")], &[]);
        assert_eq!(alias.named("VIDEOROOM_API_KEY"), Some(("DAILY_API_KEY", "alias")));
        assert_eq!(variables(&[("DAILY_API_KEY", "")], &[]).get("VIDEOROOM_API_KEY"), None);
    }

    /// I-26: a variable wins over the file, under whichever of its names; between the names of one place the first wins.
    #[test]
    fn the_nearest_place_wins_over_the_first_name() {
        let names = ["ONE".to_owned(), "TWO".to_owned()];
        for (process, file, found) in [
            (&[("TWO", "a")][..], &[("ONE", "b")][..], Some(("TWO", "a"))),
            (&[("TWO", "a"), ("ONE", "b")], &[("ONE", "c")], Some(("ONE", "b"))),
            (&[("TWO", " ")], &[("ONE", "b"), ("TWO", "c")], Some(("ONE", "b"))),
            (&[], &[("TWO", "a"), ("ONE", "b")], Some(("ONE", "b"))),
            (&[], &[("TWO", "a")], Some(("TWO", "a"))),
            (&[], &[], None),
        ] {
            let both = variables(process, file);
            let nearest = both.nearest(&names).map(|(name, value)| (&**name, value));
            assert_eq!(nearest, found, "{process:?} {file:?}");
        }
    }
}
