//! A bot on the media handle, without RTVI: it hums, and is silent while the caller makes a sound.
//!
//! 1. `cargo run --release --example hum`
//! 2. Open <http://localhost:7860> and set the body to `{"tone_hz": 440}`.
//! 3. Press *Connect*, and hum along.
//!
//! Receiving and sending are two loops over the two halves of the handle: a full queue makes only
//! the sending loop wait.

use std::f32::consts::TAU;

use edge_runner::bot::{Event, Events, Output};
use edge_runner::{Audio, BotError, RunnerArguments};
use serde_json::json;
use tokio::sync::watch;

const RATE_HZ: u32 = 16_000;
/// The peak of a frame from which it counts as sound: a fortieth of full scale.
const LOUD: u16 = 800;
/// Frames of silence after which the bot hums again: half a second.
const QUIET_FRAMES: u32 = 25;

pub async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    let pc_id = args.webrtc_connection()?.pc_id.clone();
    let tone_hz = args.body["tone_hz"].as_f64().unwrap_or(220.0).clamp(60.0, 2_000.0) as f32;
    let (events, output) = args.media(Audio::at(RATE_HZ))?.split();
    let (allow, allowed) = watch::channel(false);
    tokio::select! {
        ended = receive(events, output.clone(), &pc_id, allow) => ended,
        ended = hum(output, tone_hz, allowed) => ended,
    }
}

/// Receives events until the session is over, and sets whether humming is allowed.
async fn receive(mut events: Events, output: Output, pc_id: &str, allow: watch::Sender<bool>) -> Result<(), BotError> {
    let mut quiet_frames = 0;
    while let Some(event) = events.recv().await {
        match event {
            Event::Joined | Event::Restored => {
                output.send_message(json!({"type": "hello", "pc_id": pc_id}).to_string())?;
                allow.send_replace(true);
            }
            Event::Audio(frame) if frame.iter().any(|sample| sample.unsigned_abs() > LOUD) => {
                quiet_frames = 0;
                if allow.send_replace(false) {
                    output.interrupt();
                }
            }
            Event::Audio(_) => {
                quiet_frames += 1;
                if quiet_frames == QUIET_FRAMES {
                    allow.send_replace(true);
                }
            }
            Event::Message(text) => output.send_message(text)?,
            Event::Lost => {
                allow.send_replace(false);
                output.interrupt();
            }
            _ => {}
        }
    }
    Ok(())
}

/// Hums while that is allowed, in pieces of 100 ms.
async fn hum(output: Output, tone_hz: f32, mut allowed: watch::Receiver<bool>) -> Result<(), BotError> {
    let step = TAU * tone_hz / RATE_HZ as f32;
    let mut phase = 0.0_f32;
    loop {
        allowed.wait_for(|allowed| *allowed).await?;
        let piece: Vec<i16> = (0..RATE_HZ / 10)
            .map(|_| {
                phase = (phase + step) % TAU;
                (phase.sin() * 3_000.0) as i16
            })
            .collect();
        output.send_audio(&piece).await?;
    }
}

fn main() -> std::process::ExitCode {
    edge_runner::main(bot)
}
