//! Tests of the addresses that proxies name.

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
