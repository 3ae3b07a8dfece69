//! Packs a folder into a build context.
//!
//! In: a folder, its build file, extra exclusions. Out: a [`PackedContext`] in an unlinked file.
//! Symbolic links to files are packed as their targets, links to directories are skipped; sockets,
//! pipes and devices are skipped with a warning. Memory holds the paths and one piece of a file.
//! Rejects a missing build file, an ignore file that cannot be read, links to files outside the
//! folder (unless `--follow-links`), files that change while being read, and more than 500 MiB.
//! Source: `docs/spec/cloud-protocol.md` 5; the published client, version 1.4.0.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use edge_runner_proto::sorting;

use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use md5::{Digest, Md5};
use rustix::fs::{Access, OFlags};

use super::ClientError;
use crate::proto::pack::{IGNORE_FILE, IgnoreRules, RuleUses, decode, mode, order};
use crate::proto::progress::size;
use crate::proto::tar::write::{end, header, padding};
use edge_runner_http::common::random;

/// Size of the ignore file in bytes.
const IGNORE_BYTES_MAX: u64 = 256 * 1024;

/// Files of a context. Each path takes memory; more files suggest a wrong folder.
const CONTEXT_FILES_MAX: usize = 500_000;

/// Size of all files before compression in bytes, the limit of the real service.
const CONTEXT_BYTES_MAX: u64 = 500 * 1024 * 1024;

/// Bytes read at a time.
const PIECE: usize = 64 * 1024;

/// An archive ready for upload.
pub struct PackedContext {
    pub archive: File,
    /// Size in bytes.
    pub size: u64,
    /// First half of the MD5 in hex, the context hash.
    pub hash: String,
    /// Number of files.
    pub files: usize,
    /// Uncompressed size of the files in bytes.
    pub plain: u64,
    /// What the user should know about the patterns, one line each.
    pub notes: Vec<String>,
}

/// Which symbolic links to files are packed. Hard links are packed as files: repositories and
/// archives cannot contain hard links to files elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPolicy {
    /// Links whose final target is inside the folder. Others are refused, because a foreign
    /// repository could put any file of the user into an image.
    Inside,
    /// All links.
    Follow,
}

/// Links to outside files that an error lists.
const LINKS_SHOWN_MAX: usize = 10;

/// Patterns that a note lists.
const PATTERNS_SHOWN_MAX: usize = 5;

/// Packs a folder.
///
/// # Errors
/// [`ClientError::Usage`] for a missing folder or build file, an unusable pattern, or links that
/// lead out; [`ClientError::Failed`] for a file that cannot be read.
pub fn pack(dir: &Path, file: &str, further: &[String], links: LinkPolicy) -> Result<PackedContext, ClientError> {
    let root = match fs::canonicalize(dir) {
        Ok(root) if root.is_dir() => root,
        Ok(_) => return Err(ClientError::Usage(format!("{} is not a folder", dir.display()))),
        Err(error) => {
            return Err(ClientError::Usage(format!(
                "reading the folder {}: {error}",
                dir.display()
            )));
        }
    };
    let ignore = ignore_file(&root, file)?;
    let text = ignore.as_ref().map(|ignore| ignore.text.as_str());
    let rules = IgnoreRules::new(text, further).map_err(|error| {
        let is_of_file = ignore.as_ref().filter(|_| IgnoreRules::new(text, &[]).is_err());
        let by = is_of_file.map_or("--exclude", |ignore| ignore.name.as_str());
        ClientError::Usage(format!("{by}: {error}"))
    })?;
    let mut uses = RuleUses::default();
    let mut files = walk(&root, &rules, &mut uses, links)?;
    sorting::sort_by(&mut files, |one, other| order(one, other));
    if files.binary_search_by(|other| order(other, file.as_bytes())).is_err() {
        return Err(ClientError::Usage(without_build_file(
            &root,
            dir,
            file,
            ignore.as_ref(),
            &rules,
        )));
    }
    let mut archive = ContextArchive::new()?;
    let mut plain = 0;
    for path in &files {
        plain = archive.add(&root, path, plain)?;
    }
    archive.finish(files.len(), plain, notes(&rules, &uses))
}

