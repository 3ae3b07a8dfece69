//! Byte ranges of files.
//!
//! In: the `Range` header and a file's length. Out: a [`ByteRange`]. An invalid range or several
//! ranges select the whole file, as RFC 9110 section 14.2 permits.

use std::ops::Range;

/// The part of a file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByteRange {
    Full,
    /// Start inclusive, end exclusive.
    Partial(Range<u64>),
    /// The file has none of the requested bytes.
    Unsatisfiable,
}

/// Parses a `Range` header for a file of `length` bytes.
pub fn parse(header: Option<&str>, length: u64) -> ByteRange {
    let Some((first, last)) = header.and_then(bounds) else {
        return ByteRange::Full;
    };
    match (number(first), number(last)) {
        // A suffix range.
        (None, Some(count)) if first.is_empty() => match count.min(length) {
            0 => ByteRange::Unsatisfiable,
            count => ByteRange::Partial(length - count..length),
        },
        (Some(first), None) if last.is_empty() => from(first, length),
        (Some(first), Some(last)) if first <= last => match from(first, length) {
            ByteRange::Partial(_) => ByteRange::Partial(first..length.min(last.saturating_add(1))),
            other => other,
        },
        _ => ByteRange::Full,
    }
}

fn from(first: u64, length: u64) -> ByteRange {
    match first < length {
        true => ByteRange::Partial(first..length),
        false => ByteRange::Unsatisfiable,
    }
}

fn bounds(header: &str) -> Option<(&str, &str)> {
    let (unit, set) = header.split_once('=')?;
    let (first, last) = set.trim().split_once('-')?;
    unit.trim().eq_ignore_ascii_case("bytes").then_some((first, last))
}

/// Parses digits. A number beyond 64 bits saturates.
pub fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I-11: ranges that common clients send, on a file of ten bytes.
    #[test]
    fn ranges_of_ten_bytes() {
        for (header, wanted) in [
            ("bytes=0-0", ByteRange::Partial(0..1)),
            ("bytes=0-9", ByteRange::Partial(0..10)),
            ("bytes=0-", ByteRange::Partial(0..10)),
            ("bytes=9-", ByteRange::Partial(9..10)),
            ("bytes=3-5", ByteRange::Partial(3..6)),
            ("bytes=5-100", ByteRange::Partial(5..10)),
            ("bytes=-3", ByteRange::Partial(7..10)),
            ("bytes=-100", ByteRange::Partial(0..10)),
            ("Bytes = 1-2", ByteRange::Partial(1..3)),
            ("bytes=0-99999999999999999999999", ByteRange::Partial(0..10)),
            ("bytes=10-", ByteRange::Unsatisfiable),
            ("bytes=10-12", ByteRange::Unsatisfiable),
            ("bytes=99999999999999999999999-", ByteRange::Unsatisfiable),
            ("bytes=-0", ByteRange::Unsatisfiable),
        ] {
            assert_eq!(parse(Some(header), 10), wanted, "{header}");
        }
    }

    #[test]
    fn other_range_headers_select_the_whole_file() {
        assert_eq!(parse(None, 10), ByteRange::Full);
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=a-0",
            "bytes=1-b",
            "bytes=5-3",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=+1-2",
            "bytes=1 -2",
        ] {
            assert_eq!(parse(Some(header), 10), ByteRange::Full, "{header}");
        }
    }

    #[test]
    fn an_empty_file_has_no_satisfiable_range() {
        assert_eq!(parse(Some("bytes=0-"), 0), ByteRange::Unsatisfiable);
        assert_eq!(parse(Some("bytes=-1"), 0), ByteRange::Unsatisfiable);
        assert_eq!(parse(None, 0), ByteRange::Full);
    }
}
