//! Retransmits the last DTLS record after an outage.
//!
//! SCTP doubles its retransmission timer during an outage: after 20 s the first message would be
//! another 11 s late. A peer that missed the last record accepts a copy, and its acknowledgement
//! restarts SCTP at once. A peer that received it drops the copy as a replay. In: packets in both
//! directions. Out: the record, once. Sources: RFC 9260 section 6.3.3, RFC 6347 section 4.1.2.6.

use std::time::Instant;

use super::packet::PacketPath;
use super::packet::Transmit;
use crate::limits::OUTAGE_AFTER;
use crate::webrtc::packet_kind::PacketKind;

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
        let way = self.path.take()?;
        Some(Transmit::from_parts(way, self.contents.clone()))
    }
}
