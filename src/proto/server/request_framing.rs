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
mod tests;
