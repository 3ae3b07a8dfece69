//! The drain (`--drain`): after the first signal, live sessions continue and no new one begins.
//!
//! In: the time limit, the sessions, and further signals. Out: why it ended, and INFO lines with
//! the number of remaining sessions. Without sessions, or sockets that may become one, it ends at
//! once.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, interval_at, sleep};

use crate::io::tasks::SlotPool;
use crate::proto::counts::SessionCount;

/// Interval of the log lines that count the sessions a drain still waits for.
const DRAIN_REPORT: Duration = Duration::from_secs(10);

/// Why a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// No session is left.
    Empty,
    TimeUp,
    /// A further signal of this name.
    Signal(&'static str),
}

impl fmt::Display for DrainEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DrainEnd::Empty => f.write_str("all sessions have ended"),
            DrainEnd::TimeUp => f.write_str("the drain time is over"),
            DrainEnd::Signal(name) => write!(f, "{name} again"),
        }
    }
}

/// Waits until `empty` completes, the time is up, or a further signal arrives. `live` is counted
/// for the log.
pub async fn drain(
    time: Duration,
    live: &SlotPool,
    empty: impl Future<Output = ()>,
    again: impl Future<Output = &'static str>,
) -> DrainEnd {
    let mut reported = live.count();
    log::info!(
        "waiting up to {} s for {}; new callers are refused",
        time.as_secs(),
        SessionCount(reported)
    );
    let mut empty = pin!(empty);
    let mut again = pin!(again);
    let mut time_up = pin!(sleep(time));
    let mut report = interval_at(Instant::now() + DRAIN_REPORT, DRAIN_REPORT);
    loop {
        tokio::select! {
            biased;
            () = &mut empty => return DrainEnd::Empty,
            name = &mut again => return DrainEnd::Signal(name),
            () = &mut time_up => return DrainEnd::TimeUp,
            _ = report.tick() => {
                let left = live.count();
                if left != reported {
                    log::info!("waiting for {}", SessionCount(left));
                    reported = left;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns how the drain ended and how long it took, by a paused clock.
    async fn drained(
        time: Duration,
        live: &SlotPool,
        hang_ups: &SlotPool,
        again: impl Future<Output = &'static str>,
    ) -> (DrainEnd, Duration) {
        let start = Instant::now();
        let empty = async {
            live.wait_empty().await;
            hang_ups.wait_empty().await;
        };
        let over = drain(time, live, empty, again).await;
        (over, start.elapsed())
    }

    async fn after<T>(time: Duration, value: T) -> T {
        sleep(time).await;
        value
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_with_its_sessions_or_its_time() {
        let (live, hang_ups) = (SlotPool::new(8), SlotPool::new(8));
        let without_sessions = drained(MINUTE, &live, &hang_ups, pending()).await;
        assert_eq!(without_sessions, (DrainEnd::Empty, Duration::ZERO));
        for (lasts, over) in [
            (MINUTE / 2, (DrainEnd::Empty, MINUTE / 2)),
            (MINUTE * 2, (DrainEnd::TimeUp, MINUTE)),
        ] {
            let (first, last) = (
                live.try_acquire().expect("a free slot"),
                live.try_acquire().expect("a free slot"),
            );
            let leaving = tokio::spawn(async move {
                drop(after(lasts / 2, first).await);
                drop(after(lasts / 2, last).await);
            });
            assert_eq!(drained(MINUTE, &live, &hang_ups, pending()).await, over);
            leaving.await.expect("it does not panic");
        }
    }

    /// The drain waits for the hang-up of the last call.
    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_hang_ups() {
        let (live, hang_ups) = (SlotPool::new(8), SlotPool::new(8));
        let slot = hang_ups.try_acquire().expect("a free slot");
        let request = tokio::spawn(async move { drop(after(MINUTE / 4, slot).await) });
        assert_eq!(
            drained(MINUTE, &live, &hang_ups, pending()).await,
            (DrainEnd::Empty, MINUTE / 4)
        );
        request.await.expect("it does not panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_further_signal_ends_the_drain() {
        let (live, hang_ups) = (SlotPool::new(8), SlotPool::new(8));
        let _stays = live.try_acquire();
        let again = after(MINUTE / 4, "SIGTERM");
        let over = drained(MINUTE, &live, &hang_ups, again).await;
        assert_eq!(over, (DrainEnd::Signal("SIGTERM"), MINUTE / 4));
    }
}
