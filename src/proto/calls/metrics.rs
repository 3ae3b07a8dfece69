//! The metrics of refused calls, and of records and events of calls.
//!
//! In: how many were turned away, written, accepted and dropped. Out: the families, of those alone
//! that the operator has asked for.

use super::outcome::CallOutcome;
use crate::metrics::text::{MetricKind, MetricsText};

/// Counts of events for the receiver of `--events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallEventCounts {
    pub accepted: u64,
    pub dropped: u64,
}

/// Counts of the calls that were turned away, in the order of [`CallOutcome::REFUSALS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedCallCounts([u64; CallOutcome::REFUSALS.len()]);

impl RefusedCallCounts {
    /// Counts a call that ended so; those that were not turned away do not count.
    pub fn add(&mut self, outcome: CallOutcome) {
        if let Some(at) = CallOutcome::REFUSALS.iter().position(|refusal| *refusal == outcome) {
            self.0[at] += 1;
        }
    }

    /// Writes the family.
    pub fn render(&self, text: &mut MetricsText) {
        text.family(
            "edge_runner_calls_refused_total",
            MetricKind::Counter,
            "Calls that were not dialled and became no session, by what their records say, also those without a record.",
        );
        for (outcome, count) in CallOutcome::REFUSALS.iter().zip(self.0) {
            text.sample(&[("outcome", outcome.label())], count);
        }
    }
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
        let mut refused = RefusedCallCounts::default();
        for outcome in [
            CallOutcome::Full,
            CallOutcome::Busy,
            CallOutcome::Full,
            CallOutcome::Share,
        ] {
            refused.add(outcome);
        }
        refused.render(&mut text);
        let text = text.into_string();
        for line in [
            "edge_runner_calls_refused_total{outcome=\"full\"} 2\n",
            "edge_runner_calls_refused_total{outcome=\"share\"} 1\n",
            "edge_runner_calls_refused_total{outcome=\"stopping\"} 0\n",
            "edge_runner_call_records_dropped_total 3\n",
            "edge_runner_call_events_total{outcome=\"accepted\"} 7\n",
            "edge_runner_call_events_total{outcome=\"dropped\"} 1\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
