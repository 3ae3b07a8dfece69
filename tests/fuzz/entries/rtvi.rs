//! Properties of RTVI: what a client sends to a bot.
//!
//! In: the text of a message. It is read, or rejected with a reply that names its id; what is read
//! is within the limits.

use edge_runner_proto::limits;
use edge_runner_proto::rtvi::{FileSource, LABEL, Request, RtviError, parse};
use serde_json::Value;

/// Bytes of a reply: the id and the reason, of which JSON may escape each character, and the rest.
const REPLY_BYTES_MAX: usize = 6 * (limits::RTVI_ID_BYTES_MAX + 4 * limits::RTVI_REASON_CHARS_MAX) + 500;

/// A message.
pub fn message(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let message = match parse(&text) {
        Ok(message) => message,
        Err(error) => return rejected(&error),
    };
    assert!(message.id.len() <= limits::RTVI_ID_BYTES_MAX);
    match &message.request {
        Request::Dtmf(keys) => {
            assert!((1..=limits::RTVI_DTMF_KEYS_MAX).contains(&keys.len()));
            assert!(keys.iter().all(|key| "0123456789*#".contains(*key)));
        }
        Request::RawAudio(audio) => {
            assert!((1..=text.len() / 2).contains(&audio.samples.len()));
            assert!(limits::RATES_HZ.contains(&audio.rate_hz));
        }
        Request::ClientMessage(message_of_client) => assert_eq!(message_of_client.id, message.id),
        Request::FunctionResult(result) => assert!(result.result.is_object() || result.result.is_string()),
        Request::SendFile { file, .. } => {
            if let FileSource::Bytes { bytes } = &file.source {
                assert!(bytes.len() <= text.len());
            }
        }
        _ => {}
    }
}

fn rejected(error: &RtviError) {
    let Some(reply) = error.reply() else {
        assert_eq!(*error, RtviError::NotRtvi);
        return;
    };
    assert!(reply.len() <= REPLY_BYTES_MAX, "{} bytes: {error}", reply.len());
    let reply: Value = serde_json::from_str(&reply).expect("JSON");
    assert_eq!(reply["label"], LABEL);
    if let RtviError::Unsupported { id, .. } | RtviError::Data { id, .. } = error {
        assert_eq!(reply["id"], id.as_str());
    }
}
