//! What is due to be deleted.
//!
//! In: how long things are kept, what is known of them, and the time, in milliseconds since 1970.
//! Out: whether each is due. Never due: the archive of a build that waits or runs; and anything of
//! a kind that is kept for ever. Source: `--keep-archives`, `--keep-builds`, I-23.

use std::time::Duration;

use crate::proto::build::Org;
use edge_runner_proto::uuid::Uuid;

/// How long after the end of its grant an upload still counts as coming: its last bytes are written
/// to a slow disk.
const UPLOAD_REST: Duration = Duration::from_secs(300);

/// Between two sweeps at least, however short the times are for which things are kept.
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(100);

/// Between two sweeps, unless something is kept for less.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// How long things are kept; nothing: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeps {
    /// After the last build of an archive ended, or, when there was none, its grant.
    pub archives: Option<Duration>,
    /// The record of a build with its log and its image, after it ended.
    pub builds: Option<Duration>,
}

/// What is known of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub id: Uuid,
    pub org: Org,
    /// When its grant ends.
    pub expires_ms: u64,
    /// Whether it is recorded that an archive came.
    pub came: bool,
    /// Builds of it that wait or run.
    pub unfinished: u64,
    /// When the last of its builds ended.
    pub ended_ms: Option<u64>,
}

/// What becomes of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Stays,
    /// The archive goes; the record stays until the grant has ended, so that the same grant brings
    /// no other archive.
    LosesArchive,
    /// Archive and record go.
    Goes,
    /// The record goes if there is no archive: its grant was never used.
    GoesIfEmpty,
}

impl Keeps {
    /// Returns how long a sweep waits for the next one.
    pub fn interval(&self) -> Duration {
        let shortest = [self.archives, self.builds].into_iter().flatten().min();
        shortest.unwrap_or(SWEEP_EVERY).clamp(SWEEP_EVERY_MIN, SWEEP_EVERY)
    }

    /// Returns the time at or before which a build has to have ended to be due; nothing is due when
    /// there is none.
    pub fn builds_until(&self, now_ms: u64) -> Option<u64> {
        now_ms.checked_sub(ms(self.builds?))
    }

    /// Decides about an upload.
    pub fn fate(&self, of: &Held, now_ms: u64) -> Fate {
        if of.unfinished > 0 {
            return Fate::Stays;
        }
        let over = now_ms >= of.expires_ms;
        let since_ms = of.ended_ms.unwrap_or(of.expires_ms);
        if self
            .archives
            .is_some_and(|keep| now_ms >= since_ms.saturating_add(ms(keep)))
        {
            return if over { Fate::Goes } else { Fate::LosesArchive };
        }
        // A last byte may be on its way to the disk.
        if !of.came && now_ms >= of.expires_ms.saturating_add(ms(UPLOAD_REST)) {
            return Fate::GoesIfEmpty;
        }
        Fate::Stays
    }

    /// Tells whether an archive is due that no record names, by the time at which it was written.
    pub fn stray_archive_is_due(&self, written_ms: u64, now_ms: u64) -> bool {
        self.archives
            .is_some_and(|keep| now_ms >= written_ms.saturating_add(ms(keep)))
    }

