//! ArchiveStore of the POSIX tar format, read entry by entry.
//!
//! In: bytes, from any reader. Out: entries, and the bytes of those that are files. Read are the
//! headers of ustar, POSIX's extended ones (`path`, `linkpath`, `size`, `mtime`; of the next file
//! or of all that follow), GNU's long names and its binary numbers. What an extended header says
//! belongs to the next file, however many other headers stand between. Refuses: a header whose
//! checksum is wrong, numbers that are none, extended headers that are broken or longer than
//! [`TAR_EXTENSION_BYTES_MAX`], an end in the middle. Whether an entry may be made is decided in
//! [`super::super::unpack`]. Source: POSIX.1-2017 `pax`, "ustar Interchange Format"; the manual of
//! GNU tar, "Basic Tar Format".

use std::fmt;
use std::io::{self, Read};

use crate::limits::TAR_EXTENSION_BYTES_MAX;

const BLOCK: usize = 512;

/// Why bytes are no tar archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TarError {
    /// The checksum of a header is wrong.
    Checksum,
    /// A field that should hold a number holds something else.
    Number(&'static str),
    /// An extended header is longer than [`TAR_EXTENSION_BYTES_MAX`].
    Long,
    /// An extended header is broken.
    PaxHeader,
    /// It ends in the middle of a header or of a file.
    Truncated,
}

impl fmt::Display for TarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TarError::Checksum => f.write_str("a header's checksum is wrong"),
            TarError::Number(field) => write!(f, "the {field} in a header is no number"),
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

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TarEntryKind {
    File,
    HardLink,
    Symlink,
    Dir,
    CharacterDevice,
    BlockDevice,
    Fifo,
    /// A file with holes, by GNU's ways of writing such.
    Sparse,
    Other(u8),
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarEntry {
    /// Bytes as they stand in the archive, without the NULs that fill up a field.
    pub name: Vec<u8>,
    pub kind: TarEntryKind,
    /// What a link leads to; empty for all else.
    pub target: Vec<u8>,
    /// Bytes that follow; 0 for what is no file.
    pub size: u64,
    /// With its upper bits, as it came.
    pub mode: u32,
    /// Seconds since 1970.
    pub mtime_s: u64,
}

/// What extended headers say.
#[derive(Clone, Default)]
struct PaxHeader {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    mtime_s: Option<u64>,
    is_sparse: bool,
}

/// Reads one archive. As a reader of bytes it gives those of the last entry, and then no more. An
/// error is the source's own, or holds a [`TarError`].
pub struct TarReader<R> {
    source: R,
    /// Bytes of the last entry that were not read yet, and what fills up its last block.
    left: u64,
    padding: u64,
    /// What holds for all entries that follow.
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

    /// Returns where the bytes come from.
    pub fn source(&mut self) -> &mut R {
        &mut self.source
    }

    /// Passes over what is left of the last entry, and returns the next one; nothing at the end,
    /// which is a block of zeros, or where one could stand. What follows that is not looked at.
    ///
    /// # Errors
    /// The source's; [`TarError`].
    pub fn next_entry(&mut self) -> io::Result<Option<TarEntry>> {
        self.pass(self.left.saturating_add(self.padding))?;
        let mut own = PaxHeader::default();
        // GNU's long names count less than POSIX's.
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

    /// Makes an entry of its header and what the extended ones say.
    fn entry(&self, block: &[u8; BLOCK], size: u64, own: PaxHeader) -> Result<TarEntry, TarError> {
        let name = own.path.unwrap_or_else(|| ustar_name(block));
        let target = own.link.unwrap_or_else(|| text(&block[157..257]));
        let kind = match block[156] {
            _ if own.is_sparse || self.all.is_sparse => TarEntryKind::Sparse,
            // Before there was a kind for them, folders were files whose names end so.
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
            // Of links and folders some archives tell a size that nothing of follows.
            size: match kind {
                TarEntryKind::File => own.size.or(self.all.size).unwrap_or(size),
                _ => 0,
            },
            mode: number(&block[100..108]).ok_or(TarError::Number("mode"))? as u32,
            // A time before 1970 is no reason to refuse a file.
            mtime_s: mtime_s.or_else(|| number(&block[136..148])).unwrap_or(0),
        })
    }

    /// Reads the body of an extended header, which is not allowed to be long.
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

/// Reads until there is no more room, or no more input, and tells how much that was.
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

/// Compares a header with its checksum: the sum of its bytes, those of the checksum taken as
/// spaces. Some old programs took bytes for signed.
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

/// Reads a number: octal digits with spaces before and a space or NUL after, or GNU's binary form.
/// An empty field is 0.
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

/// Takes a text that NULs fill up. A NUL inside stays: whoever makes files refuses it, and can say
/// whose name it is in.
fn text(field: &[u8]) -> Vec<u8> {
    let end = field.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    field[..end].to_vec()
}

/// Puts the two parts of a name together. GNU's own format has other fields in the place of the
/// first part.
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

/// Reads records `LENGTH NAME=VALUE\n`, where the length counts itself and the end of line. An
/// empty value takes back what an earlier header said.
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
            // A fraction of a second is dropped; a time before 1970 is 1970.
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
