//! Decides what the sweep deletes.
//!
//! In: retention times, facts about an upload or a file, and the time in milliseconds since 1970.
//! Out: a [`SweepAction`], or whether a file is due. The archive of an unfinished build is never
//! deleted. Source: decision I-23.

use std::time::Duration;

use crate::proto::build::Org;
use edge_runner_proto::time::CLOCK_STEP;
use edge_runner_proto::uuid::Uuid;

/// Time after the end of its grant in which an upload may still be written to a slow disk.
const UPLOAD_REST: Duration = Duration::from_secs(300);

/// Shortest interval between sweeps.
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(100);

/// Interval between sweeps, unless something is kept for a shorter time.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Retention times. `None`: forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Counted from the end of the archive's last build or, without a build, from the end of its
    /// grant.
    pub archives: Option<Duration>,
    /// Applies to a build's record, log and image; counted from its end.
    pub builds: Option<Duration>,
}

/// What is recorded about an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadUsage {
    pub id: Uuid,
    pub org: Org,
    /// When the grant expires.
    pub expires_ms: u64,
    /// Whether an archive is recorded.
    pub has_archive: bool,
    /// Number of its pending and running builds.
    pub unfinished: u64,
    /// When its last build ended.
    pub ended_ms: Option<u64>,
}

/// What the sweep does with an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepAction {
    Keep,
    /// Delete the archive. The record stays until the grant expires, so that the grant cannot bring
    /// another archive.
    DeleteArchive,
    /// Delete archive and record.
    Delete,
    /// Delete the record if there is no archive: the grant was not used.
    DeleteIfEmpty,
}

impl Retention {
    /// Returns what remains of it while the clock may be wrong. A clock that is a year ahead for a
    /// moment must not delete what is kept for long.
    #[must_use]
    pub fn by_unsteady_clock(self) -> Retention {
        let if_brief = |keep: Option<Duration>| keep.filter(|keep| *keep < CLOCK_STEP);
        Retention {
            archives: if_brief(self.archives),
            builds: if_brief(self.builds),
        }
    }

    /// Returns the interval between sweeps.
    pub fn interval(&self) -> Duration {
        let shortest = [self.archives, self.builds].into_iter().flatten().min();
        shortest.unwrap_or(SWEEP_EVERY).clamp(SWEEP_EVERY_MIN, SWEEP_EVERY)
    }

    /// Returns the time up to which ended builds are due. `None`: no build is due.
    pub fn builds_until(&self, now_ms: u64) -> Option<u64> {
        now_ms.checked_sub(ms(self.builds?))
    }

    /// Decides about an upload.
    pub fn action(&self, of: &UploadUsage, now_ms: u64) -> SweepAction {
        if of.unfinished > 0 {
            return SweepAction::Keep;
        }
        let over = now_ms >= of.expires_ms;
        let since_ms = of.ended_ms.unwrap_or(of.expires_ms);
        if self
            .archives
            .is_some_and(|keep| now_ms >= since_ms.saturating_add(ms(keep)))
        {
            return if over {
                SweepAction::Delete
            } else {
                SweepAction::DeleteArchive
            };
        }
        // The archive may still be on its way to the disk.
        if !of.has_archive && now_ms >= of.expires_ms.saturating_add(ms(UPLOAD_REST)) {
            return SweepAction::DeleteIfEmpty;
        }
        SweepAction::Keep
    }

    /// Tells whether an archive without a record, written at `written_ms`, is due.
    pub fn is_orphan_archive_due(&self, written_ms: u64, now_ms: u64) -> bool {
        self.archives
            .is_some_and(|keep| now_ms >= written_ms.saturating_add(ms(keep)))
    }

