//! DTLS records that arrived before the peer's address was validated.
//!
//! str0m rejects them, and the peer repeats them only after a second. The newest
//! [`EARLY_RECORDS_MAX`] are buffered until ICE accepts their sender.

use std::net::SocketAddr;
use std::time::Instant;

use str0m::net::Receive;
use str0m::{Input, Rtc};

use super::packet::{IceProtocol, ReceivedPacket};
use crate::limits::EARLY_RECORDS_MAX;
use crate::webrtc::packet_kind::PacketKind;

struct BufferedRecord {
    over: IceProtocol,
    source: SocketAddr,
    destination: SocketAddr,
    contents: Vec<u8>,
}

/// The buffered records.
#[derive(Default)]
pub struct EarlyRecords {
    records: Vec<BufferedRecord>,
}

impl EarlyRecords {
    /// Buffers a DTLS record; other packets are dropped.
    pub fn push(&mut self, kind: PacketKind, packet: &ReceivedPacket<'_>) {
        if kind != PacketKind::Dtls {
            return;
        }
        if self.records.len() == EARLY_RECORDS_MAX {
            self.records.remove(0);
        }
        self.records.push(BufferedRecord {
            over: packet.over,
            source: packet.source,
            destination: packet.destination,
            contents: packet.contents.to_vec(),
        });
    }

    /// Delivers the oldest record whose sender ICE now accepts. Returns whether there was one.
    pub fn deliver_next(&mut self, rtc: &mut Rtc, now: Instant) -> bool {
        for at in 0..self.records.len() {
            let early = &self.records[at];
            let Ok(receive) = Receive::new(early.over.into(), early.source, early.destination, &early.contents) else {
                continue;
            };
            let input = Input::Receive(now, receive);
            // The peer may use several paths, some of which may be dead.
            if rtc.accepts(&input) {
                if let Err(error) = rtc.handle_input(input) {
                    log::debug!("datagram refused: {error}");
                }
                self.records.remove(at);
                return true;
            }
        }
        false
    }

    pub fn clear(&mut self) {
        self.records = Vec::new();
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.records.len()
    }
}
