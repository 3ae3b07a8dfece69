//! Two ports over real loopback: handshakes, Retry, refusals, and the places of connections.

use std::future::pending;
use std::time::Duration;

use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{ConnectionError, Event};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{self, RootCertStore};

use super::*;
use crate::skip;

const GUARD: Duration = Duration::from_secs(60);

/// Admits by a fixed verdict, and passes connections on.
struct Fixed {
    retries: bool,
    refuses: bool,
    accepted: mpsc::Sender<(Connection, ConnectionInbox)>,
}

impl AcceptConnections for Fixed {
    type Permit = ();

    fn admit(&self, _: SocketAddr, is_validated: bool) -> ConnectionVerdict<()> {
        match (self.refuses, self.retries && !is_validated) {
            (true, _) => ConnectionVerdict::Refuse,
            (false, true) => ConnectionVerdict::Retry,
            (false, false) => ConnectionVerdict::Accept(()),
        }
    }

    fn accept(self: &Arc<Self>, (): (), connection: Connection, inbox: ConnectionInbox) {
        let _ = self.accepted.try_send((connection, inbox));
    }
}

/// Two ports with their readers, which stop when this is dropped.
struct Pair {
    server: Arc<MoqPort>,
    client: Arc<MoqPort>,
    config: ClientConfig,
    accepted: mpsc::Receiver<(Connection, ConnectionInbox)>,
    readers: [JoinHandle<()>; 2],
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.readers.iter().for_each(JoinHandle::abort);
    }
}

fn pair(address: SocketAddr, retries: bool, refuses: bool) -> Pair {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a valid name");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let tls = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(
            vec![made.cert.der().clone()],
            PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
        )
        .expect("a key and its certificate");
    let server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).expect("it has TLS 1.3")));
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("it has TLS 1.3")));
    let server = MoqPort::bind(address, Some(Arc::new(server))).expect("a free port");
    let client = MoqPort::bind(SocketAddr::new(address.ip(), 0), None).expect("a free port");
    let (sender, accepted) = mpsc::channel(8);
    let arrivals = Arc::new(Fixed {
        retries,
        refuses,
        accepted: sender,
    });
    let readers = [&server, &client].map(|port| tokio::spawn(port.clone().run(arrivals.clone())));
    Pair {
        server,
        client,
        config,
        accepted,
        readers,
    }
}

impl Pair {
    fn connect(&self) -> (Connection, ConnectionInbox) {
        let loopback = match self.server.v6 {
            Some(_) => IpAddr::from(Ipv6Addr::LOCALHOST),
            None => Ipv4Addr::LOCALHOST.into(),
        };
        self.connect_to(loopback)
    }

    fn connect_to(&self, address: IpAddr) -> (Connection, ConnectionInbox) {
        let remote = SocketAddr::new(address, self.server.number());
        self.client
            .connect(self.config.clone(), remote, "localhost", tasks::now())
            .expect("a usable address")
    }

    async fn accepted(&mut self) -> (Connection, ConnectionInbox) {
        let accepted = tokio::time::timeout(GUARD, self.accepted.recv()).await;
        accepted.expect("a connection in time").expect("the port runs")
    }
}

/// Moves a connection's bytes until it is connected or lost.
async fn drive(connection: &mut Connection, inbox: &mut ConnectionInbox) -> Result<(), ConnectionError> {
    let mut buffer = Vec::new();
    let run = async {
        loop {
            while let Some(event) = connection.poll_endpoint_events() {
                if let Some(event) = inbox.handle_endpoint_event(event) {
                    connection.handle_event(event);
                }
            }
            loop {
                buffer.clear();
                let Some(transmit) = connection.poll_transmit(tasks::now(), 4, &mut buffer) else {
                    break;
                };
                inbox.port().send(&transmit, &buffer);
            }
            match connection.poll() {
                Some(Event::Connected) => return Ok(()),
                Some(Event::ConnectionLost { reason }) => return Err(reason),
                _ => {}
            }
            let due = connection.poll_timeout();
            tokio::select! {
                received = inbox.recv() => connection.handle_event(received.event),
                () = async {
                    match due {
                        Some(due) => tokio::time::sleep_until(due.into()).await,
                        None => pending().await,
                    }
                } => connection.handle_timeout(tasks::now()),
            }
        }
    };
    tokio::time::timeout(GUARD, run).await.expect("an outcome in time")
}

