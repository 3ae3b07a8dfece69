//! The metrics of one live session.
//!
//! In: its counts, the levels of its queues, and the lateness of its deadlines. Out: each flush
//! adds the difference to the last one to the sums, so that a session is visible before it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::histogram::{BUCKETS, bucket_index};
use super::{LATENESS, RunnerMetrics};
use crate::counts::{Counts, QueueLevels};
use crate::event::LeaveReason;
use crate::limits::METRICS_INTERVAL;
use crate::transport::Transport;

/// The metrics of one live session. Dropping it counts as an end too: a task that panics has
/// failed.
pub struct SessionMetrics {
    metrics: Arc<RunnerMetrics>,
    transport: Transport,
    flushed: Counts,
    waiting: QueueLevels,
    flushed_at: Instant,
    /// Lateness of deadlines since the last flush.
    lateness: [u64; BUCKETS + 1],
    lateness_sum_us: u64,
    reason: LeaveReason,
}

impl SessionMetrics {
    /// Starts a session.
    pub fn begin(metrics: Arc<RunnerMetrics>, transport: Transport, now: Instant) -> Self {
        let row = metrics.row(transport);
        row.started.fetch_add(1, Relaxed);
        row.live.fetch_add(1, Relaxed);
        SessionMetrics {
            metrics,
            transport,
            flushed: Counts::default(),
            waiting: QueueLevels::default(),
            flushed_at: now,
            lateness: [0; BUCKETS + 1],
            lateness_sum_us: 0,
            reason: LeaveReason::Failed,
        }
    }

    /// Records the lateness of a deadline.
    pub fn record_lateness(&mut self, late: Duration) {
        self.lateness[bucket_index(&LATENESS, late)] += 1;
        self.lateness_sum_us += late.as_micros() as u64;
    }

    /// Returns the time of the next flush.
    pub fn next_flush(&self) -> Instant {
        self.flushed_at + METRICS_INTERVAL
    }

    /// Records the codec of a caller over WebRTC, and the time from the answer to the connection.
    /// Sessions of other transports have no answer.
    pub fn connected(&self, codec: &str, after: Duration) {
        if self.transport.takes_offers() {
            self.metrics.connected(after);
            self.metrics.codec_negotiated(codec);
        }
    }

    /// Adds the changes since the last flush to the shared metrics.
    pub fn flush(&mut self, counts: &Counts, waiting: QueueLevels, now: Instant) {
        let row = self.metrics.row(self.transport);
        for ((shared, flushed), count) in row.counts.iter().zip(self.flushed.0).zip(counts.0) {
            if count != flushed {
                shared.fetch_add(count.saturating_sub(flushed), Relaxed);
            }
        }
        self.flushed = *counts;
        self.flushed_at = now;
        for (shared, here) in self.metrics.lateness.buckets.iter().zip(&mut self.lateness) {
            if *here > 0 {
                shared.fetch_add(std::mem::take(here), Relaxed);
            }
        }
        let sum_us = std::mem::take(&mut self.lateness_sum_us);
        self.metrics.lateness.sum_us.fetch_add(sum_us, Relaxed);
        self.set_queue_levels(waiting);
    }

    /// Ends the session with a reason and its final counts.
    pub fn end(mut self, counts: &Counts, reason: LeaveReason) {
        self.reason = reason;
        let now = self.flushed_at;
        self.flush(counts, QueueLevels::default(), now);
    }

    /// Replaces this session's part of the shared queue levels; wrapping sums stay correct.
    fn set_queue_levels(&mut self, waiting: QueueLevels) {
        let row = self.metrics.row(self.transport);
        let frames = (waiting.frames as u64).wrapping_sub(self.waiting.frames as u64);
        let us = |speech: Duration| speech.as_micros() as u64;
        let speech_us = us(waiting.speech).wrapping_sub(us(self.waiting.speech));
        row.waiting_frames.fetch_add(frames, Relaxed);
        row.waiting_speech_us.fetch_add(speech_us, Relaxed);
        self.waiting = waiting;
    }
}

impl Drop for SessionMetrics {
    fn drop(&mut self) {
        self.set_queue_levels(QueueLevels::default());
        let row = self.metrics.row(self.transport);
        row.live.fetch_sub(1, Relaxed);
        row.ended[self.reason as usize].fetch_add(1, Relaxed);
    }
}
