//! Writes tar headers, byte for byte like the published client.
//!
//! In: a name, a size in bytes, a mode. Out: the header before a file's content, its padding, and
//! the end of an archive. Times and owners are zero, so that the same files give the same archive.
//! A name that is not ASCII or exceeds 100 bytes gets a pax header. Source: POSIX.1-2017 `pax`,
//! "ustar Interchange Format"; CPython 3.11, `tarfile`.

use crate::proto::glob::code_points;

/// Block size; content is padded to it.
pub const BLOCK: usize = 512;
/// Record size; archives are padded to it.
const RECORD: u64 = 10_240;
/// Size of the name field.
const NAME: usize = 100;

/// Returns the header of a regular file. `size` has at most eleven octal digits.
pub fn header(name: &[u8], size: u64, mode: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK);
    if !name.is_ascii() || name.len() > NAME {
        let records = path_record(name);
        block(&mut out, b"././@PaxHeader", records.len() as u64, 0, b'x');
        out.extend(&records);
        out.resize(out.len() + padding(records.len() as u64), 0);
    }
    let ascii: Vec<u8> = code_points(name)
        .map(|point| u8::try_from(point).ok().filter(u8::is_ascii).unwrap_or(b'?'))
        .collect();
    block(&mut out, &ascii, size, mode, b'0');
    out
}

/// Returns the number of zeros after content of this size.
pub fn padding(size: u64) -> usize {
    // Less than a block.
    (size.next_multiple_of(BLOCK as u64) - size) as usize
}

/// Returns the number of zeros that end an archive of this size.
pub fn end(size: u64) -> usize {
    let with_two_blocks = size + 2 * BLOCK as u64;
    // Less than two blocks and a record.
    (with_two_blocks.next_multiple_of(RECORD) - size) as usize
}

/// Returns the pax record of a name, with a character set record if it is not UTF-8.
fn path_record(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if std::str::from_utf8(name).is_err() {
        out.extend(b"21 hdrcharset=BINARY\n");
    }
    // The length includes its own digits.
    let rest = " path=\n".len() + name.len();
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend(length.to_string().bytes());
    out.extend(b" path=");
    out.extend(name);
    out.push(b'\n');
    out
}

/// Appends a header block.
fn block(out: &mut Vec<u8>, name: &[u8], size: u64, mode: u32, kind: u8) {
    let mut block = [0; BLOCK];
    let name = &name[..name.len().min(NAME)];
    block[..name.len()].copy_from_slice(name);
    octal(&mut block[100..108], mode.into());
    octal(&mut block[108..116], 0);
    octal(&mut block[116..124], 0);
    octal(&mut block[124..136], size);
    octal(&mut block[136..148], 0);
    // The checksum field counts as spaces.
    block[148..156].fill(b' ');
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    octal(&mut block[148..155], sum.into());
    out.extend(block);
}

/// Writes octal digits and a final NUL.
fn octal(field: &mut [u8], mut number: u64) {
    let digits = field.len() - 1;
    field[digits] = 0;
    for digit in field[..digits].iter_mut().rev() {
        *digit = b'0' + (number & 7) as u8;
        number >>= 3;
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use sha2::{Digest, Sha256};

    use super::*;

    fn archive(files: &[(&[u8], &[u8], u32)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, content, mode) in files {
            out.extend(header(name, content.len() as u64, *mode));
            out.extend(*content);
            out.resize(out.len() + padding(content.len() as u64), 0);
        }
        out.resize(out.len() + end(out.len() as u64), 0);
        out
    }

    fn hash(files: &[(&[u8], &[u8], u32)]) -> String {
        HEXLOWER.encode(&Sha256::digest(archive(files)))
    }

    /// C-069: SHA-256 of the archives that CPython 3.11's `tarfile` creates.
    #[test]
    fn archives_equal_those_of_the_published_client() {
        assert_eq!(
            hash(&[]),
            "84ff92691f909a05b224e1c56abb4864f01b4f8e3c854e4bb4c7baf1d3f6d652"
        );
        let one = archive(&[(b"Dockerfile", b"FROM scratch\n", 0o644)]);
        assert_eq!((one.len(), &one[148..156]), (10_240, &b"007733\0 "[..]));
        assert_eq!(
            hash(&[(b"Dockerfile", b"FROM scratch\n", 0o644)]),
            "2e5561f045692a65c4b9e49a83bc573091e5df8fbdd7b5733a7eaec6c9a62db5"
        );
        let (hundred, more) = ("d/".repeat(49) + "xy", "d/".repeat(49) + "xyz");
        let names: [&[u8]; 5] = [
            hundred.as_bytes(),
            more.as_bytes(),
            "Gr\u{fc}\u{df}e \u{1f600}.txt".as_bytes(),
            b"caf\xe9/\xff\xfe",
            b"bin/run",
        ];
        let files = names.map(|name| (name, &b"0123456789"[..], 0o755));
        assert_eq!(
            hash(&files),
            "4749c9448bfbd6da79381bb2e185b55d98b1078fbe50db420650d63cbda25265"
        );
        // A record whose length field adds a digit.
        let (short, long) = (b"n".repeat(989), b"n".repeat(990));
        let full = [0x5a; 512].repeat(20);
        assert_eq!(
            hash(&[(&short, &full, 0o644), (&long, b"", 0o644)]),
            "01bd34f2805d25a7db7f8b1344a9e05be9bd16444a38980376deaec6dcdfc283"
        );
    }

    #[test]
    fn sizes_are_padded_to_blocks_and_archives_to_records() {
        assert_eq!([0, 1, 511, 512, 513].map(padding), [0, 511, 1, 0, 511]);
        assert_eq!([0, 9216, 9217, 10_240].map(end), [10_240, 1024, 11_263, 10_240]);
        assert_eq!(&header(b"x", 0o77_777_777_777, 0)[124..136], b"77777777777\0");
    }
}
