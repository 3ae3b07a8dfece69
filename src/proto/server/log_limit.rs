//! A limit on the log lines that one caller can cause, so that a flood neither wears out a memory
//! card nor hides other callers.
//!
//! In: the address of the caller that causes a line, whether it has the API key, and `now`. Out:
//! whether the line is written, and how many were suppressed since the last report. Each minute has
//! a budget per caller and one for all callers; an IPv6 caller is a network of 64 bits. Callers
//! beyond the table's cap share one count. Callers with the key have a budget of their own, which
//! no flood of others can use up.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use crate::limits::{LINES_AUTHORISED_MAX, LINES_MAX, LINES_PER_CALLER_MAX, LINES_WINDOW};
use crate::server::source::SourceKey;

/// Rejected bodies that are logged per `LINES_WINDOW`: a broken client repeats itself.
const LOGGED_BODIES_MAX: u32 = 30;
/// Addresses that have log counters of their own; further addresses in a window share one counter.
const LOGGED_CALLERS_MAX: usize = 64;

/// The counters of this minute.
#[derive(Debug, Default)]
pub struct LogLimit {
    window: Option<Instant>,
    all: u32,
    sources: HashMap<SourceKey, u32>,
    /// Lines of callers that are not in `sources`.
    others: u32,
    /// Those of callers with the API key.
    authorised: u32,
    bodies: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Requests to write a log line of `caller`. `Some` permits it, with the number of suppressed
    /// lines to report now, usually 0.
    pub fn allow(&mut self, caller: IpAddr, now: Instant) -> Option<u64> {
        self.roll_window(now);
        let caller = SourceKey::from(caller);
        let is_known = self.sources.contains_key(&caller) || self.sources.len() < LOGGED_CALLERS_MAX;
        let lines = match is_known {
            true => self.sources.entry(caller).or_default(),
            false => &mut self.others,
        };
        if self.all >= LINES_MAX || *lines >= LINES_PER_CALLER_MAX {
            self.suppressed += 1;
            return None;
        }
        *lines += 1;
        self.all += 1;
        Some(self.report())
    }

    /// Takes leave to write a line that a caller with the API key has caused, like
    /// [`LogLimit::allow`].
    pub fn allow_authorised(&mut self, now: Instant) -> Option<u64> {
        self.roll_window(now);
        if self.authorised >= LINES_AUTHORISED_MAX {
            self.suppressed += 1;
            return None;
        }
        self.authorised += 1;
        Some(self.report())
    }

    /// Returns the number of lines that were left out and not yet reported, for the end of the log.
    pub fn take_suppressed(&mut self) -> u64 {
        std::mem::take(&mut self.suppressed)
    }

    /// Returns the number to report with the line that was just allowed. The first line of a minute
    /// reports the last one, so that one line has the whole number.
    fn report(&mut self) -> u64 {
        match self.all + self.authorised {
            1 => self.take_suppressed(),
            _ => 0,
        }
    }

    /// Requests to log a rejected body, which is much longer than other lines; its own line is
    /// requested separately.
    pub fn allow_body(&mut self, now: Instant) -> bool {
        self.roll_window(now);
        let granted = self.bodies < LOGGED_BODIES_MAX;
        self.bodies += u32::from(granted);
        self.suppressed += u64::from(!granted);
        granted
    }

