//! The files of `--calls-dir`: where a record goes, and which files are deleted.
//!
//! In: the names and sizes of the files of the folder, and the time. Out: names. A file has the
//! calls that ended on one day in UTC, `calls-20261128.jsonl`; a full one is followed by
//! `calls-20261128-1.jsonl`. Calls that were turned away have files of their own,
//! `refused-20261128.jsonl`, and a share of the bytes: a flood of them deletes no records of
//! others. Files with other names are not touched. A clock that was just set, or that the machine
//! has just started with, decides no age: one that is a year ahead for a moment would delete all.

use crate::limits::{CALLS_DIR_AGE, CALLS_DIR_BYTES_MAX};
use crate::sorting;
use crate::time::compact;

const SUFFIX: &str = ".jsonl";

/// Which calls a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FiledCalls {
    /// Calls that ended, and dialled ones that were not answered.
    Ended,
    /// Calls that the runner turned away.
    Refused,
}

impl FiledCalls {
    pub const ALL: [FiledCalls; 2] = [FiledCalls::Ended, FiledCalls::Refused];

    const fn prefix(self) -> &'static str {
        match self {
            FiledCalls::Ended => "calls-",
            FiledCalls::Refused => "refused-",
        }
    }

    /// Bytes of one file.
    const fn file_bytes_max(self) -> u64 {
        match self {
            FiledCalls::Ended => CallFile::BYTES_MAX,
            FiledCalls::Refused => CallFile::BYTES_MAX / 8,
        }
    }

    /// Bytes of all files.
    const fn bytes_max(self) -> u64 {
        const REFUSED: u64 = CALLS_DIR_BYTES_MAX / 16;
        match self {
            FiledCalls::Ended => CALLS_DIR_BYTES_MAX - REFUSED,
            FiledCalls::Refused => REFUSED,
        }
    }
}

/// A file of records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallFile {
    pub calls: FiledCalls,
    /// `20261128`.
    day: String,
    number: u32,
    pub bytes: u64,
}

impl CallFile {
    /// Bytes of the largest file: an editor opens it.
    pub const BYTES_MAX: u64 = 8 * 1024 * 1024;

    /// Reads the name of a file; `None` for a file that is not of records.
    pub fn parse(name: &str, bytes: u64) -> Option<Self> {
        let of_kind = |calls: FiledCalls| Some((calls, name.strip_prefix(calls.prefix())?));
        let (calls, name) = FiledCalls::ALL.into_iter().find_map(of_kind)?;
        let name = name.strip_suffix(SUFFIX)?;
        let (day, number) = match name.split_once('-') {
            Some((day, number)) => (day, number.parse().ok().filter(|number| *number > 0)?),
            None => (name, 0),
        };
        let is_day = day.len() == 8 && day.bytes().all(|byte| byte.is_ascii_digit());
        let file = CallFile {
            calls,
            day: day.to_owned(),
            number,
            bytes,
        };
        is_day.then_some(file)
    }

    pub fn name(&self) -> String {
        let prefix = self.calls.prefix();
        match self.number {
            0 => format!("{prefix}{}{SUFFIX}", self.day),
            number => format!("{prefix}{}-{number}{SUFFIX}", self.day),
        }
    }

    /// Returns whether this many bytes of records of these calls, of this time in milliseconds
    /// since 1970, go to this file.
    pub fn takes(&self, calls: FiledCalls, bytes: u64, unix_ms: u64) -> bool {
        self.is_of(calls, &day(unix_ms)) && self.bytes + bytes <= calls.file_bytes_max()
    }

    fn is_of(&self, calls: FiledCalls, day: &str) -> bool {
        self.calls == calls && self.day == day
    }
}

/// Returns the file for a record of this many bytes of such a call, at this time in milliseconds
/// since 1970.
pub fn file_for(files: &[CallFile], calls: FiledCalls, bytes: u64, unix_ms: u64) -> CallFile {
    let day = day(unix_ms);
    match files.iter().filter(|file| file.is_of(calls, &day)).max() {
        Some(last) if last.takes(calls, bytes, unix_ms) => last.clone(),
        last => CallFile {
            calls,
            number: last.map_or(0, |last| last.number + 1),
            day,
            bytes: 0,
        },
    }
}

/// Returns the files to delete for records of this many bytes of such calls: the oldest of their
/// files, and, unless the clock is not to be trusted, all of days beyond the longest age.
pub fn surplus(files: &[CallFile], calls: FiledCalls, bytes: u64, trusted_ms: Option<u64>) -> Vec<CallFile> {
    let age_ms = u64::try_from(CALLS_DIR_AGE.as_millis()).unwrap_or(u64::MAX);
    let oldest_day = trusted_ms.map_or_else(String::new, |unix_ms| day(unix_ms.saturating_sub(age_ms)));
    let mut sorted = files.to_vec();
    sorting::sort(&mut sorted);
    let of_them = sorted.iter().filter(|file| file.calls == calls);
    let mut total = bytes + of_them.map(|file| file.bytes).sum::<u64>();
    sorted.retain(|file| {
        let is_theirs = file.calls == calls;
        let is_surplus = file.day < oldest_day || is_theirs && total > calls.bytes_max();
        total -= if is_surplus && is_theirs { file.bytes } else { 0 };
        is_surplus
    });
    sorted
}

fn day(unix_ms: u64) -> String {
    compact(unix_ms).chars().take(8).collect()
}

#[cfg(test)]
mod tests;
