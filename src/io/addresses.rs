//! The addresses of this machine that callers are told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::config::Config;
use crate::proto::address_scope::InterfaceAddress;
use crate::proto::local_addresses::{self, LocalCandidatePolicy};

/// Returns the current host candidate addresses.
pub fn local_addresses(config: &Config) -> Vec<IpAddr> {
    local_addresses::local_addresses(&interfaces(), policy(config))
}

/// Returns the options that decide which addresses are offered.
pub fn policy(config: &Config) -> LocalCandidatePolicy<'_> {
    LocalCandidatePolicy {
        host: config.host,
        embedded: config.embedded,
        extra_addresses: &config.ice_addresses,
    }
}

/// Returns the local address of the route to `remote`; `None` without a route. Sends nothing.
pub fn local_address_towards(remote: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(remote).ok()?;
    let local = socket.local_addr().ok()?.ip();
    (!local.is_unspecified()).then_some(local)
}

/// Returns the local addresses that an interface has, for ports that no router forwards.
pub fn own_addresses(config: &Config) -> Vec<IpAddr> {
    let external = external_addresses(config);
    let mut addresses = local_addresses(config);
    addresses.retain(|address| !external.contains(address));
    addresses
}

/// Returns the configured addresses that no interface has: those of a router in front.
pub fn external_addresses(config: &Config) -> Vec<IpAddr> {
    let own = interfaces();
    let named = config.ice_addresses.iter().copied();
    named
        .filter(|address| own.iter().all(|interface| interface.addr != *address))
        .collect()
}

fn interfaces() -> Vec<InterfaceAddress> {
    let found = if_addrs::get_if_addrs().unwrap_or_else(|error| {
        log::warn!("the network interfaces cannot be listed: {error}");
        Vec::new()
    });
    let known = found.into_iter().map(|interface| InterfaceAddress {
        addr: interface.ip(),
        name: interface.name,
    });
    known.collect()
}
