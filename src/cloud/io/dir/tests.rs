//! Tests of directory handles, on trees as builder commands leave them: deep, unreadable, full of
//! links.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;

use rustix::mount::MountPropagationFlags;
use rustix::thread::UnshareFlags;

use super::*;
use crate::io::test_dir::TestDir;
use crate::skip;

fn cstr(text: &str) -> CString {
    c_name(text.as_bytes()).expect("no NUL")
}

/// No operation follows a link or overwrites a file.
#[test]
fn links_are_not_followed() {
    let scratch = TestDir::create();
    fs::create_dir(scratch.path().join("real")).expect("a folder");
    fs::write(scratch.path().join("file"), "kept").expect("a file");
    symlink("real", scratch.path().join("link")).expect("a link");
    symlink("file", scratch.path().join("to-file")).expect("a link");
    let folder = DirHandle::open(scratch.path()).expect("it is there");
    assert!(DirHandle::open(&scratch.path().join("link")).is_err());
    assert!(folder.open_dir(&cstr("link")).is_err());
    assert!(folder.open_dir(&cstr("real")).is_ok());
    assert!(folder.open_file(&cstr("to-file")).is_err());
    for taken in ["link", "to-file", "file", "real"] {
        assert!(folder.create_file(&cstr(taken)).is_err());
        assert!(folder.create_dir(&cstr(taken)).is_err());
    }
    folder
        .hard_link(&cstr("again"), &folder, &cstr("to-file"))
        .expect("a link to the link");
    let again = fs::symlink_metadata(scratch.path().join("again")).expect("it is there");
    assert!(again.is_symlink(), "the link itself got one more name");
    assert_eq!(fs::read(scratch.path().join("file")).expect("a file"), b"kept");
    assert!(c_name(b"a\0b").is_err());
}

/// A FIFO is not a regular file and does not block.
#[test]
fn only_regular_files_are_read() {
    let scratch = TestDir::create();
    let fifo = scratch.path().join("fifo");
    rustix::fs::mkfifoat(CWD, fifo, Mode::RUSR).expect("a FIFO");
    let folder = DirHandle::open(scratch.path()).expect("it is there");
    assert!(folder.open_file(&cstr("fifo")).is_err());
    assert!(folder.open_file(&cstr(".")).is_err());
}

/// Creates a chain of directories that is deeper than any path.
fn deep(at: &Path, name: &str, depth: usize) {
    let name = cstr(name);
    let mut folder = DirHandle::open(at).expect("it is there");
    for _ in 0..depth {
        folder.create_dir(&name).expect("a folder");
        folder = folder.open_dir(&name).expect("the folder");
        drop(folder.create_file(&cstr("file")).expect("a file"));
    }
}

/// I-12: a tree of any depth and modes is removed; link targets stay.
#[test]
fn trees_of_any_depth_and_mode_are_removed() {
    let scratch = TestDir::create();
    let outside = scratch.path().join("outside");
    fs::create_dir(&outside).expect("a folder");
    fs::write(outside.join("file"), "kept").expect("a file");
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).expect("folders");
    symlink(&outside, tree.join("a/link")).expect("a link");
    symlink("/", tree.join("root")).expect("a link");
    fs::hard_link(outside.join("file"), tree.join("a/b/hard")).expect("a link");
    for at in 0..3 * REMOVE_NAMES_MAX {
        fs::write(tree.join(format!("a/{at}")), "").expect("a file");
    }
    deep(&tree, "d", 10 * REMOVE_DEPTH_MAX);
    deep(&tree, &"n".repeat(200), 3 * REMOVE_DEPTH_MAX);
    // Names that removal itself uses.
    fs::create_dir_all(tree.join(".moved-0/full")).expect("a folder");
    fs::write(tree.join(".moved-1"), "").expect("a file");
    for path in ["a/b", "a", ".moved-0"] {
        fs::set_permissions(tree.join(path), Permissions::from_mode(0o0)).expect("its owner may");
    }
    remove_tree(&tree).expect("it is removed");
    assert!(!tree.exists());
    assert_eq!(fs::read(outside.join("file")).expect("it stays"), b"kept");
    assert_eq!(fs::metadata(outside.join("file")).expect("it stays").nlink(), 1);
    let names: Vec<PathBuf> = fs::read_dir(scratch.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(names, std::slice::from_ref(&outside));
    remove_tree(&tree).expect("what is not there is removed already");
    remove_tree(&scratch.path().join("no/such")).expect("nor is this");
    symlink(&outside, &tree).expect("a link");
    remove_tree(&tree).expect("the link is removed");
    assert!(outside.join("file").exists());
}

