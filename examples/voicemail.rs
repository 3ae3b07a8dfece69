//! An answering machine: it beeps, records until the caller hangs up or presses `#`, and writes a
//! WAV file named after the session.
//!
//! 1. `cargo run --release --example voicemail`
//! 2. Open <http://localhost:7860>, connect, speak after the beep, and disconnect.
//! 3. `ls *.wav`; `VOICEMAIL_DIR` names another folder.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use edge_runner::kit::{ToneSegment, tones, write_wav};
use edge_runner::{Audio, BotError, Event, RunnerArguments};

const RATE_HZ: u32 = 16_000;
const BEEP: Duration = Duration::from_millis(300);
/// The longest message: 3 minutes.
const SAMPLES_MAX: usize = 180 * RATE_HZ as usize;

pub async fn bot(args: RunnerArguments) -> Result<(), BotError> {
    let folder = env::var_os("VOICEMAIL_DIR").map_or(PathBuf::from("."), PathBuf::from);
    record(args, &folder).await
}

/// Records one message into `folder`.
pub async fn record(mut args: RunnerArguments, folder: &Path) -> Result<(), BotError> {
    let mut media = args.media(Audio::at(RATE_HZ))?;
    let mut message = Vec::new();
    let mut is_recording = false;
    while let Some(event) = media.recv().await {
        match event {
            Event::Joined => {
                media
                    .send_audio(&tones(&[ToneSegment::new(880.0, BEEP)], RATE_HZ))
                    .await?;
                media.mark("beep")?;
            }
            // The beep has been played, so the message begins here.
            Event::Mark { .. } => is_recording = true,
            Event::Audio(frame) if is_recording => {
                message.extend_from_slice(&frame);
                if message.len() >= SAMPLES_MAX {
                    break;
                }
            }
            Event::Dtmf('#') | Event::Left(_) => break,
            _ => {}
        }
    }
    if !message.is_empty() {
        // Only letters and digits, so the name cannot point outside the folder.
        let id: String = args.session_id.chars().filter(char::is_ascii_alphanumeric).collect();
        let file = folder.join(format!("voicemail-{id}.wav"));
        let bytes = write_wav(&message, RATE_HZ);
        tokio::task::spawn_blocking(move || fs::write(file, bytes)).await??;
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    edge_runner::main(bot)
}
