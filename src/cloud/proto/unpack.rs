//! Validates the entries of a build context before they are created.
//!
//! In: a gzipped tar archive from a reader, the operator's limits, and the path of the build file.
//! Out: [`ExtractOp`]s to perform in order. Names are relative without `.` and `..`, and a
//! directory precedes its content. No operation leaves the tree or goes through a link,
//! in any order of entries.
//!
//! Rejects, naming the entry: absolute names, `..`, links that lead out of the tree (resolved on
//! arrival and again at the end, since later links change earlier ones), writes through or over a
//! link, devices, FIFOs, unknown types, names with NUL, exceeded limits, damaged archives, and a
//! missing build file. Source: decisions I-17, I-18.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, BufReader, Read};

use super::gzip::{GzipError, GzipReader};
use super::tar::read::{TarEntry, TarEntryKind, TarError, TarReader};
use crate::limits::{
    UNPACK_BUFFER_BYTES, UNPACK_COMPONENT_BYTES_MAX, UNPACK_DEPTH_MAX, UNPACK_LINK_HOPS_MAX, UNPACK_NAMES_BYTES_MAX,
    UNPACK_PATH_BYTES_MAX, UNPACK_SHOWN_CHARS_MAX,
};

/// Path components visited to resolve all links of an archive, about a second's work. Links to
/// links multiply.
const UNPACK_LINK_STEPS_MAX: u64 = 10_000_000;

/// Limits set by the operator.
#[derive(Clone, Copy, Debug)]
pub struct UnpackLimits {
    /// Size of the uncompressed tar archive in bytes, including headers and trailing data.
    pub bytes_max: u64,
    /// Entries, including implied parent directories.
    pub entries_max: u64,
}

/// A file system operation. Names are relative to the context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtractOp {
    /// Create a directory, or set the mode of an existing one.
    Dir { path: Vec<u8>, mode: u32, exists: bool },
    /// Create a file of `size` bytes, which follow. An existing file is replaced.
    File {
        path: Vec<u8>,
        mode: u32,
        mtime_s: u64,
        size: u64,
        exists: bool,
    },
    /// Create a symbolic link with the target as archived.
    Symlink { path: Vec<u8>, target: Vec<u8> },
    /// Create a hard link to an earlier file. An existing file is replaced.
    HardLink {
        path: Vec<u8>,
        target: Vec<u8>,
        exists: bool,
    },
}

/// Size of an unpacked archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpackStats {
    pub entries: u64,
    /// Bytes of the tar archive.
    pub bytes: u64,
}

/// Why an archive is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveError {
    Gzip(GzipError),
    /// The tar archive is damaged in or after the entry `after`, which is escaped; empty before the
    /// first entry.
    Tar {
        damaged: TarError,
        after: String,
    },
    /// An entry is rejected; its name is escaped.
    Entry {
        name: String,
        reason: EntryError,
    },
    TooManyBytes {
        max: u64,
    },
    TooManyEntries {
        max: u64,
    },
    /// All names together exceed [`UNPACK_NAMES_BYTES_MAX`].
    TooManyNames,
    /// The archive has no such regular file.
    NoBuildFile {
        file: String,
    },
}

