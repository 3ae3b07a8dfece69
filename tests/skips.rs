//! Skips of `support::skip`: a missing program is said on stderr although the test passes, and
//! fails the gate.

use std::process::{Command, Output};

use crate::support::runner::folder;

/// Runs a test of this binary that needs a program, with an empty folder as `PATH`.
fn without_programs(test: &str, ci: &str) -> Output {
    let own = std::env::current_exe().expect("this is a program");
    Command::new(own)
        .args(["--exact", test])
        .env("PATH", folder())
        .env("CI", ci)
        .output()
        .expect("it runs")
}

#[test]
fn a_missing_program_is_reported_and_fails_the_gate_only() {
    for (test, words) in [
        ("pcm::sox_is_a_bot", "sox as a bot: apt-get install sox"),
        (
            "turn::a_caller_behind_a_relay_talks",
            "relays and STUN servers: apt-get install coturn",
        ),
    ] {
        let skipped = without_programs(test, "");
        let said = String::from_utf8_lossy(&skipped.stderr).into_owned();
        assert!(skipped.status.success(), "{skipped:?}");
        assert!(said.lines().any(|line| line == format!("SKIPPED: {words}")), "{said}");
        let failed = without_programs(test, "true");
        let said = String::from_utf8_lossy(&failed.stdout).into_owned();
        assert!(!failed.status.success(), "{failed:?}");
        assert!(
            said.contains(&words.replace(": apt", " cannot be tested: apt")),
            "{said}"
        );
    }
}