const V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const BOTH: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

#[tokio::test]
async fn connections_are_accepted_and_forgotten() {
    for retries in [false, true] {
        let mut pair = pair(V4, retries, false);
        let (mut client, mut client_inbox) = pair.connect();
        let server = async {
            let (mut server, mut inbox) = pair.accepted.recv().await.expect("the port runs");
            let connected = drive(&mut server, &mut inbox).await;
            (connected, server.remote_address(), inbox)
        };
        let (dialed, (accepted, remote, inbox)) = tokio::join!(drive(&mut client, &mut client_inbox), server);
        assert_eq!((dialed.is_ok(), accepted.is_ok()), (true, true), "retries: {retries}");
        assert_eq!(remote, SocketAddr::new(V4.ip(), pair.client.number()));
        assert_eq!((pair.server.connections(), pair.client.connections()), (1, 1));
        drop((inbox, client_inbox));
        assert_eq!((pair.server.connections(), pair.client.connections()), (0, 0));
    }
}

/// `[::]` serves both families with one number.
#[tokio::test]
async fn the_unspecified_address_serves_both_families() {
    let mut pair = pair(BOTH, false, false);
    let mut addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
    if skip::has_ipv6("a port of Media over QUIC of both families") {
        addresses.push(Ipv6Addr::LOCALHOST.into());
    }
    for address in addresses {
        assert!(pair.server.serves(address) && pair.client.serves(address), "{address}");
        let (mut client, mut inbox) = pair.connect_to(address);
        let dialing = tokio::spawn(async move { drive(&mut client, &mut inbox).await });
        let (mut server, mut server_inbox) = pair.accepted().await;
        assert!(drive(&mut server, &mut server_inbox).await.is_ok());
        assert!(dialing.await.expect("no panic").is_ok());
        assert_eq!(server.remote_address().ip(), address);
    }
}

#[tokio::test]
async fn a_refusal_ends_the_attempt_at_once() {
    let pair = pair(V4, false, true);
    let (mut client, mut inbox) = pair.connect();
    let refused = drive(&mut client, &mut inbox).await;
    assert!(
        matches!(refused, Err(ConnectionError::ConnectionClosed(_))),
        "{refused:?}"
    );
    assert_eq!(pair.server.connections(), 0);
}

/// A connection that does not read loses datagrams, and holds no more than its inbox.
#[tokio::test]
async fn a_full_inbox_drops_events() {
    let mut pair = pair(V4, false, false);
    let (mut client, mut client_inbox) = pair.connect();
    let (mut server, server_inbox) = {
        let dialing = drive(&mut client, &mut client_inbox);
        let serving = async {
            let (mut server, mut inbox) = pair.accepted.recv().await.expect("the port runs");
            let connected = drive(&mut server, &mut inbox).await;
            connected.map(|()| (server, inbox))
        };
        let (dialed, served) = tokio::join!(dialing, serving);
        dialed.expect("a connection");
        served.expect("a connection")
    };
    let mut buffer = Vec::new();
    for _ in 0..2 * INBOX_EVENTS {
        client.ping();
        while let Some(transmit) = client.poll_transmit(tasks::now(), 1, &mut buffer) {
            pair.client.send(&transmit, &buffer);
            buffer.clear();
        }
    }
    // What the socket's own buffer lost never came, and is not counted.
    let full = async {
        while pair.server.inbox_full() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GUARD, full).await.expect("a full inbox");
    let dropped = pair.server.inbox_full();
    let mut held = 0;
    while server_inbox.queue.try_next().is_some() {
        held += 1;
    }
    assert_eq!(held, INBOX_EVENTS);
    // Each datagram has one event, and the handshake's last ones may have come before.
    assert!(dropped <= INBOX_EVENTS as u64 + 8, "{dropped} dropped");
    server.close(tasks::now(), 0u32.into(), bytes::Bytes::new());
}

/// A port that is in use is an error, also if the other family would be free.
#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let taken = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
    let port = taken.local_addr().expect("it is bound").port();
    let error = MoqPort::bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port), None)
        .err()
        .map(|error| error.kind());
    assert_eq!(error, Some(io::ErrorKind::AddrInUse));
}
