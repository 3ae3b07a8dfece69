//! Who is let in, over real loopback, on a clock that jumps to the next timer when nothing else happens.

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

/// Wrong paths are refused and use nothing up; the right one is let in, and no other after it.
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
    let mut ours = accepted_media.await.expect("no panic");
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
    program.send(Message::Binary(vec![1].into())).await.expect("open");
    assert_eq!(
        ours.next().await.expect("open").expect("a message"),
        Message::Binary(vec![1].into())
    );
}

#[tokio::test]
async fn two_doors_have_two_secrets() {
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

/// Strangers that connect and say nothing, half a request, or what is no request, keep nobody out for longer than their time.
#[tokio::test(start_paused = true)]
async fn strangers_do_not_block_the_door() {
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
        // Closed, one way or the other, and never upgraded.
        let _ = stranger.read_to_end(&mut rest).await;
        assert!(!rest.starts_with(b"HTTP/1.1 101"));
    }
}

/// More silent connections than the media socket admits at once: the program is accepted_media before the
/// first of them times out.
#[tokio::test(start_paused = true)]
async fn a_full_door_lets_the_program_in_at_once() {
    // As long as this thread waits, the clock stands still whatever else does.
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

/// A program that goes away in the middle of its handshake may come again.
#[tokio::test]
async fn a_handshake_that_breaks_uses_nothing_up() {
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
