//! Formats the timestamp of a transcript for RTVI: ISO 8601 in UTC with milliseconds,
//! `2026-11-21T09:20:06.429+00:00`.
//!
//! In: a `SystemTime`. Out: text. Times before 1970, as on a board without a battery, are formatted
//! as 1970. Source: ISO 8601.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::time::iso_ms;

/// Formats a time.
pub fn timestamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    iso_ms(ms).replace('Z', "+00:00")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The expected texts are those of GNU date.
    #[test]
    fn formats_times_in_utc_with_milliseconds() {
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
    fn formats_times_before_1970_as_1970() {
        let early = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(timestamp(early), "1970-01-01T00:00:00.000+00:00");
    }
}
