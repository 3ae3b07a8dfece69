//! Build contexts as they are unpacked: what may be made of an archive, and in what order.
//!
//! In: a gzipped tar archive from any reader, the bounds of the operator, and the build file that
//! must be there. Out: one [`Make`] after the other, to be done as it stands: names are relative,
//! without `.` and `..`, and each folder is made before what is in it. Nothing asked for leaves the
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

use super::gzip;
use super::tar::read::{self as tar, Entry, Kind};
use crate::limits::{
    UNPACK_BUFFER_BYTES, UNPACK_COMPONENT_BYTES_MAX, UNPACK_DEPTH_MAX, UNPACK_LINK_HOPS_MAX, UNPACK_NAMES_BYTES_MAX,
    UNPACK_PATH_BYTES_MAX, UNPACK_SHOWN_CHARS_MAX,
};

/// Components that are looked at for all links of an archive together, a second's work: links of
/// links multiply.
const UNPACK_LINK_STEPS_MAX: u64 = 10_000_000;

/// What an operator allows.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of the tar archive, all of it: headers, files and what follows the end.
    pub bytes_max: u64,
    /// Entries, and folders that only names tell of.
    pub entries_max: u64,
}

/// One thing to make. Names are relative to the context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Make {
    /// A folder; one that is there already gets the mode alone.
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
pub struct Sum {
    pub entries: u64,
    /// Bytes of the tar archive.
    pub bytes: u64,
}

/// Why an archive is not unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Gzip(gzip::Damaged),
    /// The archive inside, somewhere after an entry, whose name is fit to be shown; empty before
    /// the first.
    Tar {
        damaged: tar::Damaged,
        after: String,
    },
    /// One entry; its name is fit to be shown.
    Entry {
        name: String,
        why: Why,
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
pub enum Why {
    NoName,
    Absolute,
    DotDot,
    Nul,
    LongComponent,
    LongPath,
    Deep,
    /// Its name leads through a link, which is named.
    Through(String),
    /// Its name leads through a file, which is named.
    ThroughFile(String),
    /// Something of another kind has its name.
    Over(&'static str),
    /// A link with a target that is absolute, or is outside at some step.
    LeadsOut(String),
    NoTarget,
    /// A link to a link to a link.
    ManyHops,
    /// All links together take too many steps.
    ManySteps,
    /// A hard link to what is no file before it.
    NoFile(String),
    /// The file is larger than what may be unpacked.
    Large {
        size: u64,
        max: u64,
    },
    Kind(Kind),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Gzip(damaged) => write!(f, "the archive is damaged: {damaged}"),
            Refusal::Tar { damaged, after } if after.is_empty() => write!(f, "the archive is damaged: {damaged}"),
            Refusal::Tar { damaged, after } => write!(f, "the archive is damaged: {damaged} (in or after `{after}`)"),
            Refusal::Entry { name, why } => write!(f, "the entry `{name}` is refused: {why}"),
            Refusal::TooManyBytes { max } => {
                write!(f, "the archive unpacks to more than {max} bytes (`--max-unpacked`)")
            }
            Refusal::TooManyEntries { max } => {
                write!(f, "the archive has more than {max} entries (`--max-entries`)")
            }
            Refusal::TooManyNames => {
                write!(
                    f,
                    "the names in the archive take more than {UNPACK_NAMES_BYTES_MAX} bytes"
                )
            }
            Refusal::NoBuildFile { file } => write!(f, "the build file `{file}` is not in the archive"),
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoName => f.write_str("it has no name"),
            Why::Absolute => f.write_str("its name is absolute"),
            Why::DotDot => f.write_str("its name has a `..` component"),
            Why::Nul => f.write_str("its name or its target has a NUL inside"),
            Why::LongComponent => {
                write!(
                    f,
                    "a component of its name has more than {UNPACK_COMPONENT_BYTES_MAX} bytes"
                )
            }
            Why::LongPath => write!(f, "its name or its target has more than {UNPACK_PATH_BYTES_MAX} bytes"),
            Why::Deep => write!(f, "it is more than {UNPACK_DEPTH_MAX} folders deep"),
            Why::Through(link) => write!(f, "it writes through the link `{link}`"),
            Why::ThroughFile(file) => write!(f, "`{file}` is a file, and no folder"),
            Why::Over(kind) => write!(f, "{kind} of this name is there already"),
            Why::LeadsOut(target) => write!(f, "it is a link to `{target}`, which leads out of the archive"),
            Why::NoTarget => f.write_str("it is a link to nothing"),
            Why::ManyHops => write!(f, "it leads through more than {UNPACK_LINK_HOPS_MAX} links"),
            Why::ManySteps => f.write_str("the links of the archive lead through too many others"),
            Why::NoFile(target) => write!(
                f,
                "it is a hard link to `{target}`, and no file before it has that name"
            ),
            Why::Large { size, max } => {
                write!(
                    f,
                    "its {size} bytes are more than may be unpacked, {max} (`--max-unpacked`)"
                )
            }
            Why::Kind(kind) => {
                let kind = match kind {
                    Kind::CharacterDevice => "a character device",
                    Kind::BlockDevice => "a block device",
                    Kind::Fifo => "a FIFO",
                    Kind::Sparse => "a sparse file",
                    Kind::Other(b'M') => "a part of a file of several volumes",
                    Kind::Other(b'V') => "the label of a volume",
                    Kind::Other(flag) => return write!(f, "its kind, `{}`, is not known", shown(&[*flag])),
                    Kind::File | Kind::HardLink | Kind::Symlink | Kind::Dir => "of a kind that is taken",
                };
                write!(f, "it is {kind}; only files, folders and links are taken")
            }
        }
    }
}

