//! A reader of server-sent events.
//!
//! In: pieces of a body, cut anywhere, also within a character or between CR and LF. Out: the data
//! of each event. Comments, names of events, identifiers, retry times, and events whose data is
//! empty are dropped: gateways send them to keep a connection open. At the end of the body an event
//! without a blank line behind it counts, since some servers omit it. A line, or an event, of more
//! than [`SSE_LINE_BYTES_MAX`] is an error. Source: the HTML standard, section "Server-sent
//! events".

use crate::limits::SSE_LINE_BYTES_MAX;

/// A line or an event is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseTooLong;

/// Reads one stream.
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Whether the last byte was a CR, so that an LF belongs to it.
    is_behind_cr: bool,
    is_behind_first_line: bool,
}

impl SseReader {
    /// Takes bytes off the front of `bytes` up to the end of the next event, and returns its data.
    /// `None`: all bytes are taken.
    ///
    /// # Errors
    /// [`SseTooLong`]. The reader must not be used afterwards.
    pub fn next_event(&mut self, bytes: &mut &[u8]) -> Result<Option<String>, SseTooLong> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.is_behind_cr) && bytes[0] == b'\n' {
                *bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.line.len() + part.len() > SSE_LINE_BYTES_MAX {
                return Err(SseTooLong);
            }
            self.line.extend_from_slice(part);
            *bytes = rest;
            if end.is_none() {
                break;
            }
            self.is_behind_cr = bytes[0] == b'\r';
            *bytes = &bytes[1..];
            if let Some(event) = self.end_line()? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Returns the data of the last event at the end of the body.
    ///
    /// # Errors
    /// [`SseTooLong`].
    pub fn finish(mut self) -> Result<Option<String>, SseTooLong> {
        let event = self.end_line()?;
        Ok(event.or_else(|| self.take_event()))
    }

    fn end_line(&mut self) -> Result<Option<String>, SseTooLong> {
        let mut line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.is_behind_first_line, true);
        let mut field = &line[..];
        if is_first {
            field = field.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(field);
        }
        let event = if field.is_empty() { self.take_event() } else { None };
        if let Some(value) = field.strip_prefix(b"data").and_then(field_value) {
            if self.data.len() + value.len() >= SSE_LINE_BYTES_MAX {
                return Err(SseTooLong);
            }
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
        }
        // The memory of the line is used again.
        line.clear();
        self.line = line;
        Ok(event)
    }

    fn take_event(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.has_data) {
            return None;
        }
        let is_empty = self.data.trim_ascii().is_empty();
        let data = (!is_empty).then(|| String::from_utf8_lossy(&self.data).into_owned());
        self.data.clear();
        data
    }
}

/// Returns the value behind the name of a field.
fn field_value(rest: &[u8]) -> Option<&[u8]> {
    match rest.strip_prefix(b":") {
        Some(value) => Some(value.strip_prefix(b" ").unwrap_or(value)),
        None => rest.is_empty().then_some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &[u8], piece_bytes: usize) -> Result<Vec<String>, SseTooLong> {
        let (mut reader, mut events) = (SseReader::default(), Vec::new());
        for mut piece in body.chunks(piece_bytes) {
            while let Some(event) = reader.next_event(&mut piece)? {
                events.push(event);
            }
            assert!(piece.is_empty());
        }
        events.extend(reader.finish()?);
        Ok(events)
    }

    /// Every way to cut a body gives the same events.
    #[test]
    fn events_are_those_of_the_standard_however_they_are_cut() {
        for (body, events) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("data:a\r\n\r\ndata:  b\r\r", vec!["a", " b"]),
            (": comment\n:\n\n:\r\n\r\ndata: a\n:\ndata: b\n\n", vec!["a\nb"]),
            ("event: x\nid: 1\nretry: 5\ndatum: no\n\ndata: a\n\n", vec!["a"]),
            (
                "\u{feff}data: a\n\ndata\n\ndata:\ndata:\n\ndata: \n\ndata: b",
                vec!["a", "b"],
            ),
            ("data: schön 語 🎉\n\ndata: [DONE]", vec!["schön 語 🎉", "[DONE]"]),
            ("data: a\n\n\n\n", vec!["a"]),
            ("data: a\n", vec!["a"]),
            ("", vec![]),
        ] {
            for piece_bytes in 1..=body.len().max(1) {
                assert_eq!(
                    read(body.as_bytes(), piece_bytes).as_deref(),
                    Ok(&events[..].iter().map(|event| (*event).to_owned()).collect::<Vec<_>>()[..]),
                    "{body:?} by {piece_bytes}"
                );
            }
        }
    }

    #[test]
    fn bytes_that_are_no_characters_are_replaced() {
        assert_eq!(read(b"data: a\xFFb\n\n", 3), Ok(vec!["a\u{fffd}b".to_owned()]));
    }

    #[test]
    fn lines_and_events_have_a_cap() {
        let line = |bytes: usize| [b"data:".as_slice(), &vec![b'x'; bytes], b"\n"].concat();
        let whole = line(SSE_LINE_BYTES_MAX - 5);
        assert_eq!(read(&whole, 70_000).map(|events| events.len()), Ok(1));
        assert_eq!(read(&line(SSE_LINE_BYTES_MAX - 4), 70_000), Err(SseTooLong));
        // Without an end, too.
        assert_eq!(read(&vec![b':'; SSE_LINE_BYTES_MAX + 1], 70_000), Err(SseTooLong));
        let half = line(SSE_LINE_BYTES_MAX / 2 - 1);
        assert_eq!(
            read(&[&half[..], &half, b"\n"].concat(), 70_000).map(|events| events.len()),
            Ok(1)
        );
        assert_eq!(
            read(&[&half[..], &half, b"data:x\n\n"].concat(), 70_000),
            Err(SseTooLong)
        );
    }
}
