//! Audio in both directions.

use std::time::Duration;

use opus_pure::{Application, OpusEncoder};

use super::super::*;
use super::caller::CATALOG;
use super::world::World;
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
fn with_catalog(mode: MoqSessionMode) -> World {
    let mut world = World::connected(mode);
    let now = world.now;
    world.caller.write(world.caller.catalog_track, CATALOG.as_bytes(), now);
    world.run_until(|world| world.caller.noted("audio requested").is_some());
    world
}

fn say(world: &mut World, hz: f64, seconds: usize) {
    world.bot.queue.extend(Tone::new(hz, 24_000).take(24_000 * seconds));
}

#[test]
fn both_ends_hear_each_other() {
    for mode in BOTH {
        let mut world = with_catalog(mode);
        let now = world.now;
        world.caller.speak(440.0, now);
        say(&mut world, 700.0, 2);
        let from = world.caller.heard.len();
        world.run(secs(2));
        let received = &world.bot.pcm;
        assert!((98..=100).contains(&world.bot.frames), "{} frames", world.bot.frames);
        assert!(share(&received[received.len() / 2..], 440.0, 16_000) > 0.9, "{mode:?}");
        let heard = world.caller.pcm(from);
        assert!(share(&heard[heard.len() / 2..], 700.0, 16_000) > 0.9, "{mode:?}");
        let packets_per_group = match mode {
            MoqSessionMode::Serve => 1,
            MoqSessionMode::Dial => RELAYED_PACKETS_PER_GROUP,
        };
        for group in world.caller.heard.chunk_by(|one, next| one.group == next.group).skip(1) {
            assert!(group.len() <= packets_per_group);
        }
        for two in world.caller.heard.windows(2) {
            assert!(two[1].group - two[0].group <= 1, "no sequence is skipped");
            assert_eq!(two[1].timestamp_us, two[0].timestamp_us + 20_000);
        }
        assert_eq!(world.caller.catalogs, [BOT_CATALOG], "written once");
        assert_eq!(world.times(&SessionEvent::Joined).len(), 1);
        assert_eq!(world.times(&SessionEvent::SpeechStarted).len(), 1);
        assert_eq!(world.is_ready, mode == MoqSessionMode::Dial);
        let counters = world.session.audio_receiver.stats().counters;
        assert_eq!((counters.lost, counters.late), (0, 0));
    }
}

/// The bot's first words wait for the caller's subscription.
#[test]
fn a_greeting_is_not_lost() {
    let mut world = World::new(MoqSessionMode::Serve);
    say(&mut world, 700.0, 1);
    world.latency = ms(150);
    world.connect();
    let joined = world.times(&SessionEvent::Joined)[0];
    world.run(secs(2));
    let first = &world.caller.heard[0];
    assert_eq!(first.group, 0);
    assert!(
        first.at > joined + ms(300) && first.at < joined + ms(700),
        "{:?}",
        first.at
    );
    let heard = world.caller.pcm(0);
    assert!(share(&heard[320..16_000], 700.0, 16_000) > 0.9);
}

#[test]
fn an_echo_survives_loss_and_reordering() {
    for mode in BOTH {
        let mut world = with_catalog(mode);
        (world.latency, world.jitter, world.loss_percent) = (ms(30), ms(25), 5);
        world.bot.echoes = true;
        let now = world.now;
        world.caller.speak(440.0, now);
        let from = world.caller.heard.len();
        world.run(secs(12));
        let received = &world.bot.pcm;
        let expected = 12 * 16_000;
        assert!(received.len() > expected * 97 / 100, "{} of {expected}", received.len());
        for second in received.chunks_exact(16_000).skip(1) {
            assert!(share(second, 440.0, 16_000) > 0.7, "{}", share(second, 440.0, 16_000));
        }
        let heard = world.caller.pcm(from);
        assert!(heard.len() > expected * 95 / 100, "{} of {expected}", heard.len());
        assert!(share(&heard[32_000..], 440.0, 16_000) > 0.6);
        assert_eq!(world.left(), None);
    }
}

