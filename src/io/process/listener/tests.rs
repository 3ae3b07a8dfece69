//! Tests of the media listener over real loopback. The clock is paused and jumps to the next timer
//! when all tasks wait.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::*;

async fn dial(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("the listener is open")
}

async fn ask(address: SocketAddr, url: &str) -> Result<MediaSocket, Error> {
    let stream = dial(address).await;
    client_async(url, stream).await.map(|(socket, _)| socket)
}

fn is_forbidden(asked: Result<MediaSocket, Error>) -> bool {
    matches!(asked, Err(Error::Http(response)) if response.status() == StatusCode::FORBIDDEN)
}

/// A wrong path is rejected and does not count; the right path is accepted once.
#[tokio::test]
async fn the_secret_path_opens_once() {
    let listener = MediaListener::bind().expect("a free port");
    let (url, address) = (listener.url(), listener.address);
    assert!(address.ip().is_loopback());
    let path = url.rsplit('/').next().expect("a path").to_owned();
    assert_eq!(path.len(), 32);
    let accepted_media = tokio::spawn(listener.accept());
    for wrong in [
        format!("ws://{address}/"),
        format!("ws://{address}/{}", path.to_uppercase() + "0"),
        format!("ws://{address}/{}", &path[..31]),
        format!("ws://{address}/{path}/"),
        format!("ws://{address}/?{path}"),
    ] {
        assert!(is_forbidden(ask(address, &wrong).await), "{wrong}");
    }
    let mut program = ask(address, &url).await.expect("the right path");
    let (mut ours, asked) = accepted_media.await.expect("no panic");
    assert_eq!(asked, MediaQuery::default());
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
    program.send(Message::Binary(vec![1].into())).await.expect("open");
    assert_eq!(
        ours.next().await.expect("open").expect("a message"),
        Message::Binary(vec![1].into())
    );
}

#[tokio::test]
async fn each_listener_has_its_own_secret() {
    let (one, two) = (
        MediaListener::bind().expect("a port"),
        MediaListener::bind().expect("a port"),
    );
    assert_ne!(one.secret.path, two.secret.path);
    let address = two.address;
    let foreign = format!("ws://{address}{}", one.secret.path);
    tokio::spawn(two.accept());
    assert!(is_forbidden(ask(address, &foreign).await));
}

/// Connections that send nothing, half a request or no HTTP delay the program no longer than their
/// timeout.
#[tokio::test(start_paused = true)]
async fn idle_and_invalid_connections_do_not_block_the_program() {
    let listener = MediaListener::bind().expect("a free port");
    let (url, address) = (listener.url(), listener.address);
    let accepted_media = tokio::spawn(listener.accept());
    let mut strangers = Vec::new();
    for said in [
        "",
        "GET / HTTP/1.1\r\nHost: a",
        "POST / HTTP/1.1\r\n\r\n",
        "\0\u{16}\u{3}",
    ]
    .repeat(3)
    {
        let mut stranger = dial(address).await;
        tokio::io::AsyncWriteExt::write_all(&mut stranger, said.as_bytes())
            .await
            .expect("loopback takes it");
        strangers.push(stranger);
    }
    let _program = ask(address, &url).await.expect("the right path");
    accepted_media.await.expect("no panic");
    for mut stranger in strangers {
        let mut rest = Vec::new();
        // Each is closed without an upgrade.
        let _ = stranger.read_to_end(&mut rest).await;
        assert!(!rest.starts_with(b"HTTP/1.1 101"));
    }
}

/// With more silent connections than the listener holds, the program is accepted before the first
/// of them times out.
#[tokio::test(start_paused = true)]
async fn a_full_listener_accepts_the_program_at_once() {
    // The paused clock cannot advance while this thread blocks.
    let (over, wait) = std::sync::mpsc::channel::<()>();
    let held = tokio::task::spawn_blocking(move || wait.recv_timeout(std::time::Duration::from_secs(60)).is_ok());
    let began = tokio::time::Instant::now();
    let listener = MediaListener::bind().expect("a free port");
    let (url, address) = (listener.url(), listener.address);
    let accepted_media = tokio::spawn(listener.accept());
    let mut strangers = Vec::new();
    for _ in 0..2 * PROCESS_HANDSHAKES_MAX {
        strangers.push(dial(address).await);
    }
    let _program = ask(address, &url).await.expect("the right path");
    accepted_media.await.expect("no panic");
    assert_eq!(tokio::time::Instant::now(), began);
    over.send(()).expect("it waits");
    assert!(held.await.expect("no panic"));
}

/// A program that disconnects during its handshake may connect again.
#[tokio::test]
async fn an_aborted_handshake_does_not_use_up_the_path() {
    let listener = MediaListener::bind().expect("a free port");
    let (url, address) = (listener.url(), listener.address);
    let accepted_media = tokio::spawn(listener.accept());
    let mut broken = dial(address).await;
    let half = format!(
        "GET {} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\n",
        &url[url.rfind('/').expect("a path")..]
    );
    tokio::io::AsyncWriteExt::write_all(&mut broken, half.as_bytes())
        .await
        .expect("loopback takes it");
    drop(broken);
    let _program = ask(address, &url).await.expect("the right path");
    accepted_media.await.expect("no panic");
}

/// The query says what the program wants of its media. With an invalid one it may try again.
#[tokio::test]
async fn the_query_of_the_url_reaches_the_media() {
    let listener = MediaListener::bind().expect("a free port");
    let (url, address) = (listener.url(), listener.address);
    let accepted_media = tokio::spawn(listener.accept());
    match ask(address, &format!("{url}?rate=7000")).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), StatusCode::BAD_REQUEST),
        other => panic!("{other:?} is no refusal"),
    }
    let _program = ask(address, &format!("{url}?live=1&rate=8000"))
        .await
        .expect("the right path");
    let (_, asked) = accepted_media.await.expect("no panic");
    assert_eq!((asked.is_live, asked.rate_hz), (true, Some(8_000)));
}