    /// Starts a new minute when the last one is over.
    fn roll_window(&mut self, now: Instant) {
        if self.window.is_none_or(|start| now >= start + LINES_WINDOW) {
            *self = LogLimit {
                window: Some(now),
                suppressed: self.suppressed,
                ..LogLimit::default()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Returns the address of the n-th caller.
    fn nth(n: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + n).to_be_bytes())
    }

    /// The lines of one caller are limited, those of another are not, and the next minute reports
    /// the number of suppressed lines once.
    #[test]
    fn the_lines_of_one_caller_are_limited() {
        let (mut lines, start) = (LogLimit::default(), Instant::now());
        for _ in 0..LINES_PER_CALLER_MAX {
            assert_eq!(lines.allow(nth(1), start), Some(0));
        }
        assert_eq!(lines.allow(nth(1), start + TICK), None);
        assert_eq!(lines.allow(nth(2), start + TICK), Some(0));
        assert_eq!(lines.allow(nth(1), start + LINES_WINDOW - TICK), None);
        assert_eq!(lines.allow(nth(1), start + LINES_WINDOW), Some(2));
        assert_eq!(lines.allow(nth(1), start + LINES_WINDOW), Some(0));
    }

    /// A flood without the key leaves the lines of callers with the key their own budget, which is
    /// capped as well.
    #[test]
    fn callers_with_the_key_have_a_budget_of_their_own() {
        let (mut lines, start) = (LogLimit::default(), Instant::now());
        for n in 0..=LINES_MAX {
            assert_eq!(lines.allow(nth(n % 32), start).is_some(), n < LINES_MAX);
        }
        for _ in 0..LINES_AUTHORISED_MAX {
            assert_eq!(lines.allow_authorised(start), Some(0));
        }
        assert_eq!(lines.allow_authorised(start), None);
        assert_eq!(lines.allow_authorised(start + LINES_WINDOW), Some(2));
        assert_eq!(lines.allow(nth(1), start + LINES_WINDOW), Some(0));
    }

    /// The end of the log reports what the next line would have reported, once.
    #[test]
    fn the_number_is_taken_at_the_end() {
        let (mut lines, start) = (LogLimit::default(), Instant::now());
        for _ in 0..LINES_PER_CALLER_MAX + 3 {
            lines.allow(nth(1), start);
        }
        assert_eq!((lines.take_suppressed(), lines.take_suppressed()), (3, 0));
    }

    #[test]
    fn the_lines_of_all_callers_are_limited() {
        let (mut lines, start) = (LogLimit::default(), Instant::now());
        for n in 0..LINES_MAX {
            assert_eq!(lines.allow(nth(n % 32), start), Some(0), "{n}");
        }
        assert_eq!(lines.allow(nth(1_000), start), None);
        assert_eq!(lines.allow(nth(1_000), start + LINES_WINDOW), Some(1));
    }

    /// Callers beyond the table share one counter; known callers keep theirs, and memory is
    /// bounded.
    #[test]
    fn the_number_of_tracked_callers_is_limited() {
        let (mut lines, start) = (LogLimit::default(), Instant::now());
        for n in 0..LOGGED_CALLERS_MAX as u32 {
            assert_eq!(lines.allow(nth(n), start), Some(0));
        }
        for n in 0..LINES_PER_CALLER_MAX {
            assert_eq!(lines.allow(nth(10_000 + n), start), Some(0));
        }
        assert_eq!(lines.allow(nth(20_000), start), None);
        assert_eq!(lines.allow(nth(0), start), Some(0));
        assert_eq!(lines.sources.len(), LOGGED_CALLERS_MAX);
    }

    /// All addresses of one network are one caller.
    #[test]
    fn a_network_is_one_caller() {
        let (mut lines, start) = (LogLimit::default(), Instant::now());
        for host in 0..LINES_PER_CALLER_MAX {
            assert_eq!(lines.allow(address(&format!("2001:db8::{host:x}")), start), Some(0));
        }
        assert_eq!(lines.allow(address("2001:db8::ffff:1"), start), None);
        assert_eq!(lines.allow(address("2001:db8:0:1::1"), start), Some(0));
    }

    /// Rejected bodies are limited per minute, and suppressed ones are reported too.
    #[test]
    fn logged_bodies_are_limited() {
        let (mut lines, start) = (LogLimit::default(), Instant::now());
        let end = start + LINES_WINDOW;
        for _ in 0..LOGGED_BODIES_MAX {
            assert!(lines.allow_body(start));
        }
        assert!(!lines.allow_body(start) && !lines.allow_body(end - TICK));
        assert_eq!(lines.allow(nth(1), end), Some(2));
        assert!(lines.allow_body(end));
    }
}
