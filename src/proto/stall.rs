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
mod tests {
    use super::*;
    use crate::limits::WATCH_INTERVAL;

    const MS: Duration = Duration::from_millis(1);

    /// Checks every half second until `until`, and returns the events with their times.
    fn looks(
        start: Instant,
        from: Duration,
        until: Duration,
        mut look: impl FnMut(Instant) -> Option<StallEvent>,
    ) -> Vec<(Duration, StallEvent)> {
        let mut at = from;
        let mut events = Vec::new();
        while at <= until {
            events.extend(look(start + at).map(|change| (at, change)));
            at += WATCH_INTERVAL;
        }
        events
    }

    /// A query answered within the limit is no stall; a longer one is reported once, and so is its
    /// end.
    #[test]
    fn reports_a_runtime_stall_once_and_its_end_once() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(start);
        assert_eq!(heartbeat.handle_look(true, start), None);
        let events = looks(start, WATCH_INTERVAL, RUNTIME_STALL - MS, |now| {
            heartbeat.handle_look(false, now)
        });
        assert_eq!((events, heartbeat.is_stalled()), (Vec::new(), false));
        let events = looks(start, RUNTIME_STALL, RUNTIME_STALL * 4, |now| {
            heartbeat.handle_look(false, now)
        });
        assert_eq!(events, [(RUNTIME_STALL, StallEvent::Stalled(RUNTIME_STALL))]);
        assert!(heartbeat.is_stalled());
        let end = RUNTIME_STALL * 4 + WATCH_INTERVAL;
        let events = looks(start, end, end * 2, |now| heartbeat.handle_look(true, now));
        assert_eq!(events, [(end, StallEvent::Recovered(end))]);
        assert!(!heartbeat.is_stalled());
    }

    /// A late answer within the limit restarts the measurement.
    #[test]
    fn a_slow_runtime_is_not_stalled() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(start);
        let mut nth = 0;
        let events = looks(start, WATCH_INTERVAL, RUNTIME_STALL * 20, |now| {
            nth += 1;
            heartbeat.handle_look(nth % 5 == 0, now)
        });
        assert_eq!(events, []);
    }

    /// After an hour of suspension, neither an open query nor a running task counts as stalled.
    #[test]
    fn suspension_is_not_a_stall() {
        let start = Instant::now();
        let (mut heartbeat, mut turns) = (Heartbeat::new(start), TaskWatch::new(start));
        let mut look = |at: Duration| {
            (
                heartbeat.handle_look(false, start + at),
                turns.handle_look(1, start + at),
            )
        };
        assert_eq!(look(WATCH_INTERVAL), (None, None));
        let hour = Duration::from_secs(3_600);
        assert_eq!(look(hour), (None, None));
        assert_eq!(look(hour + WATCH_INTERVAL), (None, None));
        // Afterwards, time counts again.
        let mut events = 0;
        for nth in 2..20 {
            let (runtime, task) = look(hour + WATCH_INTERVAL * nth);
            events += u32::from(runtime.is_some()) + u32::from(task.is_some());
        }
        assert_eq!(events, 2);
        // The longest gap between two checks that counts, and the first that does not.
        for (gap, counts) in [(WATCH_GAP_MAX, true), (WATCH_GAP_MAX + MS, false)] {
            let mut timer = StallTimer::new(start);
            assert_eq!(timer.elapsed(start + gap) == gap, counts);
        }
    }

    #[test]
    fn reports_a_task_stall_once_and_its_end_once() {
        let start = Instant::now();
        let mut turns = TaskWatch::new(start);
        // Entered just before the first check.
        let events = looks(start, Duration::ZERO, TURN_STALL * 3, |now| turns.handle_look(7, now));
        assert_eq!(events, [(TURN_STALL, StallEvent::Stalled(TURN_STALL))]);
        let end = TURN_STALL * 3 + WATCH_INTERVAL;
        let events = looks(start, end, end * 2, |now| turns.handle_look(8, now));
        assert_eq!(events, [(end, StallEvent::Recovered(end))]);
        assert_eq!(turns.stalls(), 1);
    }

    /// A task that runs at every check, each time in another poll, is busy; a waiting one is idle.
    #[test]
    fn neither_busy_nor_idle_tasks_stall() {
        let start = Instant::now();
        let (mut busy, mut idle) = (TaskWatch::new(start), TaskWatch::new(start));
        let mut moves = u32::MAX - 20;
        let events = looks(start, Duration::ZERO, TURN_STALL * 20, |now| {
            // The counter wraps at its end.
            moves = moves.wrapping_add(2);
            busy.handle_look(moves, now)
        });
        assert_eq!(events, []);
        assert_eq!(
            looks(start, Duration::ZERO, TURN_STALL * 20, |now| idle.handle_look(6, now)),
            []
        );
        assert_eq!((busy.stalls(), idle.stalls()), (0, 0));
    }

    /// Repeated stalls are logged up to a limit, and counted beyond it.
    #[test]
    fn the_warnings_of_one_task_are_limited() {
        let start = Instant::now();
        let mut turns = TaskWatch::new(start);
        let (mut warnings, mut ends, mut now) = (0, 0, start);
        for nth in 0..TURN_WARNINGS_MAX + 3 {
            for _ in 0..10 {
                now += WATCH_INTERVAL;
                match turns.handle_look(2 * nth + 1, now) {
                    Some(StallEvent::Stalled(_)) => warnings += 1,
                    Some(StallEvent::Recovered(_)) => ends += 1,
                    None => {}
                }
            }
        }
        assert_eq!((warnings, ends), (TURN_WARNINGS_MAX, TURN_WARNINGS_MAX));
        assert_eq!(turns.stalls(), TURN_WARNINGS_MAX + 3);
    }

    #[test]
    fn messages_advise_the_operator() {
        let time = Duration::from_millis(3_250);
        let stalled = RuntimeStallMessage(StallEvent::Stalled(time)).to_string();
        assert!(
            stalled.starts_with("the runtime has been stalled for 3.2 s: a bot blocks its thread; "),
            "{stalled}"
        );
        assert!(stalled.contains("spawn_blocking"));
        let over = RuntimeStallMessage(StallEvent::Recovered(time)).to_string();
        assert_eq!(over, "the runtime goes on after a stall of 3.2 s");
        let bot = TaskStallMessage(TaskRole::Bot, StallEvent::Stalled(time)).to_string();
        assert!(
            bot.starts_with("the session's bot has kept its thread for 3.2 s"),
            "{bot}"
        );
        let media = TaskStallMessage(TaskRole::Media, StallEvent::Recovered(time)).to_string();
        assert_eq!(media, "the session's media goes on after a turn of 3.2 s");
    }
}
