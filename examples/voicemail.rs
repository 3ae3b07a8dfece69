//! An answering machine: it beeps, records until the caller hangs up or presses `#`, and writes a
//! WAV file named after the session.
//!
//! 1. `cargo run --release --example voicemail`
//! 2. Open <http://localhost:7860>, connect, speak after the beep, and disconnect.
//! 3. `ls *.wav`; `VOICEMAIL_DIR` names another folder.

use std::f32::consts::TAU;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use edge_runner::{Audio, BotError, Event, RunnerArguments};

const RATE_HZ: u32 = 16_000;
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
                media.send_audio(&beep()).await?;
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
        let bytes = wav(&message)?;
        tokio::task::spawn_blocking(move || fs::write(file, bytes)).await??;
    }
    Ok(())
}

/// Returns a beep of 300 ms.
fn beep() -> Vec<i16> {
    let sine = |at| (TAU * 880.0 * at as f32 / RATE_HZ as f32).sin();
    (0..RATE_HZ * 3 / 10).map(|at| (sine(at) * 8_000.0) as i16).collect()
}

/// Returns a WAV file of 16-bit mono PCM.
fn wav(pcm: &[i16]) -> io::Result<Vec<u8>> {
    let bytes = u32::try_from(pcm.len() * 2).map_err(io::Error::other)?;
    let mut file = Vec::with_capacity(44 + pcm.len() * 2);
    file.extend(b"RIFF");
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    // PCM, one channel, the rate, bytes per second, bytes per sample, bits per sample.
    file.extend([1_u16, 1].map(u16::to_le_bytes).concat());
    file.extend([RATE_HZ, RATE_HZ * 2].map(u32::to_le_bytes).concat());
    file.extend([2_u16, 16].map(u16::to_le_bytes).concat());
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    file.extend(pcm.iter().flat_map(|sample| sample.to_le_bytes()));
    Ok(file)
}

fn main() -> std::process::ExitCode {
    edge_runner::main(bot)
}
