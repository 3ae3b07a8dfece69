//! The dial against servers in the same process: real sockets on free ports, answers written byte
//! by byte.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::*;
use crate::config::Secret;

/// Long enough for any loopback connection. It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it happens in time")
}

fn to(url: String) -> DialRequest {
    DialRequest {
        url,
        token: Secret::new("a.b.c"),
    }
}

/// A server that reads one request, sends this answer, and returns the connection; with its URL and
/// the request.
async fn server(
    answer: impl FnOnce(&str) -> Vec<u8> + Send + 'static,
) -> (String, JoinHandle<(String, tokio::net::TcpStream)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.expect("a whole head"));
        }
        let request = String::from_utf8(request).expect("text");
        stream.write_all(&answer(&request)).await.expect("the client reads");
        (request, stream)
    });
    (format!("http://{address}/rtc?protocol=15"), task)
}

fn header<'r>(request: &'r str, name: &str) -> Option<&'r str> {
    let mut lines = request.lines().filter_map(|line| line.split_once(": "));
    lines
        .find(|(each, _)| each.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

fn switching(request: &str) -> String {
    let key = header(request, "sec-websocket-key").expect("a key");
    let accept = derive_accept_key(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

/// The token is sent in a header, messages pass both ways, and bytes after the answer are kept.
#[tokio::test]
async fn a_socket_is_opened_with_the_token() {
    let (url, task) = server(|request| [switching(request).as_bytes(), b"\x82\x02hi"].concat()).await;
    let mut socket = within(dial(to(url))).await.expect("it is let in");
    let (request, mut stream) = within(task).await.expect("no panic");
    assert!(request.starts_with("GET /rtc?protocol=15 HTTP/1.1\r\n"), "{request}");
    assert_eq!(header(&request, "authorization"), Some("Bearer a.b.c"));
    assert_eq!(header(&request, "upgrade"), Some("websocket"));
    assert_eq!(header(&request, "sec-websocket-version"), Some("13"));
    stream.write_all(b"\x82\x03abc").await.expect("the client reads");
    for expected in ["hi", "abc"] {
        let message = within(socket.next()).await.expect("a message").expect("a frame");
        assert_eq!(message, Message::Binary(Bytes::from_static(expected.as_bytes())));
    }
    within(socket.send(Message::Binary(Bytes::from_static(b"xyz"))))
        .await
        .expect("it is open");
    let mut frame = [0; 9];
    within(stream.read_exact(&mut frame)).await.expect("a masked frame");
    assert_eq!(frame[..2], [0x82, 0x80 | 3]);
}

/// The first line of the answer's text is reported, and no more.
#[tokio::test]
async fn a_refusal_is_reported_with_its_text() {
    for (answer, status, text) in [
        (
            "401 Unauthorized\r\nContent-Length: 21\r\n\r\ninvalid token\nand more",
            401,
            "invalid token",
        ),
        ("404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, ""),
        (
            "302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            302,
            "",
        ),
        ("200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok"),
        (
            "101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n",
            101,
            "",
        ),
    ] {
        let (url, task) = server(move |_| format!("HTTP/1.1 {answer}").into_bytes()).await;
        let failure = within(dial(to(url))).await.err().expect("refused");
        let text = text.to_owned();
        assert_eq!(failure, DialError::Refused { status, text });
        drop(task);
    }
    let long = format!("HTTP/1.1 503 No\r\nContent-Length: 9000\r\n\r\n{}", "x".repeat(9000));
    let (url, task) = server(move |_| long.into_bytes()).await;
    let failure = within(dial(to(url))).await.err().expect("refused");
    assert!(matches!(failure, DialError::Refused { status: 503, text } if text.len() <= ROOM_REFUSAL_BYTES_MAX));
    drop(task);
}

/// Errors describe what is not a LiveKit server, without the token.
#[tokio::test]
async fn a_server_that_does_not_answer_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let closed = listener.local_addr().expect("an address");
    drop(listener);
    let (garbage, task) = server(|_| "\u{16}\u{3}\u{1} no HTTP\r\n\r\n".as_bytes().to_vec()).await;
    for url in [
        format!("http://{closed}/rtc"),
        garbage,
        "ftp://127.0.0.1/rtc".into(),
        "http:///rtc".into(),
        "nonsense".into(),
    ] {
        let failure = within(dial(to(url.clone())))
            .await
            .err()
            .expect("nothing listens there");
        let DialError::Unreachable(words) = failure else {
            panic!("{url}: {failure:?}")
        };
        assert!(!words.is_empty() && !words.contains("a.b.c"), "{words}");
    }
    drop(task);
    let bad = DialRequest {
        url: format!("http://{closed}/rtc"),
        token: Secret::new("a\nb"),
    };
    assert!(within(dial(bad)).await.is_err());
}

/// A server that accepts the connection and sends nothing runs into the time limit.
#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/rtc", listener.local_addr().expect("an address"));
    let held = tokio::spawn(async move { listener.accept().await.map(|(stream, _)| stream) });
    let began = tokio::time::Instant::now();
    let failure = dial(to(url)).await.err().expect("it has an end");
    assert!(matches!(failure, DialError::Unreachable(words) if words.contains("did not answer within 20 s")));
    assert_eq!(began.elapsed().as_secs(), ROOM_DIAL_WITHIN.as_secs());
    drop(held);
}
