//! Detects HTTP/1.1 requests with ambiguous framing (request smuggling).
//!
//! In: the bytes of a connection, in pieces of any size. Out: the number of the first request whose
//! length is ambiguous, and the accepted transfer codings ([`check_transfer_codings`]). The HTTP
//! library hides `Content-Length` when `Transfer-Encoding` is present, so the bytes themselves are
//! followed here. Only the position in the stream is kept. A stream that cannot be followed is
//! rejected from there on; the library has rejected it by then. Source: RFC 9112 sections 2.2, 6.1,
//! 6.3 and 7.1.

use std::fmt;

/// A request rejected for its framing. The connection closes after the response, since the start of
/// the next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// `Content-Length` beside `Transfer-Encoding`.
    TwoLengths,
    /// A transfer coding other than `chunked`, or `chunked` twice.
    Coding,
}

impl FramingError {
    /// Returns the status of the response.
    pub fn status(self) -> u16 {
        match self {
            FramingError::TwoLengths => 400,
            FramingError::Coding => 501,
        }
    }
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FramingError::TwoLengths => {
                "the request has both Content-Length and Transfer-Encoding, so its end is ambiguous; send one of them"
            }
            FramingError::Coding => {
                "the only transfer coding here is `chunked`, once; send the body in that or with a Content-Length"
            }
        })
    }
}

/// Checks the values of `Transfer-Encoding` of a request.
///
/// # Errors
/// Returns [`FramingError::Coding`] for anything but a single `chunked`.
pub fn check_transfer_codings<'v>(mut codings: impl Iterator<Item = &'v [u8]>) -> Result<(), FramingError> {
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(only), None) if only.trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(FramingError::Coding),
    }
}

/// Tracks the requests of one connection.
#[derive(Debug, Default)]
pub struct RequestFraming {
    state: FramingState,
    head: HeadFraming,
    /// Number of complete heads.
    heads: usize,
    first_ambiguous: Option<usize>,
}

/// The framing headers of a head so far.
#[derive(Debug, Default)]
struct HeadFraming {
    has_coding: bool,
    length: Option<u64>,
}

/// The element to which the next byte belongs.
#[derive(Debug, Default)]
enum FramingState {
    /// Empty lines before a request.
    #[default]
    Before,
    /// A line of a head: its length so far, and the header field.
    Line { bytes: usize, field: HeaderField },
    /// A number of bytes to skip: a body, or a chunk with its line end.
    Skip { bytes: u64, chunked: bool },
    /// The size line of a chunk.
    Size { size: Option<u64>, is_over: bool },
    /// A line after the last chunk, and whether it is empty.
    Trailer { is_empty: bool },
    /// The position is lost.
    Ambiguous,
}

/// The header field of a line.
#[derive(Clone, Copy, Debug)]
enum HeaderField {
    /// The bytes so far are a prefix of this name.
    Name(&'static [u8]),
    /// The value of `Content-Length`, and whether its digits are complete.
    Length { value: Option<u64>, is_over: bool },
    /// Another field, or a value without meaning.
    Other,
}

const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";

impl RequestFraming {
    /// Processes the next bytes of the connection.
    pub fn handle(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            match &mut self.state {
                FramingState::Ambiguous => return,
                FramingState::Skip { bytes: left, chunked } => {
                    let skipped = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[skipped..];
                    *left -= skipped as u64;
                    if *left == 0 {
                        self.state = if *chunked {
                            FramingState::size()
                        } else {
                            FramingState::Before
                        };
                    }
                    continue;
                }
                FramingState::Before if matches!(byte, b'\r' | b'\n') => {}
                // The request line, which is not a header field.
                FramingState::Before => {
                    self.head = HeadFraming::default();
                    self.state = FramingState::Line {
                        bytes: 1,
                        field: HeaderField::Other,
                    };
                }
                FramingState::Line { .. } if byte == b'\n' => self.handle_line(),
                FramingState::Line { bytes, field } => {
                    // A line that contains only its end is empty.
                    *bytes += usize::from(byte != b'\r');
                    field.handle(byte, *bytes, &mut self.head.has_coding);
                }
                FramingState::Size { .. } if byte == b'\n' => self.handle_size(),
                FramingState::Size { size, is_over } => match char::from(byte).to_digit(16) {
                    Some(digit) if !*is_over => {
                        let more = size
                            .unwrap_or(0)
                            .checked_mul(16)
                            .and_then(|size| size.checked_add(digit.into()));
                        match more {
                            Some(more) => *size = Some(more),
                            None => self.give_up(),
                        }
                    }
                    _ => *is_over = true,
                },
                FramingState::Trailer { is_empty: true } if byte == b'\n' => self.state = FramingState::Before,
                FramingState::Trailer { is_empty } => *is_empty = byte == b'\n' || byte == b'\r' && *is_empty,
            }
            bytes = rest;
        }
    }

