//! Returns the memory of start-up and of ended sessions to the system.
//!
//! glibc makes an arena per thread and trims only the end of each, so a board that once had sixteen
//! callers would keep 10 MiB more than it needs. Here all threads share one arena, which is cheap
//! because a session rarely allocates, and the arena is trimmed when no session is live. Other
//! allocators need neither (`other`). Source: mallopt(3), `M_ARENA_MAX`; malloc_trim(3). Code that
//! an idle runner does not need is unmapped (`files`).

#[cfg(target_os = "linux")]
mod files;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "memory/glibc.rs"]
mod heap;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
#[path = "memory/other.rs"]
mod heap;

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use crate::tasks::SlotPool;

/// Time from the start, or from the release of the last slot, until unused memory is returned to
/// the system: longer than a client takes to reconnect.
const MEMORY_TRIM_AFTER: Duration = Duration::from_secs(2);

/// Makes all threads share one arena. Call it before the second thread starts, because existing
/// arenas stay.
pub fn use_one_heap() {
    heap::use_one_arena();
}

/// Trims the heap and unmaps code after the start, and after the last slot was released, unless
/// another is taken; never returns. Sessions hold the slots, or requests and builds.
pub async fn trim_when_idle(live: SlotPool) {
    run_when_idle(&live, trim).await;
}

fn trim() {
    heap::trim();
    #[cfg(target_os = "linux")]
    files::unmap();
}

async fn run_when_idle(live: &SlotPool, mut act: impl FnMut()) {
    // Made before each wait, so that no release is missed.
    let mut released = pin!(live.released());
    loop {
        // What begins and ends within the period begins it anew.
        if timeout(MEMORY_TRIM_AFTER, released.as_mut()).await.is_err() {
            if live.count() == 0 {
                act();
            }
            released.as_mut().await;
        }
        released.set(live.released());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    /// Memory is trimmed once after the start and per idle period, and not while a session is live.
    #[tokio::test(start_paused = true)]
    async fn memory_is_trimmed_after_an_idle_period() {
        let (live, times) = (SlotPool::new(2), Cell::new(0));
        let moment = Duration::from_millis(1);
        let callers = async {
            let sleep = tokio::time::sleep;
            sleep(MEMORY_TRIM_AFTER + moment).await;
            assert_eq!(times.replace(0), 1);
            let (first, second) = (live.try_acquire(), live.try_acquire());
            drop(first);
            sleep(MEMORY_TRIM_AFTER * 2).await;
            assert_eq!(times.get(), 0);
            drop(second);
            sleep(MEMORY_TRIM_AFTER - moment).await;
            assert_eq!(times.get(), 0);
            sleep(moment * 2).await;
            assert_eq!(times.get(), 1);
            sleep(MEMORY_TRIM_AFTER * 2).await;
            assert_eq!(times.get(), 1);
            drop(live.try_acquire());
            sleep(moment).await;
            let third = live.try_acquire();
            sleep(MEMORY_TRIM_AFTER * 2).await;
            assert_eq!(times.get(), 1);
            drop(third);
            for _ in 0..3 {
                sleep(MEMORY_TRIM_AFTER - moment).await;
                drop(live.try_acquire());
                assert_eq!(times.get(), 1, "requests come one after the other");
            }
            sleep(MEMORY_TRIM_AFTER + moment).await;
            assert_eq!(times.get(), 2);
            use_one_heap();
            trim();
        };
        tokio::select! {
            () = callers => {}
            () = run_when_idle(&live, || times.set(times.get() + 1)) => {}
        }
    }
}
