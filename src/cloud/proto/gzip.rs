//! Reads gzip archives with any number of members.
//!
//! In: compressed bytes from a reader. Out: the uncompressed bytes. Zero padding after the last
//! member is accepted. `flate2` checks CRC-32 and length of each member and caps the header fields.
//! Rejects data that is not gzip, broken headers or data, truncation, and trailing garbage. Source:
//! RFC 1952, RFC 1951.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

/// Read buffer in bytes.
const UNPACK_READ_BYTES: usize = 64 * 1024;

/// Why data is not a valid gzip archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GzipError {
    /// The magic number is missing.
    NoGzip,
    /// Unknown method or flag, an overlong header, or a bad header checksum.
    Header,
    /// The compressed data is invalid.
    Data,
    /// The uncompressed data does not match its checksum or length.
    Checksum,
    /// Garbage follows the last member.
    Tail,
    /// The data ends early.
    Truncated,
}

impl fmt::Display for GzipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GzipError::NoGzip => "it is not gzip",
            GzipError::Header => "its gzip header asks for what is not known",
            GzipError::Data => "its compressed data are broken",
            GzipError::Checksum => "its checksum is wrong",
            GzipError::Tail => "something that is not gzip follows its end",
            GzipError::Truncated => "it ends too early",
        })
    }
}

impl std::error::Error for GzipError {}

impl From<GzipError> for io::Error {
    fn from(damaged: GzipError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, damaged)
    }
}

/// Magic number of a member.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

type Member<R> = GzDecoder<BufReader<R>>;

/// Reads one archive. Errors are the source's own or contain a [`GzipError`].
pub struct GzipReader<R> {
    /// The current member, which owns the source. `None` after the last one.
    member: Option<Member<R>>,
}

impl<R: Read> GzipReader<R> {
    /// Reads the header of the first member.
    ///
    /// # Errors
    /// The source's errors; [`GzipError`].
    pub fn new(source: R) -> io::Result<GzipReader<R>> {
        let source = BufReader::with_capacity(UNPACK_READ_BYTES, source);
        let member = Some(member(source, GzipError::NoGzip)?);
        Ok(GzipReader { member })
    }
}

impl<R: Read> Read for GzipReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            match member.read(into) {
                Ok(0) => {
                    self.member = self
                        .member
                        .take()
                        .map_or(Ok(None), |member| next_member(member.into_inner()))?
                }
                Ok(count) => return Ok(count),
                Err(error) => return Err(map_error(error)),
            }
        }
        Ok(0)
    }
}

/// Reads the header of a member. Without a magic number the error is `instead`.
fn member<R: Read>(mut source: BufReader<R>, instead: GzipError) -> io::Result<Member<R>> {
    let begins = source.fill_buf()?.iter().zip(MAGIC).all(|(&byte, magic)| byte == magic);
    if !begins {
        return Err(instead.into());
    }
    let mut member = GzDecoder::new(source);
    match member.header() {
        Some(_) => Ok(member),
        // `flate2` reports header errors at the first read.
        None => Err(match member.read(&mut [0]) {
            Err(error) if error.kind() != io::ErrorKind::InvalidInput || error.raw_os_error().is_some() => {
                map_error(error)
            }
            _ => GzipError::Header.into(),
        }),
    }
}

/// Continues after a member, with another one, zero padding, or the end.
fn next_member<R: Read>(mut source: BufReader<R>) -> io::Result<Option<Member<R>>> {
    match source.fill_buf()?.first() {
        None => return Ok(None),
        Some(0) => {}
        Some(_) => return member(source, GzipError::Tail).map(Some),
    }
    loop {
        let padding = source.fill_buf()?;
        if padding.is_empty() {
            return Ok(None);
        }
        if padding.iter().any(|&byte| byte != 0) {
            return Err(GzipError::Tail.into());
        }
        let length = padding.len();
        source.consume(length);
    }
}

