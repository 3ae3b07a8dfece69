//! The content and renewal of the certificate of `--tls auto`.
//!
//! In: the names and addresses of this machine, the clock in seconds since 1970, and the stored
//! certificate ([`parsed`]). Out: the names to certify, the validity, the name constraints of the
//! authority, and the reason for a renewal. [`issue`] writes certificates. A clock before
//! [`RELEASED_S`] was never set; the release date or a later certificate then gives the time. An
//! authority is never replaced because of its age, since every device would have to trust the new
//! one. Source: RFC 5280 section 4.2.1; Apple's requirements for trusted certificates (825 days at
//! most).

pub mod issue;
pub mod parsed;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use self::parsed::Certificate;
pub use crate::limits::RELEASED_S;
use crate::limits::{AUTHORITY_VALID, CERTIFICATE_NAMES_MAX, CERTIFICATE_VALID};
use crate::sorting;
use std::time::Duration;

/// Time before its creation at which a certificate becomes valid: clocks of clients may be slow,
/// and some boards keep local time.
const CERTIFICATE_BACKDATED: Duration = Duration::from_secs(2 * 86_400);

const DAY_S: u64 = 86_400;

/// A name by which a client may address this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateName {
    /// In lower case, without a trailing dot.
    Dns(String),
    Address(IpAddr),
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateName::Dns(name) => f.write_str(name),
            CertificateName::Address(address) => address.fmt(f),
        }
    }
}

/// Returns the names by which clients may address this machine: `localhost`, its names and those of
/// the configuration, the `.local` name of each, and every address that a browser can open. Sorted,
/// at most [`CERTIFICATE_NAMES_MAX`].
pub fn certificate_names(host_names: &[String], addresses: &[IpAddr]) -> Vec<CertificateName> {
    let mut names = vec![
        CertificateName::Dns("localhost".into()),
        CertificateName::Address(Ipv4Addr::LOCALHOST.into()),
        CertificateName::Address(Ipv6Addr::LOCALHOST.into()),
    ];
    for name in host_names {
        match name.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => names.push(CertificateName::Address(address)),
            Err(_) => {
                if !name.contains('.') && name != "localhost" {
                    names.push(CertificateName::Dns(format!("{name}.local")));
                }
                names.push(CertificateName::Dns(name.clone()));
            }
        }
    }
    let usable = addresses.iter().filter(|address| is_for_browsers(**address));
    names.extend(usable.copied().map(CertificateName::Address));
    sorting::sort(&mut names);
    names.dedup();
    names.truncate(CERTIFICATE_NAMES_MAX);
    names
}

/// Link-local IPv6 addresses need a zone, which URLs do not support.
fn is_for_browsers(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_unspecified() && !address.is_multicast(),
        IpAddr::V6(address) => !address.is_unspecified() && !address.is_multicast() && !address.is_unicast_link_local(),
    }
}

/// Names that an authority may certify: all below a name, or all addresses of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameConstraint {
    Dns(String),
    /// An address and its prefix length in bits.
    Network(IpAddr, u8),
}

/// Top-level names that no public site has.
const PRIVATE_NAMES: [&str; 5] = ["localhost", "local", "lan", "home.arpa", "internal"];
/// Networks without public sites: loopback, private, shared (RFC 6598), link-local, and those of
/// IPv6.
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

/// Returns the name constraints of a new authority: private names and networks, and the machine
/// itself. A stolen key of a trusted authority then cannot certify other sites.
pub fn name_constraints(names: &[CertificateName]) -> Vec<NameConstraint> {
    let mut subtrees: Vec<NameConstraint> = PRIVATE_NAMES
        .iter()
        .map(|name| NameConstraint::Dns((*name).to_owned()))
        .chain(
            PRIVATE_NETWORKS
                .iter()
                .map(|&(network, bits)| NameConstraint::Network(network, bits)),
        )
        .collect();
    for name in names {
        if permits(&subtrees, name) {
            continue;
        }
        subtrees.push(match name {
            CertificateName::Dns(name) => NameConstraint::Dns(name.clone()),
            CertificateName::Address(address @ IpAddr::V4(_)) => NameConstraint::Network(*address, 32),
            // The host part of an address changes daily.
            CertificateName::Address(IpAddr::V6(address)) => {
                NameConstraint::Network(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(), 64)
            }
        });
    }
    subtrees
}

