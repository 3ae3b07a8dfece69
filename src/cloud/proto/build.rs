//! One build and the upload it is made of: what is recorded, how it changes, and its JSON.
//!
//! In: requests, changes with the time at which they came. Out: the next value, or JSON. A build in
//! a final state never changes, and no time of a build goes back, whatever the clock does. Times
//! are milliseconds since 1970. Refuses: bodies and queries that make no sense, each with the
//! member that is wrong. Source: `cloud.md` §2, `cloud-interface.md` §2 and §4.

use std::fmt;

use serde_json::{Map, Value};

use crate::limits::BUILD_FILE_BYTES_MAX;
use crate::proto::api_error::ApiError;
use crate::proto::keys::Sha256Digest;
pub use crate::proto::name::{Org, Slug};
use edge_runner_proto::aliases::{self, Area};
use edge_runner_proto::server::form;
use edge_runner_proto::time::iso_ms;
use edge_runner_proto::uuid::Uuid;

const BUILDS_PAGE_MAX: usize = 100;

/// Builds on a page of `GET /builds` when the client does not say, and at most, as in the published
/// API.
const BUILDS_PAGE: usize = 20;

/// The build file's path in requests and answers.
const FILE: &str = "buildfilePath";
/// The build file of those who name none.
const FILE_DEFAULT: &str = "Dockerfile";

/// An upload: what its grant says, and what came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadRecord {
    pub id: Uuid,
    pub org: Org,
    pub region: Slug,
    /// When the grant ends.
    pub expires_ms: u64,
    /// Whether a build was made of it, so that it takes no other archive.
    pub sealed: bool,
    /// The key that asked for the grant, by its SHA-256; nothing: an older release did not write it
    /// down.
    pub key: Option<Sha256Digest>,
    /// What came last; nothing until an upload is done.
    pub info: Option<ArchiveInfo>,
}

/// What is known of an archive that is whole. The file is the one that was hashed if `inode` and
/// `modified_ns` are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveInfo {
    /// Bytes.
    pub size: u64,
    /// What clients know an archive by, in half.
    pub md5: [u8; 16],
    /// What tells archives apart.
    pub sha256: Sha256Digest,
    pub inode: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: i64,
}

/// Where a build stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStatus {
    Pending,
    Building,
    Success,
    Failed,
    Timeout,
}

impl BuildStatus {
    pub const ALL: [BuildStatus; 5] = [
        BuildStatus::Pending,
        BuildStatus::Building,
        BuildStatus::Success,
        BuildStatus::Failed,
        BuildStatus::Timeout,
    ];

    /// Returns its word in JSON, queries and records.
    pub fn name(self) -> &'static str {
        match self {
            BuildStatus::Pending => "pending",
            BuildStatus::Building => "building",
            BuildStatus::Success => "success",
            BuildStatus::Failed => "failed",
            BuildStatus::Timeout => "timeout",
        }
    }

    /// Returns the status of that word.
    pub fn from_name(name: &str) -> Option<BuildStatus> {
        BuildStatus::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Tells whether nothing follows.
    pub fn is_final(self) -> bool {
        !matches!(self, BuildStatus::Pending | BuildStatus::Building)
    }
}

/// What a successful build made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub location: ImageLocation,
    /// Bytes.
    pub size: u64,
}

/// Where an image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageLocation {
    /// The command put it somewhere and said where.
    Uri(String),
    /// The service keeps it under this file name.
    Stored(String),
}

/// One build as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    pub id: Uuid,
    pub org: Org,
    pub upload: Uuid,
    pub region: Slug,
    /// 16 hex digits: the first half of the archive's MD5. It is a name: anybody can make two
    /// archives of one.
    pub hash: String,
    /// Of the archive; nothing: an older release did not write it down.
    pub sha256: Option<Sha256Digest>,
    /// The key that asked for the grant of the archive, by its SHA-256.
    pub key: Option<Sha256Digest>,
    /// The build file, relative to the root of the archive.
    pub file: String,
    /// Bytes of the archive.
    pub size: u64,
    /// Scheme and host of the request that made it, for URLs when no `--public-url` is set.
    pub base: String,
    pub status: BuildStatus,
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
pub enum BuildChange {
    /// Its command begins, for the first time or again.
    Start,
    Succeed(Image),
    Fail(String),
    TimeOut(String),
}

/// A build that has ended, or one whose state does not lead there, was to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTransition {
    pub status: BuildStatus,
}

impl fmt::Display for InvalidTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a build that is `{}` does not change so", self.status.name())
    }
}

impl std::error::Error for InvalidTransition {}

