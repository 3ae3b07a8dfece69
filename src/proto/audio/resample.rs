//! Converts PCM between any two rates of `limits::RATES_HZ`, `i16` mono, as a stream.
//!
//! In: samples at one rate, in pieces of any length. Out: samples at the other rate, at most
//! [`SPAN`] periods of the lower rate late. A polyphase windowed sinc in 16-bit arithmetic; the
//! filter is computed once, so that a stream allocates nothing. Rates with a ratio of more than
//! [`ROWS_MAX`] phases use the nearest phase, which costs some signal-to-noise ratio. Digital
//! silence stays digital silence. Source: the windowed-sinc method as in J. O. Smith, "Digital
//! Audio Resampling"; the Kaiser window.

use std::f64::consts::PI;

use wide::{i16x8, i32x4};

/// Half the length of the filter, in periods of the lower rate.
pub const SPAN: usize = 24;
/// Limit of filter phases: 160 are those of 44.1 and 48 kHz.
pub const ROWS_MAX: usize = 160;
/// End of the pass band, as a share of half the lower rate; above it, the filter falls by 60 dB
/// within 15 %.
const CUTOFF: f64 = 0.925;
/// Shape of the Kaiser window: 60 dB in the stop band.
const BETA: f64 = 5.65;
/// Fractional bits of a coefficient. With two integer bits, the sum of magnitudes fits into 32
/// bits.
const POINT: u32 = 14;

/// A stream that changes its rate.
pub struct Resampler {
    /// One period of output is `step / phases` of input.
    step: usize,
    phases: usize,
    /// The filter: one row per phase, each of `taps` coefficients.
    rows: Vec<i16>,
    taps: usize,
    /// Input that later output still needs.
    input: Vec<i16>,
    /// Position of the next output relative to the first of `input`, in samples and in phases.
    at: usize,
    phase: usize,
}

impl Resampler {
    /// Creates a resampler between two rates in hertz, both above zero.
    pub fn new(from_hz: u32, to_hz: u32) -> Self {
        let common = gcd(from_hz, to_hz);
        let (step, phases) = ((from_hz / common) as usize, (to_hz / common) as usize);
        // When the rate decreases, the filter is longer in proportion to its narrower band.
        let narrower = f64::from(from_hz.max(to_hz)) / f64::from(to_hz);
        let half = (SPAN as f64 * narrower).ceil() as usize;
        let (taps, count) = (2 * half, phases.min(ROWS_MAX));
        let rows = (0..count)
            .flat_map(|row| coefficients(row as f64 / count as f64, half, narrower))
            .collect();
        Self {
            step,
            phases,
            rows,
            taps,
            input: vec![0; taps - 1],
            at: 0,
            phase: 0,
        }
    }

    /// Discards the buffered input.
    pub fn reset(&mut self) {
        self.input.clear();
        self.input.resize(self.taps - 1, 0);
        (self.at, self.phase) = (0, 0);
    }

    /// Resamples `samples`, and appends the result to `output`.
    pub fn process(&mut self, samples: &[i16], output: &mut Vec<i16>) {
        self.input.extend_from_slice(samples);
        let count = self.rows.len() / self.taps;
        while let Some(window) = self.input.get(self.at..self.at + self.taps) {
            let row = self.phase * count / self.phases;
            let row = &self.rows[row * self.taps..(row + 1) * self.taps];
            let sum = dot(window, row);
            let rounded = (sum + (1 << (POINT - 1))) >> POINT;
            output.push(rounded.clamp(i16::MIN.into(), i16::MAX.into()) as i16);
            self.phase += self.step;
            self.at += self.phase / self.phases;
            self.phase %= self.phases;
        }
        // When the rate decreases by much, the next output may lie after all input.
        let used = self.at.min(self.input.len());
        self.input.copy_within(used.., 0);
        self.input.truncate(self.input.len() - used);
        self.at -= used;
    }
}

/// Returns the dot product of two slices of the same length, eight elements at a time.
fn dot(left: &[i16], right: &[i16]) -> i32 {
    let (eights, left_rest) = left.as_chunks::<8>();
    let (shares, right_rest) = right.as_chunks::<8>();
    let mut sums = i32x4::ZERO;
    for (eight, share) in eights.iter().zip(shares) {
        sums += i16x8::new(*eight).dot(i16x8::new(*share));
    }
    let rest = left_rest.iter().zip(right_rest);
    sums.reduce_add() + rest.map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>()
}

/// Returns the filter row for an output that lies `offset` of an input period after the middle
/// sample.
fn coefficients(offset: f64, half: usize, narrower: f64) -> Vec<i16> {
    let band = CUTOFF / narrower;
    let shares: Vec<f64> = (0..2 * half)
        .map(|tap| {
            let time = tap as f64 - (half as f64 - 1.0) - offset;
            let window = bessel(BETA * (1.0 - (time / half as f64).powi(2)).max(0.0).sqrt());
            let wave = PI * band * time;
            window * if wave == 0.0 { 1.0 } else { wave.sin() / wave }
        })
        .collect();
    let whole = shares.iter().sum::<f64>() / f64::from(1 << POINT);
    let mut row: Vec<i16> = shares.iter().map(|share| (share / whole).round() as i16).collect();
    // Every row passes a constant unchanged; otherwise the phases would modulate a tone.
    let off = (1 << POINT) - row.iter().map(|share| i32::from(*share)).sum::<i32>();
    row[half - 1] += off as i16;
    row
}

/// Returns the modified Bessel function of the first kind and order zero.
fn bessel(x: f64) -> f64 {
    let mut term = 1.0;
    let mut sum = 1.0;
    for n in 1..32 {
        term *= (x / (2.0 * f64::from(n))).powi(2);
        sum += term;
    }
    sum
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
