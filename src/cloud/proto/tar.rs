//! ArchiveStore of the POSIX tar format.

pub mod read;
pub mod write;
