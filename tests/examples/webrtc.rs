//! A bot on the bare media handle, with a protocol of its own: it hums, and falls silent while the caller makes a sound.
//!
//! It reads what only a WebRTC session has, the connection, and what the client sent along, the `body` of `/start`: start it
//! with `cargo run --example webrtc` and give the page the body `{"tone_hz": 440}`. Hearing and humming are two loops over
//! the two halves of the handle, since a full queue makes only the loop wait that fills it.

use std::f32::consts::TAU;

use edge_runner::bot::{Event, Events, Output};
use edge_runner::{Audio, BotError, RunnerArguments};
use serde_json::json;
use tokio::sync::watch;

const RATE_HZ: u32 = 16_000;
/// What counts as a sound: a fortieth of the loudest.
const LOUD: u16 = 800;
/// Frames without a sound after which the bot goes on: half a second of them.
const QUIET_FRAMES: u32 = 25;

async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    let pc_id = args.webrtc_connection()?.pc_id.clone();
    let tone_hz = args.body["tone_hz"].as_f64().unwrap_or(220.0).clamp(60.0, 2_000.0) as f32;
    let (events, output) = args.media(Audio::at(RATE_HZ))?.split();
    let (allow, allowed) = watch::channel(false);
    tokio::select! {
        ended = hear(events, output.clone(), &pc_id, allow) => ended,
        ended = hum(output, tone_hz, allowed) => ended,
    }
}

/// Follows the caller until the session is over, and says when humming is allowed.
async fn hear(mut events: Events, output: Output, pc_id: &str, allow: watch::Sender<bool>) -> Result<(), BotError> {
    let mut quiet_frames = 0;
    while let Some(event) = events.recv().await {
        match event {
            Event::Joined | Event::Resumed => {
                output.send_message(json!({"type": "hello", "pc_id": pc_id}).to_string())?;
                allow.send_replace(true);
            }
            Event::Audio(frame) if frame.iter().any(|sample| sample.unsigned_abs() > LOUD) => {
                quiet_frames = 0;
                if allow.send_replace(false) {
                    // What was queued is not worth hearing any more.
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

/// Hums while it is allowed to, in pieces of 100 ms.
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