/// Makes a name fit to be shown: what is no text, and no letter or sign that a terminal shows as
/// such, is escaped; a long one is cut to [`UNPACK_SHOWN_CHARS_MAX`].
pub fn shown(name: &[u8]) -> String {
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

/// Why there is nothing more to make.
#[derive(Debug)]
pub enum Failure {
    Refused(Refusal),
    /// The archive cannot be read.
    Read(io::Error),
}

/// Unpacks one archive. As a reader it gives the bytes of the last file.
pub struct Unpacker<R: Read> {
    tar: tar::Reader<Bounded<BufReader<gzip::Reader<R>>>>,
    tree: Tree,
    due: VecDeque<Make>,
    /// The last entry's name, fit to be shown.
    last: String,
}

impl<R: Read> Unpacker<R> {
    /// Begins to read an archive.
    ///
    /// # Errors
    /// [`Failure`]: it does not begin as one.
    pub fn new(archive: R, bounds: Bounds) -> Result<Unpacker<R>, Failure> {
        let gzip = gzip::Reader::new(archive).map_err(|error| told(error, ""))?;
        let plain = Bounded {
            source: BufReader::with_capacity(UNPACK_BUFFER_BYTES, gzip),
            bytes: 0,
            max: bounds.bytes_max,
        };
        Ok(Unpacker {
            tar: tar::Reader::new(plain),
            tree: Tree::new(bounds.entries_max),
            due: VecDeque::new(),
            last: String::new(),
        })
    }

    /// Returns what is to be made next. All bytes of a file have to be read before.
    ///
    /// # Errors
    /// [`Failure`]; nothing of the archive may be used then.
    pub fn next_make(&mut self) -> Result<Option<Make>, Failure> {
        while self.due.is_empty() {
            let next = self.tar.next_entry().map_err(|error| told(error, &self.last))?;
            let Some(entry) = next else {
                return Ok(None);
            };
            self.enter(&entry).map_err(Failure::Refused)?;
        }
        Ok(self.due.pop_front())
    }

    /// Reads bytes of the last file; 0 when there are no more.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        if !self.due.is_empty() {
            // Those of an entry follow the last of what it asks for.
            return Ok(0);
        }
        self.tar.read(into).map_err(|error| told(error, &self.last))
    }

    /// Looks at the whole, when there is nothing more to make: that the archive ends well, that no
    /// link leads out, and that the build file is there.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn finish(mut self, file: &str) -> Result<Sum, Failure> {
        let plain = self.tar.source();
        io::copy(plain, &mut io::sink()).map_err(|error| told(error, &self.last))?;
        let bytes = plain.bytes;
        self.tree.finish().map_err(Failure::Refused)?;
        if !self.tree.has_file(file) {
            return Err(Failure::Refused(Refusal::NoBuildFile {
                file: shown(file.as_bytes()),
            }));
        }
        Ok(Sum {
            entries: self.tree.entries,
            bytes,
        })
    }

    fn enter(&mut self, entry: &Entry) -> Result<(), Refusal> {
        self.last = shown(&entry.name);
        let Bounded { bytes, max, .. } = *self.tar.source();
        let refused = if entry.size > max.saturating_sub(bytes) {
            Err(Refused::Entry(Why::Large { size: entry.size, max }))
        } else {
            self.tree.enter(entry, &mut self.due)
        };
        refused.map_err(|refused| match refused {
            Refused::Entry(why) => Refusal::Entry {
                name: self.last.clone(),
                why,
            },
            Refused::All(refusal) => refusal,
        })
    }
}

