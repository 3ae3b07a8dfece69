//! Whether the caller is there, and when it has to be asked.
//!
//! In: signs of life, which only the caller can give; checks that left; inquiries of others; `now`.
//! Out: when a check is due, and what an inquiry has found.
//! - A caller who sends audio is heard 50 times a second, and needs no questions.
//! - A quiet one, who pushes to talk or has muted, is asked every second, and twice a second while
//!   it does not answer: so the length of an outage is known to a second, and its end is noticed at
//!   once.
//! - str0m checks every 3 s, and gives up after some 20 s without an answer. Where it has, a check
//!   leaves all the same: some devices close 10 s after the last.
//! - An inquiry asks at once, and quickly. It has found nobody when a number of questions, not a
//!   time, went unanswered: a machine that was busy has asked nothing meanwhile.

use std::time::{Duration, Instant};

use crate::limits::{CHECK_INTERVAL_MAX, INQUIRY_CHECKS, INQUIRY_INTERVAL, QUIET_AFTER, QUIET_INTERVAL};

/// What an inquiry has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The caller has answered, or said something of its own accord.
    Present,
    /// It answered none of the questions.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    None,
    Running {
        asked: u32,
        next: Instant,
    },
    /// It has found nobody, and nothing was heard since.
    Vain,
}

pub struct Liveness {
    /// When the caller last sent what only it can send.
    heard: Instant,
    /// When the last check left, str0m's among them.
    checked: Instant,
    /// When this last had one made.
    asked: Instant,
    /// That one is not answered yet.
    is_asked: bool,
    inquiry: Probe,
    found: Option<ProbeOutcome>,
}

impl Liveness {
    pub fn new(now: Instant) -> Self {
        Liveness {
            heard: now,
            checked: now,
            asked: now,
            is_asked: false,
            inquiry: Probe::None,
            found: None,
        }
    }

