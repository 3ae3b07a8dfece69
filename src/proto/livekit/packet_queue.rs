//! Packets that wait for the data channel of a room.
//!
//! In: packets for everybody, packets for one participant, and whether the channel is open. Out:
//! the bytes of the next packet, numbered from 1 in each stay. Packets for one participant go
//! first. The queue is bounded; dropped packets are counted. Source: `docs/spec/livekit.md` 5.3.

use std::collections::VecDeque;

use prost::Message as _;

use super::wire::DataPacket;
use crate::limits::{MESSAGES_OUT_BYTES_MAX, MESSAGES_OUT_MAX};

/// The packets of a session.
#[derive(Default)]
pub struct PacketQueue {
    is_open: bool,
    direct: VecDeque<QueuedPacket>,
    common: VecDeque<QueuedPacket>,
    /// The bytes of all queued packets.
    bytes: usize,
    /// The number of the last packet.
    sequence: u32,
    dropped: u64,
}

struct QueuedPacket {
    packet: DataPacket,
    bytes: usize,
}

impl PacketQueue {
    /// Handles an opened channel.
    pub fn handle_open(&mut self) {
        self.is_open = true;
    }

    /// Handles the end of a stay. Packets for everybody wait for the next one; those for a
    /// participant belong to this one.
    pub fn handle_close(&mut self) {
        self.is_open = false;
        self.sequence = 0;
        for queued in self.direct.drain(..) {
            self.bytes -= queued.bytes;
        }
    }

    /// Queues a packet for everybody.
    pub fn push(&mut self, packet: DataPacket) {
        let bytes = packet.encoded_len();
        self.bytes += bytes;
        self.common.push_back(QueuedPacket { packet, bytes });
        self.drop_oldest();
    }

    /// Queues a packet for one participant.
    pub fn push_direct(&mut self, packet: DataPacket) {
        let bytes = packet.encoded_len();
        self.bytes += bytes;
        self.direct.push_back(QueuedPacket { packet, bytes });
        self.drop_oldest();
    }

    /// Returns the bytes of the next packet. With `direct_only`, those for everybody wait.
    pub fn peek(&mut self, direct_only: bool) -> Option<Vec<u8>> {
        let number = self.sequence.wrapping_add(1).max(1);
        let common = self.common.front_mut().filter(|_| !direct_only);
        let next = self.direct.front_mut().or(common).filter(|_| self.is_open)?;
        next.packet.sequence = number;
        Some(next.packet.encode_to_vec())
    }

    /// Removes the packet that [`PacketQueue::peek`] returned.
    pub fn handle_sent(&mut self) {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let sent = self.direct.pop_front().or_else(|| self.common.pop_front());
        self.bytes -= sent.map_or(0, |queued| queued.bytes);
    }

    /// Returns how many packets were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn drop_oldest(&mut self) {
        while self.direct.len() + self.common.len() > MESSAGES_OUT_MAX || self.bytes > MESSAGES_OUT_BYTES_MAX {
            let oldest = self.common.pop_front().or_else(|| self.direct.pop_front());
            self.bytes -= oldest.map_or(0, |queued| queued.bytes);
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::livekit::wire::{DataValue, UserPacket};

    fn text(payload: &str, to: &[&str]) -> DataPacket {
        DataPacket {
            destination_identities: to.iter().map(|to| (*to).to_owned()).collect(),
            value: Some(DataValue::User(UserPacket {
                payload: payload.to_owned().into(),
                ..UserPacket::default()
            })),
            ..DataPacket::default()
        }
    }

    /// Returns text and number of the next packet.
    fn next(queue: &mut PacketQueue, direct_only: bool) -> Option<(String, u32)> {
        let bytes = queue.peek(direct_only)?;
        queue.handle_sent();
        let packet = DataPacket::decode(&bytes[..]).expect("a packet");
        let Some(DataValue::User(user)) = packet.value else {
            panic!("a text")
        };
        Some((String::from_utf8(user.payload.into()).expect("text"), packet.sequence))
    }

    #[test]
    fn numbers_packets_from_one_in_each_stay() {
        let mut queue = PacketQueue::default();
        for payload in ["a", "b", "c"] {
            queue.push(text(payload, &[]));
        }
        assert_eq!(next(&mut queue, false), None, "the channel is closed");
        queue.handle_open();
        assert_eq!(next(&mut queue, false), Some(("a".into(), 1)));
        queue.push_direct(text("to ann", &["ann"]));
        assert_eq!(queue.peek(false), queue.peek(false), "nothing is sent yet");
        assert_eq!(next(&mut queue, true), Some(("to ann".into(), 2)));
        assert_eq!(next(&mut queue, true), None, "the others wait");
        assert_eq!(next(&mut queue, false), Some(("b".into(), 3)));
        queue.push_direct(text("to ann", &["ann"]));
        queue.handle_close();
        assert_eq!(next(&mut queue, false), None);
        queue.handle_open();
        assert_eq!(next(&mut queue, false), Some(("c".into(), 1)), "ann may be gone");
        assert_eq!((next(&mut queue, false), queue.bytes), (None, 0));
    }

    #[test]
    fn keeps_the_newest() {
        let mut queue = PacketQueue::default();
        queue.handle_open();
        for number in 0..MESSAGES_OUT_MAX + 3 {
            queue.push(text(&number.to_string(), &[]));
        }
        assert_eq!((queue.dropped(), next(&mut queue, false)), (3, Some(("3".into(), 1))));
        queue.push(text(&"x".repeat(MESSAGES_OUT_BYTES_MAX), &[]));
        assert!(queue.bytes <= MESSAGES_OUT_BYTES_MAX && queue.dropped() > 3);
    }
}