/// Why an entry is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryError {
    EmptyName,
    Absolute,
    ParentComponent,
    ContainsNul,
    ComponentTooLong,
    PathTooLong,
    TooDeep,
    /// Its path goes through this link.
    ThroughLink(String),
    /// Its path goes through this file.
    ThroughFile(String),
    /// An entry of another type has the name.
    NameTaken(&'static str),
    /// A link whose target is absolute or leads out of the tree.
    EscapesRoot(String),
    EmptyTarget,
    /// Too many links in one resolution.
    TooManyHops,
    /// Too many steps to resolve all links.
    TooManySteps,
    /// A hard link whose target is not an earlier file.
    MissingTarget(String),
    /// The file exceeds the remaining size limit.
    TooLarge {
        size: u64,
        max: u64,
    },
    UnsupportedKind(TarEntryKind),
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArchiveError::Gzip(damaged) => write!(f, "the archive is damaged: {damaged}"),
            ArchiveError::Tar { damaged, after } if after.is_empty() => write!(f, "the archive is damaged: {damaged}"),
            ArchiveError::Tar { damaged, after } => {
                write!(f, "the archive is damaged: {damaged} (in or after `{after}`)")
            }
            ArchiveError::Entry { name, reason } => write!(f, "the entry `{name}` is refused: {reason}"),
            ArchiveError::TooManyBytes { max } => {
                write!(f, "the archive unpacks to more than {max} bytes (`--max-unpacked`)")
            }
            ArchiveError::TooManyEntries { max } => {
                write!(f, "the archive has more than {max} entries (`--max-entries`)")
            }
            ArchiveError::TooManyNames => {
                write!(
                    f,
                    "the names in the archive take more than {UNPACK_NAMES_BYTES_MAX} bytes"
                )
            }
            ArchiveError::NoBuildFile { file } => write!(f, "the build file `{file}` is not in the archive"),
        }
    }
}

impl std::error::Error for ArchiveError {}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryError::EmptyName => f.write_str("it has no name"),
            EntryError::Absolute => f.write_str("its name is absolute"),
            EntryError::ParentComponent => f.write_str("its name has a `..` component"),
            EntryError::ContainsNul => f.write_str("its name or its target has a NUL inside"),
            EntryError::ComponentTooLong => {
                write!(
                    f,
                    "a component of its name has more than {UNPACK_COMPONENT_BYTES_MAX} bytes"
                )
            }
            EntryError::PathTooLong => write!(f, "its name or its target has more than {UNPACK_PATH_BYTES_MAX} bytes"),
            EntryError::TooDeep => write!(f, "it is more than {UNPACK_DEPTH_MAX} folders deep"),
            EntryError::ThroughLink(link) => write!(f, "it writes through the link `{link}`"),
            EntryError::ThroughFile(file) => write!(f, "`{file}` is a file, not a folder"),
            EntryError::NameTaken(kind) => write!(f, "{kind} of this name is there already"),
            EntryError::EscapesRoot(target) => write!(f, "it is a link to `{target}`, which leads out of the archive"),
            EntryError::EmptyTarget => f.write_str("it is a link to nothing"),
            EntryError::TooManyHops => write!(f, "it leads through more than {UNPACK_LINK_HOPS_MAX} links"),
            EntryError::TooManySteps => f.write_str("the links of the archive lead through too many others"),
            EntryError::MissingTarget(target) => write!(
                f,
                "it is a hard link to `{target}`, and no file before it has that name"
            ),
            EntryError::TooLarge { size, max } => {
                write!(
                    f,
                    "its {size} bytes are more than may be unpacked, {max} (`--max-unpacked`)"
                )
            }
            EntryError::UnsupportedKind(kind) => {
                let kind = match kind {
                    TarEntryKind::CharacterDevice => "a character device",
                    TarEntryKind::BlockDevice => "a block device",
                    TarEntryKind::Fifo => "a FIFO",
                    TarEntryKind::Sparse => "a sparse file",
                    TarEntryKind::Other(b'M') => "a part of a file of several volumes",
                    TarEntryKind::Other(b'V') => "the label of a volume",
                    TarEntryKind::Other(flag) => {
                        return write!(f, "its type, `{}`, is unknown", escape_name(&[*flag]));
                    }
                    TarEntryKind::File | TarEntryKind::HardLink | TarEntryKind::Symlink | TarEntryKind::Dir => {
                        "of a kind that is taken"
                    }
                };
                write!(f, "it is {kind}; only files, folders and links are taken")
            }
        }
    }
}

/// Escapes a name for display: non-UTF-8 and unprintable characters are escaped, and long names are
/// cut to [`UNPACK_SHOWN_CHARS_MAX`].
pub fn escape_name(name: &[u8]) -> String {
    let mut text = String::new();
    let mut count = 0;
    let mut push = |part: &str| {
        count += part.chars().count();
        let fits = count <= UNPACK_SHOWN_CHARS_MAX;
        text.push_str(if fits { part } else { "..." });
        fits
    };
    for chunk in name.utf8_chunks() {
        for char in chunk.valid().chars() {
            let part = match char {
                '\'' | '"' => char.to_string(),
                _ => char.escape_debug().to_string(),
            };
            if !push(&part) {
                return text;
            }
        }
        for byte in chunk.invalid() {
            if !push(&format!("\\x{byte:02x}")) {
                return text;
            }
        }
    }
    text
}

