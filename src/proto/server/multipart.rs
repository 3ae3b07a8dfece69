//! A streaming parser of `multipart/form-data` bodies.
//!
//! In: pieces of a body, cut anywhere. Out: whole fields, then the bytes of the part named `file`,
//! which are not buffered; a form that is read for its fields has no such part. Of a part's header,
//! `Content-Disposition` and `Content-Type` are read. Parts behind the file are dropped, except for
//! a second file, which is an error. Rejected: bodies that are not such a form, and more than
//! [`FIELDS_BYTES_MAX`] of fields, `PART_HEAD_BYTES_MAX` of a part's header or
//! [`FRAME_BYTES_MAX`] of anything outside the file. Source: RFC 7578, RFC 2046 section 5.1, and
//! the forms of curl, Python clients and browsers.

use std::borrow::Cow;

use crate::limits::{BOUNDARY_BYTES_MAX, FIELDS_BYTES_MAX, FRAME_BYTES_MAX};

/// Bytes of the header of a part of a form: the longest file name, percent-encoded twice, and a few
/// more lines.
const PART_HEAD_BYTES_MAX: usize = 4 * 1024;

/// An event of the parser.
#[derive(Debug, PartialEq, Eq)]
pub enum MultipartEvent<'a> {
    /// A complete field.
    Field { name: &'a str, value: &'a [u8] },
    /// The file begins; all relevant fields precede it.
    File,
    /// A part of the file.
    Data(&'a [u8]),
    /// The file is complete.
    FileEnd,
    /// The last boundary: the form is complete. Emitted once, after the file if there is one.
    End,
}

/// A rejected body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultipartError {
    /// The body is malformed.
    Malformed(&'static str),
    /// The content before the file is too long.
    FieldsTooLong,
    /// No file, or several.
    Files(&'static str),
}

const NO_FILE: MultipartError =
    MultipartError::Files("the form has no part named \"file\"; it is expected behind the fields");
const TWO_FILES: MultipartError = MultipartError::Files("the form has a second part named \"file\"; one is expected");

/// What the header of the file says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePart {
    /// Its name at the client, with or without a path; `None` for a plain field.
    pub name: Option<String>,
    pub content_type: Option<String>,
}

/// Returns the boundary in a `Content-Type`; `None` for another type or an invalid boundary.
pub fn boundary(content_type: &[u8]) -> Option<String> {
    let (kind, parameters) = head_and_parameters(content_type);
    if !kind.eq_ignore_ascii_case(b"multipart/form-data") {
        return None;
    }
    let boundary = parameter(parameters, "boundary").ok()??;
    let usable = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())
        && boundary.iter().all(|b| (b' '..=b'~').contains(b))
        && !boundary.ends_with(b" ");
    usable.then(|| String::from_utf8(boundary.into_owned()).ok()).flatten()
}

/// The parser.
#[derive(Debug)]
pub struct MultipartParser {
    /// Whether the form contains a file.
    has_upload: bool,
    fields_bytes_max: usize,
    frame_bytes_max: usize,
    /// A line break, two hyphens, the boundary. The search relies on `\r` being only its first
    /// byte.
    delimiter: Vec<u8>,
    /// Length of the delimiter prefix that the last bytes match.
    matched: usize,
    state: ParserState,
    /// The header of a part, or the value of a field.
    buffer: Vec<u8>,
    name: String,
    has_file: bool,
    file: Option<FilePart>,
    /// Bytes of names and values so far.
    field_bytes: usize,
    /// Bytes outside the file so far.
    frame_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// Before the first delimiter; the content is ignored.
    Preamble,
    /// After a delimiter.
    Line(BoundaryState),
    /// In the header of a part.
    Head,
    /// In the value of a field.
    Value,
    /// In the file.
    File,
    /// In a part after the file.
    Ignored,
    /// After the last delimiter.
    Epilogue,
}

/// The position in the line of a delimiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoundaryState {
    Start,
    Padding,
    Cr,
    Hyphen,
}

impl MultipartParser {
    /// Creates a parser for the boundary that [`boundary`] returned.
    pub fn new(boundary: &str) -> Self {
        Self::with(boundary, true, FIELDS_BYTES_MAX, FRAME_BYTES_MAX)
    }