    /// Tells whether a log or image without a record is due.
    pub fn is_orphan_build_due(&self, written_ms: u64, now_ms: u64) -> bool {
        self.builds
            .is_some_and(|keep| now_ms >= written_ms.saturating_add(ms(keep)))
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::build::Slug;

    const DAY: Duration = Duration::from_secs(86_400);
    const MONTH: Duration = Duration::from_secs(2_592_000);
    const RETENTION: Retention = Retention {
        archives: Some(DAY),
        builds: Some(MONTH),
    };
    const FOR_EVER: Retention = Retention {
        archives: None,
        builds: None,
    };
    const T0: u64 = 1_795_262_400_000;

    fn held(unfinished: u64, ended_ms: Option<u64>) -> UploadUsage {
        UploadUsage {
            id: Uuid::v4([1; 16]),
            org: Slug::parse("o").expect("a name"),
            expires_ms: T0,
            has_archive: true,
            unfinished,
            ended_ms,
        }
    }

    /// I-23: an archive is kept for exactly a day after its last build ended.
    #[test]
    fn an_archive_is_deleted_after_its_retention() {
        let ended = T0 + 5_000;
        let due = ended + ms(DAY);
        let of = held(0, Some(ended));
        assert_eq!(RETENTION.action(&of, due - 1), SweepAction::Keep);
        assert_eq!(RETENTION.action(&of, due), SweepAction::Delete);
        assert_eq!(FOR_EVER.action(&of, u64::MAX), SweepAction::Keep);
    }

    /// I-23: an archive is kept while a build needs it, however old it is.
    #[test]
    fn an_archive_that_a_build_needs_is_kept() {
        for ended_ms in [None, Some(T0)] {
            for retention in [RETENTION, FOR_EVER] {
                assert_eq!(retention.action(&held(1, ended_ms), u64::MAX), SweepAction::Keep);
            }
        }
    }

    /// I-23: the retention of an unused archive starts at the end of its grant.
    #[test]
    fn an_unused_upload_is_deleted_after_its_grant() {
        let of = held(0, None);
        assert_eq!(RETENTION.action(&of, T0 + ms(DAY) - 1), SweepAction::Keep);
        assert_eq!(RETENTION.action(&of, T0 + ms(DAY)), SweepAction::Delete);
        let empty = UploadUsage {
            has_archive: false,
            ..of
        };
        assert_eq!(RETENTION.action(&empty, T0), SweepAction::Keep);
        assert_eq!(RETENTION.action(&empty, T0 + ms(UPLOAD_REST) - 1), SweepAction::Keep);
        // This applies with unlimited retention as well.
        assert_eq!(
            RETENTION.action(&empty, T0 + ms(UPLOAD_REST)),
            SweepAction::DeleteIfEmpty
        );
        assert_eq!(
            FOR_EVER.action(&empty, T0 + ms(UPLOAD_REST)),
            SweepAction::DeleteIfEmpty
        );
    }

    /// Without the record the grant would bring another archive after a build was made.
    #[test]
    fn the_record_of_a_sealed_upload_outlives_its_grant() {
        let brief = Retention {
            archives: Some(Duration::from_secs(1)),
            ..RETENTION
        };
        let of = held(0, Some(T0 - 60_000));
        assert_eq!(brief.action(&of, T0 - 59_001), SweepAction::Keep);
        assert_eq!(brief.action(&of, T0 - 59_000), SweepAction::DeleteArchive);
        assert_eq!(brief.action(&of, T0 - 1), SweepAction::DeleteArchive);
        assert_eq!(brief.action(&of, T0), SweepAction::Delete);
    }

    /// A clock that was just set deletes only what is kept for less than a step of it.
    #[test]
    fn an_unsteady_clock_deletes_nothing_that_is_kept_for_long() {
        assert_eq!(RETENTION.by_unsteady_clock(), FOR_EVER);
        let brief = Retention {
            archives: Some(CLOCK_STEP - Duration::from_secs(1)),
            builds: Some(CLOCK_STEP),
        };
        let builds = None;
        assert_eq!(brief.by_unsteady_clock(), Retention { builds, ..brief });
    }

    /// I-23: builds are deleted after their retention; 0 keeps them.
    #[test]
    fn builds_are_deleted_after_their_retention() {
        assert_eq!(RETENTION.builds_until(T0), Some(T0 - ms(MONTH)));
        assert_eq!(FOR_EVER.builds_until(T0), None);
        // A board whose clock was never set.
        assert_eq!(RETENTION.builds_until(5), None);
    }

    #[test]
    fn orphaned_files_are_deleted_by_their_age() {
        assert!(!RETENTION.is_orphan_archive_due(T0, T0 + ms(DAY) - 1));
        assert!(RETENTION.is_orphan_archive_due(T0, T0 + ms(DAY)));
        assert!(!RETENTION.is_orphan_build_due(T0, T0 + ms(MONTH) - 1));
        assert!(RETENTION.is_orphan_build_due(T0, T0 + ms(MONTH)));
        assert!(!FOR_EVER.is_orphan_archive_due(0, u64::MAX));
        assert!(!FOR_EVER.is_orphan_build_due(0, u64::MAX));
    }

    /// I-23: the interval is a minute or the shortest retention.
    #[test]
    fn the_sweep_interval_follows_the_shortest_retention() {
        let retention = |archives: Option<u64>, builds: Option<u64>| Retention {
            archives: archives.map(Duration::from_millis),
            builds: builds.map(Duration::from_millis),
        };
        assert_eq!(RETENTION.interval(), SWEEP_EVERY);
        assert_eq!(FOR_EVER.interval(), SWEEP_EVERY);
        assert_eq!(retention(Some(1000), None).interval(), Duration::from_secs(1));
        assert_eq!(retention(Some(9000), Some(7000)).interval(), Duration::from_secs(7));
        assert_eq!(retention(Some(1), None).interval(), SWEEP_EVERY_MIN);
    }
}
