//! Build contexts as they are unpacked: what may be made of an archive, and in what order.
//!
//! In: a gzipped tar archive from any reader, the bounds of the operator, and the build file that
//! must be there. Out: one [`ExtractOp`] after the other, to be done as it stands: names are relative,
//! without `.` and `..`, and each dir is made before what is in it. Nothing asked for leaves the
//! tree or goes through a link, so the order of the archive does not matter.
//!
//! Refuses, and names the entry: absolute names, `..` components, links that lead out (looked at
//! step by step, when they come and again at the end, since a later link can change what an earlier
//! one means), writing through a link or over one, devices, FIFOs, kinds that are not known, names
//! with a NUL, more than the bounds, a damaged archive, a missing build file. Source:
//! `cloud-interface.md` §5; [`super::tar`], [`super::gzip`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, BufReader, Read};

use super::gzip::{GzipError, GzipReader};
use super::tar::read::{TarEntry, TarEntryKind, TarError, TarReader};
use crate::limits::{
    UNPACK_BUFFER_BYTES, UNPACK_COMPONENT_BYTES_MAX, UNPACK_DEPTH_MAX, UNPACK_LINK_HOPS_MAX, UNPACK_NAMES_BYTES_MAX,
    UNPACK_PATH_BYTES_MAX, UNPACK_SHOWN_CHARS_MAX,
};

/// Components that are looked at for all links of an archive together, a second's work: links of
/// links multiply.
const UNPACK_LINK_STEPS_MAX: u64 = 10_000_000;

/// What an operator allows.
#[derive(Clone, Copy, Debug)]
pub struct UnpackLimits {
    /// Bytes of the tar archive, all of it: headers, files and what follows the end.
    pub bytes_max: u64,
    /// Entries, and dirs that only names tell of.
    pub entries_max: u64,
}

/// One thing to make. Names are relative to the context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtractOp {
    /// A dir; one that is there already gets the mode alone.
    Dir { path: Vec<u8>, mode: u32, exists: bool },
    /// A file of so many bytes, all of which follow. One that is there already is removed first.
    File {
        path: Vec<u8>,
        mode: u32,
        mtime_s: u64,
        size: u64,
        exists: bool,
    },
    /// A symbolic link, its target as it stands in the archive.
    Symlink { path: Vec<u8>, target: Vec<u8> },
    /// One more name for a file that is there. A file that has the name is removed first.
    HardLink {
        path: Vec<u8>,
        target: Vec<u8>,
        exists: bool,
    },
}

/// What an archive came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpackStats {
    pub entries: u64,
    /// Bytes of the tar archive.
    pub bytes: u64,
}

/// EntryError an archive is not unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveError {
    Gzip(GzipError),
    /// The archive inside, somewhere after an entry, whose name is fit to be escape_name; empty before
    /// the first.
    Tar {
        damaged: TarError,
        after: String,
    },
    /// One entry; its name is fit to be escape_name.
    Entry {
        name: String,
        why: EntryError,
    },
    TooManyBytes {
        max: u64,
    },
    TooManyEntries {
        max: u64,
    },
    /// All names together are longer than [`UNPACK_NAMES_BYTES_MAX`].
    TooManyNames,
    /// There is no such regular file.
    NoBuildFile {
        file: String,
    },
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryError {
    EmptyName,
    Absolute,
    ParentComponent,
    ContainsNul,
    ComponentTooLong,
    PathTooLong,
    TooDeep,
    /// Its name resolve_link through a link, which is named.
    ThroughLink(String),
    /// Its name resolve_link through a file, which is named.
    ThroughFile(String),
    /// Something of another kind has its name.
    NameTaken(&'static str),
    /// A link with a target that is absolute, or is outside at some step.
    EscapesRoot(String),
    EmptyTarget,
    /// A link to a link to a link.
    TooManyHops,
    /// All links together take too many steps.
    TooManySteps,
    /// A hard link to what is no file before it.
    MissingTarget(String),
    /// The file is larger than what may be unpacked.
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
            ArchiveError::Entry { name, why } => write!(f, "the entry `{name}` is refused: {why}"),
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
            EntryError::ThroughFile(file) => write!(f, "`{file}` is a file, and no folder"),
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
                        return write!(f, "its kind, `{}`, is not known", escape_name(&[*flag]));
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

/// Makes a name fit to be escape_name: what is no text, and no letter or sign that a terminal shows as
/// such, is escaped; a long one is cut to [`UNPACK_SHOWN_CHARS_MAX`].
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

/// EntryError there is nothing more to make.
#[derive(Debug)]
pub enum UnpackError {
    Refused(ArchiveError),
    /// The archive cannot be read.
    Read(io::Error),
}

/// Unpacks one archive. As a reader it gives the bytes of the last file.
pub struct Unpacker<R: Read> {
    tar: TarReader<LimitedReader<BufReader<GzipReader<R>>>>,
    tree: ContextTree,
    ops: VecDeque<ExtractOp>,
    /// The last entry's name, fit to be escape_name.
    last: String,
}

impl<R: Read> Unpacker<R> {
    /// Begins to read an archive.
    ///
    /// # Errors
    /// [`UnpackError`]: it does not begin as one.
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

    /// Returns what is to be made next. All bytes of a file have to be read before.
    ///
    /// # Errors
    /// [`UnpackError`]; nothing of the archive may be used then.
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

    /// Reads bytes of the last file; 0 when there are no more.
    ///
    /// # Errors
    /// [`UnpackError`].
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, UnpackError> {
        if !self.ops.is_empty() {
            // Those of an entry follow the last of what it asks for.
            return Ok(0);
        }
        self.tar.read(into).map_err(|error| classify_error(error, &self.last))
    }

    /// Looks at the whole, when there is nothing more to make: that the archive ends well, that no
    /// link resolve_link out, and that the build file is there.
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
            EnterError::Entry(why) => ArchiveError::Entry {
                name: self.last.clone(),
                why,
            },
            EnterError::All(refusal) => refusal,
        })
    }
}

