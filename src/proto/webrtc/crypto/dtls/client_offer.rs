//! What a ClientHello offers, as far as nothing in it may be spoken here.
//!
//! dimpl passes over a hello without a suite that it knows as if it had not come; here it is refused
//! with the reason. In: datagrams with whole hellos. Out: what is missing; what cannot be read is
//! left to dimpl. Sources: RFC 5246 section 7.4.1.2, RFC 6347 section 4.2.1, RFC 8422 section 5.1.

use dimpl::SecurityError;
use str0m::crypto::dtls::ProtocolVersion;

use super::records::{RECORD_HEADER_BYTES, is_handshake_in_clear, messages, records};
use super::{SERVER_GROUPS, SUITES};

const CLIENT_HELLO: u8 = 1;
const RANDOM_BYTES: usize = 32;
const DTLS_1_0: [u8; 2] = [0xfe, 0xff];
const SUPPORTED_GROUPS: [u8; 2] = [0, 10];

/// Returns what keeps this end from answering the first hello of a datagram, if something does.
pub fn missing_capability(datagram: &[u8]) -> Option<SecurityError> {
    records(datagram)
        .filter(|record| is_handshake_in_clear(record))
        .flat_map(|record| messages(&record[RECORD_HEADER_BYTES..]))
        .find(|message| message.kind == CLIENT_HELLO && message.is_whole())
        .and_then(|message| missing_in_hello(message.body))
}

fn missing_in_hello(hello: &[u8]) -> Option<SecurityError> {
    let (version, rest) = hello.split_first_chunk::<2>()?;
    if *version == DTLS_1_0 {
        return Some(SecurityError::UnsupportedClientVersion(ProtocolVersion::DTLS1_0));
    }
    let (_session, rest) = too_short(rest.get(RANDOM_BYTES..)?)?;
    let (_cookie, rest) = too_short(rest)?;
    let (suites, rest) = has_long_list(rest)?;
    if !SUITES.iter().any(|suite| has(suites, suite.as_u16())) {
        return Some(SecurityError::NoMutuallyAcceptableCipherSuite);
    }
    let (_compression, rest) = too_short(rest)?;
    let (mut extensions, _) = has_long_list(rest)?;
    while let Some((kind, rest)) = extensions.split_first_chunk::<2>() {
        let (contents, rest) = has_long_list(rest)?;
        extensions = rest;
        if *kind == SUPPORTED_GROUPS {
            let (groups, _) = has_long_list(contents)?;
            let is_shared = SERVER_GROUPS.iter().any(|group| has(groups, group.as_u16()));
            return (!is_shared).then_some(SecurityError::NoCommonKeyExchangeGroup);
        }
    }
    None
}

/// Cuts off a list whose length has one byte.
fn too_short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

/// Cuts off a list whose length has two bytes.
fn has_long_list(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

fn has(list: &[u8], number: u16) -> bool {
    list.chunks_exact(2).any(|entry| entry == number.to_be_bytes())
}
