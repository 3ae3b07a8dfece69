//! A voice bot: it plays back what it hears, and answers texts.
//!
//! `cargo run --release`, then open <http://localhost:7860>, press *Connect* and talk.

use edge_runner::rtvi::{Rtvi, RtviEvent};
use edge_runner::{Audio, BotError, RunnerArguments};

/// Serves one call.
pub async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    let mut rtvi = Rtvi::open(&mut args, Audio::at(16_000))?;
    while let Some(event) = rtvi.recv().await {
        match event {
            RtviEvent::Ready => rtvi.show("Hello! I play back what you say."),
            // Replace this line by what your bot hears and says.
            RtviEvent::Audio(frame) => rtvi.send_audio(&frame).await?,
            RtviEvent::Text { content, .. } => rtvi.show(&reply(&content)),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the answer to a typed text.
fn reply(text: &str) -> String {
    format!("You wrote: {text}")
}

fn main() -> std::process::ExitCode {
    edge_runner::main(bot)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use edge_runner::testing::Caller;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn greets_plays_back_and_answers() {
        let mut call = Caller::browser().call(bot);
        call.join();
        call.send_rtvi("client-ready", "1", json!({"version": "2.1.0"}));
        assert_eq!(call.next_rtvi().await.expect("an answer")["type"], "bot-ready");
        let greeting = call.next_rtvi().await.expect("a greeting");
        assert_eq!(greeting["data"]["text"], "Hello! I play back what you say.");
        call.send_rtvi("send-text", "2", json!({"content": "hi"}));
        let answer = call.next_rtvi().await.expect("an answer");
        assert_eq!(answer["data"]["text"], reply("hi"));
        call.speak(&[1_000; 3_200], 16_000).await;
        let speech = call.hear(Duration::from_millis(200)).await;
        assert_eq!(speech, (vec![1_000; 3_200], 16_000));
        call.leave();
        call.ended().await.expect("the bot returns without an error");
    }
}
