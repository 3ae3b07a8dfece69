//! One build and the upload it is made of: what is recorded, how it changes, and its JSON.
//!
//! In: requests, changes with the time at which they came. Out: the next value, or JSON. A build in a final state never changes.
//! Times are milliseconds since 1970. Source: `cloud.md` §2.1, `cloud-interface.md` §4.

use std::fmt;
use std::sync::Arc;

use crate::proto::uuid::Uuid;

/// The name of an organization, or of a region: a part of paths and of the scope of signatures, so of few characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// The name of an organization.
pub type Org = Name;

impl Name {
    /// Takes 1 to 63 letters, digits, dots, hyphens and underscores of ASCII, the first a letter or a digit.
    pub fn parse(text: &str) -> Option<Name> {
        let first = text.bytes().next()?;
        let rest = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        (text.len() <= 63 && first.is_ascii_alphanumeric() && text.bytes().all(rest)).then(|| Name(text.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// An upload: what its grant says, and what came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    pub id: Uuid,
    pub org: Org,
    pub region: Name,
    /// When the grant ends.
    pub expires_ms: u64,
    /// Whether a build was made of it, so that it takes no other archive.
    pub sealed: bool,
    /// What came last; nothing until an upload is done.
    pub facts: Option<Facts>,
}

/// What is known of an archive that is whole. The file is the one that was hashed if `inode` and `modified_ns` are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes.
    pub size: u64,
    pub md5: [u8; 16],
    pub inode: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: i64,
}

/// Where a build stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Pending,
    Building,
    Success,
    Failed,
    Timeout,
}

impl Status {
    pub const ALL: [Status; 5] = [
        Status::Pending,
        Status::Building,
        Status::Success,
        Status::Failed,
        Status::Timeout,
    ];

    /// Returns its word in JSON, queries and records.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Building => "building",
            Status::Success => "success",
            Status::Failed => "failed",
            Status::Timeout => "timeout",
        }
    }

    /// Returns the status of that word.
    pub fn from_name(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Tells whether nothing follows.
    pub fn is_final(self) -> bool {
        !matches!(self, Status::Pending | Status::Building)
    }
}

/// What a successful build made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub place: Place,
    /// Bytes.
    pub size: u64,
}

/// Where an image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The command put it somewhere and said where.
    Uri(String),
    /// The service keeps it under this file name.
    Kept(String),
}

/// One build as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    pub id: Uuid,
    pub org: Org,
    pub upload: Uuid,
    pub region: Name,
    /// 16 hex digits: the first half of the archive's MD5.
    pub hash: String,
    /// The build file, relative to the root of the archive.
    pub file: String,
    /// Bytes of the archive.
    pub size: u64,
    /// Scheme and host of the request that made it, for URLs when no `--public-url` is set.
    pub base: String,
    pub status: Status,
    /// Runs of the command so far.
    pub attempt: u32,
    pub created_ms: u64,
    pub updated_ms: u64,
    pub started_ms: Option<u64>,
    pub completed_ms: Option<u64>,
    /// Of a success alone.
    pub image: Option<Image>,
    /// Of a failure alone.
    pub error: Option<String>,
}

/// What happens to a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its command begins, for the first time or again.
    Start,
    Succeed(Image),
    Fail(String),
    TimeOut(String),
}

/// What a client asks for in `POST /builds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub upload: Uuid,
    pub region: String,
    pub file: String,
}

/// What a client asks for in `GET /builds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    pub status: Option<Status>,
    pub region: Option<String>,
    /// In lower case.
    pub hash: Option<String>,
    pub limit: usize,
    pub offset: u64,
}