    /// Tells how long the caller has been silent.
    pub fn silent_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }

    /// Returns when the caller was last heard.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// The caller is heard.
    pub fn handle_heard(&mut self, now: Instant) {
        self.heard = now;
        if let Probe::Running { .. } = self.inquiry {
            self.found = Some(ProbeOutcome::Present);
        }
        self.inquiry = Probe::None;
        self.is_asked = false;
    }

    /// A check has left.
    pub fn handle_check(&mut self, now: Instant) {
        self.checked = now;
    }

    /// Somebody wants to know whether the caller is there; `can_ask` says that it can be asked.
    pub fn inquire(&mut self, can_ask: bool, now: Instant) {
        match self.inquiry {
            Probe::Running { .. } => {}
            Probe::Vain => self.found = Some(ProbeOutcome::Silent),
            Probe::None if !can_ask => self.found = Some(ProbeOutcome::Present),
            Probe::None => {
                // Those who inquire again and again make the caller no busier. A question that is
                // on its way counts.
                let next = now.max(self.asked + INQUIRY_INTERVAL);
                let asked = u32::from(next > now && self.is_asked);
                self.inquiry = Probe::Running { asked, next };
            }
        }
    }

    /// Returns what an inquiry has found, once.
    pub fn take_found(&mut self) -> Option<ProbeOutcome> {
        self.found.take()
    }

    /// Tells whether a check is due, and counts it as made.
    pub fn take_due(&mut self, now: Instant) -> bool {
        let mut due = now >= self.regular();
        if let Probe::Running { asked, next } = self.inquiry
            && now >= next
        {
            if asked == INQUIRY_CHECKS {
                self.inquiry = Probe::Vain;
                self.found = Some(ProbeOutcome::Silent);
            } else {
                let (asked, next) = (asked + 1, now + INQUIRY_INTERVAL);
                self.inquiry = Probe::Running { asked, next };
                due = true;
            }
        }
        if due {
            self.asked = now;
            self.checked = now;
            self.is_asked = true;
        }
        due
    }

    /// When a check is due though nobody inquires.
    fn regular(&self) -> Instant {
        let quiet = (self.heard + QUIET_AFTER).max(self.asked + QUIET_INTERVAL);
        quiet.min(self.checked + CHECK_INTERVAL_MAX)
    }

    pub fn next(&self) -> Instant {
        match self.inquiry {
            Probe::Running { next, .. } => next.min(self.regular()),
            Probe::None | Probe::Vain => self.regular(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    /// Lets time pass, a millisecond at a time, and returns when a check was due.
    fn checks(
        liveness: &mut Liveness,
        from: Instant,
        time: Duration,
        mut heard: impl FnMut(Duration) -> bool,
    ) -> Vec<u128> {
        let mut checks = Vec::new();
        let mut at = Duration::ZERO;
        while at <= time {
            if heard(at) {
                liveness.handle_heard(from + at);
            }
            if from + at >= liveness.next() && liveness.take_due(from + at) {
                checks.push(at.as_millis());
            }
            at += TICK;
        }
        checks
    }

    /// Who speaks is asked only so often that no device closes; who is quiet is asked each second,
    /// and who does not answer twice a second.
    #[test]
    fn who_is_quiet_is_asked_more_often() {
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
            if liveness.take_due(now) {
                quiet.push(ms);
            }
            if quiet.last().is_some_and(|asked| asked + 5 == ms) {
                liveness.handle_heard(now);
            }
        }
        assert_eq!(quiet, [1_000, 2_005, 3_010]);
    }

    /// An inquiry asks so many times, so far apart, and has found nobody after the last; a second
    /// one knows that at once, until something is heard.
    #[test]
    fn an_inquiry_counts_its_questions() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        let now = start + Duration::from_millis(300);
        liveness.inquire(true, now);
        liveness.inquire(true, now);
        let took = INQUIRY_INTERVAL * INQUIRY_CHECKS;
        let asked = checks(&mut liveness, now, took - TICK, |_| false);
        assert_eq!(asked.len(), INQUIRY_CHECKS as usize);
        assert_eq!(liveness.take_found(), None);
        checks(&mut liveness, now + took, Duration::ZERO, |_| false);
        assert_eq!(
            (liveness.take_found(), liveness.take_found()),
            (Some(ProbeOutcome::Silent), None)
        );
        liveness.inquire(true, now + took + TICK);
        assert_eq!(liveness.take_found(), Some(ProbeOutcome::Silent));
        liveness.handle_heard(now + took + 2 * TICK);
        assert_eq!(liveness.take_found(), None);
        liveness.inquire(true, now + took + 3 * TICK);
        assert_eq!(liveness.take_found(), None);
        liveness.handle_heard(now + took + 4 * TICK);
        assert_eq!(liveness.take_found(), Some(ProbeOutcome::Present));
    }

    /// A machine that stood still has asked only what it has asked.
    #[test]
    fn a_stall_is_no_silence() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        liveness.inquire(true, start + INQUIRY_INTERVAL);
        let now = start + Duration::from_secs(10);
        assert!(liveness.take_due(now) && !liveness.take_due(now));
        assert_eq!(liveness.take_found(), None);
    }

    /// Whoever inquires all the time has the caller asked no faster.
    #[test]
    fn inquiries_are_asked_at_one_pace() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        let mut asked = Vec::new();
        for ms in 300..2_300 {
            let now = start + Duration::from_millis(ms);
            liveness.inquire(true, now);
            if liveness.take_due(now) {
                asked.push(now);
                liveness.handle_heard(now);
            }
        }
        assert!(
            asked.windows(2).all(|two| two[1] - two[0] >= INQUIRY_INTERVAL),
            "{asked:?}"
        );
        assert!(asked.len() > 8);
    }

    /// Who cannot be asked is not found to be silent.
    #[test]
    fn who_cannot_be_asked_is_there() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        liveness.inquire(false, start);
        assert_eq!(liveness.take_found(), Some(ProbeOutcome::Present));
    }
}
