//! Mutexes that ignore poisoning.

use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. The value stays consistent when a holder panics, because no change under these
/// locks takes two steps.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