/// The ignore file that applies.
struct IgnoreFile {
    /// Relative to the folder.
    name: String,
    text: String,
}

/// Reads the ignore file: that of the build file, as Docker names it, or else that of the folder.
/// Without the one that is there, secrets could be sent.
fn ignore_file(root: &Path, build_file: &str) -> Result<Option<IgnoreFile>, ClientError> {
    for name in [format!("{build_file}{IGNORE_FILE}"), IGNORE_FILE.to_owned()] {
        let unusable = |reason: &dyn std::fmt::Display| ClientError::Failed(format!("reading {name}: {reason}"));
        let mut bytes = Vec::new();
        match File::open(root.join(&name)).and_then(|file| file.take(IGNORE_BYTES_MAX + 1).read_to_end(&mut bytes)) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(error) => return Err(unusable(&error)),
            Ok(_) if bytes.len() as u64 > IGNORE_BYTES_MAX => {
                return Err(unusable(&format_args!("it is longer than {IGNORE_BYTES_MAX} bytes")));
            }
            Ok(_) => {}
        }
        let text = decode(&bytes).map_err(|error| unusable(&error))?.to_owned();
        return Ok(Some(IgnoreFile { name, text }));
    }
    Ok(None)
}

/// Describes patterns that may not do what was meant.
fn notes(rules: &IgnoreRules, uses: &RuleUses) -> Vec<String> {
    let list = |items: Vec<String>| {
        let more = match items.len().saturating_sub(PATTERNS_SHOWN_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let first = &items[..items.len().min(PATTERNS_SHOWN_MAX)];
        (!first.is_empty()).then(|| format!("{}{more}", first.join(", ")))
    };
    let wider = rules.wider(uses).into_iter();
    let wider = list(
        wider
            .map(|(pattern, path)| format!("{} by `{}`", shown(path), super::sanitize(pattern)))
            .collect(),
    );
    let unused = rules.unused(uses).into_iter();
    let unused = list(
        unused
            .map(|pattern| format!("`{}`", super::sanitize(pattern)))
            .collect(),
    );
    let wider = wider.map(|list| {
        format!(
            "left out, where `docker build` keeps it: {list}; a pattern that begins with `/` means the top folder alone"
        )
    });
    let unused = unused.map(|list| format!("patterns that match nothing, outside of folders left out anyway: {list}"));
    wider.into_iter().chain(unused).collect()
}

/// Explains why the build file is not among the packed files.
fn without_build_file(root: &Path, dir: &Path, file: &str, ignore: Option<&IgnoreFile>, rules: &IgnoreRules) -> String {
    let shown = dir.display();
    if !root.join(file).exists() {
        return format!("there is no build file `{file}` in {shown}; `--buildfile` names another one");
    }
    if rules.excludes(file.as_bytes()) {
        let by = match ignore {
            Some(ignore) => ignore.name.as_str(),
            None => "the built-in patterns or `--exclude`",
        };
        return format!("the build file `{file}` is left out by {by}, so nothing could be built");
    }
    format!("the build file `{file}` of {shown} is not a regular file, or lies behind a link to a directory")
}

/// Lists the files to pack, relative to the canonical root.
fn walk(root: &Path, rules: &IgnoreRules, uses: &mut RuleUses, links: LinkPolicy) -> Result<Vec<Vec<u8>>, ClientError> {
    let mut files = Vec::new();
    let mut outside = OutsideLinks::default();
    let mut folders: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(root.join(OsStr::from_bytes(&folder))).map_err(|error| file_error(&folder, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| file_error(&folder, &error))?;
            let name = entry.file_name().into_vec();
            let path = match folder.is_empty() {
                true => name,
                false => [&folder[..], b"/", &name].concat(),
            };
            let verdict = rules.judge(&path, uses);
            if verdict.is_excluded && !verdict.may_include_inside {
                continue;
            }
            let kind = entry.file_type().map_err(|error| file_error(&path, &error))?;
            if kind.is_dir() {
                folders.push(path);
                continue;
            }
            if verdict.is_excluded {
                continue;
            }
            let (kind, target) = match kind.is_symlink() {
                false => (kind, None),
                true => match target_of(&entry.path()) {
                    Ok((kind, target)) => (kind, Some(target)),
                    Err(error) => {
                        return Err(file_error(
                            &path,
                            &format_args!("it is a link that leads nowhere: {error}"),
                        ));
                    }
                },
            };
            if kind.is_file() {
                if let Some(target) = target {
                    match target.strip_prefix(root) {
                        Err(_) if links == LinkPolicy::Inside => outside.add(&path, &target),
                        Ok(inside) if rules.excludes(inside.as_os_str().as_bytes()) => log::warn!(
                            "{}: packed with the content of {}, which is left out under its own name",
                            shown(&path),
                            shown(inside.as_os_str().as_bytes())
                        ),
                        _ => {}
                    }
                }
                if files.len() == CONTEXT_FILES_MAX {
                    return Err(ClientError::Failed(format!(
                        "there are more than {CONTEXT_FILES_MAX} files; {IGNORE_FILE} or `--exclude` leaves some out"
                    )));
                }
                files.push(path);
            } else if !kind.is_dir() {
                log::warn!("{}: not a regular file, so not packed", shown(&path));
            }
        }
    }
    match outside.count {
        0 => Ok(files),
        _ => Err(ClientError::Usage(outside.refusal())),
    }
}

