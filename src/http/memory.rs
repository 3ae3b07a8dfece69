//! What the allocator keeps of sessions that are over: as little as it can be told to.
//!
//! In: the live sessions. Out: nothing but memory, which goes back to the system. glibc makes a heap per thread, and gives back
//! only what happens to lie at the end of each: a board that once had sixteen callers would go on with 10 MiB more than it needs.
//! One heap serves all threads, since what a session allocates while it lives is little beside its codec, and the heap is
//! combed when nobody is there who could be kept waiting. Other allocators do without (`other`).
//! Source: the manual page of mallopt(3), `M_ARENA_MAX`, and of malloc_trim(3).

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "memory/glibc.rs"]
mod heap;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
#[path = "memory/other.rs"]
mod heap;

use crate::tasks::SlotPool;
use edge_runner_proto::limits::MEMORY_GIVEN_BACK_AFTER;

/// Has all threads share one heap. To be called before the second thread starts: a heap that exists stays.
pub fn use_one_heap() {
    heap::share();
}

/// Gives memory back whenever the last session has ended and no other begins; never returns.
pub async fn tidy(live: SlotPool) {
    whenever_empty(&live, heap::give_back).await;
}

async fn whenever_empty(live: &SlotPool, mut act: impl FnMut()) {
    loop {
        live.wait_next_empty().await;
        tokio::time::sleep(MEMORY_GIVEN_BACK_AFTER).await;
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

    /// It is done once per silence, not while anybody is there, and not when somebody came in the meantime.
    #[tokio::test(start_paused = true)]
    async fn memory_is_given_back_once_nobody_has_been_there_for_a_while() {
        let (live, times) = (SlotPool::new(2), Cell::new(0));
        let moment = Duration::from_millis(1);
        let callers = async {
            let sleep = tokio::time::sleep;
            sleep(moment).await;
            let (first, second) = (live.try_acquire(), live.try_acquire());
            drop(first);
            sleep(MEMORY_GIVEN_BACK_AFTER * 2).await;
            assert_eq!(times.get(), 0);
            drop(second);
            sleep(MEMORY_GIVEN_BACK_AFTER - moment).await;
            assert_eq!(times.get(), 0);
            sleep(moment * 2).await;
            assert_eq!(times.get(), 1);
            sleep(MEMORY_GIVEN_BACK_AFTER * 2).await;
            assert_eq!(times.get(), 1);
            drop(live.try_acquire());
            sleep(moment).await;
            let third = live.try_acquire();
            sleep(MEMORY_GIVEN_BACK_AFTER * 2).await;
            assert_eq!(times.get(), 1);
            drop(third);
            sleep(MEMORY_GIVEN_BACK_AFTER + moment).await;
            assert_eq!(times.get(), 2);
            use_one_heap();
            heap::give_back();
        };
        tokio::select! {
            () = callers => {}
            () = whenever_empty(&live, || times.set(times.get() + 1)) => {}
        }
    }
}
