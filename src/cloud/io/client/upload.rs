//! Uploads an archive as a multipart form, with the grant's fields in order and the file last.
//!
//! In: a grant and a packed archive. The fields are the only credentials, and they are never
//! logged. The whole upload is tried up to three times; redirects that keep method and body are
//! followed. Source: `docs/spec/cloud-protocol.md` 3; RFC 7578; RFC 9110 section 15.4.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::time::Duration;
use std::time::Instant;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::{ClientError, PackedContext, check_status, with_retries};
use crate::limits::ANSWER_BYTES_MAX;
use crate::proto::progress::{ProgressLines, bar};
use crate::proto::redirect;
use edge_runner_http::client::{self as http_client, ResponseLimits, RestError, RestResponse, UploadBody};
use edge_runner_http::common::random;

/// Interval between updates of the bar.
const BAR_EVERY: Duration = Duration::from_millis(100);

/// Longest stall of an upload. At its end the service may still be syncing to a slow disk.
const CLIENT_UPLOAD_STALL: Duration = Duration::from_secs(180);

/// Redirects of one upload. Object stores redirect once, to the region of the bucket.
const UPLOAD_REDIRECTS_MAX: usize = 3;

/// Bytes read and sent at a time.
const PIECE: usize = 64 * 1024;
/// Terminal width if unknown.
const COLUMNS: usize = 80;

/// A grant as received.
#[derive(serde::Deserialize)]
pub struct ReceivedGrant {
    #[serde(rename = "uploadId")]
    pub id: String,
    #[serde(rename = "uploadUrl")]
    url: String,
    #[serde(rename = "uploadFields")]
    fields: GrantFields,
}

/// Fields in the order of the JSON text.
struct GrantFields(Vec<(String, String)>);

impl<'de> Deserialize<'de> for GrantFields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OrderedFields;
        impl<'de> Visitor<'de> for OrderedFields {
            type Value = GrantFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<GrantFields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(GrantFields(fields))
            }
        }
        from.deserialize_map(OrderedFields)
    }
}

impl ReceivedGrant {
    /// Parses the service's answer.
    ///
    /// # Errors
    /// [`ClientError::Failed`], without any content of the answer.
    pub fn read(body: &[u8]) -> Result<ReceivedGrant, ClientError> {
        let wrong = || ClientError::Failed("the service's answer is not an upload grant".into());
        let grant: ReceivedGrant = serde_json::from_slice(body).map_err(|_| wrong())?;
        // A control character could break out of the form's part.
        let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_control);
        match grant.fields.0.iter().all(|(name, _)| is_name(name)) {
            true => Ok(grant),
            false => Err(wrong()),
        }
    }

    /// Formats the form up to the file's content.
    fn head(&self, boundary: &str) -> String {
        let mut head = String::new();
        let mut part = |name: &str, rest: &str, value: &str| {
            // Writing to a string cannot fail.
            let name = name.replace('"', "%22");
            let _ = write!(
                head,
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{rest}\r\n\r\n{value}"
            );
        };
        for (name, value) in &self.fields.0 {
            part(name, "", &format!("{value}\r\n"));
        }
        // Object stores require this field.
        if !self.fields.0.iter().any(|(name, _)| name == "Content-Type") {
            part("Content-Type", "", "application/gzip\r\n");
        }
        part(
            "file",
            "; filename=\"context.tar.gz\"\r\nContent-Type: application/gzip",
            "",
        );
        head
    }
}

/// Uploads the archive and shows progress on stderr.
///
/// # Errors
/// [`ClientError::Failed`] with the store's message.
pub async fn upload(grant: &ReceivedGrant, packed: &PackedContext) -> Result<(), ClientError> {
    let answer = check_status(with_retries(async || send(grant, packed).await).await)?;
    match answer.status {
        200 | 201 | 204 => Ok(()),
        other => Err(ClientError::Failed(format!(
            "the upload was answered with {other}, which is not a success"
        ))),
    }
}

async fn send(grant: &ReceivedGrant, packed: &PackedContext) -> Result<RestResponse, RestError> {
    let mut url = grant.url.clone();
    for _ in 0..=UPLOAD_REDIRECTS_MAX {
        let answer = send_to(&url, grant, packed).await?;
        // After other redirects clients send a GET, which uploads nothing.
        if !matches!(answer.status, 307 | 308) {
            return Ok(answer);
        }
        url = redirect::target(&url, answer.location.as_deref().unwrap_or_default()).map_err(RestError::Request)?;
    }
    Err(RestError::Request("the service redirects it again and again"))
}