/// Links to files outside the folder.
#[derive(Default)]
struct OutsideLinks {
    /// The first [`LINKS_SHOWN_MAX`] links with their targets.
    shown: Vec<String>,
    count: usize,
}

impl OutsideLinks {
    fn add(&mut self, link: &[u8], target: &Path) {
        self.count += 1;
        if self.shown.len() < LINKS_SHOWN_MAX {
            let target = shown(target.as_os_str().as_bytes());
            self.shown.push(format!("{} -> {target}", shown(link)));
        }
    }

    /// Formats the error.
    fn refusal(mut self) -> String {
        sorting::sort(&mut self.shown);
        let more = match self.count - self.shown.len() {
            0 => String::new(),
            more => format!("\n  and {more} more"),
        };
        format!(
            "links lead to files outside the folder, which would be packed:\n  {}{more}\nremove them, leave them out with \
             {IGNORE_FILE} or `--exclude`, or pack those files with `--follow-links`",
            self.shown.join("\n  ")
        )
    }
}

/// Returns the type and the canonical path of a link's target.
fn target_of(link: &Path) -> io::Result<(fs::FileType, PathBuf)> {
    let target = fs::canonicalize(link)?;
    Ok((fs::symlink_metadata(&target)?.file_type(), target))
}

/// An archive being written. The gzip header has no name or time, like that of Python's `gzip` with
/// `mtime=0`; the compressed data differs from zlib's.
struct ContextArchive {
    gzip: GzEncoder<HashingFile>,
    /// Uncompressed bytes.
    tar: u64,
}

/// A file that hashes what is written to it.
struct HashingFile {
    file: File,
    hash: Md5,
    size: u64,
}

impl Write for HashingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ContextArchive {
    fn new() -> Result<ContextArchive, ClientError> {
        let hashed = HashingFile {
            file: unlinked_file().map_err(|error| ClientError::Failed(format!("making a temporary file: {error}")))?,
            hash: Md5::new(),
            size: 0,
        };
        Ok(ContextArchive {
            gzip: GzEncoder::new(hashed, Compression::best()),
            tar: 0,
        })
    }

