//! DTLS and SRTP security: the fingerprint of the offer, and no master key identifiers. Sources:
//! RFC 8122 section 6.2, RFC 5763 section 5, RFC 5764 section 4.1.1, RFC 3711 section 3.1.

use std::time::Instant;

use super::super::*;
use super::pair::{Pair, ms, runner, secs};
use crate::testing::client::TestClient;
use crate::webrtc::connection::ReceivedPacket;

/// The extension `use_srtp`, RFC 5764 section 9.
const USE_SRTP: [u8; 2] = [0, 14];

fn is_rtp(datagram: &[u8]) -> bool {
    // RFC 7983 and RFC 5761.
    matches!(*datagram, [128..=191, kind, ..] if !(192..224).contains(&kind))
}

/// Changes one digit of each fingerprint.
fn with_other_fingerprints(offer: String) -> String {
    let lines = offer
        .lines()
        .map(|line| match line.strip_prefix("a=fingerprint:sha-256 ") {
            Some(value) => {
                let digit = if value.starts_with('0') { "1" } else { "0" };
                format!("a=fingerprint:sha-256 {digit}{}\r\n", &value[1..])
            }
            None => format!("{line}\r\n"),
        });
    lines.collect()
}

/// A peer with another certificate than announced is not the caller: the session ends with the
/// handshake, in either role, without sending audio.
#[test]
fn a_foreign_fingerprint_ends_the_session_at_once() {
    for role in ["actpass", "active", "passive"] {
        let mut pair = Pair::with(TestClient::new("192.0.2.9:5000"), |offer| {
            with_other_fingerprints(offer).replace("a=setup:actpass", &format!("a=setup:{role}"))
        });
        pair.keep_sent = true;
        pair.run(secs(2));
        let (reason, at) = pair.left().expect("it has ended");
        assert_eq!(reason, LeaveReason::Failed, "{role}");
        assert!(at < ms(500), "{role}: {at:?}");
        assert!(!pair.saw(&SessionEvent::Joined) && pair.gone.is_some());
        assert!(!pair.sent.iter().any(|(_, datagram)| is_rtp(datagram)));
    }
}

/// Returns the value of `use_srtp` in an unencrypted hello.
fn use_srtp(datagram: &[u8]) -> Option<&[u8]> {
    datagram.windows(4).enumerate().find_map(|(at, head)| {
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let value = datagram.get(at + 4..at + 4 + length)?;
        // The length of the profiles, the profiles, and the identifier with its length.
        let profiles = usize::from(u16::from_be_bytes([*value.first()?, *value.get(1)?]));
        let fits = profiles > 0 && profiles % 2 == 0 && length >= profiles + 3;
        (head[..2] == USE_SRTP && fits && usize::from(value[2 + profiles]) == length - profiles - 3).then_some(value)
    })
}

/// The runner requests no master key identifier, and a packet with one is not heard.
#[test]
fn srtp_has_no_master_key_identifier() {
    let mut pair = Pair::with(TestClient::at("192.0.2.9:5000", Instant::now()), |offer| {
        offer.replace("a=setup:actpass", "a=setup:passive")
    });
    (pair.keep_sent, pair.keep_launched) = (true, true);
    pair.connect();
    let mut hellos = pair.sent.iter().filter(|(_, datagram)| datagram[0] == 22);
    let value = hellos
        .find_map(|(_, datagram)| use_srtp(datagram))
        .expect("a ClientHello");
    assert_eq!(value.last(), Some(&0), "the length of the identifier in {value:?}");
    pair.open_audio(16_000, 16_000);
    pair.client.speak(440.0, pair.now);
    pair.run(secs(1));
    // Later packets are held back.
    pair.pass = |up, datagram| !(up && is_rtp(datagram));
    pair.launched.clear();
    pair.run(ms(100));
    pair.client.mute();
    pair.run(secs(1));
    let last = pair
        .launched
        .iter()
        .rfind(|datagram| is_rtp(datagram))
        .expect("sound")
        .clone();
    let arrive = |pair: &mut Pair, datagram: &[u8]| {
        let (source, frames) = (pair.client.address, pair.bot.frames);
        pair.act(|session, now| session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), datagram), now));
        pair.run(ms(500));
        pair.bot.frames - frames
    };
    for identifier in [&[0u8, 0, 0, 1][..], &[1]] {
        assert_eq!(arrive(&mut pair, &[&last[..], identifier].concat()), 0);
    }
    assert!(arrive(&mut pair, &last) > 0, "the same packet without one is heard");
    assert_eq!(pair.left(), None);
}
