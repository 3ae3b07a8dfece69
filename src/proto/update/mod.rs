//! `edge-runner update`: which release may replace the installed program, and what is in it.
//!
//! In: the files of a release, public keys, and facts about the installation. Out: the verified
//! release, the program in its archive, and whose duty the update is. `boards/release` makes the
//! files; `boards/install.sh` verifies the same signature, checksums and versions for a first
//! installation.

pub mod archive;
pub mod installation;
pub mod release;
pub mod service;
pub mod signature;
pub mod version;
