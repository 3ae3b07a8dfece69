//! Times as ISO 8601 text in UTC, and the time of a request.
//!
//! In: milliseconds since 1970, or text. Out: text, or milliseconds. Times after the year 9999, the
//! last one of jiff's calendar, are formatted as its end. Text in other forms is rejected. Source:
//! ISO 8601.

use std::ops::Add;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Seconds of a day, as POSIX clocks count them.
pub const DAY_SECONDS: u64 = 86_400;

/// The time of a request: by the clock that never jumps, and by the one that all machines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTime {
    pub now: Instant,
    /// Seconds since 1970.
    pub unix_s: u64,
}

impl Add<Duration> for RequestTime {
    type Output = RequestTime;

    /// Returns the time after `pause`, if no clock is set in between.
    fn add(self, pause: Duration) -> RequestTime {
        RequestTime {
            now: self.now + pause,
            unix_s: self.unix_s + pause.as_secs(),
        }
    }
}

/// Formats a time with milliseconds: `2026-11-21T12:15:00.000Z`.
pub fn iso_ms(ms: u64) -> String {
    format!("{:.3}", timestamp(ms))
}

/// Formats a time in the basic form, to the second: `20261121T121500Z`. Its first eight characters
/// are the day.
pub fn compact(ms: u64) -> String {
    let at = Offset::UTC.to_datetime(timestamp(ms));
    let (year, month, day) = (at.year(), at.month(), at.day());
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Parses the format of [`iso_ms`], with or without milliseconds.
pub fn parse_iso(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z')?;
    let (whole, ms) = match text.split_once('.') {
        Some((whole, ms)) if ms.len() == 3 => (whole, digits(ms)?),
        Some(_) => return None,
        None => (text, 0),
    };
    let bytes = whole.as_bytes();
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if bytes.len() != 19 || !whole.is_ascii() || marks.iter().any(|&(at, mark)| bytes[at] != mark) {
        return None;
    }
    let two = |at: usize| digits(&whole[at..at + 2]).and_then(|number| i8::try_from(number).ok());
    let at = DateTime::new(
        digits(&whole[..4])?,
        two(5)?,
        two(8)?,
        two(11)?,
        two(14)?,
        two(17)?,
        i32::from(ms) * 1_000_000,
    );
    let at = Offset::UTC.to_timestamp(at.ok()?).ok()?;
    u64::try_from(at.as_millisecond()).ok()
}

fn timestamp(ms: u64) -> Timestamp {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

fn digits(text: &str) -> Option<i16> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are those of GNU date.
    #[test]
    fn formats_and_parses_times() {
        for (ms, text, short) in [
            (0, "1970-01-01T00:00:00.000Z", "19700101T000000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z", "20000228T235959Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z", "20000229T000000Z"),
            (1_795_252_806_429, "2026-11-21T09:20:06.429Z", "20261121T092006Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z", "21000301T000000Z"),
        ] {
            assert_eq!(iso_ms(ms), text);
            assert_eq!(compact(ms), short);
            assert_eq!(parse_iso(text), Some(ms));
        }
        assert_eq!(parse_iso("2026-11-21T09:20:06Z"), Some(1_795_252_806_000));
    }

    /// A clock in the far future causes no panic.
    #[test]
    fn formats_later_times_as_the_last_one() {
        assert_eq!(iso_ms(u64::MAX), iso_ms(i64::MAX.unsigned_abs()));
        assert!(iso_ms(u64::MAX).starts_with("9999-12-30T"));
    }

    #[test]
    fn rejects_text_that_is_not_a_time() {
        for text in [
            "",
            "Z",
            "2026-11-21",
            "2026-02-29T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-00-01T00:00:00.000Z",
            "2026-01-00T00:00:00.000Z",
            "1969-12-31T23:59:59.000Z",
            "2026-11-21T24:00:00.000Z",
            "2026-11-21T09:60:00.000Z",
            "2026-11-21T09:20:06.4Z",
            "2026-11-21T09:20:06.429+00:00",
            "2026-11-21 09:20:06.429Z",
            "+026-11-21T09:20:06.429Z",
            "2026-11-2\u{e9}T09:20:06Z",
        ] {
            assert_eq!(parse_iso(text), None, "{text}");
        }
    }
}