impl Build {
    /// Makes a new one, which waits.
    pub fn new(id: Uuid, upload: &UploadRecord, info: &ArchiveInfo, file: String, base: String, now_ms: u64) -> Build {
        Build {
            id,
            org: upload.org.clone(),
            upload: upload.id,
            region: upload.region.clone(),
            hash: info.context_hash(),
            sha256: Some(info.sha256),
            key: upload.key,
            file,
            size: info.size,
            base,
            status: BuildStatus::Pending,
            attempt: 0,
            created_ms: now_ms,
            updated_ms: now_ms,
            started_ms: None,
            completed_ms: None,
            image: None,
            error: None,
        }
    }

    /// Returns the build after a change. Its times are never before those it has.
    ///
    /// # Errors
    /// [`InvalidTransition`] for a build that has ended, and for a success of one that never started.
    pub fn change(&self, to: BuildChange, now_ms: u64) -> Result<Build, InvalidTransition> {
        let invalid = InvalidTransition { status: self.status };
        if self.status.is_final() {
            return Err(invalid);
        }
        let now_ms = now_ms.max(self.updated_ms);
        let mut next = Build {
            updated_ms: now_ms,
            ..self.clone()
        };
        match to {
            BuildChange::Start => {
                next.status = BuildStatus::Building;
                next.attempt += 1;
                next.started_ms.get_or_insert(now_ms);
                return Ok(next);
            }
            BuildChange::Succeed(_) if self.status == BuildStatus::Pending => return Err(invalid),
            BuildChange::Succeed(image) => {
                next.status = BuildStatus::Success;
                next.image = Some(image);
            }
            BuildChange::Fail(why) => {
                next.status = BuildStatus::Failed;
                next.error = Some(why);
            }
            BuildChange::TimeOut(why) => {
                next.status = BuildStatus::Timeout;
                next.error = Some(why);
            }
        }
        next.completed_ms = Some(now_ms);
        Ok(next)
    }

    /// Returns its JSON. Members without a value are left out. `public` is scheme and host that
    /// clients see, without a slash at the end; without it they are those of the request that made
    /// the build.
    pub fn json(&self, public: Option<&str>) -> Value {
        let base = public.unwrap_or(&self.base);
        let mut json = Map::new();
        let mut set = |name: &str, value: Value| json.insert(name.to_owned(), value);
        set("id", self.id.to_string().into());
        set("organizationId", self.org.as_str().into());
        set("status", self.status.name().into());
        set("region", self.region.as_str().into());
        set("contextHash", self.hash.as_str().into());
        set(FILE, self.file.as_str().into());
        for alias in aliases::aliases(Area::JsonKey, FILE) {
            set(alias, self.file.as_str().into());
        }
        set("contextSizeBytes", self.size.into());
        set("logsUrl", format!("{base}/v1/builds/{}/logs", self.id).into());
        set("createdAt", iso_ms(self.created_ms).into());
        set("updatedAt", iso_ms(self.updated_ms).into());
        if let Some(started_ms) = self.started_ms {
            set("startedAt", iso_ms(started_ms).into());
        }
        if let Some(completed_ms) = self.completed_ms {
            let took_ms = completed_ms - self.started_ms.unwrap_or(completed_ms).min(completed_ms);
            set("completedAt", iso_ms(completed_ms).into());
            set("buildDurationSeconds", (took_ms / 1000).into());
        }
        if let Some(image) = &self.image {
            set("imageUri", image.uri(base, self.id).into());
            set("imageSizeBytes", image.size.into());
        }
        if let Some(error) = &self.error {
            set("errorMessage", error.as_str().into());
        }
        Value::Object(json)
    }
}

impl ArchiveInfo {
    /// Returns the first half of the archive's MD5 as hex digits: what clients know an archive by.
    pub fn context_hash(&self) -> String {
        let first = self.md5.first_chunk().expect("half of sixteen bytes are eight");
        format!("{:016x}", u64::from_be_bytes(*first))
    }
}

impl Image {
    /// Returns where clients find it.
    fn uri(&self, base: &str, build: Uuid) -> String {
        match &self.location {
            ImageLocation::Uri(uri) => uri.clone(),
            ImageLocation::Stored(name) => {
                let mut uri = format!("{base}/v1/images/{build}/");
                for byte in name.bytes() {
                    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                        uri.push(char::from(byte));
                    } else {
                        uri.push_str(&format!("%{byte:02X}"));
                    }
                }
                uri
            }
        }
    }
}

/// What a client asks for in `POST /builds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildRequest {
    pub upload: Uuid,
    pub region: String,
    pub file: String,
}

