//! The presentation times of the bot's audio.
//!
//! In: `now`, for each packet of 20 ms. Out: microseconds that never go back, without a gap, also
//! when packets come late because the process stood still: the published player falls silent for
//! good when gaps add up to about 100 ms. The times then lag behind the wall clock, as those of a
//! slower clock do. After a long gap, and on a new connection, they follow the wall clock again,
//! since other players would take the lag for jitter and delay all that follows. Source:
//! `docs/spec/moq.md` 5.

use std::time::{Duration, Instant};

/// Duration of a packet, in microseconds.
const PTIME_US: u64 = 20_000;
/// Time between two packets above which the times follow the wall clock. Stalls of a busy machine
/// are shorter, lost connections longer.
const GAP_MAX: Duration = Duration::from_secs(1);

/// Assigns presentation times.
#[derive(Debug, Default)]
pub struct MediaClock {
    /// When the first packet was sent; its time is 0.
    began: Option<Instant>,
    /// When the last packet was sent, and the time that follows it without a gap.
    last: Option<(Instant, u64)>,
    is_reconnected: bool,
}

impl MediaClock {
    /// Lets the time of the next packet follow the wall clock: its subscriber has heard none
    /// before.
    pub fn reconnect(&mut self) {
        self.is_reconnected = true;
    }

    /// Returns the time of the packet that is sent now.
    pub fn timestamp_us(&mut self, now: Instant) -> u64 {
        let began = *self.began.get_or_insert(now);
        let (sent, next_us) = self.last.unwrap_or((now, 0));
        let wall_us = now.saturating_duration_since(began).as_micros() as u64;
        let is_long = now.saturating_duration_since(sent) > GAP_MAX;
        let follows_wall = std::mem::take(&mut self.is_reconnected) || is_long;
        let timestamp_us = if follows_wall { next_us.max(wall_us) } else { next_us };
        self.last = Some((now, timestamp_us + PTIME_US));
        timestamp_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::pacer::{Pacer, PacerOutput};

    const RATE_HZ: u32 = 16_000;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn times_have_no_gaps_and_follow_the_wall_clock_after_a_long_one() {
        let start = Instant::now();
        let mut clock = MediaClock::default();
        let mut at = |millis| clock.timestamp_us(start + ms(millis));
        assert_eq!((at(0), at(35), at(40)), (0, 20_000, 40_000), "jitter of the runner");
        assert_eq!(at(1_040), 60_000, "a stall at the limit");
        assert_eq!(at(1_060), 80_000);
        assert_eq!(at(2_061), 2_061_000, "one past it");
        assert_eq!(at(2_080), 2_081_000);
        assert_eq!(at(2_080), 2_101_000, "two at once");
        assert_eq!(at(60_000), 60_000_000, "an outage");
        assert_eq!(at(60_700), 60_020_000);
        clock.reconnect();
        let mut at = |millis| clock.timestamp_us(start + ms(millis));
        assert_eq!((at(60_720), at(60_740)), (60_720_000, 60_740_000), "another connection");
        assert_eq!(at(60_780), 60_760_000);
    }

    /// A pacer's packets while its process stands still again and again: each follows the last
    /// one. Stalls add up to a lag, which shrinks after a long gap alone.
    #[test]
    fn stalls_leave_no_gap() {
        let start = Instant::now();
        let (mut pacer, mut clock) = (Pacer::new(RATE_HZ), MediaClock::default());
        pacer.start(start);
        let (mut now, mut times, mut stalls) = (start, Vec::new(), [1_000_u64, 3_000, 5_000].iter().peekable());
        while now < start + ms(10_000) {
            let elapsed = (now - start).as_millis() as u64;
            if stalls.next_if(|at| elapsed >= **at).is_some() {
                now += ms(700);
            }
            // Speech with pauses, in which the pacer moves its own times.
            if (elapsed / 500).is_multiple_of(2) {
                let samples = pacer.free_capacity();
                pacer.handle_audio(&vec![1_000; samples], now);
            }
            pacer.handle_timeout(now);
            while let Some(output) = pacer.poll_output() {
                if let PacerOutput::Frame(_) = output {
                    times.push(clock.timestamp_us(now));
                }
            }
            now = now.max(pacer.poll_timeout().unwrap().0);
        }
        assert!(times.windows(2).all(|pair| pair[1] == pair[0] + PTIME_US), "{times:?}");
        let lag_us = 10_000_000 - times.last().unwrap();
        assert!((1_900_000..2_300_000).contains(&lag_us), "{lag_us}");
    }
}
