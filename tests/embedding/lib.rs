//! A bot of somebody's own: it greets, plays back what it hears, spells the keys that are pressed, and ends when it is told to.

use edge_runner::rtvi::{Rtvi, RtviEvent};
use edge_runner::{Audio, BotError, RunnerArguments};

/// Holds one talk.
///
/// # Errors
/// When the caller presses `#`, which nobody is to press.
pub async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    let name = args.body["name"].as_str().unwrap_or("whoever you are").to_owned();
    let audio = Audio::at(args.line_rate_hz().unwrap_or(16_000));
    let mut talk = Rtvi::open(&mut args, audio)?;
    while let Some(event) = talk.recv().await {
        match event {
            RtviEvent::Ready => talk.show(&format!("Hello, {name}!")),
            RtviEvent::Audio(frame) => talk.send_audio(&frame).await?,
            RtviEvent::Text { content, .. } => talk.show(&format!("You wrote: {content}")),
            RtviEvent::Dtmf('#') => return Err("somebody pressed #".into()),
            RtviEvent::Dtmf(key) => {
                // One sample for each key, so that it can be told what was pressed.
                talk.send_audio(&[key as i16; 160]).await?;
            }
            _ => {}
        }
    }
    Ok(())
}
