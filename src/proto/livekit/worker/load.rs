//! The load that a worker reports.
//!
//! In: places that are taken, processor time, and the lateness of timers. Out: a number from 0 to
//! the server's target, and whether the runner is overloaded. The server sends jobs to the workers
//! with the smallest load and none to those at the target. The machine's own load is no measure,
//! since its neighbours would turn callers away; when they starve the runner, its timers are late.
//! Source: `docs/spec/livekit.md` 6.4.

use std::time::{Duration, Instant};

use crate::limits::{WORKER_CPU_PERCENT_MAX, WORKER_LATE, WORKER_LATE_FOR};

/// The load at which no target is exceeded: servers ignore workers at 1.
const LOAD_MAX: f32 = 0.99;
/// Distance to the target while there are places: at the target the server asks no more.
const BELOW_TARGET: f32 = 0.01;

/// Measures the load.
#[derive(Debug)]
pub struct LoadMeter {
    target: f32,
    /// Processors that the runner may use.
    cores: f32,
    /// The last reading of the processor time.
    last: Option<(Instant, Duration)>,
    /// Share of the processors, from 0 to 1.
    cpu: f32,
    late_since: Option<Instant>,
}

impl LoadMeter {
    /// Creates a meter. `target_percent` is the server's target load in hundredths.
    pub fn new(target_percent: u8, cores: usize) -> Self {
        LoadMeter {
            target: f32::from(target_percent.clamp(1, 100)) / 100.0,
            cores: cores.max(1) as f32,
            last: None,
            cpu: 0.0,
            late_since: None,
        }
    }

    /// Records the processor time of the runner and its bots. A total that has shrunk, because a
    /// program has ended, starts anew.
    pub fn handle_cpu(&mut self, total: Duration, now: Instant) {
        if let Some((at, before)) = self.last.replace((now, total))
            && let Some(used) = total.checked_sub(before)
            && now > at
        {
            self.cpu = (used.as_secs_f32() / (now - at).as_secs_f32() / self.cores).clamp(0.0, 1.0);
        }
    }

    /// Records how late a timer was.
    pub fn handle_lateness(&mut self, late: Duration, now: Instant) {
        if late > WORKER_LATE {
            self.late_since.get_or_insert(now);
        } else {
            self.late_since = None;
        }
    }

    /// Tells whether timers have been late for so long that no caller should be added.
    pub fn is_overloaded(&self, now: Instant) -> bool {
        self.late_since.is_some_and(|since| now >= since + WORKER_LATE_FOR)
    }

    /// Returns the load while there are places.
    pub fn load(&self, used: usize, places: usize) -> f32 {
        let taken = used as f32 / places.max(1) as f32;
        let worked = self.cpu / (f32::from(WORKER_CPU_PERCENT_MAX) / 100.0);
        let load = self.target.min(LOAD_MAX) * taken.max(worked);
        load.min(self.target - BELOW_TARGET).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn is(load: f32, expected: f32) -> bool {
        (load - expected).abs() < 0.001
    }

    #[test]
    fn load_grows_with_places_and_stays_below_the_target() {
        let meter = LoadMeter::new(70, 2);
        assert_eq!(meter.load(0, 8), 0.0);
        assert!(is(meter.load(4, 8), 0.35));
        assert!(is(meter.load(8, 8), 0.69));
        assert!(is(LoadMeter::new(100, 2).load(8, 8), 0.99));
        assert_eq!(LoadMeter::new(1, 2).load(8, 8), 0.0);
    }

    /// The processor counts when it is scarcer than places: 85 % of it is as much as all places.
    #[test]
    fn load_grows_with_the_processor() {
        let start = Instant::now();
        let mut meter = LoadMeter::new(70, 2);
        meter.handle_cpu(Duration::from_secs(100), start);
        assert_eq!(meter.load(0, 8), 0.0, "one reading is no rate");
        meter.handle_cpu(Duration::from_millis(100_850), start + SECOND);
        assert!(is(meter.load(0, 8), 0.35));
        assert!(is(meter.load(8, 8), 0.69), "places are scarcer");
        meter.handle_cpu(Duration::from_millis(102_850), start + 2 * SECOND);
        assert!(is(meter.load(0, 8), 0.69), "never above");
        meter.handle_cpu(Duration::from_secs(1), start + 3 * SECOND);
        assert!(
            is(meter.load(0, 8), 0.69),
            "a program has ended; the reading before is kept"
        );
        meter.handle_cpu(Duration::from_secs(1), start + 4 * SECOND);
        assert_eq!(meter.load(0, 8), 0.0);
    }

    #[test]
    fn late_timers_are_an_overload_when_they_last() {
        let start = Instant::now();
        let mut meter = LoadMeter::new(70, 1);
        meter.handle_lateness(WORKER_LATE, start);
        assert!(!meter.is_overloaded(start + WORKER_LATE_FOR));
        meter.handle_lateness(WORKER_LATE + Duration::from_millis(1), start);
        meter.handle_lateness(SECOND, start + SECOND);
        assert!(!meter.is_overloaded(start + WORKER_LATE_FOR - Duration::from_millis(1)));
        assert!(meter.is_overloaded(start + WORKER_LATE_FOR));
        meter.handle_lateness(Duration::ZERO, start + WORKER_LATE_FOR);
        assert!(!meter.is_overloaded(start + WORKER_LATE_FOR));
    }
}
