//! Tests of the sender of audio.

use super::*;
use crate::audio::decoder::AudioDecoder;
use crate::audio::g711::Law;
use std::time::Duration;

/// Runs a sender until just before `until`; returns its packets with their timestamps.
fn run(speaker: &mut AudioSender, pcm: &mut &[i16], from: Instant, until: Instant) -> Vec<(Vec<u8>, u64)> {
    let mut packets = Vec::new();
    let mut now = from;
    while now < until {
        let (head, tail) = pcm.split_at(speaker.free_capacity().min(pcm.len()));
        speaker.handle_audio(head, now);
        *pcm = tail;
        while let Some(packet) = speaker.poll_packet(now) {
            packets.push((packet.payload.to_vec(), packet.ticks));
        }
        now = speaker.poll_timeout().unwrap();
    }
    packets
}

#[test]
fn encodes_any_bot_rate() {
    let rates = [8_000, 9_999, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];
    for (codec, rate_hz) in Codec::ALL
        .iter()
        .flat_map(|codec| rates.map(|rate_hz| (*codec, rate_hz)))
    {
        let start = Instant::now();
        let mut speaker = AudioSender::new(codec, false, EncoderSettings::default());
        speaker.set_rate(rate_hz);
        speaker.start(start);
        let tone = |n: u32| (std::f64::consts::TAU * 440.0 * f64::from(n) / f64::from(rate_hz)).sin() * 8_000.0;
        let pcm: Vec<i16> = (0..rate_hz).map(|n| tone(n) as i16).collect();
        let packets = run(&mut speaker, &mut &pcm[..], start, start + Duration::from_millis(1_500));
        let mut decoder = AudioDecoder::new(codec, 16_000).unwrap();
        let mut decoded = Vec::new();
        for (packet, _) in &packets {
            decoded.extend_from_slice(decoder.decode(packet).unwrap());
        }
        let loud: Vec<usize> = (0..decoded.len())
            .filter(|n| decoded[*n].unsigned_abs() > 3_000)
            .collect();
        let spoken = loud[loud.len() - 1] - loud[0];
        assert!(
            spoken.abs_diff(16_000) < 200,
            "{codec} {rate_hz} Hz: a second lasted {spoken} samples of 16,000"
        );
        let middle = &decoded[loud[0] + 4_000..loud[0] + 12_000];
        let rises = middle.windows(2).filter(|pair| pair[0] < 0 && pair[1] >= 0).count();
        assert!(
            (219..=221).contains(&rises),
            "{codec} {rate_hz} Hz: {rises} periods in half a second of 440 Hz"
        );
        let turns = [
            speaker.poll_speech_event(),
            speaker.poll_speech_event(),
            speaker.poll_speech_event(),
        ];
        assert_eq!(turns, [Some(SpeechEvent::Started), Some(SpeechEvent::Stopped), None]);
        assert!(speaker.is_finished());
    }
}

#[test]
fn a_new_rate_keeps_the_clock() {
    let start = Instant::now();
    let mut speaker = AudioSender::new(Codec::Opus, false, EncoderSettings::default());
    assert!(speaker.poll_packet(start).is_none(), "nothing before the start");
    speaker.start(start);
    let until = start + Duration::from_millis(95);
    let mut packets = run(&mut speaker, &mut &[][..], start, until);
    speaker.set_rate(24_000);
    packets.extend(run(
        &mut speaker,
        &mut &[][..],
        until,
        start + Duration::from_millis(200),
    ));
    assert!(
        packets
            .windows(2)
            .all(|pair| pair[1].1 == pair[0].1 + pacer::PTIME_TICKS)
    );
    assert!(packets.len() >= 10);
}

/// The speech of a bot that changes its rate in mid-speech is sent to the end, which is reported.
#[test]
fn a_new_rate_keeps_the_queued_speech() {
    // The codec keeps its rate of 24 kHz, and then gets another one.
    for (codec, from_hz, to_hz) in [
        (Codec::Opus, 22_050, 24_000),
        (Codec::Opus, 24_000, 16_000),
        (Codec::Opus, 16_000, 48_000),
        (Codec::G711(Law::Mu), 16_000, 24_000),
    ] {
        let start = Instant::now();
        let mut speaker = AudioSender::new(codec, false, EncoderSettings::default());
        speaker.set_rate(from_hz);
        speaker.start(start);
        let samples = from_hz as usize * 3 / 10;
        let pcm: Vec<i16> = (0..samples).map(|n| if n % 40 < 20 { 9_000 } else { -9_000 }).collect();
        let mut rest = &pcm[..];
        let mut now = start;
        let mut packets = Vec::new();
        while !rest.is_empty() {
            packets.extend(run(&mut speaker, &mut rest, now, now + Duration::from_millis(1)));
            now = speaker.poll_timeout().unwrap();
        }
        assert!(!speaker.is_silent(), "{from_hz} Hz: speech waits");
        speaker.set_rate(to_hz);
        assert_eq!(speaker.poll_speech_event(), Some(SpeechEvent::Started));
        packets.extend(run(&mut speaker, &mut &[][..], now, now + Duration::from_secs(1)));
        let turns = [speaker.poll_speech_event(), speaker.poll_speech_event()];
        assert_eq!(turns, [Some(SpeechEvent::Stopped), None], "{from_hz} Hz");
        assert!(speaker.is_finished());
        let step = pacer::PTIME_TICKS * u64::from(codec.clock_hz()) / u64::from(RTP_CLOCK_HZ);
        // The clock jumps by whole packets, once the speech has ended.
        let ticks = packets.windows(2).map(|pair| pair[1].1 - pair[0].1);
        assert!(ticks.clone().take(14).all(|ticks| ticks == step), "{from_hz} Hz");
        assert!(
            ticks.clone().all(|ticks| ticks > 0 && ticks % step == 0),
            "{from_hz} Hz"
        );
        let mut decoder = AudioDecoder::new(codec, 16_000).unwrap();
        let decoded: Vec<i16> = packets
            .iter()
            .flat_map(|(packet, _)| decoder.decode(packet).unwrap().to_vec())
            .collect();
        // libopus rings below that where its encoder begins anew.
        let is_loud = |sample: &i16| sample.unsigned_abs() > 5_000;
        let first = decoded.iter().position(is_loud).unwrap();
        let last = decoded.iter().rposition(is_loud).unwrap();
        let spoken = last - first;
        assert!(
            spoken.abs_diff(4_800) < 200,
            "{codec} {from_hz} Hz: 300 ms lasted {spoken} samples of 4,800"
        );
    }
}

