//! Which candidates of a peer are used, and what devices are offered.

use super::*;
use crate::local_addresses::local_addresses;
use crate::local_addresses::tests::busy_machine;
use str0m::Candidate;

const NO_LOOPBACK: RemoteCandidatePolicy = RemoteCandidatePolicy {
    loopback_offered: false,
    named_by_operator: false,
};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn ips(text: &[&str]) -> Vec<IpAddr> {
    text.iter().copied().map(ip).collect()
}

/// str0m parses the normalized candidates, and reads the same values.
#[test]
fn usable_candidates_are_normalized() {
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
            "candidate:9 1 udp 1 fd12::1 1024 typ prflx",
            "candidate:9 1 udp 1 fd12::1 1024 typ prflx",
        ),
        (
            "candidate:9 1 udp 0 10.0.0.1 5353 typ host",
            "candidate:9 1 udp 1 10.0.0.1 5353 typ host",
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
fn unusable_candidates_are_ignored_with_a_reason() {
    let with = |address: &str| format!("candidate:1 1 udp 1 {address} 9000 typ host");
    for (text, why) in [
        (String::new(), CandidateError::EndOfCandidates),
        (" \r\n".into(), CandidateError::EndOfCandidates),
        ("a=end-of-candidates".into(), CandidateError::EndOfCandidates),
        ("candidate:".into(), CandidateError::EndOfCandidates),
        (
            "candidate:1 1 udp 1 192.0.2.1 9000 typ".into(),
            CandidateError::Malformed,
        ),
        (
            "candidate:1 1 udp 1 192.0.2.1 9000 type host".into(),
            CandidateError::Malformed,
        ),
        (
            "candidate:1 1 udp 1 192.0.2.1 9000 typ guest".into(),
            CandidateError::Malformed,
        ),
        (
            "candidate:1 1 udp x 192.0.2.1 9000 typ host".into(),
            CandidateError::Malformed,
        ),
        (
            "candidate:1 1 udp 4294967296 192.0.2.1 9000 typ host".into(),
            CandidateError::Malformed,
        ),
        (
            "candidate:1 1 udp 1 192.0.2.1 65536 typ host".into(),
            CandidateError::Malformed,
        ),
        (
            "candidate:1 -1 udp 1 192.0.2.1 9000 typ host".into(),
            CandidateError::Malformed,
        ),
        (
            format!("candidate:{} 1 udp 1 192.0.2.1 9 typ host", "f".repeat(33)),
            CandidateError::Malformed,
        ),
        (
            "candidate:\u{7f} 1 udp 1 192.0.2.1 9000 typ host".into(),
            CandidateError::Malformed,
        ),
        (
            "candidate:1 2 udp 1 192.0.2.1 9000 typ host".into(),
            CandidateError::Component,
        ),
        (
            "candidate:1 1 tcp 1 192.0.2.1 9 typ host tcptype active".into(),
            CandidateError::Transport,
        ),
        (
            "candidate:1 1 ssltcp 1 192.0.2.1 443 typ host".into(),
            CandidateError::Transport,
        ),
        ("candidate:1 1 udp 1 192.0.2.1 0 typ host".into(), CandidateError::Port),
        (
            "candidate:1 1 udp 1 192.0.2.1 1 typ host".into(),
            CandidateError::Privileged(1),
        ),
        (
            "candidate:1 1 udp 1 192.0.2.1 1023 typ relay".into(),
            CandidateError::Privileged(1023),
        ),
        (with("6d1f2c84-3b0a-4e57.local"), CandidateError::Mdns),
        (with("PRINTER.LOCAL."), CandidateError::Mdns),
        (with("metadata.example.com"), CandidateError::Name),
        (with("192.0.2.256"), CandidateError::Malformed),
        (with("[2001:db8::1]"), CandidateError::Malformed),
        (with("fe80::1%eth0"), CandidateError::Malformed),
        (with("0.0.0.0"), CandidateError::Address(ip("0.0.0.0"))),
        (with("0.1.2.3"), CandidateError::Address(ip("0.1.2.3"))),
        (with("255.255.255.255"), CandidateError::Address(ip("255.255.255.255"))),
        (with("224.0.0.251"), CandidateError::Address(ip("224.0.0.251"))),
        (with("::"), CandidateError::Address(ip("::"))),
        (with("::ffff:224.0.0.1"), CandidateError::Address(ip("224.0.0.1"))),
        (with("ff02::fb"), CandidateError::Address(ip("ff02::fb"))),
        (with("fe80::1"), CandidateError::Address(ip("fe80::1"))),
        (with("127.0.0.2"), CandidateError::Loopback(ip("127.0.0.2"))),
        (with("::1"), CandidateError::Loopback(ip("::1"))),
        (with("::ffff:127.0.0.1"), CandidateError::Loopback(ip("127.0.0.1"))),
    ] {
        assert_eq!(parse_remote(&text, &NO_LOOPBACK), Err(why), "{text}");
        assert!(!why.to_string().is_empty());
    }
}

/// loopback candidates count only when the runner itself offers loopback.
#[test]
fn loopback_is_used_where_it_is_offered() {
    let policy = RemoteCandidatePolicy {
        loopback_offered: true,
        ..NO_LOOPBACK
    };
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
        Err(CandidateError::TooLong)
    );
    let ufrag = |bytes: usize| {
        format!(
            "candidate:1 1 udp 1 192.0.2.1 9000 typ host ufrag {}",
            "u".repeat(bytes)
        )
    };
    let kept = |bytes| parse_remote(&ufrag(bytes), &NO_LOOPBACK).expect("usable").text == ufrag(bytes);
    assert!(kept(ICE_UFRAG_BYTES_MAX) && !kept(ICE_UFRAG_BYTES_MAX + 1));
}

