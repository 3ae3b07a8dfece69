//! A faulty environment: a full disk, a read-only file system, no resolver, a clock jump, endless
//! bodies. Each fault is reported, and calls go on.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use edge_runner_proto::limits::HTTP_BODY_BYTES_MAX;
use serde_json::Value;

use crate::support::device::{Device, Options};
use crate::support::http;
use crate::support::runner::{PATIENCE, TestRunner, folder};
use crate::support::skip;
use crate::support::socket::Socket;
use crate::support::sound::{FRAME, Speech, tone_share};

const A4: f64 = 440.0;
const EMBEDDED: [&str; 5] = ["--embedded", "--host", "127.0.0.1", "--bot", "echo"];

fn full_duplex() -> Options {
    Options {
        mutes_itself: false,
        ..Options::new(Speech::Tone { hz: A4 })
    }
}

/// A device that calls and hears its echo.
fn call(runner: &TestRunner) -> Device {
    let device = Device::join(runner.addr, full_duplex());
    hears(&device);
    device
}

/// Asserts that the last second of received audio is the tone.
fn hears(device: &Device) {
    let before = device.wait("sound", |report| !report.audio.is_empty()).audio.len();
    device.wait("its tone", |report| {
        let second = &report.pcm[report.pcm.len().saturating_sub(50 * FRAME)..];
        let due = report.audio.len() >= before + 50 && report.audio.len().is_multiple_of(10);
        due && tone_share(second, A4) > 0.9
    });
}

/// On a full disk, a runner that stores nothing is unaffected, one that stores a certificate makes
/// a new one and says why, and calls go on in both.
#[test]
fn calls_continue_on_a_full_disk() {
    let full = "mkdir state; mount -t tmpfs -o size=64k tmpfs state; head -c 1000000 /dev/zero >state/filler || true; \
                mount --bind state /tmp";
    for tls in [&[][..], &["--tls", "auto", "--state-dir", "state"]] {
        let args = [&EMBEDDED[..], tls].concat();
        let Some(runner) = TestRunner::start_among_mounts(full, &args, &[]) else {
            return;
        };
        drop(call(&runner));
        if !tls.is_empty() {
            let said = runner.log();
            assert!(said.contains("No space left on device"), "{said}");
        }
    }
}

/// The whole file system is read-only, as on boards that spare their cards.
#[test]
fn calls_continue_on_a_read_only_file_system() {
    let read_only = "mkdir state; mount -o remount,bind,ro /; ! touch state/x 2>/dev/null";
    for tls in [&[][..], &["--tls", "auto", "--state-dir", "state"]] {
        let args = [&EMBEDDED[..], tls].concat();
        let Some(runner) = TestRunner::start_among_mounts(read_only, &args, &[]) else {
            return;
        };
        drop(call(&runner));
        if !tls.is_empty() {
            let said = runner.log();
            assert!(said.contains("Read-only file system"), "{said}");
        }
    }
}

/// Without `/etc`, and so without a resolver, lookups fail by name; local callers are unaffected.
#[test]
fn calls_continue_without_a_resolver() {
    let no_etc = "mount -t tmpfs tmpfs /etc";
    let Some(runner) = TestRunner::start_among_mounts(no_etc, &EMBEDDED, &[]) else {
        return;
    };
    drop(call(&runner));
    let servers = r#"{"urls": "stun:stun.nowhere.invalid:3478"}"#;
    let runner = TestRunner::start_among_mounts(no_etc, &["--bot", "echo", "--ice-servers", servers], &[]);
    let runner = runner.expect("it was possible before");
    runner.wait_for_log("cannot look up stun.nowhere.invalid");
    Socket::connect(runner.addr, "/ws-client");
}

/// The wall clock jumps by years while a device talks and a token is unused: the call goes on, the
/// token stays valid, and a new call works. libfaketime changes the wall clock of this process
/// only.
#[test]
fn a_clock_jump_ends_no_session() {
    let Some(library) = skip::faketime("calls while the clock jumps") else {
        return;
    };
    let offset = folder().join("offset");
    let jump = |to: &str| std::fs::write(&offset, to).expect("the build's folder is writable");
    jump("+0");
    let path = offset.to_str().expect("text");
    let runner = TestRunner::start_with(
        &[&EMBEDDED[..], &["--ws-auth", "token"]].concat(),
        &[
            ("LD_PRELOAD", &library),
            ("FAKETIME_TIMESTAMP_FILE", path),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ],
    );
    let token = || -> String {
        let body = br#"{"transport": "websocket"}"#;
        let reply = http::request(runner.addr, "POST", "/start", &["Content-Type: application/json"], body);
        let reply: Value = reply.expect("the runner answers").json();
        reply["token"]
            .as_str()
            .unwrap_or_else(|| panic!("no token in {reply}"))
            .to_owned()
    };
    let device = call(&runner);
    for to in ["+10y", "-20y", "+0"] {
        let waiting = token();
        jump(to);
        hears(&device);
        // One token from before the jump, and one from after it.
        Socket::connect(runner.addr, &format!("/ws-client?token={waiting}"));
        Socket::connect(runner.addr, &format!("/ws-client?token={}", token()));
        hears(&device);
    }
    drop(device);
    drop(call(&runner));
    // The log shows that the clock has jumped.
    let log = runner.log();
    let years: std::collections::BTreeSet<&str> = log.lines().filter_map(|line| line.get(..4)).collect();
    assert!(years.len() >= 3, "the clock stood still: {years:?}");
}

