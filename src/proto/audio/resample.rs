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
mod tests {
    use super::*;

    const PAIRS: [(u32, u32); 16] = [
        (48_000, 8_000),
        (48_000, 11_025),
        (48_000, 16_000),
        (48_000, 22_050),
        (48_000, 24_000),
        (48_000, 32_000),
        (48_000, 44_100),
        (48_000, 12_345),
        (44_100, 24_000),
        (32_000, 24_000),
        (22_050, 24_000),
        (11_025, 12_000),
        (8_000, 16_000),
        (8_000, 24_000),
        (16_000, 8_000),
        (24_000, 8_000),
    ];

    fn tone(hz: f64, rate_hz: u32, samples: usize) -> Vec<i16> {
        (0..samples)
            .map(|n| (12_000.0 * (2.0 * PI * hz * n as f64 / f64::from(rate_hz)).sin()).round() as i16)
            .collect()
    }

    fn resample(pcm: &[i16], from_hz: u32, to_hz: u32) -> Vec<i16> {
        let mut output = Vec::new();
        Resampler::new(from_hz, to_hz).process(pcm, &mut output);
        output
    }

    /// Returns the root mean squares of the tone of `hz` in the PCM, and of the rest.
    fn split(pcm: &[i16], hz: f64, rate_hz: u32) -> (f64, f64) {
        let wave = |n: usize| (2.0 * PI * hz * n as f64 / f64::from(rate_hz)).sin_cos();
        // Least squares on sine and cosine, which are not orthogonal over a part of a period.
        let (mut ss, mut sc, mut cc, mut xs, mut xc) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (n, sample) in pcm.iter().enumerate() {
            let (sin, cos) = wave(n);
            let x = f64::from(*sample);
            (ss, sc, cc, xs, xc) = (
                ss + sin * sin,
                sc + sin * cos,
                cc + cos * cos,
                xs + x * sin,
                xc + x * cos,
            );
        }
        let det = ss * cc - sc * sc;
        let (a, b) = ((xs * cc - xc * sc) / det, (xc * ss - xs * sc) / det);
        let (mut of_tone, mut rest) = (0.0, 0.0);
        for (n, sample) in pcm.iter().enumerate() {
            let (sin, cos) = wave(n);
            let fit = a * sin + b * cos;
            of_tone += fit * fit;
            rest += (f64::from(*sample) - fit).powi(2);
        }
        ((of_tone / pcm.len() as f64).sqrt(), (rest / pcm.len() as f64).sqrt())
    }

    fn db(ratio: f64) -> f64 {
        20.0 * ratio.log10()
    }

    #[test]
    fn preserves_tones_without_distortion() {
        for (from_hz, to_hz) in PAIRS {
            for hz in [300.0, 1_000.0, f64::from(from_hz.min(to_hz)) * 0.4] {
                let output = resample(&tone(hz, from_hz, from_hz as usize / 3), from_hz, to_hz);
                let (height, rest) = split(&output[to_hz as usize / 10..], hz, to_hz);
                let height = db(height / (12_000.0 / 2.0_f64.sqrt()));
                assert!(height.abs() < 0.1, "{hz} Hz from {from_hz} to {to_hz}: {height:.2} dB");
                let snr = db(12_000.0 / 2.0_f64.sqrt() / rest);
                let wanted = if to_hz == 12_345 { 55.0 } else { 65.0 };
                assert!(snr > wanted, "{hz} Hz from {from_hz} to {to_hz}: {snr:.1} dB");
            }
        }
    }

    #[test]
    fn removes_content_above_the_lower_rate() {
        for (from_hz, to_hz) in PAIRS {
            if from_hz < to_hz {
                // The images of such a tone are covered by the test above.
                continue;
            }
            for share in [0.5, 0.55, 0.7, 0.9] {
                let hz = f64::from(to_hz) * share;
                if hz > f64::from(from_hz) / 2.0 {
                    continue;
                }
                let output = resample(&tone(hz, from_hz, from_hz as usize / 3), from_hz, to_hz);
                let (_, left) = split(&output[to_hz as usize / 10..], 0.0001, to_hz);
                let down = db(12_000.0 / 2.0_f64.sqrt() / left);
                assert!(down > 50.0, "{hz} Hz from {from_hz} to {to_hz}: {down:.1} dB");
            }
        }
    }

    #[test]
    fn the_length_of_pieces_does_not_matter() {
        for (from_hz, to_hz) in PAIRS {
            let pcm = tone(440.0, from_hz, 5_000);
            let whole = resample(&pcm, from_hz, to_hz);
            let mut resampler = Resampler::new(from_hz, to_hz);
            let (mut pieces, mut rest, mut length) = (Vec::new(), &pcm[..], 0);
            while !rest.is_empty() {
                length = (length * 7 + 3) % 400;
                let (piece, later) = rest.split_at(length.min(rest.len()));
                resampler.process(piece, &mut pieces);
                rest = later;
            }
            assert_eq!(pieces, whole, "from {from_hz} to {to_hz}");
        }
    }

    #[test]
    fn preserves_duration_with_bounded_memory() {
        for (from_hz, to_hz) in PAIRS {
            let mut resampler = Resampler::new(from_hz, to_hz);
            let frame = vec![1_000; from_hz as usize / 50];
            let (mut output, mut count, mut memory) = (Vec::new(), 0, 0);
            for n in 0..50 {
                output.clear();
                resampler.process(&frame, &mut output);
                count += output.len();
                if n == 2 {
                    memory = resampler.input.capacity();
                }
            }
            let wanted = frame.len() * 50 * to_hz as usize / from_hz as usize;
            assert!(
                count.abs_diff(wanted) <= 1,
                "from {from_hz} to {to_hz}: {count} for {wanted}"
            );
            assert_eq!(resampler.input.capacity(), memory);
            assert_eq!(output.last(), Some(&1_000), "a constant passes unchanged");
        }
    }

    #[test]
    fn preserves_silence_and_does_not_overflow() {
        for (from_hz, to_hz) in PAIRS {
            assert!(
                resample(&vec![0; 2_000], from_hz, to_hz)
                    .iter()
                    .all(|sample| *sample == 0)
            );
            // A sum that overflows would change its sign in the middle of a half wave.
            let square: Vec<i16> = (0..9_000)
                .map(|n| if n % 180 < 90 { i16::MAX } else { i16::MIN })
                .collect();
            let output = resample(&square, from_hz, to_hz);
            // The filter rings before the first edge; the rest is steady.
            let steady = &output[output.len() / 4..];
            let changes = steady.windows(2).filter(|pair| (pair[0] < 0) != (pair[1] < 0)).count();
            assert!((74..=76).contains(&changes), "from {from_hz} to {to_hz}: {changes}");
        }
    }

    #[test]
    fn no_input_overflows_the_sum() {
        for (from_hz, to_hz) in PAIRS {
            let resampler = Resampler::new(from_hz, to_hz);
            for row in resampler.rows.chunks(resampler.taps) {
                let worst: i64 = row.iter().map(|share| i64::from(share.unsigned_abs()) << 15).sum();
                assert!(worst < i64::from(i32::MAX), "from {from_hz} to {to_hz}");
            }
        }
    }

    #[test]
    fn reset_discards_the_input() {
        let mut resampler = Resampler::new(48_000, 44_100);
        let mut output = Vec::new();
        resampler.process(&tone(440.0, 48_000, 333), &mut output);
        resampler.reset();
        output.clear();
        let pcm = tone(700.0, 48_000, 960);
        resampler.process(&pcm, &mut output);
        assert_eq!(output, resample(&pcm, 48_000, 44_100));
    }
}
