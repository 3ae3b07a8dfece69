//! The key of an address for quotas: one IPv4 address, or one IPv6 network of 64 bits.
//!
//! In: the source address of a connection or a datagram, or what another runner tells of it. Out:
//! a key. The owner of an IPv6 address usually has its whole /64 (RFC 6177, RFC 7421), so these
//! addresses share one key. IPv4-mapped addresses (`::ffff:a.b.c.d`, RFC 4291 section 2.5.5.2)
//! count as IPv4.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The network bits of an IPv6 address.
const NETWORK: u128 = !0 << 64;

/// The key of a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKey {
    V4(Ipv4Addr),
    /// The first address of the network.
    V6(Ipv6Addr),
    /// An address that another runner has seen, in a form that only tells sources apart.
    Remote(u64),
}

impl From<IpAddr> for SourceKey {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => SourceKey::V4(address),
            IpAddr::V6(address) => SourceKey::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
        }
    }
}

impl fmt::Display for SourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceKey::V4(address) => write!(f, "{address}"),
            SourceKey::V6(network) => write!(f, "{network}/64"),
            SourceKey::Remote(tag) => write!(f, "{tag:016x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> SourceKey {
        text.parse::<IpAddr>().expect("an address").into()
    }

    /// Every IPv4 address is a source, in either form.
    #[test]
    fn an_ipv4_address_is_one_source() {
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("::ffff:192.0.2.1").to_string(), "192.0.2.1");
    }

    /// The last 64 bits of an IPv6 address do not matter; the first 64 do.
    #[test]
    fn an_ipv6_network_is_one_source() {
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("2001:db8:1:2:3:4:5:6").to_string(), "2001:db8:1:2::/64");
        assert_ne!(key("::1"), key("127.0.0.1"));
    }
}
