//! ICE candidates: which of the peer's are used, and which addresses of this machine are offered.
//!
//! [`parse_remote`] takes one candidate of an offer or a PATCH as text and gives it back in the one spelling that str0m reads,
//! or the reason why it is ignored. A bad candidate never costs the connection: the peer's own checks tell its address.
//! [`local_addresses`] takes the interfaces of this machine and gives the addresses to offer, best first.
//! Never used: names (no look-up leaves this runner for a peer), TCP, multicast, broadcast, unspecified addresses, and, of strangers, the ports
//! of other services: whoever names a candidate makes the runner send there.
//! Sources: RFC 8839 section 5.1, RFC 8445 section 5.1.1.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::config::Host;
use crate::limits::{
    CANDIDATE_BYTES_MAX, ICE_UFRAG_BYTES_MAX, LOCAL_ADDRESSES_MAX, PRIVILEGED_PORTS_END, TCP_ADDRESSES_MAX,
};

/// What the runner's own candidates imply for the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteCandidatePolicy {
    /// A loopback address is among the runner's candidates.
    pub loopback_offered: bool,
    /// The peer is a server that the operator named, and may be wherever it says: strangers name no port of a service.
    pub named_by_operator: bool,
}

/// A candidate that checks can be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedCandidate {
    /// `candidate:...` without what str0m does not need.
    pub text: String,
    pub kind: CandidateKind,
    pub addr: SocketAddr,
}

/// How a candidate's address is the peer's, RFC 8445 section 4.
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

    /// Returns the word of a candidate line.
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
    /// No candidate, but the mark that none will follow.
    EndOfCandidates,
    TooLong,
    Malformed,
    /// A `.local` name, which a browser writes in place of an address it will not tell.
    Mdns,
    /// Any other name.
    Name,
    /// Not UDP.
    Transport,
    /// Not component 1; RTP and RTCP share one.
    Component,
    /// Port 0.
    Port,
    /// A port that belongs to a service of its machine.
    Privileged(u16),
    /// The runner's own address and port: checks to it would only come back.
    Own,
    /// Unspecified, multicast, broadcast, or bound to a link that this end cannot name.
    Address(IpAddr),
    /// Loopback, when none is offered here.
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
            CandidateError::Transport => write!(f, "only UDP is supported"),
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

/// Returns the address that a client has in its own network, by the first host candidate among these
/// with an address of IP. Whether checks can be sent there is another matter.
pub fn host_address(candidates: &[String]) -> Option<IpAddr> {
    let mut addresses = candidates.iter().filter_map(|text| {
        let mut words = text.split_ascii_whitespace().skip(4);
        let address: IpAddr = words.next()?.parse().ok()?;
        let is_host = words.skip(1).take(2).eq(["typ", "host"]);
        (is_host && !address.is_unspecified()).then_some(address)
    });
    addresses.next()
}

/// Parses one candidate of the peer, with or without `a=` and `candidate:` in front.
///
/// # Errors
/// [`CandidateError`]: the reason why it cannot be used.
pub fn parse_remote(text: &str, policy: &RemoteCandidatePolicy) -> Result<ParsedCandidate, CandidateError> {
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
    // RFC 8839: 1 to 32 characters. Its alphabet is not enforced, browsers were seen to leave it.
    if foundation.len() > 32 || !foundation.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CandidateError::Malformed);
    }
    let component: u16 = component.parse().map_err(|_| CandidateError::Malformed)?;
    let priority: u32 = priority.parse().map_err(|_| CandidateError::Malformed)?;
    let port: u16 = port.parse().map_err(|_| CandidateError::Malformed)?;
    let kind = CandidateKind::ALL.into_iter().find(|known| known.name() == kind);
    let kind = kind.filter(|_| typ == "typ").ok_or(CandidateError::Malformed)?;
    if !transport.eq_ignore_ascii_case("udp") {
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
    // The pair priority of RFC 8445 section 6.1.2.3 overflows 64 bits above this range, which is also the permitted one.
    let priority = priority.clamp(1, i32::MAX as u32);
    let mut normal = format!(
        "candidate:{foundation} 1 udp {priority} {ip} {port} typ {}",
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

/// Returns the value of an extension of a candidate: pairs of words follow its type.
///
/// The user name fragment matters after a restart of ICE: str0m drops candidates of the time before by it.
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
        // RFC 1122 section 3.2.1.3: the whole block 0/8 means "this network" and is never a destination.
        IpAddr::V4(v4) => v4.octets()[0] != 0 && !v4.is_multicast() && !v4.is_broadcast(),
        // A link-local address needs the interface's name, which means nothing on another machine.
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

/// One address of one interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub name: String,
    pub addr: IpAddr,
}

/// What the command line says about candidates.
#[derive(Clone, Copy, Debug)]
pub struct LocalCandidatePolicy<'a> {
    /// Where the HTTP server listens.
    pub host: Host,
    /// The one address that microcontrollers are offered.
    pub embedded: Option<Ipv4Addr>,
    /// Further addresses, behind which this machine is reached.
    pub extra_addresses: &'a [IpAddr],
}

