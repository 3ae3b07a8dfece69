//! The HTTP server: listening, accepting, the connection cap and shutdown.
//!
//! In: a host, a port and an [`HttpService`]. Out: [`Listeners`], whose port is known before the
//! first request, then a future that serves until the runner stops. A failing accept backs off, a
//! connection above the cap evicts another (`permits`), and every connection has timeouts
//! (`connection`). Rejects: a port in use, with advice.

mod connection;
mod inspect;

use std::future::{Future, ready};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use log::{Level, debug, error, log};
use rustix::process::{Resource, getrlimit};
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};

use crate::common::{ConnLimits, PeerInfo, Reply, UpgradeSlot};
use crate::permits::Permits;
pub use crate::permits::{ConnPhase, ConnState};
use crate::port_owner::{PortOwner, TCP_TABLES};
use crate::shutdown::Shutdown;
use crate::tasks;
use crate::tls::ServerTls;
use edge_runner_proto::config::Host;
use edge_runner_proto::limits;
use edge_runner_proto::server::request_framing::FramingError;

/// First pause after a failed accept; it doubles with each consecutive failure.
const ACCEPT_PAUSE_FIRST: Duration = Duration::from_millis(10);

/// Attempts to find a port that is free on both loopback addresses.
const FREE_PORT_ATTEMPTS: usize = 16;
/// Connections that the system queues before they are accepted.
const BACKLOG: i32 = 1024;

/// The listening sockets.
#[derive(Debug)]
pub struct Listeners {
    sockets: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

impl Listeners {
    /// Returns the port, which is the same on every address.
    pub fn port(&self) -> u16 {
        self.addresses[0].port()
    }

    /// Returns the addresses, at least one.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}", advice(*address, source, owner.as_ref()))]
pub struct BindError {
    pub address: SocketAddr,
    pub source: io::Error,
    /// The process that has the port, if this user may see it.
    pub owner: Option<PortOwner>,
}

/// Returns what is wrong and what an operator can do about it.
fn advice(address: SocketAddr, error: &io::Error, owner: Option<&PortOwner>) -> String {
    let port = address.port();
    let holder = match owner {
        Some(owner) if owner.is_runner() => format!("another runner, process {}", owner.process),
        Some(PortOwner { process, name }) => format!("`{name}`, process {process}"),
        None => "another program".to_owned(),
    };
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} is in use by {holder}; end that one, choose another port with --port N, or let --port 0 \
             find a free one"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("the system reserves port {port}; choose one above 1023 with --port N")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!(
                "no interface of this machine has the address {}; see --host",
                address.ip()
            )
        }
        _ => error.to_string(),
    }
}

/// Opens the sockets of `--host` and `--port`.
///
/// # Errors
/// Returns a [`BindError`] with the first address that cannot be listened on.
pub async fn bind(host: Host, port: u16) -> Result<Listeners, BindError> {
    match host {
        Host::Address(ip) => listeners(vec![listen(ip, port)?]),
        Host::Localhost => {
            let mut attempt = 1;
            loop {
                match bind_localhost(port) {
                    // The port is free on one address only; another one may be free on both.
                    Err(error) if port == 0 && attempt < FREE_PORT_ATTEMPTS => {
                        debug!("{error}");
                        attempt += 1;
                    }
                    result => return result,
                }
            }
        }
    }
}

/// Listens on both loopback addresses, or on the one that exists.
fn bind_localhost(port: u16) -> Result<Listeners, BindError> {
    let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
    let first = match listen(v4, port) {
        Err(error) if is_missing(&error) => return listeners(vec![listen(v6, port)?]),
        first => first?,
    };
    let port = first.local_addr().map_or(port, |address| address.port());
    match listen(v6, port) {
        Err(error) if is_missing(&error) => listeners(vec![first]),
        second => listeners(vec![first, second?]),
    }
}

fn listen(ip: IpAddr, port: u16) -> Result<TcpListener, BindError> {
    let address = SocketAddr::new(ip, port);
    open(address).map_err(|source| BindError {
        address,
        owner: match source.kind() {
            io::ErrorKind::AddrInUse => PortOwner::find(TCP_TABLES, port, true),
            _ => None,
        },
        source,
    })
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // `::` means every IPv6 interface; candidates are offered for that family only.
        socket.set_only_v6(true)?;
    }
    // Connections of a previous runner in TIME_WAIT would block the port for a minute.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Tells whether the machine lacks the address or its whole family.
fn is_missing(error: &BindError) -> bool {
    matches!(
        error.source.kind(),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported
    ) || error.source.raw_os_error() == Some(EAFNOSUPPORT)
}

/// "Address family not supported by protocol" on Linux; the standard library has no name for it.
const EAFNOSUPPORT: i32 = 97;