    /// Returns the number, counted from 0, of the first request to reject with
    /// [`FramingError::TwoLengths`]; all later ones are rejected too.
    pub fn first_ambiguous(&self) -> Option<usize> {
        self.first_ambiguous
    }

    /// Handles the end of a line of a head.
    fn handle_line(&mut self) {
        let FramingState::Line { bytes, field } = std::mem::replace(
            &mut self.state,
            FramingState::Line {
                bytes: 0,
                field: HeaderField::NONE,
            },
        ) else {
            return;
        };
        if let HeaderField::Length { value, .. } = field {
            match (value, self.head.length) {
                (Some(value), None) => self.head.length = Some(value),
                (Some(value), Some(before)) if value == before => {}
                // Invalid, or different from an earlier one.
                _ => return self.give_up(),
            }
        }
        if bytes == 0 {
            self.handle_head();
        }
    }

    fn handle_head(&mut self) {
        self.state = match (self.head.has_coding, self.head.length) {
            (true, Some(_)) => return self.give_up(),
            (true, None) => FramingState::size(),
            (false, Some(bytes)) if bytes > 0 => FramingState::Skip { bytes, chunked: false },
            (false, _) => FramingState::Before,
        };
        self.heads += 1;
    }

    fn handle_size(&mut self) {
        let FramingState::Size { size, .. } = self.state else {
            return;
        };
        // A chunk is followed by a line end.
        self.state = match size.and_then(|size| size.checked_add(2)) {
            Some(2) => FramingState::Trailer { is_empty: true },
            Some(bytes) => FramingState::Skip { bytes, chunked: true },
            None => return self.give_up(),
        };
    }

    /// Marks this request and all later ones as ambiguous.
    fn give_up(&mut self) {
        self.state = FramingState::Ambiguous;
        self.first_ambiguous = Some(self.heads);
    }
}

impl FramingState {
    fn size() -> FramingState {
        FramingState::Size {
            size: None,
            is_over: false,
        }
    }
}

impl HeaderField {
    /// The state at the start of a line.
    const NONE: HeaderField = HeaderField::Name(b"");

