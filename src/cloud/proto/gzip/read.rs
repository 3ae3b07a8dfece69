//! The gzip format, read as bytes come.
//!
//! In: compressed bytes in pieces of any size. Out: what they hold, into a buffer of the caller's, so that no more is unpacked than
//! is asked for. An archive may have several members; zeros may follow the last one, as tapes and disks pad. Each member's CRC-32
//! and length are checked. Refuses: what is no gzip, a header without end, broken data, anything else after the last member.
//! Source: RFC 1952, RFC 1951.

use std::fmt;

use crc32fast::Hasher;
use miniz_oxide::inflate::stream::{InflateState, MinReset, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};

use crate::limits::GZIP_HEADER_BYTES_MAX;

/// Why bytes are no gzip archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// They do not begin like one.
    NoGzip,
    /// The method of compression, or a flag, is none that is known.
    Unknown,
    /// A header is longer than [`GZIP_HEADER_BYTES_MAX`].
    Header,
    /// The compressed data are broken.
    Data,
    /// They unpack to something else than was packed.
    Checksum,
    /// They unpack to another length than was packed.
    Length,
    /// Something else follows the last member.
    Tail,
    /// They end too early.
    Truncated,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Damaged::NoGzip => "it is no gzip",
            Damaged::Unknown => "its gzip header asks for what is not known",
            Damaged::Header => "its gzip header is too long",
            Damaged::Data => "its compressed data are broken",
            Damaged::Checksum => "its checksum is wrong",
            Damaged::Length => "its length is not what its end says",
            Damaged::Tail => "something that is no gzip follows its end",
            Damaged::Truncated => "it ends too early",
        })
    }
}

impl std::error::Error for Damaged {}

const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const HEADER_CRC: u8 = 2;
const RESERVED: u8 = 0xe0;

/// What comes next.
#[derive(Clone, Copy)]
enum State {
    /// The ten bytes that each member begins with.
    Head,
    ExtraLength,
    Extra {
        left: usize,
    },
    Name,
    Comment,
    HeaderCrc,
    Body,
    /// CRC-32 and length.
    Tail,
    /// Another member, zeros, or nothing.
    Between,
    Padding,
}

/// Reads one archive.
pub struct Reader {
    state: State,
    /// The bytes of a field of fixed length, as far as they have come.
    field: [u8; 10],
    have: usize,
    flags: u8,
    /// Bytes of this member's header so far.
    header: usize,
    /// 32 KiB of window: on the heap.
    inflate: Box<InflateState>,
    crc: Hasher,
    /// Bytes that this member has unpacked to, modulo 2^32.
    length: u32,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            state: State::Head,
            field: [0; 10],
            have: 0,
            flags: 0,
            header: 0,
            inflate: InflateState::new_boxed(DataFormat::Raw),
            crc: Hasher::new(),
            length: 0,
        }
    }
}

impl Reader {
    /// Takes bytes off the front of `input` and unpacks them into `out`, which must have room. Returns how many bytes it made; 0
    /// when all of the input is used up and more is needed.
    ///
    /// # Errors
    /// [`Damaged`]; what was made of earlier bytes was made of a damaged archive as well.
    pub fn read(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<usize, Damaged> {
        loop {
            if let State::Body = self.state {
                let made = self.unpack(input, out)?;
                if made > 0 {
                    return Ok(made);
                }
                if matches!(self.state, State::Body) {
                    return Ok(0);
                }
            }
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(0);
            };
            *input = rest;
            self.take(byte)?;
        }
    }

    /// Tells whether the archive may end here.
    ///
    /// # Errors
    /// [`Damaged::Truncated`].
    pub fn finish(&self) -> Result<(), Damaged> {
        match self.state {
            State::Between if self.have == 0 => Ok(()),
            State::Padding => Ok(()),
            _ => Err(Damaged::Truncated),
        }
    }

