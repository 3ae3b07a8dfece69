//! Checks interfaces, routes and ports: whether callers can reach an address, and which process
//! uses a port.
//!
//! In: the addresses of interfaces, the offered addresses, and the text of files of `/proc/net`.
//! Out: findings, and the socket inodes of a port's owner. Source: proc(5), RFC 3927 (169.254/16),
//! RFC 4291.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Finding;
use crate::address_scope::AddressScope;
use crate::address_scope::InterfaceAddress;
use crate::config::Config;

/// Checks the addresses that clients would be offered.
pub fn addresses(interfaces: &[InterfaceAddress], offered: &[IpAddr], embedded: Option<Ipv4Addr>) -> Finding {
    const WHAT: &str = "addresses";
    let has = |address: IpAddr| interfaces.iter().any(|interface| interface.addr == address);
    if let Some(address) = embedded {
        return if has(address.into()) {
            Finding::ok(WHAT, format!("devices are offered only {address}"))
        } else {
            Finding::error(
                WHAT,
                format!(
                    "devices would be offered {address}, which no interface of this machine has; {}",
                    interface_list(interfaces)
                ),
            )
        };
    }
    let beyond: Vec<String> = offered
        .iter()
        .filter(|address| !address.is_loopback())
        .map(IpAddr::to_string)
        .collect();
    if !beyond.is_empty() {
        return Finding::ok(WHAT, format!("clients are offered {}", beyond.join(", ")));
    }
    let without_dhcp = interfaces.iter().find(|interface| match interface.addr {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(_) => false,
    });
    match without_dhcp {
        Some(InterfaceAddress { name, addr }) => Finding::error(
            WHAT,
            format!(
                "{name} has only the self-assigned address {addr}, because no DHCP server answered; check the cable or the \
                 Wi-Fi, or configure an address"
            ),
        ),
        None => Finding::warning(
            WHAT,
            "only clients on this machine can connect: no interface has an external address, or --host is a loopback \
             address; check the cable or the Wi-Fi",
        ),
    }
}

fn interface_list(interfaces: &[InterfaceAddress]) -> String {
    let others: Vec<String> = interfaces
        .iter()
        .filter(|interface| interface.addr.is_ipv4() && !interface.addr.is_loopback())
        .map(|interface| interface.addr.to_string())
        .collect();
    if others.is_empty() {
        "it has only loopback addresses".to_owned()
    } else {
        format!("it has {}", others.join(", "))
    }
}

/// Judges who may call. `sockets` are the WebSocket paths of this build.
pub fn access(config: &Config, sockets: Option<&str>) -> Finding {
    const WHAT: &str = "access";
    if let Some(words) = config.open_access_warning() {
        return Finding::warning(WHAT, words);
    }
    match (&config.api_key, sockets) {
        (Some(_), Some(paths)) if !config.ws_tokens && !config.direct => Finding::warning(
            WHAT,
            format!(
                "HTTP requests need the key, but {paths} are open to everybody; require a token with --ws-auth token"
            ),
        ),
        (Some(_), _) => Finding::ok(WHAT, "callers need the key"),
        (None, _) if config.direct => Finding::ok(
            WHAT,
            "the bot joins a room by itself; no caller connects to this machine",
        ),
        (None, _) => Finding::ok(
            WHAT,
            "HTTP and WebSockets are open to programs on this machine only, without a key",
        ),
    }
}

/// Checks IPv6 by the addresses and the text of `/proc/net/ipv6_route`, which systems without IPv6
/// and those other than Linux lack. A machine without IPv6 is fine.
pub fn ipv6(interfaces: &[InterfaceAddress], routes: Option<&str>) -> Finding {
    const WHAT: &str = "ipv6";
    let any = |is_it: fn(Ipv6Addr) -> bool| {
        interfaces.iter().any(|interface| match interface.addr {
            IpAddr::V6(v6) => is_it(v6),
            IpAddr::V4(_) => false,
        })
    };
    // Systems prefer IPv4 to a unique local address for remote targets, so it delays no connection.
    let (global, local) = (any(is_global), any(|address| address.is_unique_local()));
    let Some(routes) = routes else {
        return Finding::ok(
            WHAT,
            match global {
                true => "a global address; this system does not tell its routes",
                false => "not available; IPv4 is enough",
            },
        );
    };
    match (global, has_default_route(routes)) {
        (true, true) => Finding::ok(WHAT, "a global address and a default route"),
        (false, true) if local => Finding::ok(
            WHAT,
            "addresses of the local network only; IPv4 is used for the Internet",
        ),
        (false, false) => Finding::ok(WHAT, "not available; IPv4 is enough"),
        (true, false) => Finding::warning(
            WHAT,
            "a global address but no default route, so only IPv4 reaches the Internet; check the router",
        ),
        (false, true) => Finding::warning(
            WHAT,
            "a default route but no global address, so connections that try IPv6 first are delayed; check the router, or \
             turn IPv6 off on this machine",
        ),
    }
}

fn is_global(address: Ipv6Addr) -> bool {
    AddressScope::of(address.into()) == AddressScope::Public && !address.is_unspecified() && !address.is_multicast()
}

/// Returns whether there is a default route: destination and prefix of zero, the flag for "up", no
/// loopback.
fn has_default_route(routes: &str) -> bool {
    const UP: u32 = 1;
    // The flag of a route that rejects packets.
    const REJECT: u32 = 0x200;
    routes.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, "00", _, _, _, _, _, _, flags, interface] = fields[..] else {
            return false;
        };
        let flags = u32::from_str_radix(flags, 16).unwrap_or(0);
        destination.bytes().all(|byte| byte == b'0') && flags & UP != 0 && flags & REJECT == 0 && interface != "lo"
    })
}

