//! Locks for uploads.
//!
//! Committing an archive, creating a build from it, and sweeping it each change both the records
//! and the disk, and must not overlap. In: the id of an upload. Out: an [`UploadLock`], released on
//! drop. Source: decision I-09.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use edge_runner_http::common;
use edge_runner_proto::uuid::Uuid;

/// The locks that are held or waited for.
#[derive(Debug, Default)]
pub struct UploadLocks(Mutex<HashMap<Uuid, Weak<AsyncMutex<()>>>>);

/// The lock of one upload. It can be sent to another thread.
#[derive(Debug)]
pub struct UploadLock(#[expect(dead_code, reason = "its end is the end of the turn")] OwnedMutexGuard<()>);

impl UploadLocks {
    /// Waits for the lock of an upload.
    pub async fn lock(&self, upload: Uuid) -> UploadLock {
        UploadLock(self.mutex(upload).lock_owned().await)
    }

    /// Takes the lock of an upload if it is free.
    pub fn try_lock(&self, upload: Uuid) -> Option<UploadLock> {
        self.mutex(upload).try_lock_owned().ok().map(UploadLock)
    }

    fn mutex(&self, upload: Uuid) -> Arc<AsyncMutex<()>> {
        let mut mutexes = common::lock(&self.0);
        if let Some(mutex) = mutexes.get(&upload).and_then(Weak::upgrade) {
            return mutex;
        }
        // Drops entries without holders.
        mutexes.retain(|_, mutex| mutex.strong_count() > 0);
        let mutex = Arc::new(AsyncMutex::new(()));
        mutexes.insert(upload, Arc::downgrade(&mutex));
        mutex
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I-09: holders of the same upload exclude each other; others do not wait.
    #[tokio::test]
    async fn locks_of_an_upload_exclude_each_other() {
        let upload_locks = UploadLocks::default();
        let (a, b) = (Uuid::v4([1; 16]), Uuid::v4([2; 16]));
        let first = upload_locks.lock(a).await;
        assert!(upload_locks.try_lock(a).is_none());
        let _other = upload_locks.lock(b).await;
        drop(first);
        let second = upload_locks.lock(a).await;
        assert!(upload_locks.try_lock(a).is_none());
        drop(second);
        assert!(upload_locks.try_lock(a).is_some());
    }

    #[tokio::test]
    async fn unused_locks_are_dropped() {
        let upload_locks = UploadLocks::default();
        for n in 0..100 {
            drop(upload_locks.lock(Uuid::v4([n; 16])).await);
        }
        assert!(upload_locks.0.lock().expect("no holder panics").len() <= 1);
    }
}
