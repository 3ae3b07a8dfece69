//! The echo bot: sends every frame back, and answers every message with its own data.
//!
//! In and out: `i16` mono PCM, at the line rate of a telephone call and at 16 kHz elsewhere. The
//! bot buffers no audio of its own, so its cost is the cost of the runner.

use crate::bot::{Audio, BotError, RunnerArguments};
use crate::rtvi::{Rtvi, RtviEvent};

/// Runs the echo bot until the session is over.
///
/// # Errors
/// [`crate::bot::MissingField`] in a session without media.
pub async fn echo(mut args: RunnerArguments) -> Result<(), BotError> {
    let audio = Audio::at(args.line_rate_hz().unwrap_or(16_000));
    let mut rtvi = Rtvi::open(&mut args, audio)?;
    let output = rtvi.output().clone();
    while let Some(event) = rtvi.recv().await {
        match event {
            RtviEvent::Audio(frame) => {
                // Further frames wait in the inbound queue meanwhile, so a burst is echoed whole.
                // After the end of the session, `recv` returns `Left`.
                let _ = output.send_audio(&frame).await;
            }
            RtviEvent::Message(request) => rtvi.respond(&request, &request.d),
            RtviEvent::Text { content, .. } => rtvi.show(&content),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use serde_json::json;

    use super::*;
    use crate::bot::media::{Event, LeaveReason};
    use crate::rtvi::tests::Caller;

    /// Frames come back sample by sample, in order, in the same poll.
    #[test]
    fn echoes_frames_and_messages_and_ends_without_an_error() {
        let (caller, args) = Caller::new(false, json!({}));
        let mut bot = pin!(echo(args));
        let mut turn = || bot.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(turn().is_pending());
        let rates = caller.transport_side.audio().expect("the bot opened its media");
        assert_eq!(rates, Audio::at(16_000));

        caller.transport_side.push(Event::Joined);
        caller.send("client-ready", "1", json!({"version": "2.1.0"}));
        caller.send("client-message", "2", json!({"t": "any", "d": [1, null]}));
        caller.send("send-text", "3", json!({"content": "hello"}));
        caller.send("bogus", "4", json!({}));
        assert!(turn().is_pending());
        let received = caller.received();
        assert_eq!(
            (&received[0]["type"], &received[0]["id"]),
            (&json!("bot-ready"), &json!("1"))
        );
        assert_eq!(
            (&received[1]["id"], &received[1]["data"]["d"]),
            (&json!("2"), &json!([1, null]))
        );
        assert_eq!(received[2]["data"]["text"], "hello");
        assert_eq!(
            (&received[3]["type"], &received[3]["id"]),
            (&json!("error-response"), &json!("4"))
        );

        let mut echoed = Vec::new();
        let mut said = Vec::new();
        for count in 0..100_i16 {
            let frame: Vec<i16> = (0..320).map(|at| count * 320 + at).collect();
            caller.transport_side.push_audio(&frame, 16_000);
            said.extend(frame);
            assert!(turn().is_pending());
            caller.transport_side.take_audio(&mut echoed, 320);
            assert_eq!(echoed.len(), said.len(), "nothing is kept back");
        }
        assert_eq!(echoed, said);

        caller.transport_side.push(Event::Left(LeaveReason::Left));
        assert!(matches!(turn(), Poll::Ready(Ok(()))));
    }

    #[test]
    fn ends_without_an_error_when_the_session_breaks_during_send_audio() {
        let (caller, args) = Caller::new(false, json!({}));
        let mut bot = pin!(echo(args));
        let mut turn = || bot.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        for _ in 0..40 {
            caller.transport_side.push_audio(&[1; 320], 16_000);
        }
        assert!(turn().is_pending(), "the queue is full, and the echo waits");
        drop(caller.transport_side);
        assert!(matches!(turn(), Poll::Ready(Ok(()))));
    }
}
