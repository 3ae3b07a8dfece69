//! Records both sides of a call into one track.
//!
//! In: PCM of the caller and of the bot, each at its own rate. Out: one mono track at the caller's
//! rate. The caller's audio is the clock: the bot's speech is mixed into it in the order in which
//! it was sent, and what an interruption drops is not recorded.

use std::collections::VecDeque;
use std::time::Duration;

use super::write_wav;
use crate::audio::rate_converter::RateConverter;

/// A bounded recording of a call.
///
/// ```
/// use std::time::Duration;
/// # use edge_runner_proto::kit::{Recorder, Wav};
///
/// let mut recorder = Recorder::new(8_000, 8_000, Duration::from_secs(60));
/// recorder.handle_bot_speech(&[100; 80]);
/// recorder.handle_caller(&[1; 160]);
/// let wav = Wav::read(&recorder.to_wav()).expect("a WAV file");
/// assert_eq!(wav.pcm, [[101; 80], [1; 80]].concat());
/// ```
pub struct Recorder {
    rate_hz: u32,
    samples_max: usize,
    track: Vec<i16>,
    /// The bot's speech that the caller has not heard yet, at the rate of the track.
    speech: VecDeque<i16>,
    converter: RateConverter,
}

impl Recorder {
    /// Creates a recording of at most `longest`, which holds 16 kB per second at 8000 Hz. Rates are
    /// those of the caller's and the bot's audio, in Hz.
    ///
    /// # Panics
    /// If a rate is 0.
    pub fn new(caller_hz: u32, bot_hz: u32, longest: Duration) -> Self {
        let samples_max = longest.as_millis() * u128::from(caller_hz) / 1_000;
        Recorder {
            rate_hz: caller_hz,
            samples_max: usize::try_from(samples_max).unwrap_or(usize::MAX),
            track: Vec::new(),
            speech: VecDeque::new(),
            converter: RateConverter::new(bot_hz, caller_hz),
        }
    }

    /// Records audio of the caller, mixed with the bot's speech. Returns `false` once the recording
    /// is full.
    pub fn handle_caller(&mut self, pcm: &[i16]) -> bool {
        let room = self.samples_max - self.track.len();
        for sample in &pcm[..pcm.len().min(room)] {
            let spoken = self.speech.pop_front().unwrap_or_default();
            self.track.push(sample.saturating_add(spoken));
        }
        self.track.len() < self.samples_max
    }

    /// Takes speech that the bot sends. Beyond the length of the recording it is dropped.
    pub fn handle_bot_speech(&mut self, pcm: &[i16]) {
        let room = self.samples_max.saturating_sub(self.track.len() + self.speech.len());
        self.speech.extend(self.converter.convert(pcm).iter().take(room));
    }

    /// Drops the bot's speech that the caller has not heard.
    pub fn handle_interruption(&mut self) {
        self.speech.clear();
    }

    /// Returns how long the recording is.
    pub fn length(&self) -> Duration {
        Duration::from_millis(self.track.len() as u64 * 1_000 / u64::from(self.rate_hz))
    }

    /// Returns the recording as a WAV file.
    pub fn to_wav(&self) -> Vec<u8> {
        write_wav(&self.track, self.rate_hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::Wav;

    fn track(recorder: &Recorder) -> Vec<i16> {
        Wav::read(&recorder.to_wav()).expect("a WAV file").pcm
    }

    #[test]
    fn both_sides_are_mixed_in_the_time_of_the_caller() {
        let mut recorder = Recorder::new(8_000, 8_000, Duration::from_secs(1));
        assert!(recorder.handle_caller(&[5; 4]));
        recorder.handle_bot_speech(&[10, 20, 30]);
        recorder.handle_caller(&[1, 1]);
        recorder.handle_caller(&[i16::MAX, 1]);
        recorder.handle_bot_speech(&[i16::MIN]);
        recorder.handle_caller(&[-1]);
        assert_eq!(track(&recorder), [5, 5, 5, 5, 11, 21, i16::MAX, 1, i16::MIN]);
    }

    #[test]
    fn interrupted_speech_is_not_recorded() {
        let mut recorder = Recorder::new(8_000, 8_000, Duration::from_secs(1));
        recorder.handle_bot_speech(&[10; 100]);
        recorder.handle_caller(&[0; 2]);
        recorder.handle_interruption();
        recorder.handle_caller(&[0; 2]);
        assert_eq!(track(&recorder), [10, 10, 0, 0]);
    }

    #[test]
    fn the_recording_is_bounded() {
        let mut recorder = Recorder::new(8_000, 8_000, Duration::from_millis(1));
        recorder.handle_bot_speech(&[1; 1_000]);
        assert_eq!(recorder.speech.len(), 8);
        assert!(recorder.handle_caller(&[0; 7]));
        assert!(!recorder.handle_caller(&[0; 2]));
        assert!(!recorder.handle_caller(&[0; 2]));
        recorder.handle_bot_speech(&[1; 1_000]);
        assert_eq!((track(&recorder), recorder.speech.len()), (vec![1; 8], 0));
        assert_eq!(recorder.length(), Duration::from_millis(1));
    }

    #[test]
    fn the_bots_speech_is_brought_to_the_rate_of_the_caller() {
        let mut recorder = Recorder::new(8_000, 24_000, Duration::from_secs(1));
        recorder.handle_bot_speech(&[1_000; 2_400]);
        assert!(
            (790..=801).contains(&recorder.speech.len()),
            "{}",
            recorder.speech.len()
        );
    }
}
