//! Tasks, the count of live sessions, and the clock.
//!
//! tokio's task code is instantiated for every future type, at about five kilobytes each, and for
//! every closure that blocks, at three. Tasks without a result and blocking work are therefore
//! boxed and share one type.
//!
//! A session holds a [`Slot`] from its offer until its bot has ended. Shutdown waits until no slot
//! is held.

use std::any::Any;
use std::pin::Pin;
use std::time::Instant;

use edge_runner_proto::time::RequestTime;
use tokio::task::{JoinError, JoinHandle};

use crate::common::unix_time_s;
use crate::sync::{Arc, AtomicUsize, Notify, Ordering};

/// The future of a task without a result.
pub type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Boxes a future, for a runtime or a `JoinSet` to spawn.
pub fn boxed(work: impl Future<Output = ()> + Send + 'static) -> BoxedTask {
    Box::pin(work)
}

/// Spawns a task. A panic ends that task only.
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(boxed(work))
}

type BoxedWork = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

/// Runs blocking work on a thread for it, from the first poll on. Fails if the work panics, or if
/// the runtime shuts down.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    let work: BoxedWork = Box::new(move || Box::new(work()));
    let done = tokio::task::spawn_blocking(work).await?;
    Ok(*done.downcast().expect("the type that the work returned"))
}

/// Returns the time of tokio's clock, which tests can pause and advance.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the time of that clock, and the calendar's.
pub fn request_time() -> RequestTime {
    RequestTime {
        now: now(),
        unix_s: unix_time_s(),
    }
}

/// A counter with a cap, for sessions and for other things that are capped. Clones share it.
#[derive(Clone)]
pub struct SlotPool(Arc<SlotCounter>);

struct SlotCounter {
    /// In one order with the flags that close an admission, since a drain sets its flag and then
    /// reads the count, while a newcomer counts and then reads the flag.
    count: AtomicUsize,
    sessions_max: usize,
    left: Notify,
}

impl SlotPool {
    pub fn new(sessions_max: usize) -> Self {
        SlotPool(Arc::new(SlotCounter {
            count: AtomicUsize::new(0),
            sessions_max,
            left: Notify::new(),
        }))
    }

    /// Returns the cap.
    pub fn max(&self) -> usize {
        self.0.sessions_max
    }

    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Takes a slot; returns `None` when all are held.
    pub fn try_acquire(&self) -> Option<Slot> {
        self.0
            .count
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
                (count < self.0.sessions_max).then_some(count + 1)
            })
            .ok()
            .map(|_| Slot(self.0.clone()))
    }

    /// Waits for the next release of a slot, counted from this call and not from the first poll.
    pub fn released(&self) -> impl Future<Output = ()> {
        self.0.left.notified()
    }

    /// Waits until no slot is held.
    pub async fn wait_empty(&self) {
        loop {
            let left = self.released();
            if self.count() == 0 {
                return;
            }
            left.await;
        }
    }
}

/// A slot of a [`SlotPool`]. Dropping it releases it.
pub struct Slot(Arc<SlotCounter>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn blocking_work_returns_its_result_or_its_panic() {
        assert_eq!(blocking(|| "done".to_owned()).await.expect("it returns"), "done");
        let failed = blocking(|| -> u8 { panic!("no result") })
            .await
            .expect_err("it panicked");
        assert_eq!(failed.into_panic().downcast_ref(), Some(&"no result"));
    }

    /// Slots up to the cap are granted, and a released slot is granted again.
    #[test]
    fn slots_are_counted() {
        let live = SlotPool::new(2);
        let first = live.try_acquire().expect("a first slot");
        let second = live.try_acquire().expect("a second slot");
        assert!(live.try_acquire().is_none());
        drop(first);
        assert_eq!(live.count(), 1);
        let third = live.try_acquire().expect("the released slot");
        drop((second, third));
        assert_eq!(live.count(), 0);
    }
}
