//! The presentation times of the bot's audio.
//!
//! In: the sender's ticks of 48 kHz, and `now`. Out: microseconds that never go back. They follow
//! the ticks; after a gap, such as a lost connection, they follow the wall clock, since a player
//! would take the gap for jitter and delay all that follows.

use std::time::{Duration, Instant};

use crate::moq::media_frame::ticks_to_us;

/// Lag behind the wall clock that is made up: that of Pipecat's encoder.
const LAG_MAX: Duration = Duration::from_millis(250);

/// Assigns presentation times.
#[derive(Debug, Default)]
pub struct MediaClock {
    /// When the first packet was sent, and its ticks in microseconds.
    first: Option<(Instant, u64)>,
    /// What was made up so far, in microseconds.
    skipped_us: u64,
}

impl MediaClock {
    /// Returns the time of the packet with these ticks, which is sent now.
    pub fn timestamp_us(&mut self, ticks: u64, now: Instant) -> u64 {
        let own_us = ticks_to_us(ticks);
        let (began, first_us) = *self.first.get_or_insert((now, own_us));
        let media_us = own_us + self.skipped_us;
        let elapsed_us = now.saturating_duration_since(began).as_micros() as u64;
        let lag_us = (first_us + elapsed_us).saturating_sub(media_us);
        if lag_us <= LAG_MAX.as_micros() as u64 {
            return media_us;
        }
        self.skipped_us += lag_us;
        media_us + lag_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_follow_their_ticks_and_gaps_the_wall_clock() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut clock = MediaClock::default();
        assert_eq!(clock.timestamp_us(960, at(0)), 20_000);
        assert_eq!(clock.timestamp_us(1_920, at(35)), 40_000, "jitter of the runner");
        assert_eq!(clock.timestamp_us(2_880, at(40)), 60_000);
        // A gap of 10 s without ticks.
        assert_eq!(clock.timestamp_us(3_840, at(10_060)), 10_080_000);
        assert_eq!(clock.timestamp_us(4_800, at(10_080)), 10_100_000);
        // Ticks that run ahead stay ahead.
        assert_eq!(clock.timestamp_us(48_000 * 60, at(10_100)), 70_000_000);
    }
}