fn listeners(sockets: Vec<TcpListener>) -> Result<Listeners, BindError> {
    let addresses = sockets
        .iter()
        .map(|socket| socket.local_addr().expect("a bound listener has an address"))
        .collect();
    Ok(Listeners { sockets, addresses })
}

/// Returns how many connections may be open, given how many files this process may open: half of
/// them at most, since sessions and the runner itself need some too.
fn connections_max(open_files: Option<u64>) -> usize {
    let half = open_files.map(|max| usize::try_from(max / 2).unwrap_or(usize::MAX));
    half.map_or(limits::HTTP_CONNECTIONS_MAX, |half| {
        half.clamp(1, limits::HTTP_CONNECTIONS_MAX)
    })
}

/// Answers requests.
pub trait HttpService: Send + Sync + 'static {
    /// Returns the limits of its connections.
    fn conn_limits(&self) -> ConnLimits;
    /// Returns the TLS acceptor, or `None` when TLS is off.
    fn tls(&self) -> Option<&ServerTls>;
    /// Tells whether an address belongs to a trusted proxy, whose connections carry many clients.
    fn is_trusted_proxy(&self, _address: IpAddr) -> bool {
        false
    }
    /// Serves a connection that carries packets (RFC 4571) instead of requests, once its first one
    /// has arrived.
    ///
    /// # Errors
    /// An I/O error, or why the packets are not taken.
    fn serve_framed(&self, _: TcpStream, _: SocketAddr) -> impl Future<Output = io::Result<()>> + Send {
        ready(Err(io::Error::other("no framed packets are taken here")))
    }
    /// Makes the response to a request of ambiguous length. The connection is closed after it.
    fn reject_framing(&self, refusal: FramingError) -> Reply;
    /// Answers one request. A handler of a long body sets the phase in `state` before the first
    /// byte and with each part.
    fn answer(
        &self,
        request: Request<Incoming>,
        peer: PeerInfo,
        state: &Arc<ConnState>,
        upgrade_slot: &UpgradeSlot,
    ) -> impl Future<Output = Reply> + Send;
}

/// Serves until shutdown, and until requests in progress are answered or their time is over.
pub async fn serve<S: HttpService>(listeners: Listeners, service: Arc<S>, shutdown: Shutdown) {
    if let Some(tls) = service.tls() {
        tls.set_port(listeners.port());
    }
    let permits = Permits::new(connections_max(getrlimit(Resource::Nofile).current));
    let mut acceptors = JoinSet::new();
    for socket in listeners.sockets {
        acceptors.spawn(tasks::boxed(accept(
            socket,
            service.clone(),
            permits.clone(),
            shutdown.clone(),
        )));
    }
    while let Some(ended) = acceptors.join_next().await {
        // A server that has lost one of its addresses must not go on: the panic reaches its owner.
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Accepts on one socket, and owns the resulting connections.
async fn accept<S: HttpService>(socket: TcpListener, service: Arc<S>, permits: Permits, mut shutdown: Shutdown) {
    let mut connections = JoinSet::new();
    let mut pause = ACCEPT_PAUSE_FIRST;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.wait() => break,
            Some(ended) = connections.join_next() => {
                log_panic(ended);
                continue;
            }
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                pause = ACCEPT_PAUSE_FIRST;
                let source = (!service.is_trusted_proxy(peer.ip())).then(|| peer.ip().into());
                // While every connection is being answered this one waits, and those behind it stay
                // in the system's queue.
                let permit = tokio::select! {
                    biased;
                    () = shutdown.wait() => break,
                    permit = permits.acquire(source) => permit,
                };
                let Some(permit) = permit else {
                    debug!("{peer}: connection closed: its address holds its share of connections");
                    continue;
                };
                let (service, shutdown) = (service.clone(), shutdown.clone());
                connections.spawn(tasks::boxed(async move {
                    let state = &permit.state;
                    tokio::select! {
                        biased;
                        () = state.evicted() => debug!("{peer}: connection closed: evicted for another connection"),
                        () = connection::serve(stream, peer, service, state, shutdown) => {}
                    }
                }));
            }
            Err(error) if is_transient_accept_error(&error) => debug!("accept: {error}"),
            Err(error) => {
                // A lasting failure is not logged as a warning for ever.
                let level = if pause < limits::ACCEPT_PAUSE_MAX {
                    Level::Warn
                } else {
                    Level::Debug
                };
                log!(level, "accept: {error}; pausing for {} ms", pause.as_millis());
                tokio::select! {
                    () = shutdown.wait() => break,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = next_pause(pause);
            }
        }
    }
    // From here on the system refuses new connections.
    drop(socket);
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
    };
    if tokio::time::timeout(service.conn_limits().grace, drained)
        .await
        .is_err()
    {
        debug!("{} connections were cut off at the end", connections.len());
    }
}

