//! The bot of an embedding program: it greets, plays back what it hears, answers keys with a sample
//! per key, and fails on `#`.

use edge_runner::rtvi::{Rtvi, RtviEvent};
use edge_runner::{Audio, BotError, RunnerArguments};

/// Runs the bot for one session.
///
/// # Errors
/// When the caller presses `#`.
pub async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    let name = args.body["name"].as_str().unwrap_or("there").to_owned();
    let audio = Audio::at(args.line_rate_hz().unwrap_or(16_000));
    let mut talk = Rtvi::open(&mut args, audio)?;
    while let Some(event) = talk.recv().await {
        match event {
            RtviEvent::Ready => talk.show(&format!("Hello, {name}!")),
            RtviEvent::Audio(frame) => talk.send_audio(&frame).await?,
            RtviEvent::Text { content, .. } => talk.show(&format!("You wrote: {content}")),
            RtviEvent::Dtmf('#') => return Err("# was pressed".into()),
            RtviEvent::Dtmf(key) => {
                // A sample value per key, so that a test can identify the key.
                talk.send_audio(&[key as i16; 160]).await?;
            }
            _ => {}
        }
    }
    Ok(())
}
