//! ICE candidates: which of the peer's are used, and which addresses of this machine are offered.
//!
//! [`parse_remote`] takes one candidate of an offer or a PATCH as text and gives it back in the one spelling that str0m reads,
//! or the reason why it is ignored. A bad candidate never costs the connection: the peer's own checks tell its address.
//! [`local_addresses`] takes the interfaces of this machine and gives the addresses to offer, best first.
//! Never used: names (no look-up leaves this runner for a peer), TCP, multicast, broadcast, unspecified addresses.
//! Sources: RFC 8839 section 5.1, RFC 8445 section 5.1.1.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::config::Host;
use crate::limits::{CANDIDATE_BYTES_MAX, ICE_UFRAG_BYTES_MAX, LOCAL_ADDRESSES_MAX};

/// What the runner's own candidates imply for the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemotePolicy {
    /// A loopback address is among the runner's candidates.
    pub loopback_offered: bool,
}

/// A candidate that checks can be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usable {
    /// `candidate:...` without what str0m does not need.
    pub text: String,
    pub addr: SocketAddr,
}

/// Why a candidate is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
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
    /// Unspecified, multicast, broadcast, or bound to a link that this end cannot name.
    Address(IpAddr),
    /// Loopback, when none is offered here.
    Loopback(IpAddr),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ignored::EndOfCandidates => write!(f, "it marks the end"),
            Ignored::TooLong => write!(f, "it has more than {CANDIDATE_BYTES_MAX} bytes"),
            Ignored::Malformed => write!(f, "it is not `candidate:... 1 udp PRIORITY ADDRESS PORT typ TYPE`"),
            Ignored::Mdns => write!(f, "mDNS names are not looked up"),
            Ignored::Name => write!(f, "names are not looked up"),
            Ignored::Transport => write!(f, "only UDP is supported"),
            Ignored::Component => write!(f, "only component 1 is supported"),
            Ignored::Port => write!(f, "its port is 0"),
            Ignored::Address(address) => write!(f, "nothing can be sent to {address}"),
            Ignored::Loopback(address) => write!(f, "{address} is loopback, and the runner offers none"),
        }
    }
}

/// Parses one candidate of the peer, with or without `a=` and `candidate:` in front.
///
/// # Errors
/// [`Ignored`]: the reason why it cannot be used.
pub fn parse_remote(text: &str, policy: &RemotePolicy) -> Result<Usable, Ignored> {
    if text.len() > CANDIDATE_BYTES_MAX {
        return Err(Ignored::TooLong);
    }
    let text = text.trim();
    let text = text.strip_prefix("a=").unwrap_or(text);
    let text = text.strip_prefix("candidate:").unwrap_or(text);
    if text.is_empty() || text == "end-of-candidates" {
        return Err(Ignored::EndOfCandidates);
    }
    let mut words = text.split_ascii_whitespace();
    let mut next = || words.next().ok_or(Ignored::Malformed);
    let (foundation, component, transport) = (next()?, next()?, next()?);
    let (priority, address, port) = (next()?, next()?, next()?);
    let (typ, kind) = (next()?, next()?);
    // RFC 8839: 1 to 32 characters. Its alphabet is not enforced, browsers were seen to leave it.
    if foundation.len() > 32 || !foundation.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Ignored::Malformed);
    }
    let component: u16 = component.parse().map_err(|_| Ignored::Malformed)?;
    let priority: u32 = priority.parse().map_err(|_| Ignored::Malformed)?;
    let port: u16 = port.parse().map_err(|_| Ignored::Malformed)?;
    if typ != "typ" || !matches!(kind, "host" | "srflx" | "prflx" | "relay") {
        return Err(Ignored::Malformed);
    }
    if !transport.eq_ignore_ascii_case("udp") {
        return Err(Ignored::Transport);
    }
    if component != 1 {
        return Err(Ignored::Component);
    }
    let ip = parse_address(address)?;
    if port == 0 {
        return Err(Ignored::Port);
    }
    check_remote_address(ip, policy)?;
    // The pair priority of RFC 8445 section 6.1.2.3 overflows 64 bits above this range, which is also the permitted one.
    let priority = priority.clamp(1, i32::MAX as u32);
    let mut normal = format!("candidate:{foundation} 1 udp {priority} {ip} {port} typ {kind}");
    if let Some(ufrag) = extension(words, "ufrag") {
        normal.push_str(" ufrag ");
        normal.push_str(ufrag);
    }
    Ok(Usable {
        text: normal,
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

fn parse_address(address: &str) -> Result<IpAddr, Ignored> {
    if let Ok(ip) = address.parse::<IpAddr>() {
        return Ok(ip.to_canonical());
    }
    let name = address.trim_end_matches('.').to_ascii_lowercase();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if name.ends_with(".local") {
        Err(Ignored::Mdns)
    } else if name.bytes().all(is_name) && name.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        Err(Ignored::Name)
    } else {
        Err(Ignored::Malformed)
    }
}

fn check_remote_address(ip: IpAddr, policy: &RemotePolicy) -> Result<(), Ignored> {
    let reachable = match ip {
        // RFC 1122 section 3.2.1.3: the whole block 0/8 means "this network" and is never a destination.
        IpAddr::V4(v4) => v4.octets()[0] != 0 && !v4.is_multicast() && !v4.is_broadcast(),
        // A link-local address needs the interface's name, which means nothing on another machine.
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast() && !v6.is_unicast_link_local(),
    };
    if !reachable {
        return Err(Ignored::Address(ip));
    }
    if ip.is_loopback() && !policy.loopback_offered {
        return Err(Ignored::Loopback(ip));
    }
    Ok(())
}

/// One address of one interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub addr: IpAddr,
}

