//! Leases of builds: what a worker that claims one does with it, and when it gives up.
//!
//! In: the build that waits longest or whose lease has passed, by the clock of the database. Out:
//! its next state. Each claim increments `attempt`, which every later write of the run names, so
//! that a worker that lost its lease changes nothing. Source: `docs/cloud.md`, "Many machines".

use std::time::Duration;

use crate::proto::build::{Build, BuildChange, InvalidTransition};
use crate::proto::queue;

/// Times of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long a build belongs to its worker without a renewal.
    pub lease: Duration,
}

impl LeaseTimes {
    /// Returns the time between two renewals.
    pub fn renew_every(self) -> Duration {
        self.lease / 3
    }

    /// Returns the time after the last renewal at which a worker stops its commands, so that they
    /// have ended when another worker may begin.
    pub fn give_up_after(self) -> Duration {
        self.lease * 2 / 3
    }
}

/// What becomes of a claimed build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It runs.
    Run(Build),
    /// Its attempts are used up; it has failed.
    Exhausted(Build),
}

/// Claims a build that waits or whose lease has passed.
///
/// # Errors
/// [`InvalidTransition`] when it has ended.
pub fn claim(build: &Build, attempts_max: u32, now_ms: u64) -> Result<Claim, InvalidTransition> {
    if build.attempt >= attempts_max {
        let reason = queue::exhausted_message(build.attempt);
        return build.change(BuildChange::Fail(reason), now_ms).map(Claim::Exhausted);
    }
    build.change(BuildChange::Start, now_ms).map(Claim::Run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::build::{ArchiveInfo, BuildStatus, Slug, UploadRecord};
    use edge_runner_proto::uuid::Uuid;

    fn build() -> Build {
        let name = || Slug::parse("o").expect("a name");
        let info = ArchiveInfo {
            size: 1,
            md5: [0; 16],
            sha256: [0; 32],
            inode: 0,
            modified_ns: 0,
        };
        let upload = UploadRecord {
            id: Uuid::v4([1; 16]),
            org: name(),
            region: name(),
            expires_ms: 0,
            sealed: true,
            key: None,
            info: Some(info),
        };
        Build::new(Uuid::v4([2; 16]), &upload, &info, "f".into(), "http://h".into(), 0)
    }

    #[test]
    fn a_build_is_claimed_until_its_attempts_are_used_up() {
        let mut build = build();
        for attempt in 1..=3 {
            let Ok(Claim::Run(next)) = claim(&build, 3, 10) else {
                panic!("attempt {attempt} runs");
            };
            assert_eq!((next.status, next.attempt), (BuildStatus::Building, attempt));
            build = next;
        }
        let Ok(Claim::Exhausted(ended)) = claim(&build, 3, 20) else {
            panic!("no attempt is left");
        };
        assert_eq!((ended.status, ended.attempt), (BuildStatus::Failed, 3));
        assert!(claim(&ended, 3, 30).is_err());
    }

    #[test]
    fn a_worker_gives_up_before_its_lease_has_passed() {
        let times = LeaseTimes {
            lease: Duration::from_secs(30),
        };
        assert_eq!(times.renew_every(), Duration::from_secs(10));
        assert_eq!(times.give_up_after(), Duration::from_secs(20));
    }
}
