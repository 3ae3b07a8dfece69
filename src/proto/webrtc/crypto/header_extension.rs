//! RTP headers of 12 bytes for microcontrollers: the empty header extension that str0m writes is taken off.
//!
//! str0m sets the extension bit and writes a block of length zero (`BE DE 00 00`) into every RTP packet, negotiated or
//! not, and has no setting for it. Small clients read the media from byte 12 and hear nothing. The block is no input to
//! the encryption of the payload, only to the tag. So the tag is computed here over the packet as it would be without
//! the block, and [`strip_empty_extension`] cuts the block when the datagram leaves. Both belong together: use them in
//! the same session or not at all. In and out: SRTP packets that str0m made. Everything else passes untouched: received
//! packets, SRTCP, STUN, DTLS, packets whose extension says something, and packets with contributing sources.
//! Delete this file when str0m leaves the block out; `str0m_still_writes_the_empty_block` fails on that day.
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
/// Version 2, extension bit set, no contributing sources; the padding bit may be either.
const FIRST_BYTE: u8 = 0x90;
const PADDING_BIT: u8 = 0x20;

/// Makes the provider of a session whose datagrams all leave through [`strip_empty_extension`].
///
/// Whichever SRTP profile the handshake chooses, the tags fit the packets as they leave. dimpl offers them all, and a
/// microcontroller takes AES_CM_128_HMAC_SHA1_80, the one it has.
pub fn bare_provider() -> CryptoProvider {
    CryptoProvider {
        srtp_provider: &BareHeaderProvider,
        sha1_hmac_provider: &BareHeaderProvider,
        ..super::provider()
    }
}

/// Makes the same for a session of a microcontroller.
pub fn embedded_provider() -> CryptoProvider {
    CryptoProvider {
        dtls_provider: &DeviceDtlsProvider,
        ..bare_provider()
    }
}

/// Cuts an empty header extension out of an SRTP packet, in place, and gives what is to be sent.
///
/// The 12 bytes of header move towards the payload, so the result starts 4 bytes later; nothing is allocated. Any other
/// datagram comes back as it is.
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
    // On a shared port, 192 to 223 in the second byte means RTCP (RFC 5761 section 4).
    header[0] & !PADDING_BIT == FIRST_BYTE && !(192..=223).contains(&header[1]) && rest.starts_with(&EMPTY_BLOCK)
}

/// The header of `packet`, 12 bytes, as it leaves.
fn bare_header(packet: &[u8]) -> Option<[u8; HEADER_BYTES]> {
    let mut header = *packet.first_chunk()?;
    header[0] &= !EXTENSION_BIT;
    has_empty_extension(packet).then_some(header)
}

thread_local! {
    /// The tag that is asked for next belongs to a packet that is being sent.
    ///
    /// The HMAC of a packet to send and of a received one are asked for in the same words; what tells them apart is that
    /// str0m encrypts before it authenticates and verifies before it decrypts, each within one call on one thread. A
    /// peer may send an empty block itself, and its packets must be verified as they are.
    static SENDING: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug)]
struct BareHeaderProvider;

impl Sha1HmacProvider for BareHeaderProvider {
    fn sha1_hmac(&self, key: &[u8], payloads: &[&[u8]]) -> [u8; 20] {
        // RTP comes as packet and roll-over counter; SRTCP is one slice and STUN three.
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

/// A cipher that seals for the header as it leaves.
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
