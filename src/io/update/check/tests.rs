//! The check for a newer version with releases that OpenSSH 9.2 signed.

use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICg1Fi69MrNpyDfaQT1tq3yOiahjs/yifMaAJmyFNnzV of the tests";
const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEyJsDIBkfLB8gNQnOssdMQtuT5tIvmSm7ajm9oHNV5k other";

/// A release of this version, signed by `KEY`.
const NEWER: [(&str, &str); 3] = [
    ("/r/BUILDINFO", "edge-runner 99.0.0\ndate 2026-11-28\ncommit 0123\n"),
    (
        "/r/SHA256SUMS",
        "d0cc62eda6e242807f8d9153b825992b5c05737b0f3f00099e3c24559174ece1  BUILDINFO\n",
    ),
    (
        "/r/SHA256SUMS.sig",
        "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgKDUWLr0ys2nIN9pBPW2rfI6JqG
Oz/KJ8xoAmbIU2fNUAAAALZWRnZS1ydW5uZXIAAAAAAAAABnNoYTUxMgAAAFMAAAALc3No
LWVkMjU1MTkAAABAOCG+A58KN9Gewrwa3FT7nuI6h5tocaS97BnDK+ysJ9DgGel6I4Y1cO
g6yfPPZcjqE47CppUt06GCH/ChnspeDw==
-----END SSH SIGNATURE-----
",
    ),
];
const OLDER: [(&str, &str); 3] = [
    ("/r/BUILDINFO", "edge-runner 0.0.1\ndate 2026-11-28\ncommit 0123\n"),
    (
        "/r/SHA256SUMS",
        "5a9e58ad837e60f473b54df8c59cf76da31e7bf58d2493fe5ad5b7aa4da93a0f  BUILDINFO\n",
    ),
    (
        "/r/SHA256SUMS.sig",
        "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgKDUWLr0ys2nIN9pBPW2rfI6JqG
Oz/KJ8xoAmbIU2fNUAAAALZWRnZS1ydW5uZXIAAAAAAAAABnNoYTUxMgAAAFMAAAALc3No
LWVkMjU1MTkAAABAZqkBam3bdyYZSq2sowoLxPHzMNvSvBwJh0srjA0XBi9hA371rWviah
6UZlMBNxFIXrw7pp70GjERiImgeuSICQ==
-----END SSH SIGNATURE-----
",
    ),
];

/// Serves these files on loopback, one per connection, and returns the folder of the release.
async fn mirror(files: &[(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let reply = match head.split(' ').nth(1).and_then(|path| files.get(path)) {
                Some(body) => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
                None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            let _ = stream.write_all(reply.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    format!("http://{address}/r")
}

fn checker(from: String, keys: &str) -> ReleaseChecker {
    ReleaseChecker::new(&UpdateCheck::Mirror(from), keys).expect("it is on")
}

#[tokio::test]
async fn a_newer_version_is_found_and_an_older_one_is_none() {
    let newer = checker(mirror(&NEWER).await, KEY);
    assert_eq!(newer.host().as_deref(), Some("127.0.0.1"));
    assert_eq!(newer.ask().await, Ok(Some("99.0.0".to_owned())));
    assert_eq!(checker(mirror(&OLDER).await, KEY).ask().await, Ok(None));
}

/// A mirror makes no one install anything, and it cannot claim a version either.
#[tokio::test]
async fn a_release_that_no_known_key_signed_is_not_announced() {
    let why = checker(mirror(&NEWER).await, OTHER)
        .ask()
        .await
        .expect_err("an unknown key");
    assert!(why.contains("key"), "{why}");
    let mixed = [OLDER[0], NEWER[1], NEWER[2]];
    let why = checker(mirror(&mixed).await, KEY)
        .ask()
        .await
        .expect_err("a wrong checksum");
    assert!(why.contains("checksum"), "{why}");
    let why = checker(mirror(&[]).await, KEY).ask().await.expect_err("no release");
    assert!(why.contains("has no SHA256SUMS (status 404)"), "{why}");
}

/// What was found stays while the release is not reached, and goes when it is withdrawn.
#[test]
fn what_was_found_outlasts_a_failure() {
    let (known, mut has_failed) = (NewVersion::default(), false);
    assert_eq!(known.new_version(), None);
    let mut take = |result: Result<Option<&str>, &str>| {
        let result = result.map(|found| found.map(str::to_owned)).map_err(str::to_owned);
        known.take(result, &mut has_failed);
        (known.new_version(), has_failed)
    };
    let found = Some("99.0.0".to_owned());
    assert_eq!(take(Ok(Some("99.0.0"))), (found.clone(), false));
    assert_eq!(take(Err("no answer")), (found.clone(), true));
    assert_eq!(take(Err("no answer")), (found.clone(), true));
    assert_eq!(take(Ok(Some("99.0.0"))), (found, false));
    assert_eq!(take(Ok(None)), (None, false));
}

#[test]
fn checks_are_off_unless_they_are_asked_for() {
    assert!(ReleaseChecker::new(&UpdateCheck::default(), KEY).is_none());
    let stock = ReleaseChecker::new(&UpdateCheck::Releases, KEY).expect("it is on");
    assert!(stock.from.ends_with("/releases/latest/download"), "{stock:?}");
    assert_eq!(
        (share(FIRST_WITHIN, 0), share(FIRST_WITHIN, u32::MAX)),
        (Duration::ZERO, FIRST_WITHIN)
    );
}
