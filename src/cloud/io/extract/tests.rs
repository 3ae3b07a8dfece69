//! Tests of extraction to a real disk.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::io::test_dir::TestDir;

const BOUNDS: UnpackLimits = UnpackLimits {
    bytes_max: 1 << 24,
    entries_max: 1000,
};

/// Appends an entry to a tar archive.
fn put(archive: &mut Vec<u8>, name: &str, flag: u8, target: &str, data: &[u8], mode: u32) {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(format!("{mode:07o}\0").as_bytes());
    block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    block[136..148].copy_from_slice(b"00000000144\0");
    block[156] = flag;
    block[157..157 + target.len()].copy_from_slice(target.as_bytes());
    block[257..265].copy_from_slice(b"ustar\x0000");
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

fn run(scratch: &TestDir, plain: &[u8]) -> Result<UnpackStats, ExtractError> {
    extract(&mut &*gzip(plain), scratch.path(), BOUNDS, "Dockerfile", &|| false)
}

/// I-17: the files equal the archive; dangerous mode bits are dropped for any umask.
#[test]
fn an_archive_is_extracted() {
    let scratch = TestDir::create();
    let big: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
    let mut plain = Vec::new();
    put(&mut plain, "Dockerfile", b'0', "", b"first", 0o644);
    put(&mut plain, "src/", b'5', "", b"", 0o1555);
    put(&mut plain, "src/deep/er/main", b'0', "", &big, 0o6755);
    put(&mut plain, "src/empty", b'0', "", b"", 0);
    put(&mut plain, "src/link", b'2', "../Dockerfile", b"", 0o777);
    put(&mut plain, "again", b'1', "Dockerfile", b"", 0o644);
    put(&mut plain, "Dockerfile", b'0', "", b"second", 0o664);
    put(&mut plain, "src/also", b'1', "src/deep/er/main", b"", 0o644);
    put(&mut plain, "again", b'1', "src/empty", b"", 0o644);
    put(&mut plain, "kept", b'1', "Dockerfile", b"", 0o644);
    put(&mut plain, "src", b'5', "", b"", 0o750);
    let sum = run(&scratch, &plain).expect("it is unpacked");
    assert_eq!((sum.entries, sum.bytes), (13, plain.len() as u64));
    let path = |name: &str| scratch.path().join(name);
    let mode = |name: &str| fs::symlink_metadata(path(name)).expect("it is there").mode() & 0o7777;
    assert_eq!(fs::read(path("Dockerfile")).expect("a file"), b"second");
    assert_eq!(fs::read(path("src/link")).expect("by its link"), b"second");
    assert!(fs::read(path("src/deep/er/main")).expect("a file") == big);
    assert_eq!(mode("Dockerfile"), 0o664);
    assert_eq!(mode("src/deep/er/main"), 0o755);
    assert_eq!(mode("src/empty"), 0o600);
    assert_eq!(mode("src"), 0o750);
    assert_eq!(mode("src/deep"), 0o755);
    assert_eq!(
        fs::read_link(path("src/link")).expect("a link"),
        Path::new("../Dockerfile")
    );
    let inode = |name: &str| fs::metadata(path(name)).expect("it is there").ino();
    assert_eq!(inode("src/also"), inode("src/deep/er/main"));
    assert_eq!(inode("again"), inode("src/empty"));
    assert_eq!(inode("kept"), inode("Dockerfile"));
    assert_eq!(fs::metadata(path("Dockerfile")).expect("a file").mtime(), 100);
}

/// I-17: a link on the disk is not followed even if the archive does not contain it.
#[test]
fn an_existing_link_is_not_followed() {
    let scratch = TestDir::create();
    let outside = TestDir::create();
    std::os::unix::fs::symlink(outside.path(), scratch.path().join("src")).expect("a link");
    let mut plain = Vec::new();
    put(&mut plain, "Dockerfile", b'0', "", b"x", 0o644);
    put(&mut plain, "src/main", b'0', "", b"x", 0o644);
    let fault = run(&scratch, &plain).expect_err("there is something");
    assert!(fault.to_string().starts_with("making `src`: "), "{fault}");
    assert_eq!(fs::read_dir(outside.path()).expect("a folder").count(), 0);
}

/// I-17, I-18: errors name the entry.
#[test]
fn errors_name_the_entry() {
    let scratch = TestDir::create();
    let mut plain = Vec::new();
    // A name of its own, since the folder above is shared.
    let folder = scratch.path().file_name().and_then(|name| name.to_str()).expect("text");
    let outside = format!("../{folder}-x");
    put(&mut plain, &outside, b'0', "", b"x", 0o644);
    let refused = run(&scratch, &plain).expect_err("it leads out");
    assert_eq!(
        refused.to_string(),
        format!("the entry `{outside}` is refused: its name has a `..` component")
    );
    assert!(!scratch.path().join(&outside).exists());
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let fault = extract(&mut Broken, scratch.path(), BOUNDS, "Dockerfile", &|| false).expect_err("it is broken");
    assert_eq!(fault.to_string(), "reading the archive: the disk is gone");
    let no_folder = extract(&mut io::empty(), Path::new("/no/such"), BOUNDS, "x", &|| false);
    assert!(matches!(no_folder, Err(ExtractError::Create { .. })));
    let stopped = extract(&mut Broken, scratch.path(), BOUNDS, "Dockerfile", &|| true);
    assert!(matches!(stopped, Err(ExtractError::Stopped)));
    let mut huge = Vec::new();
    put(&mut huge, "Dockerfile", b'0', "", &vec![0; 20 << 20], 0o644);
    let bomb = run(&scratch, &huge).expect_err("it is too much");
    assert!(bomb.to_string().contains("are more than may be unpacked"), "{bomb}");
    assert!(!scratch.path().join("Dockerfile").exists(), "before the first byte");
}
