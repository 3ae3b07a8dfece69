//! What takes the place of `edge_runner_http::sync`: the same names, each operation of which is a
//! point where the scheduler may go on with another thread.

pub use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// tokio's own, since the scheduler's tasks have wakers too. It is trusted, and each of its
/// operations takes effect at once.
#[derive(Debug, Default)]
pub struct Notify {
    inner: tokio::sync::Notify,
    point: AtomicUsize,
}

impl Notify {
    pub fn new() -> Self {
        Notify::default()
    }

    pub fn notified(&self) -> tokio::sync::futures::Notified<'_> {
        self.reach();
        self.inner.notified()
    }

    pub fn notify_one(&self) {
        self.reach();
        self.inner.notify_one();
    }

    pub fn notify_waiters(&self) {
        self.reach();
        self.inner.notify_waiters();
    }

    /// Lets the scheduler choose.
    fn reach(&self) {
        self.point.load(Ordering::SeqCst);
    }
}

/// Threads that no one joins.
pub mod thread {
    /// A builder of threads that may outlive the model.
    #[derive(Default)]
    pub struct Builder;

    impl Builder {
        pub fn new() -> Self {
            Builder
        }

        pub fn name(self, _name: String) -> Self {
            self
        }

        pub fn spawn(self, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
            drop(shuttle::future::spawn(async { run() }));
            Ok(())
        }
    }
}
