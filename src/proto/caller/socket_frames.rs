//! The messages of a plain client: protobuf frames, one per message.
//!
//! In: outputs of a [`CallConversation`], and binary messages of the runner. Out: messages to send,
//! and inputs of the conversation. Source: `docs/spec/protobuf.md`.

use std::time::Instant;

use bytes::Bytes;

use super::conversation::{CallConversation, ConversationOutput};
use super::{RATE_HZ, rtvi_messages};
use crate::sockets::frames::{self, ProtobufFrame};

/// Returns the message for an output; `None` for those that are not sent.
pub fn encode(output: &ConversationOutput) -> Option<Vec<u8>> {
    match output {
        ConversationOutput::Audio(pcm) => Some(frames::audio(pcm, RATE_HZ)),
        output => output.message().map(|text| frames::message(&text)),
    }
}

/// Returns the first message of a client.
pub fn hello() -> Vec<u8> {
    frames::message(&rtvi_messages::client_ready())
}

/// Passes a message of the runner to the conversation.
///
/// # Errors
/// A sentence about a message that is no frame.
pub fn handle_message(conversation: &mut CallConversation, message: Bytes, now: Instant) -> Result<(), String> {
    match frames::decode(message).map_err(|error| error.to_string())? {
        ProtobufFrame::Audio { pcm, rate_hz, channels } => {
            let mut samples = Vec::new();
            frames::samples(&pcm, channels, &mut samples).map_err(|error| error.to_string())?;
            conversation.handle_audio(&samples, rate_hz, now);
        }
        ProtobufFrame::Message(text) => conversation.handle_message(&text, now),
        ProtobufFrame::Interruption => conversation.handle_interruption(),
        ProtobufFrame::Text(_) | ProtobufFrame::Transcription { .. } | ProtobufFrame::Unset => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::caller::plan::{CallExpectations, CallPlan};
    use crate::caller::{CallObservation, FRAME_SAMPLES};

    #[test]
    fn frames_pass_in_both_directions() {
        let now = Instant::now();
        let plan = CallPlan {
            steps: Vec::new(),
            expect: CallExpectations::default(),
            longest: Duration::from_secs(10),
            hang_up_after: Duration::from_secs(1),
            records: false,
        };
        let mut conversation = CallConversation::new(plan, now, now, true);
        let audio = encode(&ConversationOutput::Audio(vec![900; FRAME_SAMPLES])).expect("a message");
        assert_eq!(handle_message(&mut conversation, audio.into(), now), Ok(()));
        let ready = frames::message(r#"{"label":"rtvi-ai","type":"bot-ready","id":"call"}"#);
        assert_eq!(handle_message(&mut conversation, ready.into(), now), Ok(()));
        let observed: Vec<CallObservation> = std::iter::from_fn(|| match conversation.poll_output() {
            ConversationOutput::Observed(_, observation) => Some(observation),
            _ => None,
        })
        .collect();
        let expected = [
            CallObservation::Connected,
            CallObservation::BotStarted,
            CallObservation::Ready,
        ];
        assert_eq!(observed, expected);

        let message = |bytes: Vec<u8>| match frames::decode(bytes.into()) {
            Ok(ProtobufFrame::Message(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(message(hello()), rtvi_messages::client_ready());
        let key = encode(&ConversationOutput::Key('1')).expect("a message");
        assert!(message(key).contains("\"dtmf\""));
        let text = encode(&ConversationOutput::Text("a".into())).expect("a message");
        assert!(message(text).contains("\"send-text\""));
        assert_eq!(encode(&ConversationOutput::HangUp), None);
        let error = handle_message(&mut conversation, Bytes::from_static(b"\xff"), now);
        assert!(error.is_err_and(|error| error.contains("protobuf")));
    }
}
