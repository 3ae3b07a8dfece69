//! Callers over ICE-TCP, on loopback.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::limits::{FRAMED_BYTES_MAX, ICE_TCP_PER_SESSION_MAX};
use crate::proto::webrtc::rfc4571::{self, Rfc4571Reader};

/// A listener whose connections all carry packets, and the driver behind it.
async fn rig() -> (Rig, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let http = listener.local_addr().expect("a bound socket has an address");
    let rig = Rig::listening(config(None), 4, vec![http]);
    let engine = rig.engine.clone();
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let engine = engine.clone();
            tokio::spawn(async move { engine.serve_ice_tcp(stream, peer).await });
        }
    });
    (rig, http)
}

/// Carries a client's datagrams over a connection. Checks are the same on either transport.
struct Tunnel {
    caller: Caller,
    stream: TcpStream,
    framed: Rfc4571Reader,
}

impl Tunnel {
    async fn new(http: SocketAddr) -> Tunnel {
        Tunnel {
            caller: Caller::new().await,
            stream: TcpStream::connect(http).await.expect("a listener"),
            framed: Rfc4571Reader::default(),
        }
    }

    async fn until(&mut self, runner: SocketAddr, done: impl Fn(&TestClient) -> bool) {
        let carrying = async {
            loop {
                let client = &mut self.caller.client;
                let mut bytes = Vec::new();
                for (destination, contents) in client.drain(tasks::now()) {
                    // Addressed to one of the runner's addresses, from which its answers come.
                    if destination == runner {
                        rfc4571::append_framed(&contents, &mut bytes);
                    }
                }
                self.stream.write_all(&bytes).await.expect("a connection");
                if done(client) {
                    return;
                }
                tokio::select! {
                    read = self.stream.read_buf(self.framed.buffer_mut()) => {
                        assert_ne!(read.expect("a connection"), 0, "the runner closed the connection");
                        while let Some(packet) = self.framed.next_packet().expect("short enough") {
                            let address = client.address;
                            client.handle_datagram(runner, address, &packet, tasks::now());
                        }
                    }
                    () = tokio::time::sleep_until(client.wake().into()) => client.handle_timeout(tasks::now()),
                }
            }
        };
        tokio::time::timeout(GUARD, carrying)
            .await
            .expect("what was waited for");
    }
}

/// A whole session without UDP, through the TCP candidate of the answer.
#[tokio::test]
async fn a_session_runs_without_udp() {
    let (mut rig, http) = rig().await;
    let mut tunnel = Tunnel::new(http).await;
    let offer = new(tunnel.caller.client.offer());
    let answer = rig.offer(offer, json!({})).await.expect("an answer");
    let candidate = format!(" 127.0.0.1 {} typ host tcptype passive", http.port());
    let mut lines = answer.sdp.lines().filter(|line| line.contains(" tcp "));
    assert!(lines.any(|line| line.contains(&candidate)), "{}", answer.sdp);
    tunnel.caller.client.accept(&answer.sdp);
    let runner = SocketAddr::from(([127, 0, 0, 1], rig.engine.port_number()));
    tunnel
        .until(runner, |client| client.connected && client.open_channel().is_some())
        .await;
    assert_eq!(rig.reported().await, "Joined");
    tunnel.caller.client.send("hello");
    tunnel.caller.client.speak(440.0, tasks::now());
    tunnel
        .until(runner, |client| !client.read.is_empty() && client.received.len() > 60)
        .await;
    assert_eq!(tunnel.caller.client.texts(), ["you said hello"]);
    rig.until_reported("a second of audio").await;
    tunnel.caller.client.rtc.close().expect("closing");
    tunnel.until(runner, |_| true).await;
    rig.until_reported("left: caller left").await;
    rig.empty().await;
}