#[test]
fn an_interruption_drops_what_is_unsent() {
    let mut world = with_catalog(MoqSessionMode::Serve);
    say(&mut world, 700.0, 5);
    world.run(secs(1));
    world.bot.queue.clear();
    world.session.handle_interruption(world.now);
    let from = world.caller.heard.len();
    let last_us = world.caller.heard[from - 1].timestamp_us;
    world.run(secs(1));
    let heard = world.caller.pcm(from);
    assert!(share(&heard[1_600..], 700.0, 16_000) < 0.1, "silence within 100 ms");
    assert_eq!(world.times(&SessionEvent::SpeechStopped).len(), 1);
    say(&mut world, 700.0, 1);
    world.run(secs(1));
    let times = world.caller.heard[from..].iter().map(|packet| packet.timestamp_us);
    assert!(times.clone().min() > Some(last_us), "the clock goes on");
    assert!(times.clone().max() < Some(last_us + 2_200_000));
}

/// Of speech that a blocked network holds, only the groups in flight arrive after an interruption.
#[test]
fn an_interruption_drops_what_waits_for_the_network() {
    let mut world = with_catalog(MoqSessionMode::Serve);
    say(&mut world, 700.0, 5);
    world.run(secs(1));
    world.is_cut = true;
    world.run(secs(1));
    let from = world.caller.heard.len();
    world.bot.queue.clear();
    world.session.handle_interruption(world.now);
    world.is_cut = false;
    world.run(secs(2));
    let heard = world.caller.pcm(from);
    let loud = heard.iter().filter(|sample| sample.unsigned_abs() > 1_000).count();
    let in_flight = LIVE_FRAMES_MAX * 320;
    assert!(loud <= in_flight, "{loud} samples of the dropped speech");
}

/// Pipecat's encoder flushes its last packets into one group; other publishers write longer groups.
#[test]
fn groups_of_several_frames_are_played_in_order() {
    let mut world = with_catalog(MoqSessionMode::Serve);
    world.loss_percent = 3;
    world.jitter = ms(10);
    let mut encoder = crate::audio::opus::Encoder::new(24_000, EncoderSettings::default()).unwrap();
    let mut tone = Tone::new(440.0, 24_000);
    let track = world.caller.long_track;
    let catalog = CATALOG.replace("audio/data", "audio/long");
    world
        .caller
        .write(world.caller.catalog_track, catalog.as_bytes(), world.now);
    world.run(ms(100));
    for n in 0..100_u64 {
        let mut out = [0; 400];
        let length = encoder.encode(&tone.take(480), &mut out).unwrap();
        let mut frame = Vec::new();
        write_media_frame(n * 20_000, &out[..length], &mut frame);
        let now = world.now;
        world.caller.write(track, &frame, now);
        world.run(ms(20));
    }
    world.run(ms(300));
    assert!((99..=101).contains(&world.bot.frames), "{} frames", world.bot.frames);
    let received = &world.bot.pcm;
    assert!(share(&received[received.len() / 4..], 440.0, 16_000) > 0.9);
    assert_eq!(world.session.audio_receiver.stats().counters.lost, 0);
}

