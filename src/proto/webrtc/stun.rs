//! Reads the parts of STUN messages that demultiplexing needs.
//!
//! In: any datagram. Out: the first half of its USERNAME attribute, which is the fragment of the
//! receiver of a check, or the value of an attribute. str0m verifies the message. Sources: RFC 8489
//! sections 5 and 14, RFC 8445 section 7.2.2.

use crate::webrtc::packet_kind::{PacketKind, STUN_HEADER_BYTES};

pub const USERNAME: u16 = 0x0006;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;

/// Returns the receiver's fragment of a connectivity check; `None` for other datagrams.
pub fn receiver_ufrag(datagram: &[u8]) -> Option<&str> {
    if PacketKind::from_packet(datagram) != PacketKind::Check {
        return None;
    }
    let name = std::str::from_utf8(attribute(datagram, USERNAME)?).ok()?;
    name.split_once(':').map(|(receiver, _sender)| receiver)
}

/// Returns the value of the first attribute of this type.
pub fn attribute(message: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut attributes = message.get(STUN_HEADER_BYTES..)?;
    while let [kind_high, kind_low, length_high, length_low, rest @ ..] = attributes {
        let length = usize::from(u16::from_be_bytes([*length_high, *length_low]));
        let value = rest.get(..length)?;
        if u16::from_be_bytes([*kind_high, *kind_low]) == wanted {
            return Some(value);
        }
        // Attributes are padded to four bytes.
        attributes = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// Returns whether a datagram is a success response without XOR-MAPPED-ADDRESS, which RFC 8489
/// section 7.3.3 requires.
pub fn lacks_mapped_address(datagram: &[u8]) -> bool {
    PacketKind::from_packet(datagram) == PacketKind::CheckAnswer && attribute(datagram, XOR_MAPPED_ADDRESS).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
    const BINDING_SUCCESS: [u8; 2] = [0x01, 0x01];
    const BINDING_ERROR: [u8; 2] = [0x01, 0x11];

    fn request(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = vec![0, 1, 0, 0];
        message.extend(MAGIC_COOKIE);
        message.extend([7; 12]);
        for (kind, value) in attributes {
            message.extend(kind.to_be_bytes());
            message.extend((value.len() as u16).to_be_bytes());
            message.extend(*value);
            message.resize(message.len().next_multiple_of(4), 0);
        }
        let length = (message.len() - STUN_HEADER_BYTES) as u16;
        message[2..4].copy_from_slice(&length.to_be_bytes());
        message
    }

    /// The receiver's fragment is the first half, wherever the attribute is.
    #[test]
    fn a_check_names_its_session() {
        let message = request(&[(0x8022, b"agent"), (USERNAME, b"bot7:Ab3x")]);
        assert_eq!(receiver_ufrag(&message), Some("bot7"));
    }

    /// Every prefix of a check, and every check with one byte changed, is parsed without a panic.
    #[test]
    fn malformed_checks_name_no_session() {
        let message = request(&[(USERNAME, b"bot7:Ab3x")]);
        for end in 0..message.len() - 1 {
            assert_eq!(receiver_ufrag(&message[..end]).filter(|name| *name != "bot7"), None);
        }
        for at in 0..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 0xff;
            let _ = receiver_ufrag(&changed);
        }
        assert_eq!(receiver_ufrag(b""), None);
        assert_eq!(receiver_ufrag(&request(&[(USERNAME, b"no colon")])), None);
    }

    /// Answers have no user name and are routed by path. FFmpeg's WHIP muxer signs its answers but
    /// omits the address.
    #[test]
    fn answers_without_an_address_are_recognized() {
        let answer = |attributes: &[(u16, &[u8])]| [&BINDING_SUCCESS[..], &request(attributes)[2..]].concat();
        let integrity: (u16, &[u8]) = (0x0008, &[7; 20]);
        assert!(lacks_mapped_address(&answer(&[integrity])));
        assert!(lacks_mapped_address(&answer(&[])));
        assert!(!lacks_mapped_address(&answer(&[
            (XOR_MAPPED_ADDRESS, &[0; 8]),
            integrity
        ])));
        assert!(!lacks_mapped_address(&request(&[integrity])));
        let refusal = [&BINDING_ERROR[..], &request(&[])[2..]].concat();
        assert!(!lacks_mapped_address(&refusal) && !lacks_mapped_address(&BINDING_SUCCESS));
    }

    #[test]
    fn only_requests_count() {
        let mut message = request(&[(USERNAME, b"bot7:Ab3x")]);
        message[0] = 1;
        assert_eq!(receiver_ufrag(&message), None);
    }
}