/// What a client asks for in `GET /builds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFilter {
    pub status: Option<BuildStatus>,
    pub region: Option<String>,
    /// In lower case. It finds what `key` has uploaded, since two archives may have one: the
    /// holder of another key of the organization could make an image that is taken for another's.
    pub hash: Option<String>,
    /// The key that asks, by its SHA-256.
    pub key: Sha256Digest,
    pub limit: usize,
    pub offset: u64,
}

impl BuildRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// 400, naming the member.
    pub fn parse(body: &[u8]) -> Result<BuildRequest, ApiError> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad_request(format!("the body is to be a JSON object: {error}")))?;
        let Value::Object(body) = body else {
            return Err(ApiError::bad_request("the body is to be a JSON object"));
        };
        let upload = text(&body, "uploadId")?.ok_or_else(|| missing_member("uploadId"))?;
        let upload = Uuid::parse(upload)
            .ok_or_else(|| ApiError::bad_request("`uploadId` is to be a version-4 UUID, as the grant has it"))?;
        let region = text(&body, "region")?
            .ok_or_else(|| missing_member("region"))?
            .to_owned();
        let named = aliases::first(Area::JsonKey, FILE, |name| text(&body, name).transpose()).transpose()?;
        let file = named.unwrap_or(FILE_DEFAULT).to_owned();
        if let Some(what) = build_file_problem(&file) {
            return Err(ApiError::bad_request(format!(
                "`{FILE}` {what}; it is to be a path of 1 to {BUILD_FILE_BYTES_MAX} bytes from the root of the archive, such as \
                 `{FILE_DEFAULT}`"
            )));
        }
        Ok(BuildRequest { upload, region, file })
    }
}

/// Returns a member that is to be text; nothing when it is absent.
fn text<'b>(body: &'b Map<String, Value>, name: &str) -> Result<Option<&'b str>, ApiError> {
    match body.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ApiError::bad_request(format!("`{name}` is to be a string"))),
    }
}

fn missing_member(name: &str) -> ApiError {
    ApiError::bad_request(format!("`{name}` is missing; `uploadId` and `region` are required"))
}

/// Says what is wrong with the path of a build file. It becomes an argument of the builder command,
/// and a part of lines.
pub fn build_file_problem(file: &str) -> Option<&'static str> {
    let misleads = |letter: char| {
        // Line and paragraph separators, and what turns the direction of the text around it.
        letter.is_control()
            || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
    };
    if file.is_empty() {
        Some("is empty")
    } else if file.len() > BUILD_FILE_BYTES_MAX {
        Some("is too long")
    } else if file.starts_with('/') {
        Some("is absolute")
    } else if file.starts_with('-') {
        Some("begins with `-`, as options do")
    } else if file.contains('\0') {
        Some("has a NUL in it")
    } else if file.contains(misleads) {
        Some("has a control character in it")
    } else if file.split('/').any(|component| component == "..") {
        Some("has a component `..`")
    } else if file.split('/').any(str::is_empty) {
        Some("has an empty component")
    } else if file.split('/').next_back() == Some(".") {
        Some("names a folder")
    } else {
        None
    }
}

impl BuildFilter {
    /// Reads the query of a request: what stands behind the `?`.
    ///
    /// # Errors
    /// 400, naming the parameter.
    pub fn parse(query: &str, key: Sha256Digest) -> Result<BuildFilter, ApiError> {
        let pairs = form::pairs(query.as_bytes());
        let status = match form::value(&pairs, "status") {
            None => None,
            Some(word) => Some(BuildStatus::from_name(word).ok_or_else(|| {
                let names = BuildStatus::ALL.map(BuildStatus::name).join("`, `");
                ApiError::bad_request(format!("`status` is to be one of `{names}`"))
            })?),
        };
        let limit = match form::value(&pairs, "limit") {
            None => BUILDS_PAGE,
            Some(text) => number(text)
                .and_then(|limit| usize::try_from(limit).ok())
                .filter(|limit| (1..=BUILDS_PAGE_MAX).contains(limit))
                .ok_or_else(|| {
                    ApiError::bad_request(format!("`limit` is to be a number from 1 to {BUILDS_PAGE_MAX}"))
                })?,
        };
        let offset = match form::value(&pairs, "offset") {
            None => 0,
            Some(text) => number(text).ok_or_else(|| ApiError::bad_request("`offset` is to be a number from 0 on"))?,
        };
        Ok(BuildFilter {
            status,
            region: form::value(&pairs, "region").map(str::to_owned),
            hash: form::value(&pairs, "contextHash").map(str::to_lowercase),
            key,
            limit,
            offset,
        })
    }
}

/// Reads digits, without a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests;
