//! The connectivity checks of this end that are under way, and which of them an answer belongs to.
//!
//! In: what is sent, and what came. Out: whether a packet answers a check that was sent to its very
//! source. The transaction id of a check is known to who has received it, so such an answer shows
//! that its sender is where it says (return routability); whether it is signed is str0m's to say.
//! Sources: RFC 8489 section 5, RFC 8445 section 7.2.5.2.1.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::packet::{Over, Packet, is_answer, is_check};
use crate::limits::CHECKS_UNDER_WAY_MAX;

type TransactionId = [u8; 12];

struct Check {
    id: TransactionId,
    over: Over,
    destination: SocketAddr,
}

/// Checks without an answer, the oldest first.
#[derive(Default)]
pub struct Checks {
    under_way: VecDeque<Check>,
}

impl Checks {
    /// Takes note of a packet that leaves; anything but a check is none.
    pub fn handle_outgoing(&mut self, over: Over, destination: SocketAddr, contents: &[u8]) {
        let Some(id) = transaction_id(contents).filter(|_| is_check(contents)) else {
            return;
        };
        if self.under_way.len() == CHECKS_UNDER_WAY_MAX {
            self.under_way.pop_front();
        }
        self.under_way.push_back(Check { id, over, destination });
    }

    /// Tells whether a packet answers a check that was sent to where it comes from. Each is
    /// answered once.
    pub fn take_answered(&mut self, packet: &Packet<'_>) -> bool {
        let id = transaction_id(packet.contents).filter(|_| is_answer(packet.contents));
        let is_it =
            |check: &Check| Some(check.id) == id && check.over == packet.over && check.destination == packet.source;
        let at = self.under_way.iter().position(is_it);
        at.and_then(|at| self.under_way.remove(at)).is_some()
    }
}

fn transaction_id(contents: &[u8]) -> Option<TransactionId> {
    contents.get(8..20)?.try_into().ok()
}

#[cfg(test)]
mod tests {
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

    fn answers(checks: &mut Checks, source: SocketAddr, contents: &[u8]) -> bool {
        checks.take_answered(&Packet::datagram(source, at(7860), contents))
    }

    /// An answer counts from where its check was sent, over what carried it, and once; nothing else
    /// is an answer.
    #[test]
    fn an_answer_belongs_to_one_check() {
        let mut checks = Checks::default();
        checks.handle_outgoing(Over::Udp, at(1), &message([0, 1], 1));
        checks.handle_outgoing(Over::Udp, at(1), &message([1, 1], 2));
        checks.handle_outgoing(Over::Udp, at(1), &[0, 1]);
        let answer = message([1, 1], 1);
        assert!(!answers(&mut checks, at(2), &answer), "from another port");
        assert!(
            !answers(&mut checks, at(1), &message([1, 1], 2)),
            "to what was no check"
        );
        assert!(!answers(&mut checks, at(1), &message([1, 0x11], 1)), "a refusal");
        assert!(!answers(&mut checks, at(1), &message([0, 1], 1)), "the check itself");
        assert!(!answers(&mut checks, at(1), &answer[..19]), "half of it");
        let over_tcp = Packet {
            over: Over::Tcp,
            ..Packet::datagram(at(1), at(7860), &answer)
        };
        assert!(!checks.take_answered(&over_tcp));
        assert!(answers(&mut checks, at(1), &answer));
        assert!(!answers(&mut checks, at(1), &answer), "again");
    }

    /// So many checks are remembered, the newest.
    #[test]
    fn checks_under_way_are_bounded() {
        let mut checks = Checks::default();
        for number in 0..=CHECKS_UNDER_WAY_MAX {
            checks.handle_outgoing(Over::Udp, at(1), &message([0, 1], number));
        }
        assert_eq!(checks.under_way.len(), CHECKS_UNDER_WAY_MAX);
        assert!(!answers(&mut checks, at(1), &message([1, 1], 0)));
        assert!(answers(&mut checks, at(1), &message([1, 1], 1)));
        assert!(answers(&mut checks, at(1), &message([1, 1], CHECKS_UNDER_WAY_MAX)));
    }
}
