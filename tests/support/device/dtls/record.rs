//! DTLS 1.2 records: header, AES-128-GCM, and the pseudo-random function.
//!
//! In: plaintext and keys. Out: records, and the plaintext of the peer's. Unauthenticated records
//! are rejected. Sources: RFC 6347 section 4.1, RFC 5288, RFC 5246 section 5.

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes128Gcm, KeyInit};
use hmac::{Hmac, Mac};
use sha2::Sha256;

pub const CHANGE_CIPHER_SPEC: u8 = 20;
pub const ALERT: u8 = 21;
pub const HANDSHAKE: u8 = 22;
pub const DATA: u8 = 23;

pub const VERSION: [u8; 2] = [0xfe, 0xfd];
const HEADER_BYTES: usize = 13;
const EXPLICIT_NONCE_BYTES: usize = 8;
const GCM_TAG_BYTES: usize = 16;

/// A received record: type, epoch with sequence number, content.
pub struct Record<'a> {
    pub kind: u8,
    pub number: [u8; 8],
    pub content: &'a [u8],
}

impl Record<'_> {
    pub fn epoch(&self) -> u16 {
        u16::from_be_bytes([self.number[0], self.number[1]])
    }
}

/// Splits a datagram into records; truncated ones are dropped.
pub fn records(mut datagram: &[u8]) -> Vec<Record<'_>> {
    let mut found = Vec::new();
    while let Some((head, rest)) = datagram.split_first_chunk::<HEADER_BYTES>() {
        let length = usize::from(u16::from_be_bytes([head[11], head[12]]));
        let Some((content, rest)) = rest.split_at_checked(length) else {
            break;
        };
        let number = head[3..11].try_into().expect("eight bytes");
        found.push(Record {
            kind: head[0],
            number,
            content,
        });
        datagram = rest;
    }
    found
}

/// Numbers records, and encrypts those of epoch 1.
#[derive(Default)]
pub struct Writer {
    sent: [u64; 2],
    protection: Option<Protection>,
}

impl Writer {
    pub fn protect_with(&mut self, protection: Protection) {
        self.protection = Some(protection);
    }

    pub fn record(&mut self, kind: u8, epoch: u16, content: &[u8]) -> Vec<u8> {
        let count = &mut self.sent[usize::from(epoch)];
        let number = (u64::from(epoch) << 48 | *count).to_be_bytes();
        *count += 1;
        let content = match &self.protection {
            Some(protection) if epoch == 1 => protection.seal(kind, number, content),
            _ => content.to_vec(),
        };
        let length = u16::try_from(content.len()).expect("below the MTU").to_be_bytes();
        [&[kind][..], &VERSION, &number, &length, &content].concat()
    }
}

/// The key of one direction.
pub struct Protection {
    key: Aes128Gcm,
    salt: [u8; 4],
}

impl Protection {
    pub fn new(key: &[u8], salt: &[u8]) -> Self {
        let key: [u8; 16] = key.try_into().expect("16 bytes");
        Self {
            key: Aes128Gcm::new(&key.into()),
            salt: salt.try_into().expect("4 bytes"),
        }
    }

    fn seal(&self, kind: u8, number: [u8; 8], content: &[u8]) -> Vec<u8> {
        let aad = associated(kind, number, content.len());
        let sealed = self.key.encrypt(
            &self.nonce(&number).into(),
            Payload {
                msg: content,
                aad: &aad,
            },
        );
        [&number[..], &sealed.expect("a short message")].concat()
    }

    pub fn open(&self, record: &Record) -> Option<Vec<u8>> {
        let (explicit, sealed) = record.content.split_first_chunk::<EXPLICIT_NONCE_BYTES>()?;
        let aad = associated(record.kind, record.number, sealed.len().checked_sub(GCM_TAG_BYTES)?);
        self.key
            .decrypt(&self.nonce(explicit).into(), Payload { msg: sealed, aad: &aad })
            .ok()
    }

    fn nonce(&self, explicit: &[u8; 8]) -> [u8; 12] {
        std::array::from_fn(|i| if i < 4 { self.salt[i] } else { explicit[i - 4] })
    }
}

fn associated(kind: u8, number: [u8; 8], length: usize) -> Vec<u8> {
    let length = u16::try_from(length).expect("below the MTU").to_be_bytes();
    [&number[..], &[kind], &VERSION, &length].concat()
}

/// P_SHA256 with a label in front of the seed.
pub fn prf<const N: usize>(secret: &[u8], label: &[u8], seed: &[u8]) -> [u8; N] {
    let seed = [label, seed].concat();
    let mut out = Vec::new();
    let mut a = seed.clone();
    while out.len() < N {
        a = hmac(secret, &a).to_vec();
        out.extend_from_slice(&hmac(secret, &[&a[..], &seed].concat()));
    }
    out[..N].try_into().expect("cut to length")
}

fn hmac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("any length");
    mac.update(data);
    mac.finalize().into_bytes().into()
}
