//! Logs of builds.
//!
//! In: output lines of the command and messages of the service. Out: pages of lines, from the first
//! one on. A page token is the byte offset of a line, so pages need no state. A later attempt
//! appends to the log. Output beyond `BUILD_LOG_BYTES_MAX` is dropped after a line that says so, as
//! is anything that cannot be written. Source: decision I-14.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Bytes of a page as JSON. A slow client holds one page in memory, per connection.
pub(super) const BUILD_LOG_PAGE_BYTES_MAX: usize = 1024 * 1024;

/// Part of the log that is reserved for the service's lines.
const BUILD_LOG_OWN_BYTES: u64 = 64 * 1024;

/// Bytes of a log.
const BUILD_LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// Prefix of the service's lines.
pub(super) const OWN: &str = "[service] ";

/// A page of lines, and the token of the next one.
#[derive(Debug, PartialEq, Eq)]
pub struct LogPage {
    pub lines: Vec<String>,
    pub next: Option<String>,
}

/// An open log.
#[derive(Debug)]
pub struct BuildLog {
    /// `None`: the log could not be opened.
    file: Option<File>,
    /// Bytes of complete lines.
    length: u64,
    /// The command's output is dropped from now on.
    is_full: bool,
    is_broken: bool,
}

impl BuildLog {
    /// Opens a log for appending. Creates the file and its folder if needed.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(path: &Path) -> io::Result<BuildLog> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(path)?;
        let mut length = file.seek(SeekFrom::End(0))?;
        if length > 0 {
            // A kill or a full disk may have truncated the last line.
            let mut last = [0];
            file.seek(SeekFrom::Start(length - 1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                length += 1;
            }
        }
        Ok(BuildLog {
            file: Some(file),
            length,
            is_full: false,
            is_broken: false,
        })
    }

    /// Creates a log that drops every line.
    pub fn discarding() -> BuildLog {
        BuildLog {
            file: None,
            length: 0,
            is_full: true,
            is_broken: true,
        }
    }

    /// Writes a line of the service.
    pub fn write_service_line(&mut self, line: &str) {
        let line = format!("{OWN}{}\n", line.replace(['\n', '\r'], " "));
        if self.length + line.len() as u64 <= BUILD_LOG_BYTES_MAX {
            self.write(line.as_bytes());
        }
    }

    /// Writes one or more lines of the command, separated by line feeds.
    pub fn write_lines(&mut self, text: &str) {
        if self.is_full {
            return;
        }
        let room = (BUILD_LOG_BYTES_MAX - BUILD_LOG_OWN_BYTES).saturating_sub(self.length);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        if text.len() < room {
            let mut whole = Vec::with_capacity(text.len() + 1);
            whole.extend_from_slice(text.as_bytes());
            whole.push(b'\n');
            return self.write(&whole);
        }
        let fits = text.as_bytes()[..room.min(text.len())]
            .iter()
            .rposition(|&byte| byte == b'\n');
        if let Some(end) = fits {
            self.write(&text.as_bytes()[..=end]);
        }
        self.is_full = true;
        self.write_service_line(&format!(
            "the log ends here: it has {BUILD_LOG_BYTES_MAX} bytes at most; what the command writes is dropped"
        ));
    }

    fn write(&mut self, lines: &[u8]) {
        let Some(file) = &mut self.file else {
            return;
        };
        match file.write_all(lines) {
            Ok(()) => {
                self.length += lines.len() as u64;
                self.is_broken = false;
            }
            Err(error) => {
                // Removes a partial line, which readers would join with the next one.
                let _ = file.set_len(self.length);
                if !std::mem::replace(&mut self.is_broken, true) {
                    log::warn!("a build's log cannot be written: {error}");
                }
            }
        }
    }

