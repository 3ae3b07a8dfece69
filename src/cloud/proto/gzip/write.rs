//! Writes one gzip member: no name, no time, the best compression.
//!
//! In: bytes, in pieces of any size. Out: the same, compressed, at the end of a buffer of the caller's. The head is the one that
//! Python's `gzip` writes for `mtime=0`; what follows depends on the compressor and is valid, and is not what zlib would make.
//! Source: RFC 1952.

use crc32fast::Hasher;
use miniz_oxide::deflate::core::{CompressorOxide, create_comp_flags_from_zip_params};
use miniz_oxide::deflate::stream::deflate;
use miniz_oxide::{MZError, MZFlush};

/// Magic, deflate, no flags, no time, best compression, unknown system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff];
/// The best that there is.
const LEVEL: i32 = 9;
/// Negative: without the frame of zlib.
const RAW: i32 = -15;
/// How much is made at once.
const PIECE: usize = 32 * 1024;

/// One member on its way.
pub struct Writer {
    compressor: Box<CompressorOxide>,
    checksum: Hasher,
    /// Bytes before compression; the format keeps their number modulo 2^32.
    size: u32,
    begun: bool,
}

impl Default for Writer {
    fn default() -> Self {
        Writer::new()
    }
}

impl Writer {
    pub fn new() -> Writer {
        Writer {
            compressor: Box::new(CompressorOxide::new(create_comp_flags_from_zip_params(LEVEL, RAW, 0))),
            checksum: Hasher::new(),
            size: 0,
            begun: false,
        }
    }

    /// Compresses bytes; what is ready of the member is added to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.checksum.update(bytes);
        // Modulo 2^32, as the format has it.
        self.size = self.size.wrapping_add(bytes.len() as u32);
        self.compress(bytes, MZFlush::None, out);
    }

    /// Ends the member.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.compress(&[], MZFlush::Finish, out);
        out.extend(self.checksum.finalize().to_le_bytes());
        out.extend(self.size.to_le_bytes());
    }

    fn compress(&mut self, mut bytes: &[u8], flush: MZFlush, out: &mut Vec<u8>) {
        if !self.begun {
            out.extend(HEAD);
            self.begun = true;
        }
        let ends = flush == MZFlush::Finish;
        loop {
            let from = out.len();
            out.resize(from + PIECE, 0);
            let made = deflate(&mut self.compressor, bytes, &mut out[from..], flush);
            out.truncate(from + made.bytes_written);
            bytes = &bytes[made.bytes_consumed..];
            let is_over = match made.status {
                Ok(miniz_oxide::MZStatus::StreamEnd) => true,
                // Everything is taken, and nothing is left that had no room.
                Ok(_) => !ends && bytes.is_empty() && made.bytes_written < PIECE,
                // Nothing to do: the same.
                Err(MZError::Buf) => true,
                Err(_) => unreachable!("a compressor that is used in order takes every byte"),
            };
            if is_over {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut writer, mut out) = (Writer::new(), Vec::new());
        for piece in pieces {
            writer.push(piece, &mut out);
        }
        writer.finish(&mut out);
        out
    }

    fn unpacked(member: &[u8]) -> Vec<u8> {
        assert_eq!(member[..10], HEAD);
        let (body, end) = member[10..].split_at(member.len() - 18);
        let bytes = miniz_oxide::inflate::decompress_to_vec(body).expect("a whole stream");
        assert_eq!(end[..4], crc32fast::hash(&bytes).to_le_bytes());
        assert_eq!(end[4..], (bytes.len() as u32).to_le_bytes());
        bytes
    }

    /// C-069
    #[test]
    fn what_is_packed_in_any_pieces_is_unpacked_again() {
        let mut state = 1u32;
        // Half of it repeats itself, the other half does not compress.
        let bytes: Vec<u8> = (0..300_000)
            .map(|at| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if at % 20_000 < 10_000 {
                    b'a'
                } else {
                    (state >> 24) as u8
                }
            })
            .collect();
        for size in [1000, 32 * 1024, 65_536, 300_000] {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            let member = packed(&pieces);
            assert!(member.len() < 200_000, "{}", member.len());
            assert_eq!(unpacked(&member), bytes, "{size}");
        }
        assert_eq!(unpacked(&packed(&[])), b"");
        assert_eq!(unpacked(&packed(&[b"", b"x", b""])), b"x");
    }
}
