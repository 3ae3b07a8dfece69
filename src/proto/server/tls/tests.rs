//! Tests names, validity and renewals with simulated clocks; certificates are issued and parsed
//! again.

use rcgen::KeyPair;

use super::parsed::CertificateParseError;
use super::*;

fn dns(name: &str) -> CertificateName {
    CertificateName::Dns(name.into())
}

fn at(address: &str) -> CertificateName {
    CertificateName::Address(address.parse().expect("an address"))
}

fn addresses(list: &[&str]) -> Vec<IpAddr> {
    list.iter()
        .map(|address| address.parse().expect("an address"))
        .collect()
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// Issues and parses a certificate for these names at a time.
fn made(list: &[CertificateName], now_s: u64) -> Certificate {
    let (key, signer) = (key(), key());
    let der = issue::certificate(list, Validity::of_certificate(now_s), &key, "an authority", &signer);
    Certificate::read(&der.expect("names in ASCII")).expect("what was written can be read")
}

fn key() -> KeyPair {
    KeyPair::generate().expect("random numbers")
}

const NOW_S: u64 = RELEASED_S + 400 * DAY_S;

/// A certificate has every name by which a browser may address the machine, and no address that
/// URLs do not support.
#[test]
fn lists_all_names_of_a_machine() {
    let own = names(&[
        "board",
        "board.lan",
        "bot.example.net",
        "203.0.113.9",
        "[2001:db8::9]",
        "localhost",
    ]);
    let around = addresses(&[
        "127.0.0.1",
        "192.168.1.7",
        "fe80::1",
        "2001:db8::7",
        "0.0.0.0",
        "224.0.0.1",
        "192.168.1.7",
    ]);
    assert_eq!(
        certificate_names(&own, &around),
        [
            dns("board"),
            dns("board.lan"),
            dns("board.local"),
            dns("bot.example.net"),
            dns("localhost"),
            at("127.0.0.1"),
            at("192.168.1.7"),
            at("203.0.113.9"),
            at("::1"),
            at("2001:db8::7"),
            at("2001:db8::9"),
        ]
    );
    assert_eq!(
        certificate_names(&[], &[]),
        [dns("localhost"), at("127.0.0.1"), at("::1")]
    );
}

/// The number of names is limited; the last ones are dropped.
#[test]
fn the_number_of_names_is_limited() {
    let many = |count: usize| -> Vec<IpAddr> {
        let base = Ipv4Addr::new(10, 0, 0, 0).to_bits();
        (0..count)
            .map(|n| Ipv4Addr::from_bits(base + n as u32).into())
            .collect()
    };
    let own = certificate_names(&[], &[]).len();
    let full = certificate_names(&[], &many(CERTIFICATE_NAMES_MAX - own));
    assert_eq!(full.len(), CERTIFICATE_NAMES_MAX);
    assert!(full.contains(&at("::1")));
    let over = certificate_names(&[], &many(CERTIFICATE_NAMES_MAX - own + 1));
    assert_eq!(over.len(), CERTIFICATE_NAMES_MAX);
    assert!(over.contains(&dns("localhost")) && !over.contains(&at("::1")));
}

/// An authority certifies private names and its own machine only.
#[test]
fn an_authority_is_limited_to_private_names_and_its_machine() {
    let own = [
        dns("bot.example.net"),
        at("203.0.113.9"),
        at("2001:db8:0:1::7"),
        dns("board"),
    ];
    let subtrees = name_constraints(&own);
    for name in [
        dns("localhost"),
        dns("board"),
        dns("board.local"),
        dns("other.lan"),
        dns("bot.example.net"),
        dns("a.bot.example.net"),
        at("127.0.0.1"),
        at("10.255.255.255"),
        at("172.31.0.1"),
        at("192.168.0.1"),
        at("100.127.0.1"),
        at("169.254.1.1"),
        at("203.0.113.9"),
        at("::1"),
        at("fd00::1"),
        at("2001:db8:0:1:ffff::1"),
    ] {
        assert!(permits(&subtrees, &name), "{name}");
    }
    for name in [
        dns("example.net"),
        dns("evil-bot.example.net"),
        dns("boardx"),
        dns("notlocal"),
        dns("bank.example"),
        at("172.32.0.1"),
        at("100.128.0.1"),
        at("203.0.113.8"),
        at("::2"),
        at("2001:db8:0:2::7"),
        at("11.0.0.1"),
    ] {
        assert!(!permits(&subtrees, &name), "{name}");
    }
    assert!(permits(
        &[NameConstraint::Network(Ipv4Addr::UNSPECIFIED.into(), 0)],
        &at("198.51.100.1")
    ));
    assert!(permits(
        &[NameConstraint::Network(Ipv6Addr::UNSPECIFIED.into(), 0)],
        &at("2001:db8::1")
    ));
}

/// Issued certificates contain the requested names, and the constraints of their authority.
#[test]
fn issued_certificates_contain_the_requested_names() {
    let own = certificate_names(&names(&["board"]), &addresses(&["192.168.1.7", "2001:db8::7"]));
    let certificate = made(&own, NOW_S);
    assert_eq!(
        (certificate.issuer.as_str(), certificate.names.as_slice()),
        ("an authority", own.as_slice())
    );
    assert!(!certificate.is_authority && certificate.permitted.is_none());
    let Validity { from_s, until_s } = certificate.validity;
    assert!(from_s < NOW_S - DAY_S && until_s - from_s <= 800 * DAY_S);

    let key = key();
    let name = issue::authority_name("board", 0xa3);
    let permitted = name_constraints(&own);
    let validity = Validity::of_authority(NOW_S);
    let der = issue::authority(&name, &permitted, validity, &key).expect("it can be written");
    let authority = Certificate::read(&der).expect("it can be read");
    assert_eq!(
        authority,
        Certificate {
            subject: "edge-runner on board (00a3)".into(),
            issuer: "edge-runner on board (00a3)".into(),
            names: Vec::new(),
            validity,
            is_authority: true,
            permitted: Some(permitted),
            is_p256: true,
        }
    );
    assert!(validity.days_left(NOW_S) >= 20 * 365);
}

/// Every truncated certificate is rejected, and no changed byte causes a panic.
#[test]
fn rejects_bytes_that_are_not_a_certificate() {
    let (key, signer) = (key(), key());
    let validity = Validity::of_certificate(NOW_S);
    let der = issue::certificate(&[dns("localhost")], validity, &key, "a", &signer).expect("it can be written");
    for end in 0..der.len() {
        assert_eq!(
            Certificate::read(&der[..end]),
            Err(CertificateParseError),
            "{end} bytes"
        );
    }
    for place in 0..der.len() {
        let mut bent = der.clone();
        bent[place] ^= 0x41;
        let _ = Certificate::read(&bent);
    }
    assert_eq!(
        Certificate::read(b"-----BEGIN CERTIFICATE-----"),
        Err(CertificateParseError)
    );
}

/// A renewal is due when a third of the validity remains, or when a name is missing.
#[test]
fn renews_a_certificate_in_time() {
    let own = certificate_names(&names(&["board"]), &addresses(&["192.168.1.7"]));
    let kept = made(&own, NOW_S);
    let Validity { from_s, until_s } = kept.validity;
    let third = (until_s - from_s) / 3;
    assert_eq!(renewal_reason(&kept, &own, NOW_S), None);
    assert_eq!(renewal_reason(&kept, &own, until_s - third), None);
    assert_eq!(
        renewal_reason(&kept, &own, until_s - third + 1),
        Some(RenewalReason::Ending)
    );
    assert_eq!(
        renewal_reason(&kept, &own, until_s + DAY_S),
        Some(RenewalReason::Ending)
    );
    let moved = certificate_names(&names(&["board"]), &addresses(&["192.168.1.8"]));
    assert_eq!(
        renewal_reason(&kept, &moved, NOW_S),
        Some(RenewalReason::Missing(at("192.168.1.8")))
    );
    // A removed address does not cause a renewal.
    assert_eq!(
        renewal_reason(&kept, &certificate_names(&names(&["board"]), &[]), NOW_S),
        None
    );
}

/// A board whose clock starts in 1970 issues a certificate that is valid from the release for two
/// years, and keeps one that it issued with the correct time.
#[test]
fn ignores_a_clock_of_1970() {
    let own = certificate_names(&[], &[]);
    assert_eq!(plausible_now(0, None), RELEASED_S);
    assert_eq!(plausible_now(RELEASED_S - 1, None), RELEASED_S);
    assert_eq!(plausible_now(NOW_S, None), NOW_S);
    let first = made(&own, plausible_now(42, None));
    assert!(first.validity.from_s < RELEASED_S && first.validity.until_s > RELEASED_S + 790 * DAY_S);
    assert_eq!(renewal_reason(&first, &own, 42), None);
    // The clock jumps to the correct time: within the first two thirds nothing happens, then the
    // certificate is renewed.
    assert_eq!(renewal_reason(&first, &own, RELEASED_S + 500 * DAY_S), None);
    assert_eq!(
        renewal_reason(&first, &own, RELEASED_S + 2000 * DAY_S),
        Some(RenewalReason::Ending)
    );
    let second = made(&own, plausible_now(RELEASED_S + 2000 * DAY_S, Some(&first)));
    assert_eq!(renewal_reason(&second, &own, RELEASED_S + 2000 * DAY_S), None);
    // The next start is in 1970 again: the later certificate stays, and is the lower bound of the
    // time.
    assert_eq!(renewal_reason(&second, &own, 43), None);
    assert_eq!(plausible_now(43, Some(&second)), RELEASED_S + 2000 * DAY_S);
    // The authority is valid from before the first day.
    let authority = Validity::of_authority(plausible_now(42, None));
    assert!(authority.from_s < first.validity.from_s && authority.until_s > RELEASED_S + 19 * 365 * DAY_S);
}

/// A fast clock that is corrected leaves no certificate that is not yet valid.
#[test]
fn replaces_certificates_of_a_fast_clock() {
    let own = certificate_names(&[], &[]);
    let future = made(&own, NOW_S + 10_000 * DAY_S);
    assert_eq!(renewal_reason(&future, &own, NOW_S), Some(RenewalReason::Ahead));
    let authority = Validity::of_authority(NOW_S + 10_000 * DAY_S);
    assert!(authority.from_s < NOW_S && authority.until_s > NOW_S);
}

/// An interface that comes and goes causes one renewal; names outside the constraints, and more
/// names than fit, are dropped.
#[test]
fn keeps_names_of_the_last_certificate_while_they_fit() {
    let subtrees = name_constraints(&[]);
    let (near, far) = (
        certificate_names(&[], &addresses(&["10.0.0.1"])),
        certificate_names(&[], &addresses(&["10.0.0.2"])),
    );
    let first = made(&near, NOW_S);
    let both = next_names(&far, Some(&first), &subtrees);
    assert!(both.contains(&at("10.0.0.1")) && both.contains(&at("10.0.0.2")));
    let second = made(&both, NOW_S);
    assert_eq!(
        (
            renewal_reason(&second, &near, NOW_S),
            renewal_reason(&second, &far, NOW_S)
        ),
        (None, None)
    );
    assert_eq!(next_names(&far, None, &subtrees), far);

    let foreign = made(&[dns("bank.example"), at("198.51.100.1")], NOW_S);
    assert_eq!(next_names(&near, Some(&foreign), &subtrees), near);

    let full: Vec<CertificateName> = (0..CERTIFICATE_NAMES_MAX).map(|n| dns(&format!("{n}.local"))).collect();
    assert_eq!(next_names(&full, None, &subtrees).len(), CERTIFICATE_NAMES_MAX);
    assert_eq!(next_names(&near, Some(&made(&full, NOW_S)), &subtrees), near);
}
