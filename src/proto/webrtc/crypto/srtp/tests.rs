//! Tests of SRTP.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn array<const N: usize>(hex: &str) -> [u8; N] {
    bytes(hex).try_into().unwrap()
}

/// RFC 3711 appendix B.2, over a multiple of the block and with a rest.
#[test]
fn counter_mode_gives_the_key_stream_of_rfc_3711() {
    let mut cipher = SrtpCiphers
        .aes_128_cm_sha1_80()
        .create_cipher(array("2b7e151628aed2a6abf7158809cf4f3c"), true);
    let iv = array("f0f1f2f3f4f5f6f7f8f9fafbfcfd0000");
    let stream =
        bytes("e03ead0935c95e80e166b16dd92b4eb4 d23513162b02d0f72a43a2fe4a5f97ab 41e95b3bb0a2e8dd477901e4fca894c0");
    for length in [48, 33, 16, 1, 0] {
        // The output buffer is longer, as str0m's is. The bytes after the payload must not
        // change.
        let mut output = vec![0xaa; length + 15];
        cipher.encrypt(&iv, &vec![0; length], &mut output).unwrap();
        assert_eq!(output[..length], stream[..length]);
        assert!(output[length..].iter().all(|&byte| byte == 0xaa));
        let mut opened = vec![0; length];
        cipher.decrypt(&iv, &output[..length], &mut opened).unwrap();
        assert_eq!(opened, vec![0; length]);
    }
}

/// RFC 3711 appendix B.2: the counter carries into the next byte at block 0xff00.
#[test]
fn counter_mode_carries_as_rfc_3711_does() {
    let mut cipher = SrtpCiphers
        .aes_128_cm_sha1_80()
        .create_cipher(array("2b7e151628aed2a6abf7158809cf4f3c"), true);
    let mut output = [0; 48];
    cipher
        .encrypt(&array("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"), &[0; 48], &mut output)
        .unwrap();
    let stream =
        bytes("ec8cdf7398607cb0f2d21675ea9ea1e4 362b7c3c6773516318a077d7fc5073ae 6a2cc3787889374fbeb4c81b17ba6c44");
    assert_eq!(output[..], stream);
}

/// RFC 3711 appendix B.3: first blocks of the cipher key, salt and authentication key.
#[test]
fn key_derivation_rounds_give_the_keys_of_rfc_3711() {
    let master = bytes("e1f97a0d3e018be0d64fa32c06de4139");
    for (input, expected) in [
        ("0ec675ad498afeebb6960b3aabe60000", "c61e7a93744f39ee10734afe3ff7a087"),
        ("0ec675ad498afee9b6960b3aabe60000", "30cbbc08863d8c85d49db34a9ae17ac6"),
        ("0ec675ad498afeeab6960b3aabe60000", "cebe321f6ff7716b6fd4ab49af256a15"),
    ] {
        let mut output = [0; 32];
        SrtpCiphers.srtp_aes_128_ecb_round(&master, &bytes(input), &mut output);
        assert_eq!(output[..16], bytes(expected));
    }
}

