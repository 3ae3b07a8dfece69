//! The scope of an IP address: this machine, one link, a private network, or the Internet.
//!
//! In: an IP address. Out: its [`AddressScope`]. IPv4-mapped IPv6 addresses count as IPv4.
//! Multicast and unspecified addresses have no scope; callers that must not treat them as public
//! check for them first. Source: RFC 1918 (private), RFC 3927 and RFC 4291 (link-local), RFC 4193
//! (unique local), RFC 6598 (shared).

use std::net::IpAddr;

/// The range in which an address is reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressScope {
    /// This machine.
    Loopback,
    /// The machines on one link.
    LinkLocal,
    /// The network of one owner.
    Private,
    /// The customers of one carrier, and VPNs: 100.64/10.
    Shared,
    /// The Internet.
    Public,
}

/// An address of an interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub name: String,
    pub addr: IpAddr,
}

impl AddressScope {
    /// Returns the scope of an address.
    pub fn of(address: IpAddr) -> Self {
        let (loopback, link_local, private, shared) = match address.to_canonical() {
            IpAddr::V4(v4) => (
                v4.is_loopback(),
                v4.is_link_local(),
                v4.is_private(),
                matches!(v4.octets(), [100, 64..128, ..]),
            ),
            IpAddr::V6(v6) => (
                v6.is_loopback(),
                v6.is_unicast_link_local(),
                v6.is_unique_local(),
                false,
            ),
        };
        match (loopback, link_local, private, shared) {
            (true, ..) => AddressScope::Loopback,
            (_, true, ..) => AddressScope::LinkLocal,
            (_, _, true, _) => AddressScope::Private,
            (.., true) => AddressScope::Shared,
            _ => AddressScope::Public,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_networks_up_to_their_last_address() {
        for (scope, addresses) in [
            (
                AddressScope::Loopback,
                &["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"][..],
            ),
            (
                AddressScope::LinkLocal,
                &["169.254.0.1", "169.254.255.255", "fe80::1", "febf::1"],
            ),
            (
                AddressScope::Private,
                &[
                    "10.0.0.0",
                    "172.16.0.1",
                    "172.31.255.255",
                    "192.168.1.1",
                    "fc00::1",
                    "fdff::1",
                    "::ffff:10.0.0.1",
                ],
            ),
            (AddressScope::Shared, &["100.64.0.0", "100.127.255.255"]),
            (
                AddressScope::Public,
                &[
                    "100.63.255.255",
                    "100.128.0.0",
                    "172.32.0.0",
                    "192.169.0.0",
                    "fec0::1",
                    "2001:db8::1",
                ],
            ),
        ] {
            for address in addresses {
                assert_eq!(
                    AddressScope::of(address.parse().expect("an address")),
                    scope,
                    "{address}"
                );
            }
        }
    }
}
