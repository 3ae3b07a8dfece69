//! Audio in both directions.

use std::time::Duration;

use opus_pure::{Application, OpusEncoder};

use super::super::*;
use super::caller::CATALOG;
use super::rig::Rig;
use crate::audio::opus::EncoderSettings;
use crate::audio::tone::{Tone, share};
use crate::moq::catalog::{BOT_CATALOG, CATALOG_PATCHES_MAX};
use crate::moq::link::LinkClosed;
use crate::moq::media_frame::write_media_frame;
use crate::moq::peer::LIVE_FRAMES_MAX;

const BOTH: [MoqSessionMode; 2] = [MoqSessionMode::Serve, MoqSessionMode::Dial];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A connected caller with a browser's catalog.
fn with_catalog(mode: MoqSessionMode) -> Rig {
    let mut rig = Rig::connected(mode);
    let now = rig.now;
    rig.caller.write(rig.caller.catalog_track, CATALOG.as_bytes(), now);
    rig.run_until(|rig| rig.caller.noted("audio requested").is_some());
    rig
}

fn say(rig: &mut Rig, hz: f64, seconds: usize) {
    rig.bot.queue.extend(Tone::new(hz, 24_000).take(24_000 * seconds));
}

#[test]
fn both_ends_hear_each_other() {
    for mode in BOTH {
        let mut rig = with_catalog(mode);
        let now = rig.now;
        rig.caller.speak(440.0, now);
        say(&mut rig, 700.0, 2);
        let from = rig.caller.received.len();
        rig.run(secs(2));
        let received = &rig.bot.pcm;
        assert!((98..=100).contains(&rig.bot.frames), "{} frames", rig.bot.frames);
        assert!(share(&received[received.len() / 2..], 440.0, 16_000) > 0.9, "{mode:?}");
        let pcm = rig.caller.pcm(from);
        assert!(share(&pcm[pcm.len() / 2..], 700.0, 16_000) > 0.9, "{mode:?}");
        let packets_per_group = match mode {
            MoqSessionMode::Serve => 1,
            MoqSessionMode::Dial => RELAYED_PACKETS_PER_GROUP,
        };
        for group in rig
            .caller
            .received
            .chunk_by(|one, next| one.group == next.group)
            .skip(1)
        {
            assert!(group.len() <= packets_per_group);
        }
        for two in rig.caller.received.windows(2) {
            assert!(two[1].group - two[0].group <= 1, "no sequence is skipped");
            assert_eq!(two[1].timestamp_us, two[0].timestamp_us + 20_000);
        }
        assert_eq!(rig.caller.catalogs, [BOT_CATALOG], "written once");
        assert_eq!(rig.times(&SessionEvent::Joined).len(), 1);
        assert_eq!(rig.times(&SessionEvent::SpeechStarted).len(), 1);
        assert_eq!(rig.is_ready, mode == MoqSessionMode::Dial);
        let counters = rig.session.audio_receiver.stats().counters;
        assert_eq!((counters.lost, counters.late), (0, 0));
    }
}

/// The bot's first words wait for the caller's subscription.
#[test]
fn a_greeting_is_not_lost() {
    let mut rig = Rig::new(MoqSessionMode::Serve);
    say(&mut rig, 700.0, 1);
    rig.latency = ms(150);
    rig.connect();
    let joined = rig.times(&SessionEvent::Joined)[0];
    rig.run(secs(2));
    let first = &rig.caller.received[0];
    assert_eq!(first.group, 0);
    assert!(
        first.at > joined + ms(300) && first.at < joined + ms(700),
        "{:?}",
        first.at
    );
    let pcm = rig.caller.pcm(0);
    assert!(share(&pcm[320..16_000], 700.0, 16_000) > 0.9);
}

#[test]
fn an_echo_survives_loss_and_reordering() {
    for mode in BOTH {
        let mut rig = with_catalog(mode);
        (rig.latency, rig.jitter, rig.loss_percent) = (ms(30), ms(25), 5);
        rig.bot.echoes = true;
        let now = rig.now;
        rig.caller.speak(440.0, now);
        let from = rig.caller.received.len();
        rig.run(secs(12));
        let received = &rig.bot.pcm;
        let expected = 12 * 16_000;
        assert!(received.len() > expected * 97 / 100, "{} of {expected}", received.len());
        for second in received.chunks_exact(16_000).skip(1) {
            assert!(share(second, 440.0, 16_000) > 0.7, "{}", share(second, 440.0, 16_000));
        }
        let pcm = rig.caller.pcm(from);
        assert!(pcm.len() > expected * 95 / 100, "{} of {expected}", pcm.len());
        assert!(share(&pcm[32_000..], 440.0, 16_000) > 0.6);
        assert_eq!(rig.left(), None);
    }
}

