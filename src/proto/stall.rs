//! Detects a runtime that does not answer, and a task that does not yield its thread.
//!
//! In: at each check, whether the runtime has answered or how often a task was entered and left,
//! and `now`. Out: one event when a stall starts and one when it ends, with its duration. Time in
//! which the process was stopped or the machine was suspended does not count. The thresholds are in
//! `limits`.

use std::fmt;
use std::time::{Duration, Instant};

/// Longest interval between two checks that counts as observed: after a longer one, the process was
/// stopped or the machine was suspended.
const WATCH_GAP_MAX: Duration = Duration::from_secs(1);
/// Time without an answer after which the runtime counts as stalled: callers hear the gap, and
/// their connections time out soon.
const RUNTIME_STALL: Duration = Duration::from_secs(3);
/// Time in one poll after which a task counts as stalled; polls take milliseconds.
const TURN_STALL: Duration = Duration::from_secs(2);
/// Stalls of one task that are logged; further stalls are only counted.
const TURN_WARNINGS_MAX: u32 = 5;

/// A change that a check detects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallEvent {
    /// Stalled for this long, and still stalled.
    Stalled(Duration),
    /// Running again after a stall of this length.
    Recovered(Duration),
}

/// Time since the last sign of progress, without time in which the process was stopped.
#[derive(Clone, Copy, Debug)]
struct StallTimer {
    since: Instant,
    looked: Instant,
}

impl StallTimer {
    fn new(now: Instant) -> Self {
        StallTimer {
            since: now,
            looked: now,
        }
    }

    /// Returns the time without progress.
    fn elapsed(&mut self, now: Instant) -> Duration {
        let gap = now.saturating_duration_since(self.looked);
        if gap > WATCH_GAP_MAX {
            self.since += gap;
        }
        self.looked = now;
        now.saturating_duration_since(self.since)
    }
}

/// The heartbeat of the runtime, which must answer each query in time.
#[derive(Debug)]
pub struct Heartbeat {
    timer: StallTimer,
    stalled: bool,
}

impl Heartbeat {
    pub fn new(now: Instant) -> Self {
        Heartbeat {
            timer: StallTimer::new(now),
            stalled: false,
        }
    }

    /// Handles a check; `answered` is the state of the last query. If true, the next one is sent at
    /// `now`.
    pub fn handle_look(&mut self, answered: bool, now: Instant) -> Option<StallEvent> {
        let silent = self.timer.elapsed(now);
        if answered {
            self.timer = StallTimer::new(now);
            return std::mem::take(&mut self.stalled).then_some(StallEvent::Recovered(silent));
        }
        let news = !self.stalled && silent >= RUNTIME_STALL;
        self.stalled |= news;
        news.then_some(StallEvent::Stalled(silent))
    }

    /// Returns whether a supervisor should restart the process.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }
}

/// The polls of one task: entered when woken, left when pending.
#[derive(Debug)]
pub struct TaskWatch {
    timer: StallTimer,
    moves: u32,
    stalled: bool,
    warnings: u32,
}

impl TaskWatch {
    pub fn new(now: Instant) -> Self {
        TaskWatch {
            timer: StallTimer::new(now),
            moves: 0,
            stalled: false,
            warnings: 0,
        }
    }

    /// Handles a check; `moves` counts entries and exits, so an odd number means that the task
    /// runs.
    pub fn handle_look(&mut self, moves: u32, now: Instant) -> Option<StallEvent> {
        let busy = self.timer.elapsed(now);
        if moves != self.moves || moves.is_multiple_of(2) {
            self.moves = moves;
            self.timer = StallTimer::new(now);
            let over = std::mem::take(&mut self.stalled) && self.warnings <= TURN_WARNINGS_MAX;
            return over.then_some(StallEvent::Recovered(busy));
        }
        let news = !self.stalled && busy >= TURN_STALL;
        if !news {
            return None;
        }
        self.stalled = true;
        self.warnings = self.warnings.saturating_add(1);
        (self.warnings <= TURN_WARNINGS_MAX).then_some(StallEvent::Stalled(busy))
    }

    /// Returns the number of stalls.
    pub fn stalls(&self) -> u32 {
        self.warnings
    }
}

/// The log message of a runtime stall.
pub struct RuntimeStallMessage(pub StallEvent);

impl fmt::Display for RuntimeStallMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            StallEvent::Stalled(time) => write!(
                f,
                "the runtime has been stalled for {:.1} s: a bot blocks its thread; what waits or computes for long belongs \
                 behind `.await`, or into `spawn_blocking`",
                time.as_secs_f64()
            ),
            StallEvent::Recovered(time) => {
                write!(f, "the runtime goes on after a stall of {:.1} s", time.as_secs_f64())
            }
        }
    }
}

/// The role of a session's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRole {
    /// Transfers the session's packets or messages.
    Media,
    Bot,
}

/// The log message of a task stall.
pub struct TaskStallMessage(pub TaskRole, pub StallEvent);

impl fmt::Display for TaskStallMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.0 {
            TaskRole::Media => "the session's media",
            TaskRole::Bot => "the session's bot",
        };
        match self.1 {
            StallEvent::Stalled(time) => write!(
                f,
                "{who} has kept its thread for {:.1} s in one turn, and others wait for that thread",
                time.as_secs_f64()
            ),
            StallEvent::Recovered(time) => write!(f, "{who} goes on after a turn of {:.1} s", time.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests;
