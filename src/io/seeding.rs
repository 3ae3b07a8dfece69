//! Seeds of the generator that the ICE agent and the sessions use.

use std::cell::Cell;
use std::future::poll_fn;

use edge_runner_http::common::random;

thread_local! {
    static IS_SEEDED: Cell<bool> = const { Cell::new(false) };
}

/// Seeds this thread's `fastrand` generator from the system, once. STUN transaction ids come from
/// it, and its default seed is the time. The ids must not be guessable, because a response to a
/// check proves the caller's address.
pub fn seed_thread() {
    if !IS_SEEDED.replace(true) {
        fastrand::seed(u64::from_be_bytes(random()));
    }
}

/// Wraps a session's task so that it seeds every thread it runs on, also in an embedder's runtime.
pub fn seeding<F: Future>(task: F) -> impl Future<Output = F::Output> {
    let mut task = Box::pin(task);
    poll_fn(move |cx| {
        seed_thread();
        task.as_mut().poll(cx)
    })
}
