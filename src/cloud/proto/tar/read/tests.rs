//! Tests of the tar reader, with archives built block by block.

use super::*;
use crate::proto::chunked::ChunkedReader;

/// Builds a header with a valid checksum.
fn header(name: &[u8], flag: u8, size: &[u8], target: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0000755\0");
    block[124..124 + size.len()].copy_from_slice(size);
    block[136..148].copy_from_slice(b"00000000144 ");
    block[156] = flag;
    block[157..157 + target.len()].copy_from_slice(target);
    block[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut block);
    block
}

fn seal(block: &mut [u8]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Builds a header and a padded body.
fn entry(name: &[u8], flag: u8, body: &[u8]) -> Vec<u8> {
    let mut whole = header(name, flag, format!("{:011o}\0", body.len()).as_bytes(), b"");
    whole.extend(body);
    whole.resize(whole.len().next_multiple_of(BLOCK), 0);
    whole
}

fn record(key: &str, value: &str) -> Vec<u8> {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}").into_bytes()
}

/// Reads an archive in chunks of `step` bytes: each entry with its data.
fn read(archive: &[u8], step: usize) -> Result<Vec<(TarEntry, Vec<u8>)>, TarError> {
    let (mut reader, mut found) = (TarReader::new(ChunkedReader(archive, step)), Vec::new());
    let mut all = || {
        while let Some(entry) = reader.next_entry()? {
            let mut data = Vec::new();
            reader.read_to_end(&mut data)?;
            assert_eq!(entry.size, data.len() as u64);
            found.push((entry, data));
        }
        Ok(())
    };
    let all: io::Result<()> = all();
    all.map_err(|error| error.downcast().expect("memory does not fail"))?;
    Ok(found)
}

fn one(archive: &[u8]) -> TarEntry {
    let mut found = read(archive, archive.len()).expect("an archive");
    assert_eq!(found.len(), 1);
    found.remove(0).0
}

const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Chunk sizes do not matter, and data after the end is ignored.
#[test]
fn entries_come_with_their_data() {
    let bodies: [&[u8]; 5] = [b"", b"x", &[7; 511], &[8; 512], &[9; 1500]];
    let mut archive = Vec::new();
    for (at, body) in bodies.iter().enumerate() {
        archive.extend(entry(format!("d/{at}").as_bytes(), b'0', body));
    }
    for tail in [
        &b""[..],
        &END[..BLOCK],
        &END,
        &[&END[..], b"and something else"].concat(),
    ] {
        let archive = [&archive, tail].concat();
        for step in [1, 13, 512, archive.len()] {
            let found = read(&archive, step).expect("an archive");
            assert_eq!(found.len(), bodies.len());
            for (at, (entry, data)) in found.iter().enumerate() {
                assert_eq!(entry.name, format!("d/{at}").into_bytes());
                assert_eq!(data, bodies[at]);
                assert_eq!(
                    (entry.kind, entry.mode, entry.mtime_s),
                    (TarEntryKind::File, 0o755, 100)
                );
            }
        }
    }
    assert_eq!(read(&END, 512), Ok(Vec::new()));
    assert_eq!(read(b"", 512), Ok(Vec::new()));
}

#[test]
fn entry_types_are_recognized() {
    let kind = |flag: u8| one(&header(b"name", flag, b"0", b"target")).kind;
    for (flag, expected) in [
        (0, TarEntryKind::File),
        (b'0', TarEntryKind::File),
        (b'7', TarEntryKind::File),
        (b'1', TarEntryKind::HardLink),
        (b'2', TarEntryKind::Symlink),
        (b'3', TarEntryKind::CharacterDevice),
        (b'4', TarEntryKind::BlockDevice),
        (b'5', TarEntryKind::Dir),
        (b'6', TarEntryKind::Fifo),
        (b'S', TarEntryKind::Sparse),
        (b'M', TarEntryKind::Other(b'M')),
        (b'V', TarEntryKind::Other(b'V')),
        (b'!', TarEntryKind::Other(b'!')),
    ] {
        assert_eq!(kind(flag), expected, "{flag}");
    }
    assert_eq!(one(&header(b"folder/", 0, b"0", b"")).kind, TarEntryKind::Dir);
    assert_eq!(one(&header(b"link", b'2', b"0", b"../x")).target, b"../x");
    assert_eq!(one(&header(b"file", b'0', b"0", b"../x")).target, b"");
    let folder_with_size = [header(b"d", b'5', b"00000001000\0", b""), entry(b"f", b'0', b"x")].concat();
    assert_eq!(
        read(&folder_with_size, 512).map(|found| found.len()),
        Ok(2),
        "nothing follows a folder"
    );
}

/// A split name, a name of exactly 100 bytes, and GNU's format without a prefix.
#[test]
fn split_names_are_joined() {
    let name = [b'n'; 100];
    assert_eq!(one(&header(&name, b'0', b"0", b"")).name, name);
    let mut block = header(b"name", b'0', b"0", b"");
    block[345..351].copy_from_slice(b"prefix");
    seal(&mut block);
    assert_eq!(one(&block).name, b"prefix/name");
    block[257..265].copy_from_slice(b"ustar  \0");
    seal(&mut block);
    assert_eq!(one(&block).name, b"name");
    assert_eq!(
        one(&header(b"a\0b", b'0', b"0", b"")).name,
        b"a\0b",
        "rejected when it is extracted"
    );
}

