//! Compares the two codecs: each decodes what the other encodes, and both recover and conceal lost
//! packets alike.

use super::super::{pure, reference};
use super::*;

/// How little two decodings differ, in dB: less than a listener hears.
const ALIKE_DB: f64 = 50.0;

/// What a decoder has in place of one packet.
#[derive(Clone, Copy)]
enum Arrival<'a> {
    Packet(&'a [u8]),
    /// The packet is lost, and this is the next one.
    Recovered(&'a [u8]),
    Lost,
}

/// Defines functions of one codec, by the items that both have.
macro_rules! functions {
    ($encoder:ty, $encode:ident, $decoder:ty, $decode:ident) => {
        fn $encode(rate_hz: u32, settings: EncoderSettings) -> Vec<Vec<u8>> {
            let mut encoder = <$encoder>::new(rate_hz).unwrap();
            encoder.configure(settings).unwrap();
            let packet = |frame| {
                let mut out = [0; OPUS_PACKET_BYTES_MAX];
                let bytes = encoder.encode(&voice(rate_hz, frame), &mut out).unwrap();
                out[..bytes].to_vec()
            };
            (0..FRAMES).map(packet).collect()
        }

        fn $decode(rate_hz: u32, arrivals: &[Arrival<'_>]) -> Vec<i16> {
            let mut decoder = <$decoder>::new(rate_hz).unwrap();
            let mut received = Vec::new();
            for arrival in arrivals {
                let mut out = vec![0; rate_hz as usize / 50];
                match arrival {
                    Arrival::Packet(packet) => decoder.decode(packet, &mut out),
                    Arrival::Recovered(next) => decoder.decode_fec(next, &mut out),
                    Arrival::Lost => decoder.conceal(&mut out),
                }
                .unwrap();
                received.extend(out);
            }
            received
        }
    };
}
functions!(pure::PureEncoder, encode_by_pure, pure::PureDecoder, decode_by_pure);
functions!(
    reference::ReferenceEncoder,
    encode_by_reference,
    reference::ReferenceDecoder,
    decode_by_reference
);

fn whole(packets: &[Vec<u8>]) -> Vec<Arrival<'_>> {
    packets.iter().map(|packet| Arrival::Packet(packet)).collect()
}

/// Returns how close two decodings of the same packets are, in dB.
fn likeness_db(one: &[i16], other: &[i16]) -> f64 {
    let off: Vec<i16> = one.iter().zip(other).map(|(a, b)| a.saturating_sub(*b)).collect();
    10.0 * (energy(one) / energy(&off).max(1e-3)).log10()
}

/// Returns packets of both codecs at all rates of the encoder.
fn packets_of_both(settings: EncoderSettings) -> Vec<(String, Vec<Vec<u8>>)> {
    ENCODER_RATES_HZ
        .into_iter()
        .flat_map(|rate_hz| {
            [
                (
                    format!("{} at {rate_hz} Hz", pure::name()),
                    encode_by_pure(rate_hz, settings),
                ),
                (
                    format!("{} at {rate_hz} Hz", reference::name()),
                    encode_by_reference(rate_hz, settings),
                ),
            ]
        })
        .collect()
}

#[test]
fn each_decodes_packets_of_either_to_the_same_sound() {
    for (origin, packets) in packets_of_both(EncoderSettings::default()) {
        let arrivals = whole(&packets);
        let likeness = likeness_db(
            &decode_by_reference(FULL_HZ, &arrivals),
            &decode_by_pure(FULL_HZ, &arrivals),
        );
        assert!(likeness > ALIKE_DB, "{origin}: {likeness:.1} dB");
    }
}

#[test]
fn both_encode_speech_equally_well() {
    for rate_hz in ENCODER_RATES_HZ {
        let said: Vec<i16> = (0..FRAMES).flat_map(|frame| voice(FULL_HZ, frame)).collect();
        let settings = EncoderSettings::default();
        let of = |packets: &[Vec<u8>]| snr_db(&said, &decode_by_reference(FULL_HZ, &whole(packets)), FULL_HZ);
        let (pure, reference) = (
            of(&encode_by_pure(rate_hz, settings)),
            of(&encode_by_reference(rate_hz, settings)),
        );
        assert!(
            (pure - reference).abs() < 2.0,
            "{rate_hz} Hz: {pure:.1} dB and {reference:.1} dB"
        );
    }
}

#[test]
fn both_conceal_a_lost_packet_alike() {
    for (origin, packets) in packets_of_both(EncoderSettings::default()) {
        let mut arrivals = whole(&packets);
        arrivals
            .iter_mut()
            .skip(9)
            .step_by(10)
            .for_each(|arrival| *arrival = Arrival::Lost);
        let likeness = likeness_db(
            &decode_by_reference(FULL_HZ, &arrivals),
            &decode_by_pure(FULL_HZ, &arrivals),
        );
        assert!(likeness > ALIKE_DB, "{origin}: {likeness:.1} dB");
    }
}

#[test]
fn both_recover_a_lost_packet_from_the_next_alike() {
    let settings = EncoderSettings {
        expected_loss_percent: 20,
        ..Default::default()
    };
    let mut recovered = 0;
    for (origin, packets) in packets_of_both(settings) {
        let mut arrivals = whole(&packets);
        // Packets with a copy in the next one, and some that arrive between them.
        let mut lost = 5;
        while lost + 1 < FRAMES {
            if has_fec(&packets[lost + 1]) {
                arrivals[lost] = Arrival::Recovered(&packets[lost + 1]);
                recovered += 1;
                lost += 5;
            } else {
                lost += 1;
            }
        }
        let likeness = likeness_db(
            &decode_by_reference(FULL_HZ, &arrivals),
            &decode_by_pure(FULL_HZ, &arrivals),
        );
        assert!(likeness > ALIKE_DB, "{origin}: {likeness:.1} dB");
    }
    assert!(recovered > 20, "{recovered} packets recovered");
}
