//! Tests of the Opus encoder.

use super::*;
use crate::audio::opus::{Decoder, ENCODER_RATES_HZ, packet_ticks};

const SPOKEN: u32 = 30;
const QUIET: u32 = 60;

/// Returns speech-like harmonics that glide and swell, without a pause.
fn voice(rate_hz: u32, frame: u32) -> Vec<i16> {
    let samples = rate_hz / 50;
    (frame * samples..(frame + 1) * samples)
        .map(|i| {
            let t = f64::from(i) / f64::from(rate_hz);
            let pitch = std::f64::consts::TAU * (140.0 * t + 6.0 * (2.0 * t).sin());
            let tone = |k: i32| (pitch * f64::from(k)).sin() / f64::from(k);
            ((1..14).map(tone).sum::<f64>() * (0.6 - 0.4 * (30.0 * t).cos()) * 5_000.0) as i16
        })
        .collect()
}

fn speech(rate_hz: u32, limit_to_wideband: bool) -> OpusSpeech {
    OpusSpeech::new(rate_hz, EncoderSettings::default(), limit_to_wideband).unwrap()
}

fn loudest(pcm: &[i16]) -> u16 {
    pcm.iter().map(|sample| sample.unsigned_abs()).max().unwrap()
}

/// Returns every encoder rate with and without the upper band, for a device (16 kHz) and a
/// browser (48 kHz).
fn cases() -> impl Iterator<Item = (u32, bool, u32)> {
    let rates = ENCODER_RATES_HZ
        .into_iter()
        .flat_map(|rate_hz| [(rate_hz, true), (rate_hz, false)]);
    rates.flat_map(|(rate_hz, limit_to_wideband)| {
        [16_000, 48_000].map(|decoder_hz| (rate_hz, limit_to_wideband, decoder_hz))
    })
}

#[test]
fn repeats_one_packet_during_a_long_silence() {
    for (rate_hz, limit_to_wideband, decoder_hz) in cases() {
        let mut encoder = speech(rate_hz, limit_to_wideband);
        let mut decoder = Decoder::new(decoder_hz).unwrap();
        for frame in 0..SPOKEN {
            decoder
                .decode(encoder.encode(&voice(rate_hz, frame), false).unwrap())
                .unwrap();
        }
        let silence = vec![0; rate_hz as usize / 50];
        let mut last = Vec::new();
        for frame in 0..150 {
            let packet = encoder.encode(&silence, true).unwrap();
            assert_eq!(packet_ticks(packet), Some(960), "a whole packet, never DTX");
            assert!(packet.len() > 3);
            let loudest = loudest(decoder.decode(packet).unwrap());
            assert!(
                frame < 5 || loudest <= 1,
                "{rate_hz} to {decoder_hz} Hz, frame {frame}: {loudest}"
            );
            if frame >= SILENT_FRAMES_ENCODED {
                assert_eq!(packet, last);
            }
            last = packet.to_vec();
        }
        assert!(encoder.codec.is_none(), "the codec's memory is free");
    }
}

/// Returns the signal-to-noise ratio of the first 60 ms after `onset`, in dB, at the best
/// delay.
fn snr_db(said: &[i16], decoded: &[i16], onset: usize, rate_hz: u32) -> f64 {
    let ptime = rate_hz as usize / 50;
    let range = onset..onset + 3 * ptime;
    let power = |samples: &mut dyn Iterator<Item = f64>| samples.map(|x| x * x).sum::<f64>();
    let signal = power(&mut said[range.clone()].iter().map(|x| f64::from(*x)));
    let noise = (0..ptime)
        .map(|delay| {
            let decoded = decoded[range.start + delay..].iter();
            power(
                &mut said[range.clone()]
                    .iter()
                    .zip(decoded)
                    .map(|(a, b)| f64::from(*a) - f64::from(*b)),
            )
        })
        .fold(f64::MAX, f64::min);
    10.0 * (signal / noise).log10()
}

#[test]
fn speech_after_a_long_silence_matches_continuous_encoding() {
    for (rate_hz, limit_to_wideband, decoder_hz) in cases() {
        let mut encoder = speech(rate_hz, limit_to_wideband);
        let mut whole = codec(rate_hz, EncoderSettings::default(), limit_to_wideband).unwrap();
        let (mut decoder, mut reference) = (Decoder::new(decoder_hz).unwrap(), Decoder::new(decoder_hz).unwrap());
        let (mut said, mut decoded, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for frame in 0..SPOKEN + QUIET + 8 {
            let is_silent = (SPOKEN..SPOKEN + QUIET).contains(&frame);
            let say = |hz: u32| {
                if is_silent {
                    vec![0; hz as usize / 50]
                } else {
                    voice(hz, frame)
                }
            };
            let pcm = say(rate_hz);
            said.extend(say(decoder_hz));
            decoded.extend_from_slice(decoder.decode(encoder.encode(&pcm, is_silent).unwrap()).unwrap());
            let mut packet = [0; OPUS_PACKET_BYTES_MAX];
            let bytes = whole.encode(&pcm, &mut packet).unwrap();
            wanted.extend_from_slice(reference.decode(&packet[..bytes]).unwrap());
        }
        let ptime = decoder_hz as usize / 50;
        let onset = (SPOKEN + QUIET) as usize * ptime;
        let (got, best) = (
            snr_db(&said, &decoded, onset, decoder_hz),
            snr_db(&said, &wanted, onset, decoder_hz),
        );
        assert!(
            got > best - 0.5,
            "{rate_hz} to {decoder_hz} Hz: {got:.1} dB for {best:.1}"
        );
        let peaks = [&wanted, &decoded].map(|pcm| f64::from(loudest(&pcm[onset..onset + 4 * ptime])));
        assert!(peaks[1] < 1.15 * peaks[0], "{rate_hz} to {decoder_hz} Hz: {peaks:?}");
        assert!(loudest(&decoded[onset - 2 * ptime..onset]) <= 1, "nothing before it");
    }
}

#[test]
fn encodes_a_short_pause() {
    let mut encoder = speech(16_000, true);
    for round in 0..3 {
        for frame in 0..SILENT_FRAMES_ENCODED {
            encoder.encode(&[0; 320], true).unwrap();
            assert!(encoder.codec.is_some(), "frame {frame} of round {round}");
        }
        encoder.encode(&voice(16_000, round), false).unwrap();
    }
}

#[test]
fn returns_errors_of_the_codec() {
    let new = |codec| SpeechEncoder::new(codec, 48_000, EncoderSettings::default(), false);
    assert!(new(Codec::Opus).is_err());
    assert!(speech(16_000, false).encode(&[0; 319], true).is_err());
    let mut encoder = new(Codec::G711(Law::Mu)).unwrap();
    assert!(encoder.encode(&[0; 159], true).is_err() && encoder.encode(&[0; 161], false).is_err());
}

/// Silence is encoded as zero, or in A-law, which has no zero, as the nearest value.
#[test]
fn encodes_g711_as_one_byte_per_sample_and_keeps_silence() {
    for (law, silence) in [(Law::Mu, 0xff), (Law::A, 0xd5)] {
        let mut encoder = SpeechEncoder::new(Codec::G711(law), G711_HZ, EncoderSettings::default(), false).unwrap();
        for _ in 0..100 {
            assert_eq!(encoder.encode(&[0; 160], true).unwrap(), [silence; 160]);
        }
        assert_ne!(encoder.encode(&[1_000; 160], false).unwrap(), [silence; 160]);
        assert_eq!(encoder.encode(&[0; 160], true).unwrap(), [silence; 160], "at once");
    }
}
