//! The address of a client behind trusted proxies.
//!
//! In: the address of the peer, the lines of `X-Forwarded-For` and `Forwarded` as bytes, and the
//! addresses of trusted proxies. Out: the address for quotas and the log. Each proxy appends the
//! address of its own peer, so the list is read from its end: entries of trusted proxies are
//! skipped, and the first other entry is the client. Headers of untrusted peers are ignored. An
//! entry that is not an address ends the walk at the proxy that wrote it. `X-Forwarded-For` has
//! precedence: proxies write it unless configured otherwise, and a `Forwarded` beside it then comes
//! from the client. Lines of one name form one list (RFC 9110 section 5.3). Source: RFC 7239
//! sections 4 to 7.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Entries that are read: chains of trusted proxies are shorter.
const HOPS_MAX: usize = 16;
/// Bytes of one entry: an address with a port, a protocol and a host.
const ENTRY_BYTES_MAX: usize = 512;

/// A network: the addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: u128,
    mask: u128,
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        bits(address) & self.mask == self.first
    }
}

/// Returns an address as 128 bits; IPv4 addresses are mapped to `::ffff:0:0`, as sockets of both
/// families do.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// A text that is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkParseError;

impl fmt::Display for NetworkParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address, or ADDRESS/BITS such as 10.0.0.0/8")
    }
}

impl FromStr for Network {
    type Err = NetworkParseError;

    /// Parses `ADDRESS` or `ADDRESS/BITS`. Bits after the prefix are ignored, since people write
    /// the address of their own machine.
    fn from_str(text: &str) -> Result<Self, NetworkParseError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkParseError)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().map_err(|_| NetworkParseError)?
            }
            Some(_) => return Err(NetworkParseError),
            None => bits_max,
        };
        if length > bits_max {
            return Err(NetworkParseError);
        }
        let mask = u128::MAX.checked_shl(bits_max - length).unwrap_or(0);
        // The prefix of mapped IPv4 addresses always counts.
        let above = if address.is_ipv4() { u128::MAX << 32 } else { 0 };
        let mask = mask | above;
        Ok(Network {
            first: bits(address) & mask,
            mask,
        })
    }
}

/// The proxies whose headers are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    loopback: bool,
}

impl TrustedProxies {
    /// Trusts these networks, and `loopback` addresses if a proxy runs on this machine.
    pub fn new(networks: &[Network], loopback: bool) -> Self {
        TrustedProxies {
            networks: networks.to_vec(),
            loopback,
        }
    }

    /// Returns whether an address is that of a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.loopback && address.to_canonical().is_loopback()
            || self.networks.iter().any(|network| network.contains(address))
    }

    /// Returns the source address of a request. Lines are passed in their order.
    pub fn client_address<'l>(
        &self,
        peer: IpAddr,
        x_forwarded_for: impl DoubleEndedIterator<Item = &'l [u8]>,
        forwarded: impl DoubleEndedIterator<Item = &'l [u8]>,
    ) -> IpAddr {
        if !self.trusts(peer) {
            return peer;
        }
        let mut entries = x_forwarded_for.rev().flat_map(entries).map(address).peekable();
        if entries.peek().is_some() {
            return self.walk(peer, entries);
        }
        self.walk(peer, forwarded.rev().flat_map(entries_quoted).map(forwarded_for))
    }

    fn walk(&self, peer: IpAddr, entries: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut last = peer;
        for entry in entries.take(HOPS_MAX) {
            match entry {
                Some(address) if self.trusts(address) => last = address,
                Some(address) => return address,
                None => break,
            }
        }
        last
    }
}

/// Splits a line at its commas, from its end.
fn entries(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.rsplit(|byte| *byte == b',')
}

/// Splits at commas outside quoted strings. Quotes are matched from the end, so that an unclosed
/// quote of a client does not affect the entry of the last proxy.
fn entries_quoted(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    line.rsplit(move |byte| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    })
}

/// Returns the address of an element of `Forwarded`.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    if element.len() > ENTRY_BYTES_MAX {
        return None;
    }
    let mut nodes = element.split(|byte| *byte == b';').filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        name.eq_ignore_ascii_case(b"for").then_some(value)
    });
    let (node, further) = (nodes.next()?, nodes.next());
    let node = match node.strip_prefix(b"\"") {
        Some(rest) => rest.strip_suffix(b"\"")?,
        None => node,
    };
    further.is_none().then(|| address(node)).flatten()
}

/// Parses an address, with or without brackets and port.
fn address(entry: &[u8]) -> Option<IpAddr> {
    if entry.len() > ENTRY_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    let bracketed = || {
        let text = text.strip_prefix('[')?.strip_suffix(']')?;
        text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
    };
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let address = text.parse().ok().or_else(bracketed).or_else(with_port)?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests;
