//! The port over real loopback: routing of datagrams to sessions.
//!
//! Loopback keeps the order of one socket, so each datagram that must be dropped is followed by one
//! that must arrive: then the first has been handled.

use std::time::Duration;

use quinn_udp::{UdpSockRef, UdpSocketState};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::*;
use crate::{allocations, skip};

const GUARD: Duration = Duration::from_secs(60);

/// A port with its reader, which stops when this is dropped.
struct Reading {
    port: Arc<UdpPort>,
    task: JoinHandle<()>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn reading() -> Reading {
    let port = UdpPort::bind(Host::Localhost, 0).expect("a free port");
    let task = tokio::spawn(port.clone().run());
    Reading { port, task }
}

impl Reading {
    fn v4(&self) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.port.number())
    }

    fn v6(&self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::LOCALHOST.into(), self.port.number())
    }
}

async fn socket() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port")
}

fn address(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("a bound socket has an address")
}

async fn next(inbox: &mut SessionInbox) -> Datagram {
    tokio::time::timeout(GUARD, inbox.recv()).await.expect("a datagram")
}

/// A connectivity check with that ufrag (RFC 8489 section 5, without the attributes str0m reads).
fn check(ufrag: &str) -> Vec<u8> {
    let name = format!("{ufrag}:them");
    let padded = name.len().next_multiple_of(4);
    let mut message = vec![0, 1];
    message.extend((4 + padded as u16).to_be_bytes());
    message.extend([0x21, 0x12, 0xa4, 0x42]);
    message.extend([7; 12]);
    message.extend([0, 6]);
    message.extend((name.len() as u16).to_be_bytes());
    message.extend(name.bytes());
    message.resize(20 + 4 + padded, 0);
    message
}

/// A check is routed by its ufrag, from any source; an unknown ufrag is dropped.
#[tokio::test]
async fn a_check_is_routed_by_its_ufrag() {
    let reading = reading();
    let (mut one, mut two) = (reading.port.open(), reading.port.open());
    one.listen("one".into());
    two.listen("two".into());
    let caller = socket().await;
    for name in ["three", "two", "one"] {
        caller.send_to(&check(name), reading.v4()).await.expect("sent");
    }
    let datagram = next(&mut one).await;
    assert_eq!(datagram.contents, check("one"));
    assert_eq!(
        (datagram.source, datagram.destination),
        (address(&caller), reading.v4())
    );
    assert_eq!(next(&mut two).await.contents, check("two"));
    assert!(one.try_recv().is_none() && two.try_recv().is_none());
}

/// Other packets are routed to the session for which their source is proven, and dropped before
/// that.
#[tokio::test]
async fn other_datagrams_are_routed_by_their_source() {
    let reading = reading();
    let (mut one, mut two) = (reading.port.open(), reading.port.open());
    one.listen("one".into());
    two.listen("two".into());
    let caller = socket().await;
    caller.send_to(b"before", reading.v4()).await.expect("sent");
    caller.send_to(&check("one"), reading.v4()).await.expect("sent");
    next(&mut one).await;
    assert!(one.prove(address(&caller)).is_empty());
    caller.send_to(b"after", reading.v4()).await.expect("sent");
    assert_eq!(&*next(&mut one).await.contents, b"after");
    // A check with another session's ufrag goes to that session.
    caller.send_to(&check("two"), reading.v4()).await.expect("sent");
    assert_eq!(next(&mut two).await.contents, check("two"));
    assert!(one.try_recv().is_none());
}

/// A path with a sent check admits STUN responses only. Proof replaces it, and not the reverse.
#[tokio::test]
async fn an_expected_path_admits_responses_only() {
    let reading = reading();
    let (mut one, mut two) = (reading.port.open(), reading.port.open());
    let caller = socket().await;
    one.expect(address(&caller));
    caller.send_to(b"answer", reading.v4()).await.expect("sent");
    assert_eq!(&*next(&mut one).await.contents, b"answer");
    assert!(
        two.prove(address(&caller)).is_empty(),
        "there was no session to replace"
    );
    one.expect(address(&caller));
    caller.send_to(b"two's", reading.v4()).await.expect("sent");
    assert_eq!(&*next(&mut two).await.contents, b"two's");
    assert!(one.try_recv().is_none());
}

