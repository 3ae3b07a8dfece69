//! A UDP socket of one address family, read and written by several datagrams per system call.
//!
//! In: the address to bind; datagrams to send. Out: batches of datagrams, each with its source, the
//! local address it was sent to, and its ECN bits. A read that does not fill the batch has emptied
//! the socket, so the next one waits for the kernel without asking it. A failed read is repeated
//! after a growing pause. Source: `quinn-udp`; RFC 3168 for ECN.

use std::io;
use std::io::IoSliceMut;
use std::net::SocketAddr;

use log::Level;
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop;

use crate::proto::read_backoff::{Backoff, BackoffDelay};

/// Datagrams per system call; with the few calls of a board, more are never available.
const DATAGRAM_BATCH: usize = 8;
/// Bytes that the kernel may coalesce into one read.
const DATAGRAM_BATCH_BYTES: usize = 64 * 1024;
/// Requested receive buffer of the shared socket, in bytes. The kernel doubles it for its
/// bookkeeping; it then holds 70 ms of 50,000 unsolicited packets a second, and takes memory only
/// while packets wait.
const DATAGRAM_SOCKET_BYTES: usize = 2 * 1024 * 1024;

/// The most datagrams of one read here. Elsewhere than on Linux it may be one, and no read then
/// tells that the socket is empty.
const FULL_BATCH: usize = if quinn_udp::BATCH_SIZE < DATAGRAM_BATCH {
    quinn_udp::BATCH_SIZE
} else {
    DATAGRAM_BATCH
};

/// A socket of IPv4 or of IPv6 alone.
pub struct UdpFamilySocket {
    /// Waits for datagrams only. Sending does not wait, and a wait for room would end with each
    /// datagram that has left.
    pub(super) socket: AsyncFd<std::net::UdpSocket>,
    state: UdpSocketState,
    /// The local port.
    pub port: u16,
}

/// The buffers of one reader, and the datagrams of its last read.
pub struct DatagramBatch {
    /// The kernel may join datagrams of one sender, up to 64 KiB. Pages that are never written cost
    /// no memory.
    bytes: Vec<u8>,
    metas: [RecvMeta; DATAGRAM_BATCH],
    received: usize,
    backoff: Backoff,
}

impl Default for DatagramBatch {
    fn default() -> Self {
        DatagramBatch {
            bytes: vec![0; DATAGRAM_BATCH * DATAGRAM_BATCH_BYTES],
            metas: [RecvMeta::default(); DATAGRAM_BATCH],
            received: 0,
            backoff: Backoff::default(),
        }
    }
}

impl DatagramBatch {
    /// Returns the datagrams of the last read.
    pub fn datagrams(&self) -> impl Iterator<Item = (&RecvMeta, &[u8])> {
        let parts = self.bytes.chunks_exact(DATAGRAM_BATCH_BYTES);
        self.metas[..self.received].iter().zip(parts).flat_map(|(meta, part)| {
            let datagrams = part[..meta.len].chunks(meta.stride.max(1));
            datagrams.map(move |contents| (meta, contents))
        })
    }
}

impl UdpFamilySocket {
    /// Binds an address; one of IPv6 without IPv4, so that both families can use the same port.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn bind(address: SocketAddr) -> io::Result<UdpFamilySocket> {
        let socket = match address {
            SocketAddr::V4(_) => std::net::UdpSocket::bind(address)?,
            SocketAddr::V6(_) => bind_v6_only(address)?,
        };
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        enlarge_receive_buffer(&socket);
        let port = socket.local_addr()?.port();
        // SAFETY: a `std::net::UdpSocket` owns its descriptor, so that this one is open as long as
        // the `AsyncFd` has the socket. Nothing here puts another one in its place.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE)? };
        Ok(UdpFamilySocket { socket, state, port })
    }

    /// Reads the next datagrams into the batch.
    pub async fn receive(&self, batch: &mut DatagramBatch) {
        loop {
            // A flood must not keep other tasks from running.
            coop::consume_budget().await;
            let received = match self.socket.readable().await {
                Ok(mut ready) => {
                    let mut parts = batch.bytes.chunks_exact_mut(DATAGRAM_BATCH_BYTES).map(IoSliceMut::new);
                    let mut slices: [IoSliceMut<'_>; DATAGRAM_BATCH] =
                        std::array::from_fn(|_| parts.next().expect("the batch has this many parts"));
                    batch.metas = [RecvMeta::default(); DATAGRAM_BATCH];
                    let metas = &mut batch.metas;
                    let read =
                        |socket: &AsyncFd<_>| self.state.recv(UdpSockRef::from(socket.get_ref()), &mut slices, metas);
                    let Ok(received) = ready.try_io(read) else {
                        continue;
                    };
                    if received.as_ref().is_ok_and(|received| *received < FULL_BATCH) {
                        // A datagram that has come since the kernel's report is reported anew.
                        ready.clear_ready();
                    }
                    received
                }
                Err(error) => Err(error),
            };
            match received {
                Ok(received) => {
                    batch.received = received;
                    batch.backoff.handle_success();
                    return;
                }
                Err(error) => pause(batch.backoff.handle_error(), &error).await,
            }
        }
    }

    /// Sends a datagram, or drops it if the kernel has no room.
    pub fn send(&self, transmit: &Transmit<'_>) {
        if let Err(error) = self.state.try_send(UdpSockRef::from(self.socket.get_ref()), transmit) {
            log::debug!("sending to {}: {error}", transmit.destination);
        }
    }
}

/// Pauses after a failed read.
async fn pause(pause: Option<BackoffDelay>, error: &io::Error) {
    let Some(pause) = pause else {
        // An ICMP error caused by a sent packet; the next read can succeed.
        log::debug!("receiving: {error}");
        return tokio::task::yield_now().await;
    };
    let level = if pause.is_first { Level::Warn } else { Level::Debug };
    log::log!(level, "receiving: {error}; pausing for {} ms", pause.length.as_millis());
    tokio::time::sleep(pause.length).await;
}

/// Enlarges the kernel's receive buffer as far as permitted. With the default, a flood fills it in
/// a few milliseconds and packets of live calls are lost.
fn enlarge_receive_buffer(socket: &std::net::UdpSocket) {
    // Only root may exceed the system's limit, and only on Linux.
    #[cfg(target_os = "linux")]
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, DATAGRAM_SOCKET_BYTES).is_ok() {
        return;
    }
    if let Err(error) = SockRef::from(socket).set_recv_buffer_size(DATAGRAM_SOCKET_BYTES) {
        log::debug!("the size of the receive buffer: {error}");
    }
}

/// Binds IPv6 alone, so that both families can use the same port.
fn bind_v6_only(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None)?;
    socket.set_only_v6(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}
