//! Which build runs next, and what becomes of builds when the service starts again.
//!
//! In: builds that wait, in the order in which they were recorded, and those that finish. Out: the next one, while fewer run than
//! may; how many of an organization wait; and of what a stop left behind, what runs again and what has had its attempts.
//! Refuses: a build more of an organization than may wait. Source: `--max-builds`, `--max-pending`, `--max-attempts`.

use std::collections::VecDeque;
use std::fmt;

use crate::proto::build::{Build, BuildStatus, Org};
use edge_runner_proto::uuid::Uuid;

/// The builds that wait and those that run. Places in it are taken before a build is recorded, so that two that come at once do
/// not both take the last one.
#[derive(Debug)]
pub struct BuildQueue {
    /// The oldest is in front; those that were cut off stand before those that never ran.
    waiting: VecDeque<QueuedBuild>,
    running: Vec<Uuid>,
    /// Places that were taken for builds that are being recorded.
    reserved: Vec<Org>,
    running_max: usize,
    pending_max: usize,
}

#[derive(Debug)]
struct QueuedBuild {
    id: Uuid,
    org: Org,
    /// It ran before, so that it does not count as pending.
    is_retry: bool,
}

/// As many builds of the organization wait as may.
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
    /// Makes an empty one: `running_max` at once, `pending_max` waiting per organization.
    pub fn new(running_max: usize, pending_max: usize) -> BuildQueue {
        BuildQueue {
            waiting: VecDeque::new(),
            running: Vec::new(),
            reserved: Vec::new(),
            running_max,
            pending_max,
        }
    }

    /// Takes a place for a build that is about to be recorded; [`BuildQueue::push`] or [`BuildQueue::release`] must follow.
    ///
    /// # Errors
    /// [`QueueFull`] when the organization has none left.
    pub fn reserve(&mut self, org: &Org) -> Result<(), QueueFull> {
        if self.pending(org) >= self.pending_max {
            return Err(QueueFull {
                pending_max: self.pending_max,
            });
        }
        self.reserved.push(org.clone());
        Ok(())
    }

    /// Gives a place back for which no build was recorded.
    pub fn release(&mut self, org: &Org) {
        if let Some(at) = self.reserved.iter().position(|reserved| reserved == org) {
            self.reserved.swap_remove(at);
        }
    }

    /// Puts a recorded build behind all others, in the place that was taken for it.
    pub fn push(&mut self, org: Org, id: Uuid) {
        self.release(&org);
        self.waiting.push_back(QueuedBuild {
            id,
            org,
            is_retry: false,
        });
    }

    /// Puts builds in that an earlier run of the service left, in the order of the plan; no cap holds them out.
    pub fn restore(&mut self, plan: &RecoveryPlan) {
        for build in plan.interrupted.iter().chain(&plan.pending) {
            self.waiting.push_back(QueuedBuild {
                id: build.id,
                org: build.org.clone(),
                is_retry: build.status == BuildStatus::Building,
            });
        }
    }

    /// Takes the oldest build that waits, and counts it as running; nothing while as many run as may.
    pub fn start_next(&mut self) -> Option<(Org, Uuid)> {
        if self.running.len() >= self.running_max {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.running.push(next.id);
        Some((next.org, next.id))
    }

    /// Counts a build as running no more.
    pub fn finish(&mut self, id: Uuid) {
        self.running.retain(|running| *running != id);
    }

    /// Returns how many builds run.
    #[cfg(test)]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns how many builds wait, of all organizations.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns how many places of an organization are taken by builds that never ran.
    fn pending(&self, org: &Org) -> usize {
        let waiting = self.waiting.iter().filter(|build| !build.is_retry && build.org == *org);
        let reserved = self.reserved.iter().filter(|reserved| *reserved == org);
        waiting.count() + reserved.count()
    }
}

/// What becomes of the builds that an earlier run of the service left unfinished.
#[derive(Debug, Default)]
pub struct RecoveryPlan {
    /// They were building, and run again, oldest first.
    pub interrupted: Vec<Build>,
    /// They never ran, and wait again, oldest first.
    pub pending: Vec<Build>,
    /// They were building, and have had their attempts.
    pub exhausted: Vec<Build>,
}

/// Sorts unfinished builds, which come oldest first.
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

/// Says why a build failed whose every attempt was cut off.
pub fn exhausted_message(attempts: u32) -> String {
    let times = if attempts == 1 { "time" } else { "times" };
    format!("build: interrupted {attempts} {times} by stops of the service; no attempts are left")
}

/// The service's line in the log that parts two attempts.
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

    /// A build that ran so many times and was cut off each time; 0: it waits.
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

    /// I-20: no more run than may; the rest goes on in the order in which it came, whoever it is of.
    #[test]
    fn the_oldest_runs_next_when_there_is_a_place() {
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
        // What does not run does not end twice.
        queue.finish(id(2));
        assert_eq!(next(&mut queue), None);
        queue.finish(id(1));
        queue.finish(id(3));
        assert_eq!(
            (next(&mut queue), next(&mut queue), next(&mut queue)),
            (Some(id(4)), Some(id(5)), None)
        );
    }

    /// I-20: a hundred orders of beginnings and ends, and never more than allowed at once.
    #[test]
    fn any_order_of_events_keeps_the_cap_and_loses_nothing() {
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

    /// `--max-pending` counts what waits of one organization, and what is about to; others and running builds do not count.
    #[test]
    fn an_organization_has_so_many_places() {
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

    /// I-19: interrupted builds run before those that never did, each oldest first, but not when their attempts are used up.
    #[test]
    fn what_a_stop_left_is_sorted() {
        let unfinished = vec![left(1, 0), left(2, 1), left(3, 3), left(4, 0), left(5, 2), left(6, 4)];
        let plan = recover(unfinished, 3);
        let ids = |builds: &[Build]| builds.iter().map(|build| build.id).collect::<Vec<_>>();
        assert_eq!(ids(&plan.interrupted), [id(2), id(5)]);
        assert_eq!(ids(&plan.pending), [id(1), id(4)]);
        assert_eq!(ids(&plan.exhausted), [id(3), id(6)]);

        let mut queue = BuildQueue::new(9, 2);
        queue.restore(&plan);
        // Those that run again take no place of those that wait.
        assert!(queue.reserve(&org("o")).is_err());
        let order: Vec<Uuid> = std::iter::from_fn(|| next(&mut queue)).collect();
        assert_eq!(order, [id(2), id(5), id(1), id(4)]);
    }

    /// I-19: the words.
    #[test]
    fn interruptions_have_their_words() {
        assert_eq!(attempt_message(2, 3), "interrupted, attempt 2 of 3");
        assert!(exhausted_message(3).starts_with("build: interrupted 3 times"));
        assert!(exhausted_message(1).starts_with("build: interrupted 1 time by"));
    }
}
