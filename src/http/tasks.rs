//! Tasks: how they are started, how many sessions are live, the wait for the last of them, and their clock.
//!
//! The runtime is compiled anew for every type of task that it runs, and for each kind of runtime: some five kilobytes. A task
//! that answers nothing is therefore put behind one pointer, and all such tasks are of one type.
//!
//! A session holds a [`Slot`] from its offer to the moment when its bot has ended; the cap counts places. Whoever stops the
//! runner waits until none is held.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What a task does; the one type of those that answer nothing.
pub type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes a future a task for a runtime or a set of tasks to start.
pub fn boxed(work: impl Future<Output = ()> + Send + 'static) -> BoxedTask {
    Box::pin(work)
}

/// Starts a task of its own. A panic ends the task, and the rest goes on.
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(boxed(work))
}

/// Returns the time by the clock that the timers of this floor go by; a test may hold it and move it.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The live sessions of this runner.
#[derive(Clone)]
pub struct SlotPool(Arc<SlotCounter>);

struct SlotCounter {
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

    /// Returns how many there may be.
    pub fn max(&self) -> usize {
        self.0.sessions_max
    }

    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Takes a place; `None` when all are held.
    pub fn try_acquire(&self) -> Option<Slot> {
        self.0
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < self.0.sessions_max).then_some(count + 1)
            })
            .ok()
            .map(|_| Slot(self.0.clone()))
    }

    /// Waits until no session is live.
    pub async fn wait_empty(&self) {
        loop {
            let left = self.0.left.notified();
            if self.count() == 0 {
                return;
            }
            left.await;
        }
    }

    /// Waits for the next time when a session ends and no other is live.
    pub async fn wait_next_empty(&self) {
        loop {
            self.0.left.notified().await;
            if self.count() == 0 {
                return;
            }
        }
    }
}

/// The place of one live session, free again when it is dropped.
pub struct Slot(Arc<SlotCounter>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the cap a session enters, past it none does, and a place that is left can be taken again.
    #[test]
    fn places_are_counted() {
        let live = SlotPool::new(2);
        let first = live.try_acquire().expect("a first place");
        let second = live.try_acquire().expect("a second place");
        assert!(live.try_acquire().is_none());
        drop(first);
        assert_eq!(live.count(), 1);
        let third = live.try_acquire().expect("the place that was left");
        drop((second, third));
        assert_eq!(live.count(), 0);
    }
}