    /// Reads at most `limit` lines from the start or from a token. A missing log is empty.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid token, else the error of the system.
    pub fn read_page(path: &Path, token: Option<&str>, limit: usize) -> io::Result<LogPage> {
        let start = page_start(token)?;
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && start == 0 => {
                return Ok(LogPage {
                    lines: Vec::new(),
                    next: None,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(io::ErrorKind::InvalidInput.into()),
            other => other?,
        };
        let mut file = BufReader::new(file);
        file.seek(SeekFrom::Start(start.saturating_sub(1)))?;
        BuildLog::read_lines(&mut file, start, limit)
    }

    /// Reads at most `limit` lines of the log that `file` is, from one byte before `start` on
    /// unless that is 0.
    ///
    /// # Errors
    /// `InvalidInput` when no line begins at `start`, else the error of the system.
    pub fn read_lines(file: &mut dyn io::BufRead, start: u64, limit: usize) -> io::Result<LogPage> {
        if start > 0 {
            // A token must point behind a line feed.
            let mut before = [0];
            if file.read(&mut before)? == 0 || before != *b"\n" {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        }
        let (mut lines, mut at, mut line, mut json_bytes) = (Vec::new(), start, Vec::new(), 0);
        loop {
            line.clear();
            file.read_until(b'\n', &mut line)?;
            // The last line is still being written.
            if line.pop() != Some(b'\n') {
                return Ok(LogPage { lines, next: None });
            }
            let read = String::from_utf8_lossy(&line);
            json_bytes += json_len(&read);
            let is_full = !lines.is_empty() && json_bytes > BUILD_LOG_PAGE_BYTES_MAX;
            if lines.len() >= limit || is_full {
                return Ok(LogPage {
                    lines,
                    next: Some(at.to_string()),
                });
            }
            at += line.len() as u64 + 1;
            lines.push(read.into_owned());
        }
    }
}

/// Returns the offset at which the page of a token begins.
///
/// # Errors
/// `InvalidInput` for a text that is no token.
pub fn page_start(token: Option<&str>) -> io::Result<u64> {
    token.map_or(Ok(0), |token| offset(token).ok_or(io::ErrorKind::InvalidInput.into()))
}

/// Returns the length of a line in JSON, with quotes and comma.
fn json_len(line: &str) -> usize {
    let escaped = |byte: u8| match byte {
        0..=0x1f | 0x7f => 5,
        b'"' | b'\\' => 1,
        _ => 0,
    };
    line.len() + line.bytes().map(escaped).sum::<usize>() + 3
}

/// Parses a token in canonical decimal form.
fn offset(token: &str) -> Option<u64> {
    let offset: u64 = token.parse().ok()?;
    (offset.to_string() == token).then_some(offset)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::io::test_dir::TestDir;
    use crate::limits::BUILD_LINE_BYTES_MAX;

    fn page(path: &Path, token: Option<&str>, limit: usize) -> (Vec<String>, Option<String>) {
        let page = BuildLog::read_page(path, token, limit).expect("a page");
        (page.lines, page.next)
    }

    /// I-14: a log can be read while it is written, in pages of any size.
    #[test]
    fn pages_are_contiguous() {
        let scratch = TestDir::create();
        let path = scratch.path().join("log");
        assert_eq!(page(&path, None, 10), (vec![], None), "before the first line");
        let mut log = BuildLog::open(&path).expect("a log");
        assert_eq!(page(&path, None, 10), (vec![], None));
        log.write_service_line("one");
        log.write_lines("two\n\nf\u{fc}nf");
        assert_eq!(page(&path, None, 500).0, ["[service] one", "two", "", "f\u{fc}nf"]);
        for limit in 1..6 {
            let (mut all, mut token) = (Vec::new(), None);
            loop {
                let (lines, next) = page(&path, token.as_deref(), limit);
                assert!(lines.len() == limit || next.is_none());
                all.extend(lines);
                token = next;
                if token.is_none() {
                    break;
                }
            }
            assert_eq!(all, ["[service] one", "two", "", "f\u{fc}nf"], "{limit}");
        }
        let (_, token) = page(&path, None, 3);
        log.write_lines("six");
        assert_eq!(page(&path, token.as_deref(), 10).0, ["f\u{fc}nf", "six"]);
    }

    /// I-14: only offsets of lines are valid tokens.
    #[test]
    fn invalid_tokens_are_rejected() {
        let scratch = TestDir::create();
        let path = scratch.path().join("log");
        BuildLog::open(&path).expect("a log").write_lines("one\ntwo");
        let is_refused = |token: &str, path: &Path| matches!(BuildLog::read_page(path, Some(token), 9), Err(error) if error.kind() == io::ErrorKind::InvalidInput);
        for good in ["0", "4", "8"] {
            assert!(!is_refused(good, &path), "{good}");
        }
        for bad in [
            "",
            "1",
            "3",
            "7",
            "9",
            "100",
            "-0",
            "+4",
            "04",
            " 4",
            "4 ",
            "x",
            "18446744073709551616",
        ] {
            assert!(is_refused(bad, &path), "{bad}");
        }
        assert!(is_refused("4", &scratch.path().join("absent")));
        assert!(!is_refused("0", &scratch.path().join("absent")));
    }

    /// A page is limited by its size as JSON for any lines, and is never empty before
    /// the end.
    #[test]
    fn pages_have_a_size_limit() {
        let scratch = TestDir::create();
        for letter in ["x", "\u{1}", "\"", "\u{e9}", "\u{7f}"] {
            let path = scratch
                .path()
                .join(format!("log-{}", u32::from(letter.chars().next().expect("one"))));
            let line = letter.repeat(BUILD_LINE_BYTES_MAX / letter.len());
            let mut log = BuildLog::open(&path).expect("a log");
            (0..400).for_each(|_| log.write_lines(&line));
            let (mut read, mut token) = (0, None);
            loop {
                let (lines, next) = page(&path, token.as_deref(), 10_000);
                let json = serde_json::to_string(&lines).expect("JSON");
                assert!(json.len() <= BUILD_LOG_PAGE_BYTES_MAX, "{letter:?}: {}", json.len());
                assert!(!lines.is_empty() && lines.iter().all(|one| *one == line), "{letter:?}");
                read += lines.len();
                token = next;
                if token.is_none() {
                    break;
                }
            }
            assert_eq!(read, 400, "{letter:?}");
        }
    }

    /// I-14, I-19: a later attempt appends, and a truncated line stays separate.
    #[test]
    fn a_log_is_continued() {
        let scratch = TestDir::create();
        let path = scratch.path().join("log");
        BuildLog::open(&path).expect("a log").write_lines("one");
        fs::write(&path, "one\nhal").expect("a cut");
        assert_eq!(page(&path, None, 9).0, ["one"], "what is cut may still be on its way");
        BuildLog::open(&path)
            .expect("a log")
            .write_service_line("interrupted\r\nattempt 2 of 3");
        assert_eq!(
            page(&path, None, 9).0,
            ["one", "hal", "[service] interrupted  attempt 2 of 3"]
        );
    }

    /// I-14: the log has at most 10 MiB, with a note; lines of the service still fit after it.
    #[test]
    fn a_log_has_a_size_limit() {
        let scratch = TestDir::create();
        let path = scratch.path().join("log");
        let mut log = BuildLog::open(&path).expect("a log");
        let line = "x".repeat(BUILD_LINE_BYTES_MAX);
        let batch = format!("{line}\n{line}\n{line}");
        for _ in 0..500 {
            log.write_lines(&batch);
        }
        log.write_service_line("it ended");
        let length = fs::metadata(&path).expect("a log").len();
        assert!(length <= BUILD_LOG_BYTES_MAX && length > BUILD_LOG_BYTES_MAX - 2 * BUILD_LOG_OWN_BYTES);
        let (mut token, mut pages) = (None, 0);
        let last = loop {
            let (lines, next) = page(&path, token.as_deref(), 10_000);
            let bytes: usize = lines.iter().map(String::len).sum();
            assert!(bytes <= BUILD_LOG_PAGE_BYTES_MAX);
            (token, pages) = (next, pages + 1);
            if token.is_none() {
                break lines;
            }
        };
        assert_eq!(pages, 11);
        let end = last.len();
        assert_eq!(last[end - 3], line);
        assert_eq!(
            last[end - 2],
            "[service] the log ends here: it has 10485760 bytes at most; what the command writes is dropped"
        );
        assert_eq!(last[end - 1], "[service] it ended");
        for _ in 0..100_000 {
            log.write_service_line("one more");
        }
        assert!(fs::metadata(&path).expect("a log").len() <= BUILD_LOG_BYTES_MAX);
    }
}