/// Why unpacking stopped.
#[derive(Debug)]
pub enum UnpackError {
    Refused(ArchiveError),
    /// Reading the archive failed.
    Read(io::Error),
}

/// Unpacks an archive. It reads as the content of the last file.
pub struct Unpacker<R: Read> {
    tar: TarReader<LimitedReader<BufReader<GzipReader<R>>>>,
    tree: ContextTree,
    ops: VecDeque<ExtractOp>,
    /// The escaped name of the last entry.
    last: String,
}

impl<R: Read> Unpacker<R> {
    /// Starts to read an archive.
    ///
    /// # Errors
    /// [`UnpackError`] for a bad header.
    pub fn new(archive: R, bounds: UnpackLimits) -> Result<Unpacker<R>, UnpackError> {
        let gzip = GzipReader::new(archive).map_err(|error| classify_error(error, ""))?;
        let plain = LimitedReader {
            source: BufReader::with_capacity(UNPACK_BUFFER_BYTES, gzip),
            bytes: 0,
            max: bounds.bytes_max,
        };
        Ok(Unpacker {
            tar: TarReader::new(plain),
            tree: ContextTree::new(bounds.entries_max),
            ops: VecDeque::new(),
            last: String::new(),
        })
    }

    /// Returns the next operation. The content of the last file must have been read.
    ///
    /// # Errors
    /// [`UnpackError`]. The archive must not be used then.
    pub fn next_op(&mut self) -> Result<Option<ExtractOp>, UnpackError> {
        while self.ops.is_empty() {
            let next = self
                .tar
                .next_entry()
                .map_err(|error| classify_error(error, &self.last))?;
            let Some(entry) = next else {
                return Ok(None);
            };
            self.add_entry(&entry).map_err(UnpackError::Refused)?;
        }
        Ok(self.ops.pop_front())
    }

    /// Reads the content of the last file. Returns 0 at its end.
    ///
    /// # Errors
    /// [`UnpackError`].
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, UnpackError> {
        if !self.ops.is_empty() {
            // The content belongs to the last queued operation.
            return Ok(0);
        }
        self.tar.read(into).map_err(|error| classify_error(error, &self.last))
    }

    /// Checks the whole archive after the last operation: its end, its links, and the build file.
    ///
    /// # Errors
    /// [`UnpackError`].
    pub fn finish(mut self, file: &str) -> Result<UnpackStats, UnpackError> {
        let plain = self.tar.source();
        io::copy(plain, &mut io::sink()).map_err(|error| classify_error(error, &self.last))?;
        let bytes = plain.bytes;
        self.tree.finish().map_err(UnpackError::Refused)?;
        if !self.tree.has_file(file) {
            return Err(UnpackError::Refused(ArchiveError::NoBuildFile {
                file: escape_name(file.as_bytes()),
            }));
        }
        Ok(UnpackStats {
            entries: self.tree.entries,
            bytes,
        })
    }

    fn add_entry(&mut self, entry: &TarEntry) -> Result<(), ArchiveError> {
        self.last = escape_name(&entry.name);
        let LimitedReader { bytes, max, .. } = *self.tar.source();
        let refused = if entry.size > max.saturating_sub(bytes) {
            Err(EnterError::Entry(EntryError::TooLarge { size: entry.size, max }))
        } else {
            self.tree.add_entry(entry, &mut self.ops)
        };
        refused.map_err(|refused| match refused {
            EnterError::Entry(reason) => ArchiveError::Entry {
                name: self.last.clone(),
                reason,
            },
            EnterError::All(refusal) => refusal,
        })
    }
}