/// Returns the inodes of the sockets that hold a port, from the text of `/proc/net/tcp` or a
/// similar file.
///
/// For TCP only listening sockets count, since a closing connection does not block a listener.
pub fn holders(sockets: &str, port: u16, listening: bool) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let held = u16::from_str_radix(local, 16).ok()? == port;
        let counts = !listening || *fields.get(3)? == LISTEN;
        (held && counts).then(|| fields.get(9)?.parse().ok())?
    };
    sockets.lines().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingLevel;

    fn interface(name: &str, addr: &str) -> InterfaceAddress {
        InterfaceAddress {
            name: name.to_owned(),
            addr: addr.parse().expect("an address"),
        }
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn reports_addresses_and_their_absence() {
        let lo = interface("lo", "127.0.0.1");
        let lan = interface("eth0", "192.168.1.5");
        let lonely = interface("eth0", "169.254.17.2");
        let both = addresses(&[lo.clone(), lan.clone()], &ips(&["192.168.1.5", "127.0.0.1"]), None);
        assert_eq!(both, Finding::ok("addresses", "clients are offered 192.168.1.5"));
        let alone = addresses(std::slice::from_ref(&lo), &ips(&["127.0.0.1"]), None);
        assert_eq!(alone.level, FindingLevel::Warning);
        let without_dhcp = addresses(&[lo.clone(), lonely], &ips(&["127.0.0.1"]), None);
        assert_eq!(without_dhcp.level, FindingLevel::Error);
        assert!(without_dhcp.text.contains("eth0") && without_dhcp.text.contains("DHCP"));
        let device = |address: &str| {
            let address = address.parse().expect("an address");
            addresses(&[lo.clone(), lan.clone()], &[], Some(address))
        };
        assert_eq!(device("192.168.1.5").level, FindingLevel::Ok);
        let wrong = device("192.168.1.6");
        assert_eq!(wrong.level, FindingLevel::Error);
        assert!(wrong.text.ends_with("it has 192.168.1.5"), "{}", wrong.text);
    }

    /// A key alone leaves the WebSockets open; a public proxy opens a runner that listens on
    /// loopback.
    #[test]
    fn reports_who_may_call() {
        let judge = |key: bool, tokens: bool, proxy: Option<&str>, sockets| {
            let config = Config {
                api_key: key.then(|| crate::secret::Secret::new("k")),
                ws_tokens: tokens,
                proxy: proxy.map(str::to_owned),
                ..Config::default()
            };
            access(&config, sockets)
        };
        let paths = Some("/ws and /ws-client");
        assert_eq!(judge(false, false, None, paths).level, FindingLevel::Ok);
        let through_a_proxy = judge(false, true, Some("bots.lan"), paths);
        assert_eq!(through_a_proxy.level, FindingLevel::Warning);
        assert!(
            through_a_proxy.text.contains("reaches bots.lan"),
            "{}",
            through_a_proxy.text
        );
        let without_tokens = judge(true, false, None, paths);
        assert_eq!(without_tokens.level, FindingLevel::Warning);
        assert!(
            without_tokens.text.contains("/ws-client are open"),
            "{}",
            without_tokens.text
        );
        assert_eq!(judge(true, true, Some("bots.lan"), paths).level, FindingLevel::Ok);
        assert_eq!(judge(true, false, None, None).level, FindingLevel::Ok);
    }

    /// Lines as Linux writes them: a default route, one that is refused, one of loopback, and a
    /// network's own.
    #[test]
    fn distinguishes_broken_absent_and_working_ipv6() {
        let zeros = "0".repeat(32);
        let line = |prefix: &str, flags: &str, interface: &str| {
            format!(
                "{zeros} {prefix} {zeros} 00 fe800000000000000000000000000001 00000400 00000001 00000000 {flags} {interface}\n"
            )
        };
        let out = line("00", "00000003", "eth0");
        let none = line("00", "00200200", "lo") + &line("00", "00000001", "lo") + &line("40", "00000001", "eth0");
        let global = [interface("eth0", "2001:db8::5")];
        let local = [interface("eth0", "fe80::5"), interface("lo", "::1")];
        let unique = [interface("eth0", "fd00::5")];
        for (interfaces, routes, verdict) in [
            (&global[..], &out, FindingLevel::Ok),
            (&local[..], &none, FindingLevel::Ok),
            (&local[..], &out, FindingLevel::Warning),
            (&unique[..], &out, FindingLevel::Ok),
            (&unique[..], &none, FindingLevel::Ok),
            (&global[..], &none, FindingLevel::Warning),
        ] {
            assert_eq!(ipv6(interfaces, Some(routes)).level, verdict, "{routes}");
        }
        assert_eq!(ipv6(&[], Some("rubbish\n\n00\n")).level, FindingLevel::Ok);
        let unknown = ipv6(&global, None);
        assert_eq!(unknown.level, FindingLevel::Ok);
        assert!(unknown.text.contains("does not tell its routes"), "{}", unknown.text);
        assert_eq!(ipv6(&local, None), ipv6(&local, Some("")));
    }

    #[test]
    fn finds_the_owner_of_a_port() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:1EB4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0\n\
            \x20  1: 0100007F:1EB4 0100007F:D431 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0\n\
            \x20  2: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0\n\
            rubbish\n";
        assert_eq!(holders(text, 7860, true), [4711]);
        assert_eq!(holders(text, 7860, false), [4711, 0]);
        assert_eq!(holders(text, 80, true), [4712]);
        assert_eq!(holders(text, 81, true), [0u64; 0]);
    }
}
