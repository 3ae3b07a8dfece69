//! Adds RSA to dimpl's CertificateRequest, which asks for ECDSA alone.
//!
//! GStreamer and other stacks with RSA keys send no certificate unless the request names RSA. So
//! `rsa_sign` and SHA-256 with RSA are added to the outgoing request, and to the transcript that
//! dimpl hashes and verifies. Both changes belong together. In and out: a server's datagrams and
//! transcripts. A fragmented request is not changed, and its handshake would fail;
//! `SERVER_FLIGHT_BYTES_MAX` prevents fragmentation. Sources: RFC 5246 sections 7.4.4, 7.4.8,
//! 7.4.9; RFC 7627 section 3.

use super::records::{
    HandshakeMessage, MESSAGE_HEADER_BYTES, RECORD_HEADER_BYTES, is_handshake_in_clear, message_header, messages,
    records, write_record,
};

/// How much a datagram grows.
pub const ADDED_BYTES: usize = 1 + RSA_PKCS1_SHA256.len();
/// The room for a server's first flight, so that no message is fragmented.
pub const SERVER_FLIGHT_BYTES_MAX: usize = 800;

const CERTIFICATE_REQUEST: u8 = 13;
const RSA_SIGN: u8 = 1;
const RSA_PKCS1_SHA256: [u8; 2] = [4, 1];

/// Adds RSA to an outgoing datagram; `None` if it has no request.
pub fn add_rsa(datagram: &[u8]) -> Option<Vec<u8>> {
    let request = |record: &[u8]| {
        is_handshake_in_clear(record)
            .then(|| HandshakeMessage::split(&record[RECORD_HEADER_BYTES..]))?
            .and_then(|(message, _)| amend_request(&message))
    };
    if !records(datagram).any(|record| request(record).is_some()) {
        return None;
    }
    let mut out = Vec::with_capacity(datagram.len() + ADDED_BYTES);
    for record in records(datagram) {
        match request(record) {
            Some(message) => write_record(record, &[&message], &mut out),
            None => out.extend_from_slice(record),
        }
    }
    Some(out)
}

/// Converts dimpl's transcript to the one that the peer has.
pub fn add_rsa_to_transcript(transcript: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(transcript.len() + ADDED_BYTES);
    let mut read = 0;
    for message in messages(transcript) {
        let end = read + MESSAGE_HEADER_BYTES + message.body.len();
        match amend_request(&message) {
            Some(message) => out.extend(message),
            None => out.extend_from_slice(&transcript[read..end]),
        }
        read = end;
    }
    out.extend_from_slice(&transcript[read..]);
    out
}

/// Returns the message with RSA added, if it is a whole request.
fn amend_request(message: &HandshakeMessage<'_>) -> Option<Vec<u8>> {
    if message.kind != CERTIFICATE_REQUEST || !message.is_whole() {
        return None;
    }
    let (count, rest) = message.body.split_first()?;
    let (types, rest) = rest.split_at_checked(usize::from(*count))?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = u16::from_be_bytes(*length);
    let (algorithms, authorities) = rest.split_at_checked(usize::from(length))?;
    let length = length.checked_add(RSA_PKCS1_SHA256.len() as u16)?;
    let parts: [&[u8]; 7] = [
        &[count.checked_add(1)?],
        types,
        &[RSA_SIGN],
        &length.to_be_bytes(),
        algorithms,
        &RSA_PKCS1_SHA256,
        authorities,
    ];
    let body = parts.concat();
    Some([&message_header(message.kind, message.number, body.len()), &body[..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// dimpl's request for a client that supports both hashes, as message 4.
    const PLAIN: [u8; 22] = [13, 0, 0, 10, 0, 4, 0, 0, 0, 0, 0, 10, 1, 64, 0, 4, 4, 3, 5, 3, 0, 0];
    const AMENDED: [u8; 25] = [
        13, 0, 0, 13, 0, 4, 0, 0, 0, 0, 0, 13, 2, 64, 1, 0, 6, 4, 3, 5, 3, 4, 1, 0, 0,
    ];
    /// The next message, without a body.
    const DONE: [u8; 12] = [14, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0];

    fn record(epoch: u8, contents: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        write_record(
            &[22, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, 7, 0, 0],
            &[contents],
            &mut record,
        );
        record
    }

    #[test]
    fn a_request_asks_for_rsa_on_the_wire_and_in_the_transcript() {
        let datagram = [record(0, &DONE), record(0, &PLAIN), record(0, &DONE)].concat();
        let sent = [record(0, &DONE), record(0, &AMENDED), record(0, &DONE)].concat();
        assert_eq!(add_rsa(&datagram), Some(sent));
        let transcript = [&DONE[..], &PLAIN, &DONE].concat();
        assert_eq!(
            add_rsa_to_transcript(&transcript),
            [&DONE[..], &AMENDED, &DONE].concat()
        );
    }

    #[test]
    fn everything_else_passes_as_it_is() {
        let mut piece = PLAIN;
        piece[3] = 200;
        let encrypted = record(1, &PLAIN);
        for datagram in [&record(0, &DONE)[..], &record(0, &piece), &encrypted, &[], &[22; 30]] {
            assert_eq!(add_rsa(datagram), None);
        }
        for length in 0..PLAIN.len() {
            assert_eq!(
                add_rsa_to_transcript(&PLAIN[..length]),
                PLAIN[..length],
                "cut at {length}"
            );
        }
        // Lists whose length exceeds their content.
        for (at, says) in [(12, 255), (14, 1), (15, 255)] {
            let mut wrong = PLAIN;
            wrong[at] = says;
            assert_eq!(add_rsa_to_transcript(&wrong), wrong, "{says} at {at}");
        }
    }
}
