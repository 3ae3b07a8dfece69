//! The terminal of the runner: lines that are typed, lines of what was said, and the levels of a
//! call.
//!
//! Reading and writing block, so each has a thread of its own, which ends with the process. Without
//! a terminal in the foreground nothing is read: a process in the background that reads is stopped
//! by the system. Levels are a row of the log's stream, which it erases before each of its lines;
//! none is shown while a line of what was said is written.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::thread;

use tokio::sync::mpsc;

use crate::logging;
use crate::proto::local::console::{ConsoleInput, ConsoleReader, UserWish};

/// Bytes of a typed line.
const LINE_BYTES_MAX: u64 = 4_096;
/// Lines that wait in either direction.
const LINES_MAX: usize = 64;

/// The terminal, or none.
pub struct Terminal {
    reader: ConsoleReader,
    typed: Option<mpsc::Receiver<ConsoleInput>>,
    shown: Option<std::sync::mpsc::SyncSender<Shown>>,
    shows_lines: bool,
    shows_levels: bool,
}

/// What a terminal shows.
enum Shown {
    Line(String),
    /// In place of the last levels.
    Levels(String),
    NoLevels,
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
        let shows_lines = io::stdout().is_terminal();
        let shows_levels = !types && logging::can_show_status() && is_in_foreground();
        Terminal {
            reader: ConsoleReader::new(types),
            typed: is_usable().then(read).flatten(),
            shown: (shows_lines || shows_levels).then(write).flatten(),
            shows_lines,
            shows_levels,
        }
    }

    /// Returns no terminal.
    pub fn absent() -> Terminal {
        Terminal {
            reader: ConsoleReader::default(),
            typed: None,
            shown: None,
            shows_lines: false,
            shows_levels: false,
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
        if self.shows_lines {
            self.write(Shown::Line(line.to_owned()));
        }
    }

    /// Returns whether it shows levels.
    pub fn shows_levels(&self) -> bool {
        self.shows_levels
    }

    /// Shows levels in place of the last ones.
    pub fn show_levels(&self, row: String) {
        self.write(Shown::Levels(row));
    }

    /// Shows no levels any more.
    pub fn hide_levels(&self) {
        if self.shows_levels {
            self.write(Shown::NoLevels);
        }
    }

    fn write(&self, shown: Shown) {
        if let Some(writer) = &self.shown {
            let _ = writer.try_send(shown);
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

fn write() -> Option<std::sync::mpsc::SyncSender<Shown>> {
    let (lines, shown) = std::sync::mpsc::sync_channel(LINES_MAX);
    let work = move || {
        for shown in shown {
            match shown {
                Shown::Line(line) => {
                    if logging::without_status(|| writeln!(io::stdout(), "{line}")).is_err() {
                        return;
                    }
                }
                Shown::Levels(row) => logging::show_status(&row),
                Shown::NoLevels => logging::clear_status(),
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