/// What the command line says about candidates.
#[derive(Clone, Copy, Debug)]
pub struct LocalPolicy<'a> {
    /// Where the HTTP server listens.
    pub host: Host,
    /// The one address that microcontrollers are offered.
    pub embedded: Option<Ipv4Addr>,
    /// Further addresses, behind which this machine is reached.
    pub extra: &'a [IpAddr],
}

/// Returns the addresses to offer as host candidates, best first, each once.
///
/// A runner with `--embedded` offers its one address and nothing else: devices try candidates one after the other, 17 s for a
/// dead one, and what is filtered out of an answer need not be in it.
pub fn local_addresses(interfaces: &[Interface], policy: LocalPolicy<'_>) -> Vec<IpAddr> {
    if let Some(address) = policy.embedded {
        return vec![IpAddr::V4(address)];
    }
    let (found, last) = match policy.host {
        // 127.0.0.1 is where clients of `localhost` are, even if the list of interfaces could not be read.
        Host::Localhost => (
            usable(interfaces, |_| true),
            loopback(interfaces, Some(Ipv4Addr::LOCALHOST)),
        ),
        Host::Address(address) if address.is_loopback() => (usable(interfaces, |_| true), vec![address]),
        Host::Address(address) if address.is_unspecified() => {
            let found = usable(interfaces, |other| other.is_ipv4() == address.is_ipv4());
            // A machine without a network still serves clients of its own.
            let alone = found.is_empty() && policy.extra.is_empty();
            (found, if alone { loopback(interfaces, None) } else { Vec::new() })
        }
        Host::Address(address) => (vec![address.to_canonical()], Vec::new()),
    };
    let mut addresses = Vec::new();
    let extra = policy.extra.iter().map(|address| address.to_canonical());
    for address in extra.chain(found) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.truncate(LOCAL_ADDRESSES_MAX.saturating_sub(last.len()));
    addresses.extend(last.into_iter().filter(|address| !policy.extra.contains(address)));
    addresses.truncate(LOCAL_ADDRESSES_MAX);
    addresses
}

/// Returns the addresses of the interfaces that lead to other machines, or of the rest when there are none.
fn usable(interfaces: &[Interface], family: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
    let possible: Vec<(&str, IpAddr)> = interfaces
        .iter()
        .map(|interface| (interface.name.as_str(), interface.addr.to_canonical()))
        .filter(|(_, address)| family(*address) && is_offerable(*address))
        .collect();
    let leads_out = |(name, _): &(&str, IpAddr)| !is_for_guests(name);
    let mut chosen: Vec<_> = possible.iter().copied().filter(leads_out).collect();
    if chosen.is_empty() {
        chosen = possible;
    }
    // The sort is stable: among equals, the order in which the system lists them stays.
    chosen.sort_by_key(|(name, address)| (address.is_ipv6(), is_tunnel(name)));
    chosen.into_iter().map(|(_, address)| address).collect()
}

