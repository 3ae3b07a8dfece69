//! Gathering from servers on loopback that the tests play.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::UdpSocket;
use turn_client_proto::stun::types::attribute::XorMappedAddress;
use turn_client_proto::types::stun::message::{Message, MessageWriteVec};
use turn_client_proto::types::stun::prelude::{MessageWrite, MessageWriteExt};

use super::*;
use crate::config::{Host, IceServer};

const GUARD: Duration = Duration::from_secs(60);
const PUBLIC: &str = "203.0.113.9:40000";

/// A STUN server that reports one address to every client.
async fn stun_server() -> (String, tokio::task::JoinHandle<()>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let url = format!("stun:{}", socket.local_addr().expect("a bound socket has an address"));
    let serve = tokio::spawn(async move {
        let mut buffer = [0; 1500];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.expect("a datagram");
            let request = Message::from_bytes(&buffer[..length]).expect("a request");
            let mut answer = Message::builder_success(&request, MessageWriteVec::new());
            let mapped = XorMappedAddress::new(PUBLIC.parse().expect("an address"), request.transaction_id());
            answer.add_attribute(&mapped).expect("room");
            socket.send_to(&answer.finish(), from).await.expect("sent");
        }
    });
    (url, serve)
}

fn config(urls: Vec<String>, embedded: bool) -> Config {
    crate::proto::config! {
        ice_servers: vec![IceServer {
            urls,
            username: None,
            credential: None,
        }],
        embedded: embedded.then_some(Ipv4Addr::LOCALHOST),
        ..Config::default()
    }
}

/// The mapping is that of the runner's port, and its base is the address the response arrived at.
#[tokio::test]
async fn a_mapping_of_the_runners_port_is_gathered() {
    let (url, server) = stun_server().await;
    let port = UdpPort::bind(Host::Localhost, 0).expect("a free port");
    let reader = tokio::spawn(port.clone().run());
    let gatherer = Gatherer::start(
        &config(vec![url.clone(), "stuns:s.example".into()], false),
        &port,
        &Services::default(),
    );
    assert_eq!(
        gatherer.gathered(),
        GatheredAddresses::default(),
        "an answer never waits"
    );
    timeout(GUARD, gatherer.changed()).await.expect("an answer");
    let base = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
    let pair = (PUBLIC.parse().expect("an address"), base);
    assert_eq!(gatherer.gathered().reflexive, [pair]);
    let status = gatherer.status();
    assert_eq!((&status[0].url, &status[0].state), (&url, &ServerState::Working));
    assert!(matches!(status[1].state, ServerState::Unused(_)));
    server.abort();
    reader.abort();
}

/// With `--embedded` no server is asked, and the status says so.
#[tokio::test]
async fn embedded_mode_gathers_nothing() {
    let port = UdpPort::bind(Host::Localhost, 0).expect("a free port");
    let gatherer = Gatherer::start(
        &config(vec!["stun:127.0.0.1:9".into()], true),
        &port,
        &Services::default(),
    );
    assert!(matches!(gatherer.status()[0].state, ServerState::Unused(_)));
    assert_eq!(port.routed(), (0, 0));
}

/// A probe reports what a server gave, a silent server, and an invalid name.
#[tokio::test]
async fn a_probe_describes_its_result() {
    let (url, server) = stun_server().await;
    let probe = async |url: &str| {
        let outcome = probe::probe(&parse_servers(&config(vec![url.into()], false).ice_servers)[0]).await;
        outcome.map_err(|error| error.to_string())
    };
    assert_eq!(probe(&url).await, Ok(format!("works, seen as {PUBLIC}")));
    server.abort();
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let silent = format!("stun:{}", silent.local_addr().expect("a bound socket has an address"));
    let why = probe(&silent).await.expect_err("a silent server");
    assert!(why.contains("no answer"), "{why}");
    let why = probe("stun:no-such-name.invalid").await.expect_err("no such name");
    assert!(why.contains("no-such-name.invalid"), "{why}");
}

/// An answer offers each gathered address once, up to the caps.
#[test]
fn offered_addresses_are_capped() {
    let pair = |n: u16| {
        (
            SocketAddr::from((Ipv4Addr::LOCALHOST, n)),
            SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        )
    };
    let gatherer = |reflexive: u16, relayed: u16| {
        let entry = ServerStatus {
            url: String::new(),
            state: ServerState::Working,
            reflexive: (0..reflexive).map(pair).collect(),
            relayed: (0..relayed).map(pair).collect(),
        };
        let second = ServerStatus {
            relayed: Vec::new(),
            ..entry.clone()
        };
        let gathered = Gatherer::of(vec![entry, second], SlotPool::new(0), Shutdown::channel().0).gathered();
        (gathered.reflexive.len(), gathered.relayed.len())
    };
    let max = (REFLEXIVE_OFFERED_MAX as u16, RELAYED_OFFERED_MAX as u16);
    assert_eq!(gatherer(max.0, max.1), (REFLEXIVE_OFFERED_MAX, RELAYED_OFFERED_MAX));
    assert_eq!(
        gatherer(max.0 + 1, max.1 + 1),
        (REFLEXIVE_OFFERED_MAX, RELAYED_OFFERED_MAX)
    );
    assert_eq!(gatherer(1, 1), (1, 1));
}
