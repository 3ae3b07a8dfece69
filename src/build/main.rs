//! The build script: packs what the program contains beside Rust, and chooses flags of the linker.

#![allow(clippy::disallowed_methods)] // Cargo passes paths and flags to build scripts in the environment.

mod linker;
mod page;

fn main() {
    page::pack();
    linker::choose();
}
