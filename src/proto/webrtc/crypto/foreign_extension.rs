//! Hides header extensions that str0m cannot read.
//!
//! str0m drops an RTP packet whose header extension has neither profile of RFC 8285, such as
//! ONVIF's (0xabac). A receiver may ignore any extension (RFC 3550 section 5.3.1), so str0m gets
//! the packet without it. SRTP authenticates the extension and does not encrypt it. So the received
//! header is kept while str0m handles the packet, and [`as_received`] puts it back into what the
//! tag is computed over: what is verified is what came. In: received datagrams. Out: RTP packets
//! without such an extension; everything else is unchanged. Delete this file once str0m ignores
//! these extensions; the test `str0m_still_drops_foreign_extensions` fails then.

use std::borrow::Cow;
use std::cell::RefCell;

use crate::webrtc::packet_kind::PacketKind;

const FIXED_HEADER_BYTES: usize = 12;
const EXTENSION_BIT: u8 = 0x10;
const ONE_BYTE_PROFILE: u16 = 0xbede;
/// Of the two-byte form, without its four application bits.
const TWO_BYTE_PROFILE: u16 = 0x100;

thread_local! {
    /// The header of the packet that str0m handles on this thread, up to the end of its extension;
    /// empty if nothing is hidden.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A received RTP packet without its foreign header extension.
pub struct BarePacket<'a> {
    /// The header as received, with the extension.
    received: &'a [u8],
    contents: Vec<u8>,
}

impl<'a> BarePacket<'a> {
    /// Returns `datagram` without its header extension, if str0m cannot read that.
    pub fn new(datagram: &'a [u8]) -> Option<Self> {
        let is_rtp = PacketKind::from_packet(datagram) == PacketKind::Rtp;
        let (received, payload) = split(datagram).filter(|(received, _)| is_rtp && is_foreign(received))?;
        let bare = &received[..bare_bytes(received[0])];
        let mut contents = [bare, payload].concat();
        contents[0] &= !EXTENSION_BIT;
        Some(BarePacket { received, contents })
    }

    /// Hands the packet to str0m. `handle` must verify no other packet.
    pub fn handle<T>(&self, handle: impl FnOnce(&[u8]) -> T) -> T {
        struct Forget;
        impl Drop for Forget {
            fn drop(&mut self) {
                RECEIVED.with_borrow_mut(Vec::clear);
            }
        }
        RECEIVED.with_borrow_mut(|received| received.extend_from_slice(self.received));
        let _forget = Forget;
        handle(&self.contents)
    }
}

/// Returns whether the header extension of an RTP packet is longer than the packet.
pub fn is_cut_off(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & EXTENSION_BIT != 0) && split(datagram).is_none()
}

/// Returns authenticated bytes, which begin with the header of a packet, with the header that was
/// received.
pub(super) fn as_received(authenticated: &[u8]) -> Cow<'_, [u8]> {
    RECEIVED.with_borrow(|received| {
        let rest = received.first().and_then(|first| {
            let (bare, rest) = authenticated.split_at_checked(bare_bytes(*first))?;
            let is_same = bare[0] == first & !EXTENSION_BIT && bare[1..] == received[1..bare.len()];
            is_same.then_some(rest)
        });
        rest.map_or(Cow::Borrowed(authenticated), |rest| [received, rest].concat().into())
    })
}

/// The length of a header without extension: twelve bytes and the contributing sources.
fn bare_bytes(first: u8) -> usize {
    FIXED_HEADER_BYTES + 4 * usize::from(first & 0x0f)
}

/// Splits an RTP packet with a header extension behind that.
fn split(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = datagram.first().filter(|first| **first & EXTENSION_BIT != 0)?;
    let at = bare_bytes(*first);
    let words: [u8; 2] = datagram.get(at + 2..at + 4)?.try_into().ok()?;
    datagram.split_at_checked(at + 4 + 4 * usize::from(u16::from_be_bytes(words)))
}

/// Returns whether a header with an extension has neither profile of RFC 8285.
fn is_foreign(header: &[u8]) -> bool {
    let at = bare_bytes(header[0]);
    let profile = u16::from_be_bytes([header[at], header[at + 1]]);
    profile != ONE_BYTE_PROFILE && profile >> 4 != TWO_BYTE_PROFILE
}

#[cfg(test)]
mod tests;
