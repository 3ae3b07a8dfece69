//! The echo: every frame goes straight back, and every message of the application is its own answer.
//!
//! PCM is at the rate of a telephone's line, so that nothing is resampled, and else at 16 kHz. It keeps nothing and waits for
//! nothing but room in the outbound queue, so what it costs is what the runner costs.

use crate::bot::{Audio, BotError, RunnerArguments};
use crate::rtvi::{Rtvi, RtviEvent};

/// Runs the echo until the rtvi is over.
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
                // What comes meanwhile waits where it came in, so that a burst is echoed whole. When the session is over, the
                // next event says so.
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

    /// Plays a short call: what is said comes back sample by sample, in order, in the same turn.
    #[test]
    fn frames_come_straight_back_and_the_end_is_no_failure() {
        let (caller, args) = Caller::new(false, json!({}));
        let mut bot = pin!(echo(args));
        let mut turn = || bot.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(turn().is_pending());
        let rates = caller.link.audio().expect("the bot opened its media");
        assert_eq!(rates, Audio::at(16_000));

        caller.link.push(Event::Joined);
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

        let mut heard = Vec::new();
        let mut said = Vec::new();
        for count in 0..100_i16 {
            let frame: Vec<i16> = (0..320).map(|at| count * 320 + at).collect();
            caller.link.push_audio(&frame, 16_000);
            said.extend(frame);
            assert!(turn().is_pending());
            caller.link.take_audio(&mut heard, 320);
            assert_eq!(heard.len(), said.len(), "nothing is kept back");
        }
        assert_eq!(heard, said);

        caller.link.push(Event::Left(LeaveReason::Left));
        assert!(matches!(turn(), Poll::Ready(Ok(()))));
    }

    #[test]
    fn a_session_that_breaks_while_it_speaks_ends_the_echo_in_good_order() {
        let (caller, args) = Caller::new(false, json!({}));
        let mut bot = pin!(echo(args));
        let mut turn = || bot.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        for _ in 0..40 {
            caller.link.push_audio(&[1; 320], 16_000);
        }
        assert!(turn().is_pending(), "the queue is full, and the echo waits");
        drop(caller.link);
        assert!(matches!(turn(), Poll::Ready(Ok(()))));
    }
}
