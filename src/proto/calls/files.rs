//! The files of `--calls-dir`: where a record goes, and which files are deleted.
//!
//! In: the names and sizes of the files of the folder, and the time. Out: names. A file has the
//! calls that ended on one day in UTC, `calls-20261128.jsonl`; a full one is followed by
//! `calls-20261128-1.jsonl`. Files with other names are not touched. A clock that was just set, or
//! that the machine has just started with, decides no age: one that is a year ahead for a moment
//! would delete all.

use crate::limits::{CALLS_DIR_AGE, CALLS_DIR_BYTES_MAX};
use crate::sorting;
use crate::time::compact;

const PREFIX: &str = "calls-";
const SUFFIX: &str = ".jsonl";

/// A file of records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallFile {
    /// `20261128`.
    day: String,
    number: u32,
    pub bytes: u64,
}

impl CallFile {
    /// Bytes of one file: an editor opens it.
    pub const BYTES_MAX: u64 = 8 * 1024 * 1024;

    /// Reads the name of a file; `None` for a file that is not of records.
    pub fn parse(name: &str, bytes: u64) -> Option<Self> {
        let name = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let (day, number) = match name.split_once('-') {
            Some((day, number)) => (day, number.parse().ok().filter(|number| *number > 0)?),
            None => (name, 0),
        };
        let is_day = day.len() == 8 && day.bytes().all(|byte| byte.is_ascii_digit());
        let file = CallFile {
            day: day.to_owned(),
            number,
            bytes,
        };
        is_day.then_some(file)
    }

    pub fn name(&self) -> String {
        match self.number {
            0 => format!("{PREFIX}{}{SUFFIX}", self.day),
            number => format!("{PREFIX}{}-{number}{SUFFIX}", self.day),
        }
    }

    /// Returns whether this many bytes of this time, in milliseconds since 1970, go to this file.
    pub fn takes(&self, bytes: u64, unix_ms: u64) -> bool {
        self.day == day(unix_ms) && self.bytes + bytes <= Self::BYTES_MAX
    }
}

/// Returns the file for a record of this many bytes, at this time in milliseconds since 1970.
pub fn file_for(files: &[CallFile], bytes: u64, unix_ms: u64) -> CallFile {
    let day = day(unix_ms);
    match files.iter().filter(|file| file.day == day).max() {
        Some(last) if last.takes(bytes, unix_ms) => last.clone(),
        last => CallFile {
            number: last.map_or(0, |last| last.number + 1),
            day,
            bytes: 0,
        },
    }
}

/// Returns the files to delete for a record of this many bytes: the oldest, and, unless the clock
/// is not to be trusted, those of days beyond the longest age.
pub fn surplus(files: &[CallFile], bytes: u64, trusted_ms: Option<u64>) -> Vec<CallFile> {
    let age_ms = u64::try_from(CALLS_DIR_AGE.as_millis()).unwrap_or(u64::MAX);
    let oldest_day = trusted_ms.map_or_else(String::new, |unix_ms| day(unix_ms.saturating_sub(age_ms)));
    let mut sorted = files.to_vec();
    sorting::sort(&mut sorted);
    let mut total = bytes + sorted.iter().map(|file| file.bytes).sum::<u64>();
    sorted.retain(|file| {
        let is_surplus = file.day < oldest_day || total > CALLS_DIR_BYTES_MAX;
        total -= if is_surplus { file.bytes } else { 0 };
        is_surplus
    });
    sorted
}

fn day(unix_ms: u64) -> String {
    compact(unix_ms).chars().take(8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-28T22:13:20Z.
    const NOW: u64 = 1_795_904_000_000;
    const DAY_MS: u64 = 86_400_000;

    fn file(name: &str, bytes: u64) -> CallFile {
        CallFile::parse(name, bytes).expect("a file of records")
    }

    #[test]
    fn a_day_has_a_file_and_a_full_file_has_a_next_one() {
        assert_eq!(file_for(&[], 10, NOW).name(), "calls-20261128.jsonl");
        let other_day = file("calls-20261127.jsonl", 10);
        assert_eq!(
            file_for(std::slice::from_ref(&other_day), 10, NOW).name(),
            "calls-20261128.jsonl"
        );
        let open = file("calls-20261128.jsonl", CallFile::BYTES_MAX - 10);
        assert_eq!(file_for(std::slice::from_ref(&open), 10, NOW), open);
        assert_eq!(
            file_for(std::slice::from_ref(&open), 11, NOW).name(),
            "calls-20261128-1.jsonl"
        );
        let tenth = file("calls-20261128-10.jsonl", CallFile::BYTES_MAX);
        let second = file("calls-20261128-2.jsonl", 0);
        assert_eq!(
            file_for(&[tenth, second, other_day], 11, NOW).name(),
            "calls-20261128-11.jsonl"
        );
    }

    #[test]
    fn other_files_are_not_records() {
        for name in [
            "calls.jsonl",
            "calls-2026.jsonl",
            "calls-20261128.json",
            "calls-2026112x.jsonl",
            "calls-20261128-0.jsonl",
            "notes.txt",
        ] {
            assert_eq!(CallFile::parse(name, 1), None, "{name}");
        }
        for name in ["calls-20261128.jsonl", "calls-20261128-7.jsonl"] {
            assert_eq!(file(name, 1).name(), name);
        }
    }

    #[test]
    fn the_oldest_files_are_deleted() {
        let names = |files: Vec<CallFile>| -> Vec<String> { files.iter().map(CallFile::name).collect() };
        let half = CALLS_DIR_BYTES_MAX / 2;
        let files = [
            file("calls-20261128.jsonl", half),
            file("calls-20261127-1.jsonl", 10),
            file("calls-20261127.jsonl", half),
        ];
        assert_eq!(names(surplus(&files[..2], 10, Some(NOW))), Vec::<String>::new());
        assert_eq!(names(surplus(&files, 10, Some(NOW))), ["calls-20261127.jsonl"]);
        assert_eq!(names(surplus(&files, 10, None)), ["calls-20261127.jsonl"]);
        let days = u64::try_from(CALLS_DIR_AGE.as_millis()).expect("a small number") / DAY_MS;
        assert_eq!(
            names(surplus(&files[..2], 1, Some(NOW + days * DAY_MS))),
            ["calls-20261127-1.jsonl"]
        );
        assert_eq!(names(surplus(&files[..2], 1, None)), Vec::<String>::new());
    }
}
