//! The names under which requests may address this server: the defence against DNS rebinding.
//!
//! In: authorities of `Host` headers and request targets, as bytes, and the configured names. Out:
//! whether the server accepts the name. A page of `evil.example` whose name resolves to this
//! machine shares an origin with the runner in the browser's view, but it cannot change the name in
//! `Host`.
//!
//! Accepted: `localhost` and names below it, IP addresses, `*.local`, this machine's names, those
//! of `--allowed-hosts`, and the host of `--proxy`, each with any port, since proxies and forwarded
//! ports change it. Case and one trailing dot are ignored. Rejected: other names, user names, empty
//! ports, and numbers that browsers take for addresses.
//!
//! Source: RFC 9110 section 7.2, RFC 9112 section 3.2, RFC 6761 section 6.3, RFC 6762 section 3.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address_scope::AddressScope;
use crate::config::Config;

/// Length of the longest DNS name, in bytes.
const NAME_BYTES_MAX: usize = 253;

/// The accepted host names of this server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedHosts(Vec<String>);

/// The host of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParsedHost<'a> {
    Address(IpAddr),
    /// A name without a trailing dot.
    Name(&'a [u8]),
}

impl AllowedHosts {
    /// Creates the list for a configuration.
    pub fn new(config: &Config) -> Self {
        let proxy = config.proxy.as_deref().map(|proxy| match split_port(proxy.as_bytes()) {
            Some((host, _)) => &proxy[..host.len()],
            None => proxy,
        });
        AllowedHosts(
            config
                .host_names
                .iter()
                .map(String::as_str)
                .chain(proxy)
                // The trailing dot of the DNS root is not part of a comparison.
                .map(|name| name.strip_suffix('.').unwrap_or(name).to_owned())
                .collect(),
        )
    }

    /// Returns whether a request for this authority is for this server.
    pub fn accepts(&self, authority: &[u8]) -> bool {
        match parse_host(authority) {
            Some(ParsedHost::Address(_)) => true,
            Some(ParsedHost::Name(name)) => self.has_name(name),
            None => false,
        }
    }

    /// Returns whether this authority is an accepted name, or an address that is not public.
    pub fn is_local(&self, authority: &[u8]) -> bool {
        match parse_host(authority) {
            Some(ParsedHost::Address(address)) => AddressScope::of(address) != AddressScope::Public,
            Some(ParsedHost::Name(name)) => self.has_name(name),
            None => false,
        }
    }

    fn has_name(&self, name: &[u8]) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let below = |parent: &str| {
            let (head, tail) = name.split_at(name.len().saturating_sub(parent.len()));
            !head.is_empty() && tail.eq_ignore_ascii_case(parent.as_bytes())
        };
        is("localhost") || below(".localhost") || below(".local") || self.0.iter().any(|known| is(known))
    }
}

/// Returns whether two authorities have the same host; ports are ignored.
pub fn is_same_host(one: &[u8], other: &[u8]) -> bool {
    match (parse_host(one), parse_host(other)) {
        (Some(ParsedHost::Address(one)), Some(ParsedHost::Address(other))) => one == other,
        (Some(ParsedHost::Name(one)), Some(ParsedHost::Name(other))) => one.eq_ignore_ascii_case(other),
        _ => false,
    }
}

/// Returns the IP address that an authority names, if it names one.
pub fn address(authority: &[u8]) -> Option<IpAddr> {
    match parse_host(authority)? {
        ParsedHost::Address(address) => Some(address.to_canonical()),
        ParsedHost::Name(_) => None,
    }
}

/// Returns whether an authority is `localhost` or one of these host names, alone or below `.local`.
/// A number may follow a name: mDNS adds one to a name that another machine has.
pub fn is_board(authority: &[u8], names: &[&str]) -> bool {
    let Some(ParsedHost::Name(host)) = parse_host(authority) else {
        return false;
    };
    let host = host.to_ascii_lowercase();
    let label = host.strip_suffix(b".local").unwrap_or(&host);
    let without_number = |name: &[u8]| {
        let digits = name.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        name[..name.len() - digits].to_owned()
    };
    let is = |name: &&str| {
        !name.is_empty() && {
            let name = name.to_ascii_lowercase().into_bytes();
            let bare = without_number(&name);
            label == name || !bare.is_empty() && without_number(label) == bare
        }
    };
    host == b"localhost" || names.iter().any(is)
}

/// Returns whether an authority is a loopback name or address.
pub fn is_loopback(authority: &[u8]) -> bool {
    match parse_host(authority) {
        Some(ParsedHost::Address(address)) => address.to_canonical().is_loopback(),
        Some(ParsedHost::Name(name)) => name.eq_ignore_ascii_case(b"localhost"),
        None => false,
    }
}

/// Parses an authority; `None` if it is invalid.
fn parse_host(authority: &[u8]) -> Option<ParsedHost<'_>> {
    let (host, port) = split_port(authority)?;
    if port.is_some_and(|port| !is_port(port)) {
        return None;
    }
    if let Some(bracketed) = host.strip_prefix(b"[") {
        return parse_ipv6(bracketed.strip_suffix(b"]")?).map(|address| ParsedHost::Address(address.into()));
    }
    let name = host.strip_suffix(b".").unwrap_or(host);
    let label = |label: &[u8]| {
        !label.is_empty()
            && label
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    if name.len() > NAME_BYTES_MAX || !name.split(|b| *b == b'.').all(label) {
        return None;
    }
    // Only the form that browsers send: they normalise `127.1` and `0x7f.1` first.
    match std::str::from_utf8(host).ok()?.parse::<Ipv4Addr>() {
        Ok(address) => Some(ParsedHost::Address(address.into())),
        Err(_) => Some(ParsedHost::Name(name)),
    }
}

/// Splits off a port.
fn split_port(authority: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let end = match authority.first()? {
        b'[' => authority.iter().position(|b| *b == b']')? + 1,
        _ => authority.iter().position(|b| *b == b':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at(end);
    match rest.split_first() {
        None => Some((host, None)),
        Some((b':', port)) => Some((host, Some(port))),
        Some(_) => None,
    }
}

fn is_port(text: &[u8]) -> bool {
    // `parse` would also accept a sign.
    (1..=5).contains(&text.len())
        && text.iter().all(u8::is_ascii_digit)
        && std::str::from_utf8(text).is_ok_and(|port| port.parse::<u16>().is_ok())
}

/// Parses an IPv6 address. Devices add the zone of a link-local address (RFC 6874), `%eth0` or
/// `%25eth0`.
fn parse_ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    let (address, zone) = match text.iter().position(|b| *b == b'%') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let unreserved = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    if zone.is_some_and(|zone| zone.is_empty() || !zone.strip_prefix(b"25").unwrap_or(zone).iter().all(unreserved)) {
        return None;
    }
    std::str::from_utf8(address).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
