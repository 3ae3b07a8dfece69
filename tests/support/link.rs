//! [`Link`]: the network between a client and a server, which a test cuts.
//!
//! In: the address of a server. Out: an address that leads there, and faults of the network that
//! are complete when the call returns.
//!
//! - [`Link::cut`] is a pulled cable: by a filter of the sockets the kernel drops whatever arrives
//!   from either end, before it acknowledges it. No connection is closed, and none is made.
//! - [`Link::stall`] is a server that stands still, or a proxy whose own server is gone:
//!   connections are made and bytes acknowledged, and nothing is passed on.
//! - [`Link::mend`] ends both. Connections that both ends still have go on; those that one end has
//!   given up are reset, as by its own machine.
//!
//! Nothing else of this machine notices. Some kernels take filters from root alone. Source:
//! `socket(7)`, SO_ATTACH_FILTER.

#![allow(clippy::disallowed_types, reason = "it is the network")]

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use socket2::{SockFilter, SockRef, TcpKeepalive};

use super::runner::PATIENCE;
use super::skip;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Up,
    Cut,
    Stalled,
    /// The link is dropped.
    Over,
}

/// What the threads of a link share.
struct LinkShared {
    server: SocketAddr,
    listener: TcpListener,
    inner: Mutex<LinkInner>,
    changed: Condvar,
}

struct LinkInner {
    state: LinkState,
    /// Both ends of each connection.
    sockets: Vec<Arc<TcpStream>>,
}

/// A link; dropping it closes its connections.
pub struct Link {
    pub addr: SocketAddr,
    shared: Arc<LinkShared>,
}

impl Link {
    pub fn to(server: SocketAddr) -> Link {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let shared = Arc::new(LinkShared {
            server,
            listener,
            inner: Mutex::new(LinkInner {
                state: LinkState::Up,
                sockets: Vec::new(),
            }),
            changed: Condvar::new(),
        });
        let accepting = shared.clone();
        thread::spawn(move || accepting.accept());
        Link { addr, shared }
    }

    /// Drops all packets, without a word to either end.
    pub fn cut(&self) {
        self.shared.change(LinkState::Cut);
    }

    /// Passes nothing on. What arrives is acknowledged.
    pub fn stall(&self) {
        self.shared.change(LinkState::Stalled);
    }

    /// Passes everything on again.
    pub fn mend(&self) {
        self.shared.change(LinkState::Up);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.change(LinkState::Over);
    }
}

impl LinkShared {
    fn inner(&self) -> MutexGuard<'_, LinkInner> {
        self.inner.lock().expect("no holder panics")
    }

    fn change(&self, to: LinkState) {
        let mut inner = self.inner();
        inner.state = to;
        filter(SockRef::from(&self.listener), to);
        for socket in &inner.sockets {
            filter(SockRef::from(&**socket), to);
            match to {
                // An end that is gone resets what asks for it.
                LinkState::Up => keep_alive(socket),
                LinkState::Over => drop(socket.shutdown(Shutdown::Both)),
                LinkState::Cut | LinkState::Stalled => {}
            }
        }
        if to == LinkState::Over {
            // Wakes the thread that accepts.
            let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    /// Accepts connections until the link is over.
    fn accept(self: Arc<Self>) {
        while let Ok((client, _)) = self.listener.accept() {
            let Ok(server) = TcpStream::connect_timeout(&self.server, PATIENCE) else {
                continue;
            };
            let (client, server) = (Arc::new(client), Arc::new(server));
            let mut inner = self.inner();
            for socket in [&client, &server] {
                let _ = socket.set_nodelay(true);
                filter(SockRef::from(&**socket), inner.state);
                inner.sockets.push(socket.clone());
            }
            drop(inner);
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (link, from, to) = (self.clone(), from.clone(), to.clone());
                thread::spawn(move || link.pass(&from, &to));
            }
        }
    }

    /// Passes bytes on in one direction, until one end closes.
    fn pass(&self, from: &Arc<TcpStream>, to: &Arc<TcpStream>) {
        let mut bytes = [0; 16 * 1024];
        loop {
            let read = (&**from).read(&mut bytes);
            let held = self.changed.wait_while(self.inner(), |inner| {
                matches!(inner.state, LinkState::Cut | LinkState::Stalled)
            });
            drop(held.expect("no holder panics"));
            let passed = match read {
                Ok(0) => break,
                Ok(count) => (&**to).write_all(&bytes[..count]),
                Err(error) => Err(error),
            };
            if passed.is_err() {
                // The other direction ends too.
                let _ = from.shutdown(Shutdown::Both);
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        let is_other = |socket: &Arc<TcpStream>| !Arc::ptr_eq(socket, from);
        self.inner().sockets.retain(is_other);
    }
}

// BPF_RET with the number of bytes that remain of a packet.
const DROP: SockFilter = SockFilter::new(0x06, 0, 0, 0);
const TAKE: SockFilter = SockFilter::new(0x06, 0, 0, u32::MAX);

/// Has the kernel drop what arrives at a socket, or take it again.
fn filter(socket: SockRef<'_>, state: LinkState) {
    let done = match state {
        LinkState::Cut => socket.attach_filter(&[DROP]),
        LinkState::Up | LinkState::Stalled | LinkState::Over => socket.detach_filter(),
    };
    // There may be no filter.
    let has_none = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    assert!(done.as_ref().is_ok() || done.as_ref().is_err_and(has_none), "{done:?}");
}

/// Asks an end each second whether it still has the connection.
fn keep_alive(socket: &TcpStream) {
    let each = Duration::from_secs(1);
    let probes = TcpKeepalive::new().with_time(each).with_interval(each).with_retries(3);
    let _ = SockRef::from(socket).set_tcp_keepalive(&probes);
}

#[test]
fn a_link_is_cut_stalled_and_mended() {
    let server = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let attached = SockRef::from(&server).attach_filter(&[TAKE]);
    if attached.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        return skip::lacks_root("a link that is cut", "this kernel takes no filter of sockets");
    }
    let link = Link::to(server.local_addr().expect("it is bound"));
    let soon = Duration::from_millis(200);
    let client = TcpStream::connect(link.addr).expect("it listens");
    let (peer, _) = server.accept().expect("it comes");
    peer.set_read_timeout(Some(soon)).expect("it is not zero");
    let passes = |text: &[u8]| {
        let mut read = vec![0; text.len()];
        (&peer).read_exact(&mut read).map(|()| assert_eq!(read, text))
    };
    (&client).write_all(b"one").expect("it is open");
    peer.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    passes(b"one").expect("it is up");
    link.cut();
    (&client).write_all(b"two").expect("the kernel takes it");
    assert!(
        TcpStream::connect_timeout(&link.addr, soon).is_err(),
        "a cut link answers"
    );
    link.mend();
    passes(b"two").expect("it is sent again");
    link.stall();
    (&client).write_all(b"three").expect("it is open");
    drop(TcpStream::connect_timeout(&link.addr, PATIENCE).expect("a stalled link takes connections"));
    peer.set_read_timeout(Some(soon)).expect("it is not zero");
    assert!(passes(b"three").is_err(), "a stalled link passes bytes on");
    link.mend();
    peer.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    passes(b"three").expect("it is up");
    link.cut();
    drop(client);
    link.mend();
    // Its end is sent again, and reaches the peer.
    assert!(matches!((&peer).read(&mut [0]), Ok(0) | Err(_)));
}
