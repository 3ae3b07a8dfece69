//! Conventions of the source text: distinct type names, plain words, comment width, and citations that resolve.
//!
//! Each test reads the files of the repository and lists every line that breaks the convention. CONTRIBUTING.md gives
//! the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Columns of a comment, with its indent.
const COMMENT_COLUMNS_MAX: usize = 100;
/// Words that a reader cannot search for, with the term to use.
const PRIVATE_WORDS: [(&str, &str); 8] = [
    ("house", "service, crate or program"),
    ("knock", "request, handshake"),
    ("lobby", "pending queue"),
    ("nobody", "no one, none; or name the subject"),
    ("whoever", "a caller, a client; name the subject"),
    ("ear", "receiver, input"),
    ("ears", "receiver, input"),
    ("doorway", "entry point"),
];
/// Files that spell the words above because they list them.
const EXEMPT: [&str; 1] = ["tests/conventions.rs"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of the repository with one of `extensions`, its path below the root and its text.
fn files(folders: &[&str], extensions: &[&str]) -> Vec<(String, String)> {
    fn walk(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let generated = ["target", "node_modules", "corpus", "data"];
            if path.is_dir() && !generated.iter().any(|name| path.ends_with(name)) {
                walk(&path, extensions, found);
            } else if path
                .extension()
                .is_some_and(|it| extensions.iter().any(|one| it == *one))
            {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    for folder in folders {
        walk(&root().join(folder), extensions, &mut found);
    }
    found.sort();
    assert!(found.len() > 5, "{folders:?} have {} files", found.len());
    let named = found.into_iter().map(|path| {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        (name, fs::read_to_string(&path).expect("a text file"))
    });
    named.filter(|(name, _)| !EXEMPT.contains(&name.as_str())).collect()
}

/// The text before the inline test module.
fn production(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests")
        .next()
        .expect("split gives one part")
}

/// The name that a line defines as a type.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().peekable();
    if words.peek().is_some_and(|word| word.starts_with("pub")) {
        words.next();
    }
    let keyword = words.find(|word| *word != "unsafe")?;
    // An indented `type` belongs to an implementation of a trait.
    let is_item =
        ["struct", "enum", "trait", "union"].contains(&keyword) || keyword == "type" && !line.starts_with(' ');
    let name = words.next()?.split(|c: char| !c.is_alphanumeric()).next()?;
    (is_item && name.starts_with(char::is_uppercase)).then_some(name)
}

/// A bare name means one type in the whole workspace, so that a search finds it.
#[test]
fn types_have_distinct_names() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in files(&["src"], &["rs"]) {
        let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
        // The file that stands for a module of a feature that is not built defines the same names.
        let is_twin = path.ends_with("absent.rs") || path.ends_with("no_tls.rs");
        if is_test || is_twin {
            continue;
        }
        for name in production(&text).lines().filter_map(defined_type) {
            places.entry(name.to_owned()).or_default().insert(path.clone());
        }
    }
    places.retain(|_, paths| paths.len() > 1);
    assert!(places.is_empty(), "one name for several types: {places:#?}");
}

#[test]
fn comments_fit_in_100_columns() {
    let mut wide = Vec::new();
    for (path, text) in files(&["src", "tests", "examples"], &["rs"]) {
        for (number, line) in text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            // A URL cannot be broken.
            let words = line.split_whitespace().filter(|word| word.len() > 60).count();
            if is_comment && line.chars().count() > COMMENT_COLUMNS_MAX && words == 0 {
                wide.push(format!("{path}:{}", number + 1));
            }
        }
    }
    assert!(wide.is_empty(), "{} wide comments: {wide:#?}", wide.len());
}

/// The words of a line, with identifiers taken apart at underscores and capitals.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in line.chars() {
        if !c.is_alphabetic() || c.is_uppercase() && before.is_lowercase() {
            words.push(String::new());
        }
        if c.is_alphabetic() {
            let last = words.last_mut().expect("never empty");
            last.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn words_are_those_of_the_field() {
    let mut found = Vec::new();
    let folders = ["src", "tests", "examples", "docs", "boards", "cross"];
    for (path, text) in files(&folders, &["rs", "py", "sh", "md", "js", "html"]) {
        for (number, line) in text.lines().enumerate() {
            for word in words(line) {
                if let Some((_, instead)) = PRIVATE_WORDS.iter().find(|(private, _)| *private == word) {
                    found.push(format!("{path}:{}: `{word}`; say {instead}", number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{} private words: {found:#?}", found.len());
}

/// The ids and headings of `docs/spec`: `R-014`, and `livekit.md 3.2` for a heading that begins with that number.
fn citable() -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for (path, text) in files(&["docs/spec"], &["md"]) {
        let file = path.rsplit('/').next().expect("a path has a last part").to_owned();
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("| ").and_then(|row| row.split(' ').next()) {
                ids.insert(id.to_owned());
            } else if let Some(heading) = line.strip_prefix('#') {
                let number = heading.trim_start_matches('#').split_whitespace().next().unwrap_or("");
                ids.insert(format!("{file} {}", number.trim_end_matches('.')));
            }
        }
        ids.insert(file);
    }
    ids
}

/// The ids in a line that look like `R-014`, and the sections in it that look like `docs/spec/livekit.md` 3.2.
fn citations(line: &str) -> Vec<String> {
    let mut cited = Vec::new();
    for word in line.split(|c: char| !c.is_alphanumeric() && c != '-') {
        let Some((letter, number)) = word.split_once('-') else {
            continue;
        };
        let is_number = (2..=3).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
        if ["R", "C", "I", "D"].contains(&letter) && is_number {
            cited.push(word.to_owned());
        }
    }
    for part in line.split("docs/spec/").skip(1) {
        let Some((stem, rest)) = part.split_once(".md") else {
            continue;
        };
        if !stem.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') {
            continue;
        }
        cited.push(format!("{stem}.md"));
        let rest = rest.trim_start_matches('`').trim_start_matches(',').trim_start();
        let rest = rest.strip_prefix("section ").unwrap_or(rest);
        let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let number = number.trim_end_matches('.');
        if !number.is_empty() {
            cited.push(format!("{stem}.md {number}"));
        }
    }
    cited
}

#[test]
fn citations_resolve() {
    let citable = citable();
    let mut dangling = Vec::new();
    let folders = ["src", "tests", "examples", "boards", "docs"];
    for (path, text) in files(&folders, &["rs", "py", "sh", "md", "js", "html"]) {
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            if lower.contains("fact sheet") || lower.contains("checklist r-") || lower.contains("-interface.md") {
                dangling.push(format!("{path}:{}: a page outside the repository", number + 1));
            }
            for id in citations(line).into_iter().filter(|id| !citable.contains(id)) {
                dangling.push(format!("{path}:{}: {id}", number + 1));
            }
        }
    }
    assert!(
        dangling.is_empty(),
        "{} citations lead nowhere: {dangling:#?}",
        dangling.len()
    );
}

#[test]
fn a_citation_is_found_in_a_line() {
    assert_eq!(citations("/// R-014, I-05: as RFC 5245 says."), ["R-014", "I-05"]);
    assert_eq!(
        citations("//! Source: `docs/spec/livekit.md` 3.2."),
        ["livekit.md", "livekit.md 3.2"]
    );
    assert!(citations("P-256, x-R-1, D-2").is_empty());
}
