//! TCP connections of a room against a listener of the tests.

use std::net::Ipv4Addr;

use tokio::net::TcpListener;

use super::*;

fn id(number: u32) -> PathId {
    PathId { connection: 7, number }
}

fn transmit(source: SocketAddr, peer: SocketAddr, contents: &[u8]) -> Transmit {
    let path = crate::proto::webrtc::connection::PacketPath {
        over: IceProtocol::Tcp,
        source,
        peer,
    };
    Transmit::from_parts(path, contents.to_vec())
}

async fn event(paths: &mut RoomPaths) -> PathEvent {
    match paths.recv().await {
        PathInput::Event(_, event) => event,
        PathInput::Datagram(..) => panic!("no packet was sent"),
    }
}

/// Packets travel both ways with their framing, and the end of the connection is reported.
#[tokio::test]
async fn packets_are_framed_both_ways() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let server = listener.local_addr().expect("a bound socket has an address");
    let mut paths = RoomPaths::default();
    paths.open(SignalTarget::Subscriber, id(1), PathRequest::Tcp(server));
    let (mut accepted, _) = listener.accept().await.expect("a connection");
    let PathEvent::Connected { local } = event(&mut paths).await else {
        panic!("connected")
    };
    assert!(paths.send(SignalTarget::Subscriber, &mut transmit(local, server, b"check")));
    let mut read = [0; 7];
    accepted.read_exact(&mut read).await.expect("a packet");
    assert_eq!(&read, b"\x00\x05check");
    accepted.write_all(b"\x00\x02hi\x00\x01").await.expect("written");
    accepted.write_all(b"!").await.expect("written");
    for expected in [&b"hi"[..], b"!"] {
        let PathInput::Datagram(target, datagram) = paths.recv().await else {
            panic!("a packet")
        };
        assert_eq!(target, SignalTarget::Subscriber);
        assert_eq!(
            (datagram.over, datagram.source, datagram.destination),
            (IceProtocol::Tcp, server, local)
        );
        assert_eq!(&datagram.contents[..], expected);
    }
    drop(accepted);
    assert!(matches!(event(&mut paths).await, PathEvent::Ended(why) if why.contains("closed")));
    assert!(paths.open.is_empty());
    assert!(
        paths.send(SignalTarget::Subscriber, &mut transmit(local, server, b"lost")),
        "never by UDP"
    );
}

/// A refused connection says so, and one that is closed by the session says nothing.
#[tokio::test]
async fn ends_are_reported_once() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let server = listener.local_addr().expect("a bound socket has an address");
    let mut paths = RoomPaths::default();
    paths.open(SignalTarget::Publisher, id(0), PathRequest::Tcp(server));
    let (mut accepted, _) = listener.accept().await.expect("a connection");
    event(&mut paths).await;
    paths.close(id(0));
    let mut rest = Vec::new();
    assert_eq!(accepted.read_to_end(&mut rest).await.expect("closed"), 0);
    drop(listener);
    paths.open(SignalTarget::Publisher, id(2), PathRequest::Tcp(server));
    assert_eq!(event(&mut paths).await, PathEvent::Ended("connection refused".into()));
    paths.open(SignalTarget::Publisher, id(4), PathRequest::Tcp(server));
    paths.close_all();
    assert!(paths.open.is_empty());
}

/// A server that speaks another protocol ends the connection.
#[tokio::test]
async fn another_protocol_ends_the_connection() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let server = listener.local_addr().expect("a bound socket has an address");
    let mut paths = RoomPaths::default();
    paths.open(SignalTarget::Publisher, id(0), PathRequest::Tcp(server));
    let (mut accepted, _) = listener.accept().await.expect("a connection");
    event(&mut paths).await;
    accepted.write_all(b"SSH-2.0-x\r\n").await.expect("written");
    assert!(matches!(event(&mut paths).await, PathEvent::Ended(why) if why.contains("something else")));
}
