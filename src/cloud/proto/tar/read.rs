//! Reads POSIX tar archives entry by entry.
//!
//! In: bytes from a reader. Out: entries and the content of files. Supports ustar headers, pax
//! headers (`path`, `linkpath`, `size`, `mtime`; local and global), and GNU long names and binary
//! numbers. A pax header applies to the next file, even if other headers follow it. Rejects bad
//! checksums, invalid numbers, broken or oversized extension headers, and truncation.
//! [`super::super::unpack`] decides which entries are acceptable. Source: POSIX.1-2017 `pax`,
//! "ustar Interchange Format"; GNU tar manual, "Basic Tar Format".

use std::fmt;
use std::io::{self, Read};

use crate::limits::TAR_EXTENSION_BYTES_MAX;

const BLOCK: usize = 512;

/// Why data is not a valid tar archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TarError {
    /// A header has a wrong checksum.
    Checksum,
    /// A numeric field is invalid.
    Number(&'static str),
    /// An extension header exceeds [`TAR_EXTENSION_BYTES_MAX`].
    Long,
    /// An extension header is malformed.
    PaxHeader,
    /// The archive ends inside a header or file.
    Truncated,
}

impl fmt::Display for TarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TarError::Checksum => f.write_str("a header's checksum is wrong"),
            TarError::Number(field) => write!(f, "the {field} in a header is not a number"),
            TarError::Long => write!(f, "an extended header has more than {TAR_EXTENSION_BYTES_MAX} bytes"),
            TarError::PaxHeader => f.write_str("an extended header is broken"),
            TarError::Truncated => f.write_str("it ends too early"),
        }
    }
}

impl std::error::Error for TarError {}

impl From<TarError> for io::Error {
    fn from(damaged: TarError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, damaged)
    }
}

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TarEntryKind {
    File,
    HardLink,
    Symlink,
    Dir,
    CharacterDevice,
    BlockDevice,
    Fifo,
    /// A sparse file in one of GNU's formats.
    Sparse,
    Other(u8),
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarEntry {
    /// The name without trailing NULs.
    pub name: Vec<u8>,
    pub kind: TarEntryKind,
    /// Link target; empty for other types.
    pub target: Vec<u8>,
    /// Bytes that follow; 0 unless a regular file.
    pub size: u64,
    /// All mode bits as archived.
    pub mode: u32,
    /// Seconds since 1970.
    pub mtime_s: u64,
}

/// Values of extension headers.
#[derive(Clone, Default)]
struct PaxHeader {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    mtime_s: Option<u64>,
    is_sparse: bool,
}

/// Reads an archive. It reads as the content of the last entry. Errors are the source's own or
/// contain a [`TarError`].
pub struct TarReader<R> {
    source: R,
    /// Unread bytes of the last entry, and its padding.
    left: u64,
    padding: u64,
    /// Global pax values.
    all: PaxHeader,
}

impl<R: Read> TarReader<R> {
    pub fn new(source: R) -> TarReader<R> {
        TarReader {
            source,
            left: 0,
            padding: 0,
            all: PaxHeader::default(),
        }
    }

    /// Returns the underlying reader.
    pub fn source(&mut self) -> &mut R {
        &mut self.source
    }

    /// Skips the rest of the last entry and returns the next one, or `None` at the end: a zero
    /// block, or the end of data at a block boundary. Data after a zero block is ignored.
    ///
    /// # Errors
    /// The source's errors; [`TarError`].
    pub fn next_entry(&mut self) -> io::Result<Option<TarEntry>> {
        self.pass(self.left.saturating_add(self.padding))?;
        let mut own = PaxHeader::default();
        // POSIX names take precedence over GNU's.
        let (mut long_name, mut long_link) = (None, None);
        let mut is_owed = false;
        loop {
            let mut block = [0; BLOCK];
            let length = fill(&mut self.source, &mut block)?;
            if matches!(length, 0 | BLOCK) && block == [0; BLOCK] && !is_owed {
                return Ok(None);
            }
            if length < BLOCK || block == [0; BLOCK] {
                return Err(TarError::Truncated.into());
            }
            check(&block)?;
            let size = number(&block[124..136]).ok_or(TarError::Number("size"))?;
            match block[156] {
                b'g' => records(&self.read_extension(size)?, &mut self.all)?,
                b'x' => records(&self.read_extension(size)?, &mut own)?,
                b'L' => long_name = Some(text(&self.read_extension(size)?)),
                b'K' => long_link = Some(text(&self.read_extension(size)?)),
                _ => {
                    own.path = own.path.or_else(|| self.all.path.clone()).or(long_name);
                    own.link = own.link.or_else(|| self.all.link.clone()).or(long_link);
                    let entry = self.entry(&block, size, own)?;
                    (self.left, self.padding) = (entry.size, padding(entry.size));
                    return Ok(Some(entry));
                }
            }
            is_owed |= block[156] != b'g';
        }
    }

    /// Builds an entry from its header and its extension headers.
    fn entry(&self, block: &[u8; BLOCK], size: u64, own: PaxHeader) -> Result<TarEntry, TarError> {
        let name = own.path.unwrap_or_else(|| ustar_name(block));
        let target = own.link.unwrap_or_else(|| text(&block[157..257]));
        let kind = match block[156] {
            _ if own.is_sparse || self.all.is_sparse => TarEntryKind::Sparse,
            // In old archives a trailing slash marks a directory.
            0 if name.ends_with(b"/") => TarEntryKind::Dir,
            0 | b'0' | b'7' => TarEntryKind::File,
            b'1' => TarEntryKind::HardLink,
            b'2' => TarEntryKind::Symlink,
            b'3' => TarEntryKind::CharacterDevice,
            b'4' => TarEntryKind::BlockDevice,
            b'5' => TarEntryKind::Dir,
            b'6' => TarEntryKind::Fifo,
            b'S' => TarEntryKind::Sparse,
            other => TarEntryKind::Other(other),
        };
        let mtime_s = own.mtime_s.or(self.all.mtime_s);
        Ok(TarEntry {
            name,
            kind,
            target: match kind {
                TarEntryKind::HardLink | TarEntryKind::Symlink => target,
                _ => Vec::new(),
            },
            // Some archives give a size for links and directories, without content.
            size: match kind {
                TarEntryKind::File => own.size.or(self.all.size).unwrap_or(size),
                _ => 0,
            },
            mode: number(&block[100..108]).ok_or(TarError::Number("mode"))? as u32,
            // An invalid or negative time is not an error.
            mtime_s: mtime_s.or_else(|| number(&block[136..148])).unwrap_or(0),
        })
    }

    /// Reads the body of an extension header.
    fn read_extension(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > TAR_EXTENSION_BYTES_MAX {
            return Err(TarError::Long.into());
        }
        let mut body = vec![0; size as usize];
        if fill(&mut self.source, &mut body)? < body.len() {
            return Err(TarError::Truncated.into());
        }
        self.pass(padding(size))?;
        Ok(body)
    }

    fn pass(&mut self, length: u64) -> io::Result<()> {
        match io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? == length {
            true => Ok(()),
            false => Err(TarError::Truncated.into()),
        }
    }
}

impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = usize::try_from(self.left).map_or(into.len(), |left| left.min(into.len()));
        let count = self.source.read(&mut into[..length])?;
        if count == 0 && length > 0 {
            return Err(TarError::Truncated.into());
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Reads until the buffer is full or the input ends. Returns the length.
fn fill(source: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < into.len() {
        match source.read(&mut into[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

/// Verifies the header checksum: the sum of all bytes, with the checksum field taken as spaces.
/// Some old programs sum signed bytes.
fn check(block: &[u8]) -> Result<(), TarError> {
    let stated = number(&block[148..156]).ok_or(TarError::Checksum)?;
    let (mut sum, mut signed) = (0_u64, 0_i64);
    for (at, &byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) { b' ' } else { byte };
        sum += u64::from(byte);
        signed += i64::from(byte as i8);
    }
    if stated == sum || i64::try_from(stated) == Ok(signed) {
        Ok(())
    } else {
        Err(TarError::Checksum)
    }
}

/// Parses octal digits surrounded by spaces or NULs, or GNU's binary form. An empty field is 0.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] == 0x80 {
        return field[1..]
            .iter()
            .try_fold(0_u64, |value, &byte| Some(value.checked_mul(256)? | u64::from(byte)));
    }
    let start = field.iter().position(|&byte| byte != b' ').unwrap_or(field.len());
    let digits = &field[start..];
    let end = digits
        .iter()
        .position(|&byte| byte == b' ' || byte == 0)
        .unwrap_or(digits.len());
    if digits[end..].iter().any(|&byte| byte != b' ' && byte != 0) {
        return None;
    }
    digits[..end].iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 8)?;
        Some(value.checked_mul(8)? | u64::from(digit))
    })
}