    /// Appends a file. Returns the total size of all files so far.
    fn add(&mut self, root: &Path, path: &[u8], before: u64) -> Result<u64, ClientError> {
        let whole = root.join(OsStr::from_bytes(path));
        // The file may have been replaced by a FIFO, which must not block.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(&whole);
        let mut file = opened.map_err(|error| file_error(path, &error))?;
        let metadata = file.metadata().map_err(|error| file_error(path, &error))?;
        if !metadata.is_file() {
            return Err(file_error(path, &CHANGED));
        }
        let length = metadata.len();
        let sum = before.saturating_add(length);
        if sum > CONTEXT_BYTES_MAX {
            return Err(ClientError::Failed(format!(
                "the files are more than {} in all; {IGNORE_FILE} or `--exclude` leaves some out",
                size(CONTEXT_BYTES_MAX)
            )));
        }
        self.push(&header(path, length, mode(is_executable(&whole))))?;
        let mut piece = vec![0; PIECE];
        let mut left = length;
        loop {
            let count = match file.read(&mut piece) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(file_error(path, &error)),
            };
            // The length differs from the header.
            match left.checked_sub(count as u64) {
                Some(rest) if count > 0 => left = rest,
                Some(0) => break,
                _ => return Err(file_error(path, &CHANGED)),
            }
            self.push(&piece[..count])?;
        }
        self.push(&[0; 512][..padding(length)])?;
        Ok(sum)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.tar += bytes.len() as u64;
        self.gzip.write_all(bytes).map_err(unwritten)
    }

    fn finish(mut self, files: usize, plain: u64, notes: Vec<String>) -> Result<PackedContext, ClientError> {
        let zeros = vec![0; end(self.tar)];
        self.push(&zeros)?;
        let hashed = self.gzip.finish().map_err(unwritten)?;
        let mut hash = HEXLOWER.encode(&hashed.hash.finalize());
        hash.truncate(16);
        Ok(PackedContext {
            archive: hashed.file,
            size: hashed.size,
            hash,
            files,
            plain,
            notes,
        })
    }
}

fn unwritten(error: io::Error) -> ClientError {
    ClientError::Failed(format!("writing the archive to a temporary file: {error}"))
}

const CHANGED: &str = "it changed while it was packed";

