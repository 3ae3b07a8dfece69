//! A bot in a LiveKit room: it measures how long each participant speaks, and reports it to the
//! others when that participant leaves.
//!
//! ```sh
//! export LIVEKIT_URL=ws://localhost:7880 LIVEKIT_API_KEY=devkey LIVEKIT_API_SECRET=secret
//! cargo run --release --example room -- -t mediaroom
//! curl -X POST localhost:7860/start -H 'Content-Type: application/json' -d '{}'
//! ```
//!
//! The answer of the last line has the room and a token for a participant.

use std::collections::HashMap;
use std::process::ExitCode;

use edge_runner::{Audio, BotError, Event, RunnerArguments};

const RATE_HZ: u32 = 16_000;
/// The peak of a frame above which it counts as speech.
const LOUD: u16 = 1_000;

pub async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    let mut media = args.media(Audio::at(RATE_HZ).per_participant())?;
    let mut spoken = HashMap::new();
    while let Some(event) = media.recv().await {
        match event {
            Event::Audio(frame) => {
                let is_loud = frame.iter().any(|sample| sample.unsigned_abs() > LOUD);
                if let (true, Some(identity)) = (is_loud, frame.identity()) {
                    *spoken.entry(identity.clone()).or_insert(0) += frame.len();
                }
            }
            Event::ParticipantLeft(who) => {
                let seconds = spoken.remove(&who.identity).unwrap_or(0) / RATE_HZ as usize;
                media.send_message(format!("{} spoke for {seconds} s", who.identity))?;
            }
            Event::JoinFailed(why) => return Err(why.into()),
            _ => {}
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    edge_runner::main(bot)
}
