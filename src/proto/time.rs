//! Dates as text: days of the Gregorian calendar, ISO 8601 in UTC.
//!
//! In: milliseconds since 1970 that the caller read from a clock, or text. Out: text, or milliseconds. Source: ISO 8601; Gregorian
//! calendar, whose 400 years are 146 097 days.

/// Seconds of a day of UTC, as clocks of POSIX count them.
pub const DAY_SECONDS: u64 = 86_400;

/// Writes an instant with its milliseconds: `2026-11-21T12:15:00.000Z`.
pub fn iso_ms(ms: u64) -> String {
    let (year, month, day) = date(ms / 1000 / DAY_SECONDS);
    let (hour, minute, second) = clock(ms / 1000);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        ms % 1000
    )
}

/// Writes an instant in the basic form, to the second: `20261121T121500Z`. Its first eight characters are the day.
pub fn compact(ms: u64) -> String {
    let (year, month, day) = date(ms / 1000 / DAY_SECONDS);
    let (hour, minute, second) = clock(ms / 1000);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Reads what [`iso_ms`] writes, and the same without milliseconds; nothing else.
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
    let (year, month, day) = (digits(&whole[..4])?, digits(&whole[5..7])?, digits(&whole[8..10])?);
    let (hour, minute, second) = (digits(&whole[11..13])?, digits(&whole[14..16])?, digits(&whole[17..])?);
    let days = days(year, month, day)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + ms)
}

fn clock(seconds: u64) -> (u64, u64, u64) {
    let second = seconds % DAY_SECONDS;
    (second / 3600, second / 60 % 60, second % 60)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

/// Turns a date from 1970 on into days since then; nothing for a day that is not in the calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let from_march = (month + 9) % 12;
    let year_from_march = year - u64::from(month <= 2);
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    (date(days) == (year, month, day)).then_some(days)
}

/// Turns days since 1970-01-01 into year, month and day.
///
/// Years are counted from March, so that the leap day is the last day of its year and needs no case of its own.
pub fn date(days: u64) -> (u64, u64, u64) {
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

    /// The expected texts are those of GNU date for the same seconds.
    #[test]
    fn instants_are_written_and_read_again() {
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

    #[test]
    fn what_is_no_date_is_not_read() {
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
