//! Who may use the setup page: neighbours in the board's own private networks, under the board's
//! own names.
//!
//! In: the address of the peer, the networks of the interfaces, `Host`, `Origin`, content type.
//! Out: nothing, or a [`GuardError`] with a text for the client. A page of another site is kept out
//! by three rules: its name is not the board's (DNS rebinding), its origin is not this one, and it
//! cannot send JSON without a preflight, which is never granted.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use crate::address_scope::AddressScope;
use crate::http::host;

/// A network that an interface of the board is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceNetwork {
    /// The board's address.
    pub address: Ipv4Addr,
    /// The length of the network's prefix, in bits.
    pub prefix_bits: u8,
}

impl InterfaceNetwork {
    fn contains(self, peer: Ipv4Addr) -> bool {
        let mask = u32::MAX
            .checked_shl(32 - u32::from(self.prefix_bits.min(32)))
            .unwrap_or(0);
        u32::from(peer) & mask == u32::from(self.address) & mask
    }
}

/// The name of a board that is not set up yet, below `.local`.
pub const SETUP_NAME: &str = "edge-runner";

/// The head of a request, as far as the setup reads it.
#[derive(Clone, Copy, Debug)]
pub struct SetupHead<'r> {
    pub is_post: bool,
    /// The only `Host`; `None` if there is none, or several.
    pub host: Option<&'r [u8]>,
    pub origin: Option<&'r [u8]>,
    pub content_type: Option<&'r [u8]>,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardError {
    /// The peer is not in one of the board's private networks.
    NotNeighbour,
    /// The request is for another name.
    OtherHost,
    /// A page of another origin sent it, or no page at all.
    OtherOrigin,
    /// The body is not JSON.
    NotJson,
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GuardError::NotNeighbour => {
                "this board is not set up yet. Its setup page opens only on devices in the same local network as the board"
            }
            GuardError::OtherHost => {
                "this board is not set up yet. Open its setup page as http://edge-runner.local, or by the board's IP address"
            }
            GuardError::OtherOrigin => "only the setup page of this board can send settings",
            GuardError::NotJson => "settings are sent as application/json",
        })
    }
}

impl std::error::Error for GuardError {}

impl GuardError {
    /// Returns the HTTP status.
    pub fn status(self) -> u16 {
        match self {
            GuardError::NotNeighbour | GuardError::OtherOrigin => 403,
            GuardError::OtherHost => 421,
            GuardError::NotJson => 415,
        }
    }
}

/// Checks the peer of a connection. Loopback counts as a network of the board, because its programs
/// are the owner's.
///
/// # Errors
/// [`GuardError::NotNeighbour`] for an address of the Internet or of a network that a router
/// connects.
pub fn check_peer(peer: IpAddr, networks: &[InterfaceNetwork]) -> Result<(), GuardError> {
    let IpAddr::V4(v4) = peer.to_canonical() else {
        return Err(GuardError::NotNeighbour);
    };
    let is_near = match AddressScope::of(v4.into()) {
        AddressScope::Loopback => true,
        AddressScope::LinkLocal | AddressScope::Private => networks.iter().any(|network| network.contains(v4)),
        AddressScope::Shared | AddressScope::Public => false,
    };
    is_near.then_some(()).ok_or(GuardError::NotNeighbour)
}

