//! A telephone menu by keypad: 1 plays a melody, 2 plays the caller back, `#` hangs up.
//!
//! 1. `cargo run --release --example menu -- -t telephony_a --proxy example.ngrok.app`
//! 2. Set `https://example.ngrok.app/` as the voice webhook of your number.
//! 3. Call it. Without a number, open <http://localhost:7860>: the page has a keypad.

use std::f32::consts::TAU;

use edge_runner::rtvi::{Rtvi, RtviEvent};
use edge_runner::{Audio, BotError, RunnerArguments};

const MENU: &str = "Press 1 for a melody, 2 to hear yourself, # to hang up.";
/// One low note, the prompt for a caller without a screen.
const PROMPT_HZ: [u32; 1] = [330];
const MELODY_HZ: [u32; 4] = [523, 659, 784, 1_047];

pub async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    // At the rate of a telephone line nothing is resampled.
    let rate_hz = args.line_rate_hz().unwrap_or(16_000);
    let mut rtvi = Rtvi::open(&mut args, Audio::at(rate_hz))?;
    let mut plays_back = false;
    while let Some(event) = rtvi.recv().await {
        match event {
            RtviEvent::Ready => rtvi.show(MENU),
            RtviEvent::Joined => rtvi.send_audio(&notes(&PROMPT_HZ, rate_hz)).await?,
            RtviEvent::Audio(frame) if plays_back => rtvi.send_audio(&frame).await?,
            RtviEvent::Dtmf(key) => {
                rtvi.interrupt();
                plays_back = key == '2';
                match key {
                    '1' => rtvi.send_audio(&notes(&MELODY_HZ, rate_hz)).await?,
                    '2' => rtvi.show("Speak, and press another key to stop."),
                    '#' => return Ok(()),
                    _ => {
                        rtvi.show(MENU);
                        rtvi.send_audio(&notes(&PROMPT_HZ, rate_hz)).await?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns one note of 250 ms for each frequency, without a click between them.
fn notes(hz: &[u32], rate_hz: u32) -> Vec<i16> {
    let samples = rate_hz / 4;
    let note = |hz: u32| {
        (0..samples).map(move |at| {
            let fade = (at.min(samples - at) as f32 / (samples / 20) as f32).min(1.0);
            ((TAU * hz as f32 * at as f32 / rate_hz as f32).sin() * fade * 8_000.0) as i16
        })
    };
    hz.iter().copied().flat_map(note).collect()
}

fn main() -> std::process::ExitCode {
    edge_runner::main(bot)
}
