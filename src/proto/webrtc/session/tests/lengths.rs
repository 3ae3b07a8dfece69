//! Every kind of packet at every length of a datagram, truncated and extended, is harmless.

use super::super::*;
use super::pair::{Pair, ms, runner, secs};
use crate::testing::tap::chunks;
use crate::webrtc::connection::ReceivedPacket;

/// The payload of an Ethernet frame.
const DATAGRAM_BYTES_MAX: usize = 1_500;

/// Lengths at which an INIT reads as a new association, which ends the old one.
const ENDED_MAX: usize = 2;

/// A running call, and everything that its client has sent.
fn call() -> (Pair, Vec<Vec<u8>>) {
    let mut pair = Pair::new();
    pair.keep_launched = true;
    pair.connect();
    pair.open_audio(16_000, 16_000);
    pair.client.speak(440.0, pair.now);
    pair.client.send("hello");
    pair.run(secs(6));
    pair.keep_launched = false;
    let launched = std::mem::take(&mut pair.launched);
    (pair, launched)
}

/// Returns one packet of each kind, by its first byte and RTP's second.
fn kinds(sent: &[Vec<u8>]) -> Vec<(&'static str, Vec<u8>)> {
    let kind = |datagram: &[u8]| match datagram {
        [0, 1, ..] => "a check",
        [1, 1, ..] => "an answer to a check",
        [22, _, _, 0, 0, _, _, _, _, _, _, _, _, 1, ..] => "a ClientHello",
        [22, ..] => "a handshake",
        [23, ..] => "data",
        [128..192, 192..224, ..] => "RTCP",
        [128..192, ..] => "RTP",
        _ => "something else",
    };
    let mut found = std::collections::BTreeMap::new();
    for datagram in sent {
        found.entry(kind(datagram)).or_insert_with(|| datagram.clone());
    }
    found.into_iter().collect()
}

/// Truncates `packet`, or extends it with this byte.
fn at_length(packet: &[u8], length: usize, filler: u8) -> Vec<u8> {
    let mut sized = packet[..length.min(packet.len())].to_vec();
    sized.resize(length, filler);
    sized
}

fn assert_talks(pair: &mut Pair) {
    let (frames, received, texts) = (pair.bot.frames, pair.client.received.len(), pair.texts().len());
    pair.client.send("still there?");
    pair.run(secs(1));
    assert!(pair.bot.frames - frames >= 45, "{} frames", pair.bot.frames - frames);
    assert!(
        pair.client.received.len() - received >= 48,
        "{} packets",
        pair.client.received.len() - received
    );
    assert_eq!(pair.texts().len() - texts, 1);
    assert_eq!(pair.left(), None);
}

#[test]
fn packets_of_every_length_are_harmless() {
    let (mut pair, sent) = call();
    let kinds = kinds(&sent);
    let names: Vec<&str> = kinds.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "RTCP",
            "RTP",
            "a ClientHello",
            "a check",
            "a handshake",
            "an answer to a check",
            "data"
        ]
    );
    let source = pair.client.address;
    for (name, packet) in kinds {
        for length in 0..=DATAGRAM_BYTES_MAX {
            for filler in [0, 0xff] {
                let sized = at_length(&packet, length, filler);
                pair.act(|session, now| {
                    session.handle_packet(&ReceivedPacket::from_datagram(source, runner(), &sized), now)
                });
                assert_eq!(pair.left(), None, "{name}, {length} bytes");
            }
            if length % 50 == 0 {
                pair.run(ms(20));
            }
        }
        assert_talks(&mut pair);
    }
}

/// The same for SCTP in DTLS, with correct checksums. A client may end its own call, for example
/// with an invalid INIT, but has no other effect.
#[test]
fn sctp_packets_of_every_length_are_harmless_to_others() {
    let (mut pair, _) = call();
    let sent = pair.client.wires.lock().expect("whole").from_client.clone();
    let mut kinds = std::collections::BTreeMap::new();
    for packet in sent {
        kinds.entry(chunks(&packet)).or_insert(packet);
    }
    assert!(kinds.len() >= 4, "{:?}", kinds.keys());
    for (kind, packet) in kinds {
        let mut ended = 0;
        for length in 0..=1_100 {
            for filler in [0, 0xff] {
                if let Some((reason, _)) = pair.left() {
                    assert_eq!(reason, LeaveReason::Left, "{kind:?}, {length} bytes");
                    ended += 1;
                    pair = call().0;
                }
                let sized = at_length(&packet, length, filler);
                pair.client.wires.lock().expect("whole").instead = Some(sized);
                // The connection's own data is replaced.
                pair.client.send("x");
                pair.flush();
            }
            pair.run(ms(5));
        }
        pair.run(secs(5));
        assert!(ended <= ENDED_MAX, "{kind:?} ended {ended} calls");
        if pair.left().is_none() {
            assert_talks(&mut pair);
        }
        pair = call().0;
    }
}
