//! Ports of loopback that a test chooses ahead of their use.
//!
//! Out: ports that are free for TCP and UDP, and the process's until it ends. They are none of
//! those that the system gives to outgoing connections, one of which could take them at any moment.
//! `free_ports` of `tests/peers/checks.py` holds them by the same locks.

#![allow(clippy::disallowed_types, reason = "only sockets tell whether ports are free")]

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Mutex;

/// The locks, which the system releases with the process.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Returns a port without a listener.
pub fn free_port() -> u16 {
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("edge-runner-ports-{user}"));
    fs::create_dir_all(&folder).expect("the folder of temporary files is writable");
    let end = first_outgoing_port();
    // Processes side by side begin at different ones.
    let first = 10_000 + (std::process::id() % u32::from(end - 10_000)) as u16;
    let mut candidates = (first..end).chain(10_000..first);
    let port = candidates.find(|port| is_held(&folder.join(port.to_string())) && is_free(*port));
    port.expect("a free port")
}

/// Of Linux; elsewhere they are none of the lower ones either.
fn first_outgoing_port() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let lowest = range.split_whitespace().next().and_then(|lowest| lowest.parse().ok());
    lowest.filter(|lowest| *lowest >= 12_000).unwrap_or(32_768)
}

/// Returns whether this thread got the lock of the file.
fn is_held(file: &Path) -> bool {
    let lock = File::options().append(true).create(true).open(file);
    let lock = lock.expect("the user's folder is writable");
    let is_ours = lock.try_lock().is_ok();
    if is_ours {
        HELD.lock().expect("no thread panics with it").push(lock);
    }
    is_ours
}

fn is_free(port: u16) -> bool {
    let address = (Ipv4Addr::LOCALHOST, port);
    TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
}

#[test]
fn ports_are_given_once_and_never_to_outgoing_connections() {
    let mut ports: Vec<_> = (0..50).map(|_| free_port()).collect();
    assert!(ports.iter().all(|port| is_free(*port) && *port < first_outgoing_port()));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0])).expect("it is free");
    assert!(!is_free(ports[0]));
    drop(listener);
    let count = ports.len();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), count);
}
