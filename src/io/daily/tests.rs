//! Retries, pauses, the time limit and the deletion of unused rooms, by tokio's clock and against a
//! provider in the same process. The black-box tests check requests and answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::*;
use crate::io::tasks::SlotPool;
use crate::proto::daily::RoomRequest;

/// The provider's reaction to a request.
#[derive(Clone, Copy)]
enum Script {
    Json(u16, &'static str),
    /// The same after a delay.
    Late(Duration, u16, &'static str),
    Close,
    Silence,
}

const ROOM: Script = Script::Json(200, r#"{"url":"https://example.net/r"}"#);
const TOKEN: Script = Script::Json(200, r#"{"token":"a.b.c"}"#);

/// A provider that plays one script per connection, and closes further ones. Returns its
/// configuration and the request lines.
async fn provider(scripts: Vec<Script>) -> (Videoroom, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let received = asked.clone();
    tokio::spawn(async move {
        let mut scripts = scripts.into_iter();
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let (says, received) = (scripts.next().unwrap_or(Script::Close), received.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                // The body arrives with the head, or is not needed.
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let line = String::from_utf8_lossy(&head)
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                received
                    .lock()
                    .expect("no panic")
                    .push(line.trim_end_matches(" HTTP/1.1").to_owned());
                let (status, body) = match says {
                    Script::Json(status, body) => (status, body),
                    Script::Late(after, status, body) => {
                        sleep(after).await;
                        (status, body)
                    }
                    Script::Close => return,
                    Script::Silence => std::future::pending().await,
                };
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
                // Waits until the client has read the answer.
                let _ = stream.read(&mut [0; 64]).await;
            });
        }
    });
    let config = Videoroom {
        key: Some(Secret::new("key")),
        url: format!("http://{address}"),
        ..Videoroom::default()
    };
    (config, asked)
}

async fn prepared(config: &Videoroom, cleanup_slot: Option<Slot>) -> Result<PreparedRoom, DailyError> {
    prepare_room(config, RoomPurpose::Client(&RoomRequest::default()), cleanup_slot).await
}

/// The request lines, without generated names.
fn request_lines(asked: &Mutex<Vec<String>>) -> Vec<String> {
    let asked = asked.lock().expect("no panic").clone();
    let bare = |line: String| match line.strip_prefix("DELETE /rooms/bot-") {
        Some(_) => "DELETE".to_owned(),
        None => line,
    };
    asked.into_iter().map(bare).collect()
}

/// Nothing listens at the address: four attempts, the pauses between them, and no deletion.
#[tokio::test(start_paused = true)]
async fn tries_an_unreachable_provider_four_times() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let config = Videoroom {
        key: Some(Secret::new("key")),
        url: format!("http://{address}"),
        ..Videoroom::default()
    };
    let began = Instant::now();
    let failure = prepared(&config, None)
        .await
        .map(|_| ())
        .expect_err("nothing listens there");
    let DailyError::Unanswered {
        step: ApiStep::Room,
        why,
    } = &failure
    else {
        panic!("{failure}")
    };
    assert!(why.starts_with("connecting to 127.0.0.1: "), "{why}");
    // Exactly the pauses between four attempts: the clock stands still otherwise.
    let pauses = ROOM_PAUSES.iter().sum::<Duration>();
    let took = began.elapsed();
    assert!(took >= pauses && took < pauses + ROOM_PAUSES[0], "{took:?}");
}

/// A request for a room that may have arrived is not repeated, since that could create a second
/// room. A request for a token is.
#[tokio::test]
async fn retries_a_broken_token_request_but_not_a_room_request() {
    let (config, asked) = provider(vec![ROOM, Script::Close, TOKEN]).await;
    assert!(prepared(&config, None).await.is_ok());
    assert_eq!(
        request_lines(&asked),
        ["POST /rooms", "POST /meeting-tokens", "POST /meeting-tokens"]
    );

    let live = SlotPool::new(1);
    let (config, asked) = provider(vec![Script::Close, Script::Json(404, "{}")]).await;
    let failure = prepared(&config, live.try_acquire())
        .await
        .map(|_| ())
        .expect_err("it broke");
    assert!(
        matches!(
            failure,
            DailyError::Unanswered {
                step: ApiStep::Room,
                ..
            }
        ),
        "{failure}"
    );
    live.wait_empty().await;
    assert_eq!(request_lines(&asked), ["POST /rooms", "DELETE"]);
}

/// The time limit of all attempts is below the client's, and the new room is deleted.
#[tokio::test(start_paused = true)]
async fn limits_the_time_of_all_attempts() {
    let slow = Duration::from_secs(5);
    let busy = Script::Late(slow, 429, "{}");
    let (config, asked) = provider(vec![busy, busy, busy, Script::Json(200, "{}")]).await;
    let (live, began) = (SlotPool::new(1), Instant::now());
    let failure = prepared(&config, live.try_acquire())
        .await
        .map(|_| ())
        .expect_err("too slow");
    assert_eq!(failure, DailyError::TooSlow);
    let took = began.elapsed();
    assert!(
        took >= ROOM_WITHIN && took < ROOM_WITHIN + Duration::from_secs(1),
        "{took:?}"
    );
    live.wait_empty().await;
    assert_eq!(
        request_lines(&asked),
        ["POST /rooms", "POST /rooms", "POST /rooms", "DELETE"]
    );
}

/// A client that leaves while its token is created leaves no room behind. The runner's shutdown
/// waits for the deletion.
#[tokio::test]
async fn deletes_a_room_whose_client_left() {
    let (config, asked) = provider(vec![ROOM, Script::Silence, Script::Json(200, r#"{"deleted":true}"#)]).await;
    let live = SlotPool::new(1);
    let gone = tokio::spawn({
        let cleanup_slot = live.try_acquire();
        async move { prepared(&config, cleanup_slot).await.map(|_| ()) }
    });
    while request_lines(&asked).len() < 2 {
        tokio::task::yield_now().await;
    }
    gone.abort();
    live.wait_empty().await;
    assert_eq!(request_lines(&asked), ["POST /rooms", "POST /meeting-tokens", "DELETE"]);
}
