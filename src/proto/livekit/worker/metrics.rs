//! The metrics of the registration at a LiveKit server and of its jobs.

use super::report::{JOIN_BOUNDS, WorkerReport, WorkerState};
use crate::metrics::text::{MetricKind, MetricsText};

/// Writes the families. They are omitted without `--register`.
pub fn render(text: &mut MetricsText, report: &WorkerReport) {
    let gauges: [(&'static str, &str, String); 4] = [
        (
            "edge_runner_worker_registered",
            "Whether the runner is registered at the LiveKit server.",
            u8::from(report.state == WorkerState::Registered).to_string(),
        ),
        (
            "edge_runner_worker_load",
            "Load reported to the LiveKit server while sessions are free.",
            report.load.to_string(),
        ),
        (
            "edge_runner_worker_places_used",
            "Live sessions and accepted jobs.",
            report.used.to_string(),
        ),
        (
            "edge_runner_worker_places",
            "Limit of live sessions.",
            report.places.to_string(),
        ),
    ];
    for (name, help, value) in gauges {
        text.family(name, MetricKind::Gauge, help);
        text.sample(&[], value);
    }
    let counts = &report.counts;
    let mut counters = |name, help, label: &str, samples: &[(&str, u64)]| {
        text.family(name, MetricKind::Counter, help);
        for (word, count) in samples {
            text.sample(&[(label, word)], count);
        }
    };
    counters(
        "edge_runner_worker_offers_total",
        "Jobs that the LiveKit server offered, by the answer: `yes`, `full`, `draining`, `own_room` (served already) or \
         `unfit` (too large, or for another worker).",
        "answer",
        &[
            ("yes", counts.offers.yes),
            ("full", counts.offers.full),
            ("draining", counts.offers.draining),
            ("own_room", counts.offers.own_room),
            ("unfit", counts.offers.unfit),
        ],
    );
    counters(
        "edge_runner_worker_assignments_total",
        "Jobs that the LiveKit server assigned: `in_time`, `late`, `doubled`, or `unpromised`. An accepted job that it did \
         not assign is `lost`.",
        "outcome",
        &[
            ("in_time", counts.assignments.in_time),
            ("late", counts.assignments.late),
            ("lost", counts.assignments.lost),
            ("doubled", counts.assignments.doubled),
            ("unpromised", counts.assignments.unpromised),
        ],
    );
    counters(
        "edge_runner_worker_jobs_total",
        "Jobs that ended, by the outcome of which the LiveKit server was told.",
        "outcome",
        &[("success", counts.jobs_succeeded), ("failed", counts.jobs_failed)],
    );
    counters(
        "edge_runner_worker_terminations_total",
        "Jobs that the LiveKit server took back: `live` ones, those whose bot was on its way into the room (`away`, ignored), \
         and unknown ones.",
        "of",
        &[
            ("live", counts.taken_back),
            ("away", counts.terminations_ignored),
            ("unknown", counts.terminations_unknown),
        ],
    );
    counters(
        "edge_runner_worker_connections_total",
        "Registrations at the LiveKit server, and how many of them were lost.",
        "event",
        &[("registered", counts.registrations), ("lost", counts.losses)],
    );
    text.histogram(
        "edge_runner_worker_offer_to_joined_seconds",
        "From the offer of a job to the bot in its room.",
        &JOIN_BOUNDS,
        &counts.joins,
        counts.joins_sum,
    );
}
