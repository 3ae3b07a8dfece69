//! Files of a folder that requests may read: `--page` at `/client/`, `--downloads-folder` at
//! `/files/`.
//!
//! In: the decoded path below the route, headers that name a version or a part of a file, and the
//! file's size and time of change. Out: the path's components, the content type, and what to send.
//! Rejected: paths that lead out of the folder, and hidden files. Source: RFC 9110 sections 13
//! (conditional requests) and 14 (ranges), RFC 8187 (names in headers).

use std::fmt::Write as _;
use std::ops::Range;

use crate::server::range::{self, ByteRange};

/// Bytes of a path below the folder.
const PATH_BYTES_MAX: usize = 1024;
/// Components of a path below the folder. Each is opened by a system call of its own.
const DEPTH_MAX: usize = 32;

/// The file that stands for a folder of a page.
pub const INDEX: &str = "index.html";

/// Where the files of a folder are served, which decides how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderUse {
    /// A page: [`INDEX`] stands for a folder.
    Page,
    /// Downloads: browsers save the file, and never show it as a page of this server.
    Downloads,
}

/// Returns the components of a path; `None` if none of the folder's files can have it. Hidden files
/// are never served, since `.env` and `.git` are secrets that people forget. Nor is a path with a
/// backslash or a control character.
pub fn components(path: &str, folder_use: FolderUse) -> Option<Vec<&str>> {
    let is_plain = |part: &&str| {
        !part.is_empty() && !part.starts_with('.') && !part.contains(|c: char| c == '\\' || c.is_control())
    };
    let (path, index) = match (path.strip_suffix('/'), folder_use) {
        (Some(folder), FolderUse::Page) => (folder, Some(INDEX)),
        _ if path.is_empty() && folder_use == FolderUse::Page => return Some(vec![INDEX]),
        _ => (path, None),
    };
    let parts: Vec<&str> = path.split('/').chain(index).collect();
    let fits = path.len() <= PATH_BYTES_MAX && parts.len() <= DEPTH_MAX;
    (fits && parts.iter().all(is_plain)).then_some(parts)
}

/// The version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    pub bytes: u64,
    /// Time of the last change, in nanoseconds since 1970.
    pub modified_ns: i128,
}

impl FileVersion {
    /// Returns the strong entity tag, with its quotes.
    pub fn etag(&self) -> String {
        format!("\"{:x}-{:x}\"", self.modified_ns, self.bytes)
    }
}

/// The headers of a request that select a version or a part of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileHeaders<'h> {
    pub if_none_match: Option<&'h str>,
    pub if_range: Option<&'h str>,
    pub range: Option<&'h str>,
}

/// What to send of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileReply {
    /// The client has this version.
    NotModified,
    Whole,
    Part(Range<u64>),
    /// The file has none of the bytes that the client asks for.
    Unsatisfiable,
}

/// Returns what to send of a file.
pub fn reply(headers: &FileHeaders<'_>, version: &FileVersion) -> FileReply {
    let own = version.etag();
    // Tags are compared without their weakness here, as section 13.1.2 says, and with it below.
    let is_own = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == own;
    let known = headers.if_none_match.unwrap_or_default();
    if known.split(',').map(str::trim).any(is_own) {
        return FileReply::NotModified;
    }
    let same = headers.if_range.is_none_or(|tag| tag.trim() == own);
    match range::parse(headers.range.filter(|_| same), version.bytes) {
        ByteRange::Full => FileReply::Whole,
        ByteRange::Partial(part) => FileReply::Part(part),
        ByteRange::Unsatisfiable => FileReply::Unsatisfiable,
    }
}

