//! What the certificate of `--tls auto` says, and when another one is due.
//!
//! In: the names and addresses of this machine, the clock in seconds since 1970, and what a kept certificate says
//! ([`known`]). Out: the names to certify, the time a certificate is valid for, what its authority may vouch for, and the
//! reason why another certificate is due. [`issue`] writes certificates.
//! A clock before [`RELEASED_S`] is one that nobody has set: time is then taken from the release, or from a later
//! certificate. Authorities are never replaced for the sake of time, since every device would have to trust the new one.
//! Source: RFC 5280 section 4.2.1; Apple's requirements for trusted certificates (825 days at most).

pub mod issue;
pub mod known;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use self::known::Certificate;
pub use crate::limits::RELEASED_S;
use crate::limits::{AUTHORITY_VALID, CERTIFICATE_BACKDATED, CERTIFICATE_NAMES_MAX, CERTIFICATE_VALID};

const DAY_S: u64 = 86_400;

/// What a client may call this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// In lower case, without a dot at its end.
    Dns(String),
    Address(IpAddr),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Dns(name) => f.write_str(name),
            Name::Address(address) => address.fmt(f),
        }
    }
}

/// Returns what clients may call this machine: `localhost`, its names and those of the configuration, the `.local` name of
/// each, and every address that a browser can open. Sorted, at most [`CERTIFICATE_NAMES_MAX`].
pub fn wanted(host_names: &[String], addresses: &[IpAddr]) -> Vec<Name> {
    let mut names = vec![
        Name::Dns("localhost".into()),
        Name::Address(Ipv4Addr::LOCALHOST.into()),
        Name::Address(Ipv6Addr::LOCALHOST.into()),
    ];
    for name in host_names {
        match name.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => names.push(Name::Address(address)),
            Err(_) => {
                if !name.contains('.') && name != "localhost" {
                    names.push(Name::Dns(format!("{name}.local")));
                }
                names.push(Name::Dns(name.clone()));
            }
        }
    }
    let usable = addresses.iter().filter(|address| is_for_browsers(**address));
    names.extend(usable.copied().map(Name::Address));
    names.sort_unstable();
    names.dedup();
    names.truncate(CERTIFICATE_NAMES_MAX);
    names
}

/// A link-local IPv6 address needs a zone, which no URL has.
fn is_for_browsers(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_unspecified() && !address.is_multicast(),
        IpAddr::V6(address) => !address.is_unspecified() && !address.is_multicast() && !address.is_unicast_link_local(),
    }
}

/// What an authority may vouch for: everything below a name, or every address of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subtree {
    Dns(String),
    /// An address and the length of its prefix in bits.
    Network(IpAddr, u8),
}

/// Names that no public site can have.
const PRIVATE_NAMES: [&str; 5] = ["localhost", "local", "lan", "home.arpa", "internal"];
/// Networks that no public site can be in: loopback, private, shared (RFC 6598), link-local, and those of IPv6.
const PRIVATE_NETWORKS: [(IpAddr, u8); 9] = [
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
];

/// Returns what a new authority of a machine with these names may vouch for: the private world, and the machine itself. Who
/// trusts it need not fear that its key, on a board in a drawer, opens the rest of the web.
pub fn permitted(names: &[Name]) -> Vec<Subtree> {
    let mut subtrees: Vec<Subtree> = PRIVATE_NAMES
        .iter()
        .map(|name| Subtree::Dns((*name).to_owned()))
        .chain(
            PRIVATE_NETWORKS
                .iter()
                .map(|&(network, bits)| Subtree::Network(network, bits)),
        )
        .collect();
    for name in names {
        if permits(&subtrees, name) {
            continue;
        }
        subtrees.push(match name {
            Name::Dns(name) => Subtree::Dns(name.clone()),
            Name::Address(address @ IpAddr::V4(_)) => Subtree::Network(*address, 32),
            // The host's half of an address changes from day to day.
            Name::Address(IpAddr::V6(address)) => {
                Subtree::Network(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(), 64)
            }
        });
    }
    subtrees
}

