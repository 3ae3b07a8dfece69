//! Tests of archive validation.

use std::io::Write as _;

use super::*;
use crate::proto::chunked::ChunkedReader;

const BOUNDS: UnpackLimits = UnpackLimits {
    bytes_max: 1 << 20,
    entries_max: 100,
};

/// An entry of a test archive.
struct Item<'a> {
    name: &'a [u8],
    flag: u8,
    target: &'a [u8],
    data: &'a [u8],
    mode: u32,
}

fn item<'a>(name: &'a str, flag: u8, target: &'a str, data: &'a [u8]) -> Item<'a> {
    Item {
        name: name.as_bytes(),
        flag,
        target: target.as_bytes(),
        data,
        mode: 0o644,
    }
}

fn file(name: &str) -> Item<'_> {
    item(name, b'0', "", b"x")
}

fn dir(name: &str) -> Item<'_> {
    item(name, b'5', "", b"")
}

fn link<'a>(name: &'a str, target: &'a str) -> Item<'a> {
    item(name, b'2', target, b"")
}

fn hard<'a>(name: &'a str, target: &'a str) -> Item<'a> {
    item(name, b'1', target, b"")
}

/// Writes a tar archive, with GNU headers for names that are long or contain a NUL.
fn tar(items: &[Item]) -> Vec<u8> {
    let mut archive = Vec::new();
    for item in items {
        for (flag, text) in [(b'L', item.name), (b'K', item.target)] {
            if text.len() > 100 {
                put(&mut archive, b"long", flag, b"", text, 0);
            }
        }
        let short = |text: &[u8]| text[..text.len().min(100)].to_vec();
        put(
            &mut archive,
            &short(item.name),
            item.flag,
            &short(item.target),
            item.data,
            item.mode,
        );
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

fn put(archive: &mut Vec<u8>, name: &[u8], flag: u8, target: &[u8], data: &[u8], mode: u32) {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(format!("{mode:07o}\0").as_bytes());
    block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    block[136..148].copy_from_slice(b"00000000144\0");
    block[156] = flag;
    block[157..157 + target.len()].copy_from_slice(target);
    block[257..265].copy_from_slice(b"ustar  \0");
    block[148..156].copy_from_slice(b"        ");
    let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.extend(block);
    archive.extend(data);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(data).expect("memory");
    packer.finish().expect("memory")
}

/// Unpacks bytes in chunks. Returns the operations and the length of each file's data.
fn unpack_bytes(
    packed: &[u8],
    step: usize,
    bounds: UnpackLimits,
    build_file: &str,
) -> Result<(Vec<ExtractOp>, UnpackStats), ArchiveError> {
    let (mut makes, mut data) = (Vec::new(), [0; 700]);
    let mut all = || {
        let mut unpacker = Unpacker::new(ChunkedReader(packed, step), bounds)?;
        while let Some(make) = unpacker.next_op()? {
            let mut owed = if let ExtractOp::File { size, .. } = make {
                size
            } else {
                0
            };
            makes.push(make);
            loop {
                match unpacker.read(&mut data)? {
                    0 => break assert_eq!(owed, 0, "all of a file comes before the next entry"),
                    count => owed -= count as u64,
                }
            }
        }
        unpacker.finish(build_file)
    };
    match all() {
        Ok(sum) => Ok((makes, sum)),
        Err(UnpackError::Refused(refusal)) => Err(refusal),
        Err(UnpackError::Read(error)) => panic!("memory does not fail: {error}"),
    }
}

fn unpack(items: &[Item]) -> Result<Vec<ExtractOp>, ArchiveError> {
    let with_file: Vec<u8> = tar(items);
    let packed = gzip(&with_file);
    let build_file = items.iter().find(|item| item.flag == b'0').map_or("none", |item| {
        std::str::from_utf8(item.name).expect("names of build files are text")
    });
    unpack_bytes(&packed, 1000, BOUNDS, build_file).map(|(makes, _)| makes)
}

/// Returns the error for an archive that is valid without the given items.
#[track_caller]
fn refused(items: &[Item]) -> String {
    match unpack(items) {
        Ok(makes) => panic!("taken: {makes:?}"),
        Err(refusal) => refusal.to_string(),
    }
}

fn paths(makes: &[ExtractOp]) -> Vec<String> {
    let path = |make: &ExtractOp| match make {
        ExtractOp::Dir { path, .. } => format!("{}/", escape_name(path)),
        ExtractOp::File { path, .. } => escape_name(path),
        ExtractOp::Symlink { path, target } => format!("{} -> {}", escape_name(path), escape_name(target)),
        ExtractOp::HardLink { path, target, .. } => format!("{} = {}", escape_name(path), escape_name(target)),
    };
    makes.iter().map(path).collect()
}

/// I-17: files, directories and inner links are accepted; implied directories come first, and names
/// are normalized.
#[test]
fn entries_inside_the_tree_are_accepted() {
    let makes = unpack(&[
        file("Dockerfile"),
        dir("./"),
        dir("."),
        dir("src/"),
        file("./src//lib/./main.py"),
        link("src/up", "../Dockerfile"),
        link("src/here", "."),
        link("later", "not/there/../yet"),
        hard("again", "./src/lib/main.py"),
        link("src/lib/deep", "../../src/here/lib/../up"),
        item("old-folder/", 0, "", b""),
        file("src/lib/..."),
        file("caf\u{e9}"),
    ]);
    assert_eq!(
        paths(&makes.expect("it is taken")),
        [
            "Dockerfile",
            "src/",
            "src/lib/",
            "src/lib/main.py",
            "src/up -> ../Dockerfile",
            "src/here -> .",
            "later -> not/there/../yet",
            "again = src/lib/main.py",
            "src/lib/deep -> ../../src/here/lib/../up",
            "old-folder/",
            "src/lib/...",
            "caf\u{e9}",
        ]
    );
}

/// I-17: dangerous mode bits are dropped, and the owner keeps access.
#[test]
fn dangerous_mode_bits_are_dropped() {
    let with = |flag: u8, mode: u32| {
        let item = Item {
            mode,
            ..item("f", flag, "", b"")
        };
        let makes = unpack(&[file("Dockerfile"), item]).expect("it is taken");
        match makes[1] {
            ExtractOp::Dir { mode, .. } | ExtractOp::File { mode, .. } => mode,
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(with(b'0', 0o6755), 0o755);
    assert_eq!(with(b'0', 0), 0o600);
    assert_eq!(with(b'0', 0o7777), 0o777);
    assert_eq!(with(b'5', 0o1777), 0o777);
    assert_eq!(with(b'5', 0o2), 0o702);
}

/// The last entry of a name wins. Hard links to the earlier one keep its content.
#[test]
fn a_repeated_name_replaces_the_file() {
    let makes = unpack(&[
        file("a"),
        hard("b", "a"),
        file("a"),
        hard("b", "a"),
        hard("a", "a"),
        dir("d"),
        dir("d"),
    ]);
    let exists: Vec<bool> = makes
        .expect("it is taken")
        .iter()
        .map(|make| match make {
            ExtractOp::Dir { exists, .. } | ExtractOp::File { exists, .. } | ExtractOp::HardLink { exists, .. } => {
                *exists
            }
            ExtractOp::Symlink { .. } => false,
        })
        .collect();
    assert_eq!(exists, [false, false, true, true, false, true]);
}

/// I-17: entries that would write outside, or of other types, are rejected by name.
#[test]
fn hostile_entries_are_rejected_by_name() {
    let long_component = format!("d/{}", "n".repeat(UNPACK_COMPONENT_BYTES_MAX + 1));
    let deep = "d/".repeat(UNPACK_DEPTH_MAX) + "f";
    let long_path = "d/".repeat(UNPACK_PATH_BYTES_MAX / 2 + 1);
    for (items, expected) in [
        (
            vec![file("/etc/cron.d/x")],
            "the entry `/etc/cron.d/x` is refused: its name is absolute",
        ),
        (
            vec![file("../x")],
            "the entry `../x` is refused: its name has a `..` component",
        ),
        (vec![file("a/../../x")], "`..` component"),
        (vec![file("a/..")], "`..` component"),
        (vec![dir("..")], "`..` component"),
        (vec![file("")], "it has no name"),
        (vec![file(".")], "it has no name"),
        (
            vec![file("a\0b")],
            "the entry `a\\0b` is refused: its name or its target has a NUL inside",
        ),
        (
            vec![file(&long_component)],
            "a component of its name has more than 255 bytes",
        ),
        (vec![file(&deep)], "it is more than 256 folders deep"),
        (vec![file(&long_path)], "more than 4095 bytes"),
        (
            vec![item("dev", b'3', "", b"")],
            "the entry `dev` is refused: it is a character device",
        ),
        (vec![item("dev", b'4', "", b"")], "a block device"),
        (
            vec![item("pipe", b'6', "", b"")],
            "the entry `pipe` is refused: it is a FIFO",
        ),
        (vec![item("s", b'S', "", b"")], "a sparse file"),
        (vec![item("m", b'M', "", b"")], "of several volumes"),
        (vec![item("v", b'V', "", b"")], "the label of a volume"),
        (
            vec![item("q", b'?', "", b"")],
            "the entry `q` is refused: its type, `?`, is unknown",
        ),
        (
            vec![link("l", "/etc/passwd")],
            "the entry `l` is refused: it is a link to `/etc/passwd`, which leads out of the archive",
        ),
        (vec![link("l", "..")], "which leads out"),
        (vec![link("d/l", "../../x")], "which leads out"),
        (vec![link("l", "d/../../l")], "which leads out"),
        (vec![link("l", "")], "it is a link to nothing"),
        (vec![link("l", "a\0b")], "a NUL inside"),
        (
            vec![link("d/up", ".."), link("l", "d/up/..")],
            "the entry `l` is refused: it is a link to `d/up/..`, which leads out",
        ),
        (
            vec![link("l", "."), file("l/f")],
            "the entry `l/f` is refused: it writes through the link `l`",
        ),
        (vec![link("l", "nothing"), dir("l/d")], "it writes through the link `l`"),
        (
            vec![link("l", "f"), file("l")],
            "the entry `l` is refused: a link of this name is there already",
        ),
        (vec![link("l", "f"), link("l", "g")], "a link of this name"),
        (vec![link("l", "f"), dir("l")], "a link of this name"),
        (vec![dir("d"), file("d")], "a folder of this name"),
        (vec![dir("d"), link("d", "x")], "a folder of this name"),
        (vec![file("f"), dir("f")], "a file of this name"),
        (vec![file("f"), link("f", "x")], "a file of this name"),
        (
            vec![file("f"), file("f/g")],
            "the entry `f/g` is refused: `f` is a file, not a folder",
        ),
        (
            vec![hard("h", "/etc/passwd")],
            "the entry `h` is refused: it is a link to `/etc/passwd`, which leads out",
        ),
        (vec![hard("h", "../x")], "which leads out"),
        (vec![hard("h", "Dockerfile/../../x")], "which leads out"),
        (
            vec![hard("h", "later"), file("later")],
            "it is a hard link to `later`, and no file before it has that name",
        ),
        (vec![dir("d"), hard("h", "d")], "no file before it"),
        (vec![hard("h", "Dockerfile/x")], "no file before it"),
        (vec![hard("h", ".")], "no file before it"),
        (vec![hard("h", "")], "it is a link to nothing"),
        (vec![hard("h", "x\0y")], "a NUL inside"),
        (
            vec![link("l", "Dockerfile"), hard("h", "l")],
            "it writes through the link `l`",
        ),
        (
            vec![dir("d"), file("d/f"), link("l", "d"), hard("h", "l/f")],
            "it writes through the link `l`",
        ),
    ] {
        let mut all = vec![file("Dockerfile")];
        all.extend(items);
        let refusal = refused(&all);
        assert!(refusal.contains(expected), "{refusal:?} instead of {expected:?}");
    }
}

/// I-17: links are checked again at the end.
#[test]
fn later_links_are_checked_against_earlier_ones() {
    let refusal = refused(&[file("Dockerfile"), link("a", "d/.."), link("d", ".")]);
    assert!(
        refusal.starts_with("the entry `a` is refused: it is a link to `d/..`"),
        "{refusal}"
    );
    let in_folder = refused(&[file("Dockerfile"), link("x/a", "b/../.."), link("x/b", "..")]);
    assert!(in_folder.starts_with("the entry `x/a`"), "{in_folder}");
    let stays = unpack(&[file("Dockerfile"), link("a", "d/.."), dir("d"), link("d/e", "..")]);
    assert!(stays.is_ok());
}

/// Link chains are limited like in the kernel, which also ends loops.
#[test]
fn link_chains_are_limited() {
    let chain = |length: usize| {
        let names: Vec<String> = (0..=length).map(|at| format!("l{at}")).collect();
        let mut items = vec![file("Dockerfile")];
        items.extend((0..length).map(|at| link(&names[at], &names[at + 1])));
        unpack(&items).map(|_| ())
    };
    assert_eq!(chain(UNPACK_LINK_HOPS_MAX), Ok(()));
    let refusal = chain(UNPACK_LINK_HOPS_MAX + 1).expect_err("one too many");
    assert!(
        refusal.to_string().ends_with("it leads through more than 40 links"),
        "{refusal}"
    );
    let ring = refused(&[file("Dockerfile"), link("a", "b"), link("b", "a")]);
    assert!(ring.ends_with("more than 40 links"), "{ring}");
    assert!(refused(&[file("Dockerfile"), link("a", "a")]).ends_with("more than 40 links"));
}

/// The total number of resolution steps is limited.
#[test]
fn link_resolution_steps_are_limited() {
    let mut tree = ContextTree::new(1_000_000);
    let mut ops = VecDeque::new();
    let long = format!("{}l", "./".repeat(2000));
    let mut add_entry = |entry: TarEntry| {
        ops.clear();
        tree.add_entry(&entry, &mut ops)
    };
    let entry = |name: String, target: &str| TarEntry {
        name: name.into_bytes(),
        kind: TarEntryKind::Symlink,
        target: target.as_bytes().to_vec(),
        size: 0,
        mode: 0,
        mtime_s: 0,
    };
    for at in 1..UNPACK_LINK_HOPS_MAX {
        let target = format!("{long}{}", at - 1);
        assert!(add_entry(entry(format!("l{at}"), &target)).is_ok());
    }
    let last = format!("l{}", UNPACK_LINK_HOPS_MAX - 1);
    let mut taken = 0;
    let reason = loop {
        match add_entry(entry(format!("m{taken}"), &last)) {
            Ok(()) => taken += 1,
            Err(EnterError::Entry(reason)) => break reason,
            Err(EnterError::All(refusal)) => panic!("{refusal}"),
        }
    };
    assert_eq!(reason, EntryError::TooManySteps);
    assert!(taken < 200, "{taken}");
}

/// I-17: the build file must be a regular file, possibly behind inner links.
#[test]
fn the_build_file_must_exist() {
    let packed = gzip(&tar(&[
        file("Dockerfile"),
        file("docker/Dockerfile"),
        link("Containerfile", "docker/Dockerfile"),
        link("dangling", "nowhere"),
        dir("dir"),
    ]));
    let with = |build_file: &str| unpack_bytes(&packed, 100, BOUNDS, build_file).map(|_| ());
    for there in ["Dockerfile", "./docker//Dockerfile", "Containerfile"] {
        assert_eq!(with(there), Ok(()), "{there}");
    }
    for absent in ["dockerfile", "dir", "dangling", "dir/Dockerfile", "Dockerfile/x", "."] {
        let refusal = with(absent).expect_err(absent).to_string();
        assert_eq!(refusal, format!("the build file `{absent}` is not in the archive"));
    }
    let empty = unpack_bytes(&gzip(&[0; 1024]), 100, BOUNDS, "Dockerfile");
    assert!(matches!(empty, Err(ArchiveError::NoBuildFile { .. })));
}

/// I-18: the size limit is exact; a declared size is rejected at once, and trailing data counts.
#[test]
fn unpacked_bytes_are_limited() {
    let plain = tar(&[file("Dockerfile"), item("big", b'0', "", &[0; 5000])]);
    let with = |plain: &[u8], bytes_max: u64| {
        let bounds = UnpackLimits { bytes_max, ..BOUNDS };
        unpack_bytes(&gzip(plain), 50, bounds, "Dockerfile")
    };
    let length = plain.len() as u64;
    let expected = UnpackStats {
        entries: 2,
        bytes: length,
    };
    assert_eq!(with(&plain, length).map(|(_, sum)| sum), Ok(expected));
    let max = length - 1;
    assert_eq!(with(&plain, max), Err(ArchiveError::TooManyBytes { max }));
    let tail = [&plain[..], &[0; 100_000]].concat();
    assert_eq!(with(&tail, length), Err(ArchiveError::TooManyBytes { max: length }));
    let mut stated = tar(&[file("Dockerfile")]);
    stated.truncate(1024);
    put(&mut stated, b"huge", b'0', b"", b"", 0o644);
    stated[1024 + 124..1024 + 136].copy_from_slice(b"77777777777\0");
    stated[1024 + 148..1024 + 156].copy_from_slice(b"        ");
    let sum: u64 = stated[1024..].iter().map(|&byte| u64::from(byte)).sum();
    stated[1024 + 148..1024 + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let refusal = with(&stated, 4096).expect_err("it is stated").to_string();
    assert_eq!(
        refusal,
        "the entry `huge` is refused: its 8589934591 bytes are more than may be unpacked, 4096 (`--max-unpacked`)"
    );
}

/// I-18: entries, implied directories and names are limited.
#[test]
fn entries_are_limited() {
    let names: Vec<String> = (0..BOUNDS.entries_max).map(|at| format!("f{at}")).collect();
    let mut items: Vec<Item> = names.iter().map(|name| file(name)).collect();
    assert!(unpack(&items).is_ok());
    items.push(file("one-more"));
    assert_eq!(unpack(&items), Err(ArchiveError::TooManyEntries { max: 100 }));
    let deep = format!("{}f", "d/".repeat(99));
    assert!(unpack(&[file(&deep)]).is_ok());
    assert_eq!(
        unpack(&[file(&format!("d/{deep}"))]),
        Err(ArchiveError::TooManyEntries { max: 100 })
    );
    let mut tree = ContextTree::new(u64::MAX);
    let mut ops = VecDeque::new();
    let mut entries = 0;
    let refused = loop {
        ops.clear();
        let entry = TarEntry {
            name: format!("{entries:0255}").into_bytes(),
            kind: TarEntryKind::File,
            target: Vec::new(),
            size: 0,
            mode: 0,
            mtime_s: 0,
        };
        match tree.add_entry(&entry, &mut ops) {
            Ok(()) => entries += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, EnterError::All(ArchiveError::TooManyNames)));
    assert_eq!(entries, UNPACK_NAMES_BYTES_MAX / 255);
}

/// I-17: a damaged archive is rejected with the name of the last entry.
#[test]
fn damage_is_reported_with_the_last_entry() {
    let plain = tar(&[file("Dockerfile"), file("src/main.py")]);
    let mut changed = plain.clone();
    changed[1024] ^= 1;
    let refusal = unpack_bytes(&gzip(&changed), 100, BOUNDS, "Dockerfile").expect_err("changed");
    assert_eq!(
        refusal.to_string(),
        "the archive is damaged: a header's checksum is wrong (in or after `Dockerfile`)"
    );
    let cut = unpack_bytes(&gzip(&plain[..1536]), 100, BOUNDS, "Dockerfile").expect_err("cut");
    assert_eq!(
        cut.to_string(),
        "the archive is damaged: it ends too early (in or after `src/main.py`)"
    );
    let packed = gzip(&plain);
    let half = unpack_bytes(&packed[..packed.len() / 2], 100, BOUNDS, "Dockerfile").expect_err("cut");
    assert_eq!(half.to_string(), "the archive is damaged: it ends too early");
    let no_gzip = unpack_bytes(&plain, 100, BOUNDS, "Dockerfile").expect_err("no gzip");
    assert_eq!(no_gzip.to_string(), "the archive is damaged: it is not gzip");
    let no_tar = unpack_bytes(&gzip(&[b'x'; 512]), 100, BOUNDS, "Dockerfile").expect_err("no tar");
    assert_eq!(
        no_tar.to_string(),
        "the archive is damaged: a header's checksum is wrong"
    );
}

/// An escaped name has printable characters only and a limited length.
#[test]
fn names_are_escaped() {
    for (name, expected) in [
        (&b"plain name's"[..], "plain name's"),
        (b"line\nbreak\x1b[31m", "line\\nbreak\\u{1b}[31m"),
        (b"caf\xc3\xa9 \xff\xfe", "caf\u{e9} \\xff\\xfe"),
        ("\u{202e}gpj".as_bytes(), "\\u{202e}gpj"),
        (b"\\", "\\\\"),
    ] {
        assert_eq!(escape_name(name), expected);
    }
    assert_eq!(
        escape_name(&[b'x'; UNPACK_SHOWN_CHARS_MAX]),
        "x".repeat(UNPACK_SHOWN_CHARS_MAX)
    );
    let cut = "x".repeat(UNPACK_SHOWN_CHARS_MAX) + "...";
    assert_eq!(escape_name(&[b'x'; UNPACK_SHOWN_CHARS_MAX + 1]), cut);
    assert_eq!(escape_name(&[b'x'; 100_000]), cut);
}
