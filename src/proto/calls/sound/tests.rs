//! Tests of the mix of both sides.

use super::*;
use crate::kit::Wav;

const RATE: u32 = 8_000;
const MS: Duration = Duration::from_millis(1);
/// Samples of a millisecond.
const PER_MS: usize = 8;

/// Returns the samples of each channel.
fn channels(bytes: &[u8]) -> [Vec<i16>; 2] {
    let of = |channel: usize| {
        let frames = bytes.chunks_exact(4);
        let samples = frames.map(|frame| i16::from_le_bytes([frame[2 * channel], frame[2 * channel + 1]]));
        samples.collect()
    };
    [of(0), of(1)]
}

fn finished(mut sound: CallSound, at: Duration) -> [Vec<i16>; 2] {
    let mut bytes = Vec::new();
    sound.finish(at, &mut bytes);
    channels(&bytes)
}

/// Returns the milliseconds in which a channel is not silent.
fn loud(samples: &[i16]) -> Vec<usize> {
    let ms = samples.chunks(PER_MS).enumerate();
    ms.filter(|(_, part)| part.iter().any(|sample| *sample != 0))
        .map(|(ms, _)| ms)
        .collect()
}

fn frame(sample: i16, ms: usize) -> Vec<i16> {
    vec![sample; ms * PER_MS]
}

/// A caller's frame ends when it comes, and the bot's speech begins then: they are apart by
/// what they were apart.
#[test]
fn both_sides_are_placed_by_one_clock() {
    let mut sound = CallSound::new(RATE);
    sound.add_caller(&frame(7, 20), RATE, None, 500 * MS);
    sound.add_bot(&frame(9, 20), RATE, 500 * MS);
    let [caller, bot] = finished(sound, 1000 * MS);
    assert_eq!((caller.len(), bot.len()), (1000 * PER_MS, 1000 * PER_MS));
    assert_eq!(loud(&caller), (480..500).collect::<Vec<_>>());
    assert_eq!(loud(&bot), (500..520).collect::<Vec<_>>());
}

/// Jitter leaves no gap, and a pause does.
#[test]
fn frames_of_a_caller_follow_each_other() {
    let mut sound = CallSound::new(RATE);
    for (nth, late) in [0, 60, 45, 30, 70].into_iter().enumerate() {
        sound.add_caller(&frame(7, 20), RATE, None, (100 + 20 * nth as u32 + late) * MS);
    }
    sound.add_caller(&frame(7, 20), RATE, None, 700 * MS);
    let [caller, _] = finished(sound, 1000 * MS);
    assert_eq!(loud(&caller), (80..180).chain(680..700).collect::<Vec<_>>());
}

/// A packet of discontinuous transmission brings the silence before it at once. Speech after it has
/// its own time.
#[test]
fn silence_that_comes_at_once_moves_no_speech() {
    let mut sound = CallSound::new(RATE);
    sound.add_caller(&frame(7, 20), RATE, None, 100 * MS);
    for _ in 0..20 {
        sound.add_caller(&frame(0, 20), RATE, None, 500 * MS);
    }
    sound.add_caller(&frame(7, 20), RATE, None, 700 * MS);
    let [caller, _] = finished(sound, 1000 * MS);
    assert_eq!(loud(&caller), (80..100).chain(680..700).collect::<Vec<_>>());
}

/// The session takes speech ahead of its time; an interruption removes what was not played, and
/// what follows begins at once.
#[test]
fn an_interruption_removes_what_was_not_played() {
    let mut sound = CallSound::new(RATE);
    for _ in 0..5 {
        sound.add_bot(&frame(9, 20), RATE, 100 * MS);
    }
    sound.interrupt(150 * MS);
    sound.add_bot(&frame(5, 10), RATE, 160 * MS);
    let [_, bot] = finished(sound, 300 * MS);
    assert_eq!(loud(&bot), (100..150).chain(160..170).collect::<Vec<_>>());
    assert_eq!(bot[165 * PER_MS], 5);
}

/// What the bot would have said after the end was not played.
#[test]
fn the_sound_ends_with_the_call() {
    let mut sound = CallSound::new(RATE);
    sound.add_bot(&frame(9, 500), RATE, 100 * MS);
    let mut bytes = Vec::new();
    sound.take(1200 * MS, &mut bytes);
    assert_eq!(sound.length(), 200 * MS);
    sound.finish(300 * MS, &mut bytes);
    assert_eq!((sound.length(), bytes.len()), (300 * MS, 300 * PER_MS * 4));
    let [_, bot] = channels(&bytes);
    assert_eq!(loud(&bot), (100..300).collect::<Vec<_>>());
}

