//! Classifies a datagram by its first bytes.
//!
//! In: any datagram. Out: its [`PacketKind`], which is a claim until the packet is authenticated.
//! All code that needs the kind of a packet uses this. Sources: RFC 7983 (first bytes), RFC 5761
//! section 4 (RTCP on the RTP port), RFC 8489 sections 5 and 6 (STUN).

/// The length of a STUN header.
pub const STUN_HEADER_BYTES: usize = 20;
const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// What a datagram claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A STUN binding request: a connectivity check.
    Check,
    /// A success response to a check.
    CheckAnswer,
    /// An error response to a check.
    CheckError,
    /// Any other STUN message.
    Stun,
    /// DTLS records.
    Dtls,
    Rtp,
    Rtcp,
    Other,
}

impl PacketKind {
    pub fn from_packet(packet: &[u8]) -> Self {
        match packet {
            [0..=3, ..] => PacketKind::from_stun(packet),
            [20..=63, ..] => PacketKind::Dtls,
            [128..=191, 192..=223, ..] => PacketKind::Rtcp,
            [128..=191, ..] => PacketKind::Rtp,
            _ => PacketKind::Other,
        }
    }

    fn from_stun(packet: &[u8]) -> Self {
        if packet.len() < STUN_HEADER_BYTES || packet[4..8] != MAGIC_COOKIE {
            return PacketKind::Stun;
        }
        match packet[..2] {
            [0x00, 0x01] => PacketKind::Check,
            [0x01, 0x01] => PacketKind::CheckAnswer,
            [0x01, 0x11] => PacketKind::CheckError,
            _ => PacketKind::Stun,
        }
    }

    /// Returns whether this is any STUN message.
    pub fn is_stun(self) -> bool {
        use PacketKind::{Check, CheckAnswer, CheckError, Stun};
        matches!(self, Check | CheckAnswer | CheckError | Stun)
    }

    /// Returns whether this is a response to a check.
    pub fn is_response(self) -> bool {
        matches!(self, PacketKind::CheckAnswer | PacketKind::CheckError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stun(kind: [u8; 2]) -> Vec<u8> {
        let mut message = [&kind[..], &[0, 0], &MAGIC_COOKIE].concat();
        message.resize(STUN_HEADER_BYTES, 7);
        message
    }

    /// RFC 7983 section 7, for every pair of first bytes.
    #[test]
    fn the_first_bytes_tell_the_protocol() {
        for first in 0..=255 {
            for second in 0..=255 {
                let kind = PacketKind::from_packet(&[first, second, 0, 0]);
                let expected = match (first, second) {
                    (0..=3, _) => PacketKind::Stun,
                    (20..=63, _) => PacketKind::Dtls,
                    (128..=191, 192..=223) => PacketKind::Rtcp,
                    (128..=191, _) => PacketKind::Rtp,
                    _ => PacketKind::Other,
                };
                assert_eq!(kind, expected, "{first} {second}");
            }
            assert_eq!(PacketKind::from_packet(&[first]).is_stun(), first < 4);
        }
        assert_eq!(PacketKind::from_packet(&[]), PacketKind::Other);
    }

    /// A truncated message, or one without the magic cookie, is neither a check nor an answer.
    #[test]
    fn checks_differ_from_their_answers() {
        for (kind, expected) in [
            ([0, 1], PacketKind::Check),
            ([1, 1], PacketKind::CheckAnswer),
            ([1, 0x11], PacketKind::CheckError),
            ([0, 0x11], PacketKind::Stun),
        ] {
            let mut message = stun(kind);
            assert_eq!(PacketKind::from_packet(&message), expected);
            assert_eq!(PacketKind::from_packet(&message).is_response(), kind[0] == 1);
            assert_eq!(
                PacketKind::from_packet(&message[..STUN_HEADER_BYTES - 1]),
                PacketKind::Stun
            );
            message[4] = 0;
            assert_eq!(PacketKind::from_packet(&message), PacketKind::Stun);
        }
    }
}
