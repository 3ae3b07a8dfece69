//! Reads the outgoing packets with a receiver written from RFC 3711, and with an unmodified str0m.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use str0m::crypto::dtls::SrtpProfile;

use super::super::provider;
use super::super::tests::{Call, PROFILES, end, spoken, with_profile};
use super::*;

const PACKETS: u8 = 20;
const TAG_BYTES: usize = 10;

fn is_rtp(datagram: &[u8]) -> bool {
    datagram.len() > HEADER_BYTES && (128..192).contains(&datagram[0]) && !(192..=223).contains(&datagram[1])
}

/// Key derivation of RFC 3711 section 4.3.1, without a key derivation rate.
fn derive<const N: usize>(master: &[u8], salt: &[u8], label: u8) -> [u8; N] {
    let mut x = [0; 16];
    x[..14].copy_from_slice(salt);
    x[7] ^= label;
    let mut key = [0; N];
    key_stream(master, x, &mut key);
    key
}

/// Applies the counter mode of RFC 3711 section 4.1.1 to `bytes`.
fn key_stream(key: &[u8], iv: [u8; 16], bytes: &mut [u8]) {
    let cipher = Aes128::new_from_slice(key).unwrap();
    for (n, chunk) in bytes.chunks_mut(16).enumerate() {
        let mut block = (u128::from_be_bytes(iv).wrapping_add(n as u128)).to_be_bytes().into();
        cipher.encrypt_block(&mut block);
        chunk.iter_mut().zip(block).for_each(|(byte, key)| *byte ^= key);
    }
}

/// Verifies and decrypts a packet with a 12-byte header, as a microcontroller does (RFC 3711
/// section 3.3).
fn receive(master: &[u8], salt: &[u8], packet: &[u8]) -> Option<Vec<u8>> {
    let (authenticated, tag) = packet.split_at(packet.len() - TAG_BYTES);
    let mut mac = Hmac::<Sha1>::new_from_slice(&derive::<20>(master, salt, 1)).unwrap();
    mac.update(authenticated);
    mac.update(&[0; 4]); // roll-over counter
    mac.verify_truncated_left(tag).ok()?;
    let (header, payload) = authenticated.split_at(HEADER_BYTES);
    let mut iv = [0; 16];
    iv[..14].copy_from_slice(&derive::<14>(master, salt, 2));
    iv[4..8]
        .iter_mut()
        .zip(&header[8..12])
        .for_each(|(byte, ssrc)| *byte ^= ssrc);
    iv[12] ^= header[2];
    iv[13] ^= header[3];
    let mut payload = payload.to_vec();
    key_stream(&derive::<16>(master, salt, 0), iv, &mut payload);
    Some(payload)
}

/// The packet of libsrtp's self-test.
#[test]
fn the_receiver_of_these_tests_reads_the_packet_of_libsrtp() {
    let master = *b"\xe1\xf9\x7a\x0d\x3e\x01\x8b\xe0\xd6\x4f\xa3\x2c\x06\xde\x41\x39";
    let salt = *b"\x0e\xc6\x75\xad\x49\x8a\xfe\xeb\xb6\x96\x0b\x3a\xab\xe6";
    let mut packet = *b"\x80\x0f\x12\x34\xde\xca\xfb\xad\xca\xfe\xba\xbe\
        \x4e\x55\xdc\x4c\xe7\x99\x78\xd8\x8c\xa4\xd2\x15\x94\x9d\x24\x02\xb7\x8d\x6a\xcc\x99\xea\x17\x9b\x8d\xbb";
    assert_eq!(receive(&master, &salt, &packet).unwrap(), [0xab; 16]);
    packet[20] ^= 1;
    assert!(receive(&master, &salt, &packet).is_none());
}

#[test]
fn str0m_still_writes_the_empty_block() {
    let mut call = Call::new(end(provider()), end(provider()));
    call.connect();
    call.talk(PACKETS);
    let packets: Vec<_> = call.peers[1].sent.iter().filter(|datagram| is_rtp(datagram)).collect();
    assert!(packets.len() >= PACKETS.into());
    assert!(
        packets.iter().all(|packet| has_empty_extension(packet)),
        "str0m no longer writes empty header extensions: delete header_extension.rs and what calls it"
    );
}

#[test]
fn a_microcontroller_hears_every_packet_and_finds_the_payload_at_byte_12() {
    let (answerer, keys) = with_profile(embedded_provider(), SrtpProfile::AES128_CM_SHA1_80);
    let (caller, _) = with_profile(provider(), SrtpProfile::AES128_CM_SHA1_80);
    let mut call = Call::new(end(caller), end(answerer));
    call.peers[1].strip = true;
    call.connect();
    call.talk(PACKETS);
    let keys = keys.lock().unwrap().clone().unwrap();
    // The answerer is the DTLS client: its keys come first (RFC 5764 section 4.2).
    let (master, salt) = (&keys[..16], &keys[32..46]);
    let packets: Vec<_> = call.peers[1].sent.iter().filter(|datagram| is_rtp(datagram)).collect();
    assert!(
        packets.iter().all(|packet| packet[0] == 0x80),
        "no extension bit, no padding, no contributing sources"
    );
    let received: Vec<_> = packets
        .iter()
        .map(|packet| receive(master, salt, packet).expect("a tag that fits"))
        .collect();
    assert_eq!(received, spoken(PACKETS));
}