/// without `--embedded` a device is offered the address of `--host`, or the one that its
/// request reached; otherwise a guess, marked as such.
#[test]
fn a_device_is_offered_the_address_that_it_reached() {
    let reported = |host: &str, extra: &[IpAddr], reached: Option<&str>| {
        let host = match host {
            "localhost" => Host::Localhost,
            host => Host::Address(ip(host)),
        };
        let policy = LocalCandidatePolicy {
            host,
            embedded: None,
            extra_addresses: extra,
        };
        let offered = local_addresses(&busy_machine(), policy);
        let reported = device_address(policy, reached.map(ip), &offered);
        reported.map(|reported| (reported.address.to_string(), reported.is_guess))
    };
    let known = |address: &str| Some((address.to_owned(), false));
    let guess = |address: &str| Some((address.to_owned(), true));
    let any = ["localhost", "0.0.0.0", "127.0.0.1"];
    for host in any {
        assert_eq!(
            reported(host, &[], Some("192.168.1.21")),
            known("192.168.1.21"),
            "{host}"
        );
        assert_eq!(
            reported(host, &[], Some("::ffff:127.0.0.1")),
            known("127.0.0.1"),
            "{host}"
        );
        // The request came through a proxy or over IPv6.
        assert_eq!(reported(host, &[], None), guess("192.168.1.20"), "{host}");
        assert_eq!(reported(host, &[], Some("fd00::20")), guess("192.168.1.20"), "{host}");
        // The machine is behind a NAT.
        let extra = ips(&["203.0.113.9"]);
        assert_eq!(
            reported(host, &extra, Some("172.17.0.2")),
            guess("203.0.113.9"),
            "{host}"
        );
    }
    for reached in [None, Some("127.0.0.1")] {
        assert_eq!(reported("192.168.1.21", &[], reached), known("192.168.1.21"));
        assert_eq!(
            reported("192.168.1.21", &ips(&["203.0.113.9"]), reached),
            known("192.168.1.21")
        );
    }
    assert_eq!(reported("::", &[], None), None);
    assert_eq!(reported("fd00::20", &[], Some("fd00::20")), None);
    let policy = LocalCandidatePolicy {
        host: Host::Address(ip("192.168.1.20")),
        embedded: Some(Ipv4Addr::new(192, 168, 1, 20)),
        extra_addresses: &ips(&["203.0.113.9"]),
    };
    let reported = device_address(policy, Some(ip("127.0.0.1")), &[]).expect("the one of --embedded");
    assert_eq!(
        (reported.address, reported.is_guess),
        (Ipv4Addr::new(192, 168, 1, 20), false)
    );
}

/// ICE-TCP candidates are the HTTP server's addresses, capped.
#[test]
fn addresses_over_tcp_are_those_of_the_server() {
    let at = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    let offered: Vec<IpAddr> = ["192.0.2.5", "2001:db8::5", "192.0.2.6"]
        .map(|text| text.parse().expect("an address"))
        .into();
    let localhost = [at("127.0.0.1:7860"), at("[::1]:7860")];
    assert_eq!(tcp_addresses(&localhost, &offered), localhost);
    assert_eq!(
        tcp_addresses(&[at("0.0.0.0:80")], &offered),
        [at("192.0.2.5:80"), at("192.0.2.6:80")]
    );
    assert_eq!(tcp_addresses(&[at("[::]:80")], &offered), [at("[2001:db8::5]:80")]);
    let many = vec![offered[0]; TCP_ADDRESSES_MAX + 1];
    assert_eq!(tcp_addresses(&[at("0.0.0.0:80")], &many).len(), TCP_ADDRESSES_MAX);
    assert!(tcp_addresses(&[], &offered).is_empty());
}

/// A server that the operator named may use any port. Addresses that no peer can have are still
/// rejected.
#[test]
fn a_server_named_by_the_operator_may_use_a_privileged_port() {
    let policy = RemoteCandidatePolicy {
        named_by_operator: true,
        ..NO_LOOPBACK
    };
    let at = |address: &str, port: u16| format!("candidate:1 1 udp 1 {address} {port} typ host");
    let usable = parse_remote(&at("192.0.2.1", 443), &policy).expect("it is used");
    assert_eq!(usable.addr.port(), 443);
    assert!(parse_remote(&at("192.0.2.1", 0), &policy).is_err());
    assert!(parse_remote(&at("224.0.0.1", 443), &policy).is_err());
    assert!(parse_remote(&at("127.0.0.1", 443), &policy).is_err());
}
