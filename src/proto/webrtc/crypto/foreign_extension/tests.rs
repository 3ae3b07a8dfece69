//! Packets with foreign header extensions, sealed here from RFC 3711 and RFC 7714, to str0m.

use str0m::crypto::dtls::SrtpProfile;
use str0m::crypto::{Sha1HmacProvider, SrtpProvider};

use super::super::digest::Digests;
use super::super::provider;
use super::super::srtp::SrtpCiphers;
use super::super::tests::{Call, PROFILES, end, spoken, with_profile};
use super::*;

const PACKETS: u8 = 20;

/// The keys of a DTLS server's sending direction (RFC 5764 section 4.2).
struct Keys {
    profile: SrtpProfile,
    master: Vec<u8>,
    salt: Vec<u8>,
}

impl Keys {
    fn of_server(profile: SrtpProfile, material: &[u8]) -> Self {
        let (key, salt) = match profile {
            SrtpProfile::AES128_CM_SHA1_80 => (16, 14),
            SrtpProfile::AEAD_AES_128_GCM => (16, 12),
            _ => (32, 12),
        };
        Keys {
            profile,
            master: material[key..2 * key].to_vec(),
            salt: material[2 * key + salt..2 * key + 2 * salt].to_vec(),
        }
    }

    /// Key derivation of RFC 3711 section 4.3.1, without a key derivation rate.
    fn derive<const N: usize>(&self, label: u8) -> [u8; N] {
        let mut input = [0; 16];
        input[..self.salt.len()].copy_from_slice(&self.salt);
        input[7] ^= label;
        let mut key = [0; N];
        for (n, chunk) in (0..).zip(key.chunks_mut(16)) {
            input[15] = n;
            let mut block = [0; 32];
            match self.master.len() {
                16 => SrtpCiphers.srtp_aes_128_ecb_round(&self.master, &input, &mut block),
                _ => SrtpCiphers.srtp_aes_256_ecb_round(&self.master, &input, &mut block),
            }
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
        key
    }

    /// Seals a packet, with a roll-over counter of 0.
    fn seal(&self, header: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut iv = [0; 16];
        iv[4..8].copy_from_slice(&header[8..12]);
        iv[12..14].copy_from_slice(&header[2..4]);
        let mut sealed = vec![0; payload.len() + 16];
        let mut nonce: [u8; 12] = iv[2..14].try_into().expect("twelve bytes");
        let salts = (self.derive::<14>(2), self.derive::<12>(2));
        iv.iter_mut().zip(salts.0).for_each(|(byte, salt)| *byte ^= salt);
        nonce.iter_mut().zip(salts.1).for_each(|(byte, salt)| *byte ^= salt);
        if self.profile == SrtpProfile::AES128_CM_SHA1_80 {
            sealed.truncate(payload.len());
            let mut cipher = SrtpCiphers.aes_128_cm_sha1_80().create_cipher(self.derive(0), true);
            cipher.encrypt(&iv, payload, &mut sealed).unwrap();
            let packet = [header, &sealed].concat();
            let tag = Digests.sha1_hmac(&self.derive::<20>(1), &[&packet, &[0; 4]]);
            return [&packet, &tag[..10]].concat();
        }
        if self.profile == SrtpProfile::AEAD_AES_128_GCM {
            let mut cipher = SrtpCiphers.aead_aes_128_gcm().create_cipher(self.derive(0), true);
            cipher.encrypt(&nonce, header, payload, &mut sealed).unwrap();
        } else {
            let mut cipher = SrtpCiphers.aead_aes_256_gcm().create_cipher(self.derive(0), true);
            cipher.encrypt(&nonce, header, payload, &mut sealed).unwrap();
        }
        [header, &sealed].concat()
    }
}

/// An extension of this profile with content that has a meaning in neither form of RFC 8285.
fn extension(profile: u16) -> Vec<u8> {
    [&profile.to_be_bytes()[..], &[0, 3], &[0x1f; 12]].concat()
}

/// A call in which the caller's packets have two contributing sources and this extension. Each
/// packet is carried `copies` times. `damage` changes it on its way.
fn call(profile: SrtpProfile, extension: &[u8], copies: usize, damage: fn(&mut Vec<u8>)) -> Call {
    let (caller, material) = with_profile(provider(), profile);
    let (answerer, _) = with_profile(provider(), profile);
    let mut call = Call::new(end(caller), end(answerer));
    let (extension, mut said) = (extension.to_vec(), 0);
    call.connect();
    call.rewrite = Some(Box::new(move |from_caller, datagram| {
        if !from_caller || PacketKind::from_packet(&datagram) != PacketKind::Rtp {
            return vec![datagram];
        }
        let material = material.lock().unwrap().clone().expect("a call that is connected");
        let mut header = [&datagram[..12], b"contribs", &extension].concat();
        header[0] = 0x92;
        let mut packet = Keys::of_server(profile, &material).seal(&header, &[said; 100]);
        said += 1;
        damage(&mut packet);
        vec![packet; copies]
    }));
    call
}

fn received(profile: SrtpProfile, extension: &[u8], copies: usize, damage: fn(&mut Vec<u8>)) -> Vec<Vec<u8>> {
    let mut call = call(profile, extension, copies, damage);
    call.talk(PACKETS);
    call.peers[1].received.clone()
}

#[test]
fn packets_with_a_foreign_extension_are_decrypted_in_every_profile() {
    for profile in PROFILES {
        for extension in [&extension(0xabac)[..], &extension(0x1010), &[0, 0, 0, 0]] {
            assert_eq!(
                received(profile, extension, 1, |_| {}),
                spoken(PACKETS),
                "{profile}, {extension:x?}"
            );
        }
    }
}

/// Each byte of the extension is authenticated, and so is everything else.
#[test]
fn a_changed_packet_with_a_foreign_extension_is_rejected() {
    for profile in PROFILES {
        for damage in [
            |packet: &mut Vec<u8>| packet[20] ^= 1, // the profile
            |packet: &mut Vec<u8>| packet[30] ^= 1, // the extension
            |packet: &mut Vec<u8>| packet[12] ^= 1, // a contributing source
            |packet: &mut Vec<u8>| packet[40] ^= 1, // the payload
            |packet: &mut Vec<u8>| *packet.last_mut().unwrap() ^= 1,
            // A packet whose extension somebody cut out, as it is handed to str0m.
            |packet: &mut Vec<u8>| {
                packet.drain(20..36);
                packet[0] &= !EXTENSION_BIT;
            },
        ] {
            assert_eq!(received(profile, &extension(0xabac), 1, damage), spoken(0), "{profile}");
        }
    }
}

#[test]
fn a_repeated_packet_with_a_foreign_extension_is_decrypted_once() {
    for profile in PROFILES {
        assert_eq!(
            received(profile, &extension(0xabac), 2, |_| {}),
            spoken(PACKETS),
            "{profile}"
        );
    }
}

const PACKET: [u8; 26] = [
    0x90, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0xab, 0xac, 0, 2, 1, 1, 1, 1, 2, 2, 2, 2, b'o', b'k',
];

#[test]
fn only_a_foreign_extension_is_hidden() {
    let bare = BarePacket::new(&PACKET).expect("a foreign extension");
    assert_eq!(bare.contents, [0x80, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, b'o', b'k']);
    let changed = |at: usize, bytes: &[u8]| {
        let mut packet = PACKET.to_vec();
        packet[at..at + bytes.len()].copy_from_slice(bytes);
        packet
    };
    for datagram in [
        changed(0, &[0x80]),        // no extension
        changed(0, &[0x10]),        // no RTP
        changed(1, &[200]),         // RTCP
        changed(12, &[0xbe, 0xde]), // the one-byte form
        changed(12, &[0x10, 0]),    // the two-byte form
        changed(12, &[0x10, 0x0f]),
    ] {
        assert!(BarePacket::new(&datagram).is_none(), "{datagram:x?}");
        assert!(!is_cut_off(&datagram), "{datagram:x?}");
    }
    for datagram in [&changed(14, &[0, 4])[..], &PACKET[..23], &PACKET[..15], &PACKET[..1]] {
        assert!(
            BarePacket::new(datagram).is_none() && is_cut_off(datagram),
            "{datagram:x?}"
        );
    }
    assert!(BarePacket::new(&[]).is_none() && !is_cut_off(&[]));
    assert!(BarePacket::new(&PACKET[..24]).is_some(), "no payload");
}

#[test]
fn only_the_packet_in_hand_is_authenticated_with_its_extension() {
    let bare = BarePacket::new(&PACKET).expect("a foreign extension");
    bare.handle(|contents| {
        assert_eq!(*as_received(contents), PACKET);
        assert_eq!(*as_received(&contents[..12]), PACKET[..24]);
        let mut other = contents.to_vec();
        other[3] ^= 1;
        assert_eq!(*as_received(&other), other);
        assert_eq!(*as_received(&contents[..11]), contents[..11]);
        assert!(as_received(&[]).is_empty());
    });
    assert_eq!(*as_received(&bare.contents), bare.contents, "forgotten");
    let failed = std::panic::catch_unwind(|| bare.handle(|_| panic!("a fault")));
    assert!(failed.is_err());
    assert_eq!(
        *as_received(&bare.contents),
        bare.contents,
        "forgotten after a panic too"
    );
}

/// Without [`BarePacket`], as str0m does it by itself.
#[test]
fn str0m_still_drops_foreign_extensions() {
    let mut call = call(SrtpProfile::AES128_CM_SHA1_80, &extension(0xabac), 1, |_| {});
    call.hides_extensions = false;
    call.talk(PACKETS);
    assert!(
        call.peers[1].received.is_empty(),
        "str0m ignores foreign header extensions now: delete foreign_extension.rs and what calls it"
    );
}
