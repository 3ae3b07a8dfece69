//! The metrics of each of several bots.
//!
//! In: the sessions of a bot, and why each ended. Out: the families with the label `bot`, whose
//! values are the names in the file of settings: as many as the operator has bots. A runner with
//! one bot has no such families.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::text::{MetricKind, MetricsText};
use crate::event::LeaveReason;

/// The metrics of one bot.
#[derive(Debug, Default)]
pub struct BotMetrics {
    live: AtomicU64,
    started: AtomicU64,
    ended: [AtomicU64; LeaveReason::ALL.len()],
}

/// A live session of a bot. Dropping it ends it.
#[derive(Debug)]
pub struct BotSessionMetrics {
    metrics: Arc<BotMetrics>,
    /// Why it ends; a task that panics has failed.
    reason: LeaveReason,
}

impl BotMetrics {
    /// Begins a session.
    pub fn begin(self: &Arc<Self>) -> BotSessionMetrics {
        self.started.fetch_add(1, Relaxed);
        self.live.fetch_add(1, Relaxed);
        BotSessionMetrics {
            metrics: self.clone(),
            reason: LeaveReason::Failed,
        }
    }
}

impl BotSessionMetrics {
    /// Records why the session has ended.
    pub fn note_end(&mut self, reason: LeaveReason) {
        self.reason = reason;
    }
}

impl Drop for BotSessionMetrics {
    fn drop(&mut self) {
        self.metrics.live.fetch_sub(1, Relaxed);
        self.metrics.ended[self.reason as usize].fetch_add(1, Relaxed);
    }
}

/// Adds the families of these bots.
pub fn render(text: &mut MetricsText, bots: &[(&str, &BotMetrics)]) {
    if bots.is_empty() {
        return;
    }
    text.family(
        "edge_runner_bot_sessions",
        MetricKind::Gauge,
        "Live sessions of each of several bots.",
    );
    for &(name, bot) in bots {
        text.sample(&[("bot", name)], bot.live.load(Relaxed));
    }
    text.family(
        "edge_runner_bot_sessions_started_total",
        MetricKind::Counter,
        "Sessions of each of several bots that began.",
    );
    for &(name, bot) in bots {
        text.sample(&[("bot", name)], bot.started.load(Relaxed));
    }
    text.family(
        "edge_runner_bot_sessions_ended_total",
        MetricKind::Counter,
        "Sessions of each of several bots that ended, by the reason.",
    );
    for &(name, bot) in bots {
        for (outcome, count) in LeaveReason::ALL.map(LeaveReason::label).iter().zip(&bot.ended) {
            text.sample(&[("bot", name), ("outcome", outcome)], count.load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bot_counts_its_sessions_and_their_ends() {
        let (sales, home) = (Arc::<BotMetrics>::default(), Arc::<BotMetrics>::default());
        let mut first = sales.begin();
        let _second = sales.begin();
        first.note_end(LeaveReason::Left);
        drop(first);
        drop(home.begin());
        let mut text = MetricsText::default();
        render(&mut text, &[("sales", &sales), ("home", &home)]);
        let text = text.into_string();
        for line in [
            "edge_runner_bot_sessions{bot=\"sales\"} 1\n",
            "edge_runner_bot_sessions{bot=\"home\"} 0\n",
            "edge_runner_bot_sessions_started_total{bot=\"sales\"} 2\n",
            "edge_runner_bot_sessions_ended_total{bot=\"sales\",outcome=\"left\"} 1\n",
            "edge_runner_bot_sessions_ended_total{bot=\"sales\",outcome=\"failed\"} 0\n",
            "edge_runner_bot_sessions_ended_total{bot=\"home\",outcome=\"failed\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        let mut none = MetricsText::default();
        render(&mut none, &[]);
        assert_eq!(none.into_string(), "");
    }
}
