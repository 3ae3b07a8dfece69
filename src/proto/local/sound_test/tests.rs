//! Recordings of microphones that work, are muted, faint or too loud, and commands that fail.

use std::f64::consts::TAU;
use std::time::Instant;

use super::*;
use crate::audio::tone::share;
use crate::local::config::AudioBackEnd;
use crate::local::direction::AudioDirection;
use crate::local::listing::{CardAccess, cards};

fn device(rate_hz: u32, channels: u16) -> AudioDevice {
    AudioDevice {
        back_end: AudioBackEnd::Command(vec!["arecord".to_owned()]),
        default: None,
        rate_hz,
        channels,
    }
}

/// Three seconds of a microphone with one channel.
fn recorded(sample: impl Fn(usize) -> i16) -> Recording {
    let input = device(16_000, 1);
    let bytes: Vec<u8> = (0..48_000).flat_map(|at| sample(at).to_le_bytes()).collect();
    assert_eq!(bytes.len(), recorded_bytes(&input));
    Recording::new(&bytes, &input)
}

fn tone_of(peak: f64) -> impl Fn(usize) -> i16 {
    move |at| (peak * (TAU * 440.0 * at as f64 / 16_000.0).sin()) as i16
}

#[test]
fn the_level_decides_what_is_said() {
    for (recording, state, peak_dbfs) in [
        (recorded(tone_of(8_230.0)), SoundState::Ok, Some(-12.0)),
        (recorded(|_| 0), SoundState::Silent, None),
        // A converter with an offset, muted.
        (recorded(|_| -1_200), SoundState::Silent, None),
        (recorded(|at| (at % 3) as i16 * 10), SoundState::Silent, Some(-70.3)),
        (recorded(tone_of(150.0)), SoundState::Quiet, Some(-46.8)),
        (
            recorded(|at| (tone_of(30_000.0)(at) as i32 * 2).clamp(-32_768, 32_767) as i16),
            SoundState::Clipped,
            Some(0.0),
        ),
        // The click of a card that is opened, and a muted microphone behind it.
        (
            recorded(|at| if at < 2_000 { i16::MAX } else { 0 }),
            SoundState::Silent,
            None,
        ),
        // A single peak just fits.
        (
            recorded(|at| if at == 9_000 { i16::MAX } else { tone_of(8_000.0)(at) }),
            SoundState::Ok,
            Some(0.0),
        ),
    ] {
        let report = recording.report();
        assert_eq!((report.state, report.peak_dbfs), (state, peak_dbfs), "{report:?}");
        assert_eq!(report.text.contains("dBFS"), peak_dbfs.is_some(), "{report:?}");
    }
    let json = serde_json::to_value(recorded(tone_of(8_230.0)).report()).expect("it has a form");
    assert_eq!((&json["state"], &json["peak_dbfs"]), (&"ok".into(), &(-12.0).into()));
    let short = Recording::new(&[1, 2, 3], &device(16_000, 1)).report();
    assert_eq!(short.state, SoundState::Silent);
}

#[test]
fn what_was_recorded_is_played_in_the_form_of_the_loudspeaker() {
    let input = device(48_000, 2);
    // The second channel has something else.
    let frames = (0..144_000).flat_map(|at| [tone_of(8_000.0)(at / 3), 77]);
    let bytes: Vec<u8> = frames.flat_map(i16::to_le_bytes).collect();
    assert_eq!(bytes.len(), recorded_bytes(&input));
    let recording = Recording::new(&bytes, &input);
    let output = device(22_050, 2);
    let played = recording.playback(&output, 1.0);
    let pcm: Vec<i16> = played
        .chunks_exact(4)
        .map(|frame| {
            assert_eq!(frame[..2], frame[2..], "both channels have the same sound");
            i16::from_le_bytes([frame[0], frame[1]])
        })
        .collect();
    let seconds = pcm.len() as f64 / 22_050.0;
    assert!((2.9..=3.0).contains(&seconds), "{seconds}");
    assert!(share(&pcm[..22_050], 440.0, 22_050) > 0.9);
    let peak = |bytes: &[u8]| {
        let samples = bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
        samples.map(i16::unsigned_abs).max().unwrap_or_default()
    };
    assert!(peak(&recording.playback(&output, 0.25)) < 2_200);
    let tone = tone(&output, 1.0);
    assert_eq!(tone.len(), (0.4 * 22_050.0) as usize * 4);
    assert!((2_000..=3_000).contains(&peak(&tone)));
}

