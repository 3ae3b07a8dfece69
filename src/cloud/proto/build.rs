//! Builds and uploads: records, state changes, JSON.
//!
//! In: requests, and changes with their time. Out: the next state of a build, or its JSON. A build
//! in a final state never changes, and its times never decrease, even if the clock does. Times are
//! milliseconds since 1970. Invalid bodies and queries are rejected with the name of the member.
//! Source: `docs/spec/cloud-protocol.md` 2; requirements C-010 to C-027.

use std::fmt;

use serde_json::{Map, Value};

use crate::limits::BUILD_FILE_BYTES_MAX;
use crate::proto::api_error::ApiError;
use crate::proto::keys::Sha256Digest;
use crate::proto::name::uri_encode;
pub use crate::proto::name::{Org, Slug};
use edge_runner_proto::aliases::{self, Area};
use edge_runner_proto::server::form;
use edge_runner_proto::time::iso_ms;
use edge_runner_proto::uuid::Uuid;

const BUILDS_PAGE_MAX: usize = 100;

/// Default page size of `GET /builds`.
const BUILDS_PAGE: usize = 20;

/// Name of the build file's member in JSON.
const FILE: &str = "buildfilePath";
/// Default build file.
const FILE_DEFAULT: &str = "Dockerfile";

/// An upload: its grant, and the archive received for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadRecord {
    pub id: Uuid,
    pub org: Org,
    pub region: Slug,
    /// When the grant expires.
    pub expires_ms: u64,
    /// Whether a build uses the archive, which cannot be replaced then.
    pub sealed: bool,
    /// SHA-256 of the key that requested the grant. `None` in records of older releases.
    pub key: Option<Sha256Digest>,
    /// The latest archive. `None` until an upload has completed.
    pub info: Option<ArchiveInfo>,
}

/// Facts about a complete archive. They hold for the file with the same `inode` and `modified_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveInfo {
    /// Size in bytes.
    pub size: u64,
    /// Its first half is the context hash that clients know.
    pub md5: [u8; 16],
    /// Identifies the content of the archive.
    pub sha256: Sha256Digest,
    pub inode: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: i64,
}

/// The state of a build.
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

    /// Returns the name in JSON, queries and records.
    pub fn name(self) -> &'static str {
        match self {
            BuildStatus::Pending => "pending",
            BuildStatus::Building => "building",
            BuildStatus::Success => "success",
            BuildStatus::Failed => "failed",
            BuildStatus::Timeout => "timeout",
        }
    }

    /// Returns the status with this name.
    pub fn from_name(name: &str) -> Option<BuildStatus> {
        BuildStatus::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Tells whether the state is final.
    pub fn is_final(self) -> bool {
        !matches!(self, BuildStatus::Pending | BuildStatus::Building)
    }
}

/// The result of a successful build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub location: ImageLocation,
    /// Size in bytes.
    pub size: u64,
}

/// Where an image is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageLocation {
    /// An external location that the command reported.
    Uri(String),
    /// The service stores the image under this file name.
    Stored(String),
}

/// A build as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    pub id: Uuid,
    pub org: Org,
    pub upload: Uuid,
    pub region: Slug,
    /// 16 hex digits, the first half of the archive's MD5. It is not collision-resistant.
    pub hash: String,
    /// SHA-256 of the archive. `None` in records of older releases.
    pub sha256: Option<Sha256Digest>,
    /// SHA-256 of the key that requested the grant.
    pub key: Option<Sha256Digest>,
    /// The build file, relative to the root of the archive.
    pub file: String,
    /// Size of the archive in bytes.
    pub size: u64,
    /// Scheme and host of the request that created the build, for URLs without `--public-url`.
    pub base: String,
    pub status: BuildStatus,
    /// Number of runs so far.
    pub attempt: u32,
    pub created_ms: u64,
    pub updated_ms: u64,
    pub started_ms: Option<u64>,
    pub completed_ms: Option<u64>,
    /// Set on success.
    pub image: Option<Image>,
    /// Set on failure and timeout.
    pub error: Option<String>,
}

/// A state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildChange {
    /// A run starts, the first or a later one.
    Start,
    Succeed(Image),
    Fail(String),
    TimeOut(String),
}

impl BuildChange {
    /// Returns the status of a build after it.
    pub fn status(&self) -> BuildStatus {
        match self {
            BuildChange::Start => BuildStatus::Building,
            BuildChange::Succeed(_) => BuildStatus::Success,
            BuildChange::Fail(_) => BuildStatus::Failed,
            BuildChange::TimeOut(_) => BuildStatus::Timeout,
        }
    }
}

/// The build's status does not allow the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTransition {
    pub status: BuildStatus,
}

impl fmt::Display for InvalidTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a build in state `{}` does not allow this change",
            self.status.name()
        )
    }
}

impl std::error::Error for InvalidTransition {}

impl Build {
    /// Creates a pending build.
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

    /// Returns the build after a change. Its times never decrease.
    ///
    /// # Errors
    /// [`InvalidTransition`] when the build has ended, or succeeds without having started.
    pub fn change(&self, to: BuildChange, now_ms: u64) -> Result<Build, InvalidTransition> {
        let invalid = InvalidTransition { status: self.status };
        if self.status.is_final() {
            return Err(invalid);
        }
        let now_ms = now_ms.max(self.updated_ms);
        let mut next = Build {
            status: to.status(),
            updated_ms: now_ms,
            ..self.clone()
        };
        match to {
            BuildChange::Start => {
                next.attempt += 1;
                next.started_ms.get_or_insert(now_ms);
                return Ok(next);
            }
            BuildChange::Succeed(_) if self.status == BuildStatus::Pending => return Err(invalid),
            BuildChange::Succeed(image) => next.image = Some(image),
            BuildChange::Fail(reason) | BuildChange::TimeOut(reason) => next.error = Some(reason),
        }
        next.completed_ms = Some(now_ms);
        Ok(next)
    }

