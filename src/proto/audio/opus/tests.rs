//! Tests that PCM survives the codec at every rate, that lost packets are recovered, and that
//! invalid packets are rejected.

use opus_pure::{Application, OpusEncoder};

use super::*;

#[cfg(feature = "libopus")]
mod both;

const FRAMES: usize = 50;

/// Returns a speech-like sound: harmonics of 150 Hz of falling strength that swell five times a
/// second.
fn voice(rate_hz: u32, frame: usize) -> Vec<i16> {
    let at = |frame: usize| frame * rate_hz as usize / 50;
    (at(frame)..at(frame + 1))
        .map(|i| {
            let t = i as f64 / f64::from(rate_hz);
            let tone = |k: i32| (std::f64::consts::TAU * 150.0 * f64::from(k) * t).sin() / f64::from(k);
            let swell = 0.6 - 0.4 * (std::f64::consts::TAU * 5.0 * t).cos();
            ((1..12).map(tone).sum::<f64>() * swell * 5_000.0) as i16
        })
        .collect()
}

fn packets(rate_hz: u32, settings: EncoderSettings) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(rate_hz, settings).unwrap();
    (0..FRAMES)
        .map(|frame| {
            let mut out = [0; OPUS_PACKET_BYTES_MAX];
            let bytes = encoder.encode(&voice(rate_hz, frame), &mut out).unwrap();
            out[..bytes].to_vec()
        })
        .collect()
}

fn hear(decoder: &mut Decoder, packets: &[Vec<u8>]) {
    for packet in packets {
        decoder.decode(packet).unwrap();
    }
}

fn energy(pcm: &[i16]) -> f64 {
    pcm.iter().map(|s| f64::from(*s) * f64::from(*s)).sum::<f64>() / pcm.len() as f64
}

/// Returns the signal-to-noise ratio of `heard` against `said` in dB, at the best delay.
fn snr_db(said: &[i16], received: &[i16], rate_hz: u32) -> f64 {
    let window = rate_hz as usize / 20;
    let start = said.len() / 2;
    (0..rate_hz as usize / 50)
        .map(|delay| {
            let noise: f64 = (start..start + window)
                .map(|i| (f64::from(said[i]) - f64::from(received[i + delay])).powi(2))
                .sum::<f64>();
            10.0 * (energy(&said[start..start + window]) * window as f64 / noise).log10()
        })
        .fold(f64::MIN, f64::max)
}

/// Joins packets of one frame each into a code 3 packet with sizes (RFC 6716 section 3.2.5).
fn join(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut joined = vec![packets[0][0] | 3, 0x80 | packets.len() as u8];
    for packet in &packets[..packets.len() - 1] {
        let size = packet.len() - 1;
        assert!(size < 252);
        joined.push(size as u8);
    }
    packets.iter().for_each(|packet| joined.extend(&packet[1..]));
    joined
}

fn stereo_packets(left: i16, right: i16) -> Vec<Vec<u8>> {
    let mut encoder = OpusEncoder::new(48_000, 2, Application::Audio).unwrap();
    (0..FRAMES)
        .map(|frame| {
            let pcm: Vec<i16> = (0..960)
                .flat_map(|i| {
                    let t = (i + 960 * frame) as f64 / 48_000.0;
                    let tone = (std::f64::consts::TAU * 440.0 * t).sin();
                    [(tone * f64::from(left)) as i16, (tone * f64::from(right)) as i16]
                })
                .collect();
            let mut out = vec![0; 1_275];
            let bytes = encoder.encode_s16(&pcm, 960, &mut out).unwrap();
            out.truncate(bytes);
            out
        })
        .collect()
}

#[test]
fn speech_survives_at_every_pair_of_rates() {
    for sent_hz in ENCODER_RATES_HZ {
        let packets = packets(sent_hz, EncoderSettings::default());
        for received_hz in [8_000, 11_025, 16_000, 24_000, 44_100] {
            let mut decoder = Decoder::new(received_hz).unwrap();
            let mut received = Vec::new();
            for packet in &packets {
                let pcm = decoder.decode(packet).unwrap();
                assert!(pcm.len().abs_diff(received_hz as usize / 50) <= 1);
                received.extend_from_slice(pcm);
            }
            assert!(
                received.len().abs_diff(received_hz as usize) <= 1,
                "a second is a second"
            );
            let said: Vec<i16> = (0..FRAMES).flat_map(|frame| voice(received_hz, frame)).collect();
            let snr = snr_db(&said, &received, received_hz);
            assert!(snr > 5.0, "{sent_hz} to {received_hz} Hz: {snr:.1} dB");
        }
    }
}

