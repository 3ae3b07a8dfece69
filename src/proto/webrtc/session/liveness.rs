//! Decides when to check whether the caller is still there.
//!
//! In: authenticated packets, sent checks, probes of other sessions, and `now`. Out: when a check
//! is due, and the outcome of a probe.
//! - Audio arrives 50 times a second and needs no checks.
//! - A silent caller, for example with push-to-talk, is checked every second, and twice a second
//!   while it does not answer. So the length of an outage is known to a second, and its end is
//!   noticed at once.
//! - str0m checks every 3 s and gives up after about 20 s. Checks continue here, because some
//!   devices close 10 s after the last one.
//! - A probe checks at once and in quick succession. It fails after a number of unanswered checks
//!   rather than a time, so a stalled process does not mistake its own pause for silence.

use std::time::{Duration, Instant};

use crate::limits::{CHECK_INTERVAL_MAX, PROBE_CHECKS, PROBE_INTERVAL};

/// Silence of a peer after which it is checked; a peer that sends audio is never silent for so
/// long.
const QUIET_AFTER: Duration = Duration::from_secs(1);
/// Interval of such checks while they are unanswered: the end of an outage is noticed within it.
const QUIET_INTERVAL: Duration = Duration::from_millis(500);

/// The outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The caller answered or sent something.
    Present,
    /// The caller answered no check.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    None,
    Running {
        last_own_check: u32,
        next: Instant,
    },
    /// The probe failed, and nothing was heard since.
    Unanswered,
}

pub struct Liveness {
    /// When the caller last sent an authenticated packet.
    last_received: Instant,
    /// When the last check was sent, including those of str0m.
    last_check: Instant,
    /// When this module last requested a check.
    asked: Instant,
    /// That check is unanswered.
    awaits_answer: bool,
    probe: Probe,
    outcome: Option<ProbeOutcome>,
}

impl Liveness {
    pub fn new(now: Instant) -> Self {
        Liveness {
            last_received: now,
            last_check: now,
            asked: now,
            awaits_answer: false,
            probe: Probe::None,
            outcome: None,
        }
    }

