//! Which calls have a bot already: a webhook that is sent again, by its provider or by somebody who has seen it, begins no
//! second one.
//!
//! In: the name of a call, and the time. Out: whether it is new. It is remembered as long as a signature is good, and by its
//! hash alone.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::limits::{DIALIN_CALLS_MAX, SIGNATURE_AGE_MAX_S};

/// The calls of the last minutes, the oldest first.
#[derive(Debug, Default)]
pub struct Taken(VecDeque<(Instant, [u8; 32])>);

impl Taken {
    /// Remembers a call; `false` when it is known. The oldest is forgotten when there are too many.
    pub fn take(&mut self, call_id: &str, now: Instant) -> bool {
        // Signed a moment ahead of this clock, a webhook is good for twice as long.
        let kept = Duration::from_secs(2 * SIGNATURE_AGE_MAX_S);
        self.0
            .retain(|(since, _)| now.saturating_duration_since(*since) <= kept);
        let name = name(call_id);
        if self.0.iter().any(|(_, known)| *known == name) {
            return false;
        }
        if self.0.len() >= DIALIN_CALLS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, name));
        true
    }

    /// Forgets a call that got no bot, so that it may come again.
    pub fn give_back(&mut self, call_id: &str) {
        let name = name(call_id);
        self.0.retain(|(_, known)| *known != name);
    }
}

fn name(call_id: &str) -> [u8; 32] {
    Sha256::digest(call_id).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(2 * SIGNATURE_AGE_MAX_S);

    #[test]
    fn a_call_is_new_once_while_its_signature_is_good() {
        let (mut taken, now) = (Taken::default(), Instant::now());
        assert!(taken.take("c1", now) && taken.take("c2", now));
        assert!(!taken.take("c1", now) && !taken.take("c1", now + LATER));
        assert!(taken.take("c1", now + LATER + Duration::from_secs(1)));
    }

    #[test]
    fn a_call_that_got_no_bot_may_come_again() {
        let (mut taken, now) = (Taken::default(), Instant::now());
        assert!(taken.take("c1", now) && taken.take("c2", now));
        taken.give_back("c1");
        assert!(taken.take("c1", now) && !taken.take("c2", now));
    }

    #[test]
    fn no_more_are_remembered_than_the_cap() {
        let (mut taken, now) = (Taken::default(), Instant::now());
        for nth in 0..=DIALIN_CALLS_MAX {
            assert!(taken.take(&nth.to_string(), now));
        }
        assert_eq!(taken.0.len(), DIALIN_CALLS_MAX);
        assert!(!taken.take("1", now), "the second is remembered still");
        assert!(taken.take("0", now), "the first made room");
    }
}