/// Strips trailing NULs. An inner NUL stays and is rejected with the entry's name later.
fn text(field: &[u8]) -> Vec<u8> {
    let end = field.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    field[..end].to_vec()
}

/// Joins prefix and name. GNU's format uses the prefix field for other data.
fn ustar_name(block: &[u8]) -> Vec<u8> {
    let name = text(&block[..100]);
    if &block[257..263] != b"ustar\0" {
        return name;
    }
    let mut whole = text(&block[345..500]);
    if whole.is_empty() {
        return name;
    }
    whole.push(b'/');
    whole.extend(name);
    whole
}

/// Parses pax records `LENGTH NAME=VALUE` with a line feed at the end; the length counts the whole
/// record. An empty value removes an earlier one.
fn records(mut body: &[u8], into: &mut PaxHeader) -> Result<(), TarError> {
    while !body.is_empty() {
        let space = body.iter().position(|&byte| byte == b' ').ok_or(TarError::PaxHeader)?;
        let length = decimal(&body[..space]).ok_or(TarError::PaxHeader)?;
        let length = usize::try_from(length).map_err(|_| TarError::PaxHeader)?;
        if length <= space + 1 || length > body.len() || body[length - 1] != b'\n' {
            return Err(TarError::PaxHeader);
        }
        let record = &body[space + 1..length - 1];
        body = &body[length..];
        let equals = record
            .iter()
            .position(|&byte| byte == b'=')
            .ok_or(TarError::PaxHeader)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let given = Some(value).filter(|value| !value.is_empty());
        match key {
            b"path" => into.path = given.map(<[u8]>::to_vec),
            b"linkpath" => into.link = given.map(<[u8]>::to_vec),
            b"size" => {
                into.size = given
                    .map(|value| decimal(value).ok_or(TarError::Number("size")))
                    .transpose()?;
            }
            // Fractions are dropped, and times before 1970 become 1970.
            b"mtime" => {
                into.mtime_s = given.map(|value| {
                    let whole = value.split(|&byte| byte == b'.').next().unwrap_or_default();
                    decimal(whole).unwrap_or(0)
                });
            }
            _ if key.starts_with(b"GNU.sparse.") => into.is_sparse = true,
            _ => {}
        }
    }
    Ok(())
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests;
