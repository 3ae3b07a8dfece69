//! An answering machine: it beeps, records until the caller hangs up or presses `#`, and writes a
//! WAV file named after the session.
//!
//! 1. `cargo run --release --example voicemail`
//! 2. Open <http://localhost:7860>, connect, speak after the beep, and disconnect.
//! 3. `ls *.wav`; `VOICEMAIL_DIR` names another folder.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use edge_runner::kit::{Recorder, ToneSegment, play_tones};
use edge_runner::{Audio, BotError, Event, RunnerArguments};

const RATE_HZ: u32 = 16_000;
const BEEP: Duration = Duration::from_millis(300);
const LONGEST: Duration = Duration::from_secs(180);

pub async fn bot(args: RunnerArguments) -> Result<(), BotError> {
    let folder = env::var_os("VOICEMAIL_DIR").map_or(PathBuf::from("."), PathBuf::from);
    record(args, &folder).await
}

/// Records one message into `folder`.
pub async fn record(mut args: RunnerArguments, folder: &Path) -> Result<(), BotError> {
    let mut media = args.media(Audio::at(RATE_HZ))?;
    let mut message = Recorder::new(RATE_HZ, RATE_HZ, LONGEST);
    let mut is_recording = false;
    while let Some(event) = media.recv().await {
        match event {
            Event::Joined => {
                play_tones(media.output(), &[ToneSegment::new(880.0, BEEP)]).await?;
                media.mark("beep")?;
            }
            // The beep has been played, so the message begins here.
            Event::Mark { .. } => is_recording = true,
            Event::Audio(frame) if is_recording && !message.handle_caller(&frame) => break,
            Event::Dtmf('#') | Event::Left(_) => break,
            _ => {}
        }
    }
    if message.length() > Duration::ZERO {
        // Only letters and digits, so the name cannot point outside the folder.
        let id: String = args.session_id.chars().filter(char::is_ascii_alphanumeric).collect();
        let file = folder.join(format!("voicemail-{id}.wav"));
        tokio::task::spawn_blocking(move || fs::write(file, message.to_wav())).await??;
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    edge_runner::main(bot)
}
