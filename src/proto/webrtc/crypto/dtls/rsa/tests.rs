//! Valid and invalid keys and signatures, made with OpenSSL 3.0.

use x509_cert::Certificate;

use super::*;

const SIGNED: &[u8] = b"signed by another implementation";
const SIGNATURE: &[u8] = include_bytes!("../../../../../../tests/data/dtls/rsa2048.sig");

fn key(certificate: &[u8]) -> RsaPublicKey {
    let certificate = Certificate::from_der(certificate).unwrap();
    let info = certificate.tbs_certificate().subject_public_key_info();
    RsaPublicKey::from_der(info.subject_public_key.as_bytes().unwrap()).unwrap()
}

fn key_2048() -> RsaPublicKey {
    key(include_bytes!("../../../../../../tests/data/dtls/rsa2048.der"))
}

/// Encodes a key in DER.
fn der(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| [&[2, 0x82], &(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let body = [number(modulus), number(exponent)].concat();
    [&[0x30, 0x82], &(body.len() as u16).to_be_bytes()[..], &body].concat()
}

#[test]
fn valid_openssl_signatures_verify() {
    assert_eq!(key_2048().bits(), 2048);
    assert!(key_2048().verify(SIGNED, SIGNATURE));
    let key = key(include_bytes!("../../../../../../tests/data/dtls/rsa4096.der"));
    assert_eq!(key.bits(), 4096);
    assert!(key.verify(SIGNED, include_bytes!("../../../../../../tests/data/dtls/rsa4096.sig")));
}

#[test]
fn invalid_signatures_do_not_verify() {
    let key = key_2048();
    assert!(!key.verify(b"another text", SIGNATURE));
    for at in 0..SIGNATURE.len() {
        let mut wrong = SIGNATURE.to_vec();
        wrong[at] ^= 1;
        assert!(!key.verify(SIGNED, &wrong), "byte {at}");
    }
    for length in [0, 1, 255] {
        assert!(!key.verify(SIGNED, &SIGNATURE[..length]));
    }
    assert!(!key.verify(SIGNED, &[&[0], SIGNATURE].concat()));
    assert!(!key.verify(
        SIGNED,
        include_bytes!("../../../../../../tests/data/dtls/rsa2048.sha1.sig")
    ));
    assert!(!key.verify(
        SIGNED,
        include_bytes!("../../../../../../tests/data/dtls/rsa2048.pss.sig")
    ));
    // Numbers that are not below the modulus, including the signature plus the modulus.
    assert!(!key.verify(SIGNED, &[0xff; 256]));
    assert!(!key.verify(SIGNED, &key.modulus));
    // 0 and 1 decrypt to themselves.
    let mut one = [0; 256];
    assert!(!key.verify(SIGNED, &one));
    one[255] = 1;
    assert!(!key.verify(SIGNED, &one));
}

/// With exponent 3, a cube root forges a signature unless the whole block is compared.
#[test]
fn the_block_is_compared_whole() {
    let good = expected_block(SIGNED, 256);
    assert_eq!(good.len(), 256);
    assert_eq!(good[..3], [0, 1, 0xff]);
    assert_eq!(good[256 - 32 - 19 - 2..256 - 32 - 19], [0xff, 0]);
    // Keys with exponent 1 are unsupported, so the comparison is tested alone.
    let mut short = good.clone();
    short.copy_within(256 - 52.., 10);
    assert_ne!(to_uint(&short), to_uint(&good));
}

#[test]
fn key_sizes_and_exponents_are_bounded() {
    let taken = |bits: usize, exponent: &[u8]| {
        let mut modulus = vec![0xff; bits.div_ceil(8)];
        modulus[0] = 0xff >> (modulus.len() * 8 - bits);
        let modulus = [&[0], &modulus[..]].concat();
        // A number with its top bit set has a leading zero.
        let modulus = if modulus[1] & 0x80 == 0 {
            &modulus[1..]
        } else {
            &modulus
        };
        let key = RsaPublicKey::from_der(&der_shortest(modulus, exponent)).unwrap();
        assert_eq!(key.bits(), bits);
        // Verification with any key causes no panic.
        assert!(!key.verify(SIGNED, &vec![0x55; bits.div_ceil(8)]));
        key.is_supported()
    };
    for (bits, is_taken) in [
        (1024, false),
        (2047, false),
        (2048, true),
        (3000, true),
        (4096, true),
        (4097, false),
    ] {
        assert_eq!(taken(bits, &[1, 0, 1]), is_taken, "{bits}");
    }
    for (exponent, is_taken) in [
        (&[3][..], true),
        (&[1], false),
        (&[0], false),
        (&[4], false),
        (&[1, 0, 1], true),
        (&[0x7f, 0xff, 0xff, 0xff], true),
        (&[1, 0, 0, 0, 1], false),
    ] {
        assert_eq!(taken(2048, exponent), is_taken, "{exponent:?}");
    }
    let even = RsaPublicKey {
        modulus: [vec![0xff; 255], vec![0xfe]].concat(),
        exponent: vec![1, 0, 1],
    };
    assert!(!even.verify(SIGNED, SIGNATURE));
}

/// Encodes DER with the shortest lengths, as required.
fn der_shortest(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let element = |tag: u8, body: &[u8]| {
        let [high, low] = (body.len() as u16).to_be_bytes();
        let head: &[u8] = match body.len() {
            0..=0x7f => &[tag, low],
            0x80..=0xff => &[tag, 0x81, low],
            _ => &[tag, 0x82, high, low],
        };
        [head, body].concat()
    };
    element(0x30, &[element(2, modulus), element(2, exponent)].concat())
}

#[test]
fn malformed_keys_are_rejected() {
    let good = der_shortest(&[&[0], &key_2048().modulus[..]].concat(), &[1, 0, 1]);
    assert_eq!(RsaPublicKey::from_der(&good), Some(key_2048()));
    for length in 0..good.len() {
        assert_eq!(RsaPublicKey::from_der(&good[..length]), None, "cut at {length}");
    }
    assert_eq!(RsaPublicKey::from_der(&[&good[..], &[0]].concat()), None);
    // A negative number, long lengths, another type.
    assert_eq!(
        RsaPublicKey::from_der(&der_shortest(&key_2048().modulus, &[1, 0, 1])),
        None
    );
    assert_eq!(RsaPublicKey::from_der(&der(&[0x7f; 256], &[1, 0, 1])), None);
    assert_eq!(RsaPublicKey::from_der(&[&[0x31], &good[1..]].concat()), None);
    for at in 0..good.len() {
        for byte in [0, 0x7f, 0x80, 0xff] {
            let mut changed = good.clone();
            changed[at] = byte;
            // No input causes a panic.
            let _ = RsaPublicKey::from_der(&changed).map(|key| key.verify(SIGNED, SIGNATURE));
        }
    }
}
