//! Logs the output of a bot's program.
//!
//! In: its stdout and stderr. Out: one INFO line per line of output, with the session's id, under a
//! target per stream for `RUST_LOG`. Both streams are INFO because most programs log everything to
//! stderr. The pipes are always read, so a program never waits for the log; after the first dropped
//! line, reading pauses between chunks.

use std::io;

use log::Level;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::sleep;

use crate::io::tasks;
use crate::limits::PROCESS_LOG_BYTES_PER_S;
use crate::proto::process::last_lines::LastLines;
use crate::proto::process::output_lines::{LineDecision, LineSplitter, LogAllowance};
use std::time::Duration;

/// Pause after each read from a program whose lines are dropped, which may still write megabytes
/// per second.
const PROCESS_FLOOD_PAUSE: Duration = Duration::from_millis(1);

/// The log targets of the two streams.
const STDOUT: &str = "edge_runner::bot::stdout";
const STDERR: &str = "edge_runner::bot::stderr";
/// That of programs of functions.
const TOOLS: &str = "edge_runner::tools::stderr";

/// Logs both streams until both have ended. Returns the last lines of stderr that say why the
/// program failed, if it did.
pub async fn run(stdout: impl AsyncRead + Unpin, stderr: impl AsyncRead + Unpin) -> String {
    run_at(Level::Info, stdout, stderr).await
}

/// Logs the lines of both streams at this level, as [`run`].
pub async fn run_at(level: Level, stdout: impl AsyncRead + Unpin, stderr: impl AsyncRead + Unpin) -> String {
    read_streams(stdout, stderr, |entry| match entry {
        OutputEntry::Line { target, text } => log::log!(target: target, level, "{text}"),
        OutputEntry::Flood => {
            log::warn!("the bot writes more than {PROCESS_LOG_BYTES_PER_S} bytes a second: lines are dropped");
        }
        OutputEntry::Dropped(lines) => log::info!("{lines} lines of the bot were dropped"),
    })
    .await
}

/// Logs the stderr of a program of functions at DEBUG: it may quote what callers say.
pub async fn run_at_debug(stderr: impl AsyncRead + Unpin) {
    read_streams(tokio::io::empty(), stderr, |entry| match entry {
        OutputEntry::Line { text, .. } => log::debug!(target: TOOLS, "{text}"),
        OutputEntry::Flood => log::debug!(target: TOOLS, "lines are dropped"),
        OutputEntry::Dropped(lines) => log::debug!(target: TOOLS, "{lines} lines were dropped"),
    })
    .await;
}

/// An entry of the log.
#[derive(Debug)]
enum OutputEntry<'a> {
    Line {
        target: &'static str,
        text: &'a str,
    },
    /// The first dropped line.
    Flood,
    Dropped(u64),
}

async fn read_streams(
    stdout: impl AsyncRead + Unpin,
    stderr: impl AsyncRead + Unpin,
    mut sink: impl FnMut(OutputEntry<'_>),
) -> String {
    let mut allowance = LogAllowance::new(tasks::now());
    let mut stdout = OutputStream::new(stdout, STDOUT);
    let mut stderr = OutputStream::new(stderr, STDERR);
    while stdout.is_open || stderr.is_open {
        tokio::select! {
            read = stdout.read(), if stdout.is_open => stdout.take(read, &mut allowance, &mut sink),
            read = stderr.read(), if stderr.is_open => stderr.take(read, &mut allowance, &mut sink),
        }
        if allowance.dropped() > 0 {
            // Without the pause, a program that floods its output would keep a core busy.
            sleep(PROCESS_FLOOD_PAUSE).await;
        }
    }
    if allowance.dropped() > 0 {
        sink(OutputEntry::Dropped(allowance.dropped()));
    }
    stderr.last.into_text()
}

struct OutputStream<R> {
    pipe: R,
    target: &'static str,
    lines: LineSplitter,
    buffer: Box<[u8; 4096]>,
    last: LastLines,
    is_open: bool,
}

impl<R: AsyncRead + Unpin> OutputStream<R> {
    fn new(pipe: R, target: &'static str) -> Self {
        OutputStream {
            pipe,
            target,
            lines: LineSplitter::default(),
            buffer: Box::new([0; 4096]),
            last: LastLines::default(),
            is_open: true,
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.pipe.read(&mut *self.buffer).await
    }

    fn take(&mut self, read: io::Result<usize>, allowance: &mut LogAllowance, sink: &mut impl FnMut(OutputEntry<'_>)) {
        let target = self.target;
        let last = &mut self.last;
        let line = |text: &str| {
            last.push(text);
            match allowance.take(text.len(), tasks::now()) {
                LineDecision::Log => {}
                LineDecision::LogAfter(dropped) => sink(OutputEntry::Dropped(dropped)),
                LineDecision::DropFirst => return sink(OutputEntry::Flood),
                LineDecision::Drop => return,
            }
            sink(OutputEntry::Line { target, text });
        };
        match read {
            Ok(count) if count > 0 => self.lines.push(&self.buffer[..count], line),
            _ => {
                self.is_open = false;
                self.lines.finish(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{PROCESS_LINE_BYTES_MAX, PROCESS_LOG_BURST_BYTES};

    #[tokio::test(start_paused = true)]
    async fn the_last_line_of_stderr_is_kept_even_of_a_flood() {
        let line = [vec![b'x'; PROCESS_LINE_BYTES_MAX], b"\n".to_vec()].concat();
        let flood = [line.repeat(100), b"Error: no model\n \r\n".to_vec()].concat();
        assert_eq!(
            read_streams(&b"later\n"[..], &flood[..], |_| {}).await,
            "Error: no model"
        );
        assert_eq!(read_streams(&b"out\n"[..], &b""[..], |_| {}).await, "");
    }

    async fn logged(stdout: &[u8], stderr: &[u8]) -> Vec<String> {
        let mut entries = Vec::new();
        read_streams(stdout, stderr, |entry| {
            entries.push(match entry {
                OutputEntry::Line { target, text } => format!("{target}: {text}"),
                other => format!("{other:?}"),
            });
        })
        .await;
        entries
    }

    #[tokio::test(start_paused = true)]
    async fn logs_the_lines_of_both_streams_to_the_last() {
        let mut entries = logged(b"one\ntwo", b"Traceback\n").await;
        entries.sort();
        assert_eq!(
            entries,
            [
                "edge_runner::bot::stderr: Traceback",
                "edge_runner::bot::stdout: one",
                "edge_runner::bot::stdout: two",
            ]
        );
    }

    /// 10 MB at once: a burst is logged, the rest is counted, and all of it is read.
    #[tokio::test(start_paused = true)]
    async fn a_flood_is_read_and_dropped() {
        let line = [vec![b'x'; PROCESS_LINE_BYTES_MAX], b"\n".to_vec()].concat();
        let flood = line.repeat(5_000);
        let entries = logged(&flood, b"").await;
        let lines = PROCESS_LOG_BURST_BYTES / (PROCESS_LINE_BYTES_MAX + 64);
        assert_eq!(entries.len(), lines + 2);
        assert_eq!(entries[lines], "Flood");
        assert_eq!(entries[lines + 1], format!("Dropped({})", 5_000 - lines));
    }
}
