//! The bot's audio between its arrival and the time at which the caller hears it.
//!
//! In: PCM of the bot at any rate, interruptions, and `now`. Out: 20 ms at 16 kHz for each frame of
//! the caller's clock. Playing begins 60 ms after the first sample of a speech, so that audio that
//! arrives unevenly has no gaps. At most a minute is kept; later audio is dropped and counted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::sound::has_sound;
use super::{FRAME_SAMPLES, RATE_HZ};
use crate::audio::rate_converter::RateConverter;

/// The delay before a speech is played.
const BUFFERED: Duration = Duration::from_millis(60);
/// Samples that wait at most: one minute, for bots that send faster than they speak.
const WAITING_SAMPLES_MAX: usize = 60 * RATE_HZ as usize;
/// The rates of audio that are played, in Hz.
const PLAYED_RATES_HZ: std::ops::RangeInclusive<u32> = 8_000..=48_000;

/// The loudspeaker of the caller.
#[derive(Default)]
pub struct BotPlayout {
    waiting: VecDeque<i16>,
    /// When the waiting samples begin to play; `None` if there are none.
    plays_at: Option<Instant>,
    converter: Option<RateConverter>,
    /// The number of waiting samples up to the last loud one.
    loud_until: usize,
    dropped: usize,
}

impl BotPlayout {
    /// Takes audio of the bot. Returns it at 16 kHz; nothing if it is dropped or has a rate that no
    /// bot uses.
    pub fn handle_audio<'a>(&'a mut self, pcm: &'a [i16], rate_hz: u32, now: Instant) -> &'a [i16] {
        if !PLAYED_RATES_HZ.contains(&rate_hz) {
            return &[];
        }
        if self.converter.as_ref().map(RateConverter::from_hz) != Some(rate_hz) {
            self.converter = None;
        }
        let converter = self
            .converter
            .get_or_insert_with(|| RateConverter::new(rate_hz, RATE_HZ));
        let converted = converter.convert(pcm);
        let room = WAITING_SAMPLES_MAX - self.waiting.len();
        let kept = &converted[..converted.len().min(room)];
        self.dropped += converted.len() - kept.len();
        if !kept.is_empty() {
            self.plays_at.get_or_insert(now + BUFFERED);
            self.waiting.extend(kept);
            if has_sound(kept) {
                self.loud_until = self.waiting.len();
            }
        }
        kept
    }

    /// Drops what has not been played.
    pub fn handle_interruption(&mut self) {
        self.waiting.clear();
        self.loud_until = 0;
        self.plays_at = None;
    }

    /// Returns the next 20 ms; silence if nothing is due.
    pub fn next_frame(&mut self, now: Instant) -> [i16; FRAME_SAMPLES] {
        let mut frame = [0; FRAME_SAMPLES];
        if self.plays_at.is_some_and(|at| now >= at) {
            let count = self.waiting.len().min(FRAME_SAMPLES);
            for (to, from) in frame.iter_mut().zip(self.waiting.drain(..count)) {
                *to = from;
            }
            self.loud_until = self.loud_until.saturating_sub(count);
            if self.waiting.is_empty() {
                self.plays_at = None;
            }
        }
        frame
    }

    /// Returns whether sound waits to be played. Transports may send silence without an end.
    pub fn has_sound_waiting(&self) -> bool {
        self.loud_until > 0
    }

    /// Returns the length of the audio that was dropped.
    pub fn dropped(&self) -> Duration {
        Duration::from_millis(self.dropped as u64 * 1_000 / u64::from(RATE_HZ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audio_is_played_after_a_delay_in_order() {
        let (mut playout, start) = (BotPlayout::default(), Instant::now());
        assert_eq!(playout.handle_audio(&[7; 400], RATE_HZ, start).len(), 400);
        assert!(!playout.has_sound_waiting());
        assert_eq!(
            playout.next_frame(start + Duration::from_millis(59)),
            [0; FRAME_SAMPLES]
        );
        assert_eq!(playout.next_frame(start + BUFFERED), [7; FRAME_SAMPLES]);
        let last = playout.next_frame(start + BUFFERED);
        assert_eq!((last[..80].to_vec(), last[80]), (vec![7; 80], 0));
        // The next speech is buffered again.
        playout.handle_audio(&[8; 320], RATE_HZ, start + Duration::from_secs(1));
        assert_eq!(playout.next_frame(start + Duration::from_millis(1_010))[0], 0);
        assert_eq!(playout.next_frame(start + Duration::from_millis(1_060))[0], 8);
    }

    #[test]
    fn an_interruption_drops_what_waits() {
        let (mut playout, start) = (BotPlayout::default(), Instant::now());
        playout.handle_audio(&[700; 400], RATE_HZ, start);
        assert!(playout.has_sound_waiting());
        playout.handle_interruption();
        assert_eq!(playout.next_frame(start + Duration::from_secs(1)), [0; FRAME_SAMPLES]);
        assert!(!playout.has_sound_waiting());
    }

    #[test]
    fn silence_that_waits_is_no_sound() {
        let (mut playout, now) = (BotPlayout::default(), Instant::now());
        playout.handle_audio(&[700; 320], RATE_HZ, now);
        playout.handle_audio(&[0; 640], RATE_HZ, now);
        assert!(playout.has_sound_waiting());
        assert_eq!(playout.next_frame(now + BUFFERED), [700; FRAME_SAMPLES]);
        assert!(!playout.has_sound_waiting());
    }

    #[test]
    fn rates_are_converted_and_odd_ones_are_ignored() {
        let (mut playout, now) = (BotPlayout::default(), Instant::now());
        for rate_hz in [0, 7_999, 48_001] {
            assert!(playout.handle_audio(&[7; 400], rate_hz, now).is_empty());
        }
        let converted: usize = (0..50)
            .map(|_| playout.handle_audio(&[9; 480], 24_000, now).len())
            .sum();
        assert!((15_900..=16_000).contains(&converted), "{converted}");
        assert_eq!(playout.handle_audio(&[9; 320], RATE_HZ, now).len(), 320);
    }

    #[test]
    fn at_most_a_minute_waits() {
        let (mut playout, now) = (BotPlayout::default(), Instant::now());
        let second = vec![1; RATE_HZ as usize];
        for _ in 0..60 {
            assert_eq!(playout.handle_audio(&second, RATE_HZ, now).len(), second.len());
        }
        assert!(playout.handle_audio(&second, RATE_HZ, now).is_empty());
        assert_eq!(playout.dropped(), Duration::from_secs(1));
    }
}
