//! The metrics of the cloud service for `/metrics`: requests, grants, archives, builds, sweeps, and
//! the calls of its database and store.
//!
//! In: what happened; at a scrape, what only the driver knows ([`CloudSnapshot`]). Out:
//! [`CloudMetrics::render`], the text for Prometheus. Label values are constants of this file, so
//! their number is fixed: no organization, no key, no id. Counting costs an atomic addition and no
//! query. Source: Prometheus "Text-based format" 0.0.4, "Metric and label naming".

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::proto::build::BuildStatus;
use crate::proto::route::CloudRoute;
use edge_runner_proto::metrics::histogram::{Histogram, HistogramBounds, ms};
use edge_runner_proto::metrics::process::ProcessStats;
use edge_runner_proto::metrics::text::{MetricKind, MetricsText};

/// Unfinished builds that a scrape counts; more are counted as this many. Bounds its query.
pub const COUNTED_BUILDS_MAX: u32 = 100_000;

/// Bounds of requests, and of calls of the database and the store.
const CALLS: HistogramBounds = ms([1, 2, 5, 10, 25, 100, 250, 1_000, 2_500, 5_000]);

/// What a request is for, as its label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteClass {
    /// Health checks.
    Health,
    Metrics,
    /// An archive that the service receives itself.
    Upload,
    /// Regions, properties and organizations.
    Account,
    Grant,
    Create,
    List,
    Build,
    Logs,
    Image,
    /// A request that reached no operation: a wrong key, path or method.
    #[default]
    Other,
}

impl RouteClass {
    const LABELS: [&str; 11] = [
        "health", "metrics", "upload", "account", "grant", "create", "list", "build", "logs", "image", "other",
    ];

    /// Returns the class of an operation.
    pub fn of(route: &CloudRoute) -> RouteClass {
        match route {
            CloudRoute::Health | CloudRoute::Live | CloudRoute::Ready => RouteClass::Health,
            CloudRoute::Metrics => RouteClass::Metrics,
            CloudRoute::Upload => RouteClass::Upload,
            CloudRoute::Regions | CloudRoute::Properties | CloudRoute::Organizations => RouteClass::Account,
            CloudRoute::Grant => RouteClass::Grant,
            CloudRoute::Create => RouteClass::Create,
            CloudRoute::List => RouteClass::List,
            CloudRoute::Build(_) => RouteClass::Build,
            CloudRoute::Logs(_) => RouteClass::Logs,
            CloudRoute::Image(..) => RouteClass::Image,
        }
    }
}

/// Labels of answers: the class of the status, or `gone` for a client that disconnected before.
const ANSWERS: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "gone"];

fn answer_index(status: Option<u16>) -> usize {
    match status {
        None => 4,
        Some(status) => usize::from((status / 100).clamp(2, 5)) - 2,
    }
}

/// What became of a request for a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    Created,
    /// An earlier success is the answer.
    Cached,
    /// A build of the same upload has not ended.
    Repeated,
    /// The organization has as many waiting builds as allowed.
    Full,
}

const CREATIONS: [&str; 4] = ["created", "cached", "repeated", "full"];

/// What a worker does with a build that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    First,
    /// An earlier attempt was interrupted.
    Again,
    /// No attempts are left.
    Exhausted,
}

const CLAIMS: [&str; 3] = ["first", "again", "exhausted"];

impl ClaimKind {
    /// Returns the kind of an attempt, counted from 1.
    pub fn of_attempt(attempt: u32) -> ClaimKind {
        match attempt {
            0 | 1 => ClaimKind::First,
            _ => ClaimKind::Again,
        }
    }
}

const ENDS: [(&str, BuildStatus); 3] = [
    ("success", BuildStatus::Success),
    ("failed", BuildStatus::Failed),
    ("timeout", BuildStatus::Timeout),
];

/// How a run lost its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseLoss {
    /// A renewal found another attempt.
    Taken,
    /// It could not be renewed in time, and the worker stopped the run.
    Expired,
    /// The record of the end was refused.
    Fenced,
}

