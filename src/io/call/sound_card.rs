//! The sound card of a caller who talks.
//!
//! In: the devices. Out: what exchanges sound with the conversation, and the task of the card,
//! which ends soon after that was dropped. The card is a session as with `--local`, with its
//! canceller of the echo and its supervision; its bot is the call.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::timeout;

use super::media::CallPlace;
use crate::bot::media::{Audio, Event, Media};
use crate::config::LocalConfig;
use crate::io::local;
use crate::io::tasks::{self, BoxedTask};
use crate::proto::caller::sound_card::{CallerCard, CardFrames};
use crate::proto::caller::{FRAME, FRAME_SAMPLES, RATE_HZ};

/// Frames that wait between the card and the conversation: half a second.
const FRAMES_MAX: usize = 25;
/// Time that the commands have to end after the call.
const COMMANDS_END: Duration = Duration::from_secs(1);

/// The conversation's end of the sound card.
struct CardLine {
    frames: CardFrames,
    recorded: mpsc::Receiver<Vec<i16>>,
    received: mpsc::Sender<Vec<i16>>,
}

impl CallerCard for CardLine {
    fn exchange(&mut self, received: &[i16; FRAME_SAMPLES]) -> Option<[i16; FRAME_SAMPLES]> {
        loop {
            match self.recorded.try_recv() {
                Ok(pcm) => self.frames.handle_recorded(&pcm),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        if self.frames.is_played(received) {
            // A loudspeaker that takes nothing loses sound.
            let _ = self.received.try_send(received.to_vec());
        }
        Some(self.frames.next_recorded())
    }
}

/// Opens the sound card.
pub fn open(config: &LocalConfig) -> (Box<dyn CallerCard>, BoxedTask) {
    let (session, io, slots) = local::session_of_call(config);
    let (running, slot, stop) = CallPlace::new().begin(session, io);
    let (to_call, recorded) = mpsc::channel(FRAMES_MAX);
    let (received, to_card) = mpsc::channel(FRAMES_MAX);
    let media = slot.open(Audio::at(RATE_HZ));
    let carrying = async move {
        carry(media, to_call, to_card).await;
        stop.set();
    };
    let task = async move {
        tokio::join!(carrying, running);
        let _ = timeout(COMMANDS_END, slots.wait_empty()).await;
    };
    let line = CardLine {
        frames: CardFrames::default(),
        recorded,
        received,
    };
    (Box::new(line), tasks::boxed(task))
}

/// Carries sound between the card and the conversation, until one of them is gone.
async fn carry(mut card: Media, recorded: mpsc::Sender<Vec<i16>>, mut received: mpsc::Receiver<Vec<i16>>) {
    loop {
        tokio::select! {
            event = card.recv() => match event {
                Some(Event::Audio(frame)) => {
                    // A conversation that was stopped for a while loses sound.
                    let _ = recorded.try_send(frame.to_vec());
                }
                Some(Event::Left(_)) | None => return,
                Some(_) => {}
            },
            pcm = received.recv() => match pcm {
                Some(pcm) => {
                    let _ = timeout(FRAME, card.send_audio(&pcm)).await;
                }
                None => return,
            },
        }
    }
}
