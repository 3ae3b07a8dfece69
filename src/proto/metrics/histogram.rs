//! A histogram of delays that many tasks add to.
//!
//! In: delays. Out: the lines of a family of ten bounded buckets, one without a bound, sum and
//! count. Bounds are constants of the caller, which passes the same ones each time.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::text::MetricsText;

/// Bounded buckets of a histogram; the last bucket has no bound.
pub const BUCKETS: usize = 10;

/// Upper bounds of the buckets, ascending.
pub type HistogramBounds = [Duration; BUCKETS];

/// Makes durations of milliseconds.
pub const fn ms<const N: usize>(ms: [u64; N]) -> [Duration; N] {
    let mut bounds = [Duration::ZERO; N];
    let mut at = 0;
    while at < N {
        bounds[at] = Duration::from_millis(ms[at]);
        at += 1;
    }
    bounds
}

pub(super) fn bucket_index(bounds: &HistogramBounds, delay: Duration) -> usize {
    bounds.iter().position(|bound| delay <= *bound).unwrap_or(BUCKETS)
}

/// A shared histogram.
#[derive(Debug, Default)]
pub struct Histogram {
    pub(super) buckets: [AtomicU64; BUCKETS + 1],
    pub(super) sum_us: AtomicU64,
}

impl Histogram {
    /// Adds a delay.
    pub fn observe(&self, bounds: &HistogramBounds, delay: Duration) {
        self.buckets[bucket_index(bounds, delay)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(delay.as_micros() as u64, Relaxed);
    }

    /// Writes the family.
    pub fn render(&self, text: &mut MetricsText, bounds: &HistogramBounds, name: &'static str, help: &str) {
        let counts: [u64; BUCKETS + 1] = array::from_fn(|at| self.buckets[at].load(Relaxed));
        let sum = Duration::from_micros(self.sum_us.load(Relaxed));
        text.histogram(name, help, bounds, &counts, sum);
    }
}
