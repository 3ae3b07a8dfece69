//! Files that callers upload for the bot: the form, the names in the folder, and which of them are
//! deleted.
//!
//! In: pieces of a form, the files of the folder, ids of sessions. Out: the bytes of the file, the
//! JSON of the answer, and the files to delete. A name is random, so that no name of a client ever
//! is a path. Rejected: forms without a file, longer files than [`UPLOAD_BYTES_MAX`], and what a
//! folder has no space for whose files are kept. Source: the routes of Pipecat's runner (1.14),
//! whose `LocalFileStorage` reads the folder in the bot.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use crate::http::folder::content_type;
use crate::limits::{FRAME_BYTES_MAX, UPLOAD_BYTES_MAX};
use crate::server::multipart::{self, FilePart, MultipartError, MultipartEvent, MultipartParser};
use crate::sorting;

/// Bytes of all files of the folder: what a board can spare.
const UPLOADS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Files of the folder, which is listed for each new one.
pub const UPLOADS_MAX: usize = 10_000;
/// The default of `--uploads-folder-max-files`, that of Pipecat's runner.
pub const UPLOADS_DEFAULT: usize = 10;

/// The path of uploads that belong to no session.
pub const PATH: &str = "/files";
/// The scheme of the URLs by which bots find their files.
const SCHEME: &str = "pipecat:";
/// The beginning of the name of a file that is being received.
const PART: &str = ".upload-";

/// The name of a file in the folder: 16 random bytes, 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UploadName([u8; 16]);

impl UploadName {
    pub const fn new(random: [u8; 16]) -> Self {
        UploadName(random)
    }

    /// Reads the name of a file; `None` for a file that is no upload.
    pub fn parse(name: &str) -> Option<Self> {
        let bytes = HEXLOWER.decode(name.as_bytes()).ok()?;
        bytes.try_into().ok().map(UploadName)
    }

    /// Returns the name of the file while it is received.
    pub fn part(self) -> String {
        format!("{PART}{self}")
    }
}

impl fmt::Display for UploadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

/// Returns whether a runner that was killed may have left a file of this name.
pub fn is_leftover(name: &str) -> bool {
    UploadName::parse(name.strip_prefix(PART).unwrap_or(name)).is_some()
}

/// Returns the JSON of the answer: a file as RTVI's `send-file` names it.
pub fn reply(name: UploadName, file: &FilePart) -> String {
    let of_client = file.name.as_deref().unwrap_or_default().trim_end_matches('/');
    let of_client = of_client.rsplit('/').next().unwrap_or_default();
    let guessed = content_type(of_client).split(';').next().unwrap_or_default();
    let format = match (guessed, &file.content_type) {
        ("application/octet-stream", Some(declared)) => declared,
        _ => guessed,
    };
    json!({
        "name": of_client,
        "source": {"type": "url", "url": format!("{SCHEME}{name}")},
        "format": format,
    })
    .to_string()
}

/// Where the client of a session uploads its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadScope {
    /// They belong to its session.
    Session,
    /// They belong to no session: Pipecat's runner knows the one of a WebSocket only when its
    /// client connects.
    Anyone,
}

/// Adds the path of uploads to an answer of `/start`, where clients of Pipecat's runner find it.
pub fn advertise(reply: Vec<u8>, scope: UploadScope) -> Vec<u8> {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(&reply) else {
        return reply;
    };
    let path = match (scope, fields.get("sessionId").and_then(Value::as_str)) {
        (UploadScope::Anyone, _) => PATH.to_owned(),
        (UploadScope::Session, Some(id)) => format!("/sessions/{id}{PATH}"),
        (UploadScope::Session, None) => return reply,
    };
    fields.insert("fileUploadUrl".to_owned(), path.into());
    Value::Object(fields).to_string().into_bytes()
}

/// Why an upload is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadError {
    /// There is no folder.
    Off,
    /// As many as possible are being received.
    Busy,
    /// The body is no form, or has no file.
    NoFile,
    Form(MultipartError),
    TooLarge,
    /// It was not whole in time.
    Late,
    /// The folder keeps its files, and has no space for another one.
    Full,
    /// The file could not be written.
    Failed,
}

