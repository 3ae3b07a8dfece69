//! Finds out why this end cannot answer a ClientHello.
//!
//! dimpl silently ignores a hello without a known suite; here it fails with a reason. In: datagrams
//! with whole hellos. Out: the missing capability. Unreadable hellos are left to dimpl. Sources:
//! RFC 5246 section 7.4.1.2, RFC 6347 section 4.2.1, RFC 8422 section 5.1.

use dimpl::SecurityError;
use str0m::crypto::dtls::ProtocolVersion;

use super::records::{RECORD_HEADER_BYTES, is_handshake_in_clear, messages, records};
use super::{SERVER_GROUPS, SUITES};

const CLIENT_HELLO: u8 = 1;
const RANDOM_BYTES: usize = 32;
const DTLS_1_0: [u8; 2] = [0xfe, 0xff];
const SUPPORTED_GROUPS: [u8; 2] = [0, 10];

/// Returns what the first hello of a datagram lacks, if anything.
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
    let (_session, rest) = split_u8_list(rest.get(RANDOM_BYTES..)?)?;
    let (_cookie, rest) = split_u8_list(rest)?;
    let (suites, rest) = split_u16_list(rest)?;
    if !SUITES.iter().any(|suite| contains(suites, suite.as_u16())) {
        return Some(SecurityError::NoMutuallyAcceptableCipherSuite);
    }
    let (_compression, rest) = split_u8_list(rest)?;
    let (mut extensions, _) = split_u16_list(rest)?;
    while let Some((kind, rest)) = extensions.split_first_chunk::<2>() {
        let (contents, rest) = split_u16_list(rest)?;
        extensions = rest;
        if *kind == SUPPORTED_GROUPS {
            let (groups, _) = split_u16_list(contents)?;
            let is_shared = SERVER_GROUPS.iter().any(|group| contains(groups, group.as_u16()));
            return (!is_shared).then_some(SecurityError::NoCommonKeyExchangeGroup);
        }
    }
    None
}

/// Splits off a list with a one-byte length.
fn split_u8_list(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

/// Splits off a list with a two-byte length.
fn split_u16_list(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

fn contains(list: &[u8], number: u16) -> bool {
    list.chunks_exact(2).any(|entry| entry == number.to_be_bytes())
}