    fn unpack(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<usize, Damaged> {
        loop {
            let result = inflate(&mut self.inflate, input, out, MZFlush::None);
            *input = &input[result.bytes_consumed..];
            let made = result.bytes_written;
            self.crc.update(&out[..made]);
            self.length = self.length.wrapping_add(made as u32);
            match result.status {
                Ok(MZStatus::StreamEnd) => {
                    self.expect(State::Tail);
                    return Ok(made);
                }
                // What it has read so far gives nothing yet.
                Ok(_) if made == 0 && !input.is_empty() => {}
                Ok(_) => return Ok(made),
                Err(MZError::Buf) => return Ok(made),
                Err(_) => return Err(Damaged::Data),
            }
        }
    }

    fn expect(&mut self, state: State) {
        self.state = state;
        self.have = 0;
    }

    /// Collects a field; tells when it has all of its bytes.
    fn collect(&mut self, byte: u8, length: usize) -> bool {
        self.field[self.have] = byte;
        self.have += 1;
        self.have == length
    }

    fn take(&mut self, byte: u8) -> Result<(), Damaged> {
        if !matches!(self.state, State::Tail | State::Padding) {
            self.header += 1;
            if self.header > GZIP_HEADER_BYTES_MAX {
                return Err(Damaged::Header);
            }
        }
        match self.state {
            State::Between if self.have == 0 && byte == 0 => self.state = State::Padding,
            State::Between | State::Head => {
                let other = match self.state {
                    State::Head => Damaged::NoGzip,
                    _ => Damaged::Tail,
                };
                let is_whole = self.collect(byte, 10);
                match self.have {
                    1 if byte != 0x1f => return Err(other),
                    2 if byte != 0x8b => return Err(other),
                    3 if byte != 8 => return Err(Damaged::Unknown),
                    4 if byte & RESERVED != 0 => return Err(Damaged::Unknown),
                    _ => {}
                }
                if is_whole {
                    self.flags = self.field[3];
                    self.field_after_head();
                }
            }
            State::ExtraLength => {
                if self.collect(byte, 2) {
                    let left = usize::from(u16::from_le_bytes([self.field[0], self.field[1]]));
                    self.state = State::Extra { left };
                    if left == 0 {
                        self.field_after_head();
                    }
                }
            }
            State::Extra { left: 1 } => self.field_after_head(),
            State::Extra { left } => self.state = State::Extra { left: left - 1 },
            State::Name | State::Comment => {
                if byte == 0 {
                    self.field_after_head();
                }
            }
            State::HeaderCrc => {
                if self.collect(byte, 2) {
                    self.field_after_head();
                }
            }
            State::Tail => {
                if self.collect(byte, 8) {
                    let word = |at: usize| u32::from_le_bytes(self.field[at..at + 4].try_into().expect("four bytes"));
                    let (crc, length) = (word(0), word(4));
                    if crc != std::mem::take(&mut self.crc).finalize() {
                        return Err(Damaged::Checksum);
                    }
                    if length != self.length {
                        return Err(Damaged::Length);
                    }
                    self.header = 0;
                    self.expect(State::Between);
                }
            }
            State::Padding => {
                if byte != 0 {
                    return Err(Damaged::Tail);
                }
            }
            State::Body => unreachable!("the body is unpacked, not taken byte by byte"),
        }
        Ok(())
    }

    /// Goes on with the next optional field that the flags announce, or with the body.
    fn field_after_head(&mut self) {
        let optional = [
            (EXTRA, State::ExtraLength),
            (NAME, State::Name),
            (COMMENT, State::Comment),
            (HEADER_CRC, State::HeaderCrc),
        ];
        for (flag, state) in optional {
            if self.flags & flag != 0 {
                self.flags &= !flag;
                return self.expect(state);
            }
        }
        // The window is not cleared: what a broken member finds there is from the same archive, and a million of empty members
        // would cost a million of clearings.
        self.inflate.reset_as(MinReset);
        self.crc = Hasher::new();
        self.length = 0;
        self.expect(State::Body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs `data` as one member: header without extras, deflate, CRC and length.
    fn member(data: &[u8]) -> Vec<u8> {
        with_header(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff], data)
    }

    fn with_header(header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut packed = header.to_vec();
        packed.extend(miniz_oxide::deflate::compress_to_vec(data, 6));
        packed.extend(crc32fast::hash(data).to_le_bytes());
        packed.extend((data.len() as u32).to_le_bytes());
        packed
    }

    /// Reads all of it in pieces of `step` bytes through a buffer of `room` bytes.
    fn read(packed: &[u8], step: usize, room: usize) -> Result<Vec<u8>, Damaged> {
        let (mut reader, mut data) = (Reader::default(), Vec::new());
        let mut out = vec![0; room];
        for mut piece in packed.chunks(step) {
            loop {
                let made = reader.read(&mut piece, &mut out)?;
                data.extend_from_slice(&out[..made]);
                if made == 0 {
                    assert!(piece.is_empty());
                    break;
                }
            }
        }
        reader.finish().map(|()| data)
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Some of it repeats, so that it is packed.
            if state & 0x300 == 0 { (state >> 24) as u8 } else { b'x' }
        };
        (0..length).map(|_| next()).collect()
    }

    /// However the bytes come and however little room there is, the same comes out.
    #[test]
    fn what_was_packed_comes_out() {
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

    /// I-17: gzip may have several members; an empty one, one without optional fields, and one with all of them.
    #[test]
    fn several_members_are_one_archive() {
        let mut header = vec![0x1f, 0x8b, 8, EXTRA | NAME | COMMENT | HEADER_CRC | 1, 1, 2, 3, 4, 2, 3];
        header.extend([3, 0, b'a', 0, 0x1f]);
        header.extend(b"context.tar\0of a build\0");
        header.extend([0xaa, 0xbb]);
        let mut packed = member(b"one ");
        packed.extend(member(b""));
        packed.extend(with_header(&header, b"two "));
        packed.extend(with_header(&[0x1f, 0x8b, 8, EXTRA, 0, 0, 0, 0, 0, 3, 0, 0], b"three"));
        for padding in [0, 1, 511, 100_000] {
            packed.resize(packed.len() + padding, 0);
            for step in [1, 5, packed.len()] {
                assert_eq!(read(&packed, step, 1024).as_deref(), Ok(&b"one two three"[..]));
            }
        }
    }

    /// I-17: a damaged archive is refused, wherever it is cut or changed.
    #[test]
    fn damage_is_seen() {
        let data = noise(5_000);
        let whole = member(&data);
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end], 64, 1024), Err(Damaged::Truncated), "cut at {end}");
        }
        let mut refused = 0;
        for at in 10..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            // Deflate has bits that mean nothing; a change of those is none.
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
        assert_eq!(change(0, b'B'), Err(Damaged::NoGzip));
        assert_eq!(change(1, b'Z'), Err(Damaged::NoGzip));
        assert_eq!(change(2, 7), Err(Damaged::Unknown));
        assert_eq!(change(3, 0x20), Err(Damaged::Unknown));
        let end = whole.len();
        assert_eq!(change(end - 8, !whole[end - 8]), Err(Damaged::Checksum));
        assert_eq!(change(end - 1, 1), Err(Damaged::Length));
        let followed = |by: &[u8]| read(&[&whole, by].concat(), 64, 1024);
        assert_eq!(followed(b"x"), Err(Damaged::Tail));
        assert_eq!(followed(&[0x1f]), Err(Damaged::Truncated));
        assert_eq!(followed(&[0x1f, 0]), Err(Damaged::Tail));
        assert_eq!(followed(&[0, 0, 1]), Err(Damaged::Tail));
        assert_eq!(read(b"", 1, 1), Err(Damaged::Truncated));
    }

    /// A header at the cap is read, one byte more is not: names without end are no reason to read on.
    #[test]
    fn headers_have_an_end() {
        let header = |name: usize| {
            let mut header = vec![0x1f, 0x8b, 8, NAME, 0, 0, 0, 0, 0, 3];
            header.resize(10 + name - 1, b'n');
            header.push(0);
            with_header(&header, b"data")
        };
        let fits = GZIP_HEADER_BYTES_MAX - 10;
        assert_eq!(read(&header(fits), 1000, 100).as_deref(), Ok(&b"data"[..]));
        assert_eq!(read(&header(fits + 1), 1000, 100), Err(Damaged::Header));
    }
}
