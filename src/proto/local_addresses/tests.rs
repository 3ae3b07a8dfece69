//! What different machines offer.

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn ips(text: &[&str]) -> Vec<IpAddr> {
    text.iter().copied().map(ip).collect()
}

fn interfaces(list: &[(&str, &str)]) -> Vec<InterfaceAddress> {
    let interface = |(name, address): &(&str, &str)| InterfaceAddress {
        name: (*name).to_owned(),
        addr: ip(address),
    };
    list.iter().map(interface).collect()
}

pub(crate) fn busy_machine() -> Vec<InterfaceAddress> {
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

fn offered(list: &[InterfaceAddress], host: Host, extra: &[IpAddr]) -> Vec<IpAddr> {
    let policy = LocalCandidatePolicy {
        host,
        embedded: None,
        extra_addresses: extra,
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

/// IPv4 comes first, tunnels later, loopback last. Container interfaces and link-local addresses
/// are left out.
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

/// only the address of `--embedded` is offered.
#[test]
fn embedded_offers_its_one_address() {
    for address in [Ipv4Addr::new(192, 168, 1, 20), Ipv4Addr::LOCALHOST] {
        let policy = LocalCandidatePolicy {
            host: Host::Address(address.into()),
            embedded: Some(address),
            extra_addresses: &ips(&["203.0.113.9"]),
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

/// Without better interfaces, the remaining ones are offered.
#[test]
fn unusual_interfaces_are_offered_if_there_are_no_others() {
    let containers = interfaces(&[("lo", "127.0.0.1"), ("docker0", "172.17.0.1"), ("vnet1", "10.1.1.1")]);
    let any = Host::Address(ip("0.0.0.0"));
    assert_eq!(offered(&containers, any, &[]), ips(&["172.17.0.1", "10.1.1.1"]));
    let alone = interfaces(&[("lo", "::1"), ("lo", "127.0.0.1"), ("eth0", "169.254.1.1")]);
    assert_eq!(offered(&alone, any, &[]), ips(&["127.0.0.1", "::1"]));
}

/// The cap removes interface addresses but keeps loopback, for browsers on this machine.
#[test]
fn the_number_of_addresses_has_a_cap() {
    let many: Vec<InterfaceAddress> = (0..=u8::MAX)
        .map(|n| InterfaceAddress {
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
