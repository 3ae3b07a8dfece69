//! The state of the worker, for `/status`, `/worker` and `/metrics`.
//!
//! In: nothing; the worker writes it. Out: JSON. It contains neither metadata nor attributes nor
//! names of rooms.

use std::time::Duration;

use serde_json::{Value, json};

use crate::job::JobType;

/// Where the registration stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerState {
    /// There is no registration, and an attempt is being made or planned.
    #[default]
    Connecting,
    Registered,
    /// The server rejects the worker. Attempts go on.
    Refused,
}

/// Bounded buckets of the time from an offer to the room.
pub const JOIN_BUCKETS: usize = 10;

/// Upper bounds of these buckets.
pub const JOIN_BOUNDS: [Duration; JOIN_BUCKETS] = {
    let ms = [50, 100, 200, 300, 500, 1_000, 2_000, 5_000, 10_000, 15_000];
    let mut bounds = [Duration::ZERO; JOIN_BUCKETS];
    let mut at = 0;
    while at < JOIN_BUCKETS {
        bounds[at] = Duration::from_millis(ms[at]);
        at += 1;
    }
    bounds
};

/// Counters of the worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    pub registrations: u64,
    /// Lost registrations.
    pub losses: u64,
    pub offers: OfferCounts,
    pub assignments: AssignmentCounts,
    pub jobs_succeeded: u64,
    pub jobs_failed: u64,
    /// Terminations of a live job, of one whose bot is out of its room for now, and of others.
    pub taken_back: u64,
    pub terminations_ignored: u64,
    pub terminations_unknown: u64,
    /// Times from the offer to the room, the last bucket without a bound.
    pub joins: [u64; JOIN_BUCKETS + 1],
    pub joins_sum: Duration,
}

/// Offers by answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferCounts {
    pub yes: u64,
    pub full: u64,
    pub draining: u64,
    /// The runner serves the room already.
    pub own_room: u64,
    /// An offer that is not for this worker, or too large.
    pub unfit: u64,
}

/// Assignments by how they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignmentCounts {
    pub in_time: u64,
    pub late: u64,
    /// Accepted jobs that were not assigned in time.
    pub lost: u64,
    pub doubled: u64,
    /// Assignments of jobs that were never accepted.
    pub unpromised: u64,
}

impl WorkerCounts {
    /// Records the time from an offer to the room.
    pub(super) fn joined(&mut self, after: Duration) {
        let at = JOIN_BOUNDS
            .iter()
            .position(|bound| after <= *bound)
            .unwrap_or(JOIN_BUCKETS);
        self.joins[at] += 1;
        self.joins_sum += after;
    }
}

/// The state of the worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerReport {
    pub state: WorkerState,
    pub is_draining: bool,
    pub agent_name: String,
    pub job_type: JobType,
    /// The URL of the connection, or of the last attempt.
    pub url: String,
    /// What the last registration brought: the id of the worker, and the server's version, region
    /// and node.
    pub id: String,
    pub server_version: String,
    pub region: String,
    pub node: String,
    /// Unix time of the last registration; without one, of its loss or of the start.
    pub since_s: u64,
    pub jobs: usize,
    /// Places in use, reserved ones included, and all places.
    pub used: usize,
    pub places: usize,
    pub load: f32,
    pub counts: WorkerCounts,
}

impl WorkerReport {
    /// Tells whether the server may send jobs.
    pub fn is_ready(&self) -> bool {
        self.state == WorkerState::Registered && !self.is_draining
    }

