//! The clients against servers in the same process: real sockets on free ports, answers written
//! byte by byte.

#![allow(clippy::disallowed_types, reason = "the servers of these tests")]

mod chat;
mod speech;
mod transcripts;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::config::Secret;
use crate::proto::assistant::services::endpoint::{ServiceAccess, ServiceEndpoint};
use crate::proto::assistant::services::wyoming::write_event;

/// A server for one connection at a time.
struct Server(TcpListener);

/// One connection of a client.
struct Peer(BufReader<TcpStream>);

impl Server {
    async fn start() -> Self {
        Server(TcpListener::bind("127.0.0.1:0").await.expect("a free port"))
    }

    fn access(&self, scheme: &str, key: Option<&str>) -> ServiceAccess {
        let url = format!("{scheme}://{}", self.0.local_addr().expect("it is bound"));
        let endpoint = ServiceEndpoint::parse(&url).expect("an address");
        ServiceAccess::new(endpoint, key.map(Secret::new)).expect("a near service")
    }

    async fn accept(&self) -> Peer {
        Peer(BufReader::new(self.0.accept().await.expect("a connection").0))
    }

    /// Plays this HTTP response to the next request, and closes. Returns head and body of the
    /// request.
    async fn respond(&self, response: &str) -> (String, Vec<u8>) {
        let mut peer = self.accept().await;
        let request = peer.request().await;
        peer.say(response.as_bytes()).await;
        request
    }
}

impl Peer {
    /// Writes bytes. The client may have closed the connection.
    async fn say(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).await;
    }

    async fn say_event(&mut self, kind: &str, data: &Value, payload: &[u8]) {
        let mut bytes = Vec::new();
        write_event(&mut bytes, kind, data, payload);
        self.say(&bytes).await;
    }

    async fn request(&mut self) -> (String, Vec<u8>) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let count = self.0.read_line(&mut head).await.expect("a head");
            assert_ne!(count, 0, "the client closed after {head:?}");
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
        self.0.read_exact(&mut body).await.expect("a body");
        (head, body)
    }

    /// Returns the type, the data and the payload of the next Wyoming event.
    async fn event(&mut self) -> (String, Value, Vec<u8>) {
        let mut line = String::new();
        self.0.read_line(&mut line).await.expect("a line");
        let head: Value = serde_json::from_str(&line).expect("JSON");
        let length = |name: &str| head[name].as_u64().unwrap_or(0) as usize;
        let (mut data, mut payload) = (vec![0; length("data_length")], vec![0; length("payload_length")]);
        self.0.read_exact(&mut data).await.expect("data");
        self.0.read_exact(&mut payload).await.expect("a payload");
        let data = serde_json::from_slice(&data).unwrap_or_default();
        (head["type"].as_str().expect("a type").to_owned(), data, payload)
    }

    /// Waits for the client to close.
    async fn end(&mut self) {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest).await;
    }
}

/// Returns a response whose body ends with the connection.
fn http(status: &str, content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n{body}")
}

/// Returns a body in the form of chunks of this many bytes.
fn chunked(body: &[u8], piece_bytes: usize) -> Vec<u8> {
    let mut whole = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: \
                      chunked\r\n\r\n"
        .to_vec();
    for piece in body.chunks(piece_bytes) {
        whole.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        whole.extend_from_slice(piece);
        whole.extend_from_slice(b"\r\n");
    }
    whole.extend_from_slice(b"0\r\n\r\n");
    whole
}

#[test]
fn failures_to_connect_have_a_class_and_words() {
    let certificate = RestError::Certificate {
        host: "h".to_owned(),
        why: tokio_rustls::rustls::CertificateError::Expired,
    };
    let failure = connect_failure(certificate);
    assert_eq!(
        failure,
        ServiceFailure::Certificate(
            "the certificate of h is invalid: Expired; is the clock of this machine right?".into()
        )
    );
    let unknown = RestError::Resolve {
        host: "h".to_owned(),
        source: std::io::ErrorKind::NotFound.into(),
    };
    assert_eq!(
        connect_failure(unknown),
        ServiceFailure::NoRoute("looking up h: entity not found".into())
    );
}
