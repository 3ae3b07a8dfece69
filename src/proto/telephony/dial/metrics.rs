//! The metrics of calls that the runner dials.

use crate::calls::CallOutcome;
use crate::metrics::text::{MetricKind, MetricsText};

/// Counters of dialled calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DialCounts {
    /// The provider dials.
    pub placed: u64,
    /// The provider does not.
    pub refused: u64,
    /// Whether the provider dials is not known.
    pub unknown: u64,
    /// Retries that got the reply of the first request.
    pub repeated: u64,
    /// Requests beyond the calls of a minute.
    pub limited: u64,
    /// Calls that were answered.
    pub answered: u64,
    /// Calls that became no session, in the order of [`CallOutcome::DIALLED`].
    unanswered: [u64; CallOutcome::DIALLED.len()],
}

impl DialCounts {
    /// Counts a call that became no session.
    pub fn count_unanswered(&mut self, outcome: CallOutcome) {
        let mut counts = CallOutcome::DIALLED.iter().zip(&mut self.unanswered);
        if let Some((_, count)) = counts.find(|(known, _)| **known == outcome) {
            *count += 1;
        }
    }
}

/// Writes the families. They are omitted without `--dial-out`.
pub fn render(text: &mut MetricsText, provider: &str, counts: &DialCounts) {
    text.family(
        "edge_runner_dials_total",
        MetricKind::Counter,
        "Requests of `POST /calls`: `placed`, `refused` (by the provider), `unknown` (whether it dials), `repeated` (the \
         reply of the first request again) or `limited` (too many in a minute).",
    );
    for (outcome, count) in [
        ("placed", counts.placed),
        ("refused", counts.refused),
        ("unknown", counts.unknown),
        ("repeated", counts.repeated),
        ("limited", counts.limited),
    ] {
        text.sample(&[("outcome", outcome)], count);
    }
    text.family(
        "edge_runner_dials_answered_total",
        MetricKind::Counter,
        "Dialled calls that were answered.",
    );
    text.sample(&[], counts.answered);
    text.family(
        "edge_runner_dials_unanswered_total",
        MetricKind::Counter,
        "Dialled calls that became no session, by provider and by the `outcome` of their records.",
    );
    for (outcome, count) in CallOutcome::DIALLED.iter().zip(counts.unanswered) {
        text.sample(&[("provider", provider), ("outcome", outcome.label())], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unanswered_calls_are_counted_by_their_outcome() {
        let mut counts = DialCounts::default();
        for outcome in CallOutcome::DIALLED {
            counts.count_unanswered(outcome);
        }
        counts.count_unanswered(CallOutcome::Busy);
        let mut text = MetricsText::default();
        render(&mut text, "plivo", &counts);
        let text = text.into_string();
        for outcome in CallOutcome::DIALLED {
            let count = if outcome == CallOutcome::Busy { 2 } else { 1 };
            let label = outcome.label();
            let line =
                format!("edge_runner_dials_unanswered_total{{provider=\"plivo\",outcome=\"{label}\"}} {count}\n");
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }
}
