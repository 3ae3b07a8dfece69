//! The events that a bot receives, and the audio frames in them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use edge_runner_http::common::lock;

use super::queues::MediaQueues;
use super::{LeaveReason, Participant};
use crate::limits::AUDIO_IN_FRAMES_MAX;
use crate::proto::answered_by::AnsweredBy;
use crate::proto::event::SessionEvent;

/// Something that happened in a session. Events arrive in the order in which they happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The caller is connected: audio and messages flow from here on. In a room, the first
    /// participant is there.
    Joined,
    /// Audio of the caller, usually 20 ms.
    Audio(AudioFrame),
    /// A text message of the caller, unchanged. [`crate::rtvi`] parses RTVI.
    Message(String),
    /// A key of the telephone: one of `0`-`9`, `*`, `#`, `A`-`D`.
    Dtmf(char),
    /// The bot's speech begins to leave the runner.
    SpeechStarted,
    /// The last of the bot's speech has left the runner, or was interrupted.
    SpeechStopped,
    /// A mark of [`Output::mark`](super::Output::mark) came back.
    Mark {
        /// The name that the bot gave the mark.
        name: String,
        /// Whether all speech before the mark was played; `false` after an interruption.
        played: bool,
    },
    /// A participant is in the room, or has joined it.
    ParticipantJoined(Participant),
    /// A participant has left the room.
    ParticipantLeft(Participant),
    /// The name or the attributes of a participant have changed, such as the state of a telephone's
    /// call. See [`Participant::call_status`].
    ParticipantChanged(Participant),
    /// An administrator of the room has muted the bot (`true`), so that the caller hears nothing of
    /// it, or unmuted it.
    Muted(bool),
    /// The caller of a WebRTC call holds the call, and hears nothing of the bot.
    Held,
    /// The caller takes the call up again after [`Event::Held`].
    Resumed,
    /// A participant of the room began or stopped to speak, according to the room's server.
    Speaking {
        /// The participant's identity.
        identity: Arc<str>,
        /// Whether the participant speaks now.
        speaking: bool,
    },
    /// Who answered a call that the runner dialled, once the provider has detected it. What it
    /// detects before the bot starts is in the data of the call.
    AnsweredBy(AnsweredBy),
    /// The room could not be joined, with the reason. [`Event::Left`] follows.
    JoinFailed(String),
    /// Nothing has arrived from the caller for some seconds. The session stays open for a while.
    Lost,
    /// The caller is back after [`Event::Lost`].
    Restored,
    /// The session is over. No event follows.
    Left(LeaveReason),
}

/// Converts each event of a session to the event of the same name, and back.
macro_rules! same_events {
    ($($name:ident $(($value:ident))? $({$($field:ident),*})?),* $(,)?) => {
        impl From<SessionEvent> for Event {
            fn from(event: SessionEvent) -> Self {
                match event {
                    $(SessionEvent::$name $(($value))? $({$($field),*})? => {
                        Event::$name $(($value))? $({$($field),*})?
                    })*
                }
            }
        }

        impl Event {
            /// Returns the event of the session, or the frame of audio.
            pub(crate) fn without_audio(self) -> Result<SessionEvent, AudioFrame> {
                match self {
                    Event::Audio(frame) => Err(frame),
                    $(Event::$name $(($value))? $({$($field),*})? => {
                        Ok(SessionEvent::$name $(($value))? $({$($field),*})?)
                    })*
                }
            }
        }
    };
}

same_events!(
    Joined,
    Message(text),
    Dtmf(key),
    SpeechStarted,
    SpeechStopped,
    Mark { name, played },
    ParticipantJoined(who),
    ParticipantLeft(who),
    ParticipantChanged(who),
    Muted(muted),
    Held,
    Resumed,
    Speaking { identity, speaking },
    AnsweredBy(by),
    JoinFailed(why),
    Lost,
    Restored,
    Left(reason),
);

/// One frame of audio: `i16` mono PCM at [`AudioFrame::rate_hz`], which it dereferences to.
/// Dropping it gives its buffer back to the session.
pub struct AudioFrame {
    pub(super) samples: Vec<i16>,
    pub(super) rate_hz: u32,
    pub(super) identity: Option<Arc<str>>,
    /// The queues that get the buffer back; set while a bot holds the frame. A frame in a queue has
    /// none, since a queue that owned itself would leak.
    pub(super) pool: Option<Arc<MediaQueues>>,
}

impl AudioFrame {
    /// Creates a frame that belongs to no session, as tests of a bot need it.
    pub fn new(samples: Vec<i16>, rate_hz: u32) -> Self {
        AudioFrame {
            samples,
            rate_hz,
            identity: None,
            pool: None,
        }
    }

    /// Returns the sample rate in Hz.
    pub fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    /// Returns the identity of the participant who speaks, in a room with
    /// [`AudioMix::PerParticipant`](super::AudioMix::PerParticipant).
    pub fn identity(&self) -> Option<&Arc<str>> {
        self.identity.as_ref()
    }
}

impl Deref for AudioFrame {
    type Target = [i16];

    fn deref(&self) -> &[i16] {
        &self.samples
    }
}

impl fmt::Debug for AudioFrame {
    /// Omits the samples: speech must never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AudioFrame({} samples at {} Hz)", self.samples.len(), self.rate_hz)
    }
}

impl Drop for AudioFrame {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            let mut inbound = lock(&pool.inbound);
            if inbound.free_buffers.len() < AUDIO_IN_FRAMES_MAX {
                inbound.free_buffers.push(std::mem::take(&mut self.samples));
            }
        }
    }
}
