//! Serves the files of a folder: `--page` at `/client/` and `--downloads-folder` at `/files/`.
//!
//! In: the folder, a decoded path, and the headers of a request. Out: the file or a part of it,
//! read in pieces as the client takes them; a 304, a 416, or a redirect to the slash of a folder.
//! Each component of the path is opened below the one before, and links are not followed, so
//! nothing outside the folder is reached, whatever a bot writes into it. Only regular files are
//! read.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::error::HttpError;
use crate::config::Config;
use crate::io::RunError;
use crate::proto::http::folder::{self, FileHeaders, FileReply, FileVersion, FolderUse};
use crate::proto::http::route::RouteError;
use edge_runner_http::common::{Reply, ResponseBody};
use edge_runner_http::server::ConnState;
use edge_runner_http::tasks;

/// The policy of a page that the operator brings: whatever it needs, but not in a frame of another
/// site, which could lead clicks to the microphone.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static("frame-ancestors 'self'");
/// The policy of a download: a browser that shows it all the same gives it no rights here.
const DOWNLOAD_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

/// What is at a path.
enum FolderEntry {
    File(File, FileVersion),
    Folder,
}

/// Checks the folders of the configuration, and says in the log what is served.
///
/// # Errors
/// [`RunError::Folder`] for one that cannot be read.
pub fn check(config: &Config) -> Result<(), RunError> {
    let folders = [
        ("--page", &config.page_dir),
        ("--downloads-folder", &config.downloads_dir),
    ];
    for (option, path) in folders {
        let Some(path) = path else { continue };
        open_folder(path).map_err(|source| RunError::Folder {
            option,
            path: path.clone(),
            source,
        })?;
    }
    if let Some(path) = &config.page_dir {
        let shown = path.display();
        log::info!(
            "/client/ is the page in {shown}: its scripts and connections are not restricted as the built-in page's are"
        );
        if open(path, &[folder::INDEX]).is_err() {
            log::warn!(
                "{shown} has no {} that can be read, so /client/ is not found",
                folder::INDEX
            );
        }
    }
    if let Some(path) = &config.downloads_dir {
        log::info!("/files/ has the files of {}", path.display());
    }
    Ok(())
}

/// Answers a request for a file of a folder.
pub(super) async fn serve(
    folder: &Path,
    path: &str,
    folder_use: FolderUse,
    head: &Parts,
    conn_state: &Arc<ConnState>,
) -> Result<Reply, HttpError> {
    const NOT_FOUND: HttpError = HttpError::Route(RouteError::NotFound);
    let parts = folder::components(path, folder_use).ok_or(NOT_FOUND)?;
    let name = (*parts.last().expect("a path has a component")).to_owned();
    let owned: Vec<String> = parts.into_iter().map(str::to_owned).collect();
    let root: PathBuf = folder.to_owned();
    let opened = tasks::blocking(move || open(&root, &owned)).await;
    let opened = opened.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    match opened {
        Ok(FolderEntry::File(file, version)) => {
            let mut reply = file_reply(file, &version, &head.headers, conn_state);
            describe(reply.headers_mut(), &name, folder_use);
            Ok(reply)
        }
        Ok(FolderEntry::Folder) if folder_use == FolderUse::Page => {
            Ok(redirect(&folder::with_slash(&name, head.uri.query())))
        }
        Ok(FolderEntry::Folder) => Err(NOT_FOUND),
        Err(error) => {
            log::debug!("a file of {}: {error}", folder.display());
            Err(NOT_FOUND)
        }
    }
}

/// Opens a folder that an option names. It may be a link itself.
fn open_folder(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    Ok(openat(
        CWD,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Opens what is at a path below a folder. Blocks.
fn open(root: &Path, parts: &[impl AsRef<str>]) -> io::Result<FolderEntry> {
    let plain = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (last, folders) = parts.split_last().ok_or(io::ErrorKind::NotFound)?;
    let mut at = open_folder(root)?;
    for part in folders {
        at = openat(&at, part.as_ref(), plain | OFlags::DIRECTORY, Mode::empty())?;
    }
    // Opening a FIFO would wait for a writer.
    let file = File::from(openat(&at, last.as_ref(), plain | OFlags::NONBLOCK, Mode::empty())?);
    let about = file.metadata()?;
    if about.is_dir() {
        return Ok(FolderEntry::Folder);
    }
    if !about.is_file() {
        return Err(io::Error::other("no regular file"));
    }
    let modified_ns = match about.modified()?.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos().cast_signed(),
        Err(before) => -before.duration().as_nanos().cast_signed(),
    };
    let bytes = about.len();
    Ok(FolderEntry::File(file, FileVersion { bytes, modified_ns }))
}

fn file_reply(file: File, version: &FileVersion, headers: &HeaderMap, conn_state: &Arc<ConnState>) -> Reply {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let asked = FileHeaders {
        if_none_match: text(header::IF_NONE_MATCH),
        if_range: text(header::IF_RANGE),
        range: text(header::RANGE),
    };
    let total = version.bytes;
    let (status, part, content_range) = match folder::reply(&asked, version) {
        FileReply::NotModified => (StatusCode::NOT_MODIFIED, None, None),
        FileReply::Unsatisfiable => (
            StatusCode::RANGE_NOT_SATISFIABLE,
            None,
            Some(format!("bytes */{total}")),
        ),
        FileReply::Whole => (StatusCode::OK, Some(0..total), None),
        FileReply::Part(part) => {
            let content_range = format!("bytes {}-{}/{total}", part.start, part.end - 1);
            (StatusCode::PARTIAL_CONTENT, Some(part), Some(content_range))
        }
    };
    let mut reply = Reply::default();
    *reply.status_mut() = status;
    if let Some(part) = part {
        *reply.body_mut() = ResponseBody::part(file, part, conn_state.clone());
    }
    let texts = [
        (header::ETAG, Some(version.etag())),
        (header::CONTENT_RANGE, content_range),
    ];
    for (name, value) in texts {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            reply.headers_mut().insert(name, value);
        }
    }
    reply
}

/// Adds the headers that depend on the name of a file and on where it is served.
fn describe(headers: &mut HeaderMap, name: &str, folder_use: FolderUse) {
    let put = [
        (header::CONTENT_TYPE, folder::content_type(name)),
        (header::ACCEPT_RANGES, "bytes"),
        // The client has to revalidate, since names do not change with the content.
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in put {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = match folder_use {
        FolderUse::Page => PAGE_POLICY,
        FolderUse::Downloads => DOWNLOAD_POLICY,
    };
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    if folder_use == FolderUse::Downloads
        && let Ok(disposition) = HeaderValue::try_from(folder::disposition(name))
    {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
}

fn redirect(location: &str) -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    if let Ok(location) = HeaderValue::try_from(location) {
        reply.headers_mut().insert(header::LOCATION, location);
    }
    reply
}
