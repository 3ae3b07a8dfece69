//! The metrics of calls that the runner dials.

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
}

/// Writes the families. They are omitted without `--dial-out`.
pub fn render(text: &mut MetricsText, counts: &DialCounts) {
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
}
