//! The instant of a transcript as RTVI writes it: ISO 8601 in UTC with milliseconds, `2026-11-21T09:20:06.429+00:00`.
//!
//! In: a `SystemTime` that the caller read. Out: text. A clock that stands before 1970 is taken as 1970, a board without a
//! battery may have one. Source: ISO 8601; Gregorian calendar, whose 400 years are 146 097 days.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::time::{DAY_SECONDS, date};

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
