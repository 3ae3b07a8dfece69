//! ICE candidates: which of the peer's are used, and which addresses devices and ICE-TCP get.
//!
//! [`parse_remote`] reads one candidate of an offer or a PATCH and returns it in the spelling that
//! str0m parses, or the reason why it is ignored. An invalid candidate never ends the connection,
//! because the peer's own checks reveal its address. [`parse_passive_tcp`] reads a TCP candidate of
//! a media-room server, to which the runner connects. Ignored: host names (the runner resolves no
//! name for a peer), other TCP candidates, multicast, broadcast and unspecified addresses.
//! Privileged ports are ignored too, unless the operator named the peer, because a candidate makes
//! the runner send packets to it. Sources: RFC 8839 section 5.1, RFC 8445 section 5.1.1.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::limits::{CANDIDATE_BYTES_MAX, ICE_UFRAG_BYTES_MAX, TCP_ADDRESSES_MAX};
use crate::local_addresses::LocalCandidatePolicy;
use crate::options::host::Host;

/// Lowest port of a candidate: services use the ports below, and must not receive checks of the
/// runner.
const PRIVILEGED_PORTS_END: u16 = 1024;

/// How the runner's own candidates restrict the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteCandidatePolicy {
    /// The runner offers a loopback address.
    pub loopback_offered: bool,
    /// The operator named the peer's server. Such a peer may use any address and port.
    pub named_by_operator: bool,
}

/// A candidate to which checks can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedCandidate {
    /// The `candidate:...` line, reduced to what str0m reads.
    pub text: String,
    pub kind: CandidateKind,
    pub addr: SocketAddr,
}

/// The candidate types of RFC 8445 section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateKind {
    Host,
    ServerReflexive,
    PeerReflexive,
    Relayed,
}

impl CandidateKind {
    const ALL: [CandidateKind; 4] = [
        CandidateKind::Host,
        CandidateKind::ServerReflexive,
        CandidateKind::PeerReflexive,
        CandidateKind::Relayed,
    ];

    /// Returns the type as written in a candidate line.
    pub fn name(self) -> &'static str {
        match self {
            CandidateKind::Host => "host",
            CandidateKind::ServerReflexive => "srflx",
            CandidateKind::PeerReflexive => "prflx",
            CandidateKind::Relayed => "relay",
        }
    }
}

/// Why a candidate is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateError {
    /// The end-of-candidates mark.
    EndOfCandidates,
    TooLong,
    Malformed,
    /// A `.local` name, which browsers write to hide an address.
    Mdns,
    /// Any other host name.
    Name,
    /// A transport that is not supported here.
    Transport,
    /// A component other than 1; RTP and RTCP share one transport.
    Component,
    /// Port 0.
    Port,
    /// A privileged port, on which another service may listen.
    Privileged(u16),
    /// The runner's own address and port.
    Own,
    /// An unspecified, multicast or broadcast address, or one that needs an interface name.
    Address(IpAddr),
    /// A loopback address, while the runner offers none.
    Loopback(IpAddr),
}

impl fmt::Display for CandidateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CandidateError::EndOfCandidates => write!(f, "it marks the end"),
            CandidateError::TooLong => write!(f, "it has more than {CANDIDATE_BYTES_MAX} bytes"),
            CandidateError::Malformed => write!(f, "it is not `candidate:... 1 udp PRIORITY ADDRESS PORT typ TYPE`"),
            CandidateError::Mdns => write!(f, "mDNS names are not looked up"),
            CandidateError::Name => write!(f, "names are not looked up"),
            CandidateError::Transport => write!(f, "its transport is not supported here"),
            CandidateError::Component => write!(f, "only component 1 is supported"),
            CandidateError::Port => write!(f, "its port is 0"),
            CandidateError::Privileged(port) => {
                write!(f, "port {port} is below {PRIVILEGED_PORTS_END}, where services are")
            }
            CandidateError::Own => write!(f, "it is the runner's own"),
            CandidateError::Address(address) => write!(f, "nothing can be sent to {address}"),
            CandidateError::Loopback(address) => write!(f, "{address} is loopback, and the runner offers none"),
        }
    }
}