async fn send_to(url: &str, grant: &ReceivedGrant, packed: &PackedContext) -> Result<RestResponse, RestError> {
    let boundary = format!("edge-runner-{}", HEXLOWER.encode(&random::<16>()));
    let head = Bytes::from(grant.head(&boundary));
    let tail = Bytes::from(format!("\r\n--{boundary}--\r\n"));
    let mut archive = packed.archive.try_clone().map_err(RestError::Body)?;
    archive.seek(SeekFrom::Start(0)).map_err(RestError::Body)?;
    let size = head.len() as u64 + packed.size + tail.len() as u64;
    let mut shown = UploadProgress::new(packed.size);
    let (mut head, mut done) = (Some(head), 0);
    let next = move || -> io::Result<Bytes> {
        if let Some(head) = head.take() {
            return Ok(head);
        }
        if done == shown.total {
            shown.end();
            return Ok(tail.clone());
        }
        let mut piece = vec![0; PIECE];
        let count = archive.read(&mut piece)?;
        piece.truncate(count);
        done += count as u64;
        shown.at(done);
        Ok(piece.into())
    };
    let body = UploadBody {
        content_type: format!("multipart/form-data; boundary={boundary}"),
        size,
        next: Box::new(next),
    };
    let within = ResponseLimits {
        timeout: CLIENT_UPLOAD_STALL,
        body_bytes_max: ANSWER_BYTES_MAX,
    };
    http_client::upload(url, body, within).await
}

/// Progress output: a bar on terminals, else a line per 10 %.
struct UploadProgress {
    total: u64,
    began: Instant,
    terminal: Option<Option<Instant>>,
    lines: ProgressLines,
}

impl UploadProgress {
    fn new(total: u64) -> UploadProgress {
        UploadProgress {
            total,
            began: Instant::now(),
            terminal: io::stderr().is_terminal().then_some(None),
            lines: ProgressLines::default(),
        }
    }

    fn at(&mut self, done: u64) {
        let elapsed = self.began.elapsed();
        let text = match &mut self.terminal {
            None => self
                .lines
                .line(done, self.total, elapsed)
                .map(|line| format!("upload: {line}\n")),
            Some(Some(last)) if done < self.total && last.elapsed() < BAR_EVERY => None,
            Some(last) => {
                *last = Some(Instant::now());
                // Some terminals wrap after the last column.
                Some(format!("\r{}\x1b[K", bar(done, self.total, elapsed, columns() - 1)))
            }
        };
        if let Some(text) = text {
            // Stderr may be closed.
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }

    /// Ends the line of the bar.
    fn end(&mut self) {
        if self.terminal.is_some_and(|drawn| drawn.is_some()) {
            let _ = io::stderr().write_all(b"\n");
            self.terminal = Some(None);
        }
    }
}

impl Drop for UploadProgress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the width of the terminal at stderr.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { COLUMNS } else { columns }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ReceivedGrant, ClientError> {
        ReceivedGrant::read(text.as_bytes())
    }

    /// C-030, C-032, C-068, I-27: fields are sent unchanged in the order received, and the file is
    /// last.
    #[test]
    fn the_form_keeps_the_order_of_fields_with_the_file_last() {
        let grant = read(
            r#"{"uploadId":"u","uploadUrl":"http://s/","expiresAt":"later",
                "uploadFields":{"z":"1","key":"a/b.tar.gz","Content-Type":"application/gzip","x\"y":"","A":"2\r\n3"}}"#,
        )
        .expect("a grant");
        let field = |name: &str, value: &str| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let file = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"context.tar.gz\"\r\n\
                    Content-Type: application/gzip\r\n\r\n";
        let expected = [
            field("z", "1"),
            field("key", "a/b.tar.gz"),
            field("Content-Type", "application/gzip"),
            field("x%22y", ""),
            field("A", "2\r\n3"),
            file.to_owned(),
        ];
        assert_eq!(grant.head("B"), expected.concat());
        let bare = read(r#"{"uploadId":"u","uploadUrl":"http://s/","uploadFields":{"k":"v"}}"#).expect("a grant");
        assert!(bare.head("B").contains(&field("Content-Type", "application/gzip")));
    }

    #[test]
    fn an_invalid_grant_is_rejected_without_its_content() {
        for bad in [
            "",
            "[]",
            r#"{"uploadId":"secret","uploadUrl":"http://s/"}"#,
            r#"{"uploadId":"secret","uploadUrl":"http://s/","uploadFields":{"a":1}}"#,
            r#"{"uploadId":"secret","uploadUrl":"http://s/","uploadFields":[]}"#,
            r#"{"uploadId":"secret","uploadUrl":"http://s/","uploadFields":{"a\r\nb":"secret"}}"#,
            r#"{"uploadId":"secret","uploadUrl":"http://s/","uploadFields":{"":"secret"}}"#,
        ] {
            match read(bad) {
                Err(ClientError::Failed(reason)) => assert!(!reason.contains("secret"), "{reason}"),
                _ => panic!("{bad}"),
            }
        }
    }
}