/// Tells an archive that is damaged or too large from one that cannot be read. `after` is the name
/// of the last entry.
fn told(error: io::Error, after: &str) -> Failure {
    let of_tar = |damaged| Refusal::Tar {
        damaged,
        after: after.to_owned(),
    };
    let refusal = error
        .downcast()
        .or_else(|error| error.downcast().map(Refusal::Gzip))
        .or_else(|error| error.downcast().map(of_tar));
    refusal.map_or_else(Failure::Read, Failure::Refused)
}

/// Counts the bytes of an archive, and gives no more of them than are allowed.
struct Bounded<R> {
    source: R,
    bytes: u64,
    max: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(into)?;
        self.bytes += count as u64;
        if self.bytes > self.max {
            return Err(io::Error::other(Refusal::TooManyBytes { max: self.max }));
        }
        Ok(count)
    }
}

/// A refusal of an entry, whose name is added later, or of the whole.
enum Refused {
    Entry(Why),
    All(Refusal),
}

impl From<Why> for Refused {
    fn from(why: Why) -> Refused {
        Refused::Entry(why)
    }
}

enum Node {
    Dir(BTreeMap<Box<[u8]>, usize>),
    File,
    Link(Box<[u8]>),
}

/// What has been made so far.
struct Tree {
    /// Each with the folder that it is in; the first is the root, in itself.
    nodes: Vec<(usize, Node)>,
    entries_max: u64,
    /// Entries that came, and folders that came with them.
    entries: u64,
    /// Bytes of all components and targets.
    names: usize,
    /// Components that were looked at to see where links lead.
    steps: u64,
}

const ROOT: usize = 0;

impl Tree {
    fn new(entries_max: u64) -> Tree {
        Tree {
            nodes: vec![(ROOT, Node::Dir(BTreeMap::new()))],
            entries_max,
            entries: 0,
            names: 0,
            steps: 0,
        }
    }