#[test]
fn numbers_are_octal_or_binary() {
    let size = |field: &[u8; 12]| number(field);
    assert_eq!(size(b"00000000017\0"), Some(15));
    assert_eq!(size(b"         17 "), Some(15));
    assert_eq!(size(b"777777777777"), Some(0o777_777_777_777));
    assert_eq!(size(&[0; 12]), Some(0));
    assert_eq!(size(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1]), Some(0x2_0000_0001));
    assert_eq!(size(&[0x80, 0, 0, 0xff, 255, 255, 255, 255, 255, 255, 255, 255]), None);
    assert_eq!(size(&[0xff; 12]), None, "less than nothing");
    for wrong in [
        b"8          \0",
        b"1x         \0",
        b"-1         \0",
        b"1\x001        \0",
    ] {
        assert_eq!(size(wrong), None);
    }
    assert_eq!(
        read(&header(b"f", b'0', b"0x10", b""), 512),
        Err(TarError::Number("size"))
    );
}

/// Extension headers apply to the next file across other headers; POSIX names win over GNU's;
/// global values persist.
#[test]
fn extended_headers_belong_to_the_next_file() {
    let long = "long/".repeat(60);
    let pax = [
        record("path", &long),
        record("mtime", "1700000000.5"),
        record("comment", "x=y"),
    ]
    .concat();
    let archive = [
        entry(b"pax_global_header", b'g', &record("comment", "of a commit")),
        entry(b"././@PaxHeader", b'x', &pax),
        entry(b"././@LongLink", b'L', b"gnu\0"),
        entry(b"././@LongLink", b'K', b"gnu target\0"),
        header(b"short", b'2', b"0", b"target"),
        header(b"next", b'2', b"0", b"target"),
    ]
    .concat();
    for step in [1, 100, archive.len()] {
        let found = read(&archive, step).expect("an archive");
        let (first, next) = (&found[0].0, &found[1].0);
        assert_eq!((&*first.name, &*first.target), (long.as_bytes(), &b"gnu target"[..]));
        assert_eq!(first.mtime_s, 1_700_000_000);
        assert_eq!((&*next.name, &*next.target), (&b"next"[..], &b"target"[..]));
    }
    let sized = [
        entry(b"x", b'x', &record("size", "3")),
        header(b"f", b'0', b"00000001000\0", b""),
        b"abc".to_vec(),
        vec![0; 509],
    ]
    .concat();
    assert_eq!(read(&sized, 512).expect("an archive")[0].1, b"abc");
    let global = [
        entry(b"g", b'g', &record("mtime", "7")),
        entry(b"x", b'x', &[record("mtime", "8"), record("mtime", "")].concat()),
        header(b"f", b'0', b"0", b""),
    ]
    .concat();
    assert_eq!(one(&global).mtime_s, 7, "an empty value takes back");
    let sparse = [
        entry(b"x", b'x', &record("GNU.sparse.major", "1")),
        header(b"f", b'0', b"0", b""),
    ]
    .concat();
    assert_eq!(one(&sparse).kind, TarEntryKind::Sparse);
    let before_1970 = [entry(b"x", b'x', &record("mtime", "-5")), header(b"f", b'0', b"0", b"")].concat();
    assert_eq!(one(&before_1970).mtime_s, 0);
}

#[test]
fn broken_extended_headers_are_rejected() {
    let with = |body: &[u8]| read(&[entry(b"x", b'x', body), header(b"f", b'0', b"0", b"")].concat(), 512);
    for body in [
        &b"12 path=name"[..],
        b"14 path=name\n",
        b"11 path=name\n",
        b"0 path=name\n",
        b"3 \n",
        b"path=name\n",
        b"x path=name\n",
        b"99999999999999999999999 a=b\n",
        b"6 abc\n",
        b"\0",
    ] {
        assert_eq!(with(body), Err(TarError::PaxHeader), "{}", body.escape_ascii());
    }
    assert_eq!(with(b"11 size=-1\n"), Err(TarError::Number("size")));
    assert_eq!(
        with(&record("size", "99999999999999999999")),
        Err(TarError::Number("size"))
    );
    let most = record("comment", &"x".repeat(TAR_EXTENSION_BYTES_MAX as usize - 15));
    assert_eq!(most.len() as u64, TAR_EXTENSION_BYTES_MAX);
    assert!(with(&most).is_ok());
    assert_eq!(with(&[&most[..], b"x"].concat()), Err(TarError::Long));
    let orphan = entry(b"x", b'x', &record("path", "unused"));
    assert_eq!(read(&orphan, 512), Err(TarError::Truncated));
    assert_eq!(read(&[&orphan[..], &END].concat(), 512), Err(TarError::Truncated));
}

/// I-17: truncation and damaged headers are detected.
#[test]
fn damage_is_detected() {
    let archive = [entry(b"one", b'0', &[1; 600]), entry(b"two", b'0', b"2")].concat();
    for end in 1..archive.len() {
        let is_between = end == 1536;
        assert_eq!(read(&archive[..end], 512).is_ok(), is_between, "cut at {end}");
    }
    for at in 0..BLOCK {
        let mut changed = archive.clone();
        changed[at] ^= 1;
        assert!(read(&changed, 512).is_err(), "changed at {at}");
    }
    let mut signed = header(&[0xe9; 4], b'0', b"0", b"");
    signed[148..156].copy_from_slice(b"        ");
    let sum: i64 = signed.iter().map(|&byte| i64::from(byte as i8)).sum();
    signed[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    assert_eq!(one(&signed).name, [0xe9; 4], "as old programs count");
}