    /// The same for a log or an image.
    pub fn stray_build_is_due(&self, written_ms: u64, now_ms: u64) -> bool {
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
    const KEEPS: Keeps = Keeps {
        archives: Some(DAY),
        builds: Some(MONTH),
    };
    const FOR_EVER: Keeps = Keeps {
        archives: None,
        builds: None,
    };
    const T0: u64 = 1_795_262_400_000;

    fn held(unfinished: u64, ended_ms: Option<u64>) -> Held {
        Held {
            id: Uuid::v4([1; 16]),
            org: Slug::parse("o").expect("a name"),
            expires_ms: T0,
            came: true,
            unfinished,
            ended_ms,
        }
    }

    /// I-23: an archive is kept for a day after its last build ended, to the millisecond.
    #[test]
    fn an_archive_goes_when_its_time_is_over() {
        let ended = T0 + 5_000;
        let due = ended + ms(DAY);
        let of = held(0, Some(ended));
        assert_eq!(KEEPS.fate(&of, due - 1), Fate::Stays);
        assert_eq!(KEEPS.fate(&of, due), Fate::Goes);
        assert_eq!(FOR_EVER.fate(&of, u64::MAX), Fate::Stays);
    }

    /// I-23: it never goes while a build needs it, however old it is.
    #[test]
    fn an_archive_that_a_build_needs_stays() {
        for ended_ms in [None, Some(T0)] {
            for keeps in [KEEPS, FOR_EVER] {
                assert_eq!(keeps.fate(&held(1, ended_ms), u64::MAX), Fate::Stays);
            }
        }
    }

    /// I-23: an upload that no build was made of is kept from the end of its grant.
    #[test]
    fn an_unused_upload_goes_after_its_grant() {
        let of = held(0, None);
        assert_eq!(KEEPS.fate(&of, T0 + ms(DAY) - 1), Fate::Stays);
        assert_eq!(KEEPS.fate(&of, T0 + ms(DAY)), Fate::Goes);
        let empty = Held { came: false, ..of };
        assert_eq!(KEEPS.fate(&empty, T0), Fate::Stays);
        assert_eq!(KEEPS.fate(&empty, T0 + ms(UPLOAD_REST) - 1), Fate::Stays);
        // Also where archives are kept for ever, since there is none.
        assert_eq!(KEEPS.fate(&empty, T0 + ms(UPLOAD_REST)), Fate::GoesIfEmpty);
        assert_eq!(FOR_EVER.fate(&empty, T0 + ms(UPLOAD_REST)), Fate::GoesIfEmpty);
    }

    /// Its grant is still good, and a build was made of it: without a record the grant would bring
    /// another archive.
    #[test]
    fn the_record_of_a_sealed_upload_outlives_its_grant() {
        let brief = Keeps {
            archives: Some(Duration::from_secs(1)),
            ..KEEPS
        };
        let of = held(0, Some(T0 - 60_000));
        assert_eq!(brief.fate(&of, T0 - 59_001), Fate::Stays);
        assert_eq!(brief.fate(&of, T0 - 59_000), Fate::LosesArchive);
        assert_eq!(brief.fate(&of, T0 - 1), Fate::LosesArchive);
        assert_eq!(brief.fate(&of, T0), Fate::Goes);
    }

    /// I-23: builds go after their time, and never with 0.
    #[test]
    fn builds_go_when_their_time_is_over() {
        assert_eq!(KEEPS.builds_until(T0), Some(T0 - ms(MONTH)));
        assert_eq!(FOR_EVER.builds_until(T0), None);
        // A board whose clock was never set.
        assert_eq!(KEEPS.builds_until(5), None);
    }

    #[test]
    fn what_no_record_names_goes_by_its_own_age() {
        assert!(!KEEPS.stray_archive_is_due(T0, T0 + ms(DAY) - 1));
        assert!(KEEPS.stray_archive_is_due(T0, T0 + ms(DAY)));
        assert!(!KEEPS.stray_build_is_due(T0, T0 + ms(MONTH) - 1));
        assert!(KEEPS.stray_build_is_due(T0, T0 + ms(MONTH)));
        assert!(!FOR_EVER.stray_archive_is_due(0, u64::MAX));
        assert!(!FOR_EVER.stray_build_is_due(0, u64::MAX));
    }

    /// I-23: every minute, or the shortest time that something is kept.
    #[test]
    fn sweeps_come_as_often_as_needed() {
        let keeps = |archives: Option<u64>, builds: Option<u64>| Keeps {
            archives: archives.map(Duration::from_millis),
            builds: builds.map(Duration::from_millis),
        };
        assert_eq!(KEEPS.interval(), SWEEP_EVERY);
        assert_eq!(FOR_EVER.interval(), SWEEP_EVERY);
        assert_eq!(keeps(Some(1000), None).interval(), Duration::from_secs(1));
        assert_eq!(keeps(Some(9000), Some(7000)).interval(), Duration::from_secs(7));
        assert_eq!(keeps(Some(1), None).interval(), SWEEP_EVERY_MIN);
    }
}
