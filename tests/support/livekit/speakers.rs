//! Active speakers, detected like the real server does: from the audio levels of the publishers'
//! packets, within 400 ms, at least 40 % of the time louder than -35 dBov; smoothed over two
//! windows and reported in eighths.

use std::time::{Duration, Instant};

/// How often speakers are reported, and the length of a window.
pub const WINDOW: Duration = Duration::from_millis(400);
/// In -dBov: 0 is the loudest, 127 silence.
const ACTIVE_LEVEL: u8 = 35;
/// The share of a window.
const ACTIVE_SHARE: f32 = 0.4;
/// A publisher without packets is silent.
const STALE: Duration = Duration::from_millis(500);
const PACKET_MS: u32 = 20;

/// The loudness of one participant.
#[derive(Default)]
pub struct Meter {
    loudest: Option<u8>,
    active_ms: u32,
    observed_ms: u32,
    smoothed: f32,
    received: Option<Instant>,
    /// The last report, in eighths.
    pub reported: u8,
}

impl Meter {
    /// Handles the level of one packet, in -dBov.
    pub fn handle_level(&mut self, level: u8, now: Instant) {
        self.received = Some(now);
        self.observed_ms += PACKET_MS;
        if level <= ACTIVE_LEVEL {
            self.active_ms += PACKET_MS;
            self.loudest = Some(self.loudest.map_or(level, |loudest| loudest.min(level)));
        }
        let window_ms = WINDOW.as_millis() as u32;
        if self.observed_ms < window_ms {
            return;
        }
        let share = self.active_ms as f32 / window_ms as f32;
        let loudness = self
            .loudest
            .filter(|_| share >= ACTIVE_SHARE)
            .map_or(0.0, |loudest| amplitude(loudest) * share);
        self.smoothed += (loudness - self.smoothed) * 2.0 / 3.0;
        (self.loudest, self.active_ms, self.observed_ms) = (None, 0, 0);
    }

    /// Returns the current loudness in eighths; 0 is silence.
    pub fn eighths(&self, now: Instant) -> u8 {
        let fresh = self
            .received
            .is_some_and(|received| now.duration_since(received) < STALE);
        if !fresh || self.smoothed < amplitude(ACTIVE_LEVEL) {
            return 0;
        }
        (self.smoothed * 8.0).ceil().min(8.0) as u8
    }
}

fn amplitude(level: u8) -> f32 {
    10f32.powf(-f32::from(level) / 20.0)
}
