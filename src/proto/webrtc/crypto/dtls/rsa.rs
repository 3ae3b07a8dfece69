//! Verifies RSA signatures of peers: PKCS #1 v1.5 with SHA-256.
//!
//! In: a key from a certificate, the signed bytes, and the signature. Out: whether it is valid. The
//! expected block is built and compared as a whole, so nothing in it is parsed. Keys have 2048 to
//! 4096 bits, which bounds the work, and exponents of at most 32 bits. All numbers are public, so
//! variable time is acceptable. Sources: RFC 8017 section 8.2.2, RFC 3279 section 2.3.1.

use std::ops::RangeInclusive;

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, U64, U4096};
use sha2::{Digest, Sha256};
use x509_cert::der::asn1::UintRef;
use x509_cert::der::{Decode, Header, Reader, SliceReader, Tag};

/// Shorter keys are broken; longer ones cost a small board too much per handshake.
pub const KEY_BITS: RangeInclusive<usize> = 2048..=4096;
const KEY_BYTES_MAX: usize = U4096::BYTES;
/// Every exponent in use is 3, 17 or 65537.
const EXPONENT_BYTES_MAX: usize = 4;
/// The DER prefix of a SHA-256 digest, RFC 8017 section 9.2, note 1.
const SHA256_PREFIX: [u8; 19] = *b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";

/// An RSA public key, without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RsaPublicKey {
    modulus: Vec<u8>,
    exponent: Vec<u8>,
}

impl RsaPublicKey {
    /// Parses a DER `RSAPublicKey`.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let mut reader = SliceReader::new(der).ok()?;
        let header = Header::decode(&mut reader).ok()?;
        header.tag().assert_eq(Tag::Sequence).ok()?;
        let modulus = UintRef::decode(&mut reader).ok()?;
        let exponent = UintRef::decode(&mut reader).ok()?;
        reader.finish().ok()?;
        Some(RsaPublicKey {
            modulus: modulus.as_bytes().to_vec(),
            exponent: exponent.as_bytes().to_vec(),
        })
    }

    pub fn bits(&self) -> usize {
        let unused = self.modulus.first().map_or(0, |first| first.leading_zeros() as usize);
        self.modulus.len() * 8 - unused
    }

    /// Returns whether size and exponent are supported.
    pub fn is_supported(&self) -> bool {
        let is_odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
        KEY_BITS.contains(&self.bits())
            && is_odd(&self.modulus)
            && is_odd(&self.exponent)
            && self.exponent.len() <= EXPONENT_BYTES_MAX
            && self.exponent != [1]
    }

    /// Returns whether `signature` over `signed` was made by this key.
    pub fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        if !self.is_supported() || signature.len() != self.modulus.len() {
            return false;
        }
        let (modulus, signature) = (to_uint(&self.modulus), to_uint(signature));
        let Some(odd) = Odd::new(modulus).into_option() else {
            return false;
        };
        if signature >= modulus {
            return false;
        }
        let exponent = self.exponent.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let opened = FixedMontyForm::new(&signature, &FixedMontyParams::new_vartime(odd))
            .pow_vartime(&U64::from_u64(exponent))
            .retrieve();
        opened == to_uint(&expected_block(signed, self.modulus.len()))
    }
}

/// Builds the block to which a valid signature over `signed` decrypts.
fn expected_block(signed: &[u8], length: usize) -> Vec<u8> {
    let digest = Sha256::digest(signed);
    let tail = [&[0], &SHA256_PREFIX[..], &digest].concat();
    let mut block = vec![0xff; length - tail.len()];
    block[..2].copy_from_slice(&[0, 1]);
    block.extend(tail);
    block
}

/// Converts at most [`KEY_BYTES_MAX`] bytes.
fn to_uint(bytes: &[u8]) -> U4096 {
    let mut padded = [0; KEY_BYTES_MAX];
    padded[KEY_BYTES_MAX - bytes.len()..].copy_from_slice(bytes);
    U4096::from_be_slice(&padded)
}

#[cfg(test)]
mod tests;
