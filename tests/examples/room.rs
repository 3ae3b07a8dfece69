//! A bot in a media room that hears each participant for himself, and tells those who are left how long somebody spoke.
//!
//! ```sh
//! export MEDIAROOM_URL=ws://localhost:7880 MEDIAROOM_API_KEY=devkey MEDIAROOM_API_SECRET=secret
//! cargo run --release --example room -- -t mediaroom
//! ```

use std::collections::HashMap;
use std::process::ExitCode;

use edge_runner::{Audio, BotError, Event, RunnerArguments};

const RATE_HZ: u32 = 16_000;
/// Peak of a frame above which it is taken for speech.
const LOUD: u16 = 1_000;

async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
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
