//! The files of `--record`: their names, and which ones are deleted.
//!
//! In: the time and the id of a call, and the names and sizes of the files of the folder. Out:
//! names. A name begins with the time, so the oldest sorts first. Files with other names are not
//! touched.

use crate::limits::RECORDINGS_BYTES_MAX;
use crate::sorting;
use crate::time::compact;

const PREFIX: &str = "call-";
const SUFFIX: &str = ".wav";
/// The end of the name of a file that is being written.
pub const PART: &str = ".part";
/// Characters of an id in a name.
const ID_CHARS: usize = 48;

/// Returns the name of the file of a call that began at this time, in milliseconds since 1970.
pub fn name(id: &str, unix_ms: u64) -> String {
    let plain = id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let id: String = plain.take(ID_CHARS).collect();
    format!("{PREFIX}{}-{id}{SUFFIX}", compact(unix_ms))
}

/// Returns whether a name is that of a whole recording.
pub fn is_whole(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Returns the name that a file gets when it is whole, if this one is being written.
pub fn whole_name(part: &str) -> Option<&str> {
    part.strip_suffix(PART).filter(|name| is_whole(name))
}

/// Returns the recordings to delete, so that so many bytes can be added.
pub fn surplus(files: &[(String, u64)], bytes: u64) -> Vec<&str> {
    let mut total = bytes + files.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let mut whole: Vec<&(String, u64)> = files.iter().filter(|(name, _)| is_whole(name)).collect();
    sorting::sort(&mut whole);
    let mut surplus = Vec::new();
    for (name, bytes) in whole {
        if total <= RECORDINGS_BYTES_MAX {
            break;
        }
        total -= bytes;
        surplus.push(&**name);
    }
    surplus
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-28T22:13:20Z.
    const NOW: u64 = 1_795_904_000_000;

    #[test]
    fn a_name_has_the_time_and_the_id() {
        let plain = name("0d4f", NOW);
        assert!(
            plain.starts_with("call-20261128") && plain.ends_with("-0d4f.wav"),
            "{plain}"
        );
        assert!(name("0", NOW) < name("0", NOW + 1000));
        let hostile = name("../a b\n\u{e9}/c", NOW);
        assert!(hostile.ends_with("----a-b---c.wav") && is_whole(&hostile), "{hostile}");
        assert!(name(&"x".repeat(300), NOW).len() < 100);
    }

    #[test]
    fn other_files_are_not_recordings() {
        for other in ["call-1.wav.part", "call-1.mp3", "notes.wav", ".call-1.wav"] {
            assert!(!is_whole(other), "{other}");
        }
        assert_eq!(whole_name("call-1.wav.part"), Some("call-1.wav"));
        for other in ["call-1.wav", "call-1.part", "notes.wav.part"] {
            assert_eq!(whole_name(other), None, "{other}");
        }
    }

    /// The oldest are deleted, and never what is being written or is of others.
    #[test]
    fn the_oldest_recordings_are_deleted() {
        let file = |name: &str, bytes: u64| (name.to_owned(), bytes);
        let third = RECORDINGS_BYTES_MAX / 3;
        let files = [
            file("call-2.wav", third),
            file("call-0.wav.part", third),
            file("call-1.wav", third),
            file("a.wav", 5),
        ];
        assert_eq!(surplus(&files[..3], 0), Vec::<&str>::new());
        assert_eq!(surplus(&files, 0), ["call-1.wav"]);
        assert_eq!(surplus(&files, third + 10), ["call-1.wav", "call-2.wav"]);
    }
}
