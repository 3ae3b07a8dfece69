//! A whole voice bot: it says hello on the page, plays back what it hears, and answers text and messages.
//!
//! `cargo run --example hello`, then open <http://localhost:7860> and talk.

use edge_runner::rtvi::{Rtvi, RtviEvent};
use edge_runner::{Audio, BotError, RunnerArguments};

async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    let mut talk = Rtvi::open(&mut args, Audio::at(16_000))?;
    while let Some(event) = talk.recv().await {
        match event {
            RtviEvent::Ready => talk.show("Hello! I play back what you say."),
            RtviEvent::Audio(frame) => talk.send_audio(&frame).await?,
            RtviEvent::Text { content, .. } => talk.show(&format!("You wrote: {content}")),
            RtviEvent::Message(asked) => talk.respond(&asked, &"I heard you.".into()),
            _ => {}
        }
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    edge_runner::main(bot)
}