#[test]
fn encodes_small_mono_packets_of_20_ms() {
    for rate_hz in ENCODER_RATES_HZ {
        for bitrate_bps in [16_000, 24_000, 32_000] {
            let packets = packets(
                rate_hz,
                EncoderSettings {
                    bitrate_bps,
                    ..Default::default()
                },
            );
            for packet in &packets {
                assert_eq!(packet_ticks(packet), Some(960));
                assert_eq!(packet[0] & 4, 0, "mono");
                assert!(packet.len() <= 160, "{} bytes", packet.len());
            }
            let mean_bps = packets.iter().map(Vec::len).sum::<usize>() * 8;
            assert!(
                mean_bps < bitrate_bps as usize * 3 / 2,
                "{mean_bps} b/s for {bitrate_bps}"
            );
        }
    }
}

#[test]
fn recovers_a_lost_packet_from_the_next_one() {
    let settings = EncoderSettings {
        expected_loss_percent: 20,
        ..Default::default()
    };
    let packets = packets(16_000, settings);
    let lost = FRAMES / 2;
    assert!(has_fec(&packets[lost + 1]));
    let decode_to = |frame: usize| {
        let mut decoder = Decoder::new(16_000).unwrap();
        hear(&mut decoder, &packets[..frame]);
        decoder
    };
    let whole = decode_to(lost).decode(&packets[lost]).unwrap().to_vec();
    let recovered = decode_to(lost).decode_fec(&packets[lost + 1]).unwrap().to_vec();
    assert_eq!(recovered.len(), 320);
    let off: f64 = whole
        .iter()
        .zip(&recovered)
        .map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2))
        .sum();
    assert!(off / 320.0 < energy(&whole) / 2.0, "the copy resembles the packet");
}

#[test]
fn sends_no_fec_copy_without_expected_loss() {
    let settings = EncoderSettings {
        expected_loss_percent: 0,
        ..Default::default()
    };
    assert!(packets(16_000, settings).iter().all(|packet| !has_fec(packet)));
}

#[test]
fn conceals_for_the_duration_of_the_last_packet() {
    let mut decoder = Decoder::new(16_000).unwrap();
    assert_eq!(decoder.conceal().unwrap(), [0; 320], "nothing was heard yet");
    let packets = packets(16_000, EncoderSettings::default());
    hear(&mut decoder, &packets);
    let made_up = energy(decoder.conceal().unwrap());
    assert!(made_up > 1e5, "the sound goes on: {made_up}");
    decoder.decode(&join(&packets[..3])).unwrap();
    assert_eq!(decoder.conceal().unwrap().len(), 960, "60 ms after a packet of 60 ms");
}

#[test]
fn accepts_packets_of_up_to_120_ms() {
    let packets = packets(16_000, EncoderSettings::default());
    let mut decoder = Decoder::new(48_000).unwrap();
    assert_eq!(decoder.decode(&join(&packets[..6])).unwrap().len(), 5_760);
    let seven = join(&packets[..7]);
    assert_eq!(decoder.decode(&seven), Err(OpusError::Packet { bytes: seven.len() }));
    assert_eq!(decoder.decode(&packets[7]).unwrap().len(), 960, "still usable");
}

#[test]
fn downmixes_stereo() {
    let received = |left, right| {
        let mut decoder = Decoder::new(16_000).unwrap();
        let packets = stereo_packets(left, right);
        assert_eq!(packets[FRAMES - 1][0] & 4, 4, "stereo");
        packets
            .iter()
            .map(|packet| energy(decoder.decode(packet).unwrap()))
            .last()
            .unwrap()
            .sqrt()
    };
    let (both, one) = (received(8_000, 7_000), received(8_000, 0));
    assert!((4_800.0..5_800.0).contains(&both), "mean of both: {both}");
    assert!((2_400.0..3_200.0).contains(&one), "half of one: {one}");
}

