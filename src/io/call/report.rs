//! Where the observations of all calls go: the terminal, and a file of JSON lines.
//!
//! In: observations with their call and time. Out: lines on stdout and in the file, each written at
//! once, so that the file is whole when the process is killed. A full disk or a closed terminal is
//! reported once, and the call goes on.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use crate::io::call::CallConfig;
use crate::proto::caller::CallObservation;
use edge_runner_http::common::lock;

/// The report of a run.
pub struct CallReport {
    prints_json: bool,
    names_calls: bool,
    events: Option<Mutex<File>>,
}

impl CallReport {
    /// Creates the file of events.
    ///
    /// # Errors
    /// A sentence about the file.
    pub fn open(config: &CallConfig) -> Result<CallReport, String> {
        let create = |path: &Path| {
            let file = File::create(path);
            file.map_err(|error| {
                format!(
                    "--events {}: {error}; it takes a file that can be written",
                    path.display()
                )
            })
        };
        Ok(CallReport {
            prints_json: config.prints_json,
            names_calls: config.calls > 1,
            events: config.events.as_deref().map(create).transpose()?.map(Mutex::new),
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

/// Prints a text. A reader that has gone, as in `call | head`, is no error.
fn print(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
