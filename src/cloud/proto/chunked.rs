//! Bytes for tests of readers, so many at a time.

use std::io::{self, Read};

/// Gives at most so many bytes per read.
pub struct ChunkedReader<'a>(pub &'a [u8], pub usize);

impl Read for ChunkedReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = into.len().min(self.1);
        self.0.read(&mut into[..room])
    }
}
