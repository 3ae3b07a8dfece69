//! Returns the memory of ended sessions to the system.
//!
//! glibc makes an arena per thread and trims only the end of each, so a board that once had sixteen
//! callers would keep 10 MiB more than it needs. Here all threads share one arena, which is cheap
//! because a session rarely allocates, and the arena is trimmed when no session is live. Other
//! allocators need neither (`other`). Source: mallopt(3), `M_ARENA_MAX`; malloc_trim(3).

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "memory/glibc.rs"]
mod heap;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
#[path = "memory/other.rs"]
mod heap;

use crate::tasks::SlotPool;
use std::time::Duration;

/// Time from the end of the last session until unused memory is returned to the system: longer than
/// a client takes to reconnect.
const MEMORY_TRIM_AFTER: Duration = Duration::from_secs(2);

/// Makes all threads share one arena. Call it before the second thread starts, because existing
/// arenas stay.
pub fn use_one_heap() {
    heap::use_one_arena();
}

/// Trims the heap after the last session has ended, unless another begins; never returns.
pub async fn trim_when_idle(live: SlotPool) {
    run_when_idle(&live, heap::trim).await;
}

async fn run_when_idle(live: &SlotPool, mut act: impl FnMut()) {
    loop {
        live.wait_next_empty().await;
        tokio::time::sleep(MEMORY_TRIM_AFTER).await;
        if live.count() == 0 {
            act();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    /// The heap is trimmed once per idle period, and not while a session is live.
    #[tokio::test(start_paused = true)]
    async fn memory_is_trimmed_after_an_idle_period() {
        let (live, times) = (SlotPool::new(2), Cell::new(0));
        let moment = Duration::from_millis(1);
        let callers = async {
            let sleep = tokio::time::sleep;
            sleep(moment).await;
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
            sleep(MEMORY_TRIM_AFTER + moment).await;
            assert_eq!(times.get(), 2);
            use_one_heap();
            heap::trim();
        };
        tokio::select! {
            () = callers => {}
            () = run_when_idle(&live, || times.set(times.get() + 1)) => {}
        }
    }
}