#[test]
fn rejects_invalid_packets_and_stays_usable() {
    let mut decoder = Decoder::new(16_000).unwrap();
    for bad in [
        &[][..],
        &[0xff],
        &[0xff, 0x00],
        &[0xff, 0x3f, 1, 2],
        &[0x01, 1],
        &[0x02, 9, 1],
        &[0; 1_501],
    ] {
        assert!(
            decoder.decode(bad).is_err(),
            "{} bytes {:?}",
            bad.len(),
            &bad[..bad.len().min(4)]
        );
    }
    // For any input, the decoder returns a multiple of 2.5 ms or an error, and works afterwards.
    let good = packets(16_000, EncoderSettings::default());
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..1_000_usize {
        let mut packet = good[round % good.len()].clone();
        match random() % 3 {
            0 => packet = (0..random() % 80).map(|_| random() as u8).collect(),
            1 => packet.truncate(random() as usize % packet.len()),
            _ => {
                for _ in 0..=random() % 4 {
                    let at = random() as usize % packet.len();
                    packet[at] ^= 1 << (random() % 8);
                }
            }
        }
        let _ = has_fec(&packet);
        let result = if random() % 4 == 0 {
            decoder.decode_fec(&packet)
        } else {
            decoder.decode(&packet)
        };
        if let Ok(pcm) = result {
            assert!(!pcm.is_empty() && pcm.len() % 40 == 0);
        }
    }
    assert_eq!(decoder.decode(&good[0]).unwrap().len(), 320);
}

#[test]
fn errors_name_the_allowed_values() {
    let refused = OpusError::EncoderRate { rate_hz: 48_000 };
    assert_eq!(Encoder::new(48_000, EncoderSettings::default()).err(), Some(refused));
    assert_eq!(
        refused.to_string(),
        "no Opus from 48000 Hz, only from [8000, 12000, 16000, 24000]"
    );
    assert_eq!(
        Decoder::new(7_999).err(),
        Some(OpusError::DecoderRate { rate_hz: 7_999 })
    );
    let settings = EncoderSettings {
        complexity: 11,
        ..Default::default()
    };
    assert_eq!(Encoder::new(8_000, settings).err(), Some(OpusError::Settings(settings)));
    let mut encoder = Encoder::new(16_000, EncoderSettings::default()).unwrap();
    let mut out = [0; OPUS_PACKET_BYTES_MAX];
    assert_eq!(
        encoder.encode(&[0; 319], &mut out),
        Err(OpusError::FrameLength {
            samples: 319,
            wanted: 320
        })
    );
    let short = &mut out[..OPUS_PACKET_BYTES_MAX - 1];
    assert_eq!(
        encoder.encode(&[0; 320], short),
        Err(OpusError::OutputTooSmall {
            bytes: OPUS_PACKET_BYTES_MAX - 1
        })
    );
}

#[test]
fn does_not_alias_content_above_the_band() {
    // A tone of 10 kHz in a fullband stream is absent at 16 kHz.
    let mut encoder = OpusEncoder::new(48_000, 1, Application::Audio).unwrap();
    encoder.bitrate_bps = 64_000;
    let mut decoders = [Decoder::new(16_000).unwrap(), Decoder::new(24_000).unwrap()];
    let mut received = [0.0; 2];
    for frame in 0..FRAMES {
        let tone = |i: usize| (std::f64::consts::TAU * 10_000.0 * i as f64 / 48_000.0).sin() * 8_000.0;
        let pcm: Vec<i16> = (frame * 960..(frame + 1) * 960).map(|i| tone(i) as i16).collect();
        let mut out = [0; OPUS_PACKET_BYTES_MAX];
        let bytes = encoder.encode_s16(&pcm, 960, &mut out).unwrap();
        received = std::array::from_fn(|n| energy(decoders[n].decode(&out[..bytes]).unwrap()).sqrt());
    }
    assert!(received[0] < 20.0 && received[1] > 5_000.0, "{received:?}");
}