/// Two sessions that have proven one address both get its packets, and the later one learns of the
/// other. A forged check, which makes a session expect responses, changes nothing for the other.
#[tokio::test]
async fn a_proven_address_is_shared_only_with_proof() {
    let reading = reading();
    let (mut one, mut two, mut forger) = (reading.port.open(), reading.port.open(), reading.port.open());
    let caller = socket().await;
    assert!(one.prove(address(&caller)).is_empty());
    assert!(one.prove(address(&caller)).is_empty());
    forger.expect(address(&caller));
    assert_eq!(two.prove(address(&caller)), [one.number()]);
    assert!(two.prove(address(&caller)).is_empty());
    caller.send_to(b"hello", reading.v4()).await.expect("sent");
    assert_eq!(&*next(&mut two).await.contents, b"hello");
    assert_eq!(&*next(&mut one).await.contents, b"hello");
    drop(two);
    caller.send_to(b"to one", reading.v4()).await.expect("sent");
    assert_eq!(&*next(&mut one).await.contents, b"to one");
    drop(one);
    caller
        .send_to(b"to whom it may concern", reading.v4())
        .await
        .expect("sent");
    assert_eq!(&*next(&mut forger).await.contents, b"to whom it may concern");
    assert!(forger.try_recv().is_none());
}

/// A closed session leaves no routes; a renamed one loses the old ufrag and its paths.
#[tokio::test]
async fn routes_are_removed_with_their_session() {
    let reading = reading();
    let (mut one, mut two) = (reading.port.open(), reading.port.open());
    one.listen("one".into());
    two.listen("two".into());
    for port in 1..=10 {
        one.prove(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
        two.expect(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 100 + port));
    }
    assert_eq!(reading.port.routed(), (2, 20));
    one.listen("one".into());
    assert_eq!(reading.port.routed(), (2, 20), "the same name is no new one");
    one.listen("uno".into());
    assert_eq!(reading.port.routed(), (2, 10));
    drop(two);
    assert_eq!(reading.port.routed(), (1, 0));
    drop(one);
    assert_eq!(reading.port.routed(), (0, 0));
}

/// The inbox of a session that does not read keeps the first datagrams, and other sessions lose
/// none.
#[tokio::test]
async fn a_full_inbox_drops_datagrams() {
    let reading = reading();
    let (mut slow, mut other) = (reading.port.open(), reading.port.open());
    let (caller, another) = (socket().await, socket().await);
    slow.prove(address(&caller));
    other.prove(address(&another));
    for number in 0..SESSION_INBOX_DATAGRAMS + 10 {
        caller.send_to(&[number as u8], reading.v4()).await.expect("sent");
    }
    another.send_to(b"done", reading.v4()).await.expect("sent");
    assert_eq!(&*next(&mut other).await.contents, b"done");
    for number in 0..SESSION_INBOX_DATAGRAMS {
        assert_eq!(&*next(&mut slow).await.contents, &[number as u8]);
    }
    assert!(slow.try_recv().is_none());
    caller.send_to(b"room again", reading.v4()).await.expect("sent");
    assert_eq!(&*next(&mut slow).await.contents, b"room again");
}

/// Both families share a number, report the local address of a datagram, and send from it.
#[tokio::test]
async fn both_families_are_served() {
    let reading = reading();
    assert_eq!(reading.port.number(), reading.v4().port());
    let mut inbox = reading.port.open();
    let mut families = vec![(socket().await, reading.v4())];
    if skip::has_ipv6("a UDP port of both families") {
        let caller = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await.expect("a free port");
        families.push((caller, reading.v6()));
    }
    // All of 127/8 is local: the answer must come from the address the caller sent to.
    families.push((
        socket().await,
        SocketAddr::from(([127, 0, 0, 2], reading.port.number())),
    ));
    for (caller, to) in families {
        inbox.prove(address(&caller));
        caller.send_to(b"hello", to).await.expect("sent");
        let datagram = next(&mut inbox).await;
        assert_eq!((datagram.source, datagram.destination), (address(&caller), to));
        reading.port.send(
            IceProtocol::Udp,
            datagram.destination,
            datagram.source,
            b"hello yourself",
        );
        let mut buffer = [0; 64];
        let answer = tokio::time::timeout(GUARD, caller.recv_from(&mut buffer));
        let (bytes, from) = answer.await.expect("an answer").expect("received");
        assert_eq!((&buffer[..bytes], from), (&b"hello yourself"[..], to));
    }
}

