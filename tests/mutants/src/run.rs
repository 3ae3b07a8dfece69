//! Runs the unit tests with one mutant on.
//!
//! In: the program of [`crate::build`], and parts of the names of the tests that should notice.
//! First one run without a mutant records which of them reach which mutants, and how long each
//! takes. Then each mutant runs with the tests that reach it, the quickest first.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The first run of a mutant has this many tests at most, none of which takes longer than this.
/// Most mutants fail one of them.
const FIRST_TESTS: usize = 40;
const FIRST_TEST_MAX: Duration = Duration::from_millis(150);
/// A run may use this much more processor time than its tests took, whatever else the machine does,
/// so an endless loop ends soon.
const SPARE_CPU: Duration = Duration::from_secs(2);
/// A run that waits for something uses no processor time.
const WAITS_MAX: Duration = Duration::from_secs(300);
/// The memory of a run: an endless loop may allocate.
const MEMORY_KIB_MAX: u64 = 3 << 19;

/// The signals of a process that used up its processor time.
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The compiler unviable it.
    Unviable,
    /// A test failed.
    Caught,
    /// The tests did not end.
    TimedOut,
    /// All tests passed that reach it.
    Survived,
    /// No test reaches it.
    Unreached,
}

pub struct Tests {
    program: PathBuf,
    folder: PathBuf,
    /// The tests that reach a mutant, the quickest first.
    reaching: BTreeMap<u32, Vec<Test>>,
}

#[derive(Clone)]
struct Test {
    name: String,
    took: Duration,
}

impl Tests {
    /// Runs the tests with these parts in their names without a mutant. They have to pass.
    pub fn record(program: PathBuf, folder: PathBuf, parts: &[String], trace: &Path) -> Result<Tests, String> {
        let _ = fs::remove_file(trace);
        let output = Command::new(&program)
            .args(parts)
            .current_dir(&folder)
            .env("MUTANT_TRACE", trace)
            // One thread per test, with its name, which a single thread would not have.
            .env("RUST_TEST_THREADS", "2")
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            return Err(format!("the tests fail without a mutant: {said}"));
        }
        let lines = fs::read_to_string(trace).map_err(|error| format!("{}: {error}", trace.display()))?;
        let mut reaching: BTreeMap<u32, Vec<Test>> = BTreeMap::new();
        for line in lines.lines() {
            let mut words = line.split(' ');
            let (Some(name), Some(Ok(took))) = (words.next(), words.next().map(str::parse)) else {
                continue;
            };
            let test = Test {
                name: name.to_owned(),
                took: Duration::from_micros(took),
            };
            for number in words.filter_map(|word| word.parse().ok()) {
                reaching.entry(number).or_default().push(test.clone());
            }
        }
        for tests in reaching.values_mut() {
            tests.sort_by_key(|test| test.took);
        }
        Ok(Tests {
            program,
            folder,
            reaching,
        })
    }

    /// Runs the tests that reach the mutant `number`.
    pub fn outcome(&self, number: u32) -> Result<Outcome, String> {
        let Some(tests) = self.reaching.get(&number) else {
            return Ok(Outcome::Unreached);
        };
        let quick = tests.iter().take_while(|test| test.took < FIRST_TEST_MAX).count();
        let (first, rest) = tests.split_at(quick.min(FIRST_TESTS));
        for tests in [first, rest].into_iter().filter(|tests| !tests.is_empty()) {
            let outcome = self.run(number, tests)?;
            if outcome != Outcome::Survived {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Survived)
    }

    fn run(&self, number: u32, tests: &[Test]) -> Result<Outcome, String> {
        let took: Duration = tests.iter().map(|test| test.took).sum();
        let cpu_s = (took * 3 / 2 + SPARE_CPU).as_secs();
        let ends = Instant::now() + took * 10 + WAITS_MAX;
        let mut child = Command::new("sh")
            .args([
                "-c",
                "ulimit -c 0; ulimit -v \"$0\"; ulimit -t \"$1\"; shift; exec \"$@\"",
            ])
            .args([MEMORY_KIB_MAX, cpu_s].map(|limit| limit.to_string()))
            .arg(&self.program)
            .args(["--exact", "--quiet"])
            .args(tests.iter().map(|test| &test.name))
            .current_dir(&self.folder)
            .env("MUTANT", number.to_string())
            .env("RUST_TEST_THREADS", "1")
            .env("RUST_BACKTRACE", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("sh: {error}"))?;
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                return Ok(match status.signal() {
                    None if status.success() => Outcome::Survived,
                    Some(SIGKILL | SIGXCPU) => Outcome::TimedOut,
                    _ => Outcome::Caught,
                });
            }
            if Instant::now() > ends {
                child
                    .kill()
                    .and_then(|()| child.wait())
                    .map_err(|error| error.to_string())?;
                return Ok(Outcome::TimedOut);
            }
            sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}