    fn enter(&mut self, entry: &Entry, due: &mut VecDeque<Make>) -> Result<(), Refused> {
        self.count()?;
        if let Kind::CharacterDevice | Kind::BlockDevice | Kind::Fifo | Kind::Sparse | Kind::Other(_) = entry.kind {
            return Err(Why::Kind(entry.kind).into());
        }
        let path = components(&entry.name)?;
        let Some((name, folders)) = path.split_last() else {
            // `tar -C folder .` begins with the folder itself.
            return match entry.kind {
                Kind::Dir if !entry.name.is_empty() => Ok(()),
                _ => Err(Why::NoName.into()),
            };
        };
        let folder = self.folder(folders, due)?;
        let exists = self.exists(folder, name, entry.kind)?;
        let whole = path.join(&b'/');
        let (node, make) = match entry.kind {
            Kind::Dir => {
                let mode = entry.mode & 0o777 | 0o700;
                (
                    Node::Dir(BTreeMap::new()),
                    Make::Dir {
                        path: whole,
                        mode,
                        exists,
                    },
                )
            }
            Kind::Symlink => {
                let target = entry.target.clone();
                self.leads(folder, &target)?;
                self.remember(target.len())?;
                (Node::Link(target.clone().into()), Make::Symlink { path: whole, target })
            }
            Kind::HardLink => {
                let target = self.file(&entry.target)?;
                if target == whole {
                    // It is its own other name.
                    return Ok(());
                }
                (
                    Node::File,
                    Make::HardLink {
                        path: whole,
                        target,
                        exists,
                    },
                )
            }
            _ => {
                let make = Make::File {
                    path: whole,
                    mode: entry.mode & 0o777 | 0o600,
                    mtime_s: entry.mtime_s,
                    size: entry.size,
                    exists,
                };
                (Node::File, make)
            }
        };
        if !exists {
            self.add(folder, name, node)?;
        }
        due.push_back(make);
        Ok(())
    }

    fn count(&mut self) -> Result<(), Refused> {
        self.entries += 1;
        if self.entries > self.entries_max {
            let max = self.entries_max;
            return Err(Refused::All(Refusal::TooManyEntries { max }));
        }
        Ok(())
    }

    fn remember(&mut self, bytes: usize) -> Result<(), Refused> {
        self.names += bytes;
        if self.names > UNPACK_NAMES_BYTES_MAX {
            return Err(Refused::All(Refusal::TooManyNames));
        }
        Ok(())
    }

    fn child(&self, folder: usize, name: &[u8]) -> Option<usize> {
        match &self.nodes[folder].1 {
            Node::Dir(children) => children.get(name).copied(),
            Node::File | Node::Link(_) => None,
        }
    }

    /// Tells whether an entry of a kind has something to replace; refuses what it may not replace.
    fn exists(&self, folder: usize, name: &[u8], kind: Kind) -> Result<bool, Why> {
        let existing = self.child(folder, name).map(|node| &self.nodes[node].1);
        match (kind, existing) {
            (_, None) => Ok(false),
            (Kind::Dir, Some(Node::Dir(_))) | (Kind::File | Kind::HardLink, Some(Node::File)) => Ok(true),
            (_, Some(Node::Dir(_))) => Err(Why::Over("a folder")),
            (_, Some(Node::File)) => Err(Why::Over("a file")),
            (_, Some(Node::Link(_))) => Err(Why::Over("a link")),
        }
    }

    fn add(&mut self, folder: usize, name: &[u8], node: Node) -> Result<usize, Refused> {
        self.remember(name.len())?;
        let index = self.nodes.len();
        self.nodes.push((folder, node));
        if let Node::Dir(children) = &mut self.nodes[folder].1 {
            children.insert(name.into(), index);
        }
        Ok(index)
    }

    /// Goes down to a folder, and makes those that are not there.
    fn folder(&mut self, folders: &[&[u8]], due: &mut VecDeque<Make>) -> Result<usize, Refused> {
        let mut folder = ROOT;
        for (at, name) in folders.iter().enumerate() {
            let so_far = || folders[..=at].join(&b'/');
            folder = match self.child(folder, name) {
                None => {
                    self.count()?;
                    due.push_back(Make::Dir {
                        path: so_far(),
                        mode: 0o755,
                        exists: false,
                    });
                    self.add(folder, name, Node::Dir(BTreeMap::new()))?
                }
                Some(child) => match &self.nodes[child].1 {
                    Node::Dir(_) => child,
                    Node::Link(_) => return Err(Why::Through(shown(&so_far())).into()),
                    Node::File => return Err(Why::ThroughFile(shown(&so_far())).into()),
                },
            };
        }
        Ok(folder)
    }

