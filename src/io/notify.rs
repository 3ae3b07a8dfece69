//! What systemd, or another supervisor that speaks its protocol, is told: ready, reloaded, stopping, alive, and how many
//! sessions live.
//!
//! In: the state of the runner. Out: datagrams to the socket that `NOTIFY_SOCKET` names; without it, nothing. Sending may
//! wait for the supervisor, so `io::watch` does it from its own thread. A supervisor that cannot be reached is one WARN line.
//! Source: sd_notify(3), sd_watchdog_enabled(3), systemd.service(5).

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::limits::{STATUS_INTERVAL, WATCH_INTERVAL};

/// The supervisor, if there is one.
pub struct Supervisor {
    listens: bool,
    /// Between two signs of life, if it waits for any.
    ping: Option<Duration>,
    status: Status,
}

impl Supervisor {
    /// Looks for it in the environment of the process.
    pub fn find() -> Self {
        let listens = std::env::var_os("NOTIFY_SOCKET").is_some_and(|path| !path.is_empty());
        Supervisor {
            listens,
            ping: sd_notify::watchdog_enabled().filter(|_| listens),
            status: Status::default(),
        }
    }

    /// Returns how often it must be looked at: it should hear twice in the time that it waits.
    pub fn interval(&self) -> Duration {
        self.ping.map_or(WATCH_INTERVAL, interval)
    }

    pub fn ready(&mut self) {
        self.tell(&[NotifyState::Ready]);
    }

    /// Tells of the end, which takes so long at most: a drain may be longer than the supervisor's patience.
    pub fn stopping(&mut self, within: Duration) {
        let within = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
        self.tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(within)]);
    }

    pub fn alive(&mut self) {
        if self.ping.is_some() {
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    /// Tells how many sessions live, if that is news.
    pub fn sessions(&mut self, live: usize, stopping: bool, now: Instant) {
        if self.listens
            && let Some(text) = self.status.news(live, stopping, now)
        {
            self.tell(&[NotifyState::Status(&text)]);
        }
    }

    fn tell(&mut self, states: &[NotifyState<'_>]) {
        if !self.listens {
            return;
        }
        if let Err(error) = sd_notify::notify(states) {
            log::warn!("the supervisor at NOTIFY_SOCKET cannot be told anything: {error}");
            self.listens = false;
            self.ping = None;
        }
    }
}

/// Tells the supervisor that files were read again, as it asked by SIGHUP. Call it from a task; it does not wait.
pub fn reloaded() {
    tokio::task::spawn_blocking(|| {
        let told = NotifyState::monotonic_usec_now()
            .and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now]))
            .and_then(|()| sd_notify::notify(&[NotifyState::Ready]));
        if let Err(error) = told {
            log::warn!("the supervisor at NOTIFY_SOCKET was not told of the reload: {error}");
        }
    });
}

/// Half of the time that a supervisor waits for a sign of life, and not more often than a thread can do it.
fn interval(watchdog: Duration) -> Duration {
    (watchdog / 2).clamp(Duration::from_millis(10), WATCH_INTERVAL)
}

/// The line about sessions: told when it changes, and not for each of a hundred short calls.
#[derive(Default)]
struct Status {
    told: Option<(usize, bool, Instant)>,
}

impl Status {
    fn news(&mut self, live: usize, stopping: bool, now: Instant) -> Option<String> {
        if let Some((told, was_stopping, at)) = self.told
            && ((told, was_stopping) == (live, stopping) || now.saturating_duration_since(at) < STATUS_INTERVAL)
        {
            return None;
        }
        self.told = Some((live, stopping, now));
        let noun = if live == 1 { "session" } else { "sessions" };
        Some(match (stopping, live) {
            (true, 0) => "stopping".to_owned(),
            (true, _) => format!("stopping, {live} {noun} left"),
            (false, _) => format!("{live} {noun} live"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_supervisor_hears_twice_in_the_time_that_it_waits() {
        for (watchdog_ms, interval_ms) in [(60_000, 500), (1_000, 500), (999, 499), (20, 10), (0, 10)] {
            let every = interval(Duration::from_millis(watchdog_ms)).as_millis();
            assert_eq!(every, interval_ms, "{watchdog_ms} ms");
        }
    }

    /// At the first look, when it changes, and not before the last line is old enough; what was missed meanwhile follows.
    #[test]
    fn the_number_of_sessions_is_told_when_it_changes() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut status = Status::default();
        let mut news = |live, stopping, at| status.news(live, stopping, start + at);
        assert_eq!(news(0, false, ms(0)).as_deref(), Some("0 sessions live"));
        assert_eq!(news(0, false, ms(600_000)), None);
        assert_eq!(news(1, false, ms(600_500)).as_deref(), Some("1 session live"));
        let next = ms(600_500) + STATUS_INTERVAL;
        assert_eq!(news(2, false, next - ms(1)), None);
        assert_eq!(news(2, false, next).as_deref(), Some("2 sessions live"));
        assert_eq!(news(2, true, next * 2).as_deref(), Some("stopping, 2 sessions left"));
        assert_eq!(news(0, true, next * 3).as_deref(), Some("stopping"));
    }
}