/// Separates invalid archives from read errors. `after` is the escaped name of the last entry.
fn classify_error(error: io::Error, after: &str) -> UnpackError {
    let of_tar = |damaged| ArchiveError::Tar {
        damaged,
        after: after.to_owned(),
    };
    let refusal = error
        .downcast()
        .or_else(|error| error.downcast().map(ArchiveError::Gzip))
        .or_else(|error| error.downcast().map(of_tar));
    refusal.map_or_else(UnpackError::Read, UnpackError::Refused)
}

/// Counts the uncompressed bytes and enforces their limit.
struct LimitedReader<R> {
    source: R,
    bytes: u64,
    max: u64,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(into)?;
        self.bytes += count as u64;
        if self.bytes > self.max {
            return Err(io::Error::other(ArchiveError::TooManyBytes { max: self.max }));
        }
        Ok(count)
    }
}

/// An error of an entry, whose name is added later, or of the whole archive.
enum EnterError {
    Entry(EntryError),
    All(ArchiveError),
}

impl From<EntryError> for EnterError {
    fn from(reason: EntryError) -> EnterError {
        EnterError::Entry(reason)
    }
}

enum TreeNode {
    Dir(BTreeMap<Box<[u8]>, usize>),
    File,
    Link(Box<[u8]>),
}

/// The tree of accepted entries.
struct ContextTree {
    /// Each node with its parent directory. The first is the root, its own parent.
    nodes: Vec<(usize, TreeNode)>,
    entries_max: u64,
    /// Entries and implied directories.
    entries: u64,
    /// Bytes of all components and link targets.
    names: usize,
    /// Components visited while resolving links.
    steps: u64,
}

const ROOT: usize = 0;

impl ContextTree {
    fn new(entries_max: u64) -> ContextTree {
        ContextTree {
            nodes: vec![(ROOT, TreeNode::Dir(BTreeMap::new()))],
            entries_max,
            entries: 0,
            names: 0,
            steps: 0,
        }
    }

    fn add_entry(&mut self, entry: &TarEntry, ops: &mut VecDeque<ExtractOp>) -> Result<(), EnterError> {
        self.count()?;
        if let TarEntryKind::CharacterDevice
        | TarEntryKind::BlockDevice
        | TarEntryKind::Fifo
        | TarEntryKind::Sparse
        | TarEntryKind::Other(_) = entry.kind
        {
            return Err(EntryError::UnsupportedKind(entry.kind).into());
        }
        let path = components(&entry.name)?;
        let Some((name, dirs)) = path.split_last() else {
            // `tar -C dir .` archives the root itself.
            return match entry.kind {
                TarEntryKind::Dir if !entry.name.is_empty() => Ok(()),
                _ => Err(EntryError::EmptyName.into()),
            };
        };
        let dir = self.dir(dirs, ops)?;
        let exists = self.exists(dir, name, entry.kind)?;
        let whole = path.join(&b'/');
        let (node, make) = match entry.kind {
            TarEntryKind::Dir => {
                let mode = entry.mode & 0o777 | 0o700;
                (
                    TreeNode::Dir(BTreeMap::new()),
                    ExtractOp::Dir {
                        path: whole,
                        mode,
                        exists,
                    },
                )
            }
            TarEntryKind::Symlink => {
                let target = entry.target.clone();
                self.resolve_link(dir, &target)?;
                self.remember(target.len())?;
                (
                    TreeNode::Link(target.clone().into()),
                    ExtractOp::Symlink { path: whole, target },
                )
            }
            TarEntryKind::HardLink => {
                let target = self.file(&entry.target)?;
                if target == whole {
                    // A link to itself.
                    return Ok(());
                }
                (
                    TreeNode::File,
                    ExtractOp::HardLink {
                        path: whole,
                        target,
                        exists,
                    },
                )
            }
            _ => {
                let make = ExtractOp::File {
                    path: whole,
                    mode: entry.mode & 0o777 | 0o600,
                    mtime_s: entry.mtime_s,
                    size: entry.size,
                    exists,
                };
                (TreeNode::File, make)
            }
        };
        if !exists {
            self.add(dir, name, node)?;
        }
        ops.push_back(make);
        Ok(())
    }

