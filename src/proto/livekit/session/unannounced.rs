//! Data of participants that the server has yet to announce.
//!
//! In: packets of unknown participants, and the announcement of one. Out: its packets, in their
//! order. A server announces participants without a track in batches, up to 3 s after others
//! receive their data. Packets are bounded in number, bytes and age; others are dropped. Source:
//! `docs/spec/livekit.md` 5.3.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::limits::MESSAGES_IN_BYTES_MAX;
use crate::livekit::wire::DataPacket;

/// Packets that wait for the announcement of their participants; together they have no more bytes
/// than [`MESSAGES_IN_BYTES_MAX`].
const ROOM_UNANNOUNCED_MAX: usize = 512;
/// Packets of one such participant: those of an application that sends thirty a second for 4 s.
const ROOM_UNANNOUNCED_EACH: usize = 128;
/// Age of data that waits for the announcement of its participant, which servers make within 3 s.
const ROOM_ANNOUNCED_WITHIN: Duration = Duration::from_secs(10);

/// The packets of participants that are not announced.
#[derive(Default)]
pub(super) struct UnannouncedData {
    packets: VecDeque<UnannouncedPacket>,
    bytes: usize,
}

struct UnannouncedPacket {
    packet: DataPacket,
    bytes: usize,
    until: Instant,
}

impl UnannouncedData {
    /// Keeps a packet of so many bytes, if it fits.
    pub fn push(&mut self, packet: DataPacket, bytes: usize, now: Instant) {
        self.retain(|held| now < held.until);
        let is_same = |held: &&UnannouncedPacket| held.packet.participant_identity == packet.participant_identity;
        if self.packets.len() >= ROOM_UNANNOUNCED_MAX
            || self.bytes + bytes > MESSAGES_IN_BYTES_MAX
            || self.packets.iter().filter(is_same).count() >= ROOM_UNANNOUNCED_EACH
        {
            return log::debug!("data ignored: too much of participants that are not announced");
        }
        self.bytes += bytes;
        let until = now + ROOM_ANNOUNCED_WITHIN;
        self.packets.push_back(UnannouncedPacket { packet, bytes, until });
    }

    /// Returns the packets of a participant.
    pub fn take(&mut self, identity: &str, now: Instant) -> Vec<DataPacket> {
        let mut taken = Vec::new();
        self.retain(|held| {
            let is_taken = held.packet.participant_identity == identity;
            if is_taken && now < held.until {
                taken.push(std::mem::take(&mut held.packet));
            }
            !is_taken
        });
        taken
    }

    fn retain(&mut self, mut is_kept: impl FnMut(&mut UnannouncedPacket) -> bool) {
        self.packets.retain_mut(|held| {
            let kept = is_kept(held);
            if !kept {
                self.bytes -= held.bytes;
            }
            kept
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(identity: &str) -> DataPacket {
        DataPacket {
            participant_identity: identity.into(),
            ..DataPacket::default()
        }
    }

    #[test]
    fn holds_packets_by_participant_within_bounds() {
        let (mut data, start) = (UnannouncedData::default(), Instant::now());
        for identity in ["ann", "bob", "ann"] {
            data.push(of(identity), 10, start);
        }
        assert_eq!(data.take("ann", start), [of("ann"), of("ann")]);
        assert_eq!((data.take("ann", start).len(), data.bytes), (0, 10));
        data.push(of("ann"), MESSAGES_IN_BYTES_MAX, start);
        assert!(data.take("ann", start).is_empty(), "bob's packet has its room");
        let identities: Vec<String> = (0..5).map(|at| format!("cid-{at}")).collect();
        for identity in &identities {
            for _ in 0..=ROOM_UNANNOUNCED_EACH {
                data.push(of(identity), 0, start);
            }
        }
        let taken = identities.iter().map(|identity| data.take(identity, start).len());
        let each = ROOM_UNANNOUNCED_EACH;
        assert_eq!(
            taken.collect::<Vec<_>>(),
            [each, each, each, each - 1, 0],
            "bob has one"
        );
        let late = start + ROOM_ANNOUNCED_WITHIN;
        assert!(data.take("bob", late - Duration::from_nanos(1)).len() == 1 && data.bytes == 0);
        data.push(of("bob"), 10, start);
        assert!(data.take("bob", late).is_empty());
        data.push(of("bob"), 10, start);
        data.push(of("ann"), MESSAGES_IN_BYTES_MAX, late);
        assert_eq!(data.take("ann", late).len(), 1, "old packets make room");
    }
}
