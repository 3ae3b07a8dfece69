//! The metrics of the registrations at a LiveKit server and of their jobs.
//!
//! In: the reports of a runner's workers. Out: the families. Counters are those of all workers
//! together; the label `agent` has the names of the operator, at most one for each bot.

use super::report::{JOIN_BOUNDS, JOIN_BUCKETS, WorkerCounts, WorkerReport, WorkerState};
use crate::metrics::text::{MetricKind, MetricsText};

/// Writes the families. They are omitted without `--register`.
pub fn render(text: &mut MetricsText, reports: &[WorkerReport]) {
    let Some(report) = reports.first() else {
        return;
    };
    text.family(
        "edge_runner_worker_registered",
        MetricKind::Gauge,
        "Whether the runner is registered at the LiveKit server; with several agent names, by the `agent`.",
    );
    for worker in reports {
        let is_registered = u8::from(worker.state == WorkerState::Registered);
        match reports.len() {
            1 => text.sample(&[], is_registered),
            _ => text.sample(&[("agent", &escaped(&worker.agent_name))], is_registered),
        }
    }
    let load = reports.iter().map(|report| report.load).fold(0.0, f32::max);
    let gauges: [(&'static str, &str, String); 3] = [
        (
            "edge_runner_worker_load",
            "Load reported to the LiveKit server while sessions are free.",
            load.to_string(),
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
    let sum = |count: fn(&WorkerCounts) -> u64| reports.iter().map(|report| count(&report.counts)).sum();
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
            ("yes", sum(|counts| counts.offers.yes)),
            ("full", sum(|counts| counts.offers.full)),
            ("draining", sum(|counts| counts.offers.draining)),
            ("own_room", sum(|counts| counts.offers.own_room)),
            ("unfit", sum(|counts| counts.offers.unfit)),
        ],
    );
    counters(
        "edge_runner_worker_assignments_total",
        "Jobs that the LiveKit server assigned: `in_time`, `late`, `doubled`, or `unpromised`. An accepted job that it did \
         not assign is `lost`.",
        "outcome",
        &[
            ("in_time", sum(|counts| counts.assignments.in_time)),
            ("late", sum(|counts| counts.assignments.late)),
            ("lost", sum(|counts| counts.assignments.lost)),
            ("doubled", sum(|counts| counts.assignments.doubled)),
            ("unpromised", sum(|counts| counts.assignments.unpromised)),
        ],
    );
    counters(
        "edge_runner_worker_jobs_total",
        "Jobs that ended, by the outcome reported to the LiveKit server.",
        "outcome",
        &[
            ("success", sum(|counts| counts.jobs_succeeded)),
            ("failed", sum(|counts| counts.jobs_failed)),
        ],
    );
    counters(
        "edge_runner_worker_terminations_total",
        "Jobs that the LiveKit server took back: `live` ones, those whose bot was on its way into the room (`away`, ignored), \
         and unknown ones.",
        "of",
        &[
            ("live", sum(|counts| counts.taken_back)),
            ("away", sum(|counts| counts.terminations_ignored)),
            ("unknown", sum(|counts| counts.terminations_unknown)),
        ],
    );
    counters(
        "edge_runner_worker_connections_total",
        "Registrations at the LiveKit server, and how many of them were lost.",
        "event",
        &[
            ("registered", sum(|counts| counts.registrations)),
            ("lost", sum(|counts| counts.losses)),
        ],
    );
    let mut joins = [0; JOIN_BUCKETS + 1];
    for report in reports {
        for (sum, count) in joins.iter_mut().zip(report.counts.joins) {
            *sum += count;
        }
    }
    text.histogram(
        "edge_runner_worker_offer_to_joined_seconds",
        "From the offer of a job to the bot in its room.",
        &JOIN_BOUNDS,
        &joins,
        reports.iter().map(|report| report.counts.joins_sum).sum(),
    );
}

/// Returns the value of a label. Names have no control characters.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rendered(reports: &[WorkerReport]) -> String {
        let mut text = MetricsText::default();
        render(&mut text, reports);
        text.into_string()
    }

    #[test]
    fn workers_are_counted_together_and_registered_by_their_names() {
        let of = |agent_name: &str, state| {
            let mut report = WorkerReport {
                agent_name: agent_name.into(),
                state,
                places: 8,
                ..WorkerReport::default()
            };
            report.counts.offers.yes = 2;
            report.counts.joined(Duration::from_millis(40));
            report
        };
        let first = of("bot", WorkerState::Registered);
        assert_eq!(rendered(&[]), "");
        assert!(rendered(std::slice::from_ref(&first)).contains("\nedge_runner_worker_registered 1\n"));
        let both = rendered(&[first, of(r#"a "b" \"#, WorkerState::Refused)]);
        for line in [
            r#"edge_runner_worker_registered{agent="bot"} 1"#,
            r#"edge_runner_worker_registered{agent="a \"b\" \\"} 0"#,
            r#"edge_runner_worker_offers_total{answer="yes"} 4"#,
            "edge_runner_worker_places 8",
            "edge_runner_worker_offer_to_joined_seconds_count 2",
            "edge_runner_worker_offer_to_joined_seconds_sum 0.08",
        ] {
            assert!(both.lines().any(|found| found == line), "{line} in {both}");
        }
    }
}