/// A hundred concurrent bodies of 50 MB, with a length or chunked, use no more memory than as many
/// of the largest accepted size.
#[test]
fn large_bodies_use_no_more_memory_than_the_largest_accepted_one() {
    const BODIES: usize = 100;
    const BODY_BYTES: usize = 50_000_000;
    /// Joining a body may double its memory; the rest is for connections.
    const GROWTH_KIB_MAX: u64 = (BODIES * 2 * HTTP_BODY_BYTES_MAX / 1024) as u64 + 16 * 1024;
    let runner = TestRunner::start(&["--bot", "echo"]);
    let before = runner.peak_kib();
    for (target, chunked) in [
        ("/api/offer", false),
        ("/start", true),
        ("/api/offer", true),
        ("/start", false),
    ] {
        let posts: Vec<_> = (0..BODIES)
            .map(|_| {
                let addr = runner.addr;
                std::thread::spawn(move || post_large(addr, target, chunked, BODY_BYTES))
            })
            .collect();
        for post in posts {
            let answer = post.join().expect("the client does not panic");
            let status = answer.split(' ').nth(1).unwrap_or_default();
            // A client that keeps writing may see a reset before the response.
            assert!(matches!(status, "" | "413" | "429" | "503"), "{answer}");
        }
    }
    let grown = runner.peak_kib() - before;
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more than before");
    assert_eq!(http::get(runner.addr, "/status").status, 200);
}

/// Writes a body as far as it is read; returns the response, if there is one.
fn post_large(addr: SocketAddr, target: &str, chunked: bool, bytes: usize) -> String {
    let Ok(mut stream) = TcpStream::connect(addr) else {
        return String::new();
    };
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        set(&stream, Some(PATIENCE)).expect("a time");
    }
    let length = if chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {bytes}")
    };
    let head = format!("POST {target} HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/json\r\n{length}\r\n\r\n");
    let block = vec![b' '; 64 * 1024];
    let chunk = [format!("{:x}\r\n", block.len()).as_bytes(), &block, b"\r\n"].concat();
    let piece = if chunked { &chunk } else { &block };
    let mut left = bytes;
    let mut going = stream.write_all(head.as_bytes()).is_ok();
    while going && left >= block.len() {
        going = stream.write_all(piece).is_ok();
        left -= block.len();
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Stray datagrams are counted and not answered while a call goes on.
#[test]
fn stray_datagrams_are_counted_and_not_answered() {
    let runner = TestRunner::start(&EMBEDDED);
    let device = call(&runner);
    let unrouted = || -> u64 {
        let text = http::get(runner.addr, "/metrics").text();
        let line = text
            .lines()
            .find(|line| line.contains(r#"reason="stranger""#))
            .expect("a count");
        line.rsplit(' ')
            .next()
            .and_then(|count| count.parse().ok())
            .expect("a number")
    };
    let port = rtc_port(&runner);
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    let before = unrouted();
    let mut sent = 0;
    for first in [0u8, 1, 20, 22, 23, 63, 64, 127, 128, 144, 191, 192, 255] {
        for length in [1usize, 20, 100, 1_200] {
            let mut junk = vec![0x5a; length];
            junk[0] = first;
            socket.send_to(&junk, ("127.0.0.1", port)).expect("sent");
            sent += 1;
        }
    }
    // A plain Binding request, which a STUN server would answer.
    let binding = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12]].concat();
    socket.send_to(&binding, ("127.0.0.1", port)).expect("sent");
    sent += 1;
    let began = std::time::Instant::now();
    while unrouted() < before + sent {
        assert!(
            began.elapsed() < PATIENCE,
            "{} of {sent} were counted",
            unrouted() - before
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // All of them have been counted, so a response would have arrived.
    socket.set_nonblocking(true).expect("a socket");
    let answer = socket.recv(&mut [0; 2_000]);
    assert_eq!(
        answer.map_err(|error| error.kind()),
        Err(std::io::ErrorKind::WouldBlock)
    );
    hears(&device);
}

fn rtc_port(runner: &TestRunner) -> u16 {
    let line = runner.wait_for_log("WebRTC on UDP port");
    let number = line.rsplit("UDP port ").next().expect("a number");
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a port")
}
