//! The addresses of this machine that callers are offered.
//!
//! In: the interfaces, and the options about addresses. Out: [`local_addresses`], best first.

use std::net::{IpAddr, Ipv4Addr};

use crate::address_scope::InterfaceAddress;
use crate::limits::LOCAL_ADDRESSES_MAX;
use crate::options::host::Host;
use crate::sorting;

/// The options that decide which addresses are offered.
#[derive(Clone, Copy, Debug)]
pub struct LocalCandidatePolicy<'a> {
    /// The address on which the HTTP server listens.
    pub host: Host,
    /// The one address that `--embedded` offers.
    pub embedded: Option<Ipv4Addr>,
    /// Additional public addresses of this machine, from `--ice-address`.
    pub extra_addresses: &'a [IpAddr],
}

/// Returns the addresses to offer as host candidates, best first, without duplicates.
///
/// With `--embedded` the runner offers that address alone. Devices try candidates in sequence and
/// spend 17 s on each dead one.
pub fn local_addresses(interfaces: &[InterfaceAddress], policy: LocalCandidatePolicy<'_>) -> Vec<IpAddr> {
    if let Some(address) = policy.embedded {
        return vec![IpAddr::V4(address)];
    }
    let (found, last) = match policy.host {
        // Clients on `localhost` use 127.0.0.1, even if the interfaces could not be listed.
        Host::Localhost => (
            routable_addresses(interfaces, |_| true),
            loopback_addresses(interfaces, Some(Ipv4Addr::LOCALHOST)),
        ),
        Host::Address(address) if address.is_loopback() => (routable_addresses(interfaces, |_| true), vec![address]),
        Host::Address(address) if address.is_unspecified() => {
            let found = routable_addresses(interfaces, |other| other.is_ipv4() == address.is_ipv4());
            // A machine without a network still serves its own clients.
            let alone = found.is_empty() && policy.extra_addresses.is_empty();
            (
                found,
                if alone {
                    loopback_addresses(interfaces, None)
                } else {
                    Vec::new()
                },
            )
        }
        Host::Address(address) => (vec![address.to_canonical()], Vec::new()),
    };
    let mut addresses = Vec::new();
    let extra = policy.extra_addresses.iter().map(|address| address.to_canonical());
    for address in extra.chain(found) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.truncate(LOCAL_ADDRESSES_MAX.saturating_sub(last.len()));
    addresses.extend(
        last.into_iter()
            .filter(|address| !policy.extra_addresses.contains(address)),
    );
    addresses.truncate(LOCAL_ADDRESSES_MAX);
    addresses
}

/// Returns the addresses of interfaces that reach other machines, or of all others if there are
/// none.
fn routable_addresses(interfaces: &[InterfaceAddress], family: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
    let possible: Vec<(&str, IpAddr)> = interfaces
        .iter()
        .map(|interface| (interface.name.as_str(), interface.addr.to_canonical()))
        .filter(|(_, address)| family(*address) && is_offerable(*address))
        .collect();
    let leads_out = |(name, _): &(&str, IpAddr)| !is_container_interface(name);
    let mut chosen: Vec<_> = possible.iter().copied().filter(leads_out).collect();
    if chosen.is_empty() {
        chosen = possible;
    }
    // The sort is stable, so equal candidates keep the system's order.
    sorting::sort_by_key(&mut chosen, |(name, address)| (address.is_ipv6(), is_tunnel(name)));
    chosen.into_iter().map(|(_, address)| address).collect()
}

/// Returns the loopback addresses, IPv4 first, without duplicates.
fn loopback_addresses(interfaces: &[InterfaceAddress], always: Option<Ipv4Addr>) -> Vec<IpAddr> {
    let listed = interfaces.iter().map(|interface| interface.addr.to_canonical());
    let mut found: Vec<IpAddr> = listed
        .filter(IpAddr::is_loopback)
        .chain(always.map(IpAddr::V4))
        .collect();
    sorting::sort(&mut found);
    found.dedup();
    found
}

/// Returns whether other machines can use the address in a candidate.
fn is_offerable(address: IpAddr) -> bool {
    let link_bound = match address {
        // 169.254/16 is self-assigned; str0m rejects it.
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        // A link-local IPv6 address needs an interface name, which a candidate cannot carry.
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !link_bound && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

/// Returns whether the interface belongs to containers or virtual machines, which other hosts
/// cannot reach.
fn is_container_interface(name: &str) -> bool {
    const PREFIXES: [&str; 13] = [
        "docker", "veth", "virbr", "lxc", "lxd", "cni", "flannel", "cali", "podman", "vmnet", "vboxnet", "vnet", "kube",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || is_container_bridge(name)
}

/// Container bridges are named `br-` and twelve hexadecimal digits. `br-lan` is a router's home
/// network.
fn is_container_bridge(name: &str) -> bool {
    name.strip_prefix("br-")
        .is_some_and(|id| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns whether the interface is a VPN tunnel. It is usable, but a detour for hosts on the same
/// network.
fn is_tunnel(name: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "tun",
        "tap",
        "wg",
        "tailscale",
        "zt",
        "utun",
        "ppp",
        "ipsec",
        "nordlynx",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
pub(crate) mod tests;
