//! When a caller last spoke, by the energy of the sound.
//!
//! In: `i16` mono PCM at one rate, its arrival time, and whether the bot speaks. Out: when the
//! last sound of speech arrived. Clicks are no speech, nor is a short echo of the bot.

use std::time::{Duration, Instant};

use super::vad::Vad;

/// Consecutive speech that counts; a click is shorter.
const ONSET: Duration = Duration::from_millis(100);
/// The same while the bot speaks; its echo is shorter.
const ONSET_BESIDE_BOT: Duration = Duration::from_millis(300);
/// Silence within speech, after which it has to begin anew.
const PAUSE: Duration = Duration::from_millis(700);

/// The last speech of one voice.
pub struct LastSpeech {
    vad: Vad,
    rate_hz: u32,
    /// Consecutive samples of speech.
    run: usize,
    at: Option<Instant>,
}

impl LastSpeech {
    /// Creates a detector for PCM at `rate_hz`.
    pub fn new(rate_hz: u32) -> Self {
        LastSpeech {
            vad: Vad::new(rate_hz),
            rate_hz,
            run: 0,
            at: None,
        }
    }

    pub fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    pub fn handle_audio(&mut self, pcm: &[i16], is_bot_audible: bool, now: Instant) {
        if !self.vad.hears_speech(pcm) {
            self.run = 0;
            return;
        }
        self.run += pcm.len();
        let goes_on = self.at.is_some_and(|at| now.saturating_duration_since(at) < PAUSE);
        let wanted = match (is_bot_audible, goes_on) {
            (true, _) => ONSET_BESIDE_BOT,
            (false, true) => Duration::ZERO,
            (false, false) => ONSET,
        };
        if self.run as u64 * 1_000 >= wanted.as_millis() as u64 * u64::from(self.rate_hz) {
            self.at = Some(now);
        }
    }

    /// Returns when the last sound of speech arrived.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Returns when the last sound of speech arrived, and forgets it.
    pub fn take(&mut self) -> Option<Instant> {
        self.at.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_HZ: u32 = 8_000;

    struct Rig {
        speech: LastSpeech,
        start: Instant,
        now: Instant,
        is_bot_audible: bool,
    }

    impl Rig {
        /// A caller in a quiet room.
        fn new() -> Self {
            let start = Instant::now();
            let mut rig = Rig {
                speech: LastSpeech::new(RATE_HZ),
                start,
                now: start,
                is_bot_audible: false,
            };
            rig.hear(1_000, 30.0);
            rig
        }

        /// Frames of 20 ms of a tone.
        fn hear(&mut self, ms: usize, loud: f64) {
            let pcm: Vec<i16> = (0..160).map(|at| (loud * (at as f64 * 0.7).sin()) as i16).collect();
            for _ in 0..ms / 20 {
                self.now += Duration::from_millis(20);
                self.speech.handle_audio(&pcm, self.is_bot_audible, self.now);
            }
        }

        fn at_ms(&self) -> Option<u128> {
            self.speech.at().map(|at| at.duration_since(self.start).as_millis())
        }
    }

    #[test]
    fn the_last_sound_of_speech_counts_and_a_click_does_not() {
        let mut rig = Rig::new();
        rig.hear(60, 8_000.0);
        rig.hear(800, 30.0);
        assert_eq!(rig.at_ms(), None, "a click");
        rig.hear(500, 8_000.0);
        rig.hear(200, 30.0);
        // The edge of the tone is in the frame behind it.
        assert_eq!(rig.at_ms(), Some(2_380));
        rig.hear(40, 8_000.0);
        rig.hear(1_000, 30.0);
        assert_eq!(rig.at_ms(), Some(2_620), "a short last syllable");
        rig.hear(40, 8_000.0);
        assert_eq!(rig.at_ms(), Some(2_620), "a click after a pause");
        assert!(rig.speech.take().is_some() && rig.speech.take().is_none());
    }

    #[test]
    fn an_echo_of_the_bot_is_no_speech() {
        let mut rig = Rig::new();
        rig.hear(300, 8_000.0);
        rig.hear(100, 30.0);
        let before = rig.at_ms();
        rig.is_bot_audible = true;
        rig.hear(200, 8_000.0);
        rig.hear(100, 30.0);
        assert_eq!(rig.at_ms(), before);
        rig.hear(400, 8_000.0);
        assert_eq!(rig.at_ms(), Some(2_100), "an interruption");
    }
}
