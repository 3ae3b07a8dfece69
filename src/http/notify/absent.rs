//! The twin of `io::notify` in a build without `systemd`: no supervisor is looked for, and none is told anything.

use std::time::{Duration, Instant};

use edge_runner_proto::limits::WATCH_INTERVAL;

/// Nobody.
pub struct Supervisor;

impl Supervisor {
    pub fn find() -> Self {
        Supervisor
    }

    pub fn interval(&self) -> Duration {
        WATCH_INTERVAL
    }

    pub fn ready(&mut self) {}

    pub fn stopping(&mut self, _within: Duration) {}

    pub fn alive(&mut self) {}

    pub fn sessions(&mut self, _live: usize, _stopping: bool, _now: Instant) {}
}

pub fn reloaded() {}
