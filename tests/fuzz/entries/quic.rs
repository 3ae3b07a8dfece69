//! Datagrams at the UDP port of Media over QUIC: a client that connects, among strangers who send
//! anything, also from its address, and repeat its datagrams with changed bytes.
//!
//! In: operations, each a kind, a length, and that many bytes. 0: a datagram of a stranger. 1: one
//! from the client's address. 2: the next datagram of the client with these bytes added to its own,
//! and then as it was. 3: the next one twice. 4: time, 20 ms for each byte, up to 5 s in all. 5: a
//! stranger's first packet, whose head is right. Whatever it is: the server answers no datagram
//! with more than three times its bytes, and without a 2 the client is connected at the end. A peer
//! that sees the datagrams of a handshake can end it, as by a Retry that it makes of one: packets
//! before the keys of the handshake are not protected from it. Source: RFC 9000 sections 8.1, 21.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use edge_runner_proto::moq::link::{LinkEvent, LinkTarget, MoqLink, client_config, endpoint_config, server_config};
use quinn_proto::rustls;
use quinn_proto::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn_proto::{ClientConfig, ConnectionHandle, DatagramEvent, Endpoint, ServerConfig};

const CLIENT: &str = "192.0.2.1:5000";
const SERVER: &str = "192.0.2.2:4080";
/// Bytes of the smallest datagram that may begin a connection (RFC 9000 section 14.1).
const FIRST_BYTES_MIN: usize = 1_200;
/// Steps after the operations, in which a client without strangers connects by far.
const STEPS_MAX: usize = 400;
const STEP: Duration = Duration::from_millis(20);
/// Time that operations let pass in all. After 30 s without a packet the client gives up by itself.
const PAUSES_MAX: Duration = Duration::from_secs(5);

