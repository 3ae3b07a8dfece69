//! Removes the empty header extension that str0m writes into every RTP packet.
//!
//! str0m sets the extension bit and writes an empty block (`BE DE 00 00`), negotiated or not. Small
//! clients expect the payload at byte 12 and play nothing. SRTP does not encrypt the block but
//! authenticates it. So the tag is computed here as if the block were absent, and
//! [`strip_empty_extension`] removes it from the outgoing datagram. A session must do both or
//! neither. In and out: outgoing SRTP packets. Everything else passes unchanged: received packets,
//! SRTCP, STUN, DTLS, and packets with a non-empty extension or contributing sources. Delete this
//! file once str0m omits the block; the test `str0m_still_writes_the_empty_block` fails then.
//! Sources: RFC 3550 section 5.3.1, RFC 8285 section 4.2, RFC 3711 section 3.1.

use std::cell::Cell;

use str0m::crypto::{
    AeadAes128GcmCipher, AeadAes256GcmCipher, Aes128CmSha1_80Cipher, CryptoError, CryptoProvider, Sha1HmacProvider,
    SrtpProvider, SupportedAeadAes128Gcm, SupportedAeadAes256Gcm, SupportedAes128CmSha1_80,
};

use super::device_dtls::DeviceDtlsProvider;
use super::digest::Digests;
use super::srtp::SrtpCiphers;

const HEADER_BYTES: usize = 12;
const EMPTY_BLOCK: [u8; 4] = [0xbe, 0xde, 0, 0];
const EXTENSION_BIT: u8 = 0x10;
/// Version 2, extension bit set, no contributing sources; the padding bit may be set or not.
const FIRST_BYTE: u8 = 0x90;
const PADDING_BIT: u8 = 0x20;

/// Returns a provider whose datagrams must all pass [`strip_empty_extension`].
///
/// The tags match in every SRTP profile. Microcontrollers support AES_CM_128_HMAC_SHA1_80 alone.
pub fn bare_provider() -> CryptoProvider {
    CryptoProvider {
        srtp_provider: &BareHeaderProvider,
        sha1_hmac_provider: &BareHeaderProvider,
        ..super::provider()
    }
}

/// Returns the same for a microcontroller.
pub fn embedded_provider() -> CryptoProvider {
    CryptoProvider {
        dtls_provider: &DeviceDtlsProvider,
        ..bare_provider()
    }
}

/// Removes an empty header extension from an SRTP packet in place, and returns the packet to send.
///
/// The header moves four bytes towards the payload, without an allocation. Other datagrams are
/// returned unchanged.
pub fn strip_empty_extension(datagram: &mut [u8]) -> &mut [u8] {
    if !has_empty_extension(datagram) {
        return datagram;
    }
    datagram.copy_within(..HEADER_BYTES, EMPTY_BLOCK.len());
    let bare = &mut datagram[EMPTY_BLOCK.len()..];
    bare[0] &= !EXTENSION_BIT;
    bare
}

fn has_empty_extension(packet: &[u8]) -> bool {
    let Some((header, rest)) = packet.split_first_chunk::<HEADER_BYTES>() else {
        return false;
    };
    // On a shared port, a second byte of 192 to 223 means RTCP (RFC 5761 section 4).
    header[0] & !PADDING_BIT == FIRST_BYTE && !(192..=223).contains(&header[1]) && rest.starts_with(&EMPTY_BLOCK)
}

/// Returns the 12-byte header of `packet` without the extension bit.
fn bare_header(packet: &[u8]) -> Option<[u8; HEADER_BYTES]> {
    let mut header = *packet.first_chunk()?;
    header[0] &= !EXTENSION_BIT;
    has_empty_extension(packet).then_some(header)
}

thread_local! {
    /// The next HMAC is for an outgoing packet.
    ///
    /// HMACs of outgoing and received packets are requested alike. But str0m encrypts before it
    /// authenticates, and verifies before it decrypts, within one call on one thread. A received
    /// packet with an empty block must be verified unchanged.
    static SENDING: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug)]