const LOSSES: [&str; 3] = ["taken", "expired", "fenced"];

/// What a sweep deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepStats {
    pub archives: usize,
    pub builds: usize,
    /// Files without a record.
    pub orphans: usize,
}

/// Why a call of a database or a store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendFailure {
    /// No disk space.
    Full,
    /// Any other error of SQLite.
    Broken,
    /// No connection could be made.
    Connect,
    /// All connections were in use for too long.
    Busy,
    /// The connection was lost meanwhile.
    Lost,
    /// The store did not answer, or not completely.
    Unreachable,
    /// The store answered with an error other than "there is no such object".
    Refused,
}

const DATABASE_FAILURES: [(&str, BackendFailure); 5] = [
    ("full", BackendFailure::Full),
    ("broken", BackendFailure::Broken),
    ("connect", BackendFailure::Connect),
    ("busy", BackendFailure::Busy),
    ("lost", BackendFailure::Lost),
];
const STORE_FAILURES: [(&str, BackendFailure); 2] = [
    ("unreachable", BackendFailure::Unreachable),
    ("refused", BackendFailure::Refused),
];

/// Calls of a database or a store: how long they took, and how many failed.
#[derive(Debug, Default)]
pub struct BackendMetrics {
    seconds: Histogram,
    failed: [AtomicU64; DATABASE_FAILURES.len() + STORE_FAILURES.len()],
}

impl BackendMetrics {
    /// Adds a call, whether it failed or not.
    pub fn took(&self, time: Duration) {
        self.seconds.observe(&CALLS, time);
    }

    /// Adds a failure.
    pub fn failed(&self, why: BackendFailure) {
        add(&self.failed[why as usize]);
    }
}

/// Unfinished builds, as far as they are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    pub pending: u64,
    pub building: u64,
    /// Age of the oldest pending build.
    pub oldest: Duration,
}

/// Values of the driver at the time of a scrape.
pub struct CloudSnapshot<'a> {
    /// `api`, `worker` or `all`.
    pub role: &'static str,
    /// `None`: the database does not answer, and the families are left out, since zeros would look
    /// like an empty queue.
    pub queue: Option<QueueState>,
    /// Builds that this process runs.
    pub running: usize,
    pub database: &'a BackendMetrics,
    /// `None`: archives are in a folder.
    pub store: Option<&'a BackendMetrics>,
    pub process: Option<ProcessStats>,
}

/// All metrics. Created once per service.
#[derive(Debug, Default)]
pub struct CloudMetrics {
    requests: [[AtomicU64; ANSWERS.len()]; RouteClass::LABELS.len()],
    request_seconds: Histogram,
    grants: AtomicU64,
    archives: [AtomicU64; 2],
    creations: [AtomicU64; CREATIONS.len()],
    claims: [AtomicU64; CLAIMS.len()],
    ends: [AtomicU64; ENDS.len()],
    losses: [AtomicU64; LOSSES.len()],
    sweeps: [AtomicU64; 2],
    swept: [AtomicU64; 3],
}

fn add(sum: &AtomicU64) {
    sum.fetch_add(1, Relaxed);
}

impl CloudMetrics {
    /// Adds a request. `status` is `None` if the client disconnected before its answer.
    pub fn answered(&self, class: RouteClass, status: Option<u16>, took: Duration) {
        add(&self.requests[class as usize][answer_index(status)]);
        // The time of an upload is that of its client.
        if class != RouteClass::Upload {
            self.request_seconds.observe(&CALLS, took);
        }
    }

    /// Adds a grant.
    pub fn granted(&self) {
        add(&self.grants);
    }

    /// Adds an archive that was received, or read from the store by the first build of it.
    pub fn archive(&self, is_accepted: bool) {
        add(&self.archives[usize::from(!is_accepted)]);
    }

