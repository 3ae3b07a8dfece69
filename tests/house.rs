//! The laws of the house that the linter cannot see: what the pure floor may name, and that every room says what it is for.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the entry is readable").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// No file of the pure floor names the runtime, the HTTP library, or the floors above.
#[test]
fn proto_is_pure() {
    for path in sources(&src().join("proto")) {
        let text = fs::read_to_string(&path).expect("a source file is text");
        for word in [
            "tokio",
            "hyper",
            "crate::io",
            "crate::bot",
            "crate::cli",
            "std::net::UdpSocket",
        ] {
            assert!(!text.contains(word), "{} names {word}", path.display());
        }
    }
}

/// Every source file opens with what the room is for.
#[test]
fn every_room_says_what_it_is_for() {
    for path in sources(&src()) {
        let text = fs::read_to_string(&path).expect("a source file is text");
        assert!(text.starts_with("//!"), "{} opens without a header", path.display());
    }
}
