//! A reader for tests that returns a limited number of bytes per call.

use std::io::{self, Read};

/// Reads the slice in chunks of at most the given size.
pub struct ChunkedReader<'a>(pub &'a [u8], pub usize);

impl Read for ChunkedReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = into.len().min(self.1);
        self.0.read(&mut into[..room])
    }
}