/// Maps an error of `flate2` to a [`GzipError`]. Errors of the source pass through.
fn map_error(error: io::Error) -> io::Error {
    match error.kind() {
        _ if error.raw_os_error().is_some() => error,
        io::ErrorKind::UnexpectedEof => GzipError::Truncated.into(),
        // `flate2` has no error kind for a bad checksum or length.
        io::ErrorKind::InvalidInput if error.to_string().contains("checksum") => GzipError::Checksum.into(),
        io::ErrorKind::InvalidInput => GzipError::Data.into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::proto::chunked::ChunkedReader;

    fn member(data: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(data).expect("memory");
        packer.finish().expect("memory")
    }

    /// Replaces the header of a member.
    fn with_header(header: &[u8], data: &[u8]) -> Vec<u8> {
        [header, &member(data)[10..]].concat()
    }

    /// Reads everything in chunks of `step` bytes through a buffer of `room` bytes.
    fn read(packed: &[u8], step: usize, room: usize) -> Result<Vec<u8>, GzipError> {
        let (mut data, mut out) = (Vec::new(), vec![0; room]);
        let mut all = || {
            let mut reader = GzipReader::new(ChunkedReader(packed, step))?;
            loop {
                match reader.read(&mut out)? {
                    0 => return Ok(()),
                    count => data.extend_from_slice(&out[..count]),
                }
            }
        };
        let all: io::Result<()> = all();
        all.map_err(|error| error.downcast().expect("memory does not fail"))?;
        Ok(data)
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 7_u32;
        let mut next_member = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Repetition makes the data compressible.
            if state & 0x300 == 0 { (state >> 24) as u8 } else { b'x' }
        };
        (0..length).map(|_| next_member()).collect()
    }

    /// The output does not depend on chunk or buffer sizes.
    #[test]
    fn compressed_data_round_trips() {
        for data in [Vec::new(), b"x".to_vec(), noise(100_000), vec![0; 300_000]] {
            let packed = member(&data);
            for (step, room) in [
                (usize::MAX >> 1, 1 << 20),
                (1, 512),
                (7, 3),
                (4096, 1),
                (512, 32 * 1024),
            ] {
                assert_eq!(read(&packed, step, room).as_ref(), Ok(&data), "{step} {room}");
            }
        }
    }

    /// I-17: several members, empty ones, and headers with no or all optional fields.
    #[test]
    fn several_members_are_one_archive() {
        let mut header = vec![0x1f, 0x8b, 8, 0b1_1111, 1, 2, 3, 4, 2, 3];
        header.extend([3, 0, b'a', 0, 0x1f]);
        header.extend(b"context.tar\0of a build\0");
        let mut sum = flate2::Crc::new();
        sum.update(&header);
        header.extend(&sum.sum().to_le_bytes()[..2]);
        let mut packed = member(b"one ");
        packed.extend(member(b""));
        packed.extend(with_header(&header, b"two "));
        packed.extend(with_header(&[0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 3, 0, 0], b"three"));
        for padding in [0, 1, 511, 100_000] {
            packed.resize(packed.len() + padding, 0);
            for step in [1, 5, packed.len()] {
                assert_eq!(read(&packed, step, 1024).as_deref(), Ok(&b"one two three"[..]));
            }
        }
    }

    /// I-17: every truncation and almost every changed byte is detected.
    #[test]
    fn damage_is_detected() {
        let data = noise(5_000);
        let whole = member(&data);
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end], 64, 1024), Err(GzipError::Truncated), "cut at {end}");
        }
        let mut refused = 0;
        for at in 10..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            // Some bits of a deflate stream have no effect.
            match read(&changed, 64, 1024) {
                Ok(read) => assert!(read == data, "changed at {at}"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > (whole.len() - 10) * 9 / 10, "{refused}");
        let change = |at: usize, to: u8| {
            let mut changed = whole.clone();
            changed[at] = to;
            read(&changed, 64, 1024)
        };
        assert_eq!(change(0, b'B'), Err(GzipError::NoGzip));
        assert_eq!(change(1, b'Z'), Err(GzipError::NoGzip));
        assert_eq!(change(2, 7), Err(GzipError::Header));
        assert_eq!(change(3, 0x20), Err(GzipError::Header));
        let end = whole.len();
        assert_eq!(change(end - 8, !whole[end - 8]), Err(GzipError::Checksum));
        assert_eq!(change(end - 1, 1), Err(GzipError::Checksum));
        let followed = |by: &[u8]| read(&[&whole, by].concat(), 64, 1024);
        assert_eq!(followed(b"x"), Err(GzipError::Tail));
        assert_eq!(followed(&[0x1f]), Err(GzipError::Truncated));
        assert_eq!(followed(&[0x1f, 0]), Err(GzipError::Tail));
        assert_eq!(followed(&[0, 0, 1]), Err(GzipError::Tail));
        assert_eq!(read(b"", 1, 1), Err(GzipError::Truncated));
    }

    /// Long header fields are cut off.
    #[test]
    fn header_fields_have_a_length_limit() {
        let named = |length: usize| {
            let header = [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3][..], &vec![b'n'; length], &[0]].concat();
            read(&with_header(&header, b"data"), 1000, 100)
        };
        assert_eq!(named(65_535).as_deref(), Ok(&b"data"[..]));
        assert_eq!(named(65_536), Err(GzipError::Header));
    }

    /// Errors of the source pass through.
    #[test]
    fn source_errors_pass_through() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(22))
            }
        }
        let packed = member(&noise(5_000));
        for length in [0, 5, 100] {
            let source = packed[..length].chain(Broken);
            let read = GzipReader::new(source).and_then(|mut reader| reader.read_to_end(&mut Vec::new()));
            assert_eq!(
                read.expect_err("it is broken").raw_os_error(),
                Some(22),
                "after {length}"
            );
        }
    }
}
