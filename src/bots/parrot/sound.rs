//! The parrot's greeting, and the level of a sound.
//!
//! Out: `i16` mono PCM at a given rate, and levels from 0 (silence) to 1 (full scale). A level is
//! the RMS value on a scale of 60 dB, as meters show it: speech lies in its upper half.

use std::f32::consts::TAU;

/// Two notes, E5 and A5, in Hz.
const NOTES_HZ: [f32; 2] = [659.3, 880.0];
/// The duration of a note in milliseconds.
const NOTE_MS: u32 = 150;
/// The amplitude: 22 dB below full scale.
const HEIGHT: f32 = 2_600.0;
/// The lower end of a meter, in dB below full scale.
const FLOOR_DB: f32 = 60.0;

/// Returns the greeting: 300 ms of two rising notes, with no click at either end.
pub fn chime(rate_hz: u32) -> Vec<i16> {
    let note = rate_hz * NOTE_MS / 1000;
    let wave = |frequency_hz: f32, at: u32| {
        let place = at as f32 / note as f32;
        // A fast attack and a slow decay, from silence to silence.
        let shape = (place * 12.0).min(1.0) * (1.0 - place).powi(2);
        let phase = TAU * frequency_hz * at as f32 / rate_hz as f32;
        (HEIGHT * shape * phase.sin()) as i16
    };
    NOTES_HZ
        .iter()
        .flat_map(|frequency_hz| (0..note).map(|at| wave(*frequency_hz, at)))
        .collect()
}

/// Returns the level of a sound, 0 to 1. No samples are silence.
pub fn level(pcm: &[i16]) -> f32 {
    if pcm.is_empty() {
        return 0.0;
    }
    let energy: u64 = pcm.iter().map(|sample| u64::from(sample.unsigned_abs()).pow(2)).sum();
    let effective = (energy as f64 / pcm.len() as f64).sqrt() / 32_768.0;
    let db = 20.0 * (effective as f32).log10();
    (1.0 + db / FLOOR_DB).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chime_is_short_and_quiet_and_begins_and_ends_in_silence() {
        for rate_hz in [8_000, 16_000, 48_000] {
            let chime = chime(rate_hz);
            assert_eq!(chime.len() as u32, rate_hz * 300 / 1000);
            let loudest = chime.iter().map(|sample| sample.unsigned_abs()).max();
            assert!(
                loudest.is_some_and(|loudest| (1_000..=2_600).contains(&loudest)),
                "{loudest:?}"
            );
            assert_eq!(chime[0], 0);
            let ends = [&chime[chime.len() - 8..], &chime[chime.len() / 2 - 8..chime.len() / 2]];
            assert!(ends.concat().iter().all(|sample| sample.abs() <= 64), "{ends:?}");
        }
    }

    /// The number of zero crossings gives the pitch.
    #[test]
    fn the_second_note_is_higher() {
        let chime = chime(16_000);
        let crossings = |note: &[i16]| note.windows(2).filter(|pair| (pair[0] < 0) != (pair[1] < 0)).count();
        let (first, second) = chime.split_at(chime.len() / 2);
        let pitch_hz = |note: &[i16]| crossings(note) as f32 / 2.0 / 0.15;
        assert!((pitch_hz(first) - 659.0).abs() < 30.0, "{}", pitch_hz(first));
        assert!((pitch_hz(second) - 880.0).abs() < 40.0, "{}", pitch_hz(second));
    }

    #[test]
    fn levels_range_from_silence_to_full_scale() {
        assert_eq!(level(&[]), 0.0);
        assert_eq!(level(&[0; 320]), 0.0);
        assert_eq!(level(&[10; 320]), 0.0, "below the meter's lower end");
        assert_eq!(level(&[i16::MIN; 320]), 1.0);
        // A tenth of full scale is -20 dB, a third of the meter below its top.
        assert!((level(&[3_277; 320]) - 2.0 / 3.0).abs() < 0.001);
    }
}