/// Datagrams that the kernel joined into one read are split again, including a shorter last one.
#[tokio::test]
async fn joined_datagrams_are_split() {
    let reading = reading();
    let mut inbox = reading.port.open();
    let caller = socket().await;
    inbox.prove(address(&caller));
    let state = UdpSocketState::new(UdpSockRef::from(&caller)).expect("a socket's state");
    if state.max_gso_segments() < 8 {
        return skip::lacks_ability("datagrams that the kernel joined", "this kernel segments none");
    }
    const SEGMENT: usize = 100;
    let contents: Vec<u8> = (0..7 * SEGMENT + 30).map(|at| (at / SEGMENT) as u8).collect();
    let transmit = quinn_udp::Transmit {
        destination: reading.v4(),
        ecn: None,
        contents: &contents,
        segment_size: Some(SEGMENT),
        src_ip: None,
    };
    let sent = caller.async_io(Interest::WRITABLE, || {
        state.try_send(UdpSockRef::from(&caller), &transmit)
    });
    sent.await.expect("sent");
    for segment in contents.chunks(SEGMENT) {
        assert_eq!(&*next(&mut inbox).await.contents, segment);
    }
}

/// An empty datagram, one of the largest size, and an ICMP error leave the port reading.
#[tokio::test]
async fn odd_datagrams_do_not_stop_the_port() {
    let reading = reading();
    let mut inbox = reading.port.open();
    let caller = socket().await;
    inbox.prove(address(&caller));
    let unused = {
        let gone = socket().await;
        address(&gone)
    };
    for _ in 0..10 {
        reading.port.send(IceProtocol::Udp, reading.v4(), unused, b"ping");
    }
    let largest = vec![5; 65_507];
    caller.send_to(b"", reading.v4()).await.expect("sent");
    caller.send_to(&largest, reading.v4()).await.expect("sent");
    caller.send_to(b"small", reading.v4()).await.expect("sent");
    assert_eq!(&*next(&mut inbox).await.contents, &largest[..]);
    assert_eq!(&*next(&mut inbox).await.contents, b"small");
    // A packet that cannot be sent is lost without further effect.
    reading.port.send(
        IceProtocol::Udp,
        reading.v4(),
        SocketAddr::from(([0, 0, 0, 0], 0)),
        b"nowhere",
    );
    reading
        .port
        .send(IceProtocol::Udp, reading.v4(), address(&caller), &vec![0; 70_000]);
    reading.port.send(
        IceProtocol::Udp,
        SocketAddr::from(([192, 0, 2, 1], 1)),
        address(&caller),
        b"not our address",
    );
}

/// Bursts of any length arrive whole, and so does what follows them.
#[tokio::test]
async fn a_burst_is_read_to_its_end() {
    let reading = reading();
    let mut session = reading.port.open();
    // A socket of tokio refuses to send before its first wait.
    let caller = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    session.prove(caller.local_addr().expect("a bound socket has an address"));
    for length in [1, 7, 8, 9, 15, 16, 17, 40, 1] {
        // The reader does not run before the first wait.
        for number in 0..length {
            caller.send_to(&[128, number], reading.v4()).expect("sent");
        }
        for number in 0..length {
            assert_eq!(&*next(&mut session).await.contents, [128, number], "of {length}");
        }
    }
}

/// A read that empties the socket is the last one until the kernel reports more, and room to send
/// is not waited for.
#[tokio::test]
async fn an_empty_socket_is_not_read_again() {
    if quinn_udp::BATCH_SIZE == 1 {
        return skip::lacks_ability("reads that empty the socket", "one read takes one datagram here");
    }
    let port = UdpPort::bind(Host::Localhost, 0).expect("a free port");
    let reader = port.v4.as_ref().expect("IPv4");
    let caller = socket().await;
    let mut batch = DatagramBatch::default();
    for _ in 0..3 {
        caller
            .send_to(b"one", (Ipv4Addr::LOCALHOST, port.number()))
            .await
            .expect("sent");
        reader.receive(&mut batch).await;
        assert_eq!(batch.datagrams().count(), 1);
        let read = reader.socket.try_io(Interest::READABLE, |_| -> io::Result<()> {
            unreachable!("it is empty")
        });
        assert_eq!(read.expect_err("nothing is there").kind(), io::ErrorKind::WouldBlock);
        let room = reader.socket.try_io(Interest::WRITABLE, |_| -> io::Result<()> {
            unreachable!("no one waits")
        });
        assert_eq!(room.expect_err("not told").kind(), io::ErrorKind::WouldBlock);
    }
}

/// The receive buffer is larger than the default, for any user.
#[tokio::test]
async fn the_port_holds_a_burst() {
    let port = UdpPort::bind(Host::Localhost, 0).expect("a free port");
    let plain = socket().await;
    let plain = SockRef::from(&plain).recv_buffer_size().expect("a size");
    for socket in [&port.v4, &port.v6].into_iter().flatten() {
        let held = SockRef::from(socket.socket.get_ref())
            .recv_buffer_size()
            .expect("a size");
        assert!(held > plain);
    }
}

