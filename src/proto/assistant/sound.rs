//! The sound of a failure: two falling notes.
//!
//! Out: `i16` mono PCM at the given rate, half a second.

use std::f32::consts::TAU;

/// Frequencies in hertz.
const NOTES: [f32; 2] = [523.3, 392.0];
const NOTE_S: f32 = 0.25;
/// Quieter than speech.
const PEAK: f32 = 5_000.0;

/// Returns the samples.
pub fn failure(rate_hz: u32) -> Vec<i16> {
    let samples = (rate_hz as f32 * NOTE_S) as usize;
    let note = |hz: f32| {
        (0..samples).map(move |at| {
            let (t, left) = (at as f32 / rate_hz as f32, (samples - at) as f32 / samples as f32);
            // It rises within 5 ms and fades, without a click.
            let envelope = (t / 0.005).min(1.0) * left;
            (PEAK * envelope * (TAU * hz * t).sin()) as i16
        })
    };
    NOTES.into_iter().flat_map(note).collect()
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
    }
}
