//! DTLS records around the handshake: those that come too early, the last one of an outage, and the
//! last flight to a device that misses it.
//!
//! In: packets in both directions, and `now`. Out: records for str0m, repeated or changed packets
//! for the peer. Sources: RFC 9260 section 6.3.3, RFC 6347 section 4.1, `docs/spec/devices.md` 6.

use std::net::SocketAddr;
use std::time::Instant;

use str0m::net::Receive;
use str0m::{Input, Rtc};

use super::packet::{IceProtocol, PacketPath, ReceivedPacket, Transmit};
use crate::limits::{EARLY_RECORDS_MAX, OUTAGE_AFTER};
use crate::webrtc::packet_kind::PacketKind;

struct BufferedRecord {
    over: IceProtocol,
    source: SocketAddr,
    destination: SocketAddr,
    contents: Vec<u8>,
}

/// DTLS records that arrived before the peer's address was validated. str0m rejects them, and the
/// peer repeats them only after a second. The newest [`EARLY_RECORDS_MAX`] are buffered until ICE
/// accepts their sender.
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

/// Retransmits the last DTLS record after an outage.
///
/// SCTP doubles its retransmission timer during an outage: after 20 s the first message would be
/// another 11 s late. A peer that missed the last record accepts a copy, and its acknowledgement
/// restarts SCTP at once. A peer that received it drops the copy as a replay (RFC 6347 section
/// 4.1.2.6).
#[derive(Default)]
pub struct LastRecord {
    path: Option<PacketPath>,
    sent_at: Option<Instant>,
    /// Reused for every record, to avoid allocations.
    contents: Vec<u8>,
    /// When the record is sent again.
    due_at: Option<Instant>,
}

impl LastRecord {
    pub fn handle_outgoing(&mut self, transmit: &mut Transmit, now: Instant) {
        if transmit.kind() != PacketKind::Dtls {
            return;
        }
        self.path = Some(transmit.path());
        self.sent_at = Some(now);
        self.contents.clear();
        self.contents.extend_from_slice(transmit.contents());
    }

    pub fn handle_incoming(&mut self, kind: PacketKind) {
        if kind == PacketKind::Dtls {
            self.path = None;
            self.due_at = None;
        }
    }

    /// Schedules a retransmission for when an answer is overdue.
    pub fn schedule_repeat(&mut self, now: Instant) {
        self.due_at = self.sent_at.map(|left| now.max(left + OUTAGE_AFTER));
    }

    /// Returns the record if its retransmission is due.
    pub fn take_due(&mut self, now: Instant) -> Option<Transmit> {
        self.due_at.take_if(|due| now >= *due)?;
        let path = self.path.take()?;
        Some(Transmit::from_parts(path, self.contents.clone()))
    }
}

/// The application-data content type, RFC 6347 section 4.1.
const APPLICATION_DATA: u8 = 23;

/// One byte of application data in the highest epoch.
const SKIPPED_RECORD: [u8; 14] = [APPLICATION_DATA, 0xfe, 0xfd, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// Flights sent unchanged while the peer's state is unknown. A slow device may still process the
/// first when the second arrives.
const PLAIN_FLIGHTS_MAX: u32 = 2;

/// The length of a record header, RFC 6347 section 4.1.
const HEADER_BYTES: usize = 13;

/// Helps a microcontroller that misses the end of its DTLS handshake.
///
/// libpeer considers the handshake done when it has sent its Finished. From then on it only reads
/// datagrams that begin with application data, so it ignores retransmissions of this end's last
/// flight, and the call stays silent. So an application-data record with an impossible epoch, which
/// every receiver skips, is prepended. The device then reads nothing else for a second, so the
/// record is added only after a packet that proves a finished handshake, or after two plain
/// retransmissions.
#[derive(Default)]
pub struct LastFlight {
    peer_finished: bool,
    /// How often the last flight has been sent.
    flights_sent: u32,
}

impl LastFlight {
    /// Handles a packet from the peer's validated address.
    pub fn handle_incoming(&mut self, kind: PacketKind, contents: &[u8]) {
        self.peer_finished |= match kind {
            PacketKind::Rtp | PacketKind::Rtcp => true,
            PacketKind::Dtls => contents[0] == APPLICATION_DATA,
            _ => false,
        };
    }

    /// Prepends the skipped record to a retransmission of the last flight.
    pub fn handle_outgoing(&mut self, transmit: &mut Transmit) {
        if !contains_encrypted_handshake(transmit.contents()) {
            return;
        }
        if self.peer_finished || self.flights_sent >= PLAIN_FLIGHTS_MAX {
            transmit.prepend(&SKIPPED_RECORD);
        }
        self.flights_sent = self.flights_sent.saturating_add(1);
    }
}

/// Returns whether a datagram contains an encrypted handshake record, which is the Finished.
fn contains_encrypted_handshake(mut records: &[u8]) -> bool {
    while let [content, _, _, epoch_high, epoch_low, .., high, low] = records.get(..HEADER_BYTES).unwrap_or_default() {
        if *content == 22 && (*epoch_high, *epoch_low) != (0, 0) {
            return true;
        }
        let next = HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
        records = records.get(next..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(content: u8, epoch: u8, length: u8) -> Vec<u8> {
        let mut record = vec![content, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, 1, 0, length];
        record.resize(HEADER_BYTES + usize::from(length), 7);
        record
    }

    fn leaving(flight: &mut LastFlight, contents: &[u8]) -> Vec<u8> {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let path = PacketPath {
            over: IceProtocol::Udp,
            source: address,
            peer: address,
        };
        let mut transmit = Transmit::from_parts(path, contents.to_vec());
        flight.handle_outgoing(&mut transmit);
        transmit.contents().to_vec()
    }

    /// only a repeated last flight changes, and only after the device's handshake has
    /// finished.
    #[test]
    fn a_finished_device_reads_the_repeated_flight() {
        let keys = [record(22, 0, 40), record(20, 0, 1)].concat();
        let flight = [keys.clone(), record(22, 1, 40)].concat();
        for after in [vec![0x80, 111, 0, 0], record(23, 1, 20)] {
            let mut last = LastFlight::default();
            for before in [record(22, 0, 30), vec![0x00, 0x01]] {
                last.handle_incoming(PacketKind::from_packet(&before), &before);
                assert_eq!(leaving(&mut last, &flight), flight);
            }
            last.handle_incoming(PacketKind::from_packet(&after), &after);
            assert_eq!(leaving(&mut last, &flight), [&SKIPPED_RECORD[..], &flight].concat());
            assert_eq!(leaving(&mut last, &keys), keys, "nothing of the end is in it");
        }
    }

    /// A muted device that lost its first packet after the handshake gives no sign of its state.
    #[test]
    fn the_record_is_prepended_after_two_plain_flights() {
        let flight = record(22, 1, 40);
        let mut last = LastFlight::default();
        let left: Vec<bool> = (0..4).map(|_| leaving(&mut last, &flight) == flight).collect();
        assert_eq!(left, [true, true, false, false]);
    }

    /// Truncated records and false lengths change nothing.
    #[test]
    fn malformed_records_are_sent_unchanged() {
        let mut last = LastFlight::default();
        last.handle_incoming(PacketKind::from_packet(&[128]), &[128]);
        let mut long = record(22, 0, 40);
        long[12] = 200;
        for contents in [Vec::new(), vec![22, 0xfe, 0xfd], long, vec![0x00, 0x01, 0, 0]] {
            assert_eq!(leaving(&mut last, &contents), contents);
        }
    }
}
