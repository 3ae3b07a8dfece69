//! The locks, atomics, threads and wake-ups of the modules whose interleavings `tests/models`
//! explores. There, a module of the same name takes the place of this one, with a scheduler that
//! the models control.

pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
pub use std::thread;

pub use tokio::sync::Notify;
