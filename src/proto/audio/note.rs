//! Notes: short tones that fade.
//!
//! Out: `i16` mono PCM at the given rate.

use std::f32::consts::TAU;

/// Returns the samples of a note.
pub fn note(rate_hz: u32, hz: f32, seconds: f32, peak: f32) -> impl Iterator<Item = i16> {
    let samples = (rate_hz as f32 * seconds) as usize;
    (0..samples).map(move |at| {
        let (t, left) = (at as f32 / rate_hz as f32, (samples - at) as f32 / samples as f32);
        // It rises within 5 ms and fades, without a click.
        let envelope = (t / 0.005).min(1.0) * left;
        (peak * envelope * (TAU * hz * t).sin()) as i16
    })
}