/// A client that reconnects with another codec receives that codec, at the elapsed time.
#[test]
fn a_new_codec_keeps_the_clock_and_ends_the_speech() {
    let start = Instant::now();
    let mut speaker = AudioSender::new(Codec::Opus, false, EncoderSettings::default());
    speaker.set_rate(24_000);
    speaker.start(start);
    let pcm = vec![5_000; 24_000];
    let until = start + Duration::from_millis(95);
    let opus = run(&mut speaker, &mut &pcm[..], start, until);
    let (_, ticks) = *opus.last().unwrap();
    speaker.set_codec(Codec::G711(Law::A), until);
    let pcma = run(&mut speaker, &mut &[][..], until, until + Duration::from_millis(95));
    assert_eq!(pcma[0].1, (ticks + pacer::PTIME_TICKS) / 6);
    assert!(pcma.windows(2).all(|pair| pair[1].1 == pair[0].1 + 160));
    assert!(pcma.iter().all(|(packet, _)| *packet == [0xd5; 160]));
    let turns = [
        speaker.poll_speech_event(),
        speaker.poll_speech_event(),
        speaker.poll_speech_event(),
    ];
    assert_eq!(turns, [Some(SpeechEvent::Started), Some(SpeechEvent::Stopped), None]);
    assert_eq!(speaker.counters().frames, (opus.len() + pcma.len()) as u64);
}

#[test]
fn an_interruption_drops_all_queued_speech() {
    for rate_hz in [16_000, 44_100] {
        let start = Instant::now();
        let mut speaker = AudioSender::new(Codec::Opus, false, EncoderSettings::default());
        speaker.set_rate(rate_hz);
        speaker.start(start);
        let pcm: Vec<i16> = (0..rate_hz).map(|n| if n % 40 < 20 { 9_000 } else { -9_000 }).collect();
        let until = start + Duration::from_millis(300);
        run(&mut speaker, &mut &pcm[..], start, until);
        speaker.handle_interruption(until);
        assert!(speaker.is_silent());
        let reported = [speaker.poll_speech_event(), speaker.poll_speech_event()];
        assert_eq!(reported, [Some(SpeechEvent::Started), None]);
        assert!(!speaker.is_finished(), "the end of the speech is not reported");
        let rest = speaker.converter.convert(&[0; 500]);
        assert!(rest.iter().all(|sample| *sample == 0), "nothing in the filter either");
        speaker.poll_packet(until);
        assert_eq!(speaker.poll_speech_event(), Some(SpeechEvent::Stopped));
        assert!(speaker.is_finished());
    }
}

#[test]
fn a_device_receives_nothing_above_its_band() {
    let start = Instant::now();
    let pcm: Vec<i16> = (0..24_000_i32)
        .map(|n| ((n * 7_919) % 20_000 - 10_000) as i16)
        .collect();
    // To afford copies of packets, libopus begins in a narrower band, and leaves it in a pause.
    let settings = EncoderSettings {
        expected_loss_percent: 0,
        ..Default::default()
    };
    for device in [false, true] {
        let mut speaker = AudioSender::new(Codec::Opus, device, settings);
        speaker.set_rate(24_000);
        speaker.start(start);
        let packets = run(&mut speaker, &mut &pcm[..], start, start + Duration::from_millis(900));
        // Configurations 12 and up are hybrid and CELT (RFC 6716 table 2).
        let beyond = packets.iter().filter(|(packet, _)| packet[0] >> 3 >= 12).count();
        assert_eq!(beyond > 0, !device);
    }
}

/// The configured settings apply from the first packet on, and at a new rate as well.
#[test]
fn the_encoder_uses_the_configured_complexity() {
    let start = Instant::now();
    let said = |complexity, rate_hz: u32| {
        let voice = EncoderSettings {
            complexity,
            ..EncoderSettings::default()
        };
        let mut speaker = AudioSender::new(Codec::Opus, false, voice);
        speaker.set_rate(rate_hz);
        speaker.start(start);
        let pcm: Vec<i16> = (0..rate_hz as i32)
            .map(|n| ((n * n % 20_011) - 10_000) as i16)
            .collect();
        run(&mut speaker, &mut &pcm[..], start, start + Duration::from_millis(900))
    };
    for rate_hz in [16_000, 24_000] {
        assert_ne!(said(0, rate_hz), said(10, rate_hz), "{rate_hz} Hz");
        assert_eq!(said(10, rate_hz), said(10, rate_hz), "{rate_hz} Hz");
    }
}
