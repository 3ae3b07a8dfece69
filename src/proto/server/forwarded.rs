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
mod tests {
    use super::*;

    const PEER: &str = "127.0.0.1";

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn proxies(networks: &[&str]) -> TrustedProxies {
        let networks: Vec<Network> = networks.iter().map(|text| text.parse().expect("a network")).collect();
        TrustedProxies::new(&networks, true)
    }

    /// Returns the client of a request from this machine, by its lines of `X-Forwarded-For` and
    /// `Forwarded`.
    fn client(trusted: &TrustedProxies, x_forwarded_for: &[&str], forwarded: &[&str]) -> String {
        let lines = |lines: &[&str]| -> Vec<Vec<u8>> { lines.iter().map(|line| line.as_bytes().to_vec()).collect() };
        let (x, f) = (lines(x_forwarded_for), lines(forwarded));
        let client = trusted.client_address(ip(PEER), x.iter().map(Vec::as_slice), f.iter().map(Vec::as_slice));
        client.to_string()
    }

    /// Headers of an untrusted peer are ignored, and a trusted proxy without headers is the client.
    #[test]
    fn trusts_configured_proxies_only() {
        let lines = || [&b"192.0.2.9"[..]].into_iter();
        let none = std::iter::empty;
        for (trusted, peer) in [
            (TrustedProxies::default(), "127.0.0.1"),
            (proxies(&["10.0.0.0/8"]), "11.0.0.1"),
            (
                TrustedProxies::new(&["10.0.0.1".parse().expect("one")], false),
                "127.0.0.1",
            ),
        ] {
            assert_eq!(trusted.client_address(ip(peer), lines(), lines()), ip(peer));
        }
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3", "2001:db8::5"] {
            let trusted = proxies(&["10.0.0.0/8", "2001:db8::/64"]);
            assert_eq!(
                trusted.client_address(ip(peer), lines(), none()),
                ip("192.0.2.9"),
                "{peer}"
            );
            assert_eq!(trusted.client_address(ip(peer), none(), none()), ip(peer));
        }
    }

    /// The list is read from its end, so entries that a client prepends have no effect.
    #[test]
    fn a_client_cannot_forge_its_address() {
        let trusted = proxies(&["10.0.0.0/8"]);
        for (lines, expected) in [
            (&["192.0.2.1"][..], "192.0.2.1"),
            (&["198.51.100.7, 192.0.2.1"], "192.0.2.1"),
            (&["198.51.100.7,192.0.2.1 , 10.0.0.2,127.0.0.1"], "192.0.2.1"),
            (&["198.51.100.7", "192.0.2.1"], "192.0.2.1"),
            (&["198.51.100.7", "192.0.2.1, 10.0.0.3", "10.0.0.2"], "192.0.2.1"),
            // All entries are trusted: the first one is the client.
            (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            (&["10.0.0.2, unknown"], PEER),
            (&["192.0.2.1, unknown, 10.0.0.2"], "10.0.0.2"),
            (&["192.0.2.1,"], PEER),
            (&[""], PEER),
        ] {
            assert_eq!(client(&trusted, lines, &[]), expected, "{lines:?}");
        }
    }

    /// Addresses with ports, in brackets, and in the forms of both families.
    #[test]
    fn parses_addresses_as_proxies_write_them() {
        let trusted = proxies(&[]);
        for (entry, expected) in [
            ("192.0.2.1:4711", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("\t192.0.2.1 ", "192.0.2.1"),
            ("192.0.2.1:port", PEER),
            ("192.0.2.1:65536", PEER),
            ("192.0.2.256", PEER),
            ("[192.0.2.1]", PEER),
            ("[2001:db8::1", PEER),
            ("_hidden", PEER),
            ("client.example", PEER),
            ("\u{e9}", PEER),
        ] {
            assert_eq!(client(&trusted, &[entry], &[]), expected, "{entry}");
        }
    }

    /// RFC 7239: names in any case, quoted values, several parameters, and obfuscated identifiers.
    #[test]
    fn parses_forwarded() {
        let trusted = proxies(&["10.0.0.0/8"]);
        for (lines, expected) in [
            (&["for=192.0.2.1"][..], "192.0.2.1"),
            (&["For=\"192.0.2.1:80\";proto=https;by=10.0.0.1"], "192.0.2.1"),
            (&["proto=http; FOR=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
            (&["for=198.51.100.7, for=192.0.2.1, for=10.0.0.2"], "192.0.2.1"),
            (&["for=198.51.100.7", "for=192.0.2.1"], "192.0.2.1"),
            (&["for=198.51.100.7, for=unknown"], PEER),
            (&["for=198.51.100.7, for=_SEVKISEK"], PEER),
            (&["for=\"_gazonk:80\""], PEER),
            (&["for=192.0.2.1, proto=http"], PEER),
            (&["for=192.0.2.1;for=192.0.2.2"], PEER),
            (&["for=[2001:db8::1]"], "2001:db8::1"),
            (&["for=\"192.0.2.1"], PEER),
            // A quote that a client left open, and a comma within quotes.
            (&["for=\"198.51.100.7, for=192.0.2.1"], "192.0.2.1"),
            (&["for=\"x, for=198.51.100.7\", for=\"[2001:db8::1]\""], "2001:db8::1"),
            (&["x=\"a,b\";for=192.0.2.1"], "192.0.2.1"),
            (&[";;, ;"], PEER),
        ] {
            assert_eq!(client(&trusted, &[], lines), expected, "{lines:?}");
        }
    }

    /// `X-Forwarded-For` takes precedence, even if it contains no address.
    #[test]
    fn x_forwarded_for_takes_precedence_over_forwarded() {
        let trusted = proxies(&[]);
        assert_eq!(client(&trusted, &["192.0.2.1"], &["for=198.51.100.7"]), "192.0.2.1");
        assert_eq!(client(&trusted, &["unknown"], &["for=198.51.100.7"]), PEER);
    }

    /// Entries are limited in length, and chains of proxies in number.
    #[test]
    fn entries_and_hops_are_limited() {
        let trusted = proxies(&["10.0.0.0/8"]);
        let padded = |bytes: usize| format!("{:bytes$}", "192.0.2.1");
        assert_eq!(client(&trusted, &[&padded(ENTRY_BYTES_MAX)], &[]), "192.0.2.1");
        assert_eq!(client(&trusted, &[&padded(ENTRY_BYTES_MAX + 1)], &[]), PEER);
        let element = |bytes: usize| format!("for=192.0.2.1;{}", "x".repeat(bytes - 14));
        assert_eq!(client(&trusted, &[], &[&element(ENTRY_BYTES_MAX)]), "192.0.2.1");
        assert_eq!(client(&trusted, &[], &[&element(ENTRY_BYTES_MAX + 1)]), PEER);
        let chain = |hops: usize| format!("192.0.2.1{}", ",10.0.0.2".repeat(hops));
        assert_eq!(client(&trusted, &[&chain(HOPS_MAX - 1)], &[]), "192.0.2.1");
        assert_eq!(client(&trusted, &[&chain(HOPS_MAX)], &[]), "10.0.0.2");
    }

    /// A network is an address with the length of its prefix.
    #[test]
    fn parses_networks() {
        for (text, inside, outside) in [
            ("10.0.0.1", "10.0.0.1", "10.0.0.2"),
            ("10.0.0.1/8", "10.255.0.9", "11.0.0.1"),
            ("0.0.0.0/0", "203.0.113.1", "2001:db8::1"),
            ("192.0.2.128/25", "192.0.2.129", "192.0.2.127"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("::/0", "2001:db8::1", ""),
            ("::1/128", "::1", "::2"),
        ] {
            let network: Network = text.parse().expect(text);
            assert!(network.contains(ip(inside)), "{text}");
            assert!(outside.is_empty() || !network.contains(ip(outside)), "{text}");
        }
        for text in [
            "",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "proxy.example",
            "10.0.0.0/+8",
            "/8",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NetworkParseError), "{text}");
        }
    }
}
