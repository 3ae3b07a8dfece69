//! Builds the mutants: a copy of the repository, with switches in some files.
//!
//! In: the repository and its files with their sites. Out: the program with the unit tests, and the
//! mutants that are unviable, which the compiler refuses. It names the bytes of each error, so an
//! unviable mutant is found by its place and left out; this repeats until there is no error.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::find::Site;
use crate::schemata::{SWITCH, SWITCH_SOURCE, write_mutants};

/// The package whose unit tests run, and its folder.
const PACKAGE: &str = "edge-runner-proto";
const FOLDER: &str = "src/proto";
/// Rounds of the compiler: it reports errors of names, types and borrows one after another.
const ROUNDS_MAX: usize = 12;

/// A file of the package with its mutants.
pub struct Source {
    /// Relative to the package.
    pub name: String,
    pub text: String,
    pub sites: Vec<Site>,
    /// The number of each site's mutants.
    pub numbers: Vec<Vec<u32>>,
    /// Parts of the names of the tests that should notice a mutant.
    pub tests: Vec<String>,
}

pub struct Build {
    tree: PathBuf,
    target: PathBuf,
    /// Mutants that the compiler refused.
    pub unviable: BTreeSet<u32>,
}

impl Build {
    /// Copies the repository `root` into a folder of `target`.
    pub fn new(root: &Path, target: &Path) -> Result<Build, String> {
        let tree = target.join("tree");
        if tree.exists() {
            fs::remove_dir_all(&tree).map_err(|error| format!("{}: {error}", tree.display()))?;
        }
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("git: {error}"))?;
        for name in String::from_utf8_lossy(&listed.stdout)
            .split('\0')
            .filter(|name| !name.is_empty())
        {
            let (from, to) = (root.join(name), tree.join(name));
            if !from.is_file() {
                continue;
            }
            let folder = to.parent().expect("a file is in a folder");
            fs::create_dir_all(folder)
                .and_then(|()| fs::copy(&from, &to))
                .map_err(|error| format!("{name}: {error}"))?;
        }
        let package = tree.join(FOLDER);
        let lib = package.join("lib.rs");
        let text = fs::read_to_string(&lib).map_err(|error| format!("lib.rs: {error}"))?;
        let text = format!("{text}\n#[doc(hidden)]\npub mod {SWITCH};\n");
        // The switches leave parentheses and unreachable code.
        let text = text.replacen("\npub mod ", "\n#![allow(warnings)]\n\npub mod ", 1);
        fs::write(&lib, text)
            .and_then(|()| fs::write(package.join(format!("{SWITCH}.rs")), SWITCH_SOURCE))
            .map_err(|error| format!("{}: {error}", package.display()))?;
        Ok(Build {
            tree,
            target: target.join("build"),
            unviable: BTreeSet::new(),
        })
    }

    /// Builds the tests with all mutants that the compiler accepts, and returns the program.
    pub fn tests(&mut self, sources: &[Source]) -> Result<PathBuf, String> {
        for _ in 0..ROUNDS_MAX {
            let places = self.write(sources)?;
            let messages = self.cargo()?;
            let errors: Vec<&Value> = messages.iter().filter(|message| message["level"] == "error").collect();
            if errors.is_empty() {
                let program = messages
                    .iter()
                    .filter_map(|message| message["executable"].as_str())
                    .next_back();
                return program
                    .map(PathBuf::from)
                    .ok_or_else(|| "cargo built no tests".to_owned());
            }
            let before = self.unviable.len();
            for error in &errors {
                self.unviable.extend(
                    places
                        .iter()
                        .filter(|place| place.is_in(error))
                        .map(|place| place.number),
                );
            }
            if self.unviable.len() == before {
                return Err(errors.iter().filter_map(|error| error["rendered"].as_str()).collect());
            }
            eprintln!("  {} mutants are unviable", self.unviable.len());
        }
        Err(format!("the compiler still refuses mutants after {ROUNDS_MAX} rounds"))
    }

    /// Writes the files that differ, and returns where the mutants are.
    fn write(&self, sources: &[Source]) -> Result<Vec<MutantPlace>, String> {
        let mut places = Vec::new();
        for source in sources {
            let accepted = |number: &u32| (!self.unviable.contains(number)).then_some(*number);
            let numbers: Vec<Vec<Option<u32>>> = source
                .numbers
                .iter()
                .map(|numbers| numbers.iter().map(accepted).collect())
                .collect();
            let schemata = write_mutants(&source.text, &source.sites, &numbers);
            let path = self.tree.join(FOLDER).join(&source.name);
            if fs::read_to_string(&path).ok().as_ref() != Some(&schemata.text) {
                fs::write(&path, &schemata.text).map_err(|error| format!("{}: {error}", path.display()))?;
            }
            places.extend(schemata.mutants.into_iter().map(|(number, bytes)| MutantPlace {
                number,
                file: format!("{FOLDER}/{}", source.name),
                bytes: (bytes.start, bytes.end),
            }));
        }
        Ok(places)
    }

    /// Builds the tests of the package, and returns the messages of the compiler. Errors end the
    /// build before code is generated.
    fn cargo(&self) -> Result<Vec<Value>, String> {
        let output = Command::new("cargo")
            .args([
                "test",
                "--no-run",
                "--package",
                PACKAGE,
                "--lib",
                "--message-format",
                "json",
                "--quiet",
            ])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() && output.stdout.is_empty() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let lines = String::from_utf8_lossy(&output.stdout);
        Ok(lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|message| match message["reason"].as_str() {
                Some("compiler-message") => Some(message["message"].clone()),
                Some("compiler-artifact") => Some(message),
                _ => None,
            })
            .collect())
    }

    /// The folder in which cargo runs the tests of the package.
    pub fn folder(&self) -> PathBuf {
        self.tree.join(FOLDER)
    }
}

/// Where the text of a mutant is in the copy.
struct MutantPlace {
    number: u32,
    file: String,
    bytes: (usize, usize),
}

impl MutantPlace {
    /// Returns whether a primary place of `error` is within this mutant.
    fn is_in(&self, error: &Value) -> bool {
        let (from, to) = self.bytes;
        error["spans"].as_array().is_some_and(|spans| {
            spans.iter().any(|span| {
                let byte = |name: &str| span[name].as_u64().and_then(|byte| usize::try_from(byte).ok());
                span["is_primary"] == true
                    && span["file_name"].as_str() == Some(&self.file)
                    && byte("byte_start").is_some_and(|start| start >= from)
                    && byte("byte_end").is_some_and(|end| end <= to)
            })
        })
    }
}
