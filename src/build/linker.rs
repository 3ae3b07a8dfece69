//! Flags of the linker that make the program smaller, where linker and system have them.
//!
//! - Relocations take half a megabyte, and packed (`DT_RELR`) a hundredth of that. The C library
//!   has to read the format where the program runs: glibc does since 2.36, of August 2022. So a
//!   program for this machine has it if a small one with it starts here. `cross/build` makes
//!   programs for older systems too, and forbids it by [`PORTABLE`].
//! - Functions with the same machine code become one, which saves a hundred kilobytes. LLVM's
//!   linker can do that, the default of Rust on x86-64. Rust promises no function an address of its
//!   own, and of SQLite's comparisons of functions none is of two that have the same code and
//!   different meanings.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// Set when the program may have to run on an older system than the one that builds it.
const PORTABLE: &str = "EDGE_RUNNER_PORTABLE";

const PACKED_RELOCATIONS: &str = "-Wl,-z,pack-relative-relocs";
const FOLDED_FUNCTIONS: &str = "-Wl,--icf=all";

/// Prints the flags for Cargo. A linker that lacks one is no error.
pub fn choose() {
    println!("cargo::rerun-if-env-changed={PORTABLE}");
    let of = |name| env::var(name).unwrap_or_default();
    let is_for_this_machine = of("HOST") == of("TARGET") && of("CARGO_CFG_TARGET_OS") == "linux";
    // Programs of tests are linked often, and their size does not matter.
    let is_release = of("PROFILE") == "release";
    if !is_for_this_machine || !is_release || !of(PORTABLE).is_empty() {
        return;
    }
    for flag in [PACKED_RELOCATIONS, FOLDED_FUNCTIONS] {
        if starts_with(flag) {
            println!("cargo::rustc-link-arg-bins={flag}");
        }
    }
}

/// Whether a program that is linked with this flag, by the linker of the real one, starts here.
fn starts_with(flag: &str) -> bool {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it for build scripts"));
    let (source, program) = (folder.join("probe.rs"), folder.join("probe"));
    fs::write(&source, "fn main() {}\n").expect("OUT_DIR can be written");
    links(&source, &program, flag) && Command::new(&program).status().is_ok_and(|status| status.success())
}

/// Links with a flag. A linker that lacks it refuses it, or warns and ignores it.
fn links(source: &Path, program: &Path, flag: &str) -> bool {
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo sets it for build scripts"));
    rustc.arg(source).arg("-o").arg(program).stdin(Stdio::null());
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={}", linker.display()));
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    rustc.arg("-C").arg(format!("link-arg={flag}"));
    (rustc.output()).is_ok_and(|output| output.status.success() && output.stderr.is_empty())
}
