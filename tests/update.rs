//! `edge-runner update` with releases of its own, by `tests/release/test_update.py`, which copies
//! the program for each case.

use std::path::Path;
use std::process::Command;

use crate::support::skip;

const BINARY: &str = env!("CARGO_BIN_EXE_edge-runner");

/// Runs the cases of a class.
fn cases_pass(class: &str) {
    let what = format!("`edge-runner update` ({class})");
    for (program, package) in [
        ("python3", "python3"),
        ("ssh-keygen", "openssh-client"),
        ("unshare", "util-linux"),
    ] {
        if !skip::has_program(program, &what, package) {
            return;
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/release/test_update.py");
    let mut python = Command::new("python3");
    python.arg("-B").arg(script).args(["--binary", BINARY, class]);
    let output = python.output().expect("python3 starts");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    if report.contains("skipped=") {
        skip::lacks_ability(&what, "this user may not mount in a namespace");
    }
}

#[test]
fn signed_releases_replace_the_program() {
    cases_pass("Download");
}

#[test]
fn disks_and_packages_are_respected() {
    cases_pass("Mounts");
}

#[test]
fn programs_of_other_tools_are_left_to_them() {
    cases_pass("OtherTools");
}

#[test]
fn a_service_that_does_not_answer_gets_its_program_back() {
    cases_pass("Service");
}
