//! The endpoint against dimpl's own with the settings of a microcontroller: a cookie exchange and a
//! malformed certificate.

mod rsa_client;

use std::collections::VecDeque;
use std::time::Duration;

use dimpl::crypto::{CryptoProvider, rust_crypto};

use super::super::certificate::tests::malformed;
use super::*;

const MTU: usize = 1_200;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const HELLO_VERIFY_REQUEST: u8 = 3;

fn ours(active: bool, now: Instant) -> Box<dyn DtlsInstance> {
    let mut dtls = DimplProvider
        .new_dtls(certificate().unwrap(), now, DtlsVersion::Dtls12, Some(MTU))
        .unwrap();
    dtls.set_active(active);
    dtls
}

/// Creates a foreign endpoint: it sends a cookie, supports every group, and presents `certificate`.
fn foreign(certificate: DtlsCert, active: bool, now: Instant) -> Box<dyn DtlsInstance> {
    foreign_with(rust_crypto::default_provider(), &[], MTU, certificate, active, now)
}

/// The same with other cryptography, groups or MTU.
fn foreign_with(
    provider: CryptoProvider,
    groups: &[NamedGroup],
    mtu: usize,
    certificate: DtlsCert,
    active: bool,
    now: Instant,
) -> Box<dyn DtlsInstance> {
    let mut config = Config::builder().with_crypto_provider(provider).mtu(mtu);
    if !groups.is_empty() {
        config = config.kx_groups(groups);
    }
    let mut dtls = Dtls::new_12(Arc::new(config.build().unwrap()), certificate, now);
    dtls.set_active(active);
    let mut endpoint = DtlsEndpoint::new(dtls, None);
    // Keeps dimpl's own CertificateRequest.
    endpoint.is_connected = true;
    Box::new(endpoint)
}

/// The outputs of one endpoint up to a timeout.
#[derive(Default)]
struct Seen {
    packets: Vec<Vec<u8>>,
    connected: bool,
    keys: bool,
    peer_certificate: Vec<u8>,
    data: Vec<u8>,
    wake: Option<Instant>,
}

