//! The build queue: which build runs next, and how unfinished builds recover after a restart.
//!
//! In: new builds, ended builds and, at start, the unfinished ones from the records. Out: the build
//! to start while fewer than `--max-builds` run, and a [`RecoveryPlan`]. Rejects a build when
//! `--max-pending` builds of its organization wait. Source: decisions I-19, I-20.

use std::collections::VecDeque;
use std::fmt;

use crate::proto::build::{Build, BuildStatus, Org};
use edge_runner_proto::uuid::Uuid;

/// Waiting and running builds. A slot is reserved before the build is recorded, so that two
/// concurrent requests cannot take the last one.
#[derive(Debug)]
pub struct BuildQueue {
    /// Oldest first; interrupted builds stand before those that never ran.
    waiting: VecDeque<QueuedBuild>,
    running: Vec<Uuid>,
    /// Slots reserved for builds that are being recorded.
    reserved: Vec<Org>,
    running_max: usize,
    pending_max: usize,
}

#[derive(Debug)]
struct QueuedBuild {
    id: Uuid,
    org: Org,
    /// The build was interrupted and does not count as pending.
    is_retry: bool,
}

/// The organization has as many waiting builds as allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull {
    pub pending_max: usize,
}

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = self.pending_max;
        write!(
            f,
            "{max} builds of this organization wait already, try again when one of them has begun"
        )
    }
}

impl std::error::Error for QueueFull {}

impl BuildQueue {
    /// Creates an empty queue for `running_max` running builds and `pending_max` waiting builds per
    /// organization.
    pub fn new(running_max: usize, pending_max: usize) -> BuildQueue {
        BuildQueue {
            waiting: VecDeque::new(),
            running: Vec::new(),
            reserved: Vec::new(),
            running_max,
            pending_max,
        }
    }

    /// Reserves a slot for a build that is about to be recorded. Call [`BuildQueue::push`] or
    /// [`BuildQueue::release`] afterwards.
    ///
    /// # Errors
    /// [`QueueFull`] when the organization has no slot left.
    pub fn reserve(&mut self, org: &Org) -> Result<(), QueueFull> {
        if self.pending(org) >= self.pending_max {
            return Err(QueueFull {
                pending_max: self.pending_max,
            });
        }
        self.reserved.push(org.clone());
        Ok(())
    }

    /// Releases the slot of a build that could not be recorded.
    pub fn release(&mut self, org: &Org) {
        if let Some(at) = self.reserved.iter().position(|reserved| reserved == org) {
            self.reserved.swap_remove(at);
        }
    }

    /// Appends a recorded build and consumes its reservation.
    pub fn push(&mut self, org: Org, id: Uuid) {
        self.release(&org);
        self.waiting.push_back(QueuedBuild {
            id,
            org,
            is_retry: false,
        });
    }

    /// Queues the builds of a recovery plan, regardless of the cap.
    pub fn restore(&mut self, plan: &RecoveryPlan) {
        for build in plan.interrupted.iter().chain(&plan.pending) {
            self.waiting.push_back(QueuedBuild {
                id: build.id,
                org: build.org.clone(),
                is_retry: build.status == BuildStatus::Building,
            });
        }
    }