    /// Adds a request for a build that was understood.
    pub fn created(&self, outcome: CreateOutcome) {
        add(&self.creations[outcome as usize]);
    }

    /// Adds a build that a worker took.
    pub fn claimed(&self, kind: ClaimKind) {
        add(&self.claims[kind as usize]);
    }

    /// Adds a build whose end this process has recorded.
    pub fn ended(&self, status: BuildStatus) {
        if let Some(at) = ENDS.iter().position(|(_, end)| *end == status) {
            add(&self.ends[at]);
        }
    }

    /// Adds a run that lost its lease.
    pub fn lease_lost(&self, how: LeaseLoss) {
        add(&self.losses[how as usize]);
    }

    /// Adds a sweep. `None`: it failed.
    pub fn swept(&self, stats: Option<SweepStats>) {
        add(&self.sweeps[usize::from(stats.is_none())]);
        let SweepStats {
            archives,
            builds,
            orphans,
        } = stats.unwrap_or_default();
        for (sum, count) in self.swept.iter().zip([archives, builds, orphans]) {
            sum.fetch_add(count as u64, Relaxed);
        }
    }

    /// Returns the text for Prometheus.
    pub fn render(&self, seen: &CloudSnapshot<'_>) -> String {
        let mut text = MetricsText::default();
        text.family(
            "edge_runner_cloud_info",
            MetricKind::Gauge,
            "The version of the cloud service, and the role of this replica.",
        );
        text.sample(&[("version", env!("CARGO_PKG_VERSION")), ("role", seen.role)], 1);
        self.render_requests(&mut text);
        self.render_builds(&mut text, seen);
        text.family(
            "edge_runner_cloud_sweeps_total",
            MetricKind::Counter,
            "Sweeps of this replica, by whether they came to their end.",
        );
        labelled(&mut text, "outcome", &["done", "failed"], &self.sweeps);
        text.family(
            "edge_runner_cloud_swept_total",
            MetricKind::Counter,
            "What sweeps deleted: archives or uploads without one, builds, and files without a record.",
        );
        labelled(&mut text, "what", &["archives", "builds", "orphans"], &self.swept);
        render_calls(&mut text, seen);
        if let Some(process) = &seen.process {
            process.render(&mut text);
        }
        text.into_string()
    }

    fn render_requests(&self, text: &mut MetricsText) {
        text.family(
            "edge_runner_cloud_requests_total",
            MetricKind::Counter,
            "Requests by what they ask for and the class of their status; `gone` are clients that left before.",
        );
        for (route, answers) in RouteClass::LABELS.iter().zip(&self.requests) {
            for (class, count) in ANSWERS.iter().zip(answers) {
                text.sample(&[("route", route), ("class", class)], count.load(Relaxed));
            }
        }
        self.request_seconds.render(
            text,
            &CALLS,
            "edge_runner_cloud_request_seconds",
            "From a request to the head of its answer, without uploads.",
        );
        text.family(
            "edge_runner_cloud_grants_total",
            MetricKind::Counter,
            "Upload grants that were made.",
        );
        text.sample(&[], self.grants.load(Relaxed));
        text.family(
            "edge_runner_cloud_archives_total",
            MetricKind::Counter,
            "Archives that were received, or that the first build of an upload has read from the store.",
        );
        labelled(text, "outcome", &["accepted", "refused"], &self.archives);
    }

