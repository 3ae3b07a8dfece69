//! The last DTLS record that left, as long as nothing has come back.
//!
//! In an outage SCTP doubles its waits: the first message after 20 s would be another 11 s late. The
//! peer never saw the record that left last, so to it a copy is the first one; with its
//! acknowledgement everything else goes on at once. A peer that did see it drops the copy as a
//! replay. In: packets that leave and come. Out: that record, once. Sources: RFC 9260 section 6.3.3,
//! RFC 6347 section 4.1.2.6.

use std::time::Instant;

use super::packet::PacketPath;
use super::packet::Transmit;
use crate::limits::OUTAGE_AFTER;
use crate::webrtc::packet_kind::PacketKind;

#[derive(Default)]
pub struct LastRecord {
    path: Option<PacketPath>,
    sent_at: Option<Instant>,
    /// Kept from one record to the next, so that none allocates.
    contents: Vec<u8>,
    /// When it leaves again.
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

    /// Lets the record leave again as soon as it should have been answered.
    pub fn schedule_repeat(&mut self, now: Instant) {
        self.due_at = self.sent_at.map(|left| now.max(left + OUTAGE_AFTER));
    }

    /// Returns the record if it has to leave again.
    pub fn take_due(&mut self, now: Instant) -> Option<Transmit> {
        self.due_at.take_if(|due| now >= *due)?;
        let way = self.path.take()?;
        Some(Transmit::from_parts(way, self.contents.clone()))
    }
}
