//! Splits the stdout and stderr of a program into log lines, and limits how many are logged.
//!
//! In: bytes of a pipe, and `now`. Out: lines of at most a given length, and whether the log
//! accepts another one, so that a program cannot wear out a memory card. Invalid UTF-8 is replaced;
//! the logger escapes control characters.

use std::time::{Duration, Instant};

use crate::limits::{PROCESS_LINE_BYTES_MAX, PROCESS_LOG_BURST_BYTES, PROCESS_LOG_BYTES_PER_S};

/// Splits a stream of bytes into lines. A carriage return ends a line too, since progress bars use
/// it.
pub struct LineSplitter {
    partial: Vec<u8>,
    /// The line exceeds the limit; its rest is skipped.
    cut: bool,
    /// The last line ended with a carriage return, to which a line feed belongs.
    after_return: bool,
    /// Bytes of a line, before invalid UTF-8 is replaced.
    bytes_max: usize,
    /// The text after a truncated line.
    mark: &'static str,
    keeps_empty: bool,
}

impl Default for LineSplitter {
    /// Creates a splitter for the log: lines of [`PROCESS_LINE_BYTES_MAX`], a mark on truncated
    /// ones, and no empty lines.
    fn default() -> LineSplitter {
        LineSplitter::new(PROCESS_LINE_BYTES_MAX, "... (cut)", false)
    }
}

impl LineSplitter {
    pub fn new(bytes_max: usize, mark: &'static str, keeps_empty: bool) -> LineSplitter {
        LineSplitter {
            partial: Vec::new(),
            cut: false,
            after_return: false,
            bytes_max,
            mark,
            keeps_empty,
        }
    }

    /// Processes the next bytes, and passes each completed line to `line`.
    pub fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(&str)) {
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let is_rest_of_end = end == 0 && self.after_return && bytes[0] == b'\n';
            self.extend(&bytes[..end]);
            if !is_rest_of_end {
                self.end(&mut line);
            }
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes);
    }

    /// Passes the last, unterminated line to `line`.
    pub fn finish(&mut self, mut line: impl FnMut(&str)) {
        if !self.partial.is_empty() {
            self.end(&mut line);
        }
    }

    fn end(&mut self, line: &mut impl FnMut(&str)) {
        if self.keeps_empty || !self.partial.is_empty() {
            let mut text = String::from_utf8_lossy(&self.partial);
            if self.cut {
                text.to_mut().push_str(self.mark);
            }
            line(&text);
        }
        self.partial.clear();
        self.cut = false;
    }

    fn extend(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.after_return = false;
        }
        let room = self.bytes_max - self.partial.len();
        self.cut |= bytes.len() > room;
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// The log budget of a program: a burst, then a steady rate.
pub struct LogAllowance {
    left: usize,
    refilled: Instant,
    /// Lines dropped since the budget was exhausted.
    dropped: u64,
}

/// The decision on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineDecision {
    Log,
    /// Lines are logged again, after this number was dropped.
    LogAfter(u64),
    /// The first dropped line.
    DropFirst,
    Drop,
}

impl LogAllowance {
    pub fn new(now: Instant) -> Self {
        LogAllowance {
            left: PROCESS_LOG_BURST_BYTES,
            refilled: now,
            dropped: 0,
        }
    }

    /// Decides on a line of this length.
    ///
    /// An exhausted budget must refill to half before a line is logged again. Otherwise, a flood
    /// would alternate single lines with reports of dropped ones.
    pub fn take(&mut self, bytes: usize, now: Instant) -> LineDecision {
        // The prefix of a log line counts too.
        let bytes = bytes + 64;
        self.refill(now);
        if self.dropped > 0 {
            if self.left < PROCESS_LOG_BURST_BYTES / 2 {
                self.dropped += 1;
                return LineDecision::Drop;
            }
            self.left = self.left.saturating_sub(bytes);
            return LineDecision::LogAfter(std::mem::take(&mut self.dropped));
        }
        if self.left < bytes {
            self.dropped = 1;
            return LineDecision::DropFirst;
        }
        self.left -= bytes;
        LineDecision::Log
    }

