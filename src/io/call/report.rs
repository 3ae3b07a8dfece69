//! Where the observations of all calls go: the terminal, a file of JSON lines, and at the end the
//! report in the XML of JUnit.
//!
//! In: observations with their call and time. Out: lines on stdout and in the file, each written at
//! once, so that the file is whole when the process is killed. A full disk or a closed terminal is
//! reported once, and the call goes on.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use crate::io::call::CallConfig;
use crate::proto::caller::CallObservation;
use crate::proto::caller::junit::{self, TestSuite};
use edge_runner_http::common::lock;

/// The report of a run.
pub struct CallReport {
    prints_json: bool,
    names_calls: bool,
    events: Option<Mutex<File>>,
    junit: Option<(PathBuf, File)>,
}

impl CallReport {
    /// Creates the files.
    ///
    /// # Errors
    /// A sentence about a file.
    pub fn open(config: &CallConfig) -> Result<CallReport, String> {
        let create = |option: &str, path: &Path| {
            let file = File::create(path);
            file.map_err(|error| unwritable(option, path, &error))
        };
        let events = config.events.as_deref().map(|path| create("--events", path));
        let junit = config.junit.as_deref().map(|path| {
            let file = create("--junit", path)?;
            Ok::<_, String>((path.to_owned(), file))
        });
        Ok(CallReport {
            prints_json: config.prints_json,
            names_calls: config.calls > 1,
            events: events.transpose()?.map(Mutex::new),
            junit: junit.transpose()?,
        })
    }

    /// Reports an observation of a call.
    pub fn observe(&self, call: u64, at: Duration, observation: &CallObservation) {
        self.write(&observation.json(call, at));
        if !self.prints_json && observation.is_shown() {
            let number = match self.names_calls {
                true => format!("{call:>4} "),
                false => String::new(),
            };
            print(&format!("{number}{:>8.3}  {observation}\n", at.as_secs_f64()));
        }
    }

    /// Reports figures of the whole run.
    pub fn summarize(&self, lines: &[String], object: &Value) {
        self.write(object);
        if !self.prints_json {
            print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        }
    }

    /// Writes the report of all calls.
    ///
    /// # Errors
    /// A sentence about the file.
    pub fn write_junit(&self, suites: &[TestSuite]) -> Result<(), String> {
        let Some((path, file)) = &self.junit else {
            return Ok(());
        };
        let mut file: &File = file;
        file.write_all(junit::report(suites).as_bytes())
            .map_err(|error| unwritable("--junit", path, &error))
    }

    fn write(&self, object: &Value) {
        let line = format!("{object}\n");
        if self.prints_json {
            print(&line);
        }
        if let Some(file) = &self.events
            && let Err(error) = lock(file).write_all(line.as_bytes())
        {
            log::warn!("the file of --events cannot be written: {error}");
        }
    }
}

/// Describes a file that cannot be written.
pub fn unwritable(option: &str, path: &Path, error: &io::Error) -> String {
    format!(
        "{option} {}: {error}; it takes a file that can be written",
        path.display()
    )
}

/// Prints a text. A reader that has gone, as in `call | head`, is no error.
fn print(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
