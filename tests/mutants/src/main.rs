//! Changes the protocol core one operator at a time, and expects its unit tests to fail.
//!
//! ```text
//! cargo run --release --manifest-path tests/mutants/Cargo.toml
//! ```
//! writes all mutants of the files in `files.txt` into a copy of the repository, each behind a
//! switch, builds it once, and runs the tests that reach a mutant with that mutant on. It prints a
//! table, and the mutants that no test notices. Those that no test can notice, because the program
//! does the same, are in `argued.txt` with the reason. Exit code 1: a mutant survives and is not in
//! the list, or one of the list does not survive.

// The clock ends a run that waits; the rule applies to the runner.
#![allow(clippy::disallowed_methods)]

mod build;
mod find;
mod report;
mod run;
mod schemata;
mod values;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use build::{Build, Source};
use run::{Outcome, Tests};

const USAGE: &str = "\
usage: edge-runner-mutants [--list] [TEXT...]

  --list   print the mutants and run nothing
  TEXT     only mutants whose name contains one of the texts
";

fn main() -> ExitCode {
    match check(std::env::args().skip(1).collect()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the check; returns whether every mutant is caught or argued.
fn check(mut words: Vec<String>) -> Result<bool, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..").canonicalize().map_err(|error| error.to_string())?;
    let lists = words.iter().any(|word| word == "--list");
    words.retain(|word| word != "--list");
    if words.iter().any(|word| word.starts_with('-')) {
        return Err(USAGE.to_owned());
    }
    let selects = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let sources = sources(&root.join("src/proto"), &here.join("files.txt"))?;
    let names = report::names(&sources);
    if lists {
        names
            .iter()
            .filter(|mutant| selects(&mutant.name))
            .for_each(|mutant| println!("{}", mutant.name));
        return Ok(true);
    }
    let argued = report::argued(&here.join("argued.txt"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| here.join("target"), PathBuf::from)
        .join("mutants");
    fs::create_dir_all(&target).map_err(|error| format!("{}: {error}", target.display()))?;
    eprintln!("{} mutants in {} files", names.len(), sources.len());
    let mut build = Build::new(&root, &target)?;
    let program = build.tests(&sources)?;
    let parts: Vec<String> = sources.iter().flat_map(|source| source.tests.clone()).collect();
    let tests = Tests::record(program, build.folder(), &parts, &target.join("trace"))?;
    let mut outcomes = Vec::new();
    for mutant in names.into_iter().filter(|mutant| selects(&mutant.name)) {
        let outcome = if build.unviable.contains(&mutant.number) {
            Outcome::Unviable
        } else {
            tests.outcome(mutant.number)?
        };
        outcomes.push((mutant, outcome));
    }
    Ok(report::print(&outcomes, &argued, words.is_empty()))
}

/// Reads the files that `list` names: lines with a path of the package, and parts of the names of
/// tests.
fn sources(package: &Path, list: &Path) -> Result<Vec<Source>, String> {
    let names = fs::read_to_string(list).map_err(|error| format!("{}: {error}", list.display()))?;
    let mut next = 0;
    names
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let name = words.next().unwrap_or_default();
            let text = fs::read_to_string(package.join(&name)).map_err(|error| format!("{name}: {error}"))?;
            let sites = find::find(&name, &text).map_err(|error| format!("{name}: {error}"))?;
            let mut number = || {
                next += 1;
                next
            };
            let numbers = sites
                .iter()
                .map(|site| site.mutants.iter().map(|_| number()).collect())
                .collect();
            Ok(Source {
                name,
                text,
                sites,
                numbers,
                tests: words.collect(),
            })
        })
        .collect()
}
