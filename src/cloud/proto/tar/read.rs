//! Archives of the POSIX tar format, read as bytes come.
//!
//! In: bytes in pieces of any size. Out: entries, then the bytes of those that are files. Read are the headers of ustar, POSIX's
//! extended ones (`path`, `linkpath`, `size`, `mtime`; of the next file or of all that follow), GNU's long names and its binary
//! numbers. What an extended header says belongs to the next file, however many other headers stand between. Refuses: a header
//! whose checksum is wrong, numbers that are none, extended headers that are broken or longer than
//! [`TAR_EXTENSION_BYTES_MAX`], an end in the middle. Whether an entry may be made is decided in [`super::super::unpack`].
//! Source: POSIX.1-2017 `pax`, "ustar Interchange Format"; the manual of GNU tar, "Basic Tar Format".

use std::fmt;

use crate::limits::TAR_EXTENSION_BYTES_MAX;

const BLOCK: usize = 512;

/// Why bytes are no tar archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// The checksum of a header is wrong.
    Checksum,
    /// A field that should hold a number holds something else.
    Number(&'static str),
    /// An extended header is longer than [`TAR_EXTENSION_BYTES_MAX`].
    Long,
    /// An extended header is broken.
    Extension,
    /// It ends in the middle of a header or of a file.
    Truncated,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damaged::Checksum => f.write_str("a header's checksum is wrong"),
            Damaged::Number(field) => write!(f, "the {field} in a header is no number"),
            Damaged::Long => write!(f, "an extended header has more than {TAR_EXTENSION_BYTES_MAX} bytes"),
            Damaged::Extension => f.write_str("an extended header is broken"),
            Damaged::Truncated => f.write_str("it ends too early"),
        }
    }
}

impl std::error::Error for Damaged {}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
pub struct Entry {
    /// Bytes as they stand in the archive, without the NULs that fill up a field.
    pub name: Vec<u8>,
    pub kind: Kind,
    /// What a link leads to; empty for all else.
    pub target: Vec<u8>,
    /// Bytes that follow; 0 for what is no file.
    pub size: u64,
    /// With its upper bits, as it came.
    pub mode: u32,
    /// Seconds since 1970.
    pub mtime_s: u64,
}

/// What the next bytes were.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// All of the input is used up.
    More,
    Entry(Entry),
    /// So many bytes of the last entry, the last that were taken off the input.
    Data(usize),
}

/// What extended headers say.
#[derive(Clone, Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    mtime_s: Option<u64>,
    is_sparse: bool,
}

enum State {
    Header,
    /// The body of an extended header of some kind, then so many bytes of padding.
    Extension {
        kind: u8,
        left: usize,
        padding: usize,
    },
    /// A file, then so many bytes of padding.
    Data {
        left: u64,
        padding: u16,
    },
    /// A block of zeros has come: what follows is not looked at.
    End,
}

/// Reads one archive.
pub struct Reader {
    state: State,
    /// A header or the body of an extended one, as far as it has come.
    bytes: Vec<u8>,
    all: Extension,
    next: Extension,
    /// GNU's long names count less than POSIX's.
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    /// Extended headers have come that belong to an entry.
    is_owed: bool,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            state: State::Header,
            bytes: Vec::with_capacity(BLOCK),
            all: Extension::default(),
            next: Extension::default(),
            long_name: None,
            long_link: None,
            is_owed: false,
        }
    }
}

impl Reader {
    /// Takes bytes off the front of `input` until something has come of them, and tells how many it took.
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn read(&mut self, input: &[u8]) -> Result<(usize, Event), Damaged> {
        let mut used = 0;
        while used < input.len() {
            let rest = &input[used..];
            match &mut self.state {
                State::Header => {
                    used += fill(&mut self.bytes, rest, BLOCK);
                    if self.bytes.len() == BLOCK
                        && let Some(entry) = self.header()?
                    {
                        return Ok((used, Event::Entry(entry)));
                    }
                }
                State::Extension { kind, left, padding } => {
                    let (kind, whole) = (*kind, *left + *padding);
                    used += fill(&mut self.bytes, rest, whole);
                    if self.bytes.len() == whole {
                        self.bytes.truncate(*left);
                        self.extension(kind)?;
                    }
                }
                State::Data { left: 0, padding } => {
                    let skipped = rest.len().min(usize::from(*padding));
                    *padding -= skipped as u16;
                    used += skipped;
                    if *padding == 0 {
                        self.state = State::Header;
                    }
                }
                State::Data { left, .. } => {
                    let length = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    *left -= length as u64;
                    return Ok((used + length, Event::Data(length)));
                }
                State::End => used = input.len(),
            }
        }
        Ok((used, Event::More))
    }

    /// Tells whether the archive may end here: after the block of zeros, or where one could stand.
    ///
    /// # Errors
    /// [`Damaged::Truncated`].
    pub fn finish(&self) -> Result<(), Damaged> {
        let is_over = match self.state {
            State::Header => self.bytes.is_empty() && !self.is_owed,
            State::Data { left: 0, padding: 0 } => true,
            State::Data { .. } | State::Extension { .. } => false,
            State::End => !self.is_owed,
        };
        if is_over { Ok(()) } else { Err(Damaged::Truncated) }
    }