/// FIPS 197 appendix C.3.
#[test]
fn a_256_bit_round_is_aes() {
    let key = bytes("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    let mut output = [0; 32];
    SrtpCiphers.srtp_aes_256_ecb_round(&key, &bytes("00112233445566778899aabbccddeeff"), &mut output);
    assert_eq!(output[..16], bytes("8ea2b7ca516745bfeafc49904b496089"));
}

const GALLIA: &[u8] = b"Gallia est omnis divisa in partes tres";
const RTP_IV: &str = "51753c6580c2726f20718414";
const RTP_HEADER: &str = "8040f17b8041f8d35501a0b2";

/// RFC 7714 section 16.1.1.
#[test]
fn gcm_with_128_bits_seals_and_opens_as_rfc_7714_does() {
    let mut cipher = SrtpCiphers
        .aead_aes_128_gcm()
        .create_cipher(array("000102030405060708090a0b0c0d0e0f"), true);
    let sealed = bytes(
        "f24de3a3fb34de6cacba861c9d7e4bcabe633bd50d294e6f42a5f47a51c7d19b36de3adf8833
             899d7f27beb16a9152cf765ee4390cce",
    );
    let mut output = vec![0; sealed.len()];
    cipher
        .encrypt(&array(RTP_IV), &bytes(RTP_HEADER), GALLIA, &mut output)
        .unwrap();
    assert_eq!(output, sealed);
    let mut opened = vec![0; GALLIA.len()];
    assert_eq!(
        cipher
            .decrypt(&array(RTP_IV), &[&bytes(RTP_HEADER)], &sealed, &mut opened)
            .unwrap(),
        GALLIA.len()
    );
    assert_eq!(opened, GALLIA);
}

/// RFC 7714 section 16.2.1.
#[test]
fn gcm_with_256_bits_seals_and_opens_as_rfc_7714_does() {
    let key = array("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    let mut cipher = SrtpCiphers.aead_aes_256_gcm().create_cipher(key, true);
    let sealed = bytes(
        "32b1de78a822fe12ef9f78fa332e33aab18012389a58e2f3b50b2a0276ffae0f1ba63799b87b
             7aa3db36dfffd6b0f9bb7878d7a76c13",
    );
    let mut output = vec![0; sealed.len()];
    cipher
        .encrypt(&array(RTP_IV), &bytes(RTP_HEADER), GALLIA, &mut output)
        .unwrap();
    assert_eq!(output, sealed);
    let mut opened = vec![0; GALLIA.len()];
    assert_eq!(
        cipher
            .decrypt(&array(RTP_IV), &[&bytes(RTP_HEADER)], &sealed, &mut opened)
            .unwrap(),
        GALLIA.len()
    );
    assert_eq!(opened, GALLIA);
}

/// RFC 7714 section 17.1: SRTCP, whose index is authenticated after the header.
#[test]
fn gcm_seals_srtcp_as_rfc_7714_does() {
    let mut cipher = SrtpCiphers
        .aead_aes_128_gcm()
        .create_cipher(array("000102030405060708090a0b0c0d0e0f"), true);
    let report = bytes(
        "4e545031 4e545032 52545020 0000042a 0000e930 4c756e61
             deadbeef deadbeef deadbeef deadbeef deadbeef",
    );
    let sealed = bytes(
        "63e94885 dcdab67c a727d766 2f6b7e99 7ff5c0f7 6c06f32d c676a5f1 730d6fda
             4ce09b46 86303ded 0bb9275b c84aa458 96cf4d2f c5abf872 45d9eade",
    );
    let mut output = vec![0; sealed.len()];
    cipher
        .encrypt(
            &array("517524055203726f207170bb"),
            &bytes("81c8000d4d617273800005d4"),
            &report,
            &mut output,
        )
        .unwrap();
    assert_eq!(output, sealed);
}

#[test]
fn gcm_joins_authenticated_data_given_in_parts() {
    let mut cipher = SrtpCiphers.aead_aes_128_gcm().create_cipher([7; 16], true);
    let mut sealed = [0; 20];
    cipher.encrypt(&[1; 12], b"headerindex", b"four", &mut sealed).unwrap();
    let mut opened = [0; 4];
    for aads in [
        &[&b"header"[..], b"index"][..],
        &[b"headerindex", b""],
        &[b"headerindex"],
    ] {
        assert_eq!(cipher.decrypt(&[1; 12], aads, &sealed, &mut opened).unwrap(), 4);
    }
    assert!(
        cipher
            .decrypt(&[1; 12], &[b"header", b"other"], &sealed, &mut opened)
            .is_err()
    );
}

#[test]
fn a_changed_bit_a_missing_tag_and_a_short_buffer_are_refused() {
    let mut cipher = SrtpCiphers.aead_aes_256_gcm().create_cipher([7; 32], true);
    let mut sealed = [0; 20];
    assert!(cipher.encrypt(&[1; 12], b"header", b"four", &mut sealed[..19]).is_err());
    cipher.encrypt(&[1; 12], b"header", b"four", &mut sealed).unwrap();
    let mut opened = [0; 4];
    assert!(
        cipher
            .decrypt(&[1; 12], &[b"header"], &sealed, &mut opened[..3])
            .is_err()
    );
    assert!(
        cipher
            .decrypt(&[1; 12], &[b"header"], &sealed[..15], &mut opened)
            .is_err()
    );
    assert!(cipher.decrypt(&[1; 12], &[b"Header"], &sealed, &mut opened).is_err());
    sealed[3] ^= 1;
    assert!(cipher.decrypt(&[1; 12], &[b"header"], &sealed, &mut opened).is_err());
    assert_eq!(opened, [0; 4], "nothing is handed out before the tag is checked");
    let mut counter_mode = SrtpCiphers.aes_128_cm_sha1_80().create_cipher([7; 16], true);
    assert!(counter_mode.encrypt(&[0; 16], b"four", &mut [0; 3]).is_err());
}