#[test]
fn an_interruption_drops_what_is_unsent() {
    let mut rig = with_catalog(MoqSessionMode::Serve);
    say(&mut rig, 700.0, 5);
    rig.run(secs(1));
    rig.bot.queue.clear();
    rig.session.handle_interruption(rig.now);
    let from = rig.caller.received.len();
    let last_us = rig.caller.received[from - 1].timestamp_us;
    rig.run(secs(1));
    let pcm = rig.caller.pcm(from);
    assert!(share(&pcm[1_600..], 700.0, 16_000) < 0.1, "silence within 100 ms");
    assert_eq!(rig.times(&SessionEvent::SpeechStopped).len(), 1);
    say(&mut rig, 700.0, 1);
    rig.run(secs(1));
    let times = rig.caller.received[from..].iter().map(|packet| packet.timestamp_us);
    assert!(times.clone().min() > Some(last_us), "the clock goes on");
    assert!(times.clone().max() < Some(last_us + 2_200_000));
}

/// Of speech that a blocked network holds, only the groups in flight arrive after an interruption.
#[test]
fn an_interruption_drops_what_waits_for_the_network() {
    let mut rig = with_catalog(MoqSessionMode::Serve);
    say(&mut rig, 700.0, 5);
    rig.run(secs(1));
    rig.is_cut = true;
    rig.run(secs(1));
    let from = rig.caller.received.len();
    rig.bot.queue.clear();
    rig.session.handle_interruption(rig.now);
    rig.is_cut = false;
    rig.run(secs(2));
    let pcm = rig.caller.pcm(from);
    let loud = pcm.iter().filter(|sample| sample.unsigned_abs() > 1_000).count();
    let in_flight = LIVE_FRAMES_MAX * 320;
    assert!(loud <= in_flight, "{loud} samples of the dropped speech");
}

/// Pipecat's encoder flushes its last packets into one group; other publishers write longer groups.
#[test]
fn groups_of_several_frames_are_played_in_order() {
    let mut rig = with_catalog(MoqSessionMode::Serve);
    rig.loss_percent = 3;
    rig.jitter = ms(10);
    let mut encoder = crate::audio::opus::Encoder::new(24_000, EncoderSettings::default()).unwrap();
    let mut tone = Tone::new(440.0, 24_000);
    let track = rig.caller.long_track;
    let catalog = CATALOG.replace("audio/data", "audio/long");
    rig.caller.write(rig.caller.catalog_track, catalog.as_bytes(), rig.now);
    rig.run(ms(100));
    for n in 0..100_u64 {
        let mut out = [0; 400];
        let length = encoder.encode(&tone.take(480), &mut out).unwrap();
        let mut frame = Vec::new();
        write_media_frame(n * 20_000, &out[..length], &mut frame);
        let now = rig.now;
        rig.caller.write(track, &frame, now);
        rig.run(ms(20));
    }
    rig.run(ms(300));
    assert!((99..=101).contains(&rig.bot.frames), "{} frames", rig.bot.frames);
    let received = &rig.bot.pcm;
    assert!(share(&received[received.len() / 4..], 440.0, 16_000) > 0.9);
    assert_eq!(rig.session.audio_receiver.stats().counters.lost, 0);
}

#[test]
fn a_stereo_caller_is_decoded() {
    let mut rig = with_catalog(MoqSessionMode::Serve);
    let catalog = CATALOG.replace("\"numberOfChannels\":1", "\"numberOfChannels\":2");
    rig.caller.write(rig.caller.catalog_track, catalog.as_bytes(), rig.now);
    let mut encoder = OpusEncoder::new(48_000, 2, Application::Voip).unwrap();
    let mut tone = Tone::new(440.0, 48_000);
    for n in 0..50_u64 {
        let pcm: Vec<i16> = tone.take(960).into_iter().flat_map(|sample| [sample, sample]).collect();
        let mut out = [0; 1_200];
        let length = encoder.encode_s16(&pcm, 960, &mut out).unwrap();
        assert!(out[0] & 0x04 != 0, "the stereo bit of the packet");
        let mut frame = Vec::new();
        write_media_frame(n * 20_000, &out[..length], &mut frame);
        rig.caller.write(rig.caller.audio_track, &frame, rig.now);
        rig.run(ms(20));
    }
    assert_eq!(rig.bot.frames, 50);
    assert!(share(&rig.bot.pcm[8_000..], 440.0, 16_000) > 0.9);
}

