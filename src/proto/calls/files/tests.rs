//! The files of `--calls-dir`: which one a record goes to, and which are deleted.

use super::*;

/// 2026-11-28T22:13:20Z.
const NOW: u64 = 1_795_904_000_000;
const DAY_MS: u64 = 86_400_000;

fn file(name: &str, bytes: u64) -> CallFile {
    CallFile::parse(name, bytes).expect("a file of records")
}

#[test]
fn a_day_has_a_file_and_a_full_file_has_a_next_one() {
    assert_eq!(file_for(&[], FiledCalls::Ended, 10, NOW).name(), "calls-20261128.jsonl");
    let other_day = file("calls-20261127.jsonl", 10);
    assert_eq!(
        file_for(std::slice::from_ref(&other_day), FiledCalls::Ended, 10, NOW).name(),
        "calls-20261128.jsonl"
    );
    let open = file("calls-20261128.jsonl", CallFile::BYTES_MAX - 10);
    assert_eq!(file_for(std::slice::from_ref(&open), FiledCalls::Ended, 10, NOW), open);
    assert_eq!(
        file_for(std::slice::from_ref(&open), FiledCalls::Ended, 11, NOW).name(),
        "calls-20261128-1.jsonl"
    );
    let tenth = file("calls-20261128-10.jsonl", CallFile::BYTES_MAX);
    let second = file("calls-20261128-2.jsonl", 0);
    assert_eq!(
        file_for(&[tenth, second, other_day], FiledCalls::Ended, 11, NOW).name(),
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
    for name in [
        "calls-20261128.jsonl",
        "calls-20261128-7.jsonl",
        "refused-20261128-1.jsonl",
    ] {
        assert_eq!(file(name, 1).name(), name);
    }
}

#[test]
fn the_oldest_files_are_deleted() {
    let names = |files: Vec<CallFile>| -> Vec<String> { files.iter().map(CallFile::name).collect() };
    let half = FiledCalls::Ended.bytes_max() / 2;
    let files = [
        file("calls-20261128.jsonl", half),
        file("calls-20261127-1.jsonl", 10),
        file("calls-20261127.jsonl", half),
    ];
    assert_eq!(
        names(surplus(&files[..2], FiledCalls::Ended, 10, Some(NOW))),
        Vec::<String>::new()
    );
    assert_eq!(
        names(surplus(&files, FiledCalls::Ended, 10, Some(NOW))),
        ["calls-20261127.jsonl"]
    );
    assert_eq!(
        names(surplus(&files, FiledCalls::Ended, 10, None)),
        ["calls-20261127.jsonl"]
    );
    let days = u64::try_from(CALLS_DIR_AGE.as_millis()).expect("a small number") / DAY_MS;
    assert_eq!(
        names(surplus(&files[..2], FiledCalls::Ended, 1, Some(NOW + days * DAY_MS))),
        ["calls-20261127-1.jsonl"]
    );
    assert_eq!(
        names(surplus(&files[..2], FiledCalls::Ended, 1, None)),
        Vec::<String>::new()
    );
}

/// Each kind has its own files and its own bytes, and both are deleted by age.
#[test]
fn refused_calls_delete_no_records_of_others() {
    let names = |files: Vec<CallFile>| -> Vec<String> { files.iter().map(CallFile::name).collect() };
    let most = FiledCalls::Refused.file_bytes_max();
    let mut files: Vec<CallFile> = (0..8)
        .map(|nth| file(&format!("refused-2026112{nth}.jsonl"), most))
        .collect();
    files.push(file("calls-20261101.jsonl", FiledCalls::Ended.bytes_max()));
    assert_eq!(
        names(surplus(&files, FiledCalls::Refused, 1, Some(NOW))),
        ["refused-20261120.jsonl"]
    );
    assert_eq!(
        names(surplus(&files, FiledCalls::Ended, 1, Some(NOW))),
        ["calls-20261101.jsonl"]
    );
    let late = NOW + 84 * DAY_MS;
    assert_eq!(surplus(&files, FiledCalls::Ended, 1, Some(late)).len(), 3);
    let full = file("refused-20261128.jsonl", most);
    let open = file("calls-20261128.jsonl", most);
    let files = [full, open.clone()];
    assert_eq!(
        file_for(&files, FiledCalls::Refused, 1, NOW).name(),
        "refused-20261128-1.jsonl"
    );
    assert_eq!(file_for(&files, FiledCalls::Ended, 1, NOW), open);
    let sum = FiledCalls::ALL.map(FiledCalls::bytes_max).iter().sum::<u64>();
    assert_eq!(sum, CALLS_DIR_BYTES_MAX);
}