    /// Reads a header that is whole. The next state is set.
    fn header(&mut self) -> Result<Option<Entry>, Damaged> {
        let block = std::mem::replace(&mut self.bytes, Vec::with_capacity(BLOCK));
        if block.iter().all(|&byte| byte == 0) {
            self.state = State::End;
            return Ok(None);
        }
        check(&block)?;
        let flag = block[156];
        let size = number(&block[124..136]).ok_or(Damaged::Number("size"))?;
        if matches!(flag, b'x' | b'g' | b'L' | b'K') {
            if size > TAR_EXTENSION_BYTES_MAX {
                return Err(Damaged::Long);
            }
            self.is_owed |= flag != b'g';
            self.state = State::Extension {
                kind: flag,
                left: size as usize,
                padding: padding(size).into(),
            };
            if size == 0 {
                self.extension(flag)?;
            }
            return Ok(None);
        }
        let entry = self.entry(&block, flag, size)?;
        self.state = match entry.size {
            0 => State::Header,
            left => State::Data {
                left,
                padding: padding(left),
            },
        };
        Ok(Some(entry))
    }

    fn entry(&mut self, block: &[u8], flag: u8, size: u64) -> Result<Entry, Damaged> {
        let next = std::mem::take(&mut self.next);
        let (long_name, long_link) = (self.long_name.take(), self.long_link.take());
        self.is_owed = false;
        let name = next.path.or_else(|| self.all.path.clone()).or(long_name);
        let name = name.unwrap_or_else(|| ustar_name(block));
        let target = next.link.or_else(|| self.all.link.clone()).or(long_link);
        let target = target.unwrap_or_else(|| text(&block[157..257]));
        let kind = match flag {
            _ if next.is_sparse || self.all.is_sparse => Kind::Sparse,
            // Before there was a kind for them, folders were files whose names end so.
            0 if name.ends_with(b"/") => Kind::Dir,
            0 | b'0' | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::CharacterDevice,
            b'4' => Kind::BlockDevice,
            b'5' => Kind::Dir,
            b'6' => Kind::Fifo,
            b'S' => Kind::Sparse,
            other => Kind::Other(other),
        };
        let size = next.size.or(self.all.size).unwrap_or(size);
        let mtime_s = next.mtime_s.or(self.all.mtime_s);
        Ok(Entry {
            name,
            kind,
            target: match kind {
                Kind::HardLink | Kind::Symlink => target,
                _ => Vec::new(),
            },
            // Of links and folders some archives tell a size that nothing of follows.
            size: if kind == Kind::File { size } else { 0 },
            mode: number(&block[100..108]).ok_or(Damaged::Number("mode"))? as u32,
            // A time before 1970 is no reason to refuse a file.
            mtime_s: mtime_s.or_else(|| number(&block[136..148])).unwrap_or(0),
        })
    }

    /// Reads the body of an extended header that is whole.
    fn extension(&mut self, kind: u8) -> Result<(), Damaged> {
        let body = std::mem::replace(&mut self.bytes, Vec::with_capacity(BLOCK));
        self.state = State::Header;
        match kind {
            b'L' => self.long_name = Some(text(&body)),
            b'K' => self.long_link = Some(text(&body)),
            b'g' => records(&body, &mut self.all)?,
            _ => records(&body, &mut self.next)?,
        }
        Ok(())
    }
}

/// Appends what `bytes` lacks to be `whole`, and tells how much that was.
fn fill(bytes: &mut Vec<u8>, input: &[u8], whole: usize) -> usize {
    let length = input.len().min(whole - bytes.len());
    bytes.extend_from_slice(&input[..length]);
    length
}

fn padding(size: u64) -> u16 {
    (size.wrapping_neg() % BLOCK as u64) as u16
}

/// Compares a header with its checksum: the sum of its bytes, those of the checksum taken as spaces. Some old programs took bytes
/// for signed.
fn check(block: &[u8]) -> Result<(), Damaged> {
    let stated = number(&block[148..156]).ok_or(Damaged::Checksum)?;
    let (mut sum, mut signed) = (0_u64, 0_i64);
    for (at, &byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) { b' ' } else { byte };
        sum += u64::from(byte);
        signed += i64::from(byte as i8);
    }
    if stated == sum || i64::try_from(stated) == Ok(signed) {
        Ok(())
    } else {
        Err(Damaged::Checksum)
    }
}

/// Reads a number: octal digits with spaces before and a space or NUL after, or GNU's binary form. An empty field is 0.
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

/// Takes a text that NULs fill up. A NUL inside stays: whoever makes files refuses it, and can say whose name it is in.
fn text(field: &[u8]) -> Vec<u8> {
    let end = field.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    field[..end].to_vec()
}

/// Puts the two parts of a name together. GNU's own format has other fields in the place of the first part.
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

/// Reads records `LENGTH NAME=VALUE\n`, where the length counts itself and the end of line. An empty value takes back what an
/// earlier header said.
fn records(mut body: &[u8], into: &mut Extension) -> Result<(), Damaged> {
    while !body.is_empty() {
        let space = body.iter().position(|&byte| byte == b' ').ok_or(Damaged::Extension)?;
        let length = decimal(&body[..space]).ok_or(Damaged::Extension)?;
        let length = usize::try_from(length).map_err(|_| Damaged::Extension)?;
        if length <= space + 1 || length > body.len() || body[length - 1] != b'\n' {
            return Err(Damaged::Extension);
        }
        let record = &body[space + 1..length - 1];
        body = &body[length..];
        let equals = record.iter().position(|&byte| byte == b'=').ok_or(Damaged::Extension)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let given = Some(value).filter(|value| !value.is_empty());
        match key {
            b"path" => into.path = given.map(<[u8]>::to_vec),
            b"linkpath" => into.link = given.map(<[u8]>::to_vec),
            b"size" => {
                into.size = given
                    .map(|value| decimal(value).ok_or(Damaged::Number("size")))
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
