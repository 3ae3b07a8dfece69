//! Times as ISO 8601 text in UTC, dates of HTTP, the time of a request, and clocks that differ or
//! are set.
//!
//! In: milliseconds since 1970, or text. Out: text, or milliseconds. Times after the year 9999, the
//! last one of jiff's calendar, are formatted as its end. Text in other forms is rejected. Source:
//! ISO 8601; RFC 9110, section 5.6.7.

use std::fmt;
use std::ops::Add;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Seconds of a day, as POSIX clocks count them.
pub const DAY_SECONDS: u64 = 86_400;

/// A step of a clock: more than clocks drift from one look to the next.
pub const CLOCK_STEP: Duration = Duration::from_secs(3_600);

/// Time without a step after which a clock decides ages: time servers answer earlier.
const STEADY_AFTER: Duration = Duration::from_secs(600);

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

/// Whether the clock of the machine can be trusted with ages.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    /// The start, or the last step.
    since: Instant,
    last: (Instant, u64),
}

impl SteadyClock {
    /// Begins at this time by both clocks; the second one is in milliseconds since 1970.
    pub fn new(now: Instant, unix_ms: u64) -> Self {
        SteadyClock {
            since: now,
            last: (now, unix_ms),
        }
    }

    /// Handles a look at both clocks. Returns whether the second one has had no step for
    /// `STEADY_AFTER`.
    pub fn handle_look(&mut self, now: Instant, unix_ms: u64) -> bool {
        let (last, last_ms) = std::mem::replace(&mut self.last, (now, unix_ms));
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let expected_ms = last_ms.saturating_add(ms(now.saturating_duration_since(last)));
        if expected_ms.abs_diff(unix_ms) > ms(CLOCK_STEP) {
            self.since = now;
        }
        now.saturating_duration_since(self.since) >= STEADY_AFTER
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

/// Parses a date of HTTP such as `Sun, 06 Nov 1994 08:49:37 GMT`, as seconds since 1970. The forms
/// that are obsolete are rejected.
pub fn parse_http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, rest) = text.strip_suffix(" GMT")?.split_once(", ")?;
    let mut words = rest.splitn(4, ' ');
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = 1 + MONTHS.iter().position(|name| *name == month)?;
    parse_iso(&format!("{year}-{month:02}-{day}T{time}Z")).map(|ms| ms / 1_000)
}

/// A difference of clocks below this is no reason for anything, in seconds: requests and answers
/// take time.
const DIFFERENCE_MIN_S: u64 = 60;

/// How far the clock of this machine is from that of a server, shown as words before the name of
/// the latter: `this machine's clock is 7 days behind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDifference {
    is_behind: bool,
    by_s: u64,
}

impl ClockDifference {
    /// Compares both clocks, in seconds since 1970. `None` if they agree within a minute.
    pub fn of(own_s: u64, other_s: u64) -> Option<Self> {
        let by_s = own_s.abs_diff(other_s);
        (by_s > DIFFERENCE_MIN_S).then_some(ClockDifference {
            is_behind: own_s < other_s,
            by_s,
        })
    }
}

impl fmt::Display for ClockDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit_s, unit) = match self.by_s {
            ..120 => (1, "seconds"),
            120..7_200 => (60, "minutes"),
            7_200..172_800 => (3_600, "hours"),
            _ => (DAY_SECONDS, "days"),
        };
        let direction = if self.is_behind { "behind" } else { "ahead of" };
        write!(
            f,
            "this machine's clock is {} {unit} {direction}",
            self.by_s.saturating_add(unit_s / 2) / unit_s
        )
    }
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

    /// The first is the example of RFC 9110.
    #[test]
    fn dates_of_http_are_parsed() {
        for (text, unix_s) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun Nov  6 08:49:37 1994", None),
            ("Sun, 06 Nov 1994 08:49:37", None),
            ("Sun, 06 Nov 1994 08:49:37 UTC", None),
            ("Sun, 6 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 nov 1994 08:49:37 GMT", None),
            ("Sun, 31 Feb 1994 08:49:37 GMT", None),
            (" GMT", None),
            ("", None),
        ] {
            assert_eq!(parse_http_date(text), unix_s, "{text}");
        }
    }

    #[test]
    fn clocks_differ_by_more_than_a_minute() {
        let words = |own_s, other_s| ClockDifference::of(own_s, other_s).map(|differs| differs.to_string());
        let now_s = 1_795_904_000;
        assert_eq!(words(now_s, now_s), None);
        assert_eq!(words(now_s, now_s + 60), None);
        for (own_s, what) in [
            (now_s - 61, "61 seconds behind"),
            (now_s + 900, "15 minutes ahead of"),
            (now_s - 7_200, "2 hours behind"),
            (now_s + DAY_SECONDS, "24 hours ahead of"),
            (now_s - 365 * DAY_SECONDS, "365 days behind"),
        ] {
            assert_eq!(words(own_s, now_s), Some(format!("this machine's clock is {what}")));
        }
        assert!(words(0, u64::MAX).is_some());
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

    /// A clock is trusted again some time after its start or a step, and drift is none.
    #[test]
    fn a_clock_that_was_just_set_is_not_steady() {
        const UNIX_MS: u64 = 1_795_262_400_000;
        let (began, minute) = (Instant::now(), Duration::from_secs(60));
        let at = |minutes: u32| (began + minutes * minute, UNIX_MS + u64::from(minutes) * 60_000);
        let mut clock = SteadyClock::new(began, UNIX_MS);
        let mut look = |minutes, ahead_ms| {
            let (now, unix_ms) = at(minutes);
            clock.handle_look(now, unix_ms + ahead_ms)
        };
        assert!(!look(0, 0) && !look(9, 0) && look(10, 0));
        let year_ms = 365 * DAY_SECONDS * 1000;
        assert!(!look(11, year_ms) && !look(20, year_ms), "it jumped");
        assert!(!look(20, 0) && !look(29, 0) && look(30, 0), "it came back");
        // A day with a look per hour: a clock that is 1 % fast has no step.
        assert!((1..=24).all(|hour| look(30 + 60 * hour, u64::from(hour) * 36_000)));
        // A machine that slept: only one of both clocks went on.
        assert!(!look(1_471, 7_200_000));
    }
}
