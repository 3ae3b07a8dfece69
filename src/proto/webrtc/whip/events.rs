//! The `oai-events` channel: answers the events that its clients wait for.
//!
//! In: the opened channel, and each text of the caller. Out: `session.created` once, and a
//! `session.updated` that echoes each `session.update`. The bot receives every text unchanged and
//! applies the settings. Source: `docs/spec/whip.md` 6.

use serde_json::{Map, Value, json};

use crate::limits::MESSAGE_BYTES_MAX;

/// The label of the channel.
pub const LABEL: &str = "oai-events";

/// The event counter of a session.
#[derive(Clone, Debug, Default)]
pub struct RealtimeEvents {
    sent: u64,
}

impl RealtimeEvents {
    /// Returns the event for the opened channel.
    pub fn handle_open(&mut self) -> String {
        self.event(
            "session.created",
            &json!({"type": "realtime", "object": "realtime.session"}),
        )
    }

    /// Returns the answer to a text, if it requires one.
    pub fn handle_message(&mut self, text: &str) -> Option<String> {
        // Avoids parsing texts that cannot be an update.
        if !text.contains("session.update") {
            return None;
        }
        let update: Map<String, Value> = serde_json::from_str(text).ok()?;
        if update.get("type").and_then(Value::as_str) != Some("session.update") {
            return None;
        }
        let session = update.get("session").unwrap_or(&Value::Null);
        let answer = self.event("session.updated", session);
        if answer.len() <= MESSAGE_BYTES_MAX {
            return Some(answer);
        }
        Some(self.event("session.updated", &json!({})))
    }

    fn event(&mut self, kind: &str, session: &Value) -> String {
        self.sent += 1;
        json!({"type": kind, "event_id": format!("event_{}", self.sent), "session": session}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: Option<String>) -> Value {
        serde_json::from_str(&text.expect("an answer")).expect("JSON")
    }

    #[test]
    fn updates_are_echoed_and_nothing_else_is_answered() {
        let mut events = RealtimeEvents::default();
        assert_eq!(read(Some(events.handle_open()))["type"], "session.created");
        let updated = read(events.handle_message(r#"{"type":"session.update","session":{"voice":"ash","n":1.50}}"#));
        assert_eq!(
            updated,
            json!({"type": "session.updated", "event_id": "event_2", "session": {"voice": "ash", "n": 1.5}})
        );
        for other in [
            "",
            "session.update",
            "{}",
            r#"{"type":"response.create","about":"session.update"}"#,
            r#"{"type":"session.updated"}"#,
            r#"["session.update"]"#,
        ] {
            assert_eq!(events.handle_message(other), None, "{other}");
        }
    }

    /// The answer to the longest text does not exceed the message limit.
    #[test]
    fn no_answer_is_longer_than_a_message() {
        let mut events = RealtimeEvents::default();
        let frame = r#"{"type":"session.update","session":{"s":""}}"#.len();
        let long = "x".repeat(MESSAGE_BYTES_MAX - frame);
        let text = format!(r#"{{"type":"session.update","session":{{"s":"{long}"}}}}"#);
        assert_eq!(text.len(), MESSAGE_BYTES_MAX);
        let answer = events.handle_message(&text).expect("an answer");
        assert!(answer.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(read(Some(answer))["session"], json!({}));
    }
}