/// Keys cannot be recognized by their sound, and the bot goes on.
#[test]
fn a_caller_is_silent_around_a_key() {
    let mut sound = CallSound::new(RATE);
    for nth in 1..=100 {
        sound.add_caller(&frame(7, 20), RATE, None, 20 * nth * MS);
        sound.add_bot(&frame(9, 20), RATE, 20 * nth * MS);
        if nth == 50 {
            sound.press_key(1000 * MS);
        }
    }
    let [caller, bot] = finished(sound, 2000 * MS);
    assert_eq!(loud(&caller), (0..200).chain(1300..2000).collect::<Vec<_>>());
    assert_eq!(loud(&bot), (20..2000).collect::<Vec<_>>());
}

/// Callers that are received apart are mixed, up to a number of them.
#[test]
fn several_callers_are_mixed() {
    let mut sound = CallSound::new(RATE);
    for nth in 0..=CALLERS_MAX {
        let identity = Arc::from(nth.to_string());
        sound.add_caller(&frame(3, 20), RATE, Some(&identity), 20 * MS);
    }
    sound.add_caller(&frame(i16::MAX, 20), RATE, Some(&Arc::from("0")), 40 * MS);
    sound.add_caller(&frame(i16::MAX, 20), RATE, Some(&Arc::from("1")), 40 * MS);
    let [caller, _] = finished(sound, 40 * MS);
    assert_eq!((caller[0], caller[30 * PER_MS]), (3 * CALLERS_MAX as i16, i16::MAX));
}

#[test]
fn other_rates_are_converted() {
    let mut sound = CallSound::new(RATE);
    for nth in 1..=50 {
        sound.add_caller(&[1000; 480], 24_000, None, 20 * nth * MS);
        sound.add_bot(&[1000; 320], 16_000, 20 * nth * MS);
    }
    sound.add_bot(&[1000; 320], 0, 1000 * MS);
    let [caller, bot] = finished(sound, 1000 * MS);
    for (channel, at) in [(&caller, 500), (&caller, 900), (&bot, 500), (&bot, 900)] {
        assert!((900..1100).contains(&channel[at * PER_MS]), "{}", channel[at * PER_MS]);
    }
}

/// Whatever comes, memory and the file are bounded by the time.
#[test]
fn speech_far_ahead_is_left_out() {
    let mut sound = CallSound::new(RATE);
    for _ in 0..1000 {
        sound.add_bot(&frame(9, 100), RATE, Duration::ZERO);
        sound.add_caller(&frame(9, 100), RATE, None, Duration::ZERO);
    }
    assert!(sound.open.len() <= 11_000 * PER_MS, "{}", sound.open.len());
}

/// A file that a power cut left at any byte becomes one that can be read, without half a
/// moment.
#[test]
fn a_file_that_was_cut_is_repaired() {
    let whole = [&head(RATE, 40)[..], &[1; 40]].concat();
    let wav = Wav::read(&whole).expect("a WAV file");
    assert_eq!((wav.rate_hz, wav.pcm.len()), (RATE, 10));
    for bytes in 0..=whole.len() {
        // The head has no length until the call is over.
        let cut = &[&head(RATE, 0)[..], &[1; 40]].concat()[..bytes];
        match repaired(cut, bytes as u64) {
            Some((head, length)) => {
                let file = [&head[..], &cut[44..length as usize]].concat();
                let wav = Wav::read(&file).expect("a WAV file");
                assert_eq!(wav.pcm.len(), (bytes - 44) / 4);
            }
            None => assert!(bytes < 48, "{bytes}"),
        }
    }
    assert_eq!(repaired(&[0; 100], 100), None);
    // What a power cut may leave of a head.
    let whole = head(RATE, 0);
    for (at, bytes) in [(24, u32::MAX), (24, 0), (24, 1 << 30), (8, 0), (20, 7)] {
        let mut begin = whole;
        begin[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
        assert_eq!(repaired(&begin, 1_000), None, "{bytes} at {at}");
    }
    let longest = u64::from(u32::MAX);
    for bytes in [longest - 44, longest - 1, longest, longest + 1] {
        assert_eq!(head(RATE, bytes)[40..], (u32::MAX - 44).to_le_bytes(), "{bytes}");
    }
}