impl UploadError {
    /// Returns the status of the answer.
    pub fn status(self) -> u16 {
        match self {
            UploadError::Off | UploadError::Busy => 503,
            UploadError::NoFile | UploadError::Form(MultipartError::Files(_)) => 422,
            UploadError::Form(_) => 400,
            UploadError::TooLarge => 413,
            UploadError::Late => 408,
            UploadError::Full => 507,
            UploadError::Failed => 500,
        }
    }
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UploadError::Off => f.write_str("uploads are off: start the runner with --uploads-folder DIR"),
            UploadError::Busy => f.write_str("too many files are uploaded now; try again later"),
            UploadError::NoFile => {
                f.write_str("send multipart/form-data with one part named \"file\" that has a file name")
            }
            UploadError::Form(MultipartError::Malformed(why) | MultipartError::Files(why)) => f.write_str(why),
            UploadError::Form(MultipartError::FieldsTooLong) => f.write_str("too much comes before the file"),
            UploadError::TooLarge => write!(f, "the file exceeds {UPLOAD_BYTES_MAX} bytes"),
            UploadError::Late => f.write_str("the upload takes too long"),
            UploadError::Full => f.write_str("the folder of uploads is full, and keeps its files"),
            UploadError::Failed => f.write_str("the file could not be stored"),
        }
    }
}

impl std::error::Error for UploadError {}

impl From<MultipartError> for UploadError {
    fn from(error: MultipartError) -> Self {
        UploadError::Form(error)
    }
}

/// A form that is being received.
pub struct IncomingForm {
    parser: MultipartParser,
    bytes: u64,
}

impl IncomingForm {
    /// Begins a form with this `Content-Type`, and with this length if the client has sent it.
    ///
    /// # Errors
    /// [`UploadError`] for another type, and for a length that no file fits.
    pub fn new(content_type: &[u8], declared: Option<u64>) -> Result<Self, UploadError> {
        let boundary = multipart::boundary(content_type).ok_or(UploadError::NoFile)?;
        if declared.is_some_and(|bytes| bytes > UPLOAD_BYTES_MAX + FRAME_BYTES_MAX as u64) {
            return Err(UploadError::TooLarge);
        }
        Ok(IncomingForm {
            parser: MultipartParser::new(&boundary),
            bytes: 0,
        })
    }

    /// Parses the next bytes of the body, and appends those of the file to `file`.
    ///
    /// # Errors
    /// [`UploadError`] for a form that is not taken. The form must not be used afterwards.
    pub fn push(&mut self, body: &[u8], file: &mut Vec<u8>) -> Result<(), UploadError> {
        let total = &mut self.bytes;
        self.parser.push(body, &mut |event| {
            if let MultipartEvent::Data(data) = event {
                *total += data.len() as u64;
                if *total > UPLOAD_BYTES_MAX {
                    return Err(UploadError::TooLarge);
                }
                file.extend_from_slice(data);
            }
            Ok(())
        })
    }

    /// Returns what the form says of its file, and its length.
    ///
    /// # Errors
    /// [`UploadError`] for a form that is not whole, or whose file is a plain field.
    pub fn finish(mut self) -> Result<(FilePart, u64), UploadError> {
        let file = self.parser.take_file();
        self.parser.finish()?;
        match file {
            Some(file) if file.name.is_some() => Ok((file, self.bytes)),
            _ => Err(UploadError::NoFile),
        }
    }
}

/// A file of the folder. The oldest one is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UploadedFile {
    pub modified: SystemTime,
    pub name: UploadName,
    pub bytes: u64,
}

/// Returns the files to delete so that one of `bytes` bytes fits: the oldest. `files_max` of 0
/// deletes none.
///
/// # Errors
/// [`UploadError::Full`] if it does not fit without.
pub fn make_space(stored: &mut [UploadedFile], bytes: u64, files_max: usize) -> Result<Vec<UploadName>, UploadError> {
    sorting::sort(stored);
    let (most, keeps) = match files_max {
        0 => (UPLOADS_MAX, true),
        most => (most, false),
    };
    let mut count = stored.len() + 1;
    let mut total = stored.iter().map(|file| file.bytes).fold(bytes, u64::saturating_add);
    let mut surplus = Vec::new();
    for oldest in stored.iter() {
        if count <= most && total <= UPLOADS_BYTES_MAX {
            break;
        }
        if keeps {
            return Err(UploadError::Full);
        }
        count -= 1;
        total = total.saturating_sub(oldest.bytes);
        surplus.push(oldest.name);
    }
    Ok(surplus)
}

/// The files that belong to sessions.
#[derive(Debug, Default)]
pub struct UploadLedger(HashMap<UploadName, Arc<str>>);

impl UploadLedger {
    /// Adds a file of a session.
    pub fn add(&mut self, name: UploadName, session_id: Arc<str>) {
        self.0.insert(name, session_id);
    }

    /// Forgets files that are not there any more: bots delete what they have read.
    pub fn retain(&mut self, stored: &[UploadedFile]) {
        let stored: HashSet<UploadName> = stored.iter().map(|file| file.name).collect();
        self.0.retain(|name, _| stored.contains(name));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the files of sessions that are over.
    pub fn take_ended(&mut self, mut lives: impl FnMut(&str) -> bool) -> Vec<UploadName> {
        let ended = self.0.extract_if(|_, session_id| !lives(session_id));
        ended.map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests;
