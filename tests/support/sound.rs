//! Audio for tests: tones and a synthetic voice to send, and measures of the received audio.
//!
//! `i16` mono at [`RATE_HZ`]. A tone is measured by its share of the energy, with Goertzel's
//! algorithm over [`WINDOW`] samples, which does not depend on the level.

use std::f64::consts::TAU;

pub const RATE_HZ: u32 = 16_000;
/// Samples in 20 ms.
pub const FRAME: usize = 320;
/// 100 ms, for a resolution of 10 Hz.
const WINDOW: usize = 1_600;
/// A window below this mean square is silence and is left out.
const SILENCE_POWER: f64 = 100.0;

/// The audio that a test peer sends from its first packet on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speech {
    Silence,
    Tone {
        hz: f64,
    },
    /// A hum with the harmonics and syllables of a voice, between two times in milliseconds.
    Voice {
        from_ms: u32,
        to_ms: u32,
    },
}

impl Speech {
    /// Returns the 20 ms from sample `at`.
    pub fn frame(self, at: usize) -> [i16; FRAME] {
        std::array::from_fn(|i| self.sample(at + i))
    }

    /// Returns the sample `at`.
    pub fn sample(self, at: usize) -> i16 {
        let t = at as f64 / f64::from(RATE_HZ);
        let value = match self {
            Self::Silence => 0.0,
            Self::Tone { hz } => 8_000.0 * (TAU * hz * t).sin(),
            Self::Voice { from_ms, to_ms } => {
                let ms = (t * 1_000.0) as u32;
                if (from_ms..to_ms).contains(&ms) { voice(t) } else { 0.0 }
            }
        };
        value as i16
    }
}

/// A pitch that varies around 140 Hz, with the harmonics strongest at the formants of a vowel, and
/// four syllables per second.
fn voice(t: f64) -> f64 {
    let phase = TAU * (140.0 * t + 2.0 * (TAU * 3.0 * t).sin() / TAU);
    let formants = [(700.0, 110.0, 1.0), (1_200.0, 130.0, 0.5), (2_600.0, 200.0, 0.2)];
    let sum: f64 = (1..=25)
        .map(|n| {
            let hz = 140.0 * f64::from(n);
            let gain: f64 = formants
                .iter()
                .map(|(at, width, gain)| gain / (1.0 + ((hz - at) / width).powi(2)))
                .sum();
            gain * (phase * f64::from(n)).sin()
        })
        .sum();
    let syllable = 0.5 - 0.5 * (TAU * 4.0 * t).cos();
    4_500.0 * sum * syllable
}

/// Returns the share of the energy at `hz`, 0 to 1: the median of all windows that are not silent,
/// or 0 when all are silent.
pub fn tone_share(pcm: &[i16], hz: f64) -> f64 {
    let mut shares: Vec<f64> = pcm
        .chunks_exact(WINDOW)
        .filter(|window| power(window) > SILENCE_POWER)
        .map(|window| goertzel(window, hz) / power(window))
        .collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).copied().unwrap_or(0.0)
}

/// Mean square of the samples.
pub fn power(pcm: &[i16]) -> f64 {
    pcm.iter().map(|&s| f64::from(s).powi(2)).sum::<f64>() / pcm.len().max(1) as f64
}

/// Mean square of the component at `hz`.
fn goertzel(window: &[i16], hz: f64) -> f64 {
    let turn = TAU * hz / f64::from(RATE_HZ);
    let twice_cos = 2.0 * turn.cos();
    let (mut one, mut two) = (0.0, 0.0);
    for &sample in window {
        let next = f64::from(sample) + twice_cos * one - two;
        two = one;
        one = next;
    }
    let energy = one * one + two * two - twice_cos * one * two;
    2.0 * energy / (window.len() as f64).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcm(speech: Speech, frames: usize) -> Vec<i16> {
        (0..frames).flat_map(|n| speech.frame(n * FRAME)).collect()
    }

    #[test]
    fn measures_the_energy_of_a_tone_at_its_frequency() {
        let tone = pcm(Speech::Tone { hz: 440.0 }, 50);
        assert!(tone_share(&tone, 440.0) > 0.99);
        assert!(tone_share(&tone, 900.0) < 0.01);
        assert_eq!(tone_share(&pcm(Speech::Silence, 50), 440.0), 0.0);
    }
}
