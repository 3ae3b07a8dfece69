//! Measures the runner and prints a table; every row names the command that measures it alone.
//!
//! ```text
//! cargo run --release --manifest-path tests/bench/Cargo.toml
//! ```
//! builds the release binary of the runner if necessary, starts it on loopback for each row, and
//! takes about seventeen minutes. The clients run in this process, so their CPU is not counted. On
//! a machine with few cores they still compete with the runner, so the figures are those of a
//! runner and its callers on one machine. Rows do not pass or fail, because times depend on the
//! machine; proofs do, because they check limits that do not. The comment of each function defines
//! its row.

// Clients have their own sockets and clocks; the rule applies to the runner.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod assistants;
mod call;
mod cloud;
mod floods;
mod growth;
mod http;
mod junk;
mod limit;
mod moq;
mod phone;
mod plain;
mod reboots;
mod records;
mod rooms;
mod rows;
mod runner;
mod soak;
mod soak_clients;
mod speech;
mod support;

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: bench [--binary PATH] [--only ROW,ROW...] [--quick] [--minutes N] [--cycles N] [--seconds N]

  --binary PATH   a runner that is built already [default: builds ../../target/release/edge-runner]
  --only ROWS     some of: start size idle status offer cpu limit calls records rooms moq delay growth junk
                  cloud realtime cascade, or of the proofs, which run only when they are named and end with exit code 1
                  when they fail: soak churn floods footprint reboots
  --quick         fewer and shorter; the figures say less
  --minutes N     how long `soak` and `reboots` take [default: 10]
  --cycles N      how many connections of each kind `churn` makes [default: 10000]
  --seconds N     how long each half of `junk` takes [default: 60, with --quick 10]
";

/// The parameters of a row.
pub struct Bench {
    binary: PathBuf,
    quick: bool,
    minutes: u32,
    cycles: u32,
    seconds: Option<u32>,
}

impl Bench {
    /// Returns the amount of work.
    fn amount(&self, full: u32, quick: u32) -> u32 {
        if self.quick { quick } else { full }
    }
}

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
/// Measures one row. Returns lines of the table: a label and a value.
type Row = fn(&Bench) -> Result<Vec<(String, String)>>;
/// Measures a row and checks its limits. Also returns the violations.
type Proof = fn(&Bench) -> Result<(Vec<(String, String)>, Vec<String>)>;

const ROWS: [(&str, Row); 17] = [
    ("start", rows::start),
    ("size", rows::size),
    ("idle", rows::idle),
    ("status", rows::status),
    ("offer", rows::offer),
    ("cpu", rows::cpu),
    ("limit", limit::limit),
    ("calls", rows::calls),
    ("records", records::records),
    ("rooms", rooms::rooms),
    ("moq", moq::moq),
    ("delay", rows::delay),
    ("growth", growth::growth),
    ("junk", junk::junk),
    ("cloud", cloud::cloud),
    ("realtime", assistants::realtime),
    ("cascade", assistants::cascade),
];

const PROOFS: [(&str, Proof); 5] = [
    ("soak", soak::soak),
    ("churn", growth::churn),
    ("floods", floods::floods),
    ("footprint", rows::footprint),
    ("reboots", reboots::reboots),
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut binary = None;
    let mut only: Vec<String> = Vec::new();
    let (mut quick, mut seconds) = (false, None);
    let (mut minutes, mut cycles) = (10, 10_000);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("binary") => binary = Some(PathBuf::from(parser.value()?)),
            lexopt::Arg::Long("only") => {
                let list = parser
                    .value()?
                    .into_string()
                    .map_err(|_| "--only takes names of rows")?;
                only.extend(list.split(',').map(str::to_owned));
            }
            lexopt::Arg::Long("quick") => quick = true,
            lexopt::Arg::Long("minutes") => minutes = number(&mut parser, "--minutes")?,
            lexopt::Arg::Long("cycles") => cycles = number(&mut parser, "--cycles")?,
            lexopt::Arg::Long("seconds") => seconds = Some(number(&mut parser, "--seconds")?),
            lexopt::Arg::Long("help") => {
                print!("{USAGE}");
                return Ok(());
            }
            other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
        }
    }
    let known: Vec<&str> = (ROWS.iter().map(|(name, _)| *name))
        .chain(PROOFS.iter().map(|(name, _)| *name))
        .collect();
    if let Some(unknown) = only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no row `{unknown}`\n{USAGE}").into());
    }
    let bench = Bench {
        binary: binary.map_or_else(build, Ok)?.canonicalize()?,
        quick,
        minutes,
        cycles,
        seconds,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{}, {cores} cores, B=\"cargo run --release --manifest-path tests/bench/Cargo.toml --\"",
        std::env::consts::ARCH
    );
    println!();
    line("what", "measured", "command");
    line("---", "---", "---");
    let quick = if quick { " --quick" } else { "" };
    let wanted = |name: &str| only.iter().any(|wanted| wanted == name);
    let print = |name: &str, lines: Vec<(String, String)>| {
        for (what, measured) in lines {
            line(&what, &measured, &format!("`$B --only {name}{quick}`"));
        }
    };
    for (name, row) in ROWS {
        if only.is_empty() || wanted(name) {
            print(name, row(&bench).map_err(|error| format!("{name}: {error}"))?);
        }
    }
    let mut faults = Vec::new();
    for (name, proof) in PROOFS {
        if wanted(name) {
            let (lines, found) = proof(&bench).map_err(|error| format!("{name}: {error}"))?;
            print(name, lines);
            faults.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\nbench: ").into())
    }
}

fn number(parser: &mut lexopt::Parser, option: &str) -> Result<u32> {
    let text = parser.value()?.into_string().unwrap_or_default();
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{option} takes a number above 0, not `{text}`").into())
}

fn line(what: &str, measured: &str, command: &str) {
    println!("| {what:<46} | {measured:<44} | {command:<19} |");
    // A row takes up to a minute, and the output may be a pipe.
    let _ = std::io::stdout().flush();
}

/// Builds the runner of this repository, and returns the path of its binary.
fn build() -> Result<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let target = root.join("target");
    let built = Command::new("cargo")
        .args([
            "build",
            "--release",
            "--quiet",
            "--bin",
            "edge-runner",
            "--manifest-path",
        ])
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()?;
    if !built.success() {
        return Err("the runner does not build; `--binary` takes one that is built already".into());
    }
    Ok(target.join("release/edge-runner"))
}
