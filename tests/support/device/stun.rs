//! A microcontroller's STUN: binding requests and responses with short-term credentials.
//!
//! In and out: whole messages. Rejected, with the rule's name: messages larger than the device's
//! buffer of 256 bytes, and those without valid MESSAGE-INTEGRITY and FINGERPRINT as the last
//! attributes. Sources: RFC 8489, RFC 8445.

use std::net::SocketAddr;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

const COOKIE: [u8; 4] = 0x2112_a442_u32.to_be_bytes();
const HEADER_BYTES: usize = 20;
const REQUEST: u16 = 0x0001;
const RESPONSE: u16 = 0x0101;
const USERNAME: u16 = 0x0006;
const INTEGRITY: u16 = 0x0008;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
const PRIORITY: u16 = 0x0024;
const USE_CANDIDATE: u16 = 0x0025;
const ICE_CONTROLLING: u16 = 0x802a;
const FINGERPRINT: u16 = 0x8028;
/// INTEGRITY is 4 + 20 bytes, FINGERPRINT 4 + 4.
const TAIL_BYTES: usize = 32;
/// The device's unchecked buffer.
const MESSAGE_BYTES_MAX: usize = 255;
const USERNAME_BYTES_MAX: usize = 127;

/// The constant transaction id of all devices.
const TRANSACTION: [u8; 12] = *b"\x12\x34\x56\x78\x90\xab\xcd\xef\x12\x34\x56\x78";

#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    Request {
        transaction: [u8; 12],
    },
    Response,
    /// A message that the device ignores.
    Other,
}

pub fn is_stun(datagram: &[u8]) -> bool {
    datagram.len() >= HEADER_BYTES && datagram[0] < 4 && datagram[4..8] == COOKIE
}

/// A nominating binding request of the controlling side with tie-breaker 0.
pub fn request(remote_ufrag: &str, local_ufrag: &str, remote_pwd: &str) -> Vec<u8> {
    let mut message = header(REQUEST, &TRANSACTION);
    attribute(
        &mut message,
        USERNAME,
        format!("{remote_ufrag}:{local_ufrag}").as_bytes(),
    );
    attribute(&mut message, PRIORITY, &2_125_395_455_u32.to_be_bytes());
    attribute(&mut message, USE_CANDIDATE, &[]);
    attribute(&mut message, ICE_CONTROLLING, &[0; 8]);
    finish(message, remote_pwd)
}

/// The response to a request, with the device's superfluous user name.
pub fn response(
    transaction: &[u8; 12],
    to: SocketAddr,
    local_ufrag: &str,
    remote_ufrag: &str,
    local_pwd: &str,
) -> Vec<u8> {
    let SocketAddr::V4(to) = to else {
        panic!("a device has one IPv4 socket")
    };
    let mut mapped = vec![0, 1];
    mapped.extend_from_slice(&(to.port() ^ 0x2112).to_be_bytes());
    mapped.extend(to.ip().octets().iter().zip(COOKIE).map(|(byte, mask)| byte ^ mask));
    let mut message = header(RESPONSE, transaction);
    attribute(&mut message, XOR_MAPPED_ADDRESS, &mapped);
    attribute(
        &mut message,
        USERNAME,
        format!("{local_ufrag}:{remote_ufrag}").as_bytes(),
    );
    finish(message, local_pwd)
}

/// Returns whether a request has the user name of another session: the system may give a device the
/// port of an earlier one, whose session is not over for the runner.
pub fn is_for_another(message: &[u8], user_name: &str) -> bool {
    message.len() >= HEADER_BYTES
        && message.starts_with(&REQUEST.to_be_bytes())
        && find(message, USERNAME).is_some_and(|name| name != user_name.as_bytes())
}

/// Verifies and parses a message: requests use the device's password, responses the runner's.
pub fn read(message: &[u8], local_pwd: &str, remote_pwd: &str) -> Result<Message, String> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(format!(
            "STUN message of {} bytes, {MESSAGE_BYTES_MAX} fit",
            message.len()
        ));
    }
    let kind = u16::from_be_bytes([message[0], message[1]]);
    let length = usize::from(u16::from_be_bytes([message[2], message[3]]));
    if length + HEADER_BYTES != message.len() || length < TAIL_BYTES {
        return Err(format!(
            "STUN message of {} bytes states a length of {length}",
            message.len()
        ));
    }
    if let Some(name) = find(message, USERNAME)
        && name.len() > USERNAME_BYTES_MAX
    {
        return Err(format!(
            "STUN user name of {} bytes, {USERNAME_BYTES_MAX} fit",
            name.len()
        ));
    }
    let password = match kind {
        REQUEST => local_pwd,
        RESPONSE => remote_pwd,
        _ => return Ok(Message::Other),
    };
    // Re-signing everything before the tail must give the same bytes.
    let mut again = message[..message.len() - TAIL_BYTES].to_vec();
    set_length(&mut again, 0);
    if finish(again, password) != message {
        return Err(format!(
            "STUN message {kind:#06x} without valid MESSAGE-INTEGRITY and FINGERPRINT at its end"
        ));
    }
    match kind {
        REQUEST => Ok(Message::Request {
            transaction: message[8..20].try_into().expect("12 bytes"),
        }),
        _ => Ok(Message::Response),
    }
}

fn header(kind: u16, transaction: &[u8; 12]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &[0, 0], &COOKIE, transaction].concat()
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&u16::try_from(value.len()).expect("short").to_be_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Appends the tail. Each attribute's length field counts the attribute itself.
fn finish(mut message: Vec<u8>, password: &str) -> Vec<u8> {
    set_length(&mut message, 24);
    let mut mac = Hmac::<Sha1>::new_from_slice(password.as_bytes()).expect("any length");
    mac.update(&message);
    let tag: [u8; 20] = mac.finalize().into_bytes().into();
    attribute(&mut message, INTEGRITY, &tag);
    set_length(&mut message, 8);
    let check = crc32(&message) ^ 0x5354_554e;
    attribute(&mut message, FINGERPRINT, &check.to_be_bytes());
    message
}

fn set_length(message: &mut [u8], more: usize) {
    let length = u16::try_from(message.len() - HEADER_BYTES + more).expect("short");
    message[2..4].copy_from_slice(&length.to_be_bytes());
}

fn find(message: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut rest = &message[HEADER_BYTES..];
    while rest.len() >= 4 {
        let kind = u16::from_be_bytes([rest[0], rest[1]]);
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        if kind == wanted {
            return rest.get(4..4 + length);
        }
        rest = rest.get(4 + length.next_multiple_of(4)..)?;
    }
    None
}

fn crc32(bytes: &[u8]) -> u32 {
    super::crc(bytes, 0xedb8_8320)
}