    fn count(&mut self) -> Result<(), EnterError> {
        self.entries += 1;
        if self.entries > self.entries_max {
            let max = self.entries_max;
            return Err(EnterError::All(ArchiveError::TooManyEntries { max }));
        }
        Ok(())
    }

    fn remember(&mut self, bytes: usize) -> Result<(), EnterError> {
        self.names += bytes;
        if self.names > UNPACK_NAMES_BYTES_MAX {
            return Err(EnterError::All(ArchiveError::TooManyNames));
        }
        Ok(())
    }

    fn child(&self, dir: usize, name: &[u8]) -> Option<usize> {
        match &self.nodes[dir].1 {
            TreeNode::Dir(children) => children.get(name).copied(),
            TreeNode::File | TreeNode::Link(_) => None,
        }
    }

    /// Tells whether an entry replaces an existing one. Rejects a replacement of another type.
    fn exists(&self, dir: usize, name: &[u8], kind: TarEntryKind) -> Result<bool, EntryError> {
        let existing = self.child(dir, name).map(|node| &self.nodes[node].1);
        match (kind, existing) {
            (_, None) => Ok(false),
            (TarEntryKind::Dir, Some(TreeNode::Dir(_)))
            | (TarEntryKind::File | TarEntryKind::HardLink, Some(TreeNode::File)) => Ok(true),
            (_, Some(TreeNode::Dir(_))) => Err(EntryError::NameTaken("a folder")),
            (_, Some(TreeNode::File)) => Err(EntryError::NameTaken("a file")),
            (_, Some(TreeNode::Link(_))) => Err(EntryError::NameTaken("a link")),
        }
    }

    fn add(&mut self, dir: usize, name: &[u8], node: TreeNode) -> Result<usize, EnterError> {
        self.remember(name.len())?;
        let index = self.nodes.len();
        self.nodes.push((dir, node));
        if let TreeNode::Dir(children) = &mut self.nodes[dir].1 {
            children.insert(name.into(), index);
        }
        Ok(index)
    }

    /// Returns a directory; queues the creation of missing ones.
    fn dir(&mut self, dirs: &[&[u8]], ops: &mut VecDeque<ExtractOp>) -> Result<usize, EnterError> {
        let mut dir = ROOT;
        for (at, name) in dirs.iter().enumerate() {
            let so_far = || dirs[..=at].join(&b'/');
            dir = match self.child(dir, name) {
                None => {
                    self.count()?;
                    ops.push_back(ExtractOp::Dir {
                        path: so_far(),
                        mode: 0o755,
                        exists: false,
                    });
                    self.add(dir, name, TreeNode::Dir(BTreeMap::new()))?
                }
                Some(child) => match &self.nodes[child].1 {
                    TreeNode::Dir(_) => child,
                    TreeNode::Link(_) => return Err(EntryError::ThroughLink(escape_name(&so_far())).into()),
                    TreeNode::File => return Err(EntryError::ThroughFile(escape_name(&so_far())).into()),
                },
            };
        }
        Ok(dir)
    }

    /// Returns the normalized path of a hard link's target.
    fn file(&self, target: &[u8]) -> Result<Vec<u8>, EnterError> {
        let path = components(target).map_err(|reason| match reason {
            EntryError::Absolute | EntryError::ParentComponent => EntryError::EscapesRoot(escape_name(target)),
            EntryError::EmptyName => EntryError::EmptyTarget,
            reason => reason,
        })?;
        let mut node = ROOT;
        for (at, name) in path.iter().enumerate() {
            if let TreeNode::Link(_) = self.nodes[node].1 {
                return Err(EntryError::ThroughLink(escape_name(&path[..at].join(&b'/'))).into());
            }
            let child = self.child(node, name);
            node = child.ok_or_else(|| EntryError::MissingTarget(escape_name(target)))?;
        }
        match self.nodes[node].1 {
            TreeNode::File => Ok(path.join(&b'/')),
            TreeNode::Link(_) => Err(EntryError::ThroughLink(escape_name(target)).into()),
            TreeNode::Dir(_) => Err(EntryError::MissingTarget(escape_name(target)).into()),
        }
    }

