//! Counts `unsafe`: `tests/data/unsafe.txt` lists every file that has some, with the number and the
//! reason.
//!
//! Clippy's `undocumented_unsafe_blocks` asks for a safety comment; this test asks for a decision
//! before there is another block.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const TABLE: &str = "tests/data/unsafe.txt";

/// Counts blocks, functions, implementations and attributes, by their form outside comments.
fn count(text: &str) -> usize {
    let code = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    let forms = ["unsafe {", "unsafe fn ", "unsafe impl", "unsafe extern", "#[unsafe("];
    code.map(|line| forms.iter().map(|form| line.matches(form).count()).sum::<usize>())
        .sum()
}

fn walk(folder: &Path, found: &mut BTreeMap<String, usize>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        // Build output and the packages of the browser tests are not this project's source.
        let is_own = !path.ends_with("target") && !path.ends_with("node_modules");
        if path.is_dir() && is_own {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).expect("below the root").display().to_string();
            let number = count(&fs::read_to_string(&path).expect("a readable file"));
            if number > 0 && name != "tests/unsafety.rs" {
                found.insert(name, number);
            }
        }
    }
}

/// The table matches the source, and each of its lines has a reason.
#[test]
fn every_unsafe_is_counted_and_has_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join(TABLE)).expect("a readable table");
    let mut listed = BTreeMap::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.splitn(3, char::is_whitespace);
        let (number, path, reason) = (words.next(), words.next(), words.next());
        let number: usize = number.and_then(|number| number.parse().ok()).expect("a number first");
        assert!(
            reason.is_some_and(|reason| reason.trim().len() > 10),
            "no reason: {line}"
        );
        listed.insert(path.expect("a path").to_owned(), number);
    }
    let mut found = BTreeMap::new();
    for folder in ["src", "tests"] {
        walk(&root.join(folder), &mut found);
    }
    let wrong: Vec<String> = found
        .iter()
        .filter(|&(path, number)| listed.get(path) != Some(number))
        .map(|(path, number)| format!("{path} has {number}, the table says {:?}", listed.get(path)))
        .chain(
            listed
                .keys()
                .filter(|path| !found.contains_key(*path))
                .map(|path| format!("{path} has none")),
        )
        .collect();
    assert!(
        wrong.is_empty(),
        "{wrong:#?}\nDo without, or change {TABLE} and say why."
    );
}