/// `host` selects one address, or every interface, also for loopback, because audio does not come
/// through a tunnel.
#[tokio::test]
async fn the_host_selects_the_listening_address() {
    let bind = |host: Host| UdpPort::bind(host, 0).expect("a free port");
    let v4 = |octets: [u8; 4]| IpAddr::from(octets);
    let loopback = bind(Host::Address(v4([127, 0, 0, 1])));
    assert!(loopback.serves(v4([127, 0, 0, 1])));
    let address = |socket: &UdpFamilySocket| socket.socket.get_ref().local_addr().expect("it is bound");
    let local = |socket: &Option<UdpFamilySocket>| socket.as_ref().map(|socket| address(socket).ip());
    assert_eq!(local(&loopback.v4), Some(Ipv4Addr::UNSPECIFIED.into()));
    let any = bind(Host::Address(Ipv4Addr::UNSPECIFIED.into()));
    assert!(any.serves(v4([192, 0, 2, 1])) && !any.serves(Ipv6Addr::LOCALHOST.into()));
    assert_ne!(any.number(), 0);
    let refused = UdpPort::bind(Host::Address(v4([192, 0, 2, 1])), 0)
        .err()
        .expect("a foreign address");
    assert_eq!(refused.kind(), io::ErrorKind::AddrNotAvailable);
    let taken = UdpPort::bind(Host::Localhost, any.number())
        .err()
        .expect("a port that is taken");
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A peer has a separate path behind a relay; each path leads to the session that proved it.
#[tokio::test]
async fn paths_through_a_relay_are_separate() {
    let reading = reading();
    let port = &reading.port;
    let (mut direct, mut relayed) = (port.open(), port.open());
    let peer = at("192.168.1.9:5000");
    let relay = SocketAddr::new(at("203.0.113.1:0").ip(), port.number() ^ 1);
    assert!(direct.prove(port.path(IceProtocol::Udp, reading.v4(), peer)).is_empty());
    assert!(relayed.prove(port.path(IceProtocol::Udp, relay, peer)).is_empty());
    let mut arena = BytesMut::new();
    port.inject(peer, b"direct", &mut arena);
    port.deliver_relayed(peer, relay, b"relayed", &mut arena);
    assert_eq!(&*next(&mut direct).await.contents, b"direct");
    let datagram = next(&mut relayed).await;
    assert_eq!((&*datagram.contents, datagram.destination), (&b"relayed"[..], relay));
    // A check is routed by its ufrag on any path.
    direct.listen("here".into());
    port.deliver_relayed(peer, relay, &check("here"), &mut arena);
    assert_eq!(next(&mut direct).await.destination, relay);
}

/// Packets from a relayed address go to its queue, up to the cap, and are dropped once it is gone.
#[tokio::test]
async fn packets_leave_from_a_relayed_address() {
    let reading = reading();
    let port = &reading.port;
    let relay = SocketAddr::new(at("203.0.113.1:0").ip(), port.number() ^ 1);
    let mut attached = port.attach(relay).expect("another number");
    for n in 0..=crate::limits::RELAY_QUEUE_DATAGRAMS {
        port.send(IceProtocol::Udp, relay, at("192.168.1.9:5000"), &n.to_be_bytes());
    }
    for n in 0..crate::limits::RELAY_QUEUE_DATAGRAMS {
        let outgoing = attached.next().await;
        assert_eq!(
            (outgoing.peer, &*outgoing.contents),
            (at("192.168.1.9:5000"), &n.to_be_bytes()[..])
        );
    }
    port.send(IceProtocol::Udp, relay, at("192.168.1.9:5000"), b"last");
    assert_eq!(
        &*attached.next().await.contents,
        b"last",
        "the one past the cap was dropped"
    );
    // A later owner of the address keeps it when the earlier one is dropped.
    let mut later = port.attach(relay).expect("another number");
    drop(attached);
    port.send(IceProtocol::Udp, relay, at("192.168.1.9:5000"), b"later");
    assert_eq!(&*later.next().await.contents, b"later");
    let own = SocketAddr::new(relay.ip(), port.number());
    assert!(
        port.attach(own).is_none(),
        "it could not be told from this machine's own"
    );
}

/// A session cannot take a configured address, and a session's route does not shadow it.
#[tokio::test]
async fn a_reserved_address_cannot_be_claimed() {
    let reading = reading();
    let port = &reading.port;
    let (mut gatherer, mut session) = (port.open(), port.open());
    let server = at("198.51.100.1:3478");
    let mut arena = BytesMut::new();
    session.expect(server);
    gatherer.reserve(server);
    session.expect(server);
    assert!(session.prove(server).is_empty());
    port.inject(server, b"answer", &mut arena);
    assert_eq!(&*next(&mut gatherer).await.contents, b"answer");
    assert!(session.try_recv().is_none());
    gatherer.release(server);
    assert!(session.prove(server).is_empty());
    gatherer.release(server);
    port.inject(server, b"later", &mut arena);
    assert_eq!(&*next(&mut session).await.contents, b"later");
}

/// Packets from an address of `--ice-address` leave from one of this machine's. The kernel rejects
/// other foreign source addresses.
#[tokio::test]
async fn packets_from_a_router_address_leave_from_a_local_one() {
    let port = UdpPort::bind(Host::Localhost, 0).expect("a free port");
    let peer = socket().await;
    let router = IpAddr::from([203, 0, 113, 77]);
    port.set_external(vec![router]);
    let from = |address: IpAddr| SocketAddr::new(address, port.number());
    port.send(
        IceProtocol::Udp,
        from([198, 51, 100, 77].into()),
        address(&peer),
        b"refused",
    );
    port.send(IceProtocol::Udp, from(router), address(&peer), b"sent");
    let mut contents = [0; 16];
    let read = tokio::time::timeout(GUARD, peer.recv_from(&mut contents)).await;
    let (length, source) = read.expect("a datagram").expect("a readable socket");
    assert_eq!((&contents[..length], source.port()), (&b"sent"[..], port.number()));
}

/// Unrouted datagrams allocate nothing, reach no inbox and are counted; routed ones share blocks.
#[tokio::test]
async fn unrouted_datagrams_allocate_nothing() {
    const PACKETS: u64 = 2_000;
    /// Packets per block, and a counter that shows who still reads it.
    const PACKETS_PER_ALLOCATION: u64 = 20;
    let port = UdpPort::bind(Host::Localhost, 0).expect("a free port");
    let mut session = port.open();
    session.listen("ours".into());
    let (peer, foreign) = (at("198.51.100.1:5000"), at("198.51.100.66:6666"));
    session.prove(peer);
    let mut arena = BytesMut::new();
    let junk = [
        vec![],
        vec![0],
        check("theirs"),
        vec![22; 1_200],
        vec![128; 160],
        vec![255; 1_472],
    ];
    let ((), allocations) = allocations::of(|| {
        for _ in 0..100 {
            for datagram in &junk {
                port.inject(foreign, datagram, &mut arena);
            }
        }
    });
    assert_eq!(allocations, 0);
    assert_eq!(port.dropped().unrouted.load(Relaxed), 600);
    assert!(session.try_recv().is_none());
    let packet = [128; 160];
    let ((), allocations) = allocations::of(|| {
        for _ in 0..PACKETS {
            port.inject(peer, &packet, &mut arena);
            assert!(session.try_recv().is_some());
        }
    });
    assert!(allocations <= PACKETS / PACKETS_PER_ALLOCATION, "{allocations}");
}

/// A flooded session takes a bounded number of packets before other tasks run.
#[test]
fn a_flooded_session_does_not_starve_others() {
    const TURNS: usize = 200;
    /// The packets queued when its turn begins, and as many that arrive meanwhile.
    const PACKETS_PER_TURN_MAX: u64 = 2 * SESSION_INBOX_DATAGRAMS as u64;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let most = runtime.expect("a runtime").block_on(async {
        let port = UdpPort::bind(Host::Localhost, 0).expect("a free port");
        let mut session = port.open();
        let peer = at("198.51.100.1:5000");
        session.prove(peer);
        let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let flood = std::thread::spawn({
            let (port, over) = (port.clone(), over.clone());
            move || {
                let mut arena = BytesMut::new();
                while !over.load(Relaxed) {
                    port.inject(peer, &[128; 160], &mut arena);
                }
            }
        });
        let taken = Arc::new(AtomicU64::new(0));
        let flooded = tokio::spawn({
            let taken = taken.clone();
            async move {
                loop {
                    session.recv().await;
                    taken.fetch_add(1, Relaxed);
                }
            }
        });
        let mut most = 0;
        let mut turns = 0;
        while turns < TURNS {
            tokio::task::yield_now().await;
            let packets = taken.swap(0, Relaxed);
            most = most.max(packets);
            // The flood takes time to start, and may pause.
            turns += usize::from(packets > 0);
        }
        over.store(true, Relaxed);
        flood.join().expect("it does not panic");
        flooded.abort();
        most
    });
    assert!((1..=PACKETS_PER_TURN_MAX).contains(&most), "{most} packets in one turn");
}
