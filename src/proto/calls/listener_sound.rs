//! What a listener gets of a live call: both sides in one channel, as a recording has them, a
//! second later.
//!
//! In: what passes the tap of the call, and `now`. Out: `i16` mono PCM, as much as time has passed.
//! The second is what [`CallSound`] needs to leave out the sound of keys and speech that an
//! interruption took back.

use std::time::{Duration, Instant};

use super::sound::{CallSound, OPEN, TappedSound};

/// Mixes the sound of one call for one listener.
pub struct ListenerSound {
    sound: CallSound,
    began: Instant,
    /// When the call ended.
    ended: Option<Instant>,
    stereo: Vec<u8>,
    mono: Vec<i16>,
}

impl ListenerSound {
    /// Begins with the sound that passes the tap from now on. `rate_hz` is that of the result.
    pub fn new(rate_hz: u32, now: Instant) -> Self {
        ListenerSound {
            sound: CallSound::new(rate_hz),
            began: now,
            ended: None,
            stereo: Vec::new(),
            mono: Vec::new(),
        }
    }

    /// Handles what passed the tap.
    pub fn handle(&mut self, tapped: &TappedSound, at: Instant) {
        self.sound.handle(tapped, at.saturating_duration_since(self.began));
    }

    /// Handles the end of the call; its sound until then is still taken.
    pub fn handle_end(&mut self, now: Instant) {
        self.ended.get_or_insert(now);
    }

    /// Returns the sound since the last call of this function.
    pub fn take(&mut self, now: Instant) -> &[i16] {
        let last = self.ended.map_or(now, |ended| now.min(ended + OPEN));
        self.stereo.clear();
        self.sound.take(self.since_start(last), &mut self.stereo);
        self.mono.clear();
        let (moments, _) = self.stereo.as_chunks::<4>();
        self.mono.extend(moments.iter().map(|[a, b, c, d]| {
            let (caller, bot) = (i16::from_le_bytes([*a, *b]), i16::from_le_bytes([*c, *d]));
            caller.saturating_add(bot)
        }));
        &self.mono
    }

    /// Returns whether all sound of a call that ended was taken.
    pub fn is_over(&self, now: Instant) -> bool {
        self.ended.is_some_and(|ended| now >= ended + OPEN)
    }

    fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.began)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const RATE: u32 = 8_000;
    const MS: Duration = Duration::from_millis(1);
    /// Samples of a millisecond.
    const PER_MS: usize = 8;

    fn caller(sample: i16, ms: usize) -> TappedSound {
        TappedSound::Caller {
            pcm: Arc::from(vec![sample; ms * PER_MS]),
            rate_hz: RATE,
            identity: None,
        }
    }

    fn bot(sample: i16, ms: usize) -> TappedSound {
        TappedSound::Bot {
            pcm: Arc::from(vec![sample; ms * PER_MS]),
            rate_hz: RATE,
        }
    }

    /// Takes 20 ms after 20 ms until a time, and returns all of it.
    fn taken(sound: &mut ListenerSound, start: Instant, from_ms: u32, until_ms: u32) -> Vec<i16> {
        let ticks = (from_ms..=until_ms).step_by(20);
        let pieces = ticks.map(|ms| sound.take(start + ms * MS).to_vec());
        pieces.collect::<Vec<_>>().concat()
    }

    /// Both sides are in one channel, at the times at which the call had them, a second later.
    #[test]
    fn both_sides_come_a_second_later() {
        let start = Instant::now();
        let mut sound = ListenerSound::new(RATE, start);
        sound.handle(&caller(100, 20), start + 120 * MS);
        sound.handle(&bot(30, 40), start + 100 * MS);
        assert!(sound.take(start + 1000 * MS).is_empty());
        let pcm = taken(&mut sound, start, 1020, 1200);
        assert_eq!(pcm.len(), 200 * PER_MS);
        let at = |ms: usize| pcm[ms * PER_MS];
        assert_eq!((at(90), at(110), at(130), at(150)), (0, 130, 30, 0));
    }

    /// Loud sides are limited, and never wrap around.
    #[test]
    fn the_sum_of_loud_sides_is_limited() {
        let start = Instant::now();
        let mut sound = ListenerSound::new(RATE, start);
        sound.handle(&caller(i16::MIN, 20), start + 20 * MS);
        sound.handle(&bot(i16::MIN, 20), start);
        assert_eq!(sound.take(start + 1010 * MS), vec![i16::MIN; 10 * PER_MS]);
    }

    /// The sound of a key tells which it was: it is left out though it came before the key.
    #[test]
    fn keys_are_left_out() {
        let start = Instant::now();
        let mut sound = ListenerSound::new(RATE, start);
        for nth in 1..=50 {
            sound.handle(&caller(7, 20), start + nth * 20 * MS);
        }
        let mut pcm = taken(&mut sound, start, 20, 1000);
        sound.handle(&TappedSound::Key, start + 1000 * MS);
        pcm.extend(taken(&mut sound, start, 1020, 2000));
        let loud = pcm.iter().filter(|sample| **sample != 0).count();
        assert_eq!(loud, 200 * PER_MS);
    }

    /// The listener gets the sound until the end of the call, and no more.
    #[test]
    fn the_last_second_comes_after_the_end() {
        let start = Instant::now();
        let mut sound = ListenerSound::new(RATE, start);
        sound.handle(&bot(9, 500), start + 1000 * MS);
        sound.handle_end(start + 1100 * MS);
        sound.handle_end(start + 1400 * MS);
        assert!(!sound.is_over(start + 2080 * MS));
        let pcm = taken(&mut sound, start, 20, 3000);
        assert_eq!(pcm.iter().filter(|sample| **sample != 0).count(), 100 * PER_MS);
        assert_eq!(pcm.len(), 1100 * PER_MS);
        assert!(sound.is_over(start + 2100 * MS));
    }
}
