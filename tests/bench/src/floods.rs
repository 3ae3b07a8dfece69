//! The proof `floods`: how often and how fast an honest caller connects while another address
//! floods the runner.
//!
//! A runner with default options and 32 sessions. The flood comes from 127.0.0.2 and the honest
//! caller from 127.0.0.1, which the runner distinguishes like machines. Each try of the honest
//! caller is complete: a WebRTC call until its channel is open, or the resource that the flood
//! targets (a call of a started session, a check over ICE-TCP, a socket with a token). Clients and
//! runner share the cores, so times depend on the machine. Successes do not, so a single failed try
//! is a fault.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use edge_runner_proto::moq::link::LinkClosed;
use serde_json::{Value, json};

use crate::call::Call;
use crate::http::{Connection, connect_from};
use crate::rows::{Lines, at, row, runtime};
use crate::runner::Runner;
use crate::support::moq::{MoqClient, MoqInvitation};
use crate::support::stun;
use crate::{Bench, Result};

const FLOOD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const HONEST: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Pause between two tries of the honest caller.
const PAUSE: Duration = Duration::from_millis(50);
/// Time limit for the flood to reach its full size.
const STANDS_WITHIN: Duration = Duration::from_secs(60);
const SOCKETS: usize = 32;
const FRAMED: usize = 128;
const TOKENS: u64 = 4_096;
const UPGRADE: &str = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";

/// State that the flood shares with its watcher.
#[derive(Default)]
struct Flood {
    /// Whether it has reached its full size.
    stands: AtomicBool,
    over: AtomicBool,
    done: AtomicU64,
}

impl Flood {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn count(&self, more: u64) -> u64 {
        self.done.fetch_add(more, Ordering::Relaxed) + more
    }

    fn stand(&self) {
        self.stands.store(true, Ordering::Relaxed);
    }
}

/// Ends the flood when it is dropped.
struct FloodEnd<'flood>(&'flood Flood);

impl Drop for FloodEnd<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

type Attack = fn(SocketAddr, &Flood) -> Result<()>;
type Try = fn(SocketAddr) -> Result<()>;

pub fn floods(bench: &Bench) -> Result<(Lines, Vec<String>)> {
    let nothing: Attack = |_, flood| {
        flood.stand();
        Ok(())
    };
    let scenarios: [(&str, &str, usize, Attack, Try, &str); 7] = [
        ("nothing", "", 1, nothing, call, ""),
        ("32 idle sockets", "", 1, idle_sockets, call, "sockets"),
        ("20 offers a second without ICE", "", 1, offers, call, "offers"),
        ("/start as fast as it goes", "", 2, starts, started_call, "of /start"),
        ("128 ICE-TCP connections", "", 1, framed, framed_call, "connections"),
        (
            "4,096 burnt tokens",
            " --ws-auth token",
            4,
            tokens,
            token_socket,
            "tokens",
        ),
        (
            "QUIC connections without a session",
            " -t moq --moq-bind 127.0.0.1:0",
            1,
            quic,
            quic_call,
            "connections",
        ),
    ];
    let (mut lines, mut faults) = (Lines::new(), Vec::new());
    for (name, args, threads, attack, honest, what) in scenarios {
        let runner = Runner::start_stock(&bench.binary, args)?;
        let flood = Flood::default();
        let mut took = Duration::ZERO;
        let (mut times, failed) = thread::scope(|scope| {
            let attackers: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| attack(runner.addr, &flood)))
                .collect();
            let began = Instant::now();
            let tried = {
                // A panic of the honest caller ends the flood too.
                let _end = FloodEnd(&flood);
                stands(&flood).and_then(|()| tries(runner.addr, honest, bench.amount(100, 20)))
            };
            took = began.elapsed();
            for attacker in attackers {
                attacker.join().expect("the flood does not panic")?;
            }
            tried
        })?;
        times.sort();
        let (good, all) = (times.len(), times.len() + failed.len());
        let mut measured = match times.is_empty() {
            true => format!("0 of {all}"),
            false => format!(
                "{good} of {all}, p50 {} ms, p99 {} ms",
                ms(at(&times, 50)),
                ms(at(&times, 99))
            ),
        };
        if let Some(first) = failed.first() {
            measured += &format!(" (first failure: {first})");
            faults.push(format!("{good} of {all} honest tries beside {name}: {first}"));
        }
        let done = flood.done.load(Ordering::Relaxed);
        if done > 0 {
            measured += &format!("; {done} {what} in {:.1} s", took.as_secs_f64());
        }
        lines.push(row(format!("an honest caller beside {name}"), measured));
    }
    Ok((lines, faults))
}

