//! The sounds of an assistant: two falling notes for a failure, and a soft tick while it thinks.
//!
//! Out: `i16` mono PCM at the given rate, half a second and 60 ms. Behind the notes comes the sound
//! of the operator, if there is one. [`ThinkingTicks`] tells when to tick.

use std::time::{Duration, Instant};

use crate::audio::note::note;
use crate::kit::Wav;

/// Frequencies in hertz.
const NOTES: [f32; 2] = [523.3, 392.0];
const NOTE_S: f32 = 0.25;
/// Quieter than speech.
const PEAK: f32 = 5_000.0;

/// The tick, which must not disturb.
const TICK_HZ: f32 = 660.0;
const TICK_S: f32 = 0.06;
const TICK_PEAK: f32 = 1_500.0;
/// Time without a sound from the bot, while it thinks, after which it ticks, and between ticks.
const TICK_AFTER: Duration = Duration::from_secs(3);
const TICK_INTERVAL: Duration = Duration::from_secs(2);

/// Returns the two notes of a failure.
pub fn notes(rate_hz: u32) -> Vec<i16> {
    NOTES
        .into_iter()
        .flat_map(|hz| note(rate_hz, hz, NOTE_S, PEAK))
        .collect()
}

/// Returns the sound of a failure that ends a session.
pub fn failure(rate_hz: u32, wav: Option<&Wav>) -> Vec<i16> {
    let mut pcm = notes(rate_hz);
    if let Some(wav) = wav {
        pcm.resize(pcm.len() + (rate_hz as f32 * NOTE_S) as usize, 0);
        pcm.extend(wav.resampled(rate_hz));
    }
    pcm
}

/// When to tick while a caller waits in silence.
#[derive(Debug, Default)]
pub struct ThinkingTicks {
    at: Option<Instant>,
}

impl ThinkingTicks {
    /// Tells whether a caller waits in silence.
    pub fn plan(&mut self, is_waiting: bool, now: Instant) {
        if is_waiting {
            self.at.get_or_insert(now + TICK_AFTER);
        } else {
            self.at = None;
        }
    }

    /// Returns when to call [`ThinkingTicks::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.at
    }

    /// Returns whether to tick now.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        let is_due = self.at.is_some_and(|at| now >= at);
        if is_due {
            self.at = Some(now + TICK_INTERVAL);
        }
        is_due
    }
}

/// Returns the sound of thinking.
pub fn tick(rate_hz: u32) -> Vec<i16> {
    note(rate_hz, TICK_HZ, TICK_S, TICK_PEAK).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_are_audible_and_do_not_click() {
        let pcm = failure(8_000, None);
        assert_eq!(pcm.len(), 4_000);
        assert!(pcm.iter().any(|sample| *sample > 4_000));
        assert!(pcm.windows(2).all(|pair| pair[0].abs_diff(pair[1]) < 3_000));
        let soft = tick(8_000);
        assert_eq!(soft.len(), 480);
        assert!(soft.iter().all(|sample| sample.abs() < 1_500));
    }

    #[test]
    fn the_sound_of_the_operator_follows_the_notes() {
        let wav = Wav {
            rate_hz: 16_000,
            pcm: vec![2_000; 16_000],
        };
        let pcm = failure(8_000, Some(&wav));
        assert_eq!(pcm.len(), 4_000 + 2_000 + 8_000);
        assert_eq!(pcm[..4_000], notes(8_000));
        assert!(pcm[4_000..6_000].iter().all(|sample| *sample == 0));
        assert!(pcm[7_000..13_000].iter().all(|sample| sample.abs_diff(2_000) < 100));
    }

    #[test]
    fn it_ticks_after_3_s_of_silence_and_then_every_2_s() {
        let (mut ticks, now) = (ThinkingTicks::default(), Instant::now());
        let after = |ms| now + Duration::from_millis(ms);
        ticks.plan(true, now);
        ticks.plan(true, after(1_000));
        assert_eq!(ticks.poll_timeout(), Some(after(3_000)));
        assert!(!ticks.handle_timeout(after(2_999)) && ticks.handle_timeout(after(3_000)));
        assert_eq!(ticks.poll_timeout(), Some(after(5_000)));
        ticks.plan(false, after(4_000));
        assert_eq!(ticks.poll_timeout(), None);
        assert!(!ticks.handle_timeout(after(9_000)));
    }
}