    /// Looks for the file that a hard link leads to, and tells its name without detours.
    fn file(&self, target: &[u8]) -> Result<Vec<u8>, Refused> {
        let path = components(target).map_err(|why| match why {
            Why::Absolute | Why::DotDot => Why::LeadsOut(shown(target)),
            Why::NoName => Why::NoTarget,
            why => why,
        })?;
        let mut node = ROOT;
        for (at, name) in path.iter().enumerate() {
            if let Node::Link(_) = self.nodes[node].1 {
                return Err(Why::Through(shown(&path[..at].join(&b'/'))).into());
            }
            let child = self.child(node, name);
            node = child.ok_or_else(|| Why::NoFile(shown(target)))?;
        }
        match self.nodes[node].1 {
            Node::File => Ok(path.join(&b'/')),
            Node::Link(_) => Err(Why::Through(shown(target)).into()),
            Node::Dir(_) => Err(Why::NoFile(shown(target)).into()),
        }
    }

    /// Follows a symbolic link in a folder, step by step as the system would. Returns where it
    /// leads, if something is there.
    ///
    /// What is not there is taken for a folder: a later entry may make it one.
    fn leads(&mut self, folder: usize, target: &[u8]) -> Result<Option<usize>, Why> {
        if target.is_empty() {
            return Err(Why::NoTarget);
        }
        if target.contains(&0) {
            return Err(Why::Nul);
        }
        if target.len() > UNPACK_PATH_BYTES_MAX {
            return Err(Why::LongPath);
        }
        let out = || Why::LeadsOut(shown(target));
        if target[0] == b'/' {
            return Err(out());
        }
        let mut place = vec![Some(folder)];
        let mut at = folder;
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
                return Err(Why::ManySteps);
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
                        && let Node::Link(target) = &self.nodes[child].1
                    {
                        hops += 1;
                        if hops >= UNPACK_LINK_HOPS_MAX {
                            return Err(Why::ManyHops);
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
    fn finish(&mut self) -> Result<(), Refusal> {
        for index in 0..self.nodes.len() {
            let (folder, Node::Link(target)) = &self.nodes[index] else {
                continue;
            };
            let (folder, target) = (*folder, target.clone());
            if let Err(why) = self.leads(folder, &target) {
                return Err(Refusal::Entry {
                    name: shown(&self.name(index)),
                    why,
                });
            }
        }
        Ok(())
    }

    /// Tells whether a name, links followed, is that of a file.
    fn has_file(&mut self, file: &str) -> bool {
        let node = self.leads(ROOT, file.as_bytes());
        matches!(node, Ok(Some(node)) if matches!(self.nodes[node].1, Node::File))
    }

    /// Returns the whole name of what is in the tree.
    fn name(&self, mut index: usize) -> Vec<u8> {
        let mut path: Vec<&[u8]> = Vec::new();
        while index != ROOT {
            let folder = self.nodes[index].0;
            if let Node::Dir(children) = &self.nodes[folder].1
                && let Some((name, _)) = children.iter().find(|&(_, &child)| child == index)
            {
                path.push(name);
            }
            index = folder;
        }
        path.reverse();
        path.join(&b'/')
    }
}

/// Takes a name apart; nothing is left of one that means the root.
fn components(name: &[u8]) -> Result<Vec<&[u8]>, Why> {
    if name.is_empty() {
        return Err(Why::NoName);
    }
    if name[0] == b'/' {
        return Err(Why::Absolute);
    }
    if name.contains(&0) {
        return Err(Why::Nul);
    }
    if name.len() > UNPACK_PATH_BYTES_MAX {
        return Err(Why::LongPath);
    }
    let mut path = Vec::new();
    for component in name.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err(Why::DotDot),
            long if long.len() > UNPACK_COMPONENT_BYTES_MAX => return Err(Why::LongComponent),
            component => path.push(component),
        }
    }
    if path.len() > UNPACK_DEPTH_MAX {
        return Err(Why::Deep);
    }
    Ok(path)
}

#[cfg(test)]
mod tests;
