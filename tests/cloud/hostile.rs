//! Malicious archives.

use std::fs;

use serde_json::Value;

use crate::support::cloud::{DataDir, TestCloud, gzip};

/// Appends a tar entry that no regular packer would write.
fn put(archive: &mut Vec<u8>, name: &[u8], flag: u8, target: &[u8], data: &[u8]) {
    header(archive, name, flag, target, data.len() as u64);
    archive.extend(data);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

fn header(archive: &mut Vec<u8>, name: &[u8], flag: u8, target: &[u8], size: u64) {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[156] = flag;
    block[157..157 + target.len()].copy_from_slice(target);
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].copy_from_slice(b"        ");
    let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.extend(block);
}

/// An archive of a build file and these entries: name, type, target.
fn with(entries: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
    let mut plain = Vec::new();
    put(&mut plain, b"Dockerfile", b'0', b"", b"FROM scratch\n");
    for (name, flag, target) in entries {
        let data: &[u8] = if *flag == b'0' { b"hostile" } else { b"" };
        put(&mut plain, name, *flag, target, data);
    }
    plain.resize(plain.len() + 1024, 0);
    gzip(&plain)
}

/// A service whose command creates a witness file and succeeds.
fn service(data: &DataDir, options: &[&str]) -> TestCloud {
    let script = format!(
        "touch {}; echo '{{\"imageUri\":\"a\",\"imageSizeBytes\":1}}'",
        data.path().join("witness").display()
    );
    TestCloud::start(data, &[options, &["--", "sh", "-c", &script]].concat())
}

/// Builds an archive that is rejected before the command starts; returns the error.
fn refused(data: &DataDir, cloud: &TestCloud, archive: &[u8]) -> String {
    let build: Value = cloud.ended(&cloud.build(archive));
    assert_eq!(build["status"], "failed", "{build:#}");
    assert!(!data.path().join("witness").exists(), "the command has run: {build:#}");
    data.wait_for_empty_scratch();
    build["errorMessage"].as_str().expect("a reason").to_owned()
}

/// I-13, I-17, C-059: entries that lead outside, or of unsupported types, are rejected by name;
/// nothing is written outside.
#[test]
fn hostile_entries_are_rejected() {
    let data = DataDir::new();
    let cloud = service(&data, &[]);
    let absolute = data.path().join("outside");
    let absolute = absolute.to_str().expect("UTF-8");
    let long: Vec<u8> = b"../".iter().cycle().take(90).copied().collect();
    for (entries, expected) in [
        (&[(absolute.as_bytes(), b'0', &b""[..])][..], "its name is absolute"),
        (
            &[(b"../outside", b'0', b"")],
            "the entry `../outside` is refused: its name has a `..` component",
        ),
        (&[(b"a/../../../../outside", b'0', b"")], "has a `..` component"),
        (&[(&long, b'5', b"")], "has a `..` component"),
        (
            &[(b"a\0b", b'0', b"")],
            "the entry `a\\0b` is refused: its name or its target has a NUL inside",
        ),
        (
            &[(b"l", b'2', b"/etc/passwd")],
            "the entry `l` is refused: it is a link to `/etc/passwd`, which leads out",
        ),
        (&[(b"l", b'2', b"../outside")], "which leads out"),
        (&[(b"l", b'1', absolute.as_bytes())], "which leads out"),
        (&[(b"l", b'1', b"../../lock")], "which leads out"),
        (
            &[(b"d/up", b'2', b".."), (b"l", b'2', b"d/up/../x")],
            "the entry `l` is refused",
        ),
        (
            &[(b"a", b'2', b"d/.."), (b"d", b'2', b".")],
            "the entry `a` is refused: it is a link to `d/..`",
        ),
        (
            &[(b"l", b'2', b"d"), (b"d", b'5', b""), (b"l/f", b'0', b"")],
            "the entry `l/f` is refused: it writes through the link `l`",
        ),
        (
            &[(b"l", b'2', b"Dockerfile"), (b"l", b'0', b"")],
            "the entry `l` is refused: a link of this name is there already",
        ),
        (
            &[(b"l", b'2', b"Dockerfile"), (b"h", b'1', b"l")],
            "writes through the link `l`",
        ),
        (
            &[(b"device", b'3', b"")],
            "the entry `device` is refused: it is a character device",
        ),
        (&[(b"disk", b'4', b"")], "it is a block device"),
        (&[(b"pipe", b'6', b"")], "the entry `pipe` is refused: it is a FIFO"),
        (
            &[(b"\x1b[2J", b'S', b"")],
            "the entry `\\u{1b}[2J` is refused: it is a sparse file",
        ),
    ] {
        let error = refused(&data, &cloud, &with(entries));
        assert!(error.starts_with("unpack: ") && error.contains(expected), "{error}");
    }
    assert!(!data.path().join("outside").exists());
    assert!(!data.path().parent().expect("a folder").join("outside").exists());
}