    /// Creates a parser for a form without a file, with at most `bytes_max` of names and values.
    pub fn for_fields(boundary: &str, bytes_max: usize) -> Self {
        Self::with(boundary, false, bytes_max, bytes_max.saturating_add(FRAME_BYTES_MAX))
    }

    fn with(boundary: &str, has_upload: bool, fields_bytes_max: usize, frame_bytes_max: usize) -> Self {
        MultipartParser {
            has_upload,
            fields_bytes_max,
            frame_bytes_max,
            delimiter: [b"\r\n--", boundary.as_bytes()].concat(),
            // A body starts as if a line break preceded it.
            matched: 2,
            state: ParserState::Preamble,
            buffer: Vec::new(),
            name: String::new(),
            has_file: false,
            file: None,
            field_bytes: 0,
            frame_bytes: 0,
        }
    }

    /// Parses the next bytes of the body, and passes events to `on`.
    ///
    /// # Errors
    /// Returns a [`MultipartError`], or the error of `on`. The parser must not be used afterwards.
    pub fn push<E: From<MultipartError>>(
        &mut self,
        mut bytes: &[u8],
        on: &mut dyn FnMut(MultipartEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(&first) = bytes.first() {
            let used = match self.state {
                ParserState::Line(handle_boundary_byte) => {
                    self.count_framing(1)?;
                    if self.line(handle_boundary_byte, first)? {
                        on(MultipartEvent::End)?;
                    }
                    1
                }
                ParserState::Head => {
                    self.count_framing(1)?;
                    if self.handle_header_byte(first)? {
                        on(MultipartEvent::File)?;
                    }
                    1
                }
                ParserState::Epilogue => {
                    self.count_framing(bytes.len())?;
                    bytes.len()
                }
                ParserState::Preamble | ParserState::Value | ParserState::File | ParserState::Ignored => {
                    self.handle_content(bytes, on)?
                }
            };
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// Takes what the header of the file says of it, once the file has begun.
    pub fn take_file(&mut self) -> Option<FilePart> {
        self.file.take()
    }

    /// Returns whether the body may end here.
    ///
    /// # Errors
    /// Returns [`MultipartError::Malformed`] if the last boundary is missing.
    pub fn finish(self) -> Result<(), MultipartError> {
        match self.state {
            ParserState::Epilogue => Ok(()),
            _ => Err(MultipartError::Malformed("the form ends before its last boundary")),
        }
    }

    /// Counts bytes outside the file.
    fn count_framing(&mut self, bytes: usize) -> Result<(), MultipartError> {
        self.frame_bytes += bytes;
        if self.frame_bytes <= self.frame_bytes_max {
            return Ok(());
        }
        Err(match self.has_file {
            false => MultipartError::FieldsTooLong,
            true => MultipartError::Malformed("too much comes behind the file"),
        })
    }

    /// Counts bytes of names and values before the file.
    fn count_field(&mut self, bytes: usize) -> Result<(), MultipartError> {
        self.field_bytes += bytes;
        match self.field_bytes <= self.fields_bytes_max {
            true => Ok(()),
            false => Err(MultipartError::FieldsTooLong),
        }
    }

    /// Processes a byte after a delimiter; returns whether it ended the last delimiter.
    fn line(&mut self, line: BoundaryState, byte: u8) -> Result<bool, MultipartError> {
        self.state = match (line, byte) {
            (BoundaryState::Start, b'-') => ParserState::Line(BoundaryState::Hyphen),
            (BoundaryState::Start | BoundaryState::Padding, b' ' | b'\t') => ParserState::Line(BoundaryState::Padding),
            (BoundaryState::Start | BoundaryState::Padding, b'\r') => ParserState::Line(BoundaryState::Cr),
            (BoundaryState::Cr, b'\n') => {
                self.buffer.clear();
                ParserState::Head
            }
            (BoundaryState::Hyphen, b'-') if self.has_upload && !self.has_file => return Err(NO_FILE),
            (BoundaryState::Hyphen, b'-') => {
                self.state = ParserState::Epilogue;
                return Ok(true);
            }
            _ => return Err(MultipartError::Malformed("a boundary is not alone in its line")),
        };
        Ok(false)
    }

    /// Processes a byte of a part header; returns whether it ended the header of the file.
    fn handle_header_byte(&mut self, byte: u8) -> Result<bool, MultipartError> {
        if self.buffer.len() == PART_HEAD_BYTES_MAX {
            return Err(MultipartError::Malformed("the header of a part is too long"));
        }
        self.buffer.push(byte);
        if !self.buffer.ends_with(b"\r\n\r\n") && self.buffer != b"\r\n" {
            return Ok(false);
        }
        let (name, file) = part_head(&self.buffer)?;
        self.buffer.clear();
        let is_file = self.has_upload && name == "file";
        self.state = match (is_file, self.has_file) {
            (true, true) => return Err(TWO_FILES),
            (true, false) => ParserState::File,
            (false, true) => ParserState::Ignored,
            (false, false) => {
                self.count_field(name.len())?;
                ParserState::Value
            }
        };
        if is_file {
            self.has_file = true;
            self.file = Some(file);
        }
        self.name = name;
        Ok(is_file)
    }

    /// Processes bytes of content or of the delimiter after it; returns their number.
    fn handle_content<E: From<MultipartError>>(
        &mut self,
        bytes: &[u8],
        on: &mut dyn FnMut(MultipartEvent<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        if self.matched > 0 {
            return self.resume_delimiter(bytes, on);
        }
        let mut from = 0;
        while let Some(found) = bytes[from..].iter().position(|byte| *byte == b'\r') {
            let at = from + found;
            let same = common_prefix(&bytes[at..], &self.delimiter);
            if same == self.delimiter.len() || at + same == bytes.len() {
                self.push_content(&bytes[..at], on)?;
                self.matched = same;
                self.finish_content(on)?;
                return Ok(at + same);
            }
            from = at + 1;
        }
        self.push_content(bytes, on)?;
        Ok(bytes.len())
    }

    /// The same if the bytes before may be the start of a delimiter.
    fn resume_delimiter<E: From<MultipartError>>(
        &mut self,
        bytes: &[u8],
        on: &mut dyn FnMut(MultipartEvent<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let same = common_prefix(bytes, &self.delimiter[self.matched..]);
        self.matched += same;
        if self.matched == self.delimiter.len() || same == bytes.len() {
            self.finish_content(on)?;
        } else {
            // They were content, which is rare enough for a copy. The next bytes are matched again.
            let held = self.delimiter[..self.matched].to_vec();
            self.matched = 0;
            self.push_content(&held, on)?;
        }
        Ok(same)
    }

    /// Processes content.
    fn push_content<E: From<MultipartError>>(
        &mut self,
        piece: &[u8],
        on: &mut dyn FnMut(MultipartEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.state {
            ParserState::File if piece.is_empty() => {}
            ParserState::File => on(MultipartEvent::Data(piece))?,
            ParserState::Value => {
                self.count_field(piece.len())?;
                self.count_framing(piece.len())?;
                self.buffer.extend_from_slice(piece);
            }
            _ => self.count_framing(piece.len())?,
        }
        Ok(())
    }

    /// Ends the content if the delimiter is complete.
    fn finish_content<E: From<MultipartError>>(
        &mut self,
        on: &mut dyn FnMut(MultipartEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.matched < self.delimiter.len() {
            return Ok(());
        }
        self.matched = 0;
        self.count_framing(self.delimiter.len())?;
        match self.state {
            ParserState::Value => on(MultipartEvent::Field {
                name: &self.name,
                value: &self.buffer,
            })?,
            ParserState::File => on(MultipartEvent::FileEnd)?,
            _ => {}
        }
        self.state = ParserState::Line(BoundaryState::Start);
        Ok(())
    }
}

/// Returns the length of the common prefix.
fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Returns the name of a part from its header, which ends with an empty line, and what it says of a
/// file.
fn part_head(header: &[u8]) -> Result<(String, FilePart), MultipartError> {
    let mut name = None;
    let mut file = FilePart::default();
    for line in header.split_inclusive(|byte| *byte == b'\n') {
        let line = line
            .strip_suffix(b"\r\n")
            .filter(|line| !line.contains(&b'\r') && !line.contains(&0))
            .ok_or(MultipartError::Malformed(
                "a line in a part's header does not end with CR LF",
            ))?;
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = line.split_at(colon.filter(|at| *at > 0 && !line[0].is_ascii_whitespace()).ok_or(
            MultipartError::Malformed("a line in a part's header is not like \"name: value\""),
        )?);
        if field.eq_ignore_ascii_case(b"content-type") {
            let value = value[1..].trim_ascii();
            let is_plain = value.iter().all(|byte| (b' '..=b'~').contains(byte));
            file.content_type = str::from_utf8(value).ok().filter(|_| is_plain).map(str::to_owned);
        }
        if !field.eq_ignore_ascii_case(b"content-disposition") {
            continue;
        }
        let (kind, parameters) = head_and_parameters(&value[1..]);
        if name.is_some() || !kind.eq_ignore_ascii_case(b"form-data") {
            return Err(MultipartError::Malformed(
                "a part does not have one \"Content-Disposition: form-data\"",
            ));
        }
        name = parameter(parameters, "name")
            .map_err(|ParameterError| MultipartError::Malformed("a part's \"Content-Disposition\" cannot be read"))?
            .map(Cow::into_owned);
        if name.is_none() {
            break;
        }
        let of_client = parameter(parameters, "filename").ok().flatten();
        file.name = of_client.map(|name| String::from_utf8_lossy(&name).into_owned());
    }
    let name = name.ok_or(MultipartError::Malformed(
        "a part has no \"Content-Disposition: form-data\" with a name",
    ))?;
    let name = String::from_utf8(name).map_err(|_| MultipartError::Malformed("the name of a part is not UTF-8"))?;
    Ok((name, file))
}

/// Splits the value of a header from its parameters.
fn head_and_parameters(value: &[u8]) -> (&[u8], &[u8]) {
    let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    (value[..end].trim_ascii(), &value[end..])
}

/// Parameters are malformed, or one is repeated. The form is `; field_name=value;
/// field_name="value"`.
#[derive(Debug, PartialEq, Eq)]
struct ParameterError;

/// Returns one of the parameters of a header. All of them must be valid.
fn parameter<'v>(mut rest: &'v [u8], wanted: &str) -> Result<Option<Cow<'v, [u8]>>, ParameterError> {
    let mut found = None;
    loop {
        rest = rest.trim_ascii_start();
        match rest.split_first() {
            None => return Ok(found),
            Some((b';', after)) => {
                rest = after.trim_ascii_start();
                // Empty between two semicolons, or after the last one.
                if rest.is_empty() || rest[0] == b';' {
                    continue;
                }
            }
            Some(_) => return Err(ParameterError),
        }
        let equals = rest.iter().position(|byte| *byte == b'=').ok_or(ParameterError)?;
        let (name, after) = (&rest[..equals], rest[equals + 1..].trim_ascii_start());
        let value;
        (value, rest) = match after.strip_prefix(b"\"") {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = after.iter().position(|byte| *byte == b';').unwrap_or(after.len());
                (Cow::Borrowed(after[..end].trim_ascii_end()), &after[end..])
            }
        };
        if name.eq_ignore_ascii_case(wanted.as_bytes()) && found.replace(value).is_some() {
            return Err(ParameterError);
        }
    }
}

/// Parses a quoted value; returns it and the rest. A backslash escapes a quotation mark and a
/// backslash; elsewhere it is part of a Windows file name.
fn unquoted(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), ParameterError> {
    let mut value = Vec::new();
    let mut rest = text;
    loop {
        let (first, after) = rest.split_first().ok_or(ParameterError)?;
        rest = after;
        match (first, after.first()) {
            (b'"', _) => return Ok((value.into(), rest)),
            (b'\\', Some(escaped @ (b'"' | b'\\'))) => {
                value.push(*escaped);
                rest = &after[1..];
            }
            _ => value.push(*first),
        }
    }
}

#[cfg(test)]
mod tests;