/// Returns the loopback addresses, IPv4 first, each once.
fn loopback(interfaces: &[Interface], always: Option<Ipv4Addr>) -> Vec<IpAddr> {
    let listed = interfaces.iter().map(|interface| interface.addr.to_canonical());
    let mut found: Vec<IpAddr> = listed
        .filter(IpAddr::is_loopback)
        .chain(always.map(IpAddr::V4))
        .collect();
    found.sort();
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
fn is_for_guests(name: &str) -> bool {
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
mod tests {
    use super::*;
    use str0m::Candidate;

    const NO_LOOPBACK: RemotePolicy = RemotePolicy {
        loopback_offered: false,
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn ips(text: &[&str]) -> Vec<IpAddr> {
        text.iter().copied().map(ip).collect()
    }

    /// What is used reads well to str0m, and means the same to it.
    #[test]
    fn usable_candidates_come_out_in_one_spelling() {
        let normal = "candidate:1 1 udp 2122194687 192.0.2.2 36127 typ host";
        for (text, expected) in [
            (normal, normal),
            ("candidate:1 1 UDP 2122194687 192.0.2.2 36127 typ host", normal),
            ("1 1 udp 2122194687 192.0.2.2 36127 typ host", normal),
            ("a=candidate:1 1 udp 2122194687 192.0.2.2 36127 typ host\r\n", normal),
            ("  candidate:1  1 udp  2122194687 192.0.2.2 36127 typ host ", normal),
            ("candidate:1 1 udp 2122194687 ::ffff:192.0.2.2 36127 typ host", normal),
            (
                "candidate:1 1 udp 2122194687 192.0.2.2 36127 typ host generation 0 network-id 1",
                normal,
            ),
            (
                "candidate:1 1 udp 2122194687 192.0.2.2 36127 typ host generation",
                normal,
            ),
            (
                "candidate:1 1 udp 2122194687 192.0.2.2 36127 typ host generation 0 ufrag NuVJ network-id 1",
                "candidate:1 1 udp 2122194687 192.0.2.2 36127 typ host ufrag NuVJ",
            ),
            (
                "candidate:7 1 udp 1686052607 203.0.113.5 41775 typ srflx raddr 0.0.0.0 rport 0",
                "candidate:7 1 udp 1686052607 203.0.113.5 41775 typ srflx",
            ),
            (
                "candidate:8 1 udp 41885439 203.0.113.6 50000 typ relay raddr fe80::1%eth0 rport x",
                "candidate:8 1 udp 41885439 203.0.113.6 50000 typ relay",
            ),
            (
                "candidate:9 1 udp 2122262783 2001:DB8:0::21 54401 typ host",
                "candidate:9 1 udp 2122262783 2001:db8::21 54401 typ host",
            ),
            (
                "candidate:9 1 udp 1 fd12::1 1 typ prflx",
                "candidate:9 1 udp 1 fd12::1 1 typ prflx",
            ),
            (
                "candidate:9 1 udp 0 10.0.0.1 53 typ host",
                "candidate:9 1 udp 1 10.0.0.1 53 typ host",
            ),
            (
                "candidate:9 1 udp 4294967295 10.0.0.1 65535 typ host",
                "candidate:9 1 udp 2147483647 10.0.0.1 65535 typ host",
            ),
        ] {
            let usable = parse_remote(text, &NO_LOOPBACK).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(usable.text, expected);
            let read = Candidate::from_sdp_string(&usable.text).expect("str0m reads it");
            assert_eq!(read.addr(), usable.addr);
            assert_eq!(parse_remote(&usable.text, &NO_LOOPBACK), Ok(usable));
        }
    }

    #[test]
    fn what_cannot_be_used_is_ignored_with_a_reason() {
        let with = |address: &str| format!("candidate:1 1 udp 1 {address} 9000 typ host");
        for (text, why) in [
            (String::new(), Ignored::EndOfCandidates),
            (" \r\n".into(), Ignored::EndOfCandidates),
            ("a=end-of-candidates".into(), Ignored::EndOfCandidates),
            ("candidate:".into(), Ignored::EndOfCandidates),
            ("candidate:1 1 udp 1 192.0.2.1 9000 typ".into(), Ignored::Malformed),
            (
                "candidate:1 1 udp 1 192.0.2.1 9000 type host".into(),
                Ignored::Malformed,
            ),
            (
                "candidate:1 1 udp 1 192.0.2.1 9000 typ guest".into(),
                Ignored::Malformed,
            ),
            ("candidate:1 1 udp x 192.0.2.1 9000 typ host".into(), Ignored::Malformed),
            (
                "candidate:1 1 udp 4294967296 192.0.2.1 9000 typ host".into(),
                Ignored::Malformed,
            ),
            (
                "candidate:1 1 udp 1 192.0.2.1 65536 typ host".into(),
                Ignored::Malformed,
            ),
            (
                "candidate:1 -1 udp 1 192.0.2.1 9000 typ host".into(),
                Ignored::Malformed,
            ),
            (
                format!("candidate:{} 1 udp 1 192.0.2.1 9 typ host", "f".repeat(33)),
                Ignored::Malformed,
            ),
            (
                "candidate:\u{7f} 1 udp 1 192.0.2.1 9000 typ host".into(),
                Ignored::Malformed,
            ),
            ("candidate:1 2 udp 1 192.0.2.1 9000 typ host".into(), Ignored::Component),
            (
                "candidate:1 1 tcp 1 192.0.2.1 9 typ host tcptype active".into(),
                Ignored::Transport,
            ),
            (
                "candidate:1 1 ssltcp 1 192.0.2.1 443 typ host".into(),
                Ignored::Transport,
            ),
            ("candidate:1 1 udp 1 192.0.2.1 0 typ host".into(), Ignored::Port),
            (with("6d1f2c84-3b0a-4e57.local"), Ignored::Mdns),
            (with("PRINTER.LOCAL."), Ignored::Mdns),
            (with("metadata.example.com"), Ignored::Name),
            (with("192.0.2.256"), Ignored::Malformed),
            (with("[2001:db8::1]"), Ignored::Malformed),
            (with("fe80::1%eth0"), Ignored::Malformed),
            (with("0.0.0.0"), Ignored::Address(ip("0.0.0.0"))),
            (with("0.1.2.3"), Ignored::Address(ip("0.1.2.3"))),
            (with("255.255.255.255"), Ignored::Address(ip("255.255.255.255"))),
            (with("224.0.0.251"), Ignored::Address(ip("224.0.0.251"))),
            (with("::"), Ignored::Address(ip("::"))),
            (with("::ffff:224.0.0.1"), Ignored::Address(ip("224.0.0.1"))),
            (with("ff02::fb"), Ignored::Address(ip("ff02::fb"))),
            (with("fe80::1"), Ignored::Address(ip("fe80::1"))),
            (with("127.0.0.2"), Ignored::Loopback(ip("127.0.0.2"))),
            (with("::1"), Ignored::Loopback(ip("::1"))),
            (with("::ffff:127.0.0.1"), Ignored::Loopback(ip("127.0.0.1"))),
        ] {
            assert_eq!(parse_remote(&text, &NO_LOOPBACK), Err(why), "{text}");
            assert!(!why.to_string().is_empty());
        }
    }

    /// loopback candidates count only when the runner itself offers loopback.
    #[test]
    fn loopback_is_used_where_it_is_offered() {
        let policy = RemotePolicy { loopback_offered: true };
        for address in ["127.0.0.1", "::1"] {
            let usable = parse_remote(&format!("candidate:1 1 udp 1 {address} 9000 typ host"), &policy);
            assert_eq!(usable.expect("usable").addr, SocketAddr::new(ip(address), 9000));
        }
    }

    #[test]
    fn a_candidate_is_read_up_to_its_cap() {
        let text = |bytes: usize| format!("{:bytes$}", "candidate:1 1 udp 1 192.0.2.1 9000 typ host x");
        assert!(parse_remote(&text(CANDIDATE_BYTES_MAX), &NO_LOOPBACK).is_ok());
        assert_eq!(
            parse_remote(&text(CANDIDATE_BYTES_MAX + 1), &NO_LOOPBACK),
            Err(Ignored::TooLong)
        );
        let ufrag = |bytes: usize| format!("candidate:1 1 udp 1 192.0.2.1 9 typ host ufrag {}", "u".repeat(bytes));
        let kept = |bytes| parse_remote(&ufrag(bytes), &NO_LOOPBACK).expect("usable").text == ufrag(bytes);
        assert!(kept(ICE_UFRAG_BYTES_MAX) && !kept(ICE_UFRAG_BYTES_MAX + 1));
    }

    fn interfaces(list: &[(&str, &str)]) -> Vec<Interface> {
        let interface = |(name, address): &(&str, &str)| Interface {
            name: (*name).to_owned(),
            addr: ip(address),
        };
        list.iter().map(interface).collect()
    }

    fn busy_machine() -> Vec<Interface> {
        interfaces(&[
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("tailscale0", "100.64.3.2"),
            ("docker0", "172.17.0.1"),
            ("br-0123456789ab", "172.18.0.1"),
            ("veth12ab", "fe80::5"),
            ("wlan0", "2001:db8::20"),
            ("wlan0", "fd00::20"),
            ("wlan0", "fe80::20"),
            ("wg0", "fd99::2"),
            ("br-lan", "192.168.1.20"),
            ("eth0", "169.254.7.7"),
            ("eth0", "::ffff:192.168.1.21"),
            ("eth0", "192.168.1.20"),
        ])
    }

    fn offered(list: &[Interface], host: Host, extra: &[IpAddr]) -> Vec<IpAddr> {
        let policy = LocalPolicy {
            host,
            embedded: None,
            extra,
        };
        local_addresses(list, policy)
    }

    const ALL: [&str; 6] = [
        "192.168.1.20",
        "192.168.1.21",
        "100.64.3.2",
        "2001:db8::20",
        "fd00::20",
        "fd99::2",
    ];

    /// IPv4 first, neighbours before tunnels, loopback last; what serves containers or needs a link's name is left out.
    #[test]
    fn localhost_offers_every_interface_and_then_loopback() {
        let mut expected = ALL.to_vec();
        expected.extend(["127.0.0.1", "::1"]);
        assert_eq!(offered(&busy_machine(), Host::Localhost, &[]), ips(&expected));
        let mut expected = ALL.to_vec();
        expected.push("127.0.0.1");
        assert_eq!(
            offered(&busy_machine(), Host::Address(ip("127.0.0.1")), &[]),
            ips(&expected)
        );
        assert_eq!(offered(&[], Host::Localhost, &[]), ips(&["127.0.0.1"]));
    }

    #[test]
    fn an_unspecified_host_offers_the_interfaces_of_its_family() {
        assert_eq!(
            offered(&busy_machine(), Host::Address(ip("0.0.0.0")), &[]),
            ips(&ALL[..3])
        );
        assert_eq!(offered(&busy_machine(), Host::Address(ip("::")), &[]), ips(&ALL[3..]));
    }

    #[test]
    fn a_specific_host_is_offered_alone() {
        let address = ip("192.168.1.21");
        assert_eq!(offered(&busy_machine(), Host::Address(address), &[]), [address]);
        assert_eq!(
            offered(&[], Host::Address(ip("203.0.113.9")), &[]),
            ips(&["203.0.113.9"])
        );
    }

    /// nothing stands beside the address of `--embedded`, whatever else is known.
    #[test]
    fn embedded_offers_its_one_address() {
        for address in [Ipv4Addr::new(192, 168, 1, 20), Ipv4Addr::LOCALHOST] {
            let policy = LocalPolicy {
                host: Host::Address(address.into()),
                embedded: Some(address),
                extra: &ips(&["203.0.113.9"]),
            };
            assert_eq!(local_addresses(&busy_machine(), policy), [IpAddr::V4(address)]);
        }
    }

    #[test]
    fn further_addresses_come_first_and_once() {
        let extra = ips(&["203.0.113.9", "100.64.3.2", "203.0.113.9"]);
        let expected = ips(&["203.0.113.9", "100.64.3.2", "192.168.1.20", "192.168.1.21"]);
        assert_eq!(offered(&busy_machine(), Host::Address(ip("0.0.0.0")), &extra), expected);
        let extra = ips(&["127.0.0.1"]);
        assert_eq!(offered(&[], Host::Localhost, &extra), extra);
    }

    /// A runner in a strange place offers what there is rather than nothing.
    #[test]
    fn a_machine_with_nothing_better_offers_the_rest() {
        let containers = interfaces(&[("lo", "127.0.0.1"), ("docker0", "172.17.0.1"), ("vnet1", "10.1.1.1")]);
        let any = Host::Address(ip("0.0.0.0"));
        assert_eq!(offered(&containers, any, &[]), ips(&["172.17.0.1", "10.1.1.1"]));
        let alone = interfaces(&[("lo", "::1"), ("lo", "127.0.0.1"), ("eth0", "169.254.1.1")]);
        assert_eq!(offered(&alone, any, &[]), ips(&["127.0.0.1", "::1"]));
    }

    /// The cap takes from the interfaces, never loopback: the browser on the same machine needs it.
    #[test]
    fn the_number_of_addresses_has_a_cap() {
        let many: Vec<Interface> = (0..=u8::MAX)
            .map(|n| Interface {
                name: "eth0".into(),
                addr: ip(&format!("10.0.0.{n}")),
            })
            .collect();
        let found = offered(&many, Host::Localhost, &[]);
        assert_eq!(found.len(), LOCAL_ADDRESSES_MAX);
        assert_eq!(found.last(), Some(&ip("127.0.0.1")));
        let found = offered(&many[..LOCAL_ADDRESSES_MAX], Host::Address(ip("0.0.0.0")), &[]);
        assert_eq!(found.len(), LOCAL_ADDRESSES_MAX);
        let found = offered(&many, Host::Address(ip("0.0.0.0")), &[]);
        assert_eq!(found.len(), LOCAL_ADDRESSES_MAX);
    }
}