/// A caller whose catalog does not come is reported once; one whose catalog has no audio is not.
#[test]
fn a_caller_without_a_catalog_is_reported() {
    let mut rig = Rig::connected(MoqSessionMode::Serve);
    let due = rig.session.deaf_at.expect("it is awaited");
    assert!(due > rig.now);
    assert!(rig.session.diagnosis().unwrap().contains("its catalog has not arrived"));
    rig.run_until(|rig| rig.now >= due);
    rig.run(ms(1));
    assert_eq!((rig.session.deaf_at, rig.left()), (None, None));

    let mut rig = Rig::connected(MoqSessionMode::Serve);
    let track = rig.caller.catalog_track;
    rig.caller.write(track, b"{}", rig.now);
    rig.run(ms(300));
    assert_eq!(rig.session.deaf_at, None);
}

/// The catalog may be empty, change, and be bad in between.
#[test]
fn the_audio_follows_the_catalog() {
    let mut rig = Rig::connected(MoqSessionMode::Serve);
    let now = rig.now;
    rig.caller.speak(440.0, now);
    let track = rig.caller.catalog_track;
    for bad in [
        &b"{}"[..],
        b"[]",
        b"{\"audio\":",
        br#"{"audio":{"renditions":{"x":{"codec":"mp4a.40.2"}}}}"#,
    ] {
        rig.caller.write(track, bad, rig.now);
        rig.run(ms(300));
        assert_eq!(rig.bot.frames, 0);
    }
    assert!(rig.session.diagnosis().unwrap().contains("mp4a.40.2"));
    rig.caller.write(track, CATALOG.as_bytes(), rig.now);
    rig.run(secs(1));
    let first = rig.bot.frames;
    assert!((44..=50).contains(&first), "{first}");
    rig.caller.write(track, b"not JSON", rig.now);
    rig.run(secs(1));
    assert!(rig.bot.frames >= first + 49, "a bad catalog changes nothing");
    rig.caller.write(track, b"{}", rig.now);
    rig.run(ms(100));
    let muted = rig.bot.frames;
    rig.run(secs(1));
    assert_eq!(rig.bot.frames, muted);
    rig.caller.write(track, CATALOG.as_bytes(), rig.now);
    rig.run(secs(1));
    assert!(rig.bot.frames > muted + 40);
    assert_eq!((rig.left(), rig.session.diagnosis()), (None, None));
}

/// A catalog may be patched, but not without end: the caller is told why the session ends.
#[test]
fn endless_patches_end_the_session() {
    let mut rig = Rig::new(MoqSessionMode::Serve);
    rig.patch_catalog();
    rig.connect();
    let track = rig.caller.catalog_track;
    let now = rig.now;
    rig.caller.speak(440.0, now);
    rig.caller.write(track, CATALOG.as_bytes(), now);
    for n in 0..CATALOG_PATCHES_MAX {
        rig.caller
            .write(track, format!("{{\"clock\":{n}}}").as_bytes(), rig.now);
    }
    rig.run(secs(1));
    assert_eq!(rig.left(), None);
    assert!(rig.bot.frames > 40, "{}", rig.bot.frames);
    rig.caller.write(track, b"{\"clock\":0}", rig.now);
    rig.run(secs(1));
    assert_eq!(rig.left(), Some(LeaveReason::Protocol));
    let Some(LinkClosed::ByPeer { code, reason }) = &rig.caller.closed else {
        panic!("{:?}", rig.caller.closed);
    };
    assert_eq!((*code, &**reason), (15, "catalog: more than 256 patches in one group"));
}

/// Packets that make no sense are counted and ignored.
#[test]
fn bad_audio_is_ignored() {
    let mut rig = with_catalog(MoqSessionMode::Serve);
    let track = rig.caller.audio_track;
    for bad in [&b""[..], b"\x05", b"\xc0", &[0xff; 2_000], b"\x05\xff\xff\xff\xff"] {
        rig.caller.write(track, bad, rig.now);
        rig.run(ms(50));
    }
    let now = rig.now;
    rig.caller.speak(440.0, now);
    rig.run(secs(2));
    assert!(rig.bot.frames > 90, "{}", rig.bot.frames);
    assert_eq!(rig.left(), None);
}