fn ms(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

fn stands(flood: &Flood) -> Result<()> {
    let began = Instant::now();
    while !flood.stands.load(Ordering::Relaxed) {
        if began.elapsed() > STANDS_WITHIN {
            return Err("the flood does not come to stand".into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Makes `count` tries. Returns the times of the successful ones and the errors of the others.
fn tries(addr: SocketAddr, honest: Try, count: u32) -> Result<(Vec<Duration>, Vec<String>)> {
    let (mut times, mut failed) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let began = Instant::now();
        match honest(addr) {
            Ok(()) => times.push(began.elapsed()),
            Err(error) => failed.push(error.to_string()),
        }
        thread::sleep(PAUSE);
    }
    Ok((times, failed))
}

// ---- the honest caller

/// A WebRTC call.
fn call(addr: SocketAddr) -> Result<()> {
    let call = runtime()?.block_on(Call::begin(&mut Connection::open_from(HONEST, addr)?))?;
    call.leave()
}

/// A call of a started session.
fn started_call(addr: SocketAddr) -> Result<()> {
    let mut http = Connection::open_from(HONEST, addr)?;
    let started = start(&mut http, "webrtc")?;
    let id = started["sessionId"].as_str().ok_or("no name of a session")?;
    let path = format!("/sessions/{id}/api/offer");
    let call = runtime()?.block_on(Call::begin_at(&mut http, &path))?;
    call.leave()
}

/// A call with one check over TCP, which is answered there.
fn framed_call(addr: SocketAddr) -> Result<()> {
    let mut http = Connection::open_from(HONEST, addr)?;
    let mut call = runtime()?.block_on(Call::begin(&mut http))?;
    let local_ufrag = call.local_ufrag();
    let check = framed_check(&call.remote_ufrag, &local_ufrag, &call.remote_pwd);
    let mut stream = connect_from(HONEST, addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(&check)?;
    let mut head = [0; 4];
    stream
        .read_exact(&mut head)
        .map_err(|error| format!("no answer over TCP: {error}"))?;
    if head[2..] != [1, 1] {
        return Err(format!("an answer of kind {:?}", &head[2..]).into());
    }
    call.leave()
}

/// A socket that is opened with a token.
fn token_socket(addr: SocketAddr) -> Result<()> {
    let mut http = Connection::open_from(HONEST, addr)?;
    let (status, _) = upgrade(HONEST, addr, &token_path(&mut http)?)?;
    match status {
        101 => Ok(()),
        other => Err(format!("the socket was answered {other}").into()),
    }
}

/// A call over QUIC, until the bot listens and the client has left.
fn quic_call(addr: SocketAddr) -> Result<()> {
    let mut http = Connection::open_from(HONEST, addr)?;
    let client = MoqClient::connect(&MoqInvitation::read(&start(&mut http, "moq")?));
    client.wait_for("subscription of the bot", |observed| observed.is_received);
    client.leave();
    // A client that is dropped at once does not send its close.
    match client.wait_for_end() {
        LinkClosed::Locally => Ok(()),
        closed => Err(format!("the call ended before the client left: {closed:?}").into()),
    }
}

fn start(http: &mut Connection, transport: &str) -> Result<Value> {
    let body = json!({"transport": transport}).to_string();
    let (status, answer) = http.request("POST", "/start", body.as_bytes())?;
    if status != 200 {
        return Err(format!("/start was answered {status}: {}", String::from_utf8_lossy(&answer)).into());
    }
    Ok(serde_json::from_slice(&answer)?)
}

fn token_path(http: &mut Connection) -> Result<String> {
    let started = start(http, "websocket")?;
    let token = started["token"].as_str().ok_or("no token")?;
    Ok(format!("/ws-client?token={token}"))
}

/// Requests a WebSocket upgrade. Returns the status, and the stream after the response head.
fn upgrade(from: Ipv4Addr, addr: SocketAddr, path: &str) -> Result<(u16, TcpStream)> {
    let mut stream = connect_from(from, addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n{UPGRADE}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let text = std::str::from_utf8(&head)?;
    Ok((text.split(' ').nth(1).ok_or("no status")?.parse()?, stream))
}

/// Returns a binding request as framed over TCP (RFC 4571).
fn framed_check(remote_ufrag: &str, local_ufrag: &str, password: &str) -> Vec<u8> {
    let check = stun::request(remote_ufrag, local_ufrag, password);
    let length = u16::try_from(check.len()).expect("a check is short");
    [&length.to_be_bytes()[..], &check].concat()
}

// ---- the floods

/// Holds up to 32 idle sockets.
fn idle_sockets(addr: SocketAddr, flood: &Flood) -> Result<()> {
    let mut held: Vec<TcpStream> = Vec::new();
    while !flood.is_over() {
        held.retain(is_open);
        match held.len() < SOCKETS {
            true => match upgrade(FLOOD, addr, "/ws-client")? {
                (101, stream) => {
                    flood.count(1);
                    held.push(stream);
                }
                _ => pause(flood),
            },
            false => pause(flood),
        }
    }
    Ok(())
}

/// Marks the flood as established, and pauses.
fn pause(flood: &Flood) {
    flood.stand();
    thread::sleep(Duration::from_millis(20));
}

/// Returns whether the peer has neither closed the stream nor sent a close.
fn is_open(stream: &TcpStream) -> bool {
    let mut byte = [0];
    stream.set_nonblocking(true).is_ok()
        && match stream.peek(&mut byte) {
            // A ping or a close; a closed stream soon reads as 0.
            Ok(read) => read > 0 && byte[0] & 0x0f != 8,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
}

/// Sends 20 offers per second and connects none.
fn offers(addr: SocketAddr, flood: &Flood) -> Result<()> {
    let runtime = runtime()?;
    let mut http = Connection::open_from(FLOOD, addr)?;
    while !flood.is_over() {
        // Most are rejected.
        let _ = runtime.block_on(Call::offer(&mut http));
        if flood.count(1) > 40 {
            flood.stand();
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Sends `/start` as fast as the runner answers.
fn starts(addr: SocketAddr, flood: &Flood) -> Result<()> {
    const BATCH: usize = 64;
    let body = r#"{"transport":"webrtc"}"#;
    let request = format!(
        "POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let batch = request.repeat(BATCH);
    let mut stream = connect_from(FLOOD, addr)?;
    let mut bytes = vec![0; 256 * 1024];
    while !flood.is_over() {
        stream.write_all(batch.as_bytes())?;
        let mut answers = 0;
        while answers < BATCH {
            let read = stream.read(&mut bytes)?;
            if read == 0 {
                return Err("the runner closed the connection".into());
            }
            // A response split between two reads is counted once or missed; a missed one is in the
            // next batch.
            answers += bytes[..read].windows(9).filter(|window| window == b"HTTP/1.1 ").count();
            if bytes[..read].len() < 9 {
                break;
            }
        }
        if flood.count(BATCH as u64) > 20_000 {
            flood.stand();
        }
    }
    Ok(())
}

/// Holds 128 connections, with checks for a live session that are signed with a wrong password.
fn framed(addr: SocketAddr, flood: &Flood) -> Result<()> {
    let runtime = runtime()?;
    let mut held: Vec<TcpStream> = Vec::new();
    while !flood.is_over() {
        let Ok(mut call) = runtime.block_on(Call::offer(&mut Connection::open_from(FLOOD, addr)?)) else {
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let local_ufrag = call.local_ufrag();
        let check = framed_check(&call.remote_ufrag, &local_ufrag, "0123456789012345678901");
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && !flood.is_over() {
            held.retain(is_open);
            for mut stream in &held {
                let _ = stream.write(&check);
            }
            for _ in held.len()..FRAMED {
                let mut stream = connect_from(FLOOD, addr)?;
                if stream.write_all(&check).is_ok() {
                    flood.count(1);
                    held.push(stream);
                }
            }
            if flood.done.load(Ordering::Relaxed) >= FRAMED as u64 {
                flood.stand();
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// Holds twice the connections over QUIC that one address may have, of a namespace without a
/// session. Those that are refused or evicted come again.
fn quic(addr: SocketAddr, flood: &Flood) -> Result<()> {
    const CONNECTIONS: usize = 32;
    let mut invitation = MoqInvitation::read(&start(&mut Connection::open_from(FLOOD, addr)?, "moq")?);
    invitation.namespace = "pipecat-0000000000000000".to_owned();
    invitation.from = FLOOD;
    let mut held: Vec<MoqClient> = Vec::new();
    while !flood.is_over() {
        held.retain(|client| client.observed().closed.is_none());
        for _ in held.len()..CONNECTIONS {
            flood.count(1);
            held.push(MoqClient::connect(&invitation));
        }
        let connected = held.iter().filter(|client| client.observed().is_connected).count();
        if connected >= CONNECTIONS / 2 {
            flood.stand();
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Redeems tokens one after another, as many as the runner once remembered.
fn tokens(addr: SocketAddr, flood: &Flood) -> Result<()> {
    let mut http = Connection::open_from(FLOOD, addr)?;
    while !flood.is_over() && flood.done.load(Ordering::Relaxed) < TOKENS {
        let path = token_path(&mut http)?;
        if upgrade(FLOOD, addr, &path)?.0 == 101 {
            flood.count(1);
        }
    }
    flood.stand();
    Ok(())
}
