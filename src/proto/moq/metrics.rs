//! The metrics of the connections of Media over QUIC.
//!
//! In: outcomes of connections. Out: their families in the text for Prometheus, with fixed labels.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::accepted::ArrivalError;
use crate::metrics::text::{MetricKind, MetricsText};

/// Labels of the connections of Media over QUIC: those that found a session, that had to prove
/// their address first, that were refused because there were too many, and the reasons of the
/// others.
const MOQ_OUTCOMES: [&str; 3] = ["accepted", "retried", "refused"];

/// What became of a connection of Media over QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoqConnectionOutcome {
    /// A session took it.
    Accepted,
    /// Its source has to prove its address first.
    Retried,
    /// There were too many.
    Refused,
    /// It reached no session, for the reason with this label.
    Failed(&'static str),
}

/// The counts of one runner.
#[derive(Default)]
pub struct MoqMetrics {
    outcomes: [AtomicU64; MOQ_OUTCOMES.len() + ArrivalError::LABELS.len()],
}

impl MoqMetrics {
    /// Records a connection of Media over QUIC.
    pub fn record(&self, outcome: MoqConnectionOutcome) {
        let at = match outcome {
            MoqConnectionOutcome::Accepted => Some(0),
            MoqConnectionOutcome::Retried => Some(1),
            MoqConnectionOutcome::Refused => Some(2),
            MoqConnectionOutcome::Failed(label) => {
                let at = ArrivalError::LABELS.iter().position(|known| *known == label);
                at.map(|at| MOQ_OUTCOMES.len() + at)
            }
        };
        if let Some(count) = at.and_then(|at| self.outcomes.get(at)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Writes the families. `live` connections exist, and `inbox_full` datagrams were dropped.
    pub fn render(&self, text: &mut MetricsText, live: u64, inbox_full: u64) {
        text.family(
            "edge_runner_moq_connections",
            MetricKind::Gauge,
            "Live connections of Media over QUIC, of callers or to the relay.",
        );
        text.sample(&[], live);
        text.family(
            "edge_runner_moq_connection_attempts_total",
            MetricKind::Counter,
            "Connections of callers over Media over QUIC: accepted by a session, retried to prove their address, refused \
             because there were too many, or the reason why they reached no session.",
        );
        for (outcome, count) in MOQ_OUTCOMES.iter().chain(&ArrivalError::LABELS).zip(&self.outcomes) {
            text.sample(&[("outcome", outcome)], count.load(Relaxed));
        }
        text.family(
            "edge_runner_moq_datagrams_dropped_total",
            MetricKind::Counter,
            "Datagrams of Media over QUIC whose connection had a full queue.",
        );
        text.sample(&[], inbox_full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections over QUIC have a gauge, a count per outcome, and one of lost datagrams.
    #[test]
    fn counts_connections_over_quic() {
        let metrics = MoqMetrics::default();
        for outcome in [
            MoqConnectionOutcome::Accepted,
            MoqConnectionOutcome::Accepted,
            MoqConnectionOutcome::Retried,
            MoqConnectionOutcome::Refused,
            MoqConnectionOutcome::Failed(ArrivalError::Evicted.label()),
            MoqConnectionOutcome::Failed(ArrivalError::Left.label()),
        ] {
            metrics.record(outcome);
        }
        let mut text = MetricsText::default();
        metrics.render(&mut text, 3, 7);
        let text = text.into_string();
        assert!(text.contains("\nedge_runner_moq_connections 3\n"), "{text}");
        assert!(text.contains("\nedge_runner_moq_datagrams_dropped_total 7\n"), "{text}");
        for (outcome, count) in [
            ("accepted", 2),
            ("retried", 1),
            ("refused", 1),
            ("evicted", 1),
            ("left", 1),
            ("unclaimed", 0),
        ] {
            let line = format!("\nedge_runner_moq_connection_attempts_total{{outcome=\"{outcome}\"}} {count}\n");
            assert!(text.contains(&line), "{outcome}");
        }
    }
}