/// I-17: damaged archives, and one without its build file.
#[test]
fn damaged_archives_are_rejected() {
    let data = DataDir::new();
    let cloud = service(&data, &[]);
    let whole = with(&[(b"src/main", b'0', b"")]);
    let mut changed = whole.clone();
    let at = changed.len() - 6;
    changed[at] ^= 1;
    let mut no_file = Vec::new();
    put(&mut no_file, b"dockerfile", b'0', b"", b"");
    let mut broken = Vec::new();
    put(&mut broken, b"Dockerfile", b'0', b"", b"");
    broken.extend([b'x'; 512]);
    for (archive, expected) in [
        (
            whole[..whole.len() / 2].to_vec(),
            "unpack: the archive is damaged: it ends too early",
        ),
        (changed, "unpack: the archive is damaged: its checksum is wrong"),
        (
            [&whole[..], b"more"].concat(),
            "unpack: the archive is damaged: something that is not gzip follows its end",
        ),
        (
            gzip(&broken),
            "unpack: the archive is damaged: a header's checksum is wrong (in or after `Dockerfile`)",
        ),
        (
            gzip(&no_file),
            "unpack: the build file `Dockerfile` is not in the archive",
        ),
        (gzip(b""), "unpack: the build file `Dockerfile` is not in the archive"),
    ] {
        assert_eq!(refused(&data, &cloud, &archive), expected);
    }
    let build = cloud.ended(&cloud.build(&[whole, gzip(&[0; 512])].concat()));
    assert_eq!(build["status"], "success", "two members are one archive: {build:#}");
}

/// A gzip member of a megabyte of zeros.
fn zeros() -> Vec<u8> {
    gzip(&vec![0; 1 << 20])
}

/// I-18: decompression bombs stop at the limit with bounded memory: by declared size, trailing
/// data, and number of entries.
#[test]
fn decompression_bombs_are_rejected_in_bounded_memory() {
    let data = DataDir::new();
    let cloud = service(&data, &["--max-unpacked", "96m", "--max-entries", "1000"]);
    let small = cloud.ended(&cloud.build(&with(&[])));
    assert_eq!(small["status"], "success");
    fs::remove_file(data.path().join("witness")).expect("it has run");
    let before = cloud.runner.peak_kib();
    let file_of = |megabytes: u64| {
        let mut plain = Vec::new();
        put(&mut plain, b"Dockerfile", b'0', b"", b"FROM scratch\n");
        header(&mut plain, b"big", b'0', b"", megabytes << 20);
        [gzip(&plain), zeros().repeat(megabytes as usize), gzip(&[0; 1024])].concat()
    };
    let stated = refused(&data, &cloud, &file_of(97));
    assert_eq!(
        stated,
        "unpack: the entry `big` is refused: its 101711872 bytes are more than may be unpacked, 100663296 (`--max-unpacked`)"
    );
    let tail = refused(&data, &cloud, &[with(&[]), zeros().repeat(200)].concat());
    assert_eq!(
        tail,
        "unpack: the archive unpacks to more than 100663296 bytes (`--max-unpacked`)"
    );
    let mut many = Vec::new();
    put(&mut many, b"Dockerfile", b'0', b"", b"");
    for at in 0..20_000 {
        put(&mut many, format!("{at}").as_bytes(), b'0', b"", b"");
    }
    assert_eq!(
        refused(&data, &cloud, &gzip(&many)),
        "unpack: the archive has more than 1000 entries (`--max-entries`)"
    );
    let fits = cloud.ended(&cloud.build(&file_of(90)));
    assert_eq!(fits["status"], "success", "{fits:#}");
    let grown = cloud.runner.peak_kib() - before;
    assert!(grown < 32 * 1024, "{grown} KiB more than for a small archive");
}