    /// Returns the JSON. Members without a value are omitted. `public` is the scheme and host that
    /// clients see, without a trailing slash; its default is [`Build::base`].
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
    /// Returns the first half of the MD5 in hex.
    pub fn context_hash(&self) -> String {
        let first = self.md5.first_chunk().expect("half of sixteen bytes are eight");
        format!("{:016x}", u64::from_be_bytes(*first))
    }
}

impl Image {
    /// Returns the image's URI.
    fn uri(&self, base: &str, build: Uuid) -> String {
        match &self.location {
            ImageLocation::Uri(uri) => uri.clone(),
            ImageLocation::Stored(name) => {
                format!("{base}/v1/images/{build}/{}", uri_encode(name))
            }
        }
    }
}

/// The body of `POST /builds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildRequest {
    pub upload: Uuid,
    pub region: String,
    pub file: String,
}

/// The query of `GET /builds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFilter {
    pub status: Option<BuildStatus>,
    pub region: Option<String>,
    /// In lower case. It matches archives that `key` uploaded: MD5 collides, so another key of the
    /// organization could offer its own image under the same hash.
    pub hash: Option<String>,
    /// SHA-256 of the requesting key.
    pub key: Sha256Digest,
    pub limit: usize,
    pub offset: u64,
}

impl BuildRequest {
    /// Parses a request body.
    ///
    /// # Errors
    /// 400, naming the member.
    pub fn parse(body: &[u8]) -> Result<BuildRequest, ApiError> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad_request(format!("the body must be a JSON object: {error}")))?;
        let Value::Object(body) = body else {
            return Err(ApiError::bad_request("the body must be a JSON object"));
        };
        let upload = text(&body, "uploadId")?.ok_or_else(|| missing_member("uploadId"))?;
        let upload = Uuid::parse(upload)
            .ok_or_else(|| ApiError::bad_request("`uploadId` must be a version-4 UUID, as the grant has it"))?;
        let region = text(&body, "region")?
            .ok_or_else(|| missing_member("region"))?
            .to_owned();
        let named = aliases::first(Area::JsonKey, FILE, |name| text(&body, name).transpose()).transpose()?;
        let file = named.unwrap_or(FILE_DEFAULT).to_owned();
        if let Some(what) = build_file_problem(&file) {
            return Err(ApiError::bad_request(format!(
                "`{FILE}` {what}; it must be a path of 1 to {BUILD_FILE_BYTES_MAX} bytes from the root of the archive, such as \
                 `{FILE_DEFAULT}`"
            )));
        }
        Ok(BuildRequest { upload, region, file })
    }

    /// Checks that the upload of a request exists, and is of this organization and region.
    ///
    /// # Errors
    /// 400.
    pub fn check_upload(&self, org: &Org, upload: Option<UploadRecord>) -> Result<UploadRecord, ApiError> {
        let upload = upload.filter(|upload| upload.org == *org).ok_or_else(|| {
            ApiError::bad_request("there is no upload with this `uploadId`; ask for a grant and upload first")
        })?;
        if upload.region.as_str() != self.region {
            let text = format!("the grant of this upload is for the region `{}`", upload.region);
            return Err(ApiError::bad_request(text));
        }
        Ok(upload)
    }
}

/// 400: the grant of a request was not used.
pub fn nothing_uploaded() -> ApiError {
    ApiError::bad_request("nothing was uploaded with this grant, or it was deleted since; upload first")
}

/// Returns an optional string member.
fn text<'b>(body: &'b Map<String, Value>, name: &str) -> Result<Option<&'b str>, ApiError> {
    match body.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ApiError::bad_request(format!("`{name}` must be a string"))),
    }
}

fn missing_member(name: &str) -> ApiError {
    ApiError::bad_request(format!("`{name}` is missing; `uploadId` and `region` are required"))
}

/// Describes what is wrong with a build file's path. The path becomes an argument of the builder
/// command and appears in log lines.
pub fn build_file_problem(file: &str) -> Option<&'static str> {
    let misleads = |letter: char| {
        // Line and paragraph separators, and characters that change the text direction.
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
    /// Parses a query string.
    ///
    /// # Errors
    /// 400, naming the parameter.
    pub fn parse(query: &str, key: Sha256Digest) -> Result<BuildFilter, ApiError> {
        let pairs = form::parse(query.as_bytes());
        let status = match form::find(&pairs, "status") {
            None => None,
            Some(word) => Some(BuildStatus::from_name(word).ok_or_else(|| {
                let names = BuildStatus::ALL.map(BuildStatus::name).join("`, `");
                ApiError::bad_request(format!("`status` must be one of `{names}`"))
            })?),
        };
        let limit = match form::find(&pairs, "limit") {
            None => BUILDS_PAGE,
            Some(text) => number(text)
                .and_then(|limit| usize::try_from(limit).ok())
                .filter(|limit| (1..=BUILDS_PAGE_MAX).contains(limit))
                .ok_or_else(|| {
                    ApiError::bad_request(format!("`limit` must be a number from 1 to {BUILDS_PAGE_MAX}"))
                })?,
        };
        let offset = match form::find(&pairs, "offset") {
            None => 0,
            Some(text) => number(text).ok_or_else(|| ApiError::bad_request("`offset` must be a number from 0 on"))?,
        };
        Ok(BuildFilter {
            status,
            region: form::find(&pairs, "region").map(str::to_owned),
            hash: form::find(&pairs, "contextHash").map(str::to_lowercase),
            key,
            limit,
            offset,
        })
    }
}

/// Parses unsigned decimal digits.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests;