fn next_pause(pause: Duration) -> Duration {
    (pause * 2).min(limits::ACCEPT_PAUSE_MAX)
}

/// Tells whether an accept failed because of the peer, so that the next one can succeed.
fn is_transient_accept_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// Logs a panic. It ends one connection only, but it is a bug.
fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!("a connection ended with a panic");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With few files, connections leave half of them to the rest of the runner.
    #[test]
    fn connections_take_half_of_the_files_at_most() {
        for (files, connections) in [
            (None, limits::HTTP_CONNECTIONS_MAX),
            (Some(u64::MAX), limits::HTTP_CONNECTIONS_MAX),
            (
                Some(2 * limits::HTTP_CONNECTIONS_MAX as u64),
                limits::HTTP_CONNECTIONS_MAX,
            ),
            (
                Some(2 * limits::HTTP_CONNECTIONS_MAX as u64 - 1),
                limits::HTTP_CONNECTIONS_MAX - 1,
            ),
            (Some(80), 40),
            (Some(1), 1),
            (Some(0), 1),
        ] {
            assert_eq!(connections_max(files), connections, "{files:?}");
        }
    }
    use crate::skip;

    /// A port in use is told with the process that has it.
    #[tokio::test]
    async fn the_holder_of_a_port_is_named() {
        let held = bind(Host::Address(Ipv4Addr::LOCALHOST.into()), 0)
            .await
            .expect("a free port");
        let taken = bind(Host::Address(Ipv4Addr::LOCALHOST.into()), held.port()).await;
        let Err(error) = taken else {
            panic!("the port was bound twice");
        };
        let own = error.owner.clone();
        if std::path::Path::new("/proc/self/fd").exists() {
            assert_eq!(own.as_ref().map(|owner| owner.process), Some(std::process::id()));
        }
        let message = |owner| {
            BindError {
                address: error.address,
                source: io::ErrorKind::AddrInUse.into(),
                owner,
            }
            .to_string()
        };
        let named = |name: &str| {
            message(Some(PortOwner {
                process: 7,
                name: name.into(),
            }))
        };
        assert!(message(None).contains("in use by another program; end that one, choose another port"));
        assert!(named("python3").contains("in use by `python3`, process 7; end"));
        assert!(named("edge-runner").contains("in use by another runner, process 7; end"));
    }

    /// port 0 is one free port on every address; a port in use is named with advice.
    #[tokio::test]
    async fn localhost_is_both_loopback_addresses_on_one_port() {
        let listeners = bind(Host::Localhost, 0).await.expect("a free port");
        let addresses = listeners.addresses();
        let port = listeners.port();
        assert!(
            addresses
                .iter()
                .all(|address| address.ip().is_loopback() && address.port() == port)
        );
        assert_eq!(addresses[0].ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert!(port != 0);

        let error = bind(Host::Localhost, port).await.expect_err("the port is taken");
        let said = error.to_string();
        assert!(
            said.contains(&format!("127.0.0.1:{port}")) && said.contains("--port"),
            "{said}"
        );

        let elsewhere = Host::Address("192.0.2.1".parse().expect("an address"));
        let error = bind(elsewhere, 0).await.expect_err("no interface has that address");
        assert!(
            error
                .to_string()
                .contains("no interface of this machine has the address 192.0.2.1"),
            "{error}"
        );
    }

    /// `::` serves IPv6 only, so the same port is free on IPv4.
    #[tokio::test]
    async fn an_address_of_one_family_is_served_on_that_family() {
        if !skip::has_ipv6("an address of one family") {
            return;
        }
        let all = Host::Address("::".parse().expect("an address"));
        let v4 = Host::Address(Ipv4Addr::LOCALHOST.into());
        // Another process may have the same port on IPv4, but not each of ten.
        for _ in 0..10 {
            let listeners = bind(all, 0).await.expect("a free port");
            if bind(v4, listeners.port()).await.is_ok() {
                return;
            }
        }
        panic!("the port is never free on IPv4");
    }

    /// A process without free file descriptors must not spin.
    #[test]
    fn pauses_between_failed_accepts_double_up_to_a_limit() {
        let mut pause = ACCEPT_PAUSE_FIRST;
        let mut pauses = vec![pause.as_millis()];
        for _ in 0..8 {
            pause = next_pause(pause);
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1280, 1280]);
        assert!(is_transient_accept_error(&io::ErrorKind::ConnectionAborted.into()));
        assert!(!is_transient_accept_error(&io::Error::from_raw_os_error(24)));
    }
}