#[test]
fn a_stream_may_widen_its_band_at_any_time() {
    let narrow = packets(16_000, EncoderSettings::default());
    let wide = packets(24_000, EncoderSettings::default());
    assert!(!is_wide(&narrow[FRAMES - 1]) && is_wide(&wide[FRAMES - 1]));
    let mut decoder = Decoder::new(16_000).unwrap();
    hear(&mut decoder, &narrow);
    let said: Vec<i16> = (0..FRAMES).flat_map(|frame| voice(16_000, frame)).collect();
    let mut received = Vec::new();
    for packet in wide.iter().chain(&narrow) {
        received.extend_from_slice(decoder.decode(packet).unwrap());
    }
    assert_eq!(received.len(), 2 * said.len());
    for part in [&received[..said.len()], &received[said.len()..]] {
        let snr = snr_db(&said, part, 16_000);
        assert!(snr > 5.0, "{snr:.1} dB");
    }
    assert_eq!(decoder.conceal().unwrap().len(), 320);
}

#[test]
fn the_band_limit_codes_nothing_above_8_khz() {
    for (wideband, hybrid) in [(true, false), (false, true)] {
        let mut encoder = Encoder::new(24_000, EncoderSettings::default()).unwrap();
        encoder.limit_to_wideband(wideband);
        let mut out = [0; OPUS_PACKET_BYTES_MAX];
        for frame in 0..FRAMES {
            encoder.encode(&voice(24_000, frame), &mut out).unwrap();
        }
        // Configurations 12 and up have a wider band than wideband SILK (RFC 6716 table 2).
        assert_eq!(out[0] >> 3 >= 12, hybrid);
    }
}

/// Cargo tells a crate nothing of its dependencies' versions.
#[test]
fn the_name_of_the_pure_codec_has_the_version_of_the_manifest() {
    let manifest = include_str!("../../../../Cargo.toml");
    let version = pure::name().strip_prefix("opus-pure ").unwrap();
    assert!(
        manifest.contains(&format!("\nopus-pure = \"={version}\"\n")),
        "opus-pure {version}"
    );
}

#[test]
fn names_the_codec_of_the_build() {
    let expected = if cfg!(feature = "libopus") {
        "libopus 1."
    } else {
        "opus-pure 0."
    };
    assert!(codec_name().starts_with(expected), "{}", codec_name());
}

#[test]
fn encodes_any_bot_rate_at_the_next_higher_one() {
    for (rate_hz, encoded_hz) in [(8_000, 8_000), (11_025, 12_000), (22_050, 24_000), (44_100, 24_000)] {
        assert_eq!(encoder_rate_hz(rate_hz), encoded_hz);
    }
}

#[test]
fn durations_follow_the_configuration_table() {
    // First byte, and ticks of one frame: SILK, hybrid, CELT.
    for (config, ticks) in [
        (0, 480),
        (3, 2_880),
        (9, 960),
        (12, 480),
        (15, 960),
        (16, 120),
        (29, 240),
        (31, 960),
    ] {
        assert_eq!(packet_ticks(&[config << 3, 0]), Some(ticks), "configuration {config}");
        assert_eq!(
            packet_ticks(&[config << 3 | 1, 0]),
            Some(2 * ticks),
            "configuration {config}, twice"
        );
    }
    assert_eq!(packet_ticks(&[16 << 3 | 3, 48]), Some(5_760));
    assert_eq!(packet_ticks(&[16 << 3 | 3, 49]), None);
}

#[test]
fn digital_silence_remains_silence_after_speech() {
    // `--embedded` requires it: the microphone of the device is muted while a sample is outside
    // -1..1.
    for rate_hz in ENCODER_RATES_HZ {
        let mut encoder = Encoder::new(rate_hz, EncoderSettings::default()).unwrap();
        let mut decoder = Decoder::new(16_000).unwrap();
        let mut out = [0; OPUS_PACKET_BYTES_MAX];
        let mut last_loud = 0;
        for frame in 0..FRAMES + 200 {
            let pcm = if frame < FRAMES {
                voice(rate_hz, frame)
            } else {
                vec![0; rate_hz as usize / 50]
            };
            let bytes = encoder.encode(&pcm, &mut out).unwrap();
            if decoder
                .decode(&out[..bytes])
                .unwrap()
                .iter()
                .any(|s| !(-1..=1).contains(s))
            {
                last_loud = frame;
            }
        }
        assert!(last_loud < FRAMES + 5, "{rate_hz} Hz: sound until frame {last_loud}");
    }
}
