//! The sounds of an assistant: two falling notes for a failure, and a soft tick while it thinks.
//!
//! Out: `i16` mono PCM at the given rate, half a second and 60 ms.

use std::f32::consts::TAU;

/// Frequencies in hertz.
const NOTES: [f32; 2] = [523.3, 392.0];
const NOTE_S: f32 = 0.25;
/// Quieter than speech.
const PEAK: f32 = 5_000.0;

/// The tick, which must not disturb.
const TICK_HZ: f32 = 660.0;
const TICK_S: f32 = 0.06;
const TICK_PEAK: f32 = 1_500.0;

/// Returns the sound of a failure.
pub fn failure(rate_hz: u32) -> Vec<i16> {
    NOTES
        .into_iter()
        .flat_map(|hz| note(rate_hz, hz, NOTE_S, PEAK))
        .collect()
}

/// Returns the sound of thinking.
pub fn tick(rate_hz: u32) -> Vec<i16> {
    note(rate_hz, TICK_HZ, TICK_S, TICK_PEAK).collect()
}

fn note(rate_hz: u32, hz: f32, seconds: f32, peak: f32) -> impl Iterator<Item = i16> {
    let samples = (rate_hz as f32 * seconds) as usize;
    (0..samples).map(move |at| {
        let (t, left) = (at as f32 / rate_hz as f32, (samples - at) as f32 / samples as f32);
        // It rises within 5 ms and fades, without a click.
        let envelope = (t / 0.005).min(1.0) * left;
        (peak * envelope * (TAU * hz * t).sin()) as i16
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_are_heard_and_do_not_click() {
        let pcm = failure(8_000);
        assert_eq!(pcm.len(), 4_000);
        assert!(pcm.iter().any(|sample| *sample > 4_000));
        assert!(pcm.windows(2).all(|pair| pair[0].abs_diff(pair[1]) < 3_000));
        let soft = tick(8_000);
        assert_eq!(soft.len(), 480);
        assert!(soft.iter().all(|sample| sample.abs() < 1_500));
    }
}
