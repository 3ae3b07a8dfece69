//! Allocations per packet of a running call, from datagram to PCM and back. All come from the
//! libraries below. The figures may fall, but must not grow unnoticed.

use super::pair::{Pair, Tone, secs};

/// A received audio packet: str0m copies its payload.
const PER_PACKET_RECEIVED: u64 = 1;
/// A sent audio packet: three blocks in the encoder, and in str0m the queued payload and the
/// datagram.
const PER_PACKET_SAID: u64 = 5;
/// A check, an answer, or a receiver report; one occurs every few seconds.
const PER_CHECK: u64 = 16;

/// Returns whether a datagram is RTP or RTCP, by its first byte (RFC 7983).
fn is_rtp(first: u8) -> bool {
    (128..192).contains(&first)
}

#[test]
fn packets_of_a_call_cost_only_the_libraries_allocations() {
    let mut pair = Pair::connected();
    pair.open_audio(16_000, 16_000);
    pair.client.speak(440.0, pair.now);
    pair.say(&Tone::new(330.0, 16_000).take(40 * 16_000));
    // Buffers reach their sizes.
    pair.run(secs(10));
    pair.keep_costs = true;
    pair.run(secs(20));
    let (mut received, mut said, mut checks) = (0, 0, 0);
    for cost in &pair.costs {
        let most = match (cost.datagram, cost.frames, cost.sent) {
            (Some(first), 1, 0) if is_rtp(first) => {
                received += 1;
                PER_PACKET_RECEIVED
            }
            (None, 0, 1) => {
                said += 1;
                PER_PACKET_SAID
            }
            _ => {
                checks += 1;
                PER_CHECK
            }
        };
        // Sometimes a check is due together with an audio packet.
        let with_check = checks < 100 && cost.allocations > most;
        checks += u64::from(with_check);
        let most = if with_check { most + PER_CHECK } else { most };
        assert!(cost.allocations <= most, "{cost:?}, {most} at most");
    }
    assert!(
        received > 980 && said > 980 && checks < 60,
        "{received} received, {said} said, {checks} others"
    );
}