/// Checks the head of a request. `name` is the host name of the board. An address of another
/// machine is that of a router or proxy, whose clients do not show their own.
///
/// # Errors
/// The first [`GuardError`] that applies.
pub fn check_head(head: SetupHead<'_>, name: &str, networks: &[InterfaceNetwork]) -> Result<(), GuardError> {
    let host = head.host.ok_or(GuardError::OtherHost)?;
    let is_own = |address: IpAddr| address.is_loopback() || networks.iter().any(|network| network.address == address);
    if !host::is_board(host, &[name, SETUP_NAME]) && !host::address(host).is_some_and(is_own) {
        return Err(GuardError::OtherHost);
    }
    if !head.is_post {
        return Ok(());
    }
    let is_same = head
        .origin
        .and_then(|origin| origin.strip_prefix(b"http://"))
        .is_some_and(|origin| origin.eq_ignore_ascii_case(host));
    if !is_same {
        return Err(GuardError::OtherOrigin);
    }
    let kind = head.content_type.unwrap_or_default();
    let kind = kind.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    match kind.eq_ignore_ascii_case(b"application/json") {
        true => Ok(()),
        false => Err(GuardError::NotJson),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> InterfaceNetwork {
        let (address, bits) = text.split_once('/').expect("a prefix");
        InterfaceNetwork {
            address: address.parse().expect("an address"),
            prefix_bits: bits.parse().expect("a number"),
        }
    }

    #[test]
    fn only_neighbours_in_private_networks_pass() {
        let networks = [
            network("192.168.1.50/24"),
            network("169.254.3.4/16"),
            network("203.0.113.5/24"),
            network("10.0.2.15/32"),
        ];
        let passes = |peer: &str| check_peer(peer.parse().expect("an address"), &networks).is_ok();
        for peer in [
            "192.168.1.7",
            "::ffff:192.168.1.7",
            "169.254.200.1",
            "127.0.0.1",
            "10.0.2.15",
        ] {
            assert!(passes(peer), "{peer}");
        }
        // Another private network behind a router, neighbours with public addresses, the Internet.
        for peer in [
            "192.168.2.7",
            "10.0.2.16",
            "203.0.113.6",
            "8.8.8.8",
            "100.64.0.1",
            "fe80::1",
            "2001:db8::1",
            "0.0.0.0",
        ] {
            assert!(!passes(peer), "{peer}");
        }
        let all = [network("192.168.1.50/0")];
        assert!(check_peer("10.1.1.1".parse().expect("an address"), &all).is_ok());
        assert!(check_peer("10.1.1.1".parse().expect("an address"), &[]).is_err());
    }

    #[test]
    fn only_names_of_the_board_pass() {
        let get = |host: &'static str| {
            let head = SetupHead {
                is_post: false,
                host: Some(host.as_bytes()),
                origin: None,
                content_type: None,
            };
            check_head(head, "kitchen", &[network("192.168.1.50/24")])
        };
        for host in [
            "edge-runner.local",
            "Edge-Runner.local:80",
            "edge-runner.local.",
            // systemd-resolved adds a number to a name that another board has.
            "edge-runner2.local",
            "kitchen.local",
            "kitchen7.local:8080",
            "kitchen",
            "192.168.1.50",
            "192.168.1.50:80",
            "[::ffff:192.168.1.50]",
            "127.0.0.1:8080",
            "localhost:8080",
        ] {
            assert_eq!(get(host), Ok(()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "edge-runner.local.evil.example",
            "other.local",
            "edge-runnerx.local",
            "2.local",
            // The address of a router, or of another machine.
            "203.0.113.5",
            "192.168.1.51",
            "[fe80::1]:80",
            "edge-runner.local@evil.example",
            "kitchen.example",
        ] {
            assert_eq!(get(host), Err(GuardError::OtherHost), "{host}");
        }
        let none = SetupHead {
            is_post: false,
            host: None,
            origin: None,
            content_type: None,
        };
        assert_eq!(check_head(none, "kitchen", &[]), Err(GuardError::OtherHost));
    }

    #[test]
    fn only_the_page_of_the_board_sends_settings() {
        let post = |origin: Option<&'static str>, kind: Option<&'static str>| {
            let head = SetupHead {
                is_post: true,
                host: Some(b"edge-runner.local"),
                origin: origin.map(str::as_bytes),
                content_type: kind.map(str::as_bytes),
            };
            check_head(head, "kitchen", &[])
        };
        let json = Some("application/json; charset=utf-8");
        assert_eq!(post(Some("http://edge-runner.local"), json), Ok(()));
        for origin in [
            None,
            Some("null"),
            Some("http://evil.example"),
            Some("https://edge-runner.local"),
            Some("http://edge-runner.local:7860"),
            Some("http://kitchen.local"),
        ] {
            assert_eq!(post(origin, json), Err(GuardError::OtherOrigin), "{origin:?}");
        }
        for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
            assert_eq!(
                post(Some("http://edge-runner.local"), kind),
                Err(GuardError::NotJson),
                "{kind:?}"
            );
        }
    }
}
