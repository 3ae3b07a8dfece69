//! The handshake of `pipecat eval`, on the endpoint of telephone calls.
//!
//! In: the first message of a peer. Out: the flags of an evaluation, if it is one. From then on
//! both ways carry RTVI messages as text, and no audio. Source: `parse_eval_connect` of Pipecat
//! 1.14.

use serde_json::{Value, json};

use crate::limits::TELEPHONY_START_BYTES_MAX;

/// The type of the message, among those of an application.
pub const CONNECT: &str = "eval-connect";

/// Returns whether an upgrade has a query of the harness, which names there what it asks of the
/// bot. It decides how long messages may be before the first one has come.
pub fn is_announced(in_query: impl Fn(&str) -> bool) -> bool {
    ["skip_tts", "capture_bot_audio", "capture_bot_images"]
        .into_iter()
        .any(in_query)
}

/// Returns the flags of the message with which an evaluation begins, an object; `None` for any
/// other message.
pub fn flags(text: &str) -> Option<Value> {
    if text.len() > TELEPHONY_START_BYTES_MAX || !text.contains(CONNECT) {
        return None;
    }
    let mut message: Value = serde_json::from_str(text).ok()?;
    let is_eval =
        message["label"] == "rtvi-ai" && message["type"] == "client-message" && message["data"]["t"] == CONNECT;
    let flags = is_eval.then(|| message["data"]["d"].take())?;
    Some(if flags.is_object() { flags } else { json!({}) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_announces_itself_in_its_query() {
        let is_with = |name: &str| is_announced(|flag| flag == name);
        assert!(is_with("skip_tts") && is_with("capture_bot_audio") && is_with("capture_bot_images"));
        assert!(!is_with("bot") && !is_with("trigger_disconnect"));
    }

    #[test]
    fn only_the_message_of_the_harness_begins_an_evaluation() {
        let message = |label: &str, kind: &str, data: Value| {
            flags(&json!({"id": "e", "label": label, "type": kind, "data": data}).to_string())
        };
        let asked = json!({"skip_tts": true});
        let of = |d: Value| json!({"t": CONNECT, "d": d});
        assert_eq!(
            message("rtvi-ai", "client-message", of(asked.clone())),
            Some(asked.clone())
        );
        assert_eq!(message("rtvi-ai", "client-message", of(json!([1]))), Some(json!({})));
        assert_eq!(
            message("rtvi-ai", "client-message", json!({"t": CONNECT})),
            Some(json!({}))
        );
        assert_eq!(message("other", "client-message", of(asked.clone())), None);
        assert_eq!(message("rtvi-ai", "client-ready", of(asked.clone())), None);
        assert_eq!(
            message("rtvi-ai", "client-message", json!({"t": "eval-connected", "d": {}})),
            None
        );
        assert_eq!(message("rtvi-ai", "client-message", json!("eval-connect")), None);
        assert_eq!(flags("eval-connect"), None);
        assert_eq!(flags(r#"["eval-connect"]"#), None);
        let long = "m".repeat(TELEPHONY_START_BYTES_MAX);
        assert_eq!(message("rtvi-ai", "client-message", of(json!({"m": long}))), None);
    }
}
