//! Two links on a simulated network in virtual time, for tests.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::rustls;
use quinn_proto::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn_proto::{ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint};

use super::{LinkEvent, LinkTarget, MOQ_PROTOCOL, MoqLink, client_config, endpoint_config, server_config};

/// What the two ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimulatedLinks {
    WebTransport,
    /// The client has bare streams, on which a test writes the bytes of HTTP/3.
    BareClient,
    BareServer,
}

/// One end: an endpoint with at most one connection.
pub(crate) struct SimulatedEnd {
    address: SocketAddr,
    endpoint: Endpoint,
    handle: Option<ConnectionHandle>,
    pub link: Option<MoqLink>,
    /// Events that the test has not taken.
    pub events: VecDeque<LinkEvent>,
    /// Datagrams sent, in order, as their sizes.
    pub sent: Vec<usize>,
    is_bare: bool,
}

/// The network between the ends.
pub(crate) struct SimulatedNetwork {
    pub now: Instant,
    pub latency: Duration,
    /// Up to this is added to the latency of each datagram, so that they overtake each other.
    pub jitter: Duration,
    /// Of 100 datagrams.
    pub loss_percent: u64,
    random: u64,
    in_flight: BTreeMap<(Instant, u64), (bool, Vec<u8>)>,
    pub client: SimulatedEnd,
    pub server: SimulatedEnd,
}

pub(crate) const PATH: &str = "/moq";
pub(crate) const AUTHORITY: &str = "localhost:4080";

impl SimulatedNetwork {
    pub fn new(links: SimulatedLinks) -> Self {
        let (server_tls, client_tls) = tls();
        Self::with_client(links, server_tls, client_config(client_tls).unwrap())
    }

    /// A client that does not want the protocol of the server.
    pub fn with_other_alpn() -> Self {
        let (server_tls, mut client_tls) = tls();
        client_tls.alpn_protocols = vec![MOQ_PROTOCOL.as_bytes().to_vec()];
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client_tls).unwrap()));
        Self::with_client(SimulatedLinks::WebTransport, server_tls, config)
    }

    fn with_client(links: SimulatedLinks, server_tls: rustls::ServerConfig, client: ClientConfig) -> Self {
        let now = Instant::now();
        let server_config = server_config(server_tls, &[7; 64]).unwrap();
        let server_endpoint = Endpoint::new(
            Arc::new(endpoint_config([1; 32], &[2; 64])),
            Some(Arc::new(server_config)),
            true,
            None,
        );
        let client_endpoint = Endpoint::new(Arc::new(endpoint_config([3; 32], &[4; 64])), None, true, None);
        let mut network = Self {
            now,
            latency: Duration::from_millis(10),
            jitter: Duration::ZERO,
            loss_percent: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            in_flight: BTreeMap::new(),
            client: SimulatedEnd::new("192.0.2.1:5000", client_endpoint),
            server: SimulatedEnd::new("192.0.2.2:4080", server_endpoint),
        };
        network.client.is_bare = links == SimulatedLinks::BareClient;
        network.server.is_bare = links == SimulatedLinks::BareServer;
        network.connect(client);
        network
    }

    fn connect(&mut self, config: ClientConfig) {
        let client = &mut self.client;
        let (handle, connection) = client
            .endpoint
            .connect(self.now, config, self.server.address, "localhost")
            .unwrap();
        let target = LinkTarget {
            authority: AUTHORITY.into(),
            path: PATH.into(),
        };
        client.handle = Some(handle);
        client.link = Some(match client.is_bare {
            true => MoqLink::bare(connection, self.now),
            false => MoqLink::client(connection, target, self.now),
        });
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    /// Lets time pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until_or(end, |_| false);
        self.now = end;
    }

    /// Lets time pass until something is true; fails after a minute.
    pub fn run_until(&mut self, condition: impl FnMut(&mut Self) -> bool) {
        let end = self.now + Duration::from_secs(60);
        assert!(self.run_until_or(end, condition), "nothing within a minute");
    }

    fn run_until_or(&mut self, end: Instant, mut condition: impl FnMut(&mut Self) -> bool) -> bool {
        loop {
            self.transmit();
            if condition(self) {
                return true;
            }
            self.transmit();
            let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
            let client = self.client.poll_timeout();
            let server = self.server.poll_timeout();
            let Some(next) = [arrival, client, server].into_iter().flatten().min() else {
                return false;
            };
            if next > end {
                return false;
            }
            self.now = self.now.max(next);
            if arrival.is_some_and(|arrival| arrival <= self.now) {
                let (_, (is_to_server, datagram)) = self.in_flight.pop_first().unwrap();
                self.deliver(is_to_server, &datagram);
            }
            for end in [&mut self.client, &mut self.server] {
                if end.poll_timeout().is_some_and(|at| at <= self.now)
                    && let Some(link) = &mut end.link
                {
                    link.handle_timeout(self.now);
                }
            }
        }
    }

    fn transmit(&mut self) {
        let mut buffer = Vec::new();
        for is_to_server in [true, false] {
            loop {
                let end = match is_to_server {
                    true => &mut self.client,
                    false => &mut self.server,
                };
                end.drain();
                let transmit = end
                    .link
                    .as_mut()
                    .and_then(|link| link.poll_transmit(self.now, &mut buffer));
                let Some(transmit) = transmit else {
                    break;
                };
                assert_eq!(transmit.segment_size, None);
                end.sent.push(transmit.size);
                self.send(is_to_server, buffer[..transmit.size].to_vec());
            }
        }
    }

    fn send(&mut self, is_to_server: bool, datagram: Vec<u8>) {
        let loss_percent = self.loss_percent;
        if self.random(100) < loss_percent {
            return;
        }
        let jitter = Duration::from_micros(self.random(self.jitter.as_micros() as u64));
        let order = self.in_flight.keys().map(|(_, order)| *order).max().unwrap_or(0) + 1;
        let at = self.now + self.latency + jitter;
        self.in_flight.insert((at, order), (is_to_server, datagram));
    }

    fn deliver(&mut self, is_to_server: bool, datagram: &[u8]) {
        let (from, end) = match is_to_server {
            true => (self.client.address, &mut self.server),
            false => (self.server.address, &mut self.client),
        };
        let response = end.receive(from, datagram, self.now);
        if let Some(response) = response {
            self.send(!is_to_server, response);
        }
    }
}