/// Runs `work` in a thread with a mount namespace of its own. Does nothing without the right to
/// mount.
fn with_own_mounts(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        // SAFETY: only the mount namespace is unshared, not the table of descriptors.
        let own = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
        let apart = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        match own.and_then(|()| rustix::mount::mount_change("/", apart)) {
            Ok(()) => work(),
            Err(_) => skip::lacks_root("folders with mounts in them", "mounts need root"),
        }
    });
    thread.join().expect("what is asserted holds");
}

fn bind(what: &Path, at: &Path) {
    rustix::mount::mount_bind(what, at).expect("mounts are this thread's own");
}

/// I-12: mounts inside a tree are untouched, and everything else is removed.
#[test]
fn mounts_are_not_removed() {
    let scratch = TestDir::create();
    let (outside, tree) = (scratch.path().join("outside"), scratch.path().join("tree"));
    fs::create_dir(&outside).expect("a folder");
    fs::write(outside.join("file"), "kept").expect("a file");
    fs::set_permissions(&outside, Permissions::from_mode(0o755)).expect("its owner may");
    fs::create_dir_all(tree.join("a/mount")).expect("folders");
    fs::create_dir_all(tree.join("b/c")).expect("folders");
    for at in 0..3 * REMOVE_NAMES_MAX {
        fs::write(tree.join(format!("a/{at}")), "").expect("a file");
    }
    deep(&tree, "d", 3 * REMOVE_DEPTH_MAX);
    let (own_outside, own_tree) = (outside.clone(), tree.clone());
    with_own_mounts(move || {
        let (outside, tree) = (own_outside, own_tree);
        bind(&outside, &tree.join("a/mount"));
        for at in [7, REMOVE_NAMES_MAX + 7, 2 * REMOVE_NAMES_MAX + 7] {
            bind(&outside.join("file"), &tree.join(format!("a/{at}")));
        }
        let error = remove_tree(&tree).expect_err("not all of it can be removed");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
        assert_eq!(fs::read(outside.join("file")).expect("it stays"), b"kept");
        let mode = fs::metadata(&outside).expect("it stays").permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "nor are its rights changed");
        assert_eq!(fs::read_dir(&tree).expect("it stays").count(), 1);
        assert_eq!(fs::read_dir(tree.join("a")).expect("it stays").count(), 4);
        // A mount point itself is not removed.
        let error = remove_tree(&tree.join("a/mount")).expect_err("it is a mount");
        assert!(error.to_string().contains("mounted"), "{error}");
        assert!(outside.join("file").exists());
    });
    assert_eq!(fs::read(outside.join("file")).expect("it stays"), b"kept");
    remove_tree(&tree).expect("nothing is mounted there any more");
    assert!(!tree.exists());
}

/// `clear` keeps the directory, which may be a mount point.
#[test]
fn clear_keeps_the_folder() {
    let scratch = TestDir::create();
    let (disk, at) = (scratch.path().join("disk"), scratch.path().join("at"));
    for path in [&disk, &at] {
        fs::create_dir_all(path.join("a/b")).expect("folders");
    }
    clear(&at).expect("it is emptied");
    assert_eq!(fs::read_dir(&at).expect("it stays").count(), 0);
    let (own_disk, own_at) = (disk.clone(), at.clone());
    with_own_mounts(move || {
        bind(&own_disk, &own_at);
        clear(&own_at).expect("it is emptied");
        assert_eq!(fs::read_dir(&own_disk).expect("it stays").count(), 0);
    });
    clear(&scratch.path().join("no/such")).expect("what is not there is empty");
}