struct BareHeaderProvider;

impl Sha1HmacProvider for BareHeaderProvider {
    fn sha1_hmac(&self, key: &[u8], payloads: &[&[u8]]) -> [u8; 20] {
        // RTP is passed as packet and roll-over counter, SRTCP as one slice, STUN as three.
        if SENDING.take()
            && let [packet, roll_over_counter] = payloads
            && let Some(header) = bare_header(packet)
        {
            let payload = &packet[HEADER_BYTES + EMPTY_BLOCK.len()..];
            return Digests.sha1_hmac(key, &[&header, payload, roll_over_counter]);
        }
        Digests.sha1_hmac(key, payloads)
    }
}

impl SrtpProvider for BareHeaderProvider {
    fn aes_128_cm_sha1_80(&self) -> &'static dyn SupportedAes128CmSha1_80 {
        &BareHeaderProvider
    }

    fn aead_aes_128_gcm(&self) -> &'static dyn SupportedAeadAes128Gcm {
        &BareHeaderProvider
    }

    fn aead_aes_256_gcm(&self) -> &'static dyn SupportedAeadAes256Gcm {
        &BareHeaderProvider
    }

    fn srtp_aes_128_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        SrtpCiphers.srtp_aes_128_ecb_round(key, input, output);
    }

    fn srtp_aes_256_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        SrtpCiphers.srtp_aes_256_ecb_round(key, input, output);
    }
}

impl SupportedAes128CmSha1_80 for BareHeaderProvider {
    fn create_cipher(&self, key: [u8; 16], encrypt: bool) -> Box<dyn Aes128CmSha1_80Cipher> {
        Box::new(MarkingCipher(
            SrtpCiphers.aes_128_cm_sha1_80().create_cipher(key, encrypt),
        ))
    }
}

impl SupportedAeadAes128Gcm for BareHeaderProvider {
    fn create_cipher(&self, key: [u8; 16], encrypt: bool) -> Box<dyn AeadAes128GcmCipher> {
        Box::new(MarkingCipher(
            SrtpCiphers.aead_aes_128_gcm().create_cipher(key, encrypt),
        ))
    }
}

impl SupportedAeadAes256Gcm for BareHeaderProvider {
    fn create_cipher(&self, key: [u8; 32], encrypt: bool) -> Box<dyn AeadAes256GcmCipher> {
        Box::new(MarkingCipher(
            SrtpCiphers.aead_aes_256_gcm().create_cipher(key, encrypt),
        ))
    }
}

/// A cipher that marks its packets as outgoing.
#[derive(Debug)]
struct MarkingCipher<C: ?Sized>(Box<C>);

impl Aes128CmSha1_80Cipher for MarkingCipher<dyn Aes128CmSha1_80Cipher> {
    fn encrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        SENDING.set(true);
        self.0.encrypt(iv, input, output)
    }

    fn decrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.0.decrypt(iv, input, output)
    }
}

impl AeadAes128GcmCipher for MarkingCipher<dyn AeadAes128GcmCipher> {
    fn encrypt(&mut self, iv: &[u8; 12], aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let bare = bare_header(aad);
        self.0
            .encrypt(iv, bare.as_ref().map_or(aad, |bare| bare), input, output)
    }

    fn decrypt(&mut self, iv: &[u8; 12], aads: &[&[u8]], input: &[u8], out: &mut [u8]) -> Result<usize, CryptoError> {
        self.0.decrypt(iv, aads, input, out)
    }
}

impl AeadAes256GcmCipher for MarkingCipher<dyn AeadAes256GcmCipher> {
    fn encrypt(&mut self, iv: &[u8; 12], aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let bare = bare_header(aad);
        self.0
            .encrypt(iv, bare.as_ref().map_or(aad, |bare| bare), input, output)
    }

    fn decrypt(&mut self, iv: &[u8; 12], aads: &[&[u8]], input: &[u8], out: &mut [u8]) -> Result<usize, CryptoError> {
        self.0.decrypt(iv, aads, input, out)
    }
}

#[cfg(test)]
mod tests;
