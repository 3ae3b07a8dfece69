//! What happens in calls, as server-sent events.
//!
//! In: the JSON of a call or of one of its texts. Out: the text of an event: its name, and one line
//! of data. Source: the HTML standard, section 9.2, "Server-sent events".

use serde_json::Value;

/// Something that happened in a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallUpdate {
    /// A call began: its row in `GET /calls`.
    Started(Value),
    /// A text is new, or has changed: the text as in `GET /calls/ID`, with the id of its call.
    Text(Value),
    /// A call ended: its record.
    Ended(Value),
}

impl CallUpdate {
    /// The beginning of a stream: how soon a browser connects again.
    pub const STREAM_START: &'static str = "retry: 3000\n\n";

    /// Returns the text of the event in a stream.
    pub fn to_stream(&self) -> String {
        let (name, data) = match self {
            CallUpdate::Started(row) => ("started", row),
            CallUpdate::Text(text) => ("text", text),
            CallUpdate::Ended(record) => ("ended", record),
        };
        format!("event: {name}\ndata: {data}\n\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The data is one line, whatever is in it.
    #[test]
    fn an_event_is_a_name_and_one_line() {
        let text = CallUpdate::Text(json!({"text": "a\nb\r\nevent: c\u{2028}"})).to_stream();
        assert_eq!(
            text,
            "event: text\ndata: {\"text\":\"a\\nb\\r\\nevent: c\u{2028}\"}\n\n"
        );
        for (event, name) in [
            (CallUpdate::Started(json!({})), "started"),
            (CallUpdate::Ended(json!({})), "ended"),
        ] {
            assert_eq!(event.to_stream(), format!("event: {name}\ndata: {{}}\n\n"));
        }
    }
}