/// Returns the addresses to offer as host candidates, best first, each once.
///
/// A runner with `--embedded` offers its one address and nothing else: devices try candidates one after the other, 17 s for a
/// dead one, and what is filtered out of an answer need not be in it.
pub fn local_addresses(interfaces: &[InterfaceAddress], policy: LocalCandidatePolicy<'_>) -> Vec<IpAddr> {
    if let Some(address) = policy.embedded {
        return vec![IpAddr::V4(address)];
    }
    let (found, last) = match policy.host {
        // 127.0.0.1 is where clients of `localhost` are, even if the list of interfaces could not be read.
        Host::Localhost => (
            routable_addresses(interfaces, |_| true),
            loopback_addresses(interfaces, Some(Ipv4Addr::LOCALHOST)),
        ),
        Host::Address(address) if address.is_loopback() => (routable_addresses(interfaces, |_| true), vec![address]),
        Host::Address(address) if address.is_unspecified() => {
            let found = routable_addresses(interfaces, |other| other.is_ipv4() == address.is_ipv4());
            // A machine without a network still serves clients of its own.
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

/// The one address that a microcontroller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    pub address: Ipv4Addr,
    /// Whether the device may be unable to reach it.
    pub is_guess: bool,
}

/// Returns the address at which a device is told to find this machine, where no `--embedded` names
/// it; nothing when none of `offered` is IPv4.
///
/// R-083 demands a specific `--host` of `--embedded`, so that nothing is left to guess. Without the
/// option there is as good a witness: `reached`, the end at this machine of the connection on which
/// the offer came, which the device can reach. It is none where a proxy passed the offer on, nor
/// where `--ice-address` tells of a router before this machine.
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

/// Returns where callers whose network lets no UDP through may connect: the addresses of the HTTP server, whose port tells their
/// connections from others. An unspecified one stands for the offered addresses of its family.
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

/// Returns the addresses of the interfaces that lead to other machines, or of the rest when there are none.
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
    // Among equals, the order in which the system lists them stays.
    chosen.sort_by_key(|(name, address)| (address.is_ipv6(), is_tunnel(name)));
    chosen.into_iter().map(|(_, address)| address).collect()
}

/// Returns the loopback addresses, IPv4 first, each once.
fn loopback_addresses(interfaces: &[InterfaceAddress], always: Option<Ipv4Addr>) -> Vec<IpAddr> {
    let listed = interfaces.iter().map(|interface| interface.addr.to_canonical());
    let mut found: Vec<IpAddr> = listed
        .filter(IpAddr::is_loopback)
        .chain(always.map(IpAddr::V4))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Tells whether an address can stand in a candidate that other machines can use.
fn is_offerable(address: IpAddr) -> bool {
    let link_bound = match address {
        // 169.254/16 is what an interface gives itself when nobody gave it an address; str0m refuses it.
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        // Such an address needs an interface's name beside it, which a candidate has no room for.
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !link_bound && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

/// Tells whether an interface serves containers and virtual machines on this machine: others cannot reach it.
fn is_container_interface(name: &str) -> bool {
    const PREFIXES: [&str; 13] = [
        "docker", "veth", "virbr", "lxc", "lxd", "cni", "flannel", "cali", "podman", "vmnet", "vboxnet", "vnet", "kube",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || is_container_bridge(name)
}

/// Container networks are called `br-` and twelve hexadecimal digits; `br-lan` is the home network of many routers.
fn is_container_bridge(name: &str) -> bool {
    name.strip_prefix("br-")
        .is_some_and(|id| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Tells whether an interface is a virtual private network: usable, but a detour for neighbours.
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
mod tests;