    /// Processes a byte of a line; `bytes` is the length of the line including it.
    fn handle(&mut self, byte: u8, bytes: usize, has_coding: &mut bool) {
        match self {
            HeaderField::Other => {}
            HeaderField::Name(name) => {
                let lower = byte.to_ascii_lowercase();
                let name = match (bytes, lower) {
                    (1, b'c') => LENGTH,
                    (1, b't') => CODING,
                    _ => *name,
                };
                *self = match bytes.checked_sub(1).and_then(|at| name.get(at)) {
                    Some(&expected) if expected != lower => HeaderField::Other,
                    Some(_) if bytes < name.len() => HeaderField::Name(name),
                    Some(_) if name == LENGTH => HeaderField::Length {
                        value: None,
                        is_over: false,
                    },
                    Some(_) => {
                        *has_coding = true;
                        HeaderField::Other
                    }
                    None => HeaderField::Other,
                };
            }
            HeaderField::Length { value, is_over } => match byte {
                b' ' | b'\t' | b'\r' => *is_over |= value.is_some(),
                b'0'..=b'9' if !*is_over => {
                    let more = value.unwrap_or(0).checked_mul(10);
                    *value = more.and_then(|more| more.checked_add((byte - b'0').into()));
                    // A number with too many digits is invalid.
                    *is_over = value.is_none();
                }
                _ => (*value, *is_over) = (None, true),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of heads that end in these bytes, and the first rejected one; the same
    /// for pieces of every size.
    fn follow(bytes: &[u8]) -> (usize, Option<usize>) {
        let mut whole = RequestFraming::default();
        whole.handle(bytes);
        for size in 1..bytes.len() {
            let mut pieces = RequestFraming::default();
            bytes.chunks(size).for_each(|piece| pieces.handle(piece));
            let found = (pieces.heads, pieces.first_ambiguous());
            assert_eq!(found, (whole.heads, whole.first_ambiguous()), "pieces of {size}");
        }
        (whole.heads, whole.first_ambiguous())
    }

    const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

    /// RFC 9112 section 6.3: a request with both headers is rejected, in any order and case and
    /// with any value.
    #[test]
    fn rejects_requests_with_two_lengths() {
        for fields in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "transfer-encoding:chunked\r\nHost: h\r\nCONTENT-LENGTH:\t0 ",
            "Content-Length: 0\r\nX: y\r\nContent-Length: 0\r\nTransfer-Encoding: gzip, chunked",
            "Content-Length: 5\nTransfer-Encoding: chunked",
        ] {
            let bytes = format!("POST /a HTTP/1.1\r\n{fields}\r\n\r\n{GET}");
            assert_eq!(follow(bytes.as_bytes()), (0, Some(0)), "{fields}");
            let bytes = format!("{GET}\r\n{GET}{bytes}");
            assert_eq!(follow(bytes.as_bytes()), (2, Some(2)), "{fields}");
        }
    }

    /// Consecutive requests are separated, even if a body looks like a head.
    #[test]
    fn bodies_do_not_count_as_heads() {
        let evil = "\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let length = evil.len();
        let chunk = format!("{length:x};ext=1\r\n{evil}\r\n");
        for request in [
            GET.to_owned(),
            "GET / HTTP/1.0\n\n".into(),
            "\r\n\n\r\nGET /Content-Length: 5 HTTP/1.1\r\nHost: h\r\n\r\n".into(),
            "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n".into(),
            format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{evil}"),
            format!("POST / HTTP/1.1\r\nContent-Length:{length}\r\ncontent-length: {length} \r\n\r\n{evil}"),
            format!(
                "POST / HTTP/1.1\r\nX-Content-Length: 7\r\nContent-Lengths: 7\r\nContent-Length: {length}\r\n\r\n{evil}"
            ),
            format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"),
            format!(
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}000\r\nContent-Length: 5\r\nT: x\r\n\r\n"
            ),
            format!("POST / HTTP/1.1\r\nTransfer-Encodings: x\r\nContent-Length: {length}\r\n\r\n{evil}"),
        ] {
            let bytes = format!("{request}{request}{GET}");
            assert_eq!(follow(bytes.as_bytes()), (3, None), "{request:?}");
        }
    }

    /// After a request that the library rejects, all requests are rejected here.
    #[test]
    fn rejects_everything_after_a_malformed_request() {
        for (head, heads) in [
            ("Content-Length: +5\r\n\r\nhello", 0),
            ("Content-Length: -1\r\n\r\n", 0),
            ("Content-Length: 0x10\r\n\r\n", 0),
            ("Content-Length: 1 2\r\n\r\n", 0),
            ("Content-Length: 1, 1\r\n\r\n", 0),
            ("Content-Length:\r\n\r\n", 0),
            ("Content-Length: 18446744073709551616\r\n\r\n", 0),
            ("Content-Length: 99999999999999999999999\r\n\r\n", 0),
            ("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 0),
            ("Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 1),
            ("Transfer-Encoding: chunked\r\n\r\n\r\n", 1),
            ("Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", 1),
            ("Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 1),
        ] {
            let bytes = format!("POST / HTTP/1.1\r\n{head}{GET}{GET}");
            assert_eq!(follow(bytes.as_bytes()), (heads, Some(heads)), "{head:?}");
        }
        let mut longest = RequestFraming::default();
        longest.handle(b"POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n");
        longest.handle(&[b'\n'; 1000]);
        assert_eq!((longest.heads, longest.first_ambiguous()), (1, None));
    }

    /// No bytes cause a panic, and no head is counted after the position is lost.
    #[test]
    fn no_bytes_panic() {
        let words = [
            "GET / HTTP/1.1\r\n",
            "\r\n",
            "\n",
            "\r",
            "Content-Length: ",
            "5",
            "transfer-encoding:",
            "chunked",
            " ",
            "ffff",
            ";",
            "0",
            "x",
        ];
        let mut state = 1_u32;
        for _ in 0..2_000 {
            let mut bytes = String::new();
            for _ in 0..20 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                bytes.push_str(words[(state >> 16) as usize % words.len()]);
            }
            let (heads, refused) = follow(bytes.as_bytes());
            assert!(refused.is_none_or(|refused| refused == heads), "{bytes:?}");
        }
    }

    #[test]
    fn chunked_is_the_only_coding() {
        let judge_all = |values: &[&str]| check_transfer_codings(values.iter().map(|value| value.as_bytes()));
        for good in [&[][..], &["chunked"], &["Chunked"], &[" chunked\t"]] {
            assert_eq!(judge_all(good), Ok(()), "{good:?}");
        }
        for bad in [
            &["gzip, chunked"][..],
            &["chunked, chunked"],
            &["chunked", "chunked"],
            &["identity", "chunked"],
            &["chunked;q=1"],
            &["chunked,"],
            &["xchunked"],
            &[""],
        ] {
            assert_eq!(judge_all(bad), Err(FramingError::Coding), "{bad:?}");
        }
    }
}
