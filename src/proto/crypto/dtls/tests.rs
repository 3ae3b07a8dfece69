//! Our endpoint against dimpl's own, whose settings are those of a microcontroller: a cookie first, a certificate that
//! a strict parser would refuse.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::certificate::tests::malformed;
use super::*;

const MTU: usize = 1_200;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const HELLO_VERIFY_REQUEST: u8 = 3;

fn ours(active: bool, now: Instant) -> Box<dyn DtlsInstance> {
    let mut dtls = Backend
        .new_dtls(certificate().unwrap(), now, DtlsVersion::Dtls12, Some(MTU))
        .unwrap();
    dtls.set_active(active);
    dtls
}

/// An endpoint that is not ours: it sends a cookie first, knows every group, and shows `certificate`.
fn foreign(certificate: DtlsCert, active: bool, now: Instant) -> Box<dyn DtlsInstance> {
    let config = Config::builder()
        .with_crypto_provider(rust_crypto::default_provider())
        .build()
        .unwrap();
    let mut dtls = Dtls::new_12(Arc::new(config), certificate, now);
    dtls.set_active(active);
    Box::new(Endpoint::new(dtls))
}

/// What came out of one endpoint until it asked for time.
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

/// Carries packets between the two until both are silent; gives what each of them showed and every packet in order.
fn shake<'a>(
    left: &'a mut dyn DtlsInstance,
    right: &'a mut dyn DtlsInstance,
    now: Instant,
) -> (Seen, Seen, Vec<Vec<u8>>) {
    left.handle_timeout(now).unwrap();
    right.handle_timeout(now).unwrap();
    let mut ends = [(left, Seen::default()), (right, Seen::default())];
    let mut wire: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
    let mut all = Vec::new();
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
        let Some((to, packet)) = wire.pop_front() else { break };
        ends[to].0.handle_packet(&packet).unwrap();
        all.push(packet);
    }
    let [(_, left), (_, right)] = ends;
    (left, right, all)
}

/// The type of the handshake message that a plain record opens with.
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

/// Mbed TLS servers refuse a ClientHello in fragments.
#[test]
fn a_client_hello_is_one_small_datagram_with_p256_and_ecdsa_suites_alone() {
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
fn an_unanswered_client_hello_is_sent_again_within_a_second() {
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
fn another_mtu_is_honoured_beside_the_kept_one() {
    assert_eq!(config(Some(MTU)).unwrap().mtu(), MTU);
    assert_eq!(config(Some(900)).unwrap().mtu(), 900);
    assert_eq!(config(Some(MTU)).unwrap().mtu(), MTU);
}

#[test]
fn noise_is_no_panic() {
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
                // Refused or ignored, either is fine.
                let _ = dtls.handle_packet(&packet);
                drain(&mut *dtls);
            }
        }
    }
}
