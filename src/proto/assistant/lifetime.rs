//! How long a session lasts: until its length is reached, or no one speaks any more.
//!
//! In: signs of activity and the time. Out: a request for a goodbye before the end, and the end.

use std::time::{Duration, Instant};

use super::config::AssistantConfig;

/// Time before the end of a session at which the model says goodbye.
const GOODBYE: Duration = Duration::from_secs(30);
/// Silence that ends a session without a configured time.
const IDLE: Duration = Duration::from_secs(300);
const IDLE_TELEPHONE: Duration = Duration::from_secs(30);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeEvent {
    /// The model has to say goodbye, as this text tells it.
    Goodbye(&'static str),
    /// The session is over, for this reason.
    Over(&'static str),
}

/// The lifetime of a session.
#[derive(Debug)]
pub struct Lifetime {
    idle: Duration,
    last_active: Instant,
    goodbye_at: Instant,
    ends_at: Instant,
    said_goodbye: bool,
}

impl Lifetime {
    pub fn new(config: &AssistantConfig, is_telephone: bool, length: Duration, now: Instant) -> Self {
        let idle = if is_telephone { IDLE_TELEPHONE } else { IDLE };
        let ends_at = now + length;
        Lifetime {
            idle: config.idle.unwrap_or(idle),
            last_active: now,
            goodbye_at: ends_at.checked_sub(GOODBYE).unwrap_or(ends_at),
            ends_at,
            said_goodbye: false,
        }
    }

    /// Records that a side is active.
    pub fn keep(&mut self, now: Instant) {
        self.last_active = now;
    }

    /// Returns when to call [`Lifetime::handle_timeout`].
    pub fn poll_timeout(&self, is_caller_speaking: bool, can_answer: bool) -> Instant {
        let goodbye = Some(self.goodbye_at).filter(|_| !self.said_goodbye && can_answer);
        let idle = Some(self.last_active + self.idle).filter(|_| !is_caller_speaking);
        [goodbye, idle].into_iter().flatten().fold(self.ends_at, Instant::min)
    }

    /// Returns what is due.
    pub fn handle_timeout(
        &mut self,
        is_caller_speaking: bool,
        can_answer: bool,
        now: Instant,
    ) -> Option<LifetimeEvent> {
        if now >= self.ends_at {
            Some(LifetimeEvent::Over("the session has reached its length"))
        } else if !is_caller_speaking && now >= self.last_active + self.idle {
            Some(LifetimeEvent::Over("no one spoke"))
        } else if now >= self.goodbye_at && !self.said_goodbye && can_answer {
            self.said_goodbye = true;
            Some(LifetimeEvent::Goodbye(
                "The call ends in half a minute. Say goodbye now, in one short sentence.",
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(is_telephone: bool, now: Instant) -> Lifetime {
        Lifetime::new(&AssistantConfig::default(), is_telephone, Duration::from_secs(900), now)
    }

    #[test]
    fn silence_of_both_sides_ends_a_session() {
        let now = Instant::now();
        for (is_telephone, seconds) in [(false, 300), (true, 30)] {
            let mut lifetime = lifetime(is_telephone, now);
            lifetime.keep(now + Duration::from_secs(1));
            let due = now + Duration::from_secs(1 + seconds);
            assert_eq!(lifetime.poll_timeout(false, true), due);
            assert_eq!(lifetime.handle_timeout(true, true, due), None, "the caller speaks");
            assert_eq!(
                lifetime.handle_timeout(false, true, due),
                Some(LifetimeEvent::Over("no one spoke"))
            );
        }
    }

    #[test]
    fn a_goodbye_precedes_the_end_once() {
        let now = Instant::now();
        let mut lifetime = lifetime(false, now);
        let (goodbye, end) = (now + Duration::from_secs(870), now + Duration::from_secs(900));
        lifetime.keep(goodbye);
        assert_eq!(lifetime.poll_timeout(false, false), end, "no service answers");
        assert_eq!(lifetime.poll_timeout(false, true), goodbye);
        assert!(matches!(
            lifetime.handle_timeout(false, true, goodbye),
            Some(LifetimeEvent::Goodbye(_))
        ));
        assert_eq!(lifetime.handle_timeout(false, true, goodbye), None);
        assert_eq!(lifetime.poll_timeout(false, true), end);
        assert!(matches!(
            lifetime.handle_timeout(true, true, end),
            Some(LifetimeEvent::Over(_))
        ));
    }
}
