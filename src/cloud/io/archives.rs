//! Storage of uploaded archives.
//!
//! In: an upload in pieces. Out: a complete, synced archive or nothing: it is written to `tmp/` and
//! then renamed to `archives/{org}/{upload}.tar.gz` ([`ArchiveDir::commit`]). A dropped
//! [`PartialArchive`] is deleted; those of a killed run are deleted at the next start. All calls
//! block. Files are readable by their owner only. Source: decision I-08.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use md5::{Digest as _, Md5};
use sha2::Sha256;

use crate::io::dir;
use crate::proto::build::{ArchiveInfo, Org, UploadRecord};
use crate::proto::grant;
use edge_runner_http::common;
use edge_runner_proto::uuid::Uuid;

/// Bytes of an archive hashed at a time.
const HASH_PIECE_BYTES: usize = 64 * 1024;

/// Bytes written between two syncs.
const UNSYNCED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Stores archives. Calls block.
pub trait ArchiveStore: Send + Sync + 'static {
    /// Returns facts about the archive of an upload, or `None` without an archive. Hashes the file
    /// again if `upload.info` belongs to another file.
    fn head(&self, upload: &UploadRecord) -> io::Result<Option<ArchiveInfo>>;
    /// Opens an archive at its first byte.
    fn open(&self, org: &Org, id: Uuid) -> io::Result<Box<dyn io::Read + Send>>;
    /// Deletes an archive. A missing one is not an error.
    fn delete(&self, org: &Org, id: Uuid) -> io::Result<()>;
}

/// Archives in a folder of the data directory.
#[derive(Debug)]
pub struct ArchiveDir {
    archives: PathBuf,
    tmp: PathBuf,
}

impl ArchiveDir {
    /// Creates missing folders, including the one of images, syncs them, and deletes partial
    /// archives of earlier runs. The caller holds the lock of the data directory.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(data_dir: &Path) -> io::Result<ArchiveDir> {
        let folder = ArchiveDir {
            archives: data_dir.join("archives"),
            tmp: data_dir.join("tmp"),
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder.archives)?;
        // Builder commands have the service's rights and may have put anything here. Names are
        // never reused, so leftovers block no upload.
        let tmp = &folder.tmp;
        // The data directory may be a link, which removal does not follow.
        let emptied = data_dir.canonicalize().and_then(|whole| dir::clear(&whole.join("tmp")));
        if let Err(error) = emptied {
            log::warn!(
                "{}: not everything can be removed: {error}; it stays, and takes space until it is removed by hand",
                tmp.display()
            );
        }
        if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(tmp) {
            log::warn!("{}: {error}; uploads fail until this is a folder", tmp.display());
        }
        // It may fail on a full disk; then the first image creates the folder.
        let _ = DirBuilder::new().mode(0o700).create(data_dir.join("images"));
        // Committed archives must survive with their folder.
        File::open(data_dir)?.sync_all()?;
        Ok(folder)
    }

    /// Creates a partial archive.
    ///
    /// # Errors
    /// The error of the system.
    pub fn create(&self) -> io::Result<PartialArchive> {
        let path = self.tmp.join(format!("{}.part", Uuid::v4(common::random())));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(PartialArchive {
            path: Some(path),
            file,
            hasher: ArchiveHasher::default(),
            bytes: 0,
            unsynced: 0,
        })
    }

    /// Moves a synced archive to its final name, replacing an earlier one, and syncs the folders.
    /// The caller holds the upload's lock.
    ///
    /// # Errors
    /// The error of the system. The earlier archive is intact, unless syncing a folder failed.
    pub fn commit(&self, mut part: PartialArchive, org: &Org, id: Uuid) -> io::Result<()> {
        let folder = self.archives.join(org.as_str());
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if let Some(path) = &part.path {
            fs::rename(path, self.path(org, id))?;
            part.path = None;
        }
        // Another upload may have created the folder without having synced it yet.
        File::open(&folder)?.sync_all()?;
        File::open(&self.archives)?.sync_all()
    }

    pub(super) fn path(&self, org: &Org, id: Uuid) -> PathBuf {
        self.archives.join(grant::archive_key(org, id))
    }
}

impl ArchiveStore for ArchiveDir {
    fn head(&self, upload: &UploadRecord) -> io::Result<Option<ArchiveInfo>> {
        let mut file = match File::open(self.path(&upload.org, upload.id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let found = file.metadata()?;
        let known = upload.info.filter(|info| {
            (info.inode, info.modified_ns, info.size) == (found.ino(), modified_ns(&found), found.len())
        });
        if known.is_some() {
            return Ok(known);
        }
        let mut hasher = ArchiveHasher::default();
        let mut piece = vec![0; HASH_PIECE_BYTES];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(Some(hasher.info(&found))),
                read => hasher.update(&piece[..read]),
            }
        }
    }

