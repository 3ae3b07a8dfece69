//! How much time the audio of a caller has covered.
//!
//! In: the length of each piece of audio, and `now`. Out: the time since the end of the audio that
//! has been passed on. Encoders that detect silence send nothing for most of a pause, so samples
//! alone do not tell how long it lasts.

use std::time::{Duration, Instant};

/// The end of a caller's audio on the clock of its arrival.
#[derive(Debug, Default)]
pub struct ElapsedAudio {
    covered_until: Option<Instant>,
}

impl ElapsedAudio {
    /// Handles audio of this length. It covers the time up to `now`, or at most its own length
    /// more, since audio that arrives in a burst is late and not ahead of its time.
    pub fn handle_audio(&mut self, length: Duration, now: Instant) {
        let covered = self.covered_until.map_or(now, |until| until + length);
        self.covered_until = Some(covered.clamp(now, now + length));
    }

    /// Handles silence or concealment of this length that stands for missing audio.
    pub fn handle_replacement(&mut self, length: Duration) {
        self.covered_until = self.covered_until.map(|until| until + length);
    }

    /// Returns the time up to `now` that no audio covers; none before the first audio.
    pub fn missing(&self, now: Instant) -> Duration {
        self.covered_until
            .map_or(Duration::ZERO, |until| now.saturating_duration_since(until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Duration = Duration::from_millis(20);

    #[test]
    fn counts_the_time_that_no_audio_covers() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut elapsed = ElapsedAudio::default();
        assert_eq!(elapsed.missing(at(50)), Duration::ZERO);
        elapsed.handle_replacement(FRAME);
        assert_eq!(elapsed.missing(at(50)), Duration::ZERO);
        elapsed.handle_audio(FRAME, at(100));
        assert_eq!(elapsed.missing(at(400)), Duration::from_millis(300));
        elapsed.handle_replacement(Duration::from_millis(280));
        assert_eq!(elapsed.missing(at(400)), FRAME);
        elapsed.handle_audio(FRAME, at(400));
        assert_eq!(elapsed.missing(at(400)), Duration::ZERO);
    }

    /// A burst of late packets does not count against a pause that follows.
    #[test]
    fn a_burst_covers_one_frame_more_than_its_time() {
        let start = Instant::now();
        let mut elapsed = ElapsedAudio::default();
        for _ in 0..5 {
            elapsed.handle_audio(FRAME, start);
        }
        assert_eq!(elapsed.missing(start + 3 * FRAME), 2 * FRAME);
    }
}
