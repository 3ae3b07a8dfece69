//! Generates and detects tones, for tests.

use std::f64::consts::TAU;

/// A sine at a quarter of full scale.
pub struct Tone {
    pub hz: f64,
    pub rate_hz: u32,
    at: u64,
}

impl Tone {
    pub fn new(hz: f64, rate_hz: u32) -> Self {
        Tone { hz, rate_hz, at: 0 }
    }

    pub fn take(&mut self, samples: usize) -> Vec<i16> {
        let from = self.at;
        self.at += samples as u64;
        (from..self.at)
            .map(|at| (8_000.0 * (TAU * self.hz * at as f64 / f64::from(self.rate_hz)).sin()) as i16)
            .collect()
    }
}

/// Returns the share of the energy of `pcm` at `hz` (Goertzel), 0 to 1.
pub fn share(pcm: &[i16], hz: f64, rate_hz: u32) -> f64 {
    let step = TAU * hz / f64::from(rate_hz);
    let (mut re, mut im, mut energy) = (0.0, 0.0, 0.0);
    for (at, sample) in pcm.iter().enumerate() {
        let value = f64::from(*sample);
        re += value * (step * at as f64).cos();
        im += value * (step * at as f64).sin();
        energy += value * value;
    }
    if energy < pcm.len() as f64 {
        return 0.0;
    }
    2.0 * (re * re + im * im) / (energy * pcm.len() as f64)
}