/// Tells whether an authority with these subtrees may vouch for a name.
pub fn permits(subtrees: &[Subtree], name: &Name) -> bool {
    subtrees.iter().any(|subtree| match (subtree, name) {
        (Subtree::Dns(parent), Name::Dns(name)) => {
            let above = name.strip_suffix(parent.as_str());
            above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
        }
        (&Subtree::Network(IpAddr::V4(network), bits), Name::Address(IpAddr::V4(address))) => (network.to_bits()
            ^ address.to_bits())
        .checked_shr(32 - u32::from(bits))
        .is_none_or(|differing| differing == 0),
        (&Subtree::Network(IpAddr::V6(network), bits), Name::Address(IpAddr::V6(address))) => (network.to_bits()
            ^ address.to_bits())
        .checked_shr(128 - u32::from(bits))
        .is_none_or(|differing| differing == 0),
        _ => false,
    })
}

/// From when until when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from_s: u64,
    pub until_s: u64,
}

impl Validity {
    /// Returns that of a new certificate. It begins in the past: clocks of clients are behind at times.
    pub fn of_certificate(now_s: u64) -> Validity {
        let from_s = now_s - CERTIFICATE_BACKDATED.as_secs();
        Validity {
            from_s,
            until_s: from_s + CERTIFICATE_VALID.as_secs(),
        }
    }

    /// Returns that of a new authority, which begins before the release: a clock that was ahead, and is put right, must not
    /// make it one of the future.
    pub fn of_authority(now_s: u64) -> Validity {
        Validity {
            from_s: RELEASED_S - 365 * DAY_S,
            until_s: now_s + AUTHORITY_VALID.as_secs(),
        }
    }

    /// Returns how many whole days are left, none when it is over.
    pub fn days_left(self, now_s: u64) -> u64 {
        self.until_s.saturating_sub(now_s) / DAY_S
    }
}

/// Returns the time to go by. A clock before the release was never set, and the truth is no earlier than the day on which a
/// kept certificate was made.
pub fn believed(clock_s: u64, kept: Option<&Certificate>) -> u64 {
    if clock_s >= RELEASED_S {
        return clock_s;
    }
    let made_s = kept.map_or(0, |kept| kept.validity.from_s + CERTIFICATE_BACKDATED.as_secs());
    made_s.max(RELEASED_S)
}

/// Why another certificate is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Clients may use a name that is not in it.
    Missing(Name),
    /// A third of its time is left.
    Ending,
    /// Its time has not come: it was made while the clock was ahead.
    Ahead,
}

impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Due::Missing(name) => write!(f, "{name} is not in the one before"),
            Due::Ending => f.write_str("the one before ends soon"),
            Due::Ahead => f.write_str("the one before was made while the clock was ahead"),
        }
    }
}

/// Tells whether another certificate is due; `wanted` is what its authority may vouch for.
pub fn due(kept: &Certificate, wanted: &[Name], clock_s: u64) -> Option<Due> {
    let Validity { from_s, until_s } = kept.validity;
    let now_s = believed(clock_s, Some(kept));
    if from_s > now_s {
        return Some(Due::Ahead);
    }
    if until_s.saturating_sub(now_s) < (until_s - from_s) / 3 {
        return Some(Due::Ending);
    }
    let missing = wanted.iter().find(|name| !kept.names.contains(name));
    missing.cloned().map(Due::Missing)
}

/// Returns the names of the next certificate: those that are wanted, and those of the last one while there is room, so that
/// an interface that comes and goes, or a second runner with other names, does not ask for another one each time.
pub fn next_names(wanted: &[Name], last: Option<&Certificate>, subtrees: &[Subtree]) -> Vec<Name> {
    let mut names = wanted.to_vec();
    if let Some(last) = last {
        names.extend(last.names.iter().filter(|name| permits(subtrees, name)).cloned());
        names.sort_unstable();
        names.dedup();
    }
    if names.len() > CERTIFICATE_NAMES_MAX {
        return wanted.to_vec();
    }
    names
}

#[cfg(test)]
mod tests;