/// Tells an archive that is damaged or too large from one that cannot be read. `after` is the name
/// of the last entry.
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

/// Counts the bytes of an archive, and gives no more of them than are allowed.
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

/// A refusal of an entry, whose name is added later, or of the whole.
enum EnterError {
    Entry(EntryError),
    All(ArchiveError),
}

impl From<EntryError> for EnterError {
    fn from(why: EntryError) -> EnterError {
        EnterError::Entry(why)
    }
}

enum TreeNode {
    Dir(BTreeMap<Box<[u8]>, usize>),
    File,
    Link(Box<[u8]>),
}

/// What has been made so far.
struct ContextTree {
    /// Each with the dir that it is in; the first is the root, in itself.
    nodes: Vec<(usize, TreeNode)>,
    entries_max: u64,
    /// Entries that came, and dirs that came with them.
    entries: u64,
    /// Bytes of all components and targets.
    names: usize,
    /// Components that were looked at to see where links lead.
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
            // `tar -C dir .` begins with the dir itself.
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
                    // It is its own other name.
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

    /// Tells whether an entry of a kind has something to replace; refuses what it may not replace.
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

    /// Goes down to a dir, and makes those that are not there.
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

    /// Looks for the file that a hard link resolve_link to, and tells its name without detours.
    fn file(&self, target: &[u8]) -> Result<Vec<u8>, EnterError> {
        let path = components(target).map_err(|why| match why {
            EntryError::Absolute | EntryError::ParentComponent => EntryError::EscapesRoot(escape_name(target)),
            EntryError::EmptyName => EntryError::EmptyTarget,
            why => why,
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

    /// Follows a symbolic link in a dir, step by step as the system would. Returns where it
    /// resolve_link, if something is there.
    ///
    /// What is not there is taken for a dir: a later entry may make it one.
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

    /// Follows all links once more.
    fn finish(&mut self) -> Result<(), ArchiveError> {
        for index in 0..self.nodes.len() {
            let (dir, TreeNode::Link(target)) = &self.nodes[index] else {
                continue;
            };
            let (dir, target) = (*dir, target.clone());
            if let Err(why) = self.resolve_link(dir, &target) {
                return Err(ArchiveError::Entry {
                    name: escape_name(&self.name(index)),
                    why,
                });
            }
        }
        Ok(())
    }

    /// Tells whether a name, links followed, is that of a file.
    fn has_file(&mut self, file: &str) -> bool {
        let node = self.resolve_link(ROOT, file.as_bytes());
        matches!(node, Ok(Some(node)) if matches!(self.nodes[node].1, TreeNode::File))
    }

    /// Returns the whole name of what is in the tree.
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

/// Takes a name apart; nothing is left of one that means the root.
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
