//! Tests that this machine cannot run. Each says so on stderr, past the capture of passing tests:
//! otherwise it would count as passed and prove nothing.
//!
//! In: what is not tested, and what is missing for it. Out: a line that begins with `SKIPPED: `.
//! With `CI=true` it is a failure to lack what a package installs.

#![allow(
    clippy::disallowed_types,
    reason = "only a socket tells whether the machine has an address family"
)]

use std::io::Write as _;
use std::net::UdpSocket;
use std::path::Path;

/// Skips a test for want of something that a package installs; `install` is the command.
///
/// # Panics
///
/// With `CI=true`, since the gate installs all packages.
pub fn lacks_package(what: &str, install: &str) {
    let is_gate = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!is_gate, "{what} cannot be tested: {install}");
    skip(what, install);
}

/// Skips a test for want of something that no package provides: a right of the user, an ability of
/// the kernel, an address family.
pub fn lacks_ability(what: &str, why: &str) {
    skip(what, why);
}

/// Skips a test for want of the rights of root.
pub fn lacks_root(what: &str, why: &str) {
    skip(what, &format!("{why}: as root, tests/check.sh"));
}

/// Returns whether a program is in `PATH`, and skips the test if it is not.
pub fn has_program(program: &str, what: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        lacks_package(what, &format!("apt-get install {package}"));
    }
    found
}

/// Returns where libfaketime is, which changes the wall clock of one process, and skips the test
/// without it.
pub fn faketime(what: &str) -> Option<String> {
    let library = ["x86_64", "aarch64"]
        .map(|machine| format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1"))
        .into_iter()
        .find(|path| Path::new(path).exists());
    if library.is_none() {
        lacks_package(what, "apt-get install faketime");
    }
    library
}

/// Returns whether this machine has IPv6 on loopback, and skips the test if not.
pub fn has_ipv6(what: &str) -> bool {
    let has = UdpSocket::bind("[::1]:0").is_ok();
    if !has {
        lacks_ability(what, "this machine has no IPv6");
    }
    has
}

/// Writes a line of its own, even between the dots of `cargo test --quiet`. The macros for output
/// are captured.
fn skip(what: &str, why: &str) {
    let line = format!("\nSKIPPED: {what}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is open");
}
