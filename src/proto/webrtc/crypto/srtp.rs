//! SRTP ciphers: AES-128 in counter mode (with HMAC-SHA1, see `digest`), AES-128-GCM, AES-256-GCM.
//!
//! In: an IV from str0m, authenticated data and a payload. Out: the result in str0m's buffer, which
//! may be longer than needed. Each key is expanded once, and packets cause no allocation. Rejected:
//! buffers that are too short, and invalid tags. Sources: RFC 3711 sections 4.1.1 and 4.3, RFC
//! 7714.

use std::fmt;

use aes::cipher::consts::{U12, U16};
use aes::cipher::{BlockCipherEncrypt, InnerIvInit, StreamCipherCore};
use aes::{Aes128Enc, Aes256Enc};
use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use ctr::CtrCore;
use ctr::flavors::Ctr128BE;
use str0m::crypto::{
    AeadAes128GcmCipher, AeadAes256GcmCipher, Aes128CmSha1_80Cipher, CryptoError, SrtpProvider, SupportedAeadAes128Gcm,
    SupportedAeadAes256Gcm, SupportedAes128CmSha1_80,
};

use super::foreign_extension;

const TAG_BYTES: usize = 16;
const BLOCK_BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct SrtpCiphers;

impl SrtpProvider for SrtpCiphers {
    fn aes_128_cm_sha1_80(&self) -> &'static dyn SupportedAes128CmSha1_80 {
        &SrtpCiphers
    }

    fn aead_aes_128_gcm(&self) -> &'static dyn SupportedAeadAes128Gcm {
        &SrtpCiphers
    }

    fn aead_aes_256_gcm(&self) -> &'static dyn SupportedAeadAes256Gcm {
        &SrtpCiphers
    }

    fn srtp_aes_128_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        let cipher = Aes128Enc::new_from_slice(key).expect("str0m asks with a master key of 16 bytes");
        encrypt_block(&cipher, input, output);
    }

    fn srtp_aes_256_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        let cipher = Aes256Enc::new_from_slice(key).expect("str0m asks with a master key of 32 bytes");
        encrypt_block(&cipher, input, output);
    }
}

/// Encrypts one block. str0m's buffer has room for an unused second one.
fn encrypt_block<C: BlockCipherEncrypt>(cipher: &C, input: &[u8], output: &mut [u8]) {
    let block = input.try_into().expect("a key derivation block has 16 bytes");
    let sealed = (&mut output[..BLOCK_BYTES]).try_into().expect("the slice has 16 bytes");
    cipher.encrypt_block_b2b(block, sealed);
}

impl SupportedAes128CmSha1_80 for SrtpCiphers {
    fn create_cipher(&self, key: [u8; 16], _encrypt: bool) -> Box<dyn Aes128CmSha1_80Cipher> {
        Box::new(CounterMode(Aes128Enc::new(&key.into())))
    }
}

impl SupportedAeadAes128Gcm for SrtpCiphers {
    fn create_cipher(&self, key: [u8; 16], _encrypt: bool) -> Box<dyn AeadAes128GcmCipher> {
        Box::new(Gcm(Aes128Gcm::new(&key.into())))
    }
}

impl SupportedAeadAes256Gcm for SrtpCiphers {
    fn create_cipher(&self, key: [u8; 32], _encrypt: bool) -> Box<dyn AeadAes256GcmCipher> {
        Box::new(Gcm(Aes256Gcm::new(&key.into())))
    }
}

/// AES in counter mode.
struct CounterMode(Aes128Enc);

impl CounterMode {
    fn apply(&self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let output = output.get_mut(..input.len()).ok_or_else(buffer_too_short)?;
        let buffer = InOutBuf::new(input, output).map_err(|_| buffer_too_short())?;
        CtrCore::<_, Ctr128BE>::inner_iv_init(&self.0, iv.into())
            .try_apply_keystream_partial(buffer)
            .map_err(|_| error("the key stream of this packet is used up"))
    }
}

impl Aes128CmSha1_80Cipher for CounterMode {
    fn encrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.apply(iv, input, output)
    }

    fn decrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.apply(iv, input, output)
    }
}

/// AES-GCM with either key length; the tag follows the payload.
struct Gcm<C>(C);

type Nonce = [u8; 12];

impl<C: AeadInOut<NonceSize = U12, TagSize = U16>> Gcm<C> {
    fn seal(&self, iv: &Nonce, aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let (sealed, rest) = output.split_at_mut_checked(input.len()).ok_or_else(buffer_too_short)?;
        let tag_room = rest.first_chunk_mut::<TAG_BYTES>().ok_or_else(buffer_too_short)?;
        let buffer = InOutBuf::new(input, sealed).map_err(|_| buffer_too_short())?;
        let tag = self
            .0
            .encrypt_inout_detached(iv.into(), aad, buffer)
            .map_err(|_| error("too long to seal"))?;
        *tag_room = tag.into();
        Ok(())
    }

    fn open(&self, iv: &Nonce, aads: &[&[u8]], input: &[u8], output: &mut [u8]) -> Result<usize, CryptoError> {
        let (sealed, tag) = input
            .split_last_chunk::<TAG_BYTES>()
            .ok_or_else(|| error("shorter than a tag"))?;
        let output = output.get_mut(..sealed.len()).ok_or_else(buffer_too_short)?;
        let buffer = InOutBuf::new(sealed, output).map_err(|_| buffer_too_short())?;
        // Two parts occur only for unencrypted SRTCP, which is rare, so they may be copied.
        let aad = match aads {
            [aad] | [aad, []] => foreign_extension::as_received(aad),
            parts => parts.concat().into(),
        };
        self.0
            .decrypt_inout_detached(iv.into(), &aad, buffer, tag.into())
            .map_err(|_| error("the authentication tag does not fit"))?;
        Ok(sealed.len())
    }
}

impl AeadAes128GcmCipher for Gcm<Aes128Gcm> {
    fn encrypt(&mut self, iv: &Nonce, aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.seal(iv, aad, input, output)
    }

    fn decrypt(&mut self, iv: &Nonce, aads: &[&[u8]], input: &[u8], output: &mut [u8]) -> Result<usize, CryptoError> {
        self.open(iv, aads, input, output)
    }
}

impl AeadAes256GcmCipher for Gcm<Aes256Gcm> {
    fn encrypt(&mut self, iv: &Nonce, aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.seal(iv, aad, input, output)
    }

    fn decrypt(&mut self, iv: &Nonce, aads: &[&[u8]], input: &[u8], output: &mut [u8]) -> Result<usize, CryptoError> {
        self.open(iv, aads, input, output)
    }
}

// `Debug` shows no keys.
impl fmt::Debug for CounterMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CounterMode")
    }
}

impl<C> fmt::Debug for Gcm<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gcm")
    }
}

fn buffer_too_short() -> CryptoError {
    error("the output buffer is too short")
}

fn error(why: &str) -> CryptoError {
    CryptoError::Other(why.to_owned())
}

#[cfg(test)]
mod tests;
