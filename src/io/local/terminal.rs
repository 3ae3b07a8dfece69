//! The terminal of the runner: lines that are typed, and lines of what was said.
//!
//! Reading and writing block, so each has a thread of its own, which ends with the process. Without
//! a terminal in the foreground nothing is read: a process in the background that reads is stopped
//! by the system.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::thread;

use tokio::sync::mpsc;

use crate::proto::local::console::{ConsoleInput, ConsoleReader, UserWish};

/// Bytes of a typed line.
const LINE_BYTES_MAX: u64 = 4_096;
/// Lines that wait in either direction.
const LINES_MAX: usize = 64;

/// The terminal, or none.
pub struct Terminal {
    reader: ConsoleReader,
    typed: Option<mpsc::Receiver<ConsoleInput>>,
    shown: Option<std::sync::mpsc::SyncSender<String>>,
}

/// Returns whether a terminal can be read.
pub fn is_usable() -> bool {
    io::stdin().is_terminal() && is_in_foreground()
}

/// Returns whether this process is of the terminal's foreground group (`proc_pid_stat(5)`).
fn is_in_foreground() -> bool {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else {
        return true;
    };
    // Behind the name in parentheses: state, ppid, pgrp, session, tty_nr, tpgid.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_ascii_whitespace());
    fields.is_none_or(|fields| {
        let fields: Vec<&str> = fields.take(6).collect();
        fields.len() < 6 || fields[2] == fields[5]
    })
}

impl Terminal {
    /// Opens the terminal of a caller who `types` or speaks, if there is one.
    pub fn open(types: bool) -> Terminal {
        Terminal {
            reader: ConsoleReader::new(types),
            typed: is_usable().then(read).flatten(),
            shown: io::stdout().is_terminal().then(write).flatten(),
        }
    }

    /// Returns no terminal.
    pub fn absent() -> Terminal {
        Terminal {
            reader: ConsoleReader::default(),
            typed: None,
            shown: None,
        }
    }

    /// Returns whether lines are read.
    pub fn is_read(&self) -> bool {
        self.typed.is_some()
    }

    /// Waits for what the user wants. Cancel safe.
    pub async fn wish(&mut self) -> UserWish {
        let Some(typed) = &mut self.typed else {
            return std::future::pending().await;
        };
        match typed.recv().await {
            Some(input) => {
                let wish = self.reader.handle(&input);
                if self.reader.is_over() {
                    self.typed = None;
                }
                wish
            }
            None => {
                self.typed = None;
                std::future::pending().await
            }
        }
    }

    /// Shows a line. A terminal that takes none loses it.
    pub fn show(&self, line: &str) {
        if let Some(shown) = &self.shown {
            let _ = shown.try_send(line.to_owned());
        }
    }
}

fn read() -> Option<mpsc::Receiver<ConsoleInput>> {
    let (lines, typed) = mpsc::channel(LINES_MAX);
    let work = move || {
        let mut stdin = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let input = match stdin.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) => ConsoleInput::End,
                Ok(_) => ConsoleInput::Line(String::from_utf8_lossy(&line).into_owned()),
                Err(_) => return,
            };
            if lines.blocking_send(input).is_err() {
                return;
            }
        }
    };
    spawned("terminal-in", work).then_some(typed)
}

fn write() -> Option<std::sync::mpsc::SyncSender<String>> {
    let (lines, shown) = std::sync::mpsc::sync_channel::<String>(LINES_MAX);
    let work = move || {
        for line in shown {
            if writeln!(io::stdout(), "{line}").is_err() {
                return;
            }
        }
    };
    spawned("terminal-out", work).then_some(lines)
}

fn spawned(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    spawned
        .inspect_err(|error| log::warn!("the terminal is not used: starting a thread: {error}"))
        .is_ok()
}