/// Packets of no session, non-packets, and frames that are too long close the connection
/// unanswered.
#[tokio::test]
async fn unrouted_connections_are_closed_unanswered() {
    let (rig, http) = rig().await;
    let mut check = vec![0, 1, 0, 12, 0x21, 0x12, 0xa4, 0x42];
    check.extend([7; 12]);
    check.extend([0, 6, 0, 8]);
    check.extend(b"unknown:x");
    let mut unknown = Vec::new();
    rfc4571::append_framed(&check, &mut unknown);
    let too_long = (FRAMED_BYTES_MAX as u16 + 1).to_be_bytes().to_vec();
    for bytes in [unknown, vec![0, 0], vec![0, 3, 22, 254, 253], too_long] {
        let mut stream = TcpStream::connect(http).await.expect("a listener");
        stream.write_all(&bytes).await.expect("a connection");
        let mut answer = Vec::new();
        // A reset is an end too.
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty());
    }
    assert_eq!(rig.engine.sessions().count(), 0);
}

/// Returns a check that names a session and is not signed with its password.
fn unsigned_check(answer: &str) -> Vec<u8> {
    let mut ufrags = answer.lines().filter_map(|line| line.strip_prefix("a=ice-ufrag:"));
    let name = format!("{}:caller", ufrags.next().expect("a name"));
    let padded = name.len().next_multiple_of(4);
    let mut check = vec![0, 1, 0, 4 + padded as u8, 0x21, 0x12, 0xa4, 0x42];
    check.extend([7; 12]);
    check.extend([0, 6, 0, name.len() as u8]);
    check.extend(name.bytes());
    check.resize(20 + 4 + padded, 0);
    let mut framed = Vec::new();
    rfc4571::append_framed(&check, &mut framed);
    framed
}

/// Waits until the runner has closed a connection on which it has sent nothing.
async fn assert_closed(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    let closing = tokio::time::timeout(GUARD, stream.read_to_end(&mut answer)).await;
    let _ = closing.expect("the connection is closed");
    assert!(answer.is_empty());
}

/// Unproven connections to a session hold few slots for a short time, and the session's own caller
/// gets in among them.
#[tokio::test]
async fn unproven_connections_hold_few_slots() {
    let (mut rig, http) = rig().await;
    let mut tunnel = Tunnel::new(http).await;
    let offer = new(tunnel.caller.client.offer());
    let answer = rig.offer(offer, json!({})).await.expect("an answer");
    let check = unsigned_check(&answer.sdp);
    let mut unproven = Vec::new();
    for _ in 0..2 * ICE_TCP_PER_SESSION_MAX {
        let mut stream = TcpStream::connect(http).await.expect("a listener");
        stream.write_all(&check).await.expect("a connection");
        unproven.push(stream);
    }
    // Some have been closed, in whichever order the runner saw them.
    let mut closed = 0;
    while closed < ICE_TCP_PER_SESSION_MAX {
        let ends = unproven.iter_mut().map(|stream| Box::pin(assert_closed(stream)));
        let (_, at, _) = futures_util::future::select_all(ends).await;
        drop(unproven.remove(at));
        closed += 1;
    }
    // The connection of the session's caller is proven and stays.
    tunnel.caller.client.accept(&answer.sdp);
    let runner = SocketAddr::from(([127, 0, 0, 1], rig.engine.port_number()));
    tunnel
        .until(runner, |client| client.connected && client.open_channel().is_some())
        .await;
    assert_eq!(rig.reported().await, "Joined");
    for _ in 0..2 * ICE_TCP_PER_SESSION_MAX {
        let mut stream = TcpStream::connect(http).await.expect("a listener");
        stream.write_all(&check).await.expect("a connection");
        unproven.push(stream);
    }
    tunnel.caller.client.send("hello");
    tunnel.until(runner, |client| !client.read.is_empty()).await;
    // The others are closed by the clock, although they repeat their checks.
    tokio::time::pause();
    for mut stream in unproven {
        let _ = stream.write_all(&check).await;
        assert_closed(&mut stream).await;
    }
}
