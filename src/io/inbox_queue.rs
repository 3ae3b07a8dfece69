//! What waits for one session: a bounded queue with the memory that its use needs.
//!
//! In: datagrams or events, from the readers of a port. Out: the same values in order, to the one
//! task that waits for them. A full queue refuses a value. A channel of tokio would hold two blocks
//! of 32 values, 8 KiB of datagrams, for the one that usually waits.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker, ready};

use edge_runner_http::common::lock;
use edge_runner_http::sync::{Arc, Mutex};
use tokio::task::coop;

/// The room that an empty queue keeps. A burst makes more, which is freed once it was read.
const ROOM_KEPT: usize = 16;

/// A queue for one task. Clones share it.
pub struct InboxQueue<T> {
    waiting: Arc<Mutex<Waiting<T>>>,
    values_max: usize,
}

struct Waiting<T> {
    values: VecDeque<T>,
    /// The task that waits for the next value.
    waker: Option<Waker>,
}

impl<T> InboxQueue<T> {
    /// Creates an empty queue for at most `values_max` values.
    pub fn new(values_max: usize) -> Self {
        let waiting = Waiting {
            values: VecDeque::new(),
            waker: None,
        };
        InboxQueue {
            waiting: Arc::new(Mutex::new(waiting)),
            values_max,
        }
    }

    /// Appends the value that `make` returns. A full queue returns `false` and does not call
    /// `make`.
    pub fn push(&self, make: impl FnOnce() -> T) -> bool {
        let waker = {
            let mut waiting = lock(&self.waiting);
            if waiting.values.len() >= self.values_max {
                return false;
            }
            waiting.values.push_back(make());
            waiting.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Takes the oldest value, or has the task woken by the next one. A flood does not keep other
    /// tasks from running.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<T> {
        let turn = ready!(coop::poll_proceed(cx));
        let mut waiting = lock(&self.waiting);
        let Some(value) = waiting.take() else {
            waiting.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        turn.made_progress();
        Poll::Ready(value)
    }

    /// Takes the oldest value.
    #[cfg(test)]
    pub fn try_next(&self) -> Option<T> {
        lock(&self.waiting).take()
    }
}

impl<T> Waiting<T> {
    fn take(&mut self) -> Option<T> {
        let value = self.values.pop_front()?;
        if self.values.is_empty() && self.values.capacity() > ROOM_KEPT {
            self.values.shrink_to(ROOM_KEPT);
        }
        Some(value)
    }
}

impl<T> Clone for InboxQueue<T> {
    fn clone(&self) -> Self {
        InboxQueue {
            waiting: self.waiting.clone(),
            values_max: self.values_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_waiting_task_is_woken_once_and_reads_in_order() {
        let queue = InboxQueue::new(8);
        let woken = Arc::new(Woken::default());
        let waker = woken.clone().into();
        let mut cx = Context::from_waker(&waker);
        assert_eq!(queue.poll_next(&mut cx), Poll::Pending);
        let sender = queue.clone();
        for value in 0..3 {
            assert!(sender.push(|| value));
            assert_eq!(woken.0.load(Relaxed), 1);
        }
        for value in 0..3 {
            assert_eq!(queue.poll_next(&mut cx), Poll::Ready(value));
        }
        assert_eq!(queue.poll_next(&mut cx), Poll::Pending);
        assert!(sender.push(|| 3));
        assert_eq!(woken.0.load(Relaxed), 2);
        assert_eq!(queue.try_next(), Some(3));
    }

    #[test]
    fn a_full_queue_refuses_without_a_copy_and_frees_its_room_later() {
        const VALUES_MAX: usize = 100;
        let queue = InboxQueue::new(VALUES_MAX);
        for value in 0..VALUES_MAX {
            assert!(queue.push(|| value));
        }
        assert!(!queue.push(|| unreachable!("the queue is full")));
        let room = || lock(&queue.waiting).values.capacity();
        assert!(room() >= VALUES_MAX);
        for value in 0..VALUES_MAX {
            assert_eq!(queue.try_next(), Some(value));
        }
        assert!(room() <= ROOM_KEPT, "{}", room());
        assert!(queue.push(|| 0));
    }
}