    /// Takes the oldest waiting build and marks it as running. Returns `None` while `running_max`
    /// builds run.
    pub fn start_next(&mut self) -> Option<(Org, Uuid)> {
        if self.running.len() >= self.running_max {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.running.push(next.id);
        Some((next.org, next.id))
    }

    /// Marks a build as no longer running.
    pub fn finish(&mut self, id: Uuid) {
        self.running.retain(|running| *running != id);
    }

    /// Returns the number of running builds.
    #[cfg(test)]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the number of waiting builds of all organizations.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the slots of an organization that waiting and reserved builds use. Interrupted
    /// builds use none.
    fn pending(&self, org: &Org) -> usize {
        let waiting = self.waiting.iter().filter(|build| !build.is_retry && build.org == *org);
        let reserved = self.reserved.iter().filter(|reserved| *reserved == org);
        waiting.count() + reserved.count()
    }
}

/// How the unfinished builds of the previous run continue.
#[derive(Debug, Default)]
pub struct RecoveryPlan {
    /// Builds that were running and run again, oldest first.
    pub interrupted: Vec<Build>,
    /// Builds that never ran and wait again, oldest first.
    pub pending: Vec<Build>,
    /// Builds that were running and have used all attempts.
    pub exhausted: Vec<Build>,
}

/// Sorts unfinished builds, given oldest first, into a plan.
pub fn recover(unfinished: Vec<Build>, attempts_max: u32) -> RecoveryPlan {
    let mut plan = RecoveryPlan::default();
    for build in unfinished {
        match build.status {
            BuildStatus::Building if build.attempt >= attempts_max => plan.exhausted.push(build),
            BuildStatus::Building => plan.interrupted.push(build),
            BuildStatus::Pending => plan.pending.push(build),
            BuildStatus::Success | BuildStatus::Failed | BuildStatus::Timeout => {}
        }
    }
    plan
}

/// Returns the error message of a build whose attempts were all interrupted.
pub fn exhausted_message(attempts: u32) -> String {
    let times = if attempts == 1 { "time" } else { "times" };
    format!("build: interrupted {attempts} {times} by stops of the service; no attempts are left")
}

/// The log line of a build whose attempts were all interrupted.
pub const EXHAUSTED: &str = "interrupted, no attempts are left";

/// Returns the log line between two attempts.
pub fn attempt_message(attempt: u32, attempts_max: u32) -> String {
    format!("interrupted, attempt {attempt} of {attempts_max}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::build::{ArchiveInfo, BuildChange, Slug, UploadRecord};

    fn org(name: &str) -> Org {
        Slug::parse(name).expect("a name")
    }

    fn id(n: u8) -> Uuid {
        Uuid::v4([n; 16])
    }

    fn push(queue: &mut BuildQueue, of: &str, n: u8) -> Result<(), QueueFull> {
        queue.reserve(&org(of))?;
        queue.push(org(of), id(n));
        Ok(())
    }

    fn next(queue: &mut BuildQueue) -> Option<Uuid> {
        queue.start_next().map(|(_, id)| id)
    }

    /// Creates a build that was started and interrupted `attempts` times; 0: it is pending.
    fn left(n: u8, attempts: u32) -> Build {
        let info = ArchiveInfo {
            size: 1,
            md5: [0; 16],
            sha256: [0; 32],
            inode: 0,
            modified_ns: 0,
        };
        let upload = UploadRecord {
            id: id(n),
            org: org("o"),
            region: org("r"),
            expires_ms: 0,
            sealed: true,
            key: None,
            info: Some(info),
        };
        let new = Build::new(id(n), &upload, &info, "f".into(), "http://h".into(), 0);
        (0..attempts).fold(new, |build, _| {
            build.change(BuildChange::Start, 1).expect("it is unfinished")
        })
    }

    /// I-20: at most `running_max` builds run; the others start in order of arrival.
    #[test]
    fn the_oldest_build_starts_when_a_slot_is_free() {
        let mut queue = BuildQueue::new(2, 100);
        for n in 1..=5 {
            push(&mut queue, if n % 2 == 0 { "a" } else { "b" }, n).expect("there is room");
        }
        assert_eq!(
            (next(&mut queue), next(&mut queue), next(&mut queue)),
            (Some(id(1)), Some(id(2)), None)
        );
        assert_eq!((queue.running(), queue.waiting()), (2, 3));
        queue.finish(id(2));
        assert_eq!((next(&mut queue), next(&mut queue)), (Some(id(3)), None));
        // A second `finish` has no effect.
        queue.finish(id(2));
        assert_eq!(next(&mut queue), None);
        queue.finish(id(1));
        queue.finish(id(3));
        assert_eq!(
            (next(&mut queue), next(&mut queue), next(&mut queue)),
            (Some(id(4)), Some(id(5)), None)
        );
    }

    /// I-20: a hundred random sequences of starts and ends respect the cap and lose no build.
    #[test]
    fn random_events_respect_the_cap_and_lose_nothing() {
        for seed in 1..=100_u64 {
            let mut state = seed;
            let mut random = move || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            let mut queue = BuildQueue::new(3, 200);
            let (mut runs, mut begun, mut came) = (Vec::new(), Vec::new(), 0);
            while begun.len() < 40 || !runs.is_empty() {
                match random() % 3 {
                    0 if came < 40 => {
                        push(&mut queue, "o", came).expect("there is room");
                        came += 1;
                    }
                    1 if !runs.is_empty() => {
                        let at = (random() % runs.len() as u64) as usize;
                        queue.finish(runs.swap_remove(at));
                    }
                    _ => {
                        if let Some(next) = next(&mut queue) {
                            runs.push(next);
                            begun.push(next);
                        }
                    }
                }
                assert!(runs.len() <= 3 && queue.running() == runs.len());
            }
            assert_eq!(begun, (0..40).map(id).collect::<Vec<_>>(), "seed {seed}");
        }
    }

    /// `--max-pending` counts waiting and reserved builds of one organization, but not running
    /// ones.
    #[test]
    fn pending_builds_of_an_organization_are_limited() {
        let mut queue = BuildQueue::new(1, 2);
        push(&mut queue, "a", 1).expect("there is room");
        assert_eq!(next(&mut queue), Some(id(1)));
        push(&mut queue, "a", 2).expect("the first runs");
        queue.reserve(&org("a")).expect("one place is left");
        assert_eq!(queue.reserve(&org("a")), Err(QueueFull { pending_max: 2 }));
        assert_eq!(push(&mut queue, "b", 3), Ok(()));
        queue.release(&org("a"));
        push(&mut queue, "a", 4).expect("the place came back");
        assert!(push(&mut queue, "a", 5).is_err());
        queue.finish(id(1));
        assert_eq!(next(&mut queue), Some(id(2)));
        push(&mut queue, "a", 6).expect("one more has begun");
        assert!(push(&mut queue, "a", 7).is_err());
    }

    /// I-19: interrupted builds run before pending ones, each oldest first; exhausted ones do not
    /// run.
    #[test]
    fn recovery_sorts_unfinished_builds() {
        let unfinished = vec![left(1, 0), left(2, 1), left(3, 3), left(4, 0), left(5, 2), left(6, 4)];
        let plan = recover(unfinished, 3);
        let ids = |builds: &[Build]| builds.iter().map(|build| build.id).collect::<Vec<_>>();
        assert_eq!(ids(&plan.interrupted), [id(2), id(5)]);
        assert_eq!(ids(&plan.pending), [id(1), id(4)]);
        assert_eq!(ids(&plan.exhausted), [id(3), id(6)]);

        let mut queue = BuildQueue::new(9, 2);
        queue.restore(&plan);
        // Interrupted builds take no pending slot.
        assert!(queue.reserve(&org("o")).is_err());
        let order: Vec<Uuid> = std::iter::from_fn(|| next(&mut queue)).collect();
        assert_eq!(order, [id(2), id(5), id(1), id(4)]);
    }

    /// I-19: log line and error message.
    #[test]
    fn interruption_messages_have_a_fixed_text() {
        assert_eq!(attempt_message(2, 3), "interrupted, attempt 2 of 3");
        assert!(exhausted_message(3).starts_with("build: interrupted 3 times"));
        assert!(exhausted_message(1).starts_with("build: interrupted 1 time by"));
    }
}
