//! The instant of a transcript as RTVI writes it: ISO 8601 in UTC with milliseconds, `2026-11-21T09:20:06.429+00:00`.
//!
//! In: a `SystemTime` that the caller read. Out: text. A clock that stands before 1970 is taken as 1970, a board without a
//! battery may have one. Source: ISO 8601; Gregorian calendar, whose 400 years are 146 097 days.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;

/// Writes an instant.
pub fn timestamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = date(seconds / DAY_SECONDS);
    let second = seconds % DAY_SECONDS;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}+00:00",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

/// Turns days since 1970-01-01 into year, month and day.
///
/// Years are counted from March, so that the leap day is the last day of its year and needs no case of its own.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01 to 1970-01-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The expected texts are those of GNU date for the same seconds.
    #[test]
    fn instants_are_written_in_utc_with_milliseconds() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000+00:00"),
            (951_782_399_999, "2000-02-28T23:59:59.999+00:00"),
            (951_782_400_000, "2000-02-29T00:00:00.000+00:00"),
            (951_868_800_001, "2000-03-01T00:00:00.001+00:00"),
            (1_795_252_806_429, "2026-11-21T09:20:06.429+00:00"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000+00:00"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_clock_before_1970_is_taken_as_1970() {
        let early = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(timestamp(early), "1970-01-01T00:00:00.000+00:00");
    }
}
