//! Tests of the resampler.

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