    fn render_builds(&self, text: &mut MetricsText, seen: &CloudSnapshot<'_>) {
        text.family(
            "edge_runner_cloud_creations_total",
            MetricKind::Counter,
            "Requests for a build that were understood, by what became of them.",
        );
        labelled(text, "outcome", &CREATIONS, &self.creations);
        text.family(
            "edge_runner_cloud_claims_total",
            MetricKind::Counter,
            "Builds that this process took to run: for the first time, again, or without attempts left.",
        );
        labelled(text, "attempt", &CLAIMS, &self.claims);
        text.family(
            "edge_runner_cloud_builds_ended_total",
            MetricKind::Counter,
            "Builds whose end this process has recorded.",
        );
        labelled(text, "status", &ENDS.map(|(label, _)| label), &self.ends);
        text.family(
            "edge_runner_cloud_leases_lost_total",
            MetricKind::Counter,
            "Runs that lost their lease: another worker has the build, the lease was not renewed in time, or the end \
             was refused.",
        );
        labelled(text, "how", &LOSSES, &self.losses);
        text.family(
            "edge_runner_cloud_running_builds",
            MetricKind::Gauge,
            "Builds that this process runs.",
        );
        text.sample(&[], seen.running);
        let Some(queue) = &seen.queue else { return };
        text.family(
            "edge_runner_cloud_builds",
            MetricKind::Gauge,
            "Unfinished builds of all replicas, by status.",
        );
        text.sample(&[("status", "pending")], queue.pending);
        text.sample(&[("status", "building")], queue.building);
        text.family(
            "edge_runner_cloud_oldest_pending_seconds",
            MetricKind::Gauge,
            "Age of the oldest build that waits, of all replicas; 0 without one.",
        );
        text.sample(&[], queue.oldest.as_secs_f64());
    }
}

fn render_calls(text: &mut MetricsText, seen: &CloudSnapshot<'_>) {
    let none = BackendMetrics::default();
    let store = seen.store.unwrap_or(&none);
    for (calls, names, helps, failures) in [
        (
            seen.database,
            [
                "edge_runner_cloud_database_seconds",
                "edge_runner_cloud_database_errors_total",
            ],
            [
                "How long the records were in use for one operation.",
                "Operations on the records that failed: no space and other errors of SQLite; no connection, none free, and \
                 lost ones of PostgreSQL.",
            ],
            &DATABASE_FAILURES[..],
        ),
        (
            store,
            [
                "edge_runner_cloud_store_seconds",
                "edge_runner_cloud_store_errors_total",
            ],
            [
                "How long requests of the object store took, with their content.",
                "Requests of the object store that it did not answer, or answered with an error.",
            ],
            &STORE_FAILURES[..],
        ),
    ] {
        calls.seconds.render(text, &CALLS, names[0], helps[0]);
        text.family(names[1], MetricKind::Counter, helps[1]);
        for (reason, failure) in failures {
            let count = calls.failed[*failure as usize].load(Relaxed);
            text.sample(&[("reason", reason)], count);
        }
    }
}

