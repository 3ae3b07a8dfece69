//! Every input that once was, or could be, trouble goes through the entry functions of the fuzz targets, without a fuzzer.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

#[path = "fuzz/entries.rs"]
mod entries;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(files.len() >= 10, "{} has {} files", folder.display(), files.len());
    files
}

/// Runs one entry over whole files, over each file cut short at many places, and over each with a byte changed there.
fn replay(folder: &str, entry: fn(&[u8])) {
    for path in files(folder) {
        let bytes = fs::read(&path).expect("a readable file");
        let step = (bytes.len() / 20).max(1);
        let whole = |run: &dyn Fn()| {
            let outcome = catch_unwind(AssertUnwindSafe(run));
            assert!(outcome.is_ok(), "{} breaks a promise, see above", path.display());
        };
        whole(&|| entry(&bytes));
        for at in (0..bytes.len()).step_by(step) {
            whole(&|| entry(&bytes[..at]));
            let mut changed = bytes.clone();
            changed[at] = changed[at].wrapping_add(1 + (at % 7) as u8);
            whole(&|| entry(&changed));
        }
    }
}

#[test]
fn offers() {
    replay("corpus/sdp_offer", entries::sdp_offer);
    replay("data/sdp", entries::sdp_offer);
}

#[test]
fn answers() {
    replay("corpus/sdp_answer", entries::sdp_answer);
    replay("data/sdp", entries::sdp_answer);
}

#[test]
fn candidates() {
    replay("corpus/candidate", entries::candidate);
}

#[test]
fn offer_bodies() {
    replay("corpus/offer_body", entries::offer_body);
}

#[test]
fn heads_of_requests() {
    replay("corpus/request", entries::request);
}

#[test]
fn configurations() {
    replay("corpus/configuration", entries::configuration);
}

/// S9, C8, R3: what is not signed or sealed keeps no caller from connecting, silences none and ends nothing.
#[test]
fn checks_before_a_connection() {
    replay("corpus/stun", entries::stun);
}

#[test]
fn records_of_a_handshake() {
    replay("corpus/dtls", entries::dtls);
}

#[test]
fn packets_of_media() {
    replay("corpus/media", entries::media);
}

#[test]
fn chunks_of_channels() {
    replay("corpus/channels", entries::channels);
}

#[test]
fn whole_sessions() {
    replay("corpus/session", entries::session);
}

#[test]
fn protobuf_frames() {
    replay("corpus/frames", entries::frames);
}

#[test]
fn tokens() {
    replay("corpus/token", entries::token);
}

#[test]
fn telephone_calls() {
    replay("corpus/telephony", entries::telephony);
}

#[test]
fn messages_of_a_media_room() {
    replay("corpus/mediaroom_signal", entries::mediaroom_signal);
}

#[test]
fn data_of_a_media_room() {
    replay("corpus/mediaroom_data", entries::mediaroom_data);
}

#[test]
fn forms_of_uploads() {
    replay("corpus/multipart", entries::multipart);
}

#[test]
fn policies_of_grants() {
    replay("corpus/policy", entries::policy);
}

/// I-17, I-18: archives of good and of ill will, each of them cut and changed at many places.
#[test]
fn entries_of_build_contexts() {
    replay("corpus/tar_entries", entries::tar_entries);
}