    /// Returns the word for the state.
    pub fn word(&self) -> &'static str {
        match (self.is_draining, self.state) {
            (true, _) => "draining",
            (false, WorkerState::Connecting) => "connecting",
            (false, WorkerState::Registered) => "registered",
            (false, WorkerState::Refused) => "refused",
        }
    }

    /// Returns the member `worker` of `/status`.
    pub fn status_json(&self) -> Value {
        let mut status = json!({
            "state": self.word(),
            "agent_name": self.agent_name,
            "type": self.job_type.name(),
            "jobs": self.jobs,
        });
        if self.state == WorkerState::Registered {
            status["id"] = json!(self.id);
            status["server"] = json!(self.server_version);
            status["region"] = json!(self.region);
            status["node"] = json!(self.node);
            status["since"] = json!(self.since_s);
        } else {
            status["not_registered_since"] = json!(self.since_s);
        }
        status
    }

    /// Returns the one of a runner's workers that says how the runner stands: the first that is not
    /// ready, or else the first.
    pub fn of_runner(reports: &[WorkerReport]) -> Option<&WorkerReport> {
        let waits = reports.iter().find(|report| !report.is_ready());
        waits.or(reports.first())
    }

    /// Returns the member `worker` of `/status` for all workers of a runner; `None` without one.
    pub fn status_of(reports: &[WorkerReport]) -> Option<Value> {
        let mut status = Self::of_runner(reports)?.status_json();
        if reports.len() > 1 {
            status["agents"] = reports.iter().map(WorkerReport::status_json).collect();
        }
        Some(status)
    }

    /// Returns the response of `/worker` about this one of a runner's workers, with the names of
    /// LiveKit's own workers.
    pub fn worker_json(&self, reports: &[WorkerReport]) -> Value {
        let worker_type = match self.job_type {
            JobType::Room => "JT_ROOM",
            JobType::Publisher => "JT_PUBLISHER",
            JobType::Participant => "JT_PARTICIPANT",
        };
        json!({
            "agent_name": self.agent_name,
            "worker_type": worker_type,
            "active_jobs": reports.iter().map(|report| report.jobs).sum::<usize>(),
            "worker_load": self.load,
            "sdk_version": env!("CARGO_PKG_VERSION"),
            "protocol_version": 1,
            "project_type": "rust",
            "worker": Self::status_of(reports),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_state() {
        let mut report = WorkerReport {
            agent_name: "bot".into(),
            id: "AW_1".into(),
            since_s: 17,
            ..WorkerReport::default()
        };
        assert_eq!(
            report.status_json(),
            json!({"state": "connecting", "agent_name": "bot", "type": "room", "jobs": 0, "not_registered_since": 17})
        );
        report.state = WorkerState::Refused;
        assert_eq!((report.word(), report.is_ready()), ("refused", false));
        report.state = WorkerState::Registered;
        assert_eq!(
            (report.status_json()["id"].clone(), report.is_ready()),
            (json!("AW_1"), true)
        );
        assert_eq!(report.status_json()["since"], 17);
        assert_eq!(report.status_json().get("not_registered_since"), None);
        report.is_draining = true;
        assert_eq!((report.word(), report.is_ready()), ("draining", false));
        assert_eq!(report.worker_json(&[report.clone()])["worker_type"], "JT_ROOM");
    }

    /// A runner whose rooms of one name get no bot is not ready.
    #[test]
    fn of_several_the_one_that_is_not_ready_speaks_for_the_runner() {
        let of = |agent_name: &str, state, jobs| WorkerReport {
            agent_name: agent_name.into(),
            state,
            jobs,
            ..WorkerReport::default()
        };
        let ready = of("bot", WorkerState::Registered, 2);
        let refused = of("seller", WorkerState::Refused, 1);
        let reports = [ready.clone(), refused];
        let speaks = WorkerReport::of_runner(&reports).expect("there are some");
        assert_eq!((&*speaks.agent_name, speaks.word()), ("seller", "refused"));
        let status = WorkerReport::status_of(&reports).expect("there are some");
        assert_eq!(
            (&status["state"], &status["agent_name"]),
            (&json!("refused"), &json!("seller"))
        );
        assert_eq!(status["agents"][0]["state"], "registered");
        assert_eq!(speaks.worker_json(&reports)["active_jobs"], 3);
        let alone = WorkerReport::status_of(&[ready]).expect("there is one");
        assert_eq!((&alone["state"], alone.get("agents")), (&json!("registered"), None));
        assert_eq!(WorkerReport::status_of(&[]), None);
    }
}
