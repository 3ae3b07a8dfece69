//! How long a service has failed, against the patience of the caller.
//!
//! In: when the service was asked, when it failed or answered, the wait that it asks for, and the
//! patience. Out: when to ask again, whether to tell the caller that it takes a while, and whether
//! the patience is over. A single failure never ends it: the service was away for an unknown time.

use std::time::{Duration, Instant};

/// The pause before the first further attempt. Each later one is twice as long, up to
/// [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// A wait from this length on is reported to the caller.
const WAIT_REPORTED: Duration = Duration::from_secs(2);

/// The failures of one service since it answered.
#[derive(Debug, Default)]
pub struct Outage {
    asked: Option<Instant>,
    /// The first and the newest failure.
    since: Option<Instant>,
    newest: Option<Instant>,
    failures: u32,
    is_reported: bool,
    retry_at: Option<Instant>,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageStep {
    /// Ask again at [`Outage::retry_at`], and tell the caller first.
    Retry { is_to_report: bool },
    /// The patience is over.
    Over,
}

impl Outage {
    /// The service is asked.
    pub fn handle_asked(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// The service has answered.
    pub fn handle_answered(&mut self) {
        *self = Outage::default();
    }

    /// The service has failed. It may ask for a wait.
    pub fn handle_failed(&mut self, wait: Option<Duration>, patience: Duration, now: Instant) -> OutageStep {
        // Whether it was away all the time since the last failure is unknown.
        let is_separate = |(asked, newest): (Instant, Instant)| asked > newest + patience.max(PAUSE_MAX);
        if self.asked.zip(self.newest).is_some_and(is_separate) {
            self.handle_answered();
        }
        let deadline = *self.since.get_or_insert(now) + patience;
        self.newest = Some(now);
        self.failures += 1;
        if self.failures > 1 && now >= deadline {
            return OutageStep::Over;
        }
        let pause = PAUSE.saturating_mul(1 << (self.failures - 1).min(8)).min(PAUSE_MAX);
        let wait = wait.map_or(pause, |wait| wait.max(pause));
        let latest = deadline.max(now + PAUSE);
        // An absurd wait ends with the patience.
        let at = now.checked_add(wait).map_or(latest, |at| at.min(latest));
        self.retry_at = Some(at);
        let is_to_report = !self.is_reported && (self.failures > 1 || at >= now + WAIT_REPORTED);
        self.is_reported |= is_to_report;
        OutageStep::Retry { is_to_report }
    }

    /// Returns when the service may be asked again; `None` if it may be asked now.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Forgets a wait that is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.retry_at = self.retry_at.filter(|at| now < *at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[allow(clippy::disallowed_methods, reason = "a base for the times of a test")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn attempts_go_on_until_the_patience_is_over() {
        let (mut outage, start) = (Outage::default(), start());
        let (mut now, mut attempts, mut reports) = (start, Vec::new(), 0);
        loop {
            outage.handle_asked(now);
            match outage.handle_failed(None, PATIENCE, now) {
                OutageStep::Over => break,
                OutageStep::Retry { is_to_report } => reports += u32::from(is_to_report),
            }
            now = outage.retry_at().expect("another attempt");
            outage.handle_timeout(now);
            assert_eq!(outage.retry_at(), None);
            attempts.push((now - start).as_millis());
        }
        assert_eq!(
            attempts,
            [500, 1_500, 3_500, 7_500, 11_500, 15_500, 19_500, 23_500, 27_500, 30_000]
        );
        assert_eq!(reports, 1);
    }

    #[test]
    fn the_service_names_the_wait_within_the_patience() {
        let start = start();
        for (wait, waits) in [(ms(6_000), ms(6_000)), (ms(100), ms(500)), (Duration::MAX, PATIENCE)] {
            let mut outage = Outage::default();
            let is_to_report = wait > ms(2_000);
            let step = outage.handle_failed(Some(wait), PATIENCE, start);
            assert_eq!(step, OutageStep::Retry { is_to_report });
            assert_eq!(outage.retry_at(), Some(start + waits), "{wait:?}");
        }
    }

    #[test]
    fn one_failure_never_ends_the_patience_and_separate_ones_do_not_add_up() {
        let (mut outage, start) = (Outage::default(), start());
        outage.handle_asked(start);
        assert_ne!(
            outage.handle_failed(None, Duration::ZERO, start + PATIENCE),
            OutageStep::Over
        );
        assert_eq!(
            outage.handle_failed(None, Duration::ZERO, start + PATIENCE),
            OutageStep::Over
        );
        outage.handle_answered();
        for minutes in 0..5 {
            let now = start + Duration::from_secs(60 * minutes);
            outage.handle_asked(now);
            assert_ne!(outage.handle_failed(None, PATIENCE, now), OutageStep::Over);
        }
        // A request that itself takes longer than the patience belongs to the same outage.
        outage.handle_asked(start + Duration::from_secs(241));
        let step = outage.handle_failed(None, PATIENCE, start + Duration::from_secs(301));
        assert_eq!(step, OutageStep::Over);
    }
}
