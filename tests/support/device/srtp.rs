//! An SRTP independent of the runner's: `AES_CM_128_HMAC_SHA1_80` alone.
//!
//! In: master keys and RTP packets. Out: protected packets, or the peer's decrypted ones; RTCP is
//! only authenticated. Sources: RFC 3711 (4.1.1 key stream, 4.2 tags, 4.3 key derivation), RFC 5764
//! 4.2.

use aes::Aes128;
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit, StreamCipher};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

const TAG_BYTES: usize = 10;
const RTP_HEADER_BYTES: usize = 12;

/// One direction of one session.
pub struct Context {
    cipher_key: [u8; 16],
    auth_key: [u8; 20],
    salt: [u8; 14],
    rtcp_auth_key: [u8; 20],
    /// The highest index: roll-over counter and sequence number.
    index: Option<u64>,
}

/// Splits the keying material into a DTLS server's sending and receiving contexts.
pub fn server_contexts(material: &[u8]) -> (Context, Context) {
    let part = |at: usize, bytes: usize| &material[at..at + bytes];
    let client = Context::new(part(0, 16), part(32, 14));
    let server = Context::new(part(16, 16), part(46, 14));
    (server, client)
}

impl Context {
    fn new(key: &[u8], salt: &[u8]) -> Self {
        Self {
            cipher_key: derive(key, salt, 0),
            auth_key: derive(key, salt, 1),
            salt: derive(key, salt, 2),
            rtcp_auth_key: derive(key, salt, 4),
            index: None,
        }
    }

    /// Encrypts and tags an RTP packet without CSRC, whose header extension has so many bytes.
    pub fn protect(&mut self, packet: &mut Vec<u8>, extension_bytes: usize) {
        let index = self.next_index(packet);
        self.index = self.index.max(Some(index));
        self.key_stream(packet, RTP_HEADER_BYTES + extension_bytes, index);
        let tag = self.tag(packet, index);
        packet.extend_from_slice(&tag);
    }

    /// Verifies the tag and decrypts from byte 12, where this device reads the payload.
    pub fn unprotect(&mut self, packet: &[u8]) -> Result<Vec<u8>, String> {
        if packet.len() < RTP_HEADER_BYTES + TAG_BYTES {
            return Err(format!("SRTP packet of {} bytes", packet.len()));
        }
        let (body, tag) = packet.split_at(packet.len() - TAG_BYTES);
        let index = self.next_index(body);
        if self.tag(body, index) != tag {
            return Err("SRTP packet with a wrong tag".into());
        }
        self.index = self.index.max(Some(index));
        let mut plain = body.to_vec();
        self.key_stream(&mut plain, RTP_HEADER_BYTES, index);
        Ok(plain)
    }

    /// Verifies the tag of an SRTCP packet; the device ignores its content.
    pub fn check_rtcp(&self, packet: &[u8]) -> Result<(), String> {
        let (body, tag) = packet
            .split_at_checked(packet.len().saturating_sub(TAG_BYTES))
            .unwrap_or_default();
        if hmac(&self.rtcp_auth_key, &[body])[..TAG_BYTES] != *tag {
            return Err("SRTCP packet with a wrong tag".into());
        }
        Ok(())
    }

    /// The index with the packet's lower 16 bits that is nearest to the highest so far (RFC 3711
    /// 3.3.1).
    fn next_index(&self, packet: &[u8]) -> u64 {
        let sequence = u64::from(u16::from_be_bytes([packet[2], packet[3]]));
        let highest = self.index.unwrap_or(sequence);
        let base = highest & !0xffff | sequence;
        let near = [base.checked_sub(0x1_0000), Some(base), Some(base + 0x1_0000)];
        near.into_iter()
            .flatten()
            .min_by_key(|i| i.abs_diff(highest))
            .expect("three to choose from")
    }

    fn key_stream(&self, packet: &mut [u8], from: usize, index: u64) {
        let mut iv = [0; 16];
        iv[..14].copy_from_slice(&self.salt);
        xor(&mut iv[4..8], &packet[8..12]);
        xor(&mut iv[8..14], &index.to_be_bytes()[2..]);
        Ctr128BE::<Aes128>::new(&self.cipher_key.into(), &iv.into()).apply_keystream(&mut packet[from..]);
    }

    fn tag(&self, packet: &[u8], index: u64) -> [u8; TAG_BYTES] {
        let roll_over = u32::try_from(index >> 16)
            .expect("a test sends less than 2^48 packets")
            .to_be_bytes();
        hmac(&self.auth_key, &[packet, &roll_over])[..TAG_BYTES]
            .try_into()
            .expect("ten of twenty")
    }
}

/// Key derivation with rate 0: the key stream of the master key at salt XOR label.
fn derive<const N: usize>(key: &[u8], salt: &[u8], label: u8) -> [u8; N] {
    let mut iv = [0; 16];
    iv[..14].copy_from_slice(salt);
    iv[7] ^= label;
    let mut out = [0; N];
    let key: [u8; 16] = key.try_into().expect("a master key of 16 bytes");
    Ctr128BE::<Aes128>::new(&key.into(), &iv.into()).apply_keystream(&mut out);
    out
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).expect("any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn xor(target: &mut [u8], with: &[u8]) {
    for (byte, other) in target.iter_mut().zip(with) {
        *byte ^= other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3711 appendix B.3.
    #[test]
    fn derivation_gives_the_keys_of_the_rfc() {
        let key = 0xE1F97A0D3E018BE0D64FA32C06DE4139_u128.to_be_bytes();
        let salt = &0x0EC675AD498AFEEBB6960B3AABE6_u128.to_be_bytes()[2..];
        assert_eq!(
            derive(&key, salt, 0),
            0xC61E7A93744F39EE10734AFE3FF7A087_u128.to_be_bytes()
        );
        assert_eq!(
            derive::<14>(&key, salt, 2),
            0x30CBBC08863D8C85D49DB34A9AE1_u128.to_be_bytes()[2..]
        );
        let auth = derive::<20>(&key, salt, 1);
        assert_eq!(auth[..16], 0xCEBE321F6FF7716B6FD4AB49AF256A15_u128.to_be_bytes());
    }

    /// RFC 3711 appendix B.2: the key stream for SSRC 0 and index 0.
    #[test]
    fn the_key_stream_is_that_of_the_rfc() {
        let mut context = Context::new(&[0; 16], &[0; 14]);
        context.cipher_key = 0x2B7E151628AED2A6ABF7158809CF4F3C_u128.to_be_bytes();
        context.salt = 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFD_u128.to_be_bytes()[2..]
            .try_into()
            .unwrap();
        let mut packet = [0; RTP_HEADER_BYTES + 16];
        context.key_stream(&mut packet, RTP_HEADER_BYTES, 0);
        assert_eq!(
            packet[RTP_HEADER_BYTES..],
            0xE03EAD0935C95E80E166B16DD92B4EB4_u128.to_be_bytes()
        );
    }
}