/// Handles all operations, and lets the client connect.
pub fn datagrams(mut bytes: &[u8]) {
    let mut net = Net::new();
    let mut nth = 0_u16;
    while let [kind, length, rest @ ..] = bytes {
        let (content, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = rest;
        nth = nth.wrapping_add(1);
        net.operate(kind % 6, content, nth);
    }
    if net.is_tampered {
        return;
    }
    for _ in 0..STEPS_MAX {
        if net.has_request {
            return;
        }
        while let Some(datagram) = net.next_of_client() {
            net.receive(net.client_address, &datagram);
        }
        net.pass(STEP);
    }
    panic!("strangers keep a client from its connection");
}

struct Net {
    now: Instant,
    client_address: SocketAddr,
    client: Endpoint,
    client_handle: ConnectionHandle,
    client_link: MoqLink,
    /// Datagrams of the client that the server has not received.
    waiting: VecDeque<Vec<u8>>,
    server: Endpoint,
    links: BTreeMap<ConnectionHandle, MoqLink>,
    paused: Duration,
    /// Whether the server has received a changed datagram of the client.
    is_tampered: bool,
    /// Whether the request of the client has arrived.
    has_request: bool,
}

impl Net {
    fn new() -> Net {
        let (server, client) = configs();
        let now = Instant::now();
        let endpoint =
            |seed, server| Endpoint::new(Arc::new(endpoint_config([seed; 32], &[seed; 64])), server, false, None);
        let mut client_end = endpoint(3, None);
        let server_address = SERVER.parse().expect("an address");
        let (client_handle, connection) = client_end
            .connect(now, client, server_address, "localhost")
            .expect("the configuration is right");
        let target = LinkTarget {
            authority: SERVER.to_owned(),
            path: "/moq".to_owned(),
        };
        Net {
            now,
            client_address: CLIENT.parse().expect("an address"),
            client: client_end,
            client_handle,
            client_link: MoqLink::client(connection, target, now),
            waiting: VecDeque::new(),
            server: endpoint(1, Some(server)),
            links: BTreeMap::new(),
            paused: Duration::ZERO,
            is_tampered: false,
            has_request: false,
        }
    }

    fn operate(&mut self, kind: u8, content: &[u8], nth: u16) {
        let stranger = SocketAddr::from(([198, 51, 100, 1], 1_024 + nth % 60_000));
        match kind {
            0 => self.receive(stranger, content),
            1 => self.receive(self.client_address, content),
            2 | 3 => {
                let Some(datagram) = self.next_of_client() else { return };
                self.is_tampered |= kind == 2;
                let mut changed = datagram.clone();
                for (own, added) in changed.iter_mut().zip(content).filter(|_| kind == 2) {
                    *own = own.wrapping_add(*added);
                }
                // Without a change it is the datagram itself, which arrives twice.
                self.receive(self.client_address, &changed);
                self.receive(self.client_address, &datagram);
            }
            4 => {
                let time = (STEP * content.len() as u32).min(PAUSES_MAX - self.paused);
                self.paused += time;
                self.pass(time);
            }
            _ => {
                // A long header of an Initial of version 1.
                let mut first = vec![0xc3, 0, 0, 0, 1];
                first.extend(content);
                first.resize(FIRST_BYTES_MIN, 0x5a);
                self.receive(stranger, &first);
            }
        }
    }

    /// Returns the next datagram of the client.
    fn next_of_client(&mut self) -> Option<Vec<u8>> {
        let mut buffer = Vec::new();
        while let Some(transmit) = self.client_link.poll_transmit(self.now, &mut buffer) {
            self.waiting.push_back(buffer[..transmit.size].to_vec());
            buffer.clear();
        }
        self.waiting.pop_front()
    }

    /// Gives the server a datagram, and the client what the server sends it.
    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) {
        let mut buffer = Vec::new();
        let event = self
            .server
            .handle(self.now, from, None, None, BytesMut::from(datagram), &mut buffer);
        let sent = match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(link) = self.links.get_mut(&handle) {
                    link.handle_connection_event(event, self.now);
                }
                None
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                match self.server.accept(incoming, self.now, &mut buffer, None) {
                    Ok((handle, connection)) => {
                        self.links.insert(handle, MoqLink::server(connection, self.now));
                        None
                    }
                    Err(error) => error.response,
                }
            }
            Some(DatagramEvent::Response(transmit)) => Some(transmit),
            None => None,
        };
        if let Some(transmit) = sent {
            assert!(
                transmit.size <= 3 * datagram.len(),
                "{} bytes for {}",
                transmit.size,
                datagram.len()
            );
            assert_eq!(transmit.destination, from, "an answer to another address");
        }
        self.drain();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        let now = self.now;
        for link in self.links.values_mut().chain([&mut self.client_link]) {
            if link.poll_timeout().is_some_and(|at| at <= now) {
                link.handle_timeout(now);
            }
        }
        self.drain();
    }

    /// Takes the events of all links, and brings the client what is for it.
    fn drain(&mut self) {
        let mut buffer = Vec::new();
        for (handle, link) in &mut self.links {
            while let Some(event) = link.poll_event() {
                self.has_request |= matches!(event, LinkEvent::Requested(_));
            }
            while let Some(transmit) = link.poll_transmit(self.now, &mut buffer) {
                if transmit.destination == self.client_address {
                    let content = BytesMut::from(&buffer[..transmit.size]);
                    let server_address = SERVER.parse().expect("an address");
                    let mut answer = Vec::new();
                    let event = self
                        .client
                        .handle(self.now, server_address, None, None, content, &mut answer);
                    if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                        self.client_link.handle_connection_event(event, self.now);
                    }
                }
                buffer.clear();
            }
            while let Some(event) = link.poll_endpoint_event() {
                if let Some(event) = self.server.handle_event(*handle, event) {
                    link.handle_connection_event(event, self.now);
                }
            }
        }
        while self.client_link.poll_event().is_some() {}
        while let Some(event) = self.client_link.poll_endpoint_event() {
            if let Some(event) = self.client.handle_event(self.client_handle, event) {
                self.client_link.handle_connection_event(event, self.now);
            }
        }
    }
}

/// The configurations of a server with a certificate of its own, and of a client that trusts it.
fn configs() -> (Arc<ServerConfig>, ClientConfig) {
    static CONFIGS: OnceLock<(Arc<ServerConfig>, ClientConfig)> = OnceLock::new();
    CONFIGS.get_or_init(made_configs).clone()
}

fn made_configs() -> (Arc<ServerConfig>, ClientConfig) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .expect("a certificate");
    let certificate = CertificateDer::from(certificate.der().to_vec());
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key of PKCS #8");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("key and certificate fit");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = server_config(server, &[7; 64]).expect("the provider has AES-128-GCM");
    (Arc::new(server), client_config(client).expect("the same"))
}