impl SimulatedEnd {
    fn new(address: &str, endpoint: Endpoint) -> Self {
        Self {
            address: address.parse().unwrap(),
            endpoint,
            handle: None,
            link: None,
            events: VecDeque::new(),
            sent: Vec::new(),
            is_bare: false,
        }
    }

    pub fn link(&mut self) -> &mut MoqLink {
        self.link.as_mut().unwrap()
    }

    fn receive(&mut self, from: SocketAddr, datagram: &[u8], now: Instant) -> Option<Vec<u8>> {
        let mut buffer = Vec::new();
        let datagram = BytesMut::from(datagram);
        match self.endpoint.handle(now, from, None, None, datagram, &mut buffer)? {
            DatagramEvent::ConnectionEvent(_, event) => {
                if let Some(link) = &mut self.link {
                    link.handle_connection_event(event, now);
                }
            }
            DatagramEvent::NewConnection(incoming) => {
                match self.endpoint.accept(incoming, now, &mut buffer, None) {
                    Ok((handle, connection)) => {
                        self.handle = Some(handle);
                        self.link = Some(self.server_link(connection, now));
                    }
                    // Such as a close for a ClientHello that the server cannot answer.
                    Err(error) => {
                        return error.response.map(|it| buffer[..it.size].to_vec());
                    }
                }
            }
            DatagramEvent::Response(transmit) => return Some(buffer[..transmit.size].to_vec()),
        }
        None
    }

    fn server_link(&self, connection: Connection, now: Instant) -> MoqLink {
        match self.is_bare {
            true => MoqLink::new(connection, None, now),
            false => MoqLink::server(connection, now),
        }
    }

    fn drain(&mut self) {
        let (Some(link), Some(handle)) = (&mut self.link, self.handle) else {
            return;
        };
        while let Some(event) = link.poll_endpoint_event() {
            if let Some(event) = self.endpoint.handle_event(handle, event) {
                link.connection.handle_event(event);
            }
        }
        while let Some(event) = link.poll_event() {
            self.events.push_back(event);
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.link.as_mut().and_then(MoqLink::poll_timeout)
    }

    /// Takes the first event that fits.
    pub fn take(&mut self, fits: impl Fn(&LinkEvent) -> bool) -> Option<LinkEvent> {
        let index = self.events.iter().position(fits)?;
        self.events.remove(index)
    }

    pub fn has(&self, event: &LinkEvent) -> bool {
        self.events.contains(event)
    }
}

/// TLS of a server with a self-signed certificate, and of a client that trusts it.
pub(crate) fn tls() -> (rustls::ServerConfig, rustls::ClientConfig) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let certificate = CertificateDer::from(certificate.der().to_vec());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (server, client)
}