/// Returns the client's address in its own network: the first host candidate with an IP address.
/// Checks may be unable to reach it.
pub fn host_address(candidates: &[String]) -> Option<IpAddr> {
    let mut addresses = candidates.iter().filter_map(|text| {
        let mut words = text.split_ascii_whitespace().skip(4);
        let address: IpAddr = words.next()?.parse().ok()?;
        let is_host = words.skip(1).take(2).eq(["typ", "host"]);
        (is_host && !address.is_unspecified()).then_some(address)
    });
    addresses.next()
}

/// Parses one candidate of the peer, with or without the `a=` and `candidate:` prefixes.
///
/// # Errors
/// [`CandidateError`] says why the candidate cannot be used.
pub fn parse_remote(text: &str, policy: &RemoteCandidatePolicy) -> Result<ParsedCandidate, CandidateError> {
    parse(text, "udp", policy)
}

/// Parses a candidate that accepts TCP connections, RFC 6544 section 4.5.
///
/// # Errors
/// [`CandidateError`] says why the candidate cannot be used.
pub fn parse_passive_tcp(text: &str, policy: &RemoteCandidatePolicy) -> Result<ParsedCandidate, CandidateError> {
    if !is_passive_tcp(text) {
        return Err(CandidateError::Transport);
    }
    let mut parsed = parse(text, "tcp", policy)?;
    parsed.text.push_str(" tcptype passive");
    Ok(parsed)
}

/// Returns whether a candidate accepts TCP connections.
pub fn is_passive_tcp(text: &str) -> bool {
    let words: Vec<&str> = text.split_ascii_whitespace().take(CANDIDATE_WORDS_MAX).collect();
    words.windows(2).any(|pair| pair == ["tcptype", "passive"])
}

/// The most words of a candidate that are searched for `tcptype`; those of a server have 12 to 20.
const CANDIDATE_WORDS_MAX: usize = 32;

fn parse(text: &str, protocol: &str, policy: &RemoteCandidatePolicy) -> Result<ParsedCandidate, CandidateError> {
    if text.len() > CANDIDATE_BYTES_MAX {
        return Err(CandidateError::TooLong);
    }
    let text = text.trim();
    let text = text.strip_prefix("a=").unwrap_or(text);
    let text = text.strip_prefix("candidate:").unwrap_or(text);
    if text.is_empty() || text == "end-of-candidates" {
        return Err(CandidateError::EndOfCandidates);
    }
    let mut words = text.split_ascii_whitespace();
    let mut next = || words.next().ok_or(CandidateError::Malformed);
    let (foundation, component, transport) = (next()?, next()?, next()?);
    let (priority, address, port) = (next()?, next()?, next()?);
    let (typ, kind) = (next()?, next()?);
    // RFC 8839 allows 1 to 32 characters. Its alphabet is not enforced, since browsers violate it.
    if foundation.len() > 32 || !foundation.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CandidateError::Malformed);
    }
    let component: u16 = component.parse().map_err(|_| CandidateError::Malformed)?;
    let priority: u32 = priority.parse().map_err(|_| CandidateError::Malformed)?;
    let port: u16 = port.parse().map_err(|_| CandidateError::Malformed)?;
    let kind = CandidateKind::ALL.into_iter().find(|known| known.name() == kind);
    let kind = kind.filter(|_| typ == "typ").ok_or(CandidateError::Malformed)?;
    if !transport.eq_ignore_ascii_case(protocol) {
        return Err(CandidateError::Transport);
    }
    if component != 1 {
        return Err(CandidateError::Component);
    }
    let ip = parse_address(address)?;
    if port == 0 {
        return Err(CandidateError::Port);
    }
    if port < PRIVILEGED_PORTS_END && !policy.named_by_operator {
        return Err(CandidateError::Privileged(port));
    }
    check_remote_address(ip, policy)?;
    // The permitted range. Above it, the pair priority of RFC 8445 section 6.1.2.3 overflows 64
    // bits.
    let priority = priority.clamp(1, i32::MAX as u32);
    let mut normal = format!(
        "candidate:{foundation} 1 {protocol} {priority} {ip} {port} typ {}",
        kind.name()
    );
    if let Some(ufrag) = extension(words, "ufrag") {
        normal.push_str(" ufrag ");
        normal.push_str(ufrag);
    }
    Ok(ParsedCandidate {
        text: normal,
        kind,
        addr: SocketAddr::new(ip, port),
    })
}

