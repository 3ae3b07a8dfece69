//! The metrics of records and events of calls.
//!
//! In: how many were written, accepted and dropped. Out: the families, of those alone that the
//! operator has asked for.

use crate::metrics::text::{MetricKind, MetricsText};

/// Counts of events for the receiver of `--events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallEventCounts {
    pub accepted: u64,
    pub dropped: u64,
}

/// Writes the family of the records that `--calls-dir` has lost.
pub fn render_records(text: &mut MetricsText, dropped: u64) {
    text.family(
        "edge_runner_call_records_dropped_total",
        MetricKind::Counter,
        "Records of calls that are in no file of `--calls-dir`, since as many as may wait did.",
    );
    text.sample(&[], dropped);
}

/// Writes the family of events for the receiver of `--events`.
pub fn render_events(text: &mut MetricsText, counts: CallEventCounts) {
    text.family(
        "edge_runner_call_events_total",
        MetricKind::Counter,
        "Events of calls: `accepted` by the receiver, or `dropped` since too many waited, or for too long.",
    );
    for (outcome, count) in [("accepted", counts.accepted), ("dropped", counts.dropped)] {
        text.sample(&[("outcome", outcome)], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_records_are_counted_by_what_became_of_them() {
        let mut text = MetricsText::default();
        render_records(&mut text, 3);
        render_events(
            &mut text,
            CallEventCounts {
                accepted: 7,
                dropped: 1,
            },
        );
        let text = text.into_string();
        for line in [
            "edge_runner_call_records_dropped_total 3\n",
            "edge_runner_call_events_total{outcome=\"accepted\"} 7\n",
            "edge_runner_call_events_total{outcome=\"dropped\"} 1\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