    /// Resolves a symbolic link as the kernel would. Returns the node it leads to, if any.
    ///
    /// A missing component is treated as a directory, because a later entry may create one.
    fn resolve_link(&mut self, dir: usize, target: &[u8]) -> Result<Option<usize>, EntryError> {
        if target.is_empty() {
            return Err(EntryError::EmptyTarget);
        }
        if target.contains(&0) {
            return Err(EntryError::ContainsNul);
        }
        if target.len() > UNPACK_PATH_BYTES_MAX {
            return Err(EntryError::PathTooLong);
        }
        let out = || EntryError::EscapesRoot(escape_name(target));
        if target[0] == b'/' {
            return Err(out());
        }
        let mut place = vec![Some(dir)];
        let mut at = dir;
        while at != ROOT {
            at = self.nodes[at].0;
            place.push(Some(at));
        }
        place.reverse();
        let mut rest: Vec<&[u8]> = target.split(|&byte| byte == b'/').rev().collect();
        let mut hops = 0;
        while let Some(name) = rest.pop() {
            self.steps += 1;
            if self.steps > UNPACK_LINK_STEPS_MAX {
                return Err(EntryError::TooManySteps);
            }
            match name {
                b"" | b"." => {}
                b".." => {
                    place.pop();
                    if place.is_empty() {
                        return Err(out());
                    }
                }
                name => {
                    let here = place.last().copied().flatten();
                    let child = here.and_then(|here| self.child(here, name));
                    if let Some(child) = child
                        && let TreeNode::Link(target) = &self.nodes[child].1
                    {
                        hops += 1;
                        if hops >= UNPACK_LINK_HOPS_MAX {
                            return Err(EntryError::TooManyHops);
                        }
                        rest.extend(target.split(|&byte| byte == b'/').rev());
                    } else {
                        place.push(child);
                    }
                }
            }
        }
        Ok(place.pop().flatten())
    }

    /// Resolves all links again.
    fn finish(&mut self) -> Result<(), ArchiveError> {
        for index in 0..self.nodes.len() {
            let (dir, TreeNode::Link(target)) = &self.nodes[index] else {
                continue;
            };
            let (dir, target) = (*dir, target.clone());
            if let Err(reason) = self.resolve_link(dir, &target) {
                return Err(ArchiveError::Entry {
                    name: escape_name(&self.name(index)),
                    reason,
                });
            }
        }
        Ok(())
    }

    /// Tells whether a path leads to a file, following links.
    fn has_file(&mut self, file: &str) -> bool {
        let node = self.resolve_link(ROOT, file.as_bytes());
        matches!(node, Ok(Some(node)) if matches!(self.nodes[node].1, TreeNode::File))
    }

    /// Returns the full path of a node.
    fn name(&self, mut index: usize) -> Vec<u8> {
        let mut path: Vec<&[u8]> = Vec::new();
        while index != ROOT {
            let dir = self.nodes[index].0;
            if let TreeNode::Dir(children) = &self.nodes[dir].1
                && let Some((name, _)) = children.iter().find(|&(_, &child)| child == index)
            {
                path.push(name);
            }
            index = dir;
        }
        path.reverse();
        path.join(&b'/')
    }
}

/// Splits a path into components. The root has none.
fn components(name: &[u8]) -> Result<Vec<&[u8]>, EntryError> {
    if name.is_empty() {
        return Err(EntryError::EmptyName);
    }
    if name[0] == b'/' {
        return Err(EntryError::Absolute);
    }
    if name.contains(&0) {
        return Err(EntryError::ContainsNul);
    }
    if name.len() > UNPACK_PATH_BYTES_MAX {
        return Err(EntryError::PathTooLong);
    }
    let mut path = Vec::new();
    for component in name.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err(EntryError::ParentComponent),
            long if long.len() > UNPACK_COMPONENT_BYTES_MAX => return Err(EntryError::ComponentTooLong),
            component => path.push(component),
        }
    }
    if path.len() > UNPACK_DEPTH_MAX {
        return Err(EntryError::TooDeep);
    }
    Ok(path)
}

#[cfg(test)]
mod tests;
