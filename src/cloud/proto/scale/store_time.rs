//! The time by which requests to the object store are signed.
//!
//! In: the date of each answer of the store, and both clocks of this machine. Out: the time for a
//! signature. A store refuses what is signed more than 15 minutes away from its own time
//! (`RequestTimeTooSkewed`), so its time is used while the clock of this machine differs from it.
//! Source: Amazon S3 API Reference, "Authenticating Requests".

use std::time::{Duration, Instant};

use edge_runner_proto::time::ClockDifference;

/// The time of the store, where it is another one.
#[derive(Debug, Default)]
pub struct StoreTime {
    /// The last date of the store, in milliseconds since 1970, and when it came.
    of_store: Option<(Instant, u64)>,
}

/// What a date of the store has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    /// Signatures are made by the time of the store from now on.
    Differs(ClockDifference),
    /// They are made by the clock of this machine again.
    Agrees,
}

impl StoreTime {
    /// Returns the time for a signature, in milliseconds since 1970; `unix_ms` is that of this
    /// machine.
    pub fn at(&self, now: Instant, unix_ms: u64) -> u64 {
        match self.of_store {
            None => unix_ms,
            Some((at, date_ms)) => {
                let passed = now.saturating_duration_since(at);
                date_ms.saturating_add(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
            }
        }
    }

    /// Handles the date of an answer, in seconds since 1970.
    pub fn handle_date(&mut self, date_s: u64, now: Instant, unix_ms: u64) -> Option<TimeChange> {
        let difference = ClockDifference::of(unix_ms / 1_000, date_s);
        let date_ms = Duration::from_secs(date_s).as_millis();
        let of_store = difference.map(|_| (now, u64::try_from(date_ms).unwrap_or(u64::MAX)));
        let before = std::mem::replace(&mut self.of_store, of_store);
        match (difference, before) {
            (Some(difference), None) => Some(TimeChange::Differs(difference)),
            (None, Some(_)) => Some(TimeChange::Agrees),
            (None, None) | (Some(_), Some(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_795_904_000;
    const DAY_S: u64 = 86_400;

    #[test]
    fn a_clock_that_is_right_signs() {
        let (mut time, now) = (StoreTime::default(), Instant::now());
        assert_eq!(time.at(now, NOW_S * 1_000), NOW_S * 1_000);
        assert_eq!(time.handle_date(NOW_S - 59, now, NOW_S * 1_000 + 999), None);
        assert_eq!(time.at(now, NOW_S * 1_000 + 5), NOW_S * 1_000 + 5);
    }

    /// A week behind, then right: the time of the store holds until the clock agrees, and goes on
    /// meanwhile.
    #[test]
    fn the_store_knows_the_time_better() {
        let (mut time, now) = (StoreTime::default(), Instant::now());
        let behind_ms = (NOW_S - 7 * DAY_S) * 1_000;
        let Some(TimeChange::Differs(difference)) = time.handle_date(NOW_S, now, behind_ms) else {
            panic!("the clocks differ");
        };
        assert_eq!(difference.to_string(), "this machine's clock is 7 days behind");
        let second = Duration::from_secs(1);
        assert_eq!(time.at(now + second, behind_ms + 1_000), (NOW_S + 1) * 1_000);
        assert_eq!(time.handle_date(NOW_S + 1, now + second, behind_ms + 1_000), None);
        // It was set right.
        assert_eq!(time.at(now + 2 * second, (NOW_S + 2) * 1_000), (NOW_S + 2) * 1_000);
        let right_ms = (NOW_S + 3) * 1_000;
        assert_eq!(
            time.handle_date(NOW_S + 3, now + 3 * second, right_ms),
            Some(TimeChange::Agrees)
        );
        assert_eq!(time.at(now + 9 * second, right_ms + 7), right_ms + 7);
        assert!(time.handle_date(u64::MAX, now, 0).is_some());
        assert_eq!(time.at(now + second, 0), u64::MAX);
    }
}