/// Returns the value of a candidate extension; name and value pairs follow the type.
///
/// The `ufrag` extension matters after an ICE restart: str0m uses it to drop candidates of earlier
/// ICE sessions.
fn extension<'a>(mut words: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        if key == name && value.len() <= ICE_UFRAG_BYTES_MAX && value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Some(value);
        }
    }
    None
}

fn parse_address(address: &str) -> Result<IpAddr, CandidateError> {
    if let Ok(ip) = address.parse::<IpAddr>() {
        return Ok(ip.to_canonical());
    }
    let name = address.trim_end_matches('.').to_ascii_lowercase();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if name.ends_with(".local") {
        Err(CandidateError::Mdns)
    } else if name.bytes().all(is_name) && name.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        Err(CandidateError::Name)
    } else {
        Err(CandidateError::Malformed)
    }
}

fn check_remote_address(ip: IpAddr, policy: &RemoteCandidatePolicy) -> Result<(), CandidateError> {
    let reachable = match ip {
        // RFC 1122 section 3.2.1.3: 0/8 means "this network" and is never a destination.
        IpAddr::V4(v4) => v4.octets()[0] != 0 && !v4.is_multicast() && !v4.is_broadcast(),
        // A link-local address needs an interface name, which is meaningless on another machine.
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast() && !v6.is_unicast_link_local(),
    };
    if !reachable {
        return Err(CandidateError::Address(ip));
    }
    if ip.is_loopback() && !policy.loopback_offered {
        return Err(CandidateError::Loopback(ip));
    }
    Ok(())
}

/// The single address that an answer to a microcontroller contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    pub address: Ipv4Addr,
    /// The device may be unable to reach this address.
    pub is_guess: bool,
}

/// Returns the address to put into answers to microcontrollers, or `None` if no IPv4 address is
/// offered.
///
/// `--embedded` requires a specific `--host`. Without the option, `reached` is the best
/// evidence: the local address of the HTTP connection that carried the offer. It is `None` behind a
/// proxy, and it is ignored when `--ice-address` names a NAT.
pub fn device_address(
    policy: LocalCandidatePolicy<'_>,
    reached: Option<IpAddr>,
    offered: &[IpAddr],
) -> Option<DeviceAddress> {
    let ipv4 = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(address) if !address.is_unspecified() => Some(address),
        _ => None,
    };
    let named = match policy.host {
        Host::Address(address) if !address.is_loopback() => ipv4(address),
        _ => None,
    };
    let reached = reached.and_then(ipv4).filter(|_| policy.extra_addresses.is_empty());
    let known = policy.embedded.or(named).or(reached);
    let address = known.or_else(|| offered.iter().copied().find_map(ipv4))?;
    Some(DeviceAddress {
        address,
        is_guess: known.is_none(),
    })
}

/// Returns the addresses for ICE over TCP: those of the HTTP server, which share its port. An
/// unspecified address is replaced by the offered addresses of its family.
pub fn tcp_addresses(http: &[SocketAddr], offered: &[IpAddr]) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for listening in http {
        if !listening.ip().is_unspecified() {
            addresses.push(*listening);
            continue;
        }
        let family = offered
            .iter()
            .filter(|address| address.is_ipv4() == listening.is_ipv4());
        addresses.extend(family.map(|address| SocketAddr::new(*address, listening.port())));
    }
    addresses.truncate(TCP_ADDRESSES_MAX);
    addresses
}

#[cfg(all(test, feature = "webrtc"))]
mod tests;