    /// Returns the number of dropped lines that no decision has reported.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled).as_micros();
        let grown = elapsed * PROCESS_LOG_BYTES_PER_S as u128 / 1_000_000;
        if grown >= PROCESS_LOG_BURST_BYTES as u128 {
            (self.left, self.refilled) = (PROCESS_LOG_BURST_BYTES, now);
        } else if grown > 0 {
            // The time of a partial byte is kept for the next refill.
            let spent = (grown * 1_000_000).div_ceil(PROCESS_LOG_BYTES_PER_S as u128);
            self.refilled += Duration::from_micros(spent as u64);
            self.left = (self.left + grown as usize).min(PROCESS_LOG_BURST_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pushes: &[&[u8]]) -> Vec<String> {
        cut_by(LineSplitter::default(), pushes)
    }

    fn cut_by(mut lines: LineSplitter, pushes: &[&[u8]]) -> Vec<String> {
        let mut found = Vec::new();
        for push in pushes {
            lines.push(push, |line| found.push(line.to_owned()));
        }
        lines.finish(|line| found.push(line.to_owned()));
        found
    }

    #[test]
    fn splits_lines_at_any_piece_boundary() {
        assert_eq!(
            lines(&[b"one\ntw", b"o", b"\r\n\n", b" three"]),
            ["one", "two", " three"]
        );
        assert_eq!(lines(&[b"10%\r20%\r"]), ["10%", "20%"]);
        assert_eq!(lines(&["\u{fc}\n".as_bytes(), b"\xff\n"]), ["\u{fc}", "\u{fffd}"]);
        assert_eq!(
            lines(&[&[0xc3], &[0xbc, b'\n']]),
            ["\u{fc}"],
            "a character may come in parts"
        );
        assert!(lines(&[b"", b"\n\r\n"]).is_empty());
    }

    /// A line at the limit is complete; a longer one is truncated, and the next one is complete
    /// again.
    #[test]
    fn truncates_long_lines() {
        let fits = vec![b'x'; PROCESS_LINE_BYTES_MAX];
        assert_eq!(lines(&[&fits, b"\nnext"])[0].len(), PROCESS_LINE_BYTES_MAX);
        let found = lines(&[&fits, b"y", &fits, b"z\nnext\n"]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].len(), PROCESS_LINE_BYTES_MAX + "... (cut)".len());
        assert!(found[0].ends_with("x... (cut)"));
        assert_eq!(found[1], "next");
    }

    /// I-14: a splitter that keeps empty lines returns each once, for every line ending and split.
    #[test]
    fn empty_lines_may_be_kept() {
        let whole = b"\n\none\r\n\r\ntwo\r10%\r\rthree";
        let expected = ["", "", "one", "", "two", "10%", "", "three"];
        let new = || LineSplitter::new(8, "", true);
        assert_eq!(cut_by(new(), &[whole]), expected);
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(cut_by(new(), &bytes), expected);
        assert_eq!(
            cut_by(new(), &[b"12345678\n123456789\n\n"]),
            ["12345678", "12345678", ""]
        );
    }

    /// A burst is logged, then nothing until half of the budget has refilled, then the number of
    /// dropped lines.
    #[test]
    fn a_flood_is_reduced_to_the_steady_rate() {
        let start = Instant::now();
        let mut allowance = LogAllowance::new(start);
        let line = 1024 - 64;
        for _ in 0..PROCESS_LOG_BURST_BYTES / 1024 {
            assert_eq!(allowance.take(line, start), LineDecision::Log);
        }
        assert_eq!(allowance.take(line, start), LineDecision::DropFirst);
        assert_eq!(allowance.take(line, start), LineDecision::Drop);
        let half = Duration::from_secs_f64(PROCESS_LOG_BURST_BYTES as f64 / 2.0 / PROCESS_LOG_BYTES_PER_S as f64);
        assert_eq!(
            allowance.take(line, start + half - Duration::from_millis(2)),
            LineDecision::Drop
        );
        assert_eq!(allowance.dropped(), 3);
        let grown = start + half + Duration::from_millis(1);
        assert_eq!(allowance.take(line, grown), LineDecision::LogAfter(3));
        assert_eq!(allowance.take(line, grown), LineDecision::Log);
        assert_eq!(allowance.dropped(), 0);
    }

    /// The rate is independent of the number of lines.
    #[test]
    fn the_steady_rate_is_exact() {
        let start = Instant::now();
        let mut allowance = LogAllowance::new(start);
        let mut logged = 0;
        for ms in 0..600_000 {
            let verdict = allowance.take(936, start + Duration::from_millis(ms));
            if matches!(verdict, LineDecision::Log | LineDecision::LogAfter(_)) {
                logged += 1000;
            }
        }
        let taken = PROCESS_LOG_BURST_BYTES + 600 * PROCESS_LOG_BYTES_PER_S;
        assert!(logged <= taken, "{logged} of {taken}");
        assert!(logged >= taken - PROCESS_LOG_BURST_BYTES, "{logged} of {taken}");
    }
}
