//! The presentation times of the bot's audio.
//!
//! In: the sender's ticks of 48 kHz, and `now`. Out: microseconds that never go back. They follow
//! the ticks; after a gap, such as a lost connection, they follow the wall clock, since a player
//! would take the gap for jitter and delay all that follows. The pacer moves its ticks after a
//! stall as well, but not before the speech pauses: what was made up here is then taken back.

use std::time::{Duration, Instant};

use crate::audio::pacer::PTIME_TICKS;
use crate::moq::media_frame::ticks_to_us;

/// Lag behind the wall clock that is made up: that of Pipecat's encoder.
const LAG_MAX: Duration = Duration::from_millis(250);

/// Assigns presentation times.
#[derive(Debug, Default)]
pub struct MediaClock {
    /// When the first packet was sent, and its ticks in microseconds.
    first: Option<(Instant, u64)>,
    /// What was made up so far and is not in the ticks, in microseconds.
    skipped_us: u64,
    /// The ticks that follow the last packet without a gap.
    next_ticks: u64,
}

impl MediaClock {
    /// Returns the time of the packet with these ticks, which is sent now.
    pub fn timestamp_us(&mut self, ticks: u64, now: Instant) -> u64 {
        let own_us = ticks_to_us(ticks);
        let (began, first_us) = *self.first.get_or_insert((now, own_us));
        let wall_us = first_us + now.saturating_duration_since(began).as_micros() as u64;
        let jump_us = ticks_to_us(ticks.saturating_sub(self.next_ticks));
        self.next_ticks = ticks + PTIME_TICKS;
        let ahead_us = (own_us + self.skipped_us).saturating_sub(wall_us);
        self.skipped_us -= self.skipped_us.min(jump_us).min(ahead_us);
        let media_us = own_us + self.skipped_us;
        let lag_us = wall_us.saturating_sub(media_us);
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
    use crate::audio::pacer::{Pacer, PacerOutput};

    const RATE_HZ: u32 = 16_000;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn packets_follow_their_ticks_and_gaps_the_wall_clock() {
        let start = Instant::now();
        let at = |millis| start + ms(millis);
        let mut clock = MediaClock::default();
        assert_eq!(clock.timestamp_us(960, at(0)), 20_000);
        assert_eq!(clock.timestamp_us(1_920, at(35)), 40_000, "jitter of the runner");
        assert_eq!(clock.timestamp_us(2_880, at(40)), 60_000);
        // A gap of 10 s without ticks.
        assert_eq!(clock.timestamp_us(3_840, at(10_060)), 10_080_000);
        assert_eq!(clock.timestamp_us(4_800, at(10_080)), 10_100_000);
        // Ticks that make up for a part of the gap.
        assert_eq!(clock.timestamp_us(53_760, at(10_100)), 10_120_000);
        // Ticks that run ahead stay ahead.
        assert_eq!(clock.timestamp_us(48_000 * 60, at(10_120)), 60_000_000);
    }

    /// Sends the audio of a pacer whose process sleeps at the given times; `speech` says whether
    /// the bot has something to say. Returns when each packet was sent, and its time.
    fn packets(stalls: &[(u64, u64)], until: u64, speech: impl Fn(u64) -> bool) -> Vec<(u64, u64)> {
        let start = Instant::now();
        let (mut pacer, mut clock) = (Pacer::new(RATE_HZ), MediaClock::default());
        pacer.start(start);
        let (mut sent, mut stalls) = (Vec::new(), stalls.iter().peekable());
        let mut now = start;
        while now < start + ms(until) {
            let elapsed = (now - start).as_millis() as u64;
            if let Some((_, asleep)) = stalls.next_if(|(at, _)| elapsed >= *at) {
                now += ms(*asleep);
            }
            if speech((now - start).as_millis() as u64) {
                let samples = pacer.free_capacity();
                pacer.handle_audio(&vec![1_000; samples], now);
            }
            pacer.handle_timeout(now);
            while let Some(output) = pacer.poll_output() {
                if let PacerOutput::Frame(frame) = output {
                    let sent_us = (now - start).as_micros() as u64;
                    sent.push((sent_us, clock.timestamp_us(frame.rtp_ticks, now)));
                }
            }
            now = now.max(pacer.poll_timeout().unwrap().0);
        }
        sent
    }

    /// The pacer makes up for a stall as well, once the speech pauses: media time follows the wall
    /// clock all the same.
    #[test]
    fn a_stall_is_made_up_once() {
        let pauses = |at| !(3_000..4_000).contains(&at) && !(8_000..9_000).contains(&at);
        for stalls in [
            &[(1_000, 900)][..],
            &[(1_000, 900), (5_000, 2_500)],
            &[(1_000, 100), (1_500, 100), (2_000, 100), (6_000, 240)],
            &[(500, 300), (3_500, 400), (9_500, 5_000)],
        ] {
            let sent = packets(stalls, 16_000, pauses);
            for pair in sent.windows(2) {
                assert!(pair[1].1 >= pair[0].1 + 20_000, "{stalls:?}: {pair:?}");
            }
            let lag = LAG_MAX.as_micros() as u64;
            for (at, media) in &sent {
                assert!(
                    media + lag >= *at && *media <= at + 60_000,
                    "{stalls:?}: {media} us at {at} us"
                );
            }
        }
    }
}
