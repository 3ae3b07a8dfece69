//! Leases of builds: what a worker that claims one does with it, and when it gives up.
//!
//! In: the build that waits longest or whose lease has passed, by the clock of the database. Out:
//! its next state. Each claim increments `attempt`, which every later write of the run names, so
//! that a worker that lost its lease changes nothing. An attempt that its worker gave back, since
//! it was stopped in order, is not counted. Source: `docs/cloud.md`, "Many machines".

use std::time::Duration;

use crate::proto::build::{Build, BuildChange, InvalidTransition};
use crate::proto::queue;

/// Attempts of a build that are given back at most, so that one that makes its workers be stopped
/// ends.
pub const GIVEN_BACK_MAX: u32 = 20;

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

    /// Returns how long a renewal may take that begins so long after the last one: no longer than
    /// until the worker has to give up. One that begins after that may find the lease untouched.
    pub fn renew_within(self, since: Duration) -> Duration {
        let left = self.give_up_after().saturating_sub(since);
        match left.is_zero() {
            true => self.renew_every(),
            false => left.min(self.renew_every()),
        }
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
    /// It runs. `last` is the number of the last attempt that it may have.
    Run { build: Build, last: u32 },
    /// Its attempts are used up; it has failed.
    Exhausted(Build),
}

/// Claims a build that waits or whose lease has passed. `given_back` of its attempts are not
/// counted.
///
/// # Errors
/// [`InvalidTransition`] when it has ended.
pub fn claim(build: &Build, given_back: u32, attempts_max: u32, now_ms: u64) -> Result<Claim, InvalidTransition> {
    let last = attempts_max.saturating_add(given_back);
    if build.attempt >= last {
        let reason = queue::exhausted_message(build.attempt.saturating_sub(given_back));
        return build.change(BuildChange::Fail(reason), now_ms).map(Claim::Exhausted);
    }
    let build = build.change(BuildChange::Start, now_ms)?;
    Ok(Claim::Run { build, last })
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
            let Ok(Claim::Run { build: next, last: 3 }) = claim(&build, 0, 3, 10) else {
                panic!("attempt {attempt} runs");
            };
            assert_eq!((next.status, next.attempt), (BuildStatus::Building, attempt));
            build = next;
        }
        let Ok(Claim::Exhausted(ended)) = claim(&build, 0, 3, 20) else {
            panic!("no attempt is left");
        };
        assert_eq!((ended.status, ended.attempt), (BuildStatus::Failed, 3));
        assert!(claim(&ended, 0, 3, 30).is_err());
    }

    #[test]
    fn attempts_that_are_given_back_are_not_counted() {
        let mut build = build();
        build.attempt = 3;
        let Ok(Claim::Run { build: next, last: 4 }) = claim(&build, 1, 3, 10) else {
            panic!("an attempt is left");
        };
        assert_eq!(next.attempt, 4);
        let Ok(Claim::Exhausted(ended)) = claim(&next, 1, 3, 20) else {
            panic!("no attempt is left");
        };
        let reason = ended.error.expect("a reason");
        assert!(reason.starts_with("build: interrupted 3 times"), "{reason}");
    }

    #[test]
    fn a_worker_gives_up_before_its_lease_has_passed() {
        let times = LeaseTimes {
            lease: Duration::from_secs(30),
        };
        assert_eq!(times.renew_every(), Duration::from_secs(10));
        assert_eq!(times.give_up_after(), Duration::from_secs(20));
        for (since, within) in [(0, 10), (10, 10), (11, 9), (19, 1), (20, 10), (45, 10)] {
            let (since, within) = (Duration::from_secs(since), Duration::from_secs(within));
            assert_eq!(times.renew_within(since), within, "{since:?}");
        }
    }
}