/// The caller uses the plain provider: it verifies bare headers and sends empty blocks itself.
#[test]
fn both_ends_hear_each_other_in_every_profile() {
    for profile in PROFILES {
        let [caller, answerer] = [provider(), embedded_provider()].map(|provider| with_profile(provider, profile).0);
        let mut call = Call::new(end(caller), end(answerer));
        call.peers[1].strip = true;
        call.connect();
        call.talk(PACKETS);
        let sent = |peer: usize| call.peers[peer].sent.iter().filter(|datagram| is_rtp(datagram));
        assert!(sent(0).all(|packet| has_empty_extension(packet)));
        assert!(sent(1).all(|packet| packet[0] == 0x80));
        for peer in &call.peers {
            assert_eq!(peer.received, spoken(PACKETS), "{profile}");
            assert_eq!(peer.read, [b"hello"], "{profile}");
        }
    }
}

#[test]
fn a_nonempty_extension_passes_unchanged() {
    for profile in PROFILES {
        let [caller, answerer] = [provider(), embedded_provider()].map(|provider| {
            let extensions = str0m::rtp::ExtensionMap::standard();
            end(with_profile(provider, profile).0).set_extension_map(extensions)
        });
        let mut call = Call::new(caller, answerer);
        call.peers[1].strip = true;
        call.connect();
        call.talk(PACKETS);
        let packets: Vec<_> = call.peers[1].sent.iter().filter(|datagram| is_rtp(datagram)).collect();
        assert!(packets.len() >= PACKETS.into());
        assert!(
            packets
                .iter()
                .all(|packet| packet[0] & EXTENSION_BIT != 0 && packet[12..15] == [0xbe, 0xde, 0])
        );
        assert_eq!(call.peers[0].received, spoken(PACKETS), "{profile}");
    }
}

const PACKET: [u8; 20] = [
    0x90, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0xbe, 0xde, 0, 0, b'o', b'p', b'u', b's',
];

#[test]
fn the_block_is_cut_and_the_bit_is_cleared() {
    let mut packet = PACKET;
    assert_eq!(
        strip_empty_extension(&mut packet),
        [0x80, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, b'o', b'p', b'u', b's']
    );
    // Padding is at the end and is kept.
    let mut packet = PACKET;
    packet[0] |= PADDING_BIT;
    assert_eq!(strip_empty_extension(&mut packet)[0], 0x80 | PADDING_BIT);
    // The block may be the end of the packet.
    let mut packet = PACKET;
    assert_eq!(strip_empty_extension(&mut packet[..16]).len(), 12);
}

#[test]
fn other_packets_pass_unchanged() {
    let changed = |at: usize, byte: u8| {
        let mut packet = PACKET.to_vec();
        packet[at] = byte;
        packet
    };
    for datagram in [
        changed(0, 0x80), // no extension
        changed(0, 0x91), // a contributing source
        changed(0, 0x10), // version 0, as STUN has it
        changed(0, 0x16), // DTLS
        changed(1, 200),  // RTCP with 16 report blocks
        changed(1, 192),
        changed(1, 223),
        changed(12, 0x10), // the two-byte form
        changed(15, 1),    // a block that says something
        PACKET[..15].to_vec(),
        PACKET[..12].to_vec(),
        vec![0x90],
        Vec::new(),
    ] {
        let mut copy = datagram.clone();
        assert_eq!(strip_empty_extension(&mut copy), datagram);
    }
}

/// STUN uses the same provider with three slices, and received packets are verified unchanged.
#[test]
fn only_the_tag_of_a_packet_to_send_is_changed() {
    let key = [7; 20];
    let plain = Digests.sha1_hmac(&key, &[&PACKET, &[0; 4]]);
    assert_eq!(BareHeaderProvider.sha1_hmac(&key, &[&PACKET, &[0; 4]]), plain);

    let mut cipher = BareHeaderProvider.aes_128_cm_sha1_80().create_cipher([7; 16], true);
    cipher.encrypt(&[0; 16], b"opus", &mut [0; 4]).unwrap();
    let mut packet = PACKET;
    let bare = strip_empty_extension(&mut packet);
    assert_eq!(
        BareHeaderProvider.sha1_hmac(&key, &[&PACKET, &[0; 4]]),
        Digests.sha1_hmac(&key, &[bare, &[0; 4]])
    );
    assert_eq!(
        BareHeaderProvider.sha1_hmac(&key, &[&PACKET, &[0; 4]]),
        plain,
        "one packet, one tag"
    );

    for payloads in [
        &[&PACKET[..]][..],
        &[&PACKET, &[0; 4], &[1; 8]],
        &[&PACKET[..15], &[0; 4]],
        &[],
    ] {
        cipher.encrypt(&[0; 16], b"opus", &mut [0; 4]).unwrap();
        assert_eq!(
            BareHeaderProvider.sha1_hmac(&key, payloads),
            Digests.sha1_hmac(&key, payloads)
        );
    }
}