fn labelled(text: &mut MetricsText, label: &str, values: &[&str], counts: &[AtomicU64]) {
    for (value, count) in values.iter().zip(counts) {
        text.sample(&[(label, value)], count.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(metrics: &CloudMetrics, queue: Option<QueueState>) -> String {
        let (database, store) = (BackendMetrics::default(), BackendMetrics::default());
        database.took(Duration::from_millis(3));
        database.failed(BackendFailure::Lost);
        store.failed(BackendFailure::Refused);
        metrics.render(&CloudSnapshot {
            role: "all",
            queue,
            running: 2,
            database: &database,
            store: Some(&store),
            process: None,
        })
    }

    /// Each count has its own series, and a line of help and type stands before it.
    #[test]
    fn counts_appear_under_their_labels() {
        let metrics = CloudMetrics::default();
        metrics.answered(RouteClass::Create, Some(201), Duration::from_millis(7));
        metrics.answered(RouteClass::Create, Some(503), Duration::from_secs(9));
        metrics.answered(RouteClass::Other, Some(404), Duration::ZERO);
        metrics.answered(RouteClass::Upload, None, Duration::from_secs(60));
        metrics.granted();
        metrics.archive(true);
        metrics.archive(false);
        metrics.created(CreateOutcome::Full);
        metrics.claimed(ClaimKind::of_attempt(1));
        metrics.claimed(ClaimKind::of_attempt(2));
        metrics.claimed(ClaimKind::Exhausted);
        metrics.ended(BuildStatus::Timeout);
        metrics.ended(BuildStatus::Building);
        metrics.lease_lost(LeaseLoss::Fenced);
        metrics.swept(Some(SweepStats {
            archives: 3,
            builds: 2,
            orphans: 1,
        }));
        metrics.swept(None);
        let queue = QueueState {
            pending: 4,
            building: 5,
            oldest: Duration::from_millis(1_500),
        };
        let text = render(&metrics, Some(queue));
        for line in [
            "edge_runner_cloud_requests_total{route=\"create\",class=\"2xx\"} 1",
            "edge_runner_cloud_requests_total{route=\"create\",class=\"5xx\"} 1",
            "edge_runner_cloud_requests_total{route=\"other\",class=\"4xx\"} 1",
            "edge_runner_cloud_requests_total{route=\"upload\",class=\"gone\"} 1",
            "edge_runner_cloud_request_seconds_bucket{le=\"0.01\"} 2",
            "edge_runner_cloud_request_seconds_bucket{le=\"5\"} 2",
            "edge_runner_cloud_request_seconds_count 3",
            "edge_runner_cloud_grants_total 1",
            "edge_runner_cloud_archives_total{outcome=\"accepted\"} 1",
            "edge_runner_cloud_archives_total{outcome=\"refused\"} 1",
            "edge_runner_cloud_creations_total{outcome=\"full\"} 1",
            "edge_runner_cloud_claims_total{attempt=\"first\"} 1",
            "edge_runner_cloud_claims_total{attempt=\"again\"} 1",
            "edge_runner_cloud_claims_total{attempt=\"exhausted\"} 1",
            "edge_runner_cloud_builds_ended_total{status=\"success\"} 0",
            "edge_runner_cloud_builds_ended_total{status=\"timeout\"} 1",
            "edge_runner_cloud_leases_lost_total{how=\"fenced\"} 1",
            "edge_runner_cloud_running_builds 2",
            "edge_runner_cloud_builds{status=\"pending\"} 4",
            "edge_runner_cloud_builds{status=\"building\"} 5",
            "edge_runner_cloud_oldest_pending_seconds 1.5",
            "edge_runner_cloud_sweeps_total{outcome=\"done\"} 1",
            "edge_runner_cloud_sweeps_total{outcome=\"failed\"} 1",
            "edge_runner_cloud_swept_total{what=\"archives\"} 3",
            "edge_runner_cloud_swept_total{what=\"orphans\"} 1",
            "edge_runner_cloud_database_seconds_bucket{le=\"0.005\"} 1",
            "edge_runner_cloud_database_errors_total{reason=\"lost\"} 1",
            "edge_runner_cloud_store_errors_total{reason=\"refused\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().expect("a name");
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))
                .unwrap_or(name);
            assert!(text.contains(&format!("# TYPE {family} ")), "{line}");
        }
    }

    /// Without the database the queue is unknown, not empty.
    #[test]
    fn an_unknown_queue_has_no_figures() {
        let text = render(&CloudMetrics::default(), None);
        assert!(text.contains("edge_runner_cloud_running_builds 2"));
        for family in [
            "edge_runner_cloud_builds ",
            "edge_runner_cloud_builds{",
            "oldest_pending",
        ] {
            assert!(!text.contains(family), "{text}");
        }
    }

    /// Every route has a class, and every status an index within the labels.
    #[test]
    fn every_status_has_a_label() {
        for status in 0..=999 {
            assert!(answer_index(Some(status)) < ANSWERS.len() - 1);
        }
        assert_eq!(ANSWERS[answer_index(Some(302))], "3xx");
        assert_eq!(ANSWERS[answer_index(None)], "gone");
        assert_eq!(RouteClass::LABELS[RouteClass::Other as usize], "other");
        assert_eq!(
            RouteClass::LABELS[RouteClass::of(&CloudRoute::Metrics) as usize],
            "metrics"
        );
    }
}