/// Creates an unlinked temporary file, which leaves nothing behind.
fn unlinked_file() -> io::Result<File> {
    let name = format!("edge-runner-{}.tar.gz", HEXLOWER.encode(&random::<16>()));
    let path = std::env::temp_dir().join(name);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

fn file_error(path: &[u8], reason: &dyn std::fmt::Display) -> ClientError {
    let name = match path.is_empty() {
        true => ".".into(),
        false => shown(path),
    };
    ClientError::Failed(format!("packing {name}: {reason}"))
}

/// Sanitizes a name for a message.
fn shown(path: &[u8]) -> String {
    super::sanitize(&String::from_utf8_lossy(path))
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A temporary folder, removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            let name = format!("edge-runner-test-{}", HEXLOWER.encode(&random::<8>()));
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).expect("a folder");
            Folder(path)
        }

        fn with(files: &[(&str, &str)]) -> Folder {
            let folder = Folder::new();
            for (name, content) in files {
                folder.write(name, content);
            }
            folder
        }

        fn write(&self, name: &str, content: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().expect("inside the folder")).expect("folders");
            fs::write(path, content).expect("a file");
        }

        fn pack(&self) -> Result<PackedContext, ClientError> {
            pack(&self.0, "Dockerfile", &[], LinkPolicy::Inside)
        }

        /// Returns names and contents of the packed files.
        fn entries(&self) -> Vec<(String, String)> {
            let tar = tar_of(self.pack().expect("an archive"));
            let mut entries = Vec::new();
            let mut rest = &tar[..];
            while rest[0] != 0 {
                let name = rest[..100].split(|&byte| byte == 0).next().expect("a name");
                let size = std::str::from_utf8(&rest[124..135]).expect("digits");
                let size = usize::from_str_radix(size, 8).expect("a size");
                let content = String::from_utf8_lossy(&rest[512..512 + size]).into_owned();
                entries.push((String::from_utf8_lossy(name).into_owned(), content));
                rest = &rest[512 + size.next_multiple_of(512)..];
            }
            assert!(rest.iter().all(|&byte| byte == 0) && tar.len().is_multiple_of(10_240));
            entries
        }

        fn names(&self) -> Vec<String> {
            self.entries().into_iter().map(|(name, _)| name).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn tar_of(mut packed: PackedContext) -> Vec<u8> {
        let mut bytes = Vec::new();
        packed.archive.seek(SeekFrom::Start(0)).expect("a file");
        packed.archive.read_to_end(&mut bytes).expect("a file");
        assert_eq!(bytes.len() as u64, packed.size);
        assert_eq!(HEXLOWER.encode(&Md5::digest(&bytes))[..16], packed.hash);
        assert_eq!(bytes[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff]);
        let mut plain = Vec::new();
        let read = flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain);
        assert_eq!(read.expect("a whole member"), plain.len());
        plain
    }

    fn failed(outcome: Result<PackedContext, ClientError>) -> String {
        match outcome {
            Err(ClientError::Failed(reason)) => reason,
            Err(other) => panic!("{other:?}"),
            Ok(packed) => panic!("{} files are packed", packed.files),
        }
    }

    fn misused(outcome: Result<PackedContext, ClientError>) -> String {
        match outcome {
            Err(ClientError::Usage(reason)) => reason,
            Err(other) => panic!("{other:?}"),
            Ok(packed) => panic!("{} files are packed", packed.files),
        }
    }

    /// C-069, C-074: files are packed in order, and the same files give the same archive.
    #[test]
    fn packing_is_ordered_and_reproducible() {
        let files = [
            ("Dockerfile", "FROM scratch\n"),
            ("app/main.py", "print()\n"),
            ("app-data", &*"x".repeat(200_000)),
            (".env", "SECRET=1\n"),
            ("app/__pycache__/main.pyc", "x"),
            (".git/config", "x"),
        ];
        let (folder, other) = (Folder::with(&files), Folder::with(&files));
        fs::create_dir(other.0.join("empty")).expect("a folder");
        assert_eq!(folder.names(), ["Dockerfile", "app-data", "app/main.py"]);
        assert_eq!(folder.entries()[1].1.len(), 200_000);
        let packed = folder.pack().expect("an archive");
        assert_eq!((packed.files, packed.plain), (3, 200_021));
        assert_eq!(packed.hash, other.pack().expect("an archive").hash);
        other.write("app/main.py", "print(1)\n");
        assert_ne!(packed.hash, other.pack().expect("an archive").hash);
    }

    /// The archive equals that of the published client.
    #[test]
    fn the_archive_equals_that_of_the_published_client() {
        use sha2::Sha256;
        let folder = Folder::with(&[("Dockerfile", "FROM scratch\n")]);
        let tar = tar_of(folder.pack().expect("an archive"));
        assert_eq!(
            HEXLOWER.encode(&Sha256::digest(&tar)),
            "2e5561f045692a65c4b9e49a83bc573091e5df8fbdd7b5733a7eaec6c9a62db5"
        );
    }

    /// C-075: an ignore file replaces the built-in patterns; `--exclude` adds to both.
    #[test]
    fn an_ignore_file_replaces_the_built_in_patterns() {
        let folder = Folder::with(&[("Dockerfile", "x"), (".env", "x"), ("data/a", "x"), ("b.txt", "x")]);
        let further = ["*.txt".to_owned()];
        let count = || {
            let packed = pack(&folder.0, "Dockerfile", &further, LinkPolicy::Inside);
            packed.expect("an archive").files
        };
        assert_eq!(count(), 2);
        folder.write(".dockerignore", "data\n");
        assert_eq!(folder.names(), [".dockerignore", ".env", "Dockerfile", "b.txt"]);
        assert_eq!(count(), 3);
        let misused = misused(pack(&folder.0, "Dockerfile", &["!a".to_owned()], LinkPolicy::Inside));
        assert!(misused.contains("--exclude: `!a`"), "{misused}");
    }

    /// An ignore file that cannot be read stops the upload of what it names.
    #[test]
    fn an_unreadable_ignore_file_is_refused() {
        let folder = Folder::with(&[("Dockerfile", "x"), ("secret.txt", "x")]);
        let ignore = folder.0.join(".dockerignore");
        for (bytes, words) in [
            (&b"secret.txt\n\xff\n"[..], "line 2 is not UTF-8"),
            (b"\xff\xfes\0", "it is UTF-16"),
            (b"s\0e\0", "line 1 has a zero byte"),
            (&[b'x'; IGNORE_BYTES_MAX as usize + 1], "longer than"),
        ] {
            fs::write(&ignore, bytes).expect("a file");
            let reason = failed(folder.pack());
            assert!(
                reason.starts_with("reading .dockerignore: ") && reason.contains(words),
                "{reason}"
            );
        }
        folder.write(".dockerignore", "!\n");
        assert!(misused(folder.pack()).contains(".dockerignore: `!` has no valid pattern"));
        fs::write(&ignore, b"\xef\xbb\xbfsecret.txt\r\n").expect("a file");
        assert_eq!(folder.names(), [".dockerignore", "Dockerfile"]);
        fs::remove_file(&ignore).expect("a file");
        fs::create_dir(&ignore).expect("a folder");
        assert!(failed(folder.pack()).contains("reading .dockerignore"));
    }

    /// Excluded folders are entered where an exception may include something in them.
    #[test]
    fn exceptions_include_files_of_excluded_folders() {
        let tree = [
            "Dockerfile",
            "src/a.py",
            "src/deep/x.log",
            "src/deep/y",
            "top.log",
            "other/deep/z",
        ];
        let folder = Folder::with(&tree.map(|name| (name, "x")));
        folder.write(".dockerignore", "*\n!Dockerfile\n!src\n/src/deep\n!**/*.log\n");
        assert_eq!(folder.names(), ["Dockerfile", "src/a.py", "src/deep/x.log", "top.log"]);
        assert_eq!(folder.pack().expect("an archive").notes, [""; 0]);
    }

    /// As for Docker, the ignore file of a build file replaces that of the folder.
    #[test]
    fn a_build_file_may_have_an_ignore_file_of_its_own() {
        let folder = Folder::with(&[
            ("Dockerfile", "x"),
            ("docker/Buildfile", "x"),
            ("secret", "x"),
            ("a", "x"),
        ]);
        folder.write(".dockerignore", "a\n.docker*");
        folder.write("docker/Buildfile.dockerignore", "secret\n.docker*\n**/*.dockerignore");
        assert_eq!(
            folder.names(),
            [
                "Dockerfile",
                "docker/Buildfile",
                "docker/Buildfile.dockerignore",
                "secret"
            ]
        );
        let packed = pack(&folder.0, "docker/Buildfile", &[], LinkPolicy::Inside).expect("an archive");
        let tar = String::from_utf8_lossy(&tar_of(packed)).into_owned();
        assert!(!tar.contains("secret") && tar.contains("docker/Buildfile"));
    }

    /// Patterns that may not do what was meant are told.
    #[test]
    fn patterns_without_effect_and_with_more_than_dockers_are_reported() {
        let folder = Folder::with(&[("Dockerfile", "x"), ("a/x.log", "x"), ("x.log", "x")]);
        folder.write(".dockerignore", "*.log\nn1\nn2\nn3\nn4\nn5\nn6\n");
        let notes = folder.pack().expect("an archive").notes;
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("a/x.log by `*.log`"), "{notes:?}");
        assert!(
            notes[1].ends_with(": `n1`, `n2`, `n3`, `n4`, `n5` and 1 more"),
            "{notes:?}"
        );
    }

    /// A link is packed as its target if that is inside the folder.
    #[test]
    fn links_to_files_are_packed_and_links_to_folders_skipped() {
        let folder = Folder::with(&[("Dockerfile", "x"), ("real/file", "content"), ("real/.env", "secret")]);
        let name = folder.0.file_name().expect("a name").to_owned();
        let outside = Folder::with(&[("far", "far away")]);
        // A path outside the folder that leads back into it.
        symlink(&folder.0, outside.0.join("back")).expect("a link");
        let links: [(&str, PathBuf); 9] = [
            ("absolute", folder.0.join("real/file")),
            ("chain", "link".into()),
            ("dots", "real/../real/./file".into()),
            ("link", "real/file".into()),
            ("out-and-in", Path::new("..").join(&name).join("real/file")),
            ("through-a-link", "folder/file".into()),
            ("through-outside", outside.0.join("back/real/file")),
            // Links to directories are skipped.
            ("folder", "real".into()),
            ("folder-outside", outside.0.clone()),
        ];
        for (link, target) in &links {
            symlink(target, folder.0.join(link)).expect("a link");
        }
        symlink("nowhere", folder.0.join("gone.log")).expect("a link");
        symlink(outside.0.join("far"), folder.0.join("left-out.log")).expect("a link");
        fs::hard_link(outside.0.join("far"), folder.0.join("hard")).expect("a link");
        let entries = folder.entries();
        let names: Vec<&str> = entries.iter().map(|(name, _)| &**name).collect();
        let packed = [
            &["Dockerfile"][..],
            &["absolute", "chain", "dots", "hard", "link", "out-and-in"],
        ]
        .concat();
        assert_eq!(
            names,
            [&packed[..], &["real/file", "through-a-link", "through-outside"]].concat()
        );
        for (name, content) in &entries[1..] {
            assert_eq!(content, if name == "hard" { "far away" } else { "content" }, "{name}");
        }
        // A link to an excluded file is packed with a warning, like in the published client.
        symlink("real/.env", folder.0.join("settings")).expect("a link");
        assert!(folder.names().contains(&"settings".to_owned()));
        for (link, target) in [("gone", "nowhere"), ("loop", "loop")] {
            symlink(target, folder.0.join(link)).expect("a link");
            let reason = failed(folder.pack());
            assert!(
                reason.contains(&format!("packing {link}")) && reason.contains("leads nowhere"),
                "{reason}"
            );
            fs::remove_file(folder.0.join(link)).expect("a link");
        }
    }

    /// A file outside the folder is packed only on request. The error names each link and its
    /// target.
    #[test]
    fn links_that_lead_out_of_the_folder_are_refused() {
        let folder = Folder::with(&[("Dockerfile", "x"), ("real/file", "content")]);
        let outside = Folder::with(&[("far", "far away"), ("more/far", "farther")]);
        let beside = outside.0.file_name().expect("a name");
        // A sibling whose name starts with the folder's name.
        let prefixed = PathBuf::from(format!("{}-2", folder.0.display()));
        fs::create_dir(&prefixed).expect("a folder");
        let prefixed = Folder(prefixed);
        prefixed.write("far", "far away");
        symlink("real", folder.0.join("inner")).expect("a link");
        symlink(&outside.0, folder.0.join("outer")).expect("a link");
        symlink(folder.0.join("real/file"), outside.0.join("there-and-back")).expect("a link");
        let far = fs::canonicalize(outside.0.join("far")).expect("it is there");
        for (link, target, last) in [
            ("absolute", outside.0.join("far"), &far),
            ("dots", Path::new("..").join(beside).join("far"), &far),
            ("deep", Path::new("real/../../").join(beside).join("more/../far"), &far),
            ("through-a-folder", "outer/far".into(), &far),
            ("real/nested", Path::new("../..").join(beside).join("far"), &far),
            ("prefixed", prefixed.0.join("far"), &prefixed.0.join("far")),
            ("system", "/proc/self/environ".into(), &PathBuf::from("environ")),
            ("Buildfile", outside.0.join("far"), &far),
        ] {
            symlink(&target, folder.0.join(link)).expect("a link");
            let reason = misused(folder.pack());
            assert!(
                reason.contains(&format!("\n  {link} -> ")) && reason.contains(&*last.to_string_lossy()),
                "{reason}"
            );
            assert!(
                reason.contains("--follow-links") && !reason.contains("far away"),
                "{reason}"
            );
            let further = [link.to_owned()];
            assert!(
                pack(&folder.0, "Dockerfile", &further, LinkPolicy::Inside).is_ok(),
                "{link}"
            );
            fs::remove_file(folder.0.join(link)).expect("a link");
        }
        // The final target of a chain counts.
        symlink(outside.0.join("there-and-back"), folder.0.join("back")).expect("a link");
        assert_eq!(folder.names(), ["Dockerfile", "back", "real/file"]);
        for n in 0..LINKS_SHOWN_MAX + 2 {
            symlink(outside.0.join("far"), folder.0.join(format!("link-{n:02}"))).expect("a link");
        }
        let reason = misused(folder.pack());
        assert_eq!(reason.matches(" -> ").count(), LINKS_SHOWN_MAX, "{reason}");
        assert!(reason.contains("and 2 more"), "{reason}");
        let packed = pack(&folder.0, "Dockerfile", &[], LinkPolicy::Follow).expect("an archive");
        assert_eq!(packed.files, 3 + LINKS_SHOWN_MAX + 2);
        assert!(String::from_utf8_lossy(&tar_of(packed)).contains("far away"));
    }

    #[test]
    fn special_files_are_skipped_and_execute_bits_kept() {
        let folder = Folder::with(&[("Dockerfile", "x"), ("run", "x")]);
        fs::set_permissions(folder.0.join("run"), fs::Permissions::from_mode(0o711)).expect("a mode");
        let pipe = folder.0.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RUSR).expect("a pipe");
        let tar = tar_of(folder.pack().expect("an archive"));
        assert_eq!((&tar[100..107], &tar[1124..1131]), (&b"0000644"[..], &b"0000755"[..]));
        assert_eq!(folder.names(), ["Dockerfile", "run"]);
    }

    /// I-27: a missing or excluded build file is a usage error.
    #[test]
    fn a_folder_needs_its_build_file() {
        let folder = Folder::with(&[("docker/Buildfile", "x"), (".dockerignore", "*.old")]);
        assert!(misused(folder.pack()).contains("there is no build file `Dockerfile`"));
        let pack_with = |file: &str| pack(&folder.0, file, &[], LinkPolicy::Inside);
        assert_eq!(pack_with("docker/Buildfile").expect("an archive").files, 2);
        assert!(misused(pack_with("docker")).contains("not a regular file"));
        folder.write(".dockerignore", "docker/*");
        assert!(misused(pack_with("docker/Buildfile")).contains("left out by .dockerignore"));
        symlink("docker", folder.0.join("alias")).expect("a link");
        folder.write(".dockerignore", "");
        assert!(misused(pack_with("alias/Buildfile")).contains("behind a link"));
        assert!(misused(pack(&folder.0.join("nothing"), "x", &[], LinkPolicy::Inside)).contains("reading the folder"));
        assert!(
            misused(pack(&folder.0.join(".dockerignore"), "x", &[], LinkPolicy::Inside)).contains("is not a folder")
        );
    }

    /// C-092: the limit applies to uncompressed sizes and is checked before reading.
    #[test]
    fn a_context_has_a_size_limit() {
        let folder = Folder::with(&[("Dockerfile", "")]);
        let sparse = |size: u64| {
            let file = File::create(folder.0.join("sparse")).expect("a file");
            file.set_len(size).expect("a length");
        };
        folder.write("z", "x");
        sparse(CONTEXT_BYTES_MAX);
        let reason = failed(folder.pack());
        assert!(reason.contains("more than 500.0 MiB"), "{reason}");
    }
}
