//! A whole voice bot: it says hello on the page, plays back what it hears, and answers texts.
//!
//! 1. `cargo run --release --example hello`
//! 2. Open <http://localhost:7860>.
//! 3. Press *Connect* and talk.

use edge_runner::rtvi::{Rtvi, RtviEvent};
use edge_runner::{Audio, BotError, RunnerArguments};

pub async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    let mut rtvi = Rtvi::open(&mut args, Audio::at(16_000))?;
    while let Some(event) = rtvi.recv().await {
        match event {
            RtviEvent::Ready => rtvi.show("Hello! I play back what you say."),
            RtviEvent::Audio(frame) => rtvi.send_audio(&frame).await?,
            RtviEvent::Text { content, .. } => rtvi.show(&format!("You wrote: {content}")),
            RtviEvent::Message(request) => rtvi.respond(&request, &"I heard you.".into()),
            _ => {}
        }
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    edge_runner::main(bot)
}