/// Content types by the ending of a name, in lower case.
const TYPES: [(&str, &str); 34] = [
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("webmanifest", "application/manifest+json"),
    ("wasm", "application/wasm"),
    ("onnx", "application/octet-stream"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("ico", "image/x-icon"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("otf", "font/otf"),
    ("wav", "audio/wav"),
    ("mp3", "audio/mpeg"),
    ("m4a", "audio/mp4"),
    ("ogg", "audio/ogg"),
    ("opus", "audio/ogg"),
    ("flac", "audio/flac"),
    ("webm", "video/webm"),
    ("mp4", "video/mp4"),
    ("txt", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("pdf", "application/pdf"),
];

/// Returns the content type of a file by its name. Clients are told not to guess another.
pub fn content_type(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let known = TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(ending));
    known.map_or("application/octet-stream", |(_, content_type)| content_type)
}

/// Returns the `Content-Disposition` of a download, with which browsers save the file under its
/// name.
pub fn disposition(name: &str) -> String {
    format!("attachment; filename*=UTF-8''{}", encode(name))
}

/// Returns where a folder of a page is, relative to the same path without its slash.
pub fn with_slash(name: &str, query: Option<&str>) -> String {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}/{query}", encode(name))
}

/// Encodes all bytes but unreserved ones of RFC 3986, section 2.3.
fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => write!(encoded, "%{byte:02X}").expect("writing to a string cannot fail"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_files_of_the_folder() {
        let page = |path| components(path, FolderUse::Page);
        let download = |path| components(path, FolderUse::Downloads);
        assert_eq!(page(""), Some(vec!["index.html"]));
        assert_eq!(page("app/"), Some(vec!["app", "index.html"]));
        for path in ["app.js", "assets/a b-ü.js", "a/b/c/d.wasm", "..."] {
            let expected: Option<Vec<&str>> = (path != "...").then(|| path.split('/').collect());
            assert_eq!(page(path), expected, "{path}");
            assert_eq!(download(path), expected, "{path}");
        }
        for path in ["", "a/"] {
            assert_eq!(download(path), None, "{path}");
        }
    }

    #[test]
    fn no_path_leads_out_of_the_folder_or_to_a_hidden_file() {
        let deep = "a/".repeat(DEPTH_MAX);
        for path in [
            "..",
            "../etc/passwd",
            "a/../../b",
            "a/..",
            "./a",
            ".",
            "/etc/passwd",
            "//etc",
            "a//b",
            "/",
            "a\\..\\b",
            "\\a",
            ".env",
            ".git/config",
            "a/.ssh/key",
            "a\nb",
            "a\0b",
            &deep,
            &"a".repeat(PATH_BYTES_MAX + 1),
        ] {
            for folder_use in [FolderUse::Page, FolderUse::Downloads] {
                assert_eq!(components(path, folder_use), None, "{path:?}");
            }
        }
        assert!(components(&deep[..2 * DEPTH_MAX - 1], FolderUse::Downloads).is_some());
        assert!(components(&"a".repeat(PATH_BYTES_MAX), FolderUse::Downloads).is_some());
    }

    const VERSION: FileVersion = FileVersion {
        bytes: 10,
        modified_ns: 0x1234,
    };

    #[test]
    fn a_client_that_has_the_version_gets_no_file() {
        let sent = |if_none_match| {
            reply(
                &FileHeaders {
                    if_none_match: Some(if_none_match),
                    ..FileHeaders::default()
                },
                &VERSION,
            )
        };
        for known in ["\"1234-a\"", "W/\"1234-a\"", "*", "\"x\", \"1234-a\""] {
            assert_eq!(sent(known), FileReply::NotModified, "{known}");
        }
        for other in ["", "\"1234-b\"", "1234-a", "\"1235-a\""] {
            assert_eq!(sent(other), FileReply::Whole, "{other}");
        }
    }

    #[test]
    fn a_part_is_sent_of_the_same_version_only() {
        let sent = |range, if_range| {
            reply(
                &FileHeaders {
                    range: Some(range),
                    if_range,
                    if_none_match: None,
                },
                &VERSION,
            )
        };
        assert_eq!(sent("bytes=2-4", None), FileReply::Part(2..5));
        assert_eq!(sent("bytes=2-4", Some("\"1234-a\"")), FileReply::Part(2..5));
        // A weak tag, and a date, which has seconds only, do not prove that it is the same.
        for other in ["\"1234-b\"", "W/\"1234-a\"", "Thu, 01 Jan 1970 00:00:00 GMT"] {
            assert_eq!(sent("bytes=2-4", Some(other)), FileReply::Whole, "{other}");
        }
        assert_eq!(sent("bytes=10-", None), FileReply::Unsatisfiable);
        assert_eq!(sent("bytes=0-1,3-4", None), FileReply::Whole);
    }

    #[test]
    fn types_come_from_the_ending() {
        assert_eq!(content_type("a.b.JS"), "text/javascript; charset=utf-8");
        assert_eq!(content_type("voice.wasm"), "application/wasm");
        for unknown in ["a", "a.", "a.exe", "html", ""] {
            assert_eq!(content_type(unknown), "application/octet-stream", "{unknown}");
        }
    }

    #[test]
    fn names_are_encoded_for_headers() {
        assert_eq!(
            disposition("a b\"ü.wav"),
            "attachment; filename*=UTF-8''a%20b%22%C3%BC.wav"
        );
        assert_eq!(with_slash("a:b", Some("c=d&e=%20")), "a%3Ab/?c=d&e=%20");
    }
}