    /// Returns how long the caller has been silent.
    pub fn silent_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_received)
    }

    /// Returns when the caller was last heard.
    pub fn last_received(&self) -> Instant {
        self.last_received
    }

    /// Records an authenticated packet.
    pub fn handle_received(&mut self, now: Instant) {
        self.last_received = now;
        if let Probe::Running { .. } = self.probe {
            self.outcome = Some(ProbeOutcome::Present);
        }
        self.probe = Probe::None;
        self.awaits_answer = false;
    }

    /// Records a sent check.
    pub fn handle_check(&mut self, now: Instant) {
        self.last_check = now;
    }

    /// Starts a probe; `can_ask` is false if no check can be sent.
    pub fn start_probe(&mut self, can_ask: bool, now: Instant) {
        match self.probe {
            Probe::Running { .. } => {}
            Probe::Unanswered => self.outcome = Some(ProbeOutcome::Silent),
            Probe::None if !can_ask => self.outcome = Some(ProbeOutcome::Present),
            Probe::None => {
                // Repeated probes do not increase the rate of checks. A pending check counts.
                let next = now.max(self.asked + PROBE_INTERVAL);
                let asked = u32::from(next > now && self.awaits_answer);
                self.probe = Probe::Running {
                    last_own_check: asked,
                    next,
                };
            }
        }
    }

    /// Returns the outcome of a probe, once.
    pub fn take_outcome(&mut self) -> Option<ProbeOutcome> {
        self.outcome.take()
    }

    /// Returns whether a check is due, and counts it as sent.
    pub fn take_due_check(&mut self, now: Instant) -> bool {
        let mut due = now >= self.next_regular_check();
        if let Probe::Running {
            last_own_check: asked,
            next,
        } = self.probe
            && now >= next
        {
            if asked == PROBE_CHECKS {
                self.probe = Probe::Unanswered;
                self.outcome = Some(ProbeOutcome::Silent);
            } else {
                let (asked, next) = (asked + 1, now + PROBE_INTERVAL);
                self.probe = Probe::Running {
                    last_own_check: asked,
                    next,
                };
                due = true;
            }
        }
        if due {
            self.asked = now;
            self.last_check = now;
            self.awaits_answer = true;
        }
        due
    }

    /// Returns when a check is due without a probe.
    fn next_regular_check(&self) -> Instant {
        let quiet = (self.last_received + QUIET_AFTER).max(self.asked + QUIET_INTERVAL);
        quiet.min(self.last_check + CHECK_INTERVAL_MAX)
    }

    pub fn next_check(&self) -> Instant {
        match self.probe {
            Probe::Running { next, .. } => next.min(self.next_regular_check()),
            Probe::None | Probe::Unanswered => self.next_regular_check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    /// Advances the time by milliseconds. Returns when checks were due.
    fn checks(
        liveness: &mut Liveness,
        from: Instant,
        time: Duration,
        mut receives: impl FnMut(Duration) -> bool,
    ) -> Vec<u128> {
        let mut checks = Vec::new();
        let mut at = Duration::ZERO;
        while at <= time {
            if receives(at) {
                liveness.handle_received(from + at);
            }
            if from + at >= liveness.next_check() && liveness.take_due_check(from + at) {
                checks.push(at.as_millis());
            }
            at += TICK;
        }
        checks
    }

    /// A talking caller is checked just often enough for devices to stay connected, a silent one
    /// every second, and twice a second without an answer.
    #[test]
    fn a_silent_caller_is_checked_more_often() {
        let start = Instant::now();
        let every_20_ms = |at: Duration| at.as_millis().is_multiple_of(20);
        let speaking = checks(&mut Liveness::new(start), start, Duration::from_secs(8), every_20_ms);
        assert_eq!(speaking, [3_500, 7_000]);
        let silent = checks(&mut Liveness::new(start), start, Duration::from_secs(3), |_| false);
        assert_eq!(silent, [1_000, 1_500, 2_000, 2_500, 3_000]);
        let mut liveness = Liveness::new(start);
        let mut quiet = Vec::new();
        for ms in 0..4_000 {
            let now = start + Duration::from_millis(ms);
            if liveness.take_due_check(now) {
                quiet.push(ms);
            }
            if quiet.last().is_some_and(|asked| asked + 5 == ms) {
                liveness.handle_received(now);
            }
        }
        assert_eq!(quiet, [1_000, 2_005, 3_010]);
    }

    /// A probe sends its checks at their interval and fails after the last. A second one fails at
    /// once until a packet arrives.
    #[test]
    fn a_probe_counts_its_checks() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        let now = start + Duration::from_millis(300);
        liveness.start_probe(true, now);
        liveness.start_probe(true, now);
        let took = PROBE_INTERVAL * PROBE_CHECKS;
        let asked = checks(&mut liveness, now, took - TICK, |_| false);
        assert_eq!(asked.len(), PROBE_CHECKS as usize);
        assert_eq!(liveness.take_outcome(), None);
        checks(&mut liveness, now + took, Duration::ZERO, |_| false);
        assert_eq!(
            (liveness.take_outcome(), liveness.take_outcome()),
            (Some(ProbeOutcome::Silent), None)
        );
        liveness.start_probe(true, now + took + TICK);
        assert_eq!(liveness.take_outcome(), Some(ProbeOutcome::Silent));
        liveness.handle_received(now + took + 2 * TICK);
        assert_eq!(liveness.take_outcome(), None);
        liveness.start_probe(true, now + took + 3 * TICK);
        assert_eq!(liveness.take_outcome(), None);
        liveness.handle_received(now + took + 4 * TICK);
        assert_eq!(liveness.take_outcome(), Some(ProbeOutcome::Present));
    }

    /// A stalled process has sent only the checks it has sent.
    #[test]
    fn a_stalled_process_does_not_fail_a_probe() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        liveness.start_probe(true, start + PROBE_INTERVAL);
        let now = start + Duration::from_secs(10);
        assert!(liveness.take_due_check(now) && !liveness.take_due_check(now));
        assert_eq!(liveness.take_outcome(), None);
    }

    /// Repeated probes do not raise the rate of checks.
    #[test]
    fn repeated_probes_do_not_raise_the_rate() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        let mut asked = Vec::new();
        for ms in 300..2_300 {
            let now = start + Duration::from_millis(ms);
            liveness.start_probe(true, now);
            if liveness.take_due_check(now) {
                asked.push(now);
                liveness.handle_received(now);
            }
        }
        assert!(
            asked.windows(2).all(|two| two[1] - two[0] >= PROBE_INTERVAL),
            "{asked:?}"
        );
        assert!(asked.len() > 8);
    }

    /// Without a possible check, a probe does not find silence.
    #[test]
    fn a_caller_that_cannot_be_checked_counts_as_present() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        liveness.start_probe(false, start);
        assert_eq!(liveness.take_outcome(), Some(ProbeOutcome::Present));
    }
}
