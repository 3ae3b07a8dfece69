//! The request corpus: bytes that a server may be sent, and what both servers, the runner and the
//! cloud service, answer today.
//!
//! In: a table of rows ([`corpus`]), each the raw bytes of one or more requests, the statuses that
//! come back, and whether the connection goes on. Every row goes to both servers, over plain TCP
//! and over TLS, each on a connection of its own, with one more request behind it: where that is
//! answered too, the connection went on, and the end of the row was where both sides took it to be.
//! Source: RFC 9110, RFC 9112; the comment of a row says where it departs from them, and why.

mod corpus;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;

use self::corpus::{Row, Then, page, rows};
use crate::support::cloud::{DataDir, KEY, TestCloud};
use crate::support::http;
use crate::support::runner::{PATIENCE, TestRunner};
use crate::tls::{connect, trusting};

/// What a row is filled in with, for one server.
struct Server {
    addr: SocketAddr,
    tls: Arc<ClientConfig>,
    /// A target that answers 200 to GET, one that answers 200 to POST of `{}`, and the header that
    /// the latter needs.
    get: &'static str,
    post: &'static str,
    authorization: String,
    /// What every refusal in JSON has.
    members: &'static [&'static str],
}

impl Server {
    /// The bytes of a row: one for each character, the placeholders filled in.
    fn bytes(&self, text: &str) -> Vec<u8> {
        let text = text
            .replace("{GET}", self.get)
            .replace("{POST}", self.post)
            .replace("{AUTHORIZATION}", &self.authorization);
        let byte = |letter: char| u8::try_from(u32::from(letter)).expect("a row is written in bytes");
        text.chars().map(byte).collect()
    }

    /// Sends a row and one request more; returns the statuses.
    fn send(&self, row: &Row, over_tls: bool) -> Vec<u16> {
        let mut bytes = self.bytes(&row.bytes);
        bytes.extend(b"GET /one-more HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let read = match over_tls {
            false => plain(self.addr, &bytes),
            true => secure(self.addr, &self.tls, &bytes),
        };
        let replies = split(&read);
        for (status, body) in replies
            .iter()
            .filter(|(status, body)| *status >= 400 && !body.is_empty())
        {
            let json: Value = serde_json::from_slice(body).unwrap_or_else(|error| panic!("{}: {error}", row.name));
            let has_all = self.members.iter().all(|member| !json[*member].is_null());
            assert!(has_all, "{}: {status} {json}", row.name);
        }
        replies.into_iter().map(|(status, _)| status).collect()
    }

    /// Sends every row in both ways, and tells of those whose answer is another one.
    fn check(&self, of: impl Fn(&Row) -> &[u16], rows: &[Row]) {
        let mut wrong = Vec::new();
        for row in rows {
            let mut expected = of(row).to_vec();
            if row.then == Then::GoesOn {
                expected.push(404);
            }
            for (over_tls, way) in [(false, "TCP"), (true, "TLS")] {
                let statuses = self.send(row, over_tls);
                if statuses != expected {
                    wrong.push(format!("{} over {way}: {statuses:?}, not {expected:?}", row.name));
                }
            }
        }
        assert!(
            wrong.is_empty(),
            "{} of {} rows:\n{}",
            wrong.len(),
            rows.len(),
            wrong.join("\n")
        );
        assert_eq!(http::get(self.addr, self.get).status, 200);
    }
}

/// Sends bytes and reads until the server closes. What it did not read may reset the connection
/// behind its answer.
fn plain(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out is legal");
    let (mut read, mut sends) = (Vec::new(), stream.try_clone().expect("a descriptor"));
    std::thread::scope(|threads| {
        threads.spawn(move || {
            // A server that has refused may have gone.
            let _ = sends.write_all(bytes);
            let _ = sends.shutdown(Shutdown::Write);
        });
        all(&mut stream, &mut read);
    });
    read
}

fn secure(addr: SocketAddr, config: &Arc<ClientConfig>, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(addr, &addr.ip().to_string(), config).expect("it is trusted");
    let _ = stream.write_all(bytes);
    stream.conn.send_close_notify();
    let _ = stream.flush();
    let mut read = Vec::new();
    all(&mut stream, &mut read);
    read
}

fn all(stream: &mut impl Read, into: &mut Vec<u8>) {
    if let Err(error) = stream.read_to_end(into) {
        let is_end = matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
        );
        assert!(is_end, "{error}");
    }
}

/// BuildStatus and body of each reply.
fn split(mut raw: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut replies = Vec::new();
    while !raw.is_empty() {
        let end = raw
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a whole head")
            + 4;
        let reply = http::parse(raw).expect("a reply");
        let length = match reply.header("content-length") {
            Some(length) => length.parse().expect("a number"),
            None => 0,
        };
        replies.push((reply.status, raw[end..end + length].to_vec()));
        raw = &raw[end + length..];
    }
    replies
}

/// B2, B3 and the corpus, against the runner.
#[test]
fn the_runner_answers_as_the_corpus_says() {
    let runner = TestRunner::start(&["--tls", "auto", "--state-dir", "state"]);
    let authority = http::get(runner.addr, "/ca.crt");
    let server = Server {
        addr: runner.addr,
        tls: trusting(&authority.body),
        get: "/status",
        post: "/start",
        authorization: String::new(),
        members: &["detail"],
    };
    // The files of the page are the runner's alone.
    let rows: Vec<Row> = rows().into_iter().chain(page()).collect();
    server.check(|row| row.runner, &rows);
    assert!(!runner.log().contains("panic"));
}

/// The same against the cloud service.
#[test]
fn the_cloud_service_answers_as_the_corpus_says() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &["--tls", "auto", "--", "true"]);
    let authority = std::fs::read(data.path().join("tls/ca.crt")).expect("it was written");
    let server = Server {
        addr: cloud.runner.addr,
        tls: trusting(&authority),
        get: "/healthz",
        post: "/v1/builds/upload-url",
        authorization: format!("Authorization: Bearer {KEY}\r\n"),
        members: &["error", "code"],
    };
    server.check(|row| row.cloud, &rows());
    assert!(!cloud.runner.log().contains("panic"));
}