#[test]
fn a_stereo_caller_is_heard() {
    let mut world = with_catalog(MoqSessionMode::Serve);
    let catalog = CATALOG.replace("\"numberOfChannels\":1", "\"numberOfChannels\":2");
    world
        .caller
        .write(world.caller.catalog_track, catalog.as_bytes(), world.now);
    let mut encoder = OpusEncoder::new(48_000, 2, Application::Voip).unwrap();
    let mut tone = Tone::new(440.0, 48_000);
    for n in 0..50_u64 {
        let pcm: Vec<i16> = tone.take(960).into_iter().flat_map(|sample| [sample, sample]).collect();
        let mut out = [0; 1_200];
        let length = encoder.encode_s16(&pcm, 960, &mut out).unwrap();
        assert!(out[0] & 0x04 != 0, "the stereo bit of the packet");
        let mut frame = Vec::new();
        write_media_frame(n * 20_000, &out[..length], &mut frame);
        world.caller.write(world.caller.audio_track, &frame, world.now);
        world.run(ms(20));
    }
    assert_eq!(world.bot.frames, 50);
    assert!(share(&world.bot.pcm[8_000..], 440.0, 16_000) > 0.9);
}

/// The catalog may be empty, change, and be bad in between.
#[test]
fn the_audio_follows_the_catalog() {
    let mut world = World::connected(MoqSessionMode::Serve);
    let now = world.now;
    world.caller.speak(440.0, now);
    let track = world.caller.catalog_track;
    for bad in [
        &b"{}"[..],
        b"[]",
        b"{\"audio\":",
        br#"{"audio":{"renditions":{"x":{"codec":"mp4a.40.2"}}}}"#,
    ] {
        world.caller.write(track, bad, world.now);
        world.run(ms(300));
        assert_eq!(world.bot.frames, 0);
    }
    assert!(world.session.diagnosis().unwrap().contains("mp4a.40.2"));
    world.caller.write(track, CATALOG.as_bytes(), world.now);
    world.run(secs(1));
    let first = world.bot.frames;
    assert!((44..=50).contains(&first), "{first}");
    world.caller.write(track, b"not JSON", world.now);
    world.run(secs(1));
    assert!(world.bot.frames >= first + 49, "a bad catalog changes nothing");
    world.caller.write(track, b"{}", world.now);
    world.run(ms(100));
    let muted = world.bot.frames;
    world.run(secs(1));
    assert_eq!(world.bot.frames, muted);
    world.caller.write(track, CATALOG.as_bytes(), world.now);
    world.run(secs(1));
    assert!(world.bot.frames > muted + 40);
    assert_eq!((world.left(), world.session.diagnosis()), (None, None));
}

/// A catalog may be patched, but not without end: the caller is told why the session ends.
#[test]
fn endless_patches_end_the_session() {
    let mut world = World::new(MoqSessionMode::Serve);
    world.patch_catalog();
    world.connect();
    let track = world.caller.catalog_track;
    let now = world.now;
    world.caller.speak(440.0, now);
    world.caller.write(track, CATALOG.as_bytes(), now);
    for n in 0..CATALOG_PATCHES_MAX {
        world
            .caller
            .write(track, format!("{{\"clock\":{n}}}").as_bytes(), world.now);
    }
    world.run(secs(1));
    assert_eq!(world.left(), None);
    assert!(world.bot.frames > 40, "{}", world.bot.frames);
    world.caller.write(track, b"{\"clock\":0}", world.now);
    world.run(secs(1));
    assert_eq!(world.left(), Some(LeaveReason::Protocol));
    let Some(LinkClosed::ByPeer { code, reason }) = &world.caller.closed else {
        panic!("{:?}", world.caller.closed);
    };
    assert_eq!((*code, &**reason), (15, "catalog: more than 256 patches in one group"));
}

/// Packets that make no sense are counted and ignored.
#[test]
fn bad_audio_is_ignored() {
    let mut world = with_catalog(MoqSessionMode::Serve);
    let track = world.caller.audio_track;
    for bad in [&b""[..], b"\x05", b"\xc0", &[0xff; 2_000], b"\x05\xff\xff\xff\xff"] {
        world.caller.write(track, bad, world.now);
        world.run(ms(50));
    }
    let now = world.now;
    world.caller.speak(440.0, now);
    world.run(secs(2));
    assert!(world.bot.frames > 90, "{}", world.bot.frames);
    assert_eq!(world.left(), None);
}
