//! Remembers recent calls, so that a repeated or replayed webhook does not start a second bot.
//!
//! In: the id of a call, and the time. Out: whether it is new. A call is remembered by its hash,
//! for as long as its signature is valid. Source: `docs/spec/daily.md` 6.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::limits::SIGNATURE_AGE_MAX_S;

/// Dial-in calls that are remembered, so that a repeated webhook starts no second bot: more than a
/// board answers in that time.
const DIALIN_CALLS_MAX: usize = 256;

/// The calls of the last minutes, oldest first.
#[derive(Debug, Default)]
pub struct RecentCalls(VecDeque<(Instant, [u8; 32])>);

impl RecentCalls {
    /// Remembers a call; returns `false` if it is known. Above the cap the oldest is forgotten.
    pub fn insert(&mut self, call_id: &str, now: Instant) -> bool {
        // A webhook signed slightly ahead of this clock is valid for twice as long.
        let kept = Duration::from_secs(2 * SIGNATURE_AGE_MAX_S);
        self.0
            .retain(|(since, _)| now.saturating_duration_since(*since) <= kept);
        let digest = digest(call_id);
        if self.0.iter().any(|(_, known)| *known == digest) {
            return false;
        }
        if self.0.len() >= DIALIN_CALLS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, digest));
        true
    }

    /// Forgets a call without a bot, so that it may be repeated.
    pub fn remove(&mut self, call_id: &str) {
        let digest = digest(call_id);
        self.0.retain(|(_, known)| *known != digest);
    }
}

fn digest(call_id: &str) -> [u8; 32] {
    Sha256::digest(call_id).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(2 * SIGNATURE_AGE_MAX_S);

    #[test]
    fn remembers_a_call_while_its_signature_is_valid() {
        let (mut calls, now) = (RecentCalls::default(), Instant::now());
        assert!(calls.insert("c1", now) && calls.insert("c2", now));
        assert!(!calls.insert("c1", now) && !calls.insert("c1", now + LATER));
        assert!(calls.insert("c1", now + LATER + Duration::from_secs(1)));
    }

    #[test]
    fn a_removed_call_may_return() {
        let (mut calls, now) = (RecentCalls::default(), Instant::now());
        assert!(calls.insert("c1", now) && calls.insert("c2", now));
        calls.remove("c1");
        assert!(calls.insert("c1", now) && !calls.insert("c2", now));
    }

    #[test]
    fn caps_remembered_calls() {
        let (mut calls, now) = (RecentCalls::default(), Instant::now());
        for nth in 0..=DIALIN_CALLS_MAX {
            assert!(calls.insert(&nth.to_string(), now));
        }
        assert_eq!(calls.0.len(), DIALIN_CALLS_MAX);
        assert!(!calls.insert("1", now), "the second is remembered still");
        assert!(calls.insert("0", now), "the first made room");
    }
}
