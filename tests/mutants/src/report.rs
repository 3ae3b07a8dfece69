//! The table, the mutants that survive, and the comparison with those that are argued.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::build::Source;
use crate::run::Outcome;

/// A mutant with its number.
pub struct NumberedMutant {
    pub number: u32,
    pub name: String,
    pub file: String,
    pub line: usize,
}

/// Returns all mutants of `sources`.
pub fn names(sources: &[Source]) -> Vec<NumberedMutant> {
    let mut names = Vec::new();
    for source in sources {
        for (site, numbers) in source.sites.iter().zip(&source.numbers) {
            for (mutant, number) in site.mutants.iter().zip(numbers) {
                names.push(NumberedMutant {
                    number: *number,
                    name: mutant.name.clone(),
                    file: source.name.clone(),
                    line: site.line,
                });
            }
        }
    }
    names
}

/// Reads `argued.txt`: lines with the name of a mutant, then a line with the reason that begins
/// with two spaces and holds for all of them.
pub fn argued(list: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = fs::read_to_string(list).map_err(|error| format!("{}: {error}", list.display()))?;
    let (mut argued, mut open) = (BTreeMap::new(), Vec::new());
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            None => open.push(line.to_owned()),
            Some(reason) => argued.extend(open.drain(..).map(|name| (name, reason.to_owned()))),
        }
    }
    match open.first() {
        Some(name) => Err(format!("{}: {name} has no reason", list.display())),
        None => Ok(argued),
    }
}

/// Counts of one file.
#[derive(Default)]
struct Row {
    mutants: usize,
    caught: usize,
    timed_out: usize,
    unviable: usize,
    argued: usize,
    survived: usize,
}

impl Row {
    fn print(&self, name: &str) {
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} |",
            self.mutants, self.caught, self.timed_out, self.unviable, self.argued, self.survived
        );
    }

    fn add(&mut self, other: &Row) {
        self.mutants += other.mutants;
        self.caught += other.caught;
        self.timed_out += other.timed_out;
        self.unviable += other.unviable;
        self.argued += other.argued;
        self.survived += other.survived;
    }
}

/// Prints the table and what is wrong; returns whether nothing is. `whole` says that all mutants
/// ran, so that each argued one has to be among them.
pub fn print(outcomes: &[(NumberedMutant, Outcome)], argued: &BTreeMap<String, String>, whole: bool) -> bool {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (mutant, outcome) in outcomes {
        let row = rows.entry(&mutant.file).or_default();
        row.mutants += 1;
        let place = format!("{}:{}", mutant.file, mutant.line);
        match outcome {
            Outcome::Unviable => row.unviable += 1,
            Outcome::Caught => row.caught += 1,
            Outcome::TimedOut => row.timed_out += 1,
            Outcome::Survived | Outcome::Unreached if argued.contains_key(&mutant.name) => row.argued += 1,
            Outcome::Survived | Outcome::Unreached => {
                row.survived += 1;
                let how = if *outcome == Outcome::Survived {
                    "survives"
                } else {
                    "is reached by no test"
                };
                wrong.push(format!("{} {how} ({place})", mutant.name));
            }
        }
        if matches!(outcome, Outcome::Caught | Outcome::TimedOut | Outcome::Unviable)
            && argued.contains_key(&mutant.name)
        {
            wrong.push(format!("{} is argued and does not survive ({place})", mutant.name));
        }
    }
    if whole {
        let exists = |name: &str| outcomes.iter().any(|(mutant, _)| mutant.name == name);
        wrong.extend(
            argued
                .keys()
                .filter(|name| !exists(name))
                .map(|name| format!("{name} is argued and does not exist")),
        );
    }
    println!("| file | mutants | caught | timed out | unviable | argued | survived |");
    println!("|---|---|---|---|---|---|---|");
    let mut all = Row::default();
    for (name, row) in &rows {
        row.print(name);
        all.add(row);
    }
    all.print("all");
    wrong.iter().for_each(|line| println!("{line}"));
    wrong.is_empty()
}