fn drain(dtls: &mut dyn DtlsInstance) -> Seen {
    let mut seen = Seen::default();
    let mut buffer = [0; 2_048];
    loop {
        match dtls.poll_output(&mut buffer) {
            DtlsOutput::Packet(packet) => seen.packets.push(packet.to_vec()),
            DtlsOutput::Connected => seen.connected = true,
            DtlsOutput::KeyingMaterial(..) => seen.keys = true,
            DtlsOutput::PeerCert(der) => seen.peer_certificate = der.to_vec(),
            DtlsOutput::ApplicationData(data) => seen.data.extend(data),
            DtlsOutput::Timeout(at) => {
                seen.wake = Some(at);
                return seen;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Exchanges packets until both ends are silent. Returns their outputs and all packets in order.
fn shake<'a>(
    left: &'a mut dyn DtlsInstance,
    right: &'a mut dyn DtlsInstance,
    now: Instant,
) -> (Seen, Seen, Vec<Vec<u8>>) {
    let (left, right, packets, refused) = carry(left, right, now, |_, _| ());
    assert_eq!(refused, []);
    (left, right, packets)
}

/// The end that rejected a packet, and the reason.
type Refused = (usize, HandshakeError);

/// The same with a function that may change packets to the left (0) or right (1) end, and with the
/// rejections of both.
fn carry<'a>(
    left: &'a mut dyn DtlsInstance,
    right: &'a mut dyn DtlsInstance,
    now: Instant,
    mut change: impl FnMut(usize, &mut Vec<u8>),
) -> (Seen, Seen, Vec<Vec<u8>>, Vec<Refused>) {
    left.handle_timeout(now).unwrap();
    right.handle_timeout(now).unwrap();
    let mut ends = [(left, Seen::default()), (right, Seen::default())];
    let mut wire: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
    let mut all = Vec::new();
    let mut refused = Vec::new();
    loop {
        for (index, (dtls, total)) in ends.iter_mut().enumerate() {
            let seen = drain(&mut **dtls);
            total.connected |= seen.connected;
            total.keys |= seen.keys;
            total.data.extend(seen.data);
            if !seen.peer_certificate.is_empty() {
                total.peer_certificate = seen.peer_certificate;
            }
            wire.extend(seen.packets.into_iter().map(|packet| (1 - index, packet)));
        }
        let Some((to, mut packet)) = wire.pop_front() else {
            break;
        };
        change(to, &mut packet);
        if ends[to].0.handle_packet(&packet).is_err() {
            refused.push((to, take_handshake_error().expect("a reason")));
        }
        assert_eq!(take_handshake_error(), None);
        all.push(packet);
    }
    let [(_, left), (_, right)] = ends;
    (left, right, all, refused)
}

/// Returns the type of the first handshake message in an unencrypted record.
fn message(packet: &[u8]) -> Option<u8> {
    (packet[0] == HANDSHAKE).then(|| packet[13])
}

#[test]
fn a_server_with_cookie_and_malformed_certificate_is_accepted() {
    let now = Instant::now();
    let device = malformed();
    let (client, server, packets) = shake(&mut *ours(true, now), &mut *foreign(device.clone(), false, now), now);
    assert_eq!(message(&packets[1]), Some(HELLO_VERIFY_REQUEST));
    assert!(client.connected && server.connected && client.keys && server.keys);
    assert_eq!(
        client.peer_certificate, device.certificate,
        "the raw bytes, for the fingerprint"
    );
    assert_eq!(server.peer_certificate, certificate().unwrap().certificate);
}

#[test]
fn a_client_with_malformed_certificate_is_accepted() {
    let now = Instant::now();
    let device = malformed();
    let (server, client, _) = shake(&mut *ours(false, now), &mut *foreign(device.clone(), true, now), now);
    assert!(client.connected && server.connected && client.keys && server.keys);
    assert_eq!(server.peer_certificate, device.certificate);
}

#[test]
fn data_passes_both_ways() {
    let now = Instant::now();
    let (mut client, mut server) = (ours(true, now), foreign(malformed(), false, now));
    shake(&mut *client, &mut *server, now);
    assert_eq!(client.send_application_data(b"ping").unwrap(), 4);
    assert_eq!(server.send_application_data(b"pong").unwrap(), 4);
    let (client, server, _) = shake(&mut *client, &mut *server, now);
    assert_eq!((client.data, server.data), (b"pong".to_vec(), b"ping".to_vec()));
}

/// Mbed TLS servers reject fragmented ClientHellos.
#[test]
fn the_client_hello_is_small_and_offers_p256_and_ecdsa_alone() {
    let now = Instant::now();
    let (_, _, packets) = shake(&mut *ours(true, now), &mut *foreign(malformed(), false, now), now);
    let hellos: Vec<_> = packets
        .iter()
        .filter(|packet| message(packet) == Some(CLIENT_HELLO))
        .collect();
    assert_eq!(hellos.len(), 2, "one without and one with the cookie");
    for hello in hellos {
        assert!(hello.len() < 256, "{} bytes", hello.len());
        // Message length and fragment length.
        assert_eq!(hello[14..17], hello[22..25]);
        // Session id, cookie, then the suites.
        let session = 25 + 2 + 32;
        let cookie = session + 1 + usize::from(hello[session]);
        let suites = cookie + 1 + usize::from(hello[cookie]);
        assert_eq!(hello[suites..suites + 8], [0, 6, 0xc0, 0x2b, 0xc0, 0x2c, 0xcc, 0xa9]);
        let groups = [0, 10, 0, 4, 0, 2, 0, 23];
        assert!(
            hello.windows(groups.len()).any(|part| part == groups),
            "supported_groups: secp256r1 alone"
        );
    }
}

#[test]
fn an_unanswered_client_hello_is_repeated_within_a_second() {
    let mut now = Instant::now();
    let mut client = ours(true, now);
    client.handle_timeout(now).unwrap();
    let first = drain(&mut *client);
    assert_eq!(first.packets.len(), 1);
    let wake = first.wake.unwrap();
    assert!(wake - now <= Duration::from_secs(1), "{:?}", wake - now);
    now = wake;
    client.handle_timeout(now).unwrap();
    let second = drain(&mut *client);
    assert_eq!(second.packets.len(), 1);
    assert_eq!(message(&second.packets[0]), Some(CLIENT_HELLO));
}

#[test]
fn another_mtu_is_used_beside_the_cached_one() {
    for role in [&SERVER, &CLIENT] {
        assert_eq!(config(role, Some(MTU)).unwrap().mtu(), MTU);
        assert_eq!(config(role, Some(900)).unwrap().mtu(), 900);
        assert_eq!(config(role, Some(MTU)).unwrap().mtu(), MTU);
    }
}

#[test]
fn other_versions_are_refused() {
    for (version, words) in [
        (DtlsVersion::Dtls13, "DTLS 1.3 is not supported"),
        (DtlsVersion::Auto, "DTLS Auto-detect is not supported"),
    ] {
        let refused = DimplProvider.new_dtls(certificate().unwrap(), Instant::now(), version, None);
        assert!(
            matches!(refused.as_ref().err(), Some(CryptoError::Other(why)) if why == words),
            "{version}: {:?}",
            refused.err()
        );
    }
}

/// A fragmented CertificateRequest would be sent unchanged but hashed with RSA.
#[test]
fn the_flight_of_a_server_is_one_datagram_within_the_smallest_mtu() {
    let now = Instant::now();
    for group in SERVER_GROUPS {
        let mut server = DimplProvider
            .new_dtls(
                certificate().unwrap(),
                now,
                DtlsVersion::Dtls12,
                Some(certificate_request::SERVER_FLIGHT_BYTES_MAX),
            )
            .unwrap();
        let provider = rust_crypto::default_provider();
        let mut client = foreign_with(provider, &[group], MTU, malformed(), true, now);
        let (server, client, packets) = shake(&mut *server, &mut *client, now);
        assert!(server.connected && client.connected, "{group:?}");
        // After the ClientHello.
        let flight = &packets[1];
        assert!(
            flight.len() <= certificate_request::SERVER_FLIGHT_BYTES_MAX,
            "{} bytes",
            flight.len()
        );
        let kinds: Vec<_> = records(flight).map(|record| message(record).unwrap()).collect();
        assert_eq!(kinds, [2, 11, 12, 13, 14], "{group:?}");
    }
    let too_small = Some(certificate_request::SERVER_FLIGHT_BYTES_MAX - 1);
    let cert = certificate().unwrap();
    let refused = DimplProvider.new_dtls(cert, now, DtlsVersion::Dtls12, too_small);
    assert!(
        matches!(refused.as_ref().err(), Some(CryptoError::Other(why)) if why.ends_with("bytes cuts handshakes")),
        "{:?}",
        refused.err()
    );
}

#[test]
fn a_client_with_a_p384_key_is_accepted() {
    let now = Instant::now();
    let device = DtlsCert {
        certificate: include_bytes!("../../../../../tests/data/dtls/secp384r1.der").to_vec(),
        private_key: include_bytes!("../../../../../tests/data/dtls/secp384r1.key").to_vec(),
    };
    for active in [false, true] {
        let (mut server, mut client) = (ours(active, now), foreign(device.clone(), !active, now));
        let (server, client, _) = shake(&mut *server, &mut *client, now);
        assert!(server.connected && client.connected && client.keys && server.keys);
        assert_eq!(server.peer_certificate, device.certificate);
    }
}

/// str0m's buffer holds 2,000 bytes of certificate, and dimpl panics if it is too small.
#[test]
fn long_certificates_are_rejected_in_both_roles() {
    let now = Instant::now();
    for active in [true, false] {
        for (bytes, fits) in [(CERTIFICATES_BYTES_MAX - 6, true), (CERTIFICATES_BYTES_MAX - 5, false)] {
            let mut device = malformed();
            device.certificate.resize(bytes, 0);
            let mut server = ours(active, now);
            let mut client = foreign(device, !active, now);
            let (ours, _, _, refused) = carry(&mut *server, &mut *client, now, |_, _| ());
            assert!(!ours.connected);
            let length = HandshakeError::CertificateTooLong {
                bytes: bytes + 6,
                bytes_max: CERTIFICATES_BYTES_MAX,
            };
            let by_length = refused.contains(&(0, length));
            assert_eq!(by_length, !fits, "{bytes}: {refused:?}");
        }
    }
}

/// Changes one byte of the message of this kind.
fn change_message(packet: &mut Vec<u8>, kind: u8, change: impl FnOnce(&mut Vec<u8>)) {
    let Some(at) = records(packet).position(|record| is_handshake_in_clear(record) && record[13] == kind) else {
        return;
    };
    let mut parts: Vec<_> = records(packet).map(<[u8]>::to_vec).collect();
    change(&mut parts[at]);
    *packet = parts.concat();
}

#[test]
fn a_client_without_a_certificate_is_rejected_with_the_reason() {
    let now = Instant::now();
    let (mut server, mut client) = (ours(false, now), foreign(malformed(), true, now));
    let (server, _, _, refused) = carry(&mut *server, &mut *client, now, |to, packet| {
        if to == 0 {
            change_message(packet, CERTIFICATE, |record| {
                // Leaves only the length of an empty list.
                record.truncate(13 + 12);
                record.extend([0, 0, 0]);
                record[11..13].copy_from_slice(&15_u16.to_be_bytes());
                record[14..17].copy_from_slice(&[0, 0, 3]);
                record[22..25].copy_from_slice(&[0, 0, 3]);
            });
        }
    });
    assert!(!server.connected);
    assert_eq!(refused[0], (0, HandshakeError::NoCertificate));
}

#[test]
fn a_client_without_common_capabilities_is_rejected_with_the_reason() {
    let now = Instant::now();
    type Change = fn(&mut Vec<u8>);
    let cases: [(Change, HandshakeError); 3] = [
        // The suites follow version, random, and empty session id and cookie.
        (
            |hello| {
                let at = 25 + 34 + 2;
                let length = usize::from(hello[at + 1]);
                hello[at + 2..at + 2 + length].fill(0x35);
            },
            HandshakeError::NoCommonSuite,
        ),
        (
            |hello| {
                let at = hello.windows(4).position(|part| part == [0, 10, 0, 8]).expect("groups");
                hello[at + 6..at + 12].fill(0x01);
            },
            HandshakeError::NoCommonGroup,
        ),
        (
            |hello| hello[25..27].copy_from_slice(&[0xfe, 0xff]),
            HandshakeError::UnsupportedVersion("DTLS1.0".to_owned()),
        ),
    ];
    for (change, why) in cases {
        let (mut server, mut client) = (ours(false, now), foreign(malformed(), true, now));
        let (server, _, _, refused) = carry(&mut *server, &mut *client, now, |to, packet| {
            if to == 0 {
                change_message(packet, CLIENT_HELLO, change);
            }
        });
        assert!(!server.connected);
        assert_eq!(refused.first(), Some(&(0, why)));
    }
}

#[test]
fn alerts_are_reported_by_name() {
    let now = Instant::now();
    let mut server = ours(false, now);
    server.handle_timeout(now).unwrap();
    assert!(
        server
            .handle_packet(&[21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 2, 43])
            .is_err()
    );
    let alert = HandshakeError::Alert {
        number: 43,
        active: false,
    };
    assert_eq!(take_handshake_error(), Some(alert));
}

#[test]
fn noise_causes_no_panic() {
    let now = Instant::now();
    for active in [true, false] {
        let mut dtls = ours(active, now);
        dtls.handle_timeout(now).unwrap();
        drain(&mut *dtls);
        for length in [0, 1, 12, 13, 14, 25, 60, 1_500] {
            for first in [0, 20, 21, 22, 23, 24, 26, 63, 255] {
                let mut packet = vec![0xfe; length];
                if let Some(byte) = packet.first_mut() {
                    *byte = first;
                }
                // The packet may be rejected or ignored.
                let _ = dtls.handle_packet(&packet);
                drain(&mut *dtls);
            }
        }
    }
}