/// Returns whether an authority with these subtrees may certify a name.
pub fn permits(subtrees: &[NameConstraint], name: &CertificateName) -> bool {
    subtrees.iter().any(|subtree| match (subtree, name) {
        (NameConstraint::Dns(parent), CertificateName::Dns(name)) => {
            let above = name.strip_suffix(parent.as_str());
            above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
        }
        (&NameConstraint::Network(IpAddr::V4(network), bits), CertificateName::Address(IpAddr::V4(address))) => {
            (network.to_bits() ^ address.to_bits())
                .checked_shr(32 - u32::from(bits))
                .is_none_or(|differing| differing == 0)
        }
        (&NameConstraint::Network(IpAddr::V6(network), bits), CertificateName::Address(IpAddr::V6(address))) => {
            (network.to_bits() ^ address.to_bits())
                .checked_shr(128 - u32::from(bits))
                .is_none_or(|differing| differing == 0)
        }
        _ => false,
    })
}

/// The validity of a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from_s: u64,
    pub until_s: u64,
}

impl Validity {
    /// Returns the validity of a new certificate. It starts in the past, since clocks of clients
    /// may be slow.
    pub fn of_certificate(now_s: u64) -> Validity {
        let from_s = now_s - CERTIFICATE_BACKDATED.as_secs();
        Validity {
            from_s,
            until_s: from_s + CERTIFICATE_VALID.as_secs(),
        }
    }

    /// Returns the validity of a new authority. It starts before the release, so that the authority
    /// stays valid when a fast clock is corrected.
    pub fn of_authority(now_s: u64) -> Validity {
        Validity {
            from_s: RELEASED_S - 365 * DAY_S,
            until_s: now_s + AUTHORITY_VALID.as_secs(),
        }
    }

    /// Returns the remaining whole days.
    pub fn days_left(self, now_s: u64) -> u64 {
        self.until_s.saturating_sub(now_s) / DAY_S
    }
}

/// Returns a plausible time. A clock before the release was never set; the creation of a stored
/// certificate is then a lower bound.
pub fn plausible_now(clock_s: u64, kept: Option<&Certificate>) -> u64 {
    if clock_s >= RELEASED_S {
        return clock_s;
    }
    let made_s = kept.map_or(0, |kept| kept.validity.from_s + CERTIFICATE_BACKDATED.as_secs());
    made_s.max(RELEASED_S)
}

/// The reason to issue a new certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewalReason {
    /// It lacks a name that clients may use.
    Missing(CertificateName),
    /// A third of its validity remains.
    Ending,
    /// It is not yet valid: it was issued while the clock was fast.
    Ahead,
}

impl fmt::Display for RenewalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RenewalReason::Missing(name) => write!(f, "{name} is not in the one before"),
            RenewalReason::Ending => f.write_str("the one before ends soon"),
            RenewalReason::Ahead => f.write_str("the one before was made while the clock was ahead"),
        }
    }
}

/// Returns whether a new certificate is due; `wanted` are the names that its authority may certify.
pub fn renewal_reason(kept: &Certificate, wanted: &[CertificateName], clock_s: u64) -> Option<RenewalReason> {
    let Validity { from_s, until_s } = kept.validity;
    let now_s = plausible_now(clock_s, Some(kept));
    if from_s > now_s {
        return Some(RenewalReason::Ahead);
    }
    if until_s.saturating_sub(now_s) < (until_s - from_s) / 3 {
        return Some(RenewalReason::Ending);
    }
    let missing = wanted.iter().find(|name| !kept.names.contains(name));
    missing.cloned().map(RenewalReason::Missing)
}

/// Returns the names of the next certificate: the wanted ones, and those of the last one as far as
/// they fit, so that changing interfaces, or a second runner with other names, do not cause a new
/// certificate each time.
pub fn next_names(
    wanted: &[CertificateName],
    last: Option<&Certificate>,
    subtrees: &[NameConstraint],
) -> Vec<CertificateName> {
    let mut names = wanted.to_vec();
    if let Some(last) = last {
        names.extend(last.names.iter().filter(|name| permits(subtrees, name)).cloned());
        sorting::sort(&mut names);
        names.dedup();
    }
    if names.len() > CERTIFICATE_NAMES_MAX {
        return wanted.to_vec();
    }
    names
}

#[cfg(test)]
mod tests;