/// All steps, and the time in which the card is lent, end within ten seconds.
#[test]
fn the_test_ends_in_time() {
    let steps = TONE_WITHIN + RECORDED_WITHIN + PLAYED_WITHIN;
    assert!(steps <= Duration::from_millis(9_500), "{steps:?}");
}

#[test]
fn a_command_that_fails_is_explained_on_the_page() {
    let text = |direction, failure: CommandFailure, line: &str| {
        let mut supervision = Supervision::new(direction, "arecord");
        supervision.handle_started(Instant::now());
        supervision.handle_line(line, Instant::now());
        let report = SoundReport::of_failure(&supervision, &failure);
        assert_eq!((report.state, report.peak_dbfs), (SoundState::Failed, None));
        report.text
    };
    let ended = || CommandFailure::Ended("exit status: 1".to_owned());
    for (line, words) in [
        (
            "arecord: main:831: audio open error: Device or resource busy",
            "Another program uses the microphone",
        ),
        (
            "arecord: main:831: audio open error: No such file or directory",
            "There is no such microphone",
        ),
        ("arecord: pcm_read:2221: read error: No such device", "was unplugged"),
        ("audio open error: Permission denied", "the group audio"),
        ("audio open error: Host is down", "a sound server"),
        (
            "arecord: set_params:1343: Channels count non available",
            "Channels count non available",
        ),
    ] {
        let text = text(AudioDirection::In, ended(), line);
        assert!(text.contains(words), "{text}");
    }
    let missing = text(AudioDirection::Out, CommandFailure::NotFound, "");
    assert!(
        missing.contains("loudspeaker") && missing.contains("alsa-utils"),
        "{missing}"
    );
    let hung = text(AudioDirection::In, CommandFailure::Hung, "");
    assert!(hung.contains("moves no audio"), "{hung}");
}

/// Without ALSA's programs the runner opens a card itself; with them, the default device may be
/// that of a sound server, which no card shows.
#[test]
fn a_board_is_tested_by_what_it_has() {
    let text = " 2 [USB            ]: USB-Audio - Jabra SPEAK 510 USB\n";
    let listed = cards(text, "02-00: USB Audio : USB Audio : playback 1 : capture 1\n", |_| {
        CardAccess::Allowed
    });
    for (cards, has_program, name) in [
        (&listed[..], true, "plughw:CARD=USB,DEV=0"),
        (&listed, false, "kernel:CARD=USB,DEV=0"),
        (&[], true, "default"),
    ] {
        for direction in [AudioDirection::In, AudioDirection::Out] {
            let found = BoardDevice::of(cards, direction, has_program).expect("a device");
            assert_eq!(found.name, name);
            match found.device.back_end {
                AudioBackEnd::Command(words) => assert_eq!((&*words[0], &*words[3]), (direction.alsa_program(), name)),
                AudioBackEnd::Kernel(card) => assert_eq!(card.to_string(), name),
            }
        }
    }
    let none = BoardDevice::of(&[], AudioDirection::In, false).expect_err("neither card nor program");
    assert_eq!((none.state, none.peak_dbfs), (SoundState::Failed, None));
    let says =
        "There is no such microphone, or it was unplugged. Plug one in, such as a USB speakerphone, and test again.";
    assert_eq!(none.text, says);
}
