//! The build script: packs what the program contains beside Rust, and chooses flags of the linker.

#![allow(clippy::disallowed_methods)] // Cargo passes paths and flags to build scripts in the environment.

mod linker;
mod openapi;
mod page;

fn main() {
    page::pack();
    linker::choose();
    // `edge-runner update` downloads the build for it.
    let target = std::env::var("TARGET").expect("cargo sets it for build scripts");
    println!("cargo::rustc-env=EDGE_RUNNER_TARGET={target}");
}
