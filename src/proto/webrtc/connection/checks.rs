//! Connectivity checks of this end that await an answer.
//!
//! In: sent and received packets. Out: whether a packet answers a check that was sent to its source
//! address, and how long that took. Only the receiver of a check knows its transaction id, so a
//! matching answer shows that the sender is at that address (return routability). str0m verifies
//! the signature. Sources: RFC 8489 section 5, RFC 8445 section 7.2.5.2.1.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::packet::PacketPath;
use super::packet::{ReceivedPacket, Transmit};
use crate::webrtc::packet_kind::PacketKind;

/// Connectivity checks that await a response: at 50 ms intervals, those of six seconds.
const PENDING_CHECKS_MAX: usize = 128;

type TransactionId = [u8; 12];

struct PendingCheck {
    id: TransactionId,
    path: PacketPath,
    initiator: CheckInitiator,
    sent_at: Instant,
}

/// A check that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredCheck {
    pub path: PacketPath,
    /// From the check to its answer.
    pub round_trip: Duration,
}

/// Who sent a check, and therefore reads its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckInitiator {
    Str0m,
    /// [`super::consent`].
    Consent,
}

/// Checks without an answer, oldest first.
#[derive(Default)]
pub struct PendingChecks {
    pending: VecDeque<PendingCheck>,
}

impl PendingChecks {
    /// Records an outgoing check; other packets are ignored.
    pub fn handle_outgoing(&mut self, maker: CheckInitiator, transmit: &mut Transmit, now: Instant) {
        if !transmit.is_check() {
            return;
        }
        let Some(id) = transaction_id(transmit.contents()) else {
            return;
        };
        if self.pending.len() == PENDING_CHECKS_MAX {
            self.pending.pop_front();
        }
        let path = transmit.path();
        self.pending.push_back(PendingCheck {
            id,
            path,
            initiator: maker,
            sent_at: now,
        });
    }

    /// Returns the initiator of the check that a packet answers, if the check was sent to the
    /// packet's source.
    pub fn initiator_of(&self, kind: PacketKind, packet: &ReceivedPacket<'_>) -> Option<CheckInitiator> {
        self.find(kind, packet).map(|at| self.pending[at].initiator)
    }

    /// Removes the check that a packet answers, and returns it.
    pub fn take_answered(
        &mut self,
        kind: PacketKind,
        packet: &ReceivedPacket<'_>,
        now: Instant,
    ) -> Option<AnsweredCheck> {
        let at = self.find(kind, packet)?;
        self.pending.remove(at).map(|check| AnsweredCheck {
            path: check.path,
            round_trip: now.saturating_duration_since(check.sent_at),
        })
    }

    fn find(&self, kind: PacketKind, packet: &ReceivedPacket<'_>) -> Option<usize> {
        if kind != PacketKind::CheckAnswer {
            return None;
        }
        let id = transaction_id(packet.contents)?;
        let is_there = |path: PacketPath| path.over == packet.over && path.peer == packet.source;
        let is_it = |check: &PendingCheck| check.id == id && is_there(check.path);
        self.pending.iter().position(is_it)
    }
}

fn transaction_id(contents: &[u8]) -> Option<TransactionId> {
    contents.get(8..20)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::packet::IceProtocol;
    use super::*;

    fn message(kind: [u8; 2], number: usize) -> Vec<u8> {
        let mut message = [&kind[..], &[0, 0, 0x21, 0x12, 0xa4, 0x42]].concat();
        message.extend([0; 8]);
        message.extend((number as u32).to_be_bytes());
        message
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 9], port))
    }

    fn sent(checks: &mut PendingChecks, contents: &[u8]) {
        let now = Instant::now();
        let path = PacketPath {
            over: IceProtocol::Udp,
            source: at(7860),
            peer: at(1),
        };
        checks.handle_outgoing(
            CheckInitiator::Str0m,
            &mut Transmit::from_parts(path, contents.to_vec()),
            now,
        );
    }

    fn answers(checks: &mut PendingChecks, source: SocketAddr, contents: &[u8]) -> bool {
        let packet = ReceivedPacket::from_datagram(source, at(7860), contents);
        let kind = PacketKind::from_packet(contents);
        let maker = checks.initiator_of(kind, &packet);
        let check = checks.take_answered(kind, &packet, Instant::now());
        assert_eq!(maker, check.map(|_| CheckInitiator::Str0m));
        check.is_some_and(|check| check.path.source == at(7860))
    }

    /// An answer counts once, from the checked address, over the same protocol.
    #[test]
    fn an_answer_belongs_to_one_check() {
        let mut checks = PendingChecks::default();
        sent(&mut checks, &message([0, 1], 1));
        sent(&mut checks, &message([1, 1], 2));
        sent(&mut checks, &[0, 1]);
        let answer = message([1, 1], 1);
        assert!(!answers(&mut checks, at(2), &answer), "from another port");
        assert!(
            !answers(&mut checks, at(1), &message([1, 1], 2)),
            "to what was no check"
        );
        assert!(!answers(&mut checks, at(1), &message([1, 0x11], 1)), "a refusal");
        assert!(!answers(&mut checks, at(1), &message([0, 1], 1)), "the check itself");
        assert!(!answers(&mut checks, at(1), &answer[..19]), "half of it");
        let over_tcp = ReceivedPacket {
            over: IceProtocol::Tcp,
            ..ReceivedPacket::from_datagram(at(1), at(7860), &answer)
        };
        assert_eq!(
            checks.take_answered(PacketKind::CheckAnswer, &over_tcp, Instant::now()),
            None
        );
        assert!(answers(&mut checks, at(1), &answer));
        assert!(!answers(&mut checks, at(1), &answer), "again");
    }

    /// Only the newest checks are remembered.
    #[test]
    fn pending_checks_are_bounded() {
        let mut checks = PendingChecks::default();
        for number in 0..=PENDING_CHECKS_MAX {
            sent(&mut checks, &message([0, 1], number));
        }
        assert_eq!(checks.pending.len(), PENDING_CHECKS_MAX);
        assert!(!answers(&mut checks, at(1), &message([1, 1], 0)));
        assert!(answers(&mut checks, at(1), &message([1, 1], 1)));
        assert!(answers(&mut checks, at(1), &message([1, 1], PENDING_CHECKS_MAX)));
    }
}