    fn open(&self, org: &Org, id: Uuid) -> io::Result<Box<dyn io::Read + Send>> {
        Ok(Box::new(File::open(self.path(org, id))?))
    }

    fn delete(&self, org: &Org, id: Uuid) -> io::Result<()> {
        match fs::remove_file(self.path(org, id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }
}

/// Digests of an archive so far.
#[derive(Clone, Debug, Default)]
struct ArchiveHasher {
    md5: Md5,
    sha256: Sha256,
}

impl ArchiveHasher {
    fn update(&mut self, piece: &[u8]) {
        self.md5.update(piece);
        self.sha256.update(piece);
    }

    /// Returns the facts about a complete file.
    fn info(self, of: &fs::Metadata) -> ArchiveInfo {
        ArchiveInfo {
            size: of.len(),
            md5: self.md5.finalize().into(),
            sha256: self.sha256.finalize().into(),
            inode: of.ino(),
            modified_ns: modified_ns(of),
        }
    }
}

fn modified_ns(of: &fs::Metadata) -> i64 {
    of.mtime().saturating_mul(1_000_000_000).saturating_add(of.mtime_nsec())
}

/// An archive being written; deleted on drop.
#[derive(Debug)]
pub struct PartialArchive {
    /// `None` after the commit.
    path: Option<PathBuf>,
    file: File,
    hasher: ArchiveHasher,
    bytes: u64,
    /// Bytes since the last sync.
    unsynced: u64,
}

impl PartialArchive {
    /// Appends a piece.
    ///
    /// # Errors
    /// The error of the system.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)?;
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        self.unsynced += piece.len() as u64;
        // Spreads the load on slow cards instead of syncing everything at the end.
        if self.unsynced >= UNSYNCED_BYTES_MAX {
            self.unsynced = 0;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Syncs the file and returns facts about it.
    ///
    /// # Errors
    /// The error of the system.
    pub fn sync(&self) -> io::Result<ArchiveInfo> {
        self.file.sync_all()?;
        let found = self.file.metadata()?;
        if found.len() != self.bytes {
            return Err(io::Error::other("another process wrote to the file of an upload"));
        }
        Ok(self.hasher.clone().info(&found))
    }
}

impl Drop for PartialArchive {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A leftover is deleted at the next start.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct DataDir(PathBuf);

    impl DataDir {
        fn new() -> DataDir {
            let path = std::env::temp_dir().join(format!("edge-runner-{}", Uuid::v4(common::random())));
            DataDir(path)
        }

        fn files(&self) -> Vec<String> {
            let mut files = Vec::new();
            let mut folders = vec![self.0.clone()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).expect("a folder") {
                    let path = entry.expect("an entry").path();
                    match path.is_dir() {
                        true => folders.push(path),
                        false => files.push(path.strip_prefix(&self.0).expect("below").display().to_string()),
                    }
                }
            }
            files.sort();
            files
        }
    }

    impl Drop for DataDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn org() -> Org {
        Org::parse("org-7").expect("a name")
    }

    fn upload(id: Uuid, info: Option<ArchiveInfo>) -> UploadRecord {
        UploadRecord {
            id,
            org: org(),
            region: org(),
            expires_ms: 0,
            sealed: false,
            key: None,
            info,
        }
    }

    fn put(folder: &ArchiveDir, id: Uuid, pieces: &[&[u8]]) -> ArchiveInfo {
        let mut part = folder.create().expect("a part");
        for piece in pieces {
            part.write(piece).expect("space");
        }
        let info = part.sync().expect("on disk");
        folder.commit(part, &org(), id).expect("in its place");
        info
    }

    /// I-08: an archive appears complete or not at all.
    #[test]
    fn an_archive_is_complete_or_absent() {
        let place = DataDir::new();
        let folder = ArchiveDir::open(&place.0).expect("a folder");
        let id = Uuid::v4([7; 16]);
        assert_eq!(folder.head(&upload(id, None)).expect("readable"), None);
        let mut dropped = folder.create().expect("a part");
        dropped.write(b"half").expect("space");
        assert_eq!(place.files().len(), 1);
        drop(dropped);
        assert_eq!(place.files(), [""; 0]);

        let info = put(&folder, id, &[b"ab", b"c"]);
        assert_eq!(place.files(), [format!("archives/org-7/{id}.tar.gz")]);
        assert_eq!(info.size, 3);
        assert_eq!(
            info.md5,
            *b"\x90\x01\x50\x98\x3c\xd2\x4f\xb0\xd6\x96\x3f\x7d\x28\xe1\x7f\x72"
        );
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(data_encoding::HEXLOWER.encode(&info.sha256), known);
        let mut read = String::new();
        folder
            .open(&org(), id)
            .expect("it is there")
            .read_to_string(&mut read)
            .expect("text");
        assert_eq!(read, "abc");
        for _ in 0..2 {
            folder.delete(&org(), id).expect("deleted");
        }
        assert_eq!(place.files(), [""; 0]);
        assert!(folder.open(&org(), id).is_err());
    }

    /// I-08: partial archives of a killed run are deleted at the next start, also when the data
    /// directory is a link.
    #[test]
    fn partial_archives_are_deleted_at_start() {
        let (place, link) = (DataDir::new(), DataDir::new());
        fs::create_dir(&place.0).expect("a folder");
        std::os::unix::fs::symlink(&place.0, &link.0).expect("a link");
        for data_dir in [&place.0, &link.0] {
            let folder = ArchiveDir::open(data_dir).expect("a folder");
            let id = Uuid::v4([7; 16]);
            put(&folder, id, &[b"abc"]);
            let mut part = folder.create().expect("a part");
            part.write(b"half").expect("space");
            std::mem::forget(part);
            ArchiveDir::open(data_dir).expect("a folder");
            assert_eq!(place.files(), [format!("archives/org-7/{id}.tar.gz")], "{data_dir:?}");
        }
        fs::remove_file(&link.0).expect("the link");
    }

    /// Leftovers of a builder command in `tmp/`, or in its place, are removed at the next start;
    /// link targets are untouched.
    #[test]
    fn leftovers_in_tmp_do_not_prevent_a_start() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        use std::os::unix::net::UnixListener;

        let (place, other) = (DataDir::new(), DataDir::new());
        ArchiveDir::open(&place.0).expect("a folder");
        fs::create_dir_all(other.0.join("kept")).expect("a folder elsewhere");
        fs::write(other.0.join("kept/file"), "x").expect("a file elsewhere");
        let tmp = place.0.join("tmp");
        let deep = tmp.join("folder").join("d/".repeat(100));
        fs::create_dir_all(&deep).expect("folders");
        fs::write(deep.join("file"), "x").expect("a file");
        fs::create_dir(tmp.join("empty")).expect("a folder");
        fs::write(tmp.join("closed"), "x").expect("a file");
        UnixListener::bind(tmp.join("socket")).expect("a socket");
        symlink(other.0.join("kept"), tmp.join("link")).expect("a link");
        symlink("nowhere", tmp.join("dangling")).expect("a link");
        for (path, mode) in [
            ("closed", 0),
            ("folder/d", 0o111),
            ("folder", 0),
            ("empty", 0o222),
            ("", 0o000),
        ] {
            fs::set_permissions(tmp.join(path), fs::Permissions::from_mode(mode)).expect("ours");
        }
        let id = Uuid::v4([7; 16]);
        let check = |reason: &str| {
            let folder = ArchiveDir::open(&place.0).unwrap_or_else(|error| panic!("{reason}: {error}"));
            let left: Vec<_> = fs::read_dir(&tmp).expect("a folder").collect();
            assert!(left.is_empty(), "{reason}: {left:?}");
            put(&folder, id, &[b"abc"]);
            assert_eq!(place.files(), [format!("archives/org-7/{id}.tar.gz")], "{reason}");
            assert_eq!(other.files(), ["kept/file"], "{reason}");
        };
        check("folders, links, a socket, odd modes");
        fs::remove_dir(&tmp).expect("an empty folder");
        fs::write(&tmp, "x").expect("a file");
        check("a file in its place");
        fs::remove_dir(&tmp).expect("an empty folder");
        symlink(&other.0, &tmp).expect("a link");
        check("a link in its place");
    }

    /// Recorded facts count only for the file that they were computed from.
    #[test]
    fn stale_facts_are_recomputed() {
        let place = DataDir::new();
        let folder = ArchiveDir::open(&place.0).expect("a folder");
        let id = Uuid::v4([7; 16]);
        let first = put(&folder, id, &[b"abc"]);
        let second = put(&folder, id, &[b"abd"]);
        assert_ne!(first.md5, second.md5);
        for known in [None, Some(first), Some(second)] {
            assert_eq!(folder.head(&upload(id, known)).expect("readable"), Some(second));
        }
        // Matching facts are trusted, so that large archives are not read for each build.
        let believed = ArchiveInfo { md5: [0; 16], ..second };
        assert_eq!(
            folder.head(&upload(id, Some(believed))).expect("readable"),
            Some(believed)
        );
    }

    #[test]
    fn archives_are_readable_by_their_owner_only() {
        let place = DataDir::new();
        let folder = ArchiveDir::open(&place.0).expect("a folder");
        let id = Uuid::v4([7; 16]);
        put(&folder, id, &[b"abc"]);
        for (path, mode) in [
            ("archives", 0o700),
            ("tmp", 0o700),
            ("images", 0o700),
            ("archives/org-7", 0o700),
            (&format!("archives/org-7/{id}.tar.gz"), 0o600),
        ] {
            let found = fs::metadata(place.0.join(path)).expect("it is there").mode() & 0o777;
            assert_eq!(found, mode, "{path}");
        }
    }
}
