//! Tones: single notes, two frequencies at once, and the tones of a telephone's keys.
//!
//! Source: ITU-T Q.23 for the frequencies of keys.

use std::f32::consts::TAU;
use std::time::Duration;

/// A length and a gap that every receiver of keys accepts.
pub const TONE_LENGTH: Duration = Duration::from_millis(100);
/// The silence between two keys.
pub const TONE_GAP: Duration = Duration::from_millis(100);
/// The peak of a tone, 12 dB below full scale; two frequencies share it.
const PEAK: f32 = 8_000.0;
/// The rise and the fall of a tone, so that it begins and ends without a click.
const FADE: Duration = Duration::from_millis(5);
/// Frequencies of the rows and the columns of the keypad, in hertz.
const ROWS_HZ: [f32; 4] = [697.0, 770.0, 852.0, 941.0];
const COLUMNS_HZ: [f32; 4] = [1_209.0, 1_336.0, 1_477.0, 1_633.0];
const KEYPAD: &str = "123A456B789C*0#D";

/// A sound of one or two frequencies, or silence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToneSegment {
    /// Hertz; 0 is silence.
    pub hz: f32,
    /// A second frequency in hertz; 0 is none.
    pub second_hz: f32,
    /// How long it sounds.
    pub length: Duration,
}

impl ToneSegment {
    /// Returns a tone of one frequency.
    pub fn new(hz: f32, length: Duration) -> Self {
        ToneSegment {
            hz,
            second_hz: 0.0,
            length,
        }
    }

    /// Returns silence.
    pub fn silence(length: Duration) -> Self {
        ToneSegment::new(0.0, length)
    }
}

/// Returns the tone of a key: `0` to `9`, `*`, `#`, and `A` to `D`. `None` for any other character.
pub fn dtmf_tone(key: char) -> Option<ToneSegment> {
    let at = KEYPAD.find(key.to_ascii_uppercase())?;
    Some(ToneSegment {
        hz: ROWS_HZ[at / 4],
        second_hz: COLUMNS_HZ[at % 4],
        length: TONE_LENGTH,
    })
}

/// Returns the samples of tones that follow each other.
///
/// ```
/// use std::time::Duration;
/// # use edge_runner_proto::kit::{ToneSegment, tones};
///
/// let notes = [523.0, 659.0, 784.0].map(|hz| ToneSegment::new(hz, Duration::from_millis(250)));
/// assert_eq!(tones(&notes, 16_000).len(), 12_000);
/// ```
pub fn tones(tones: &[ToneSegment], rate_hz: u32) -> Vec<i16> {
    let samples = |time: Duration| (time.as_secs_f64() * f64::from(rate_hz)).round() as usize;
    let mut pcm = Vec::with_capacity(tones.iter().map(|tone| samples(tone.length)).sum());
    for tone in tones {
        let length = samples(tone.length);
        let fade = samples(FADE).clamp(1, length.max(2) / 2);
        let frequencies = [tone.hz, tone.second_hz];
        let count = frequencies.iter().filter(|hz| **hz > 0.0).count().max(1);
        pcm.extend((0..length).map(|at| {
            let envelope = (at.min(length - 1 - at) as f32 / fade as f32).min(1.0);
            let sine = |hz: &f32| (TAU * (hz * at as f32 / rate_hz as f32).fract()).sin();
            let sum: f32 = frequencies.iter().map(sine).sum();
            (sum * envelope * PEAK / count as f32) as i16
        }));
    }
    pcm
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::tone::share;

    #[test]
    fn keys_have_their_two_frequencies() {
        for (key, low, high) in [
            ('1', 697.0, 1_209.0),
            ('5', 770.0, 1_336.0),
            ('#', 941.0, 1_477.0),
            ('d', 941.0, 1_633.0),
        ] {
            let tone = dtmf_tone(key).expect("a key");
            for rate_hz in [8_000, 16_000, 48_000] {
                let pcm = tones(&[tone], rate_hz);
                assert_eq!(pcm.len(), rate_hz as usize / 10);
                let (low, high) = (share(&pcm, low, rate_hz), share(&pcm, high, rate_hz));
                assert!(low > 0.45 && high > 0.45, "{key} at {rate_hz}: {low}, {high}");
            }
        }
        assert_eq!(dtmf_tone('x'), None);
    }

    #[test]
    fn tones_follow_each_other_without_clicks() {
        let gap = Duration::from_millis(50);
        let pcm = tones(
            &[
                ToneSegment::new(440.0, gap),
                ToneSegment::silence(gap),
                ToneSegment::new(880.0, gap),
            ],
            16_000,
        );
        assert_eq!(pcm.len(), 2_400);
        assert!(share(&pcm[..800], 440.0, 16_000) > 0.9);
        assert!(pcm[800..1_600].iter().all(|sample| *sample == 0));
        assert!(share(&pcm[1_600..], 880.0, 16_000) > 0.9);
        assert_eq!((pcm[0], pcm[799], pcm[1_600], pcm[2_399]), (0, 0, 0, 0));
        let steps = pcm
            .windows(2)
            .map(|pair| (i32::from(pair[1]) - i32::from(pair[0])).abs());
        assert!(steps.max() < Some(3_000));
    }

    #[test]
    fn the_shortest_tones_have_no_samples() {
        assert!(tones(&[], 8_000).is_empty());
        assert!(tones(&[ToneSegment::new(440.0, Duration::ZERO)], 8_000).is_empty());
        assert_eq!(
            tones(&[ToneSegment::new(440.0, Duration::from_micros(125))], 8_000),
            [0_i16]
        );
    }
}
