//! Tasks whose loss ends the process: the reader of the UDP port, the accept loops, the holders of
//! TURN allocations.
//!
//! In: each task with its name. Out: the first that ended or panicked, by [`Services::lost`]; the
//! process then logs it and exits, so that its supervisor restarts it. An aborted task is not lost,
//! and once the runner stops losses no longer matter.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::tasks;

/// The services of one process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Services(Arc<ServicesInner>);

#[derive(Debug, Default)]
struct ServicesInner {
    lost: OnceLock<LostService>,
    changed: Notify,
}

/// A service that has ended or panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostService {
    pub service: &'static str,
    /// Whether it panicked rather than ended.
    pub panicked: bool,
}

impl fmt::Display for LostService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.panicked { "panicked" } else { "ended" };
        write!(f, "{} {how}, without which nothing can be served", self.service)
    }
}

impl Services {
    /// Starts a task that must last as long as the process.
    pub fn spawn(&self, service: &'static str, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let lease = self.lease(service);
        tasks::spawn(async move {
            work.await;
            lease.ended();
        })
    }

    /// Returns a lease that reports a panic of its holder, for threads.
    pub fn lease(&self, service: &'static str) -> ServiceLease {
        ServiceLease {
            services: self.clone(),
            service,
        }
    }

    /// Waits until a service is lost.
    pub async fn lost(&self) -> LostService {
        loop {
            let changed = self.0.changed.notified();
            if let Some(lost) = self.0.lost.get() {
                return *lost;
            }
            changed.await;
        }
    }

    fn tell(&self, lost: LostService) {
        // Later losses may be a consequence of the first.
        let _ = self.0.lost.set(lost);
        self.0.changed.notify_waiters();
    }
}

/// Held by a service while it works.
#[derive(Debug)]
pub struct ServiceLease {
    services: Services,
    service: &'static str,
}

impl ServiceLease {
    /// Reports that the service ended.
    pub fn ended(self) {
        self.services.tell(LostService {
            service: self.service,
            panicked: false,
        });
    }
}

impl Drop for ServiceLease {
    fn drop(&mut self) {
        if thread::panicking() {
            self.services.tell(LostService {
                service: self.service,
                panicked: true,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// The first lost service is reported by every call.
    #[tokio::test(start_paused = true)]
    async fn a_service_that_ends_or_panics_is_lost() {
        for panics in [false, true] {
            let services = Services::default();
            let asked = tokio::spawn({
                let services = services.clone();
                async move { services.lost().await }
            });
            let _lasts = services.spawn("the accept loop", pending());
            let _gone = services.spawn("the reader", async move {
                assert!(!panics, "it panics");
            });
            let lost = LostService {
                service: "the reader",
                panicked: panics,
            };
            assert_eq!(asked.await.expect("it asks"), lost);
            drop(services.spawn("another one", async {}).await);
            assert_eq!(services.lost().await, lost);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_is_aborted_is_not_lost() {
        let services = Services::default();
        let task = services.spawn("the reader", pending());
        task.abort();
        assert!(task.await.is_err());
        let lost = timeout(Duration::from_secs(3_600), services.lost());
        assert!(lost.await.is_err());
    }

    #[test]
    fn a_thread_that_panics_is_lost() {
        let services = Services::default();
        let lease = services.lease("the watch");
        let ended = thread::spawn(move || {
            let _lease = lease;
            panic!("it panics");
        });
        assert!(ended.join().is_err());
        let lost = services.0.lost.get().copied();
        let expected = LostService {
            service: "the watch",
            panicked: true,
        };
        assert_eq!(lost, Some(expected));
    }
}
