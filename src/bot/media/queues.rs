//! The two queues between a session's transport and its bot, with their caps.
//!
//! Inbound: [`Event`]s, audio as `i16` mono PCM. Outbound: PCM at the bot's rate, text messages and
//! marks. A full inbound queue drops its oldest frame, a full message queue its oldest message, and
//! both are counted. A full outbound audio queue makes the bot wait. Nothing here waits or locks
//! for longer than one operation.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Duration;

use edge_runner_http::sync::{Arc, Mutex, Notify};
use serde_json::Value;

use super::{Audio, Event};
use crate::limits::{AUDIO_OUT_QUEUE, MESSAGES_OUT_BYTES_MAX, MESSAGES_OUT_MAX};
use crate::proto::silent_bot::BotReadiness;

/// The data of a telephone call in a room, from when the telephone is there.
pub type RoomCallData = Arc<OnceLock<Value>>;

/// What both sides of a session's media share.
#[derive(Default)]
pub(super) struct MediaQueues {
    /// The cap on audio frames in `inbound`.
    pub(super) frames_max: usize,
    pub(super) inbound: Mutex<Inbound>,
    pub(super) outbound: Mutex<Outbound>,
    pub(super) call_data: RoomCallData,
    /// Signals that `inbound` has an event, or has ended.
    pub(super) inbound_ready: Notify,
    /// Signals audio, a message, a mark, an interruption or new rates in `outbound`.
    pub(super) outbound_changed: Notify,
    /// Signals that audio left `outbound`, or that it has ended.
    pub(super) outbound_space: Notify,
}

/// The queue from the transport to the bot.
#[derive(Default)]
pub(super) struct Inbound {
    pub(super) events: VecDeque<Event>,
    /// The number of audio frames in `events`.
    pub(super) frames: usize,
    /// The bytes of text in `events`.
    pub(super) message_bytes: usize,
    /// The cap on them.
    pub(super) message_bytes_max: usize,
    /// Buffers of frames that the bot has dropped, for later frames.
    pub(super) free_buffers: Vec<Vec<i16>>,
    pub(super) frames_dropped: u64,
    pub(super) events_dropped: u64,
    pub(super) ended: bool,
}

impl Inbound {
    /// Drops the oldest event of the first of `kinds` that the queue holds.
    pub(super) fn drop_oldest(&mut self, kinds: &[fn(&Event) -> bool]) {
        let oldest = kinds.iter().find_map(|kind| self.events.iter().position(kind));
        if let Some(Event::Message(text)) = oldest.and_then(|oldest| self.events.remove(oldest)) {
            self.message_bytes -= text.len();
        }
        self.events_dropped += 1;
    }

    /// Removes the oldest frame and returns its buffer.
    pub(super) fn take_oldest_frame(&mut self) -> Vec<i16> {
        let oldest = self.events.iter().position(|event| matches!(event, Event::Audio(_)));
        let frame = oldest.and_then(|oldest| self.events.remove(oldest));
        match frame {
            Some(Event::Audio(mut frame)) => {
                self.frames -= 1;
                std::mem::take(&mut frame.samples)
            }
            _ => Vec::new(),
        }
    }
}

/// A text of the bot.
#[derive(Debug, PartialEq, Eq)]
pub enum OutboundText {
    /// For the caller.
    Message(String),
    /// A message of RTVI for the record of the call alone.
    Report(String),
    /// The words of speech that follows, for the record of the call alone.
    Spoken(String),
}

impl OutboundText {
    pub fn as_str(&self) -> &str {
        match self {
            OutboundText::Message(text) | OutboundText::Report(text) | OutboundText::Spoken(text) => text,
        }
    }
}

/// The queue from the bot to the transport.
#[derive(Default)]
pub(super) struct Outbound {
    /// The rates, once the bot has opened its media.
    pub(super) audio: Option<Audio>,
    pub(super) samples: VecDeque<i16>,
    /// Marks, each with the number of queued samples before it.
    pub(super) marks: VecDeque<(usize, String)>,
    /// Names of marks whose audio was dropped.
    pub(super) unplayed: Vec<String>,
    pub(super) texts: VecDeque<OutboundText>,
    /// The bytes in `texts`.
    pub(super) text_bytes: usize,
    pub(super) messages_dropped: u64,
    /// The number of interruptions. A waiting `send_audio` returns when it changes.
    pub(super) epoch: u64,
    /// An interruption that the transport has not taken yet.
    pub(super) interrupted: bool,
    /// New rates that the transport has not taken yet.
    pub(super) rate_changed: bool,
    /// The reason for which the bot hangs up, until the transport has taken it.
    pub(super) hang_up: Option<String>,
    /// Keys for the telephones in a room that the transport has not taken yet.
    pub(super) keys: String,
    /// Where the bot has transferred the call.
    pub(super) transferred: Option<String>,
    /// Whether the bot has spoken since its last interruption.
    pub(super) has_spoken: bool,
    pub(super) readiness: BotReadiness,
    /// Whether the speech before the last `PLAYED_MARK` was played or dropped.
    pub(super) is_played: bool,
    pub(super) ended: bool,
}

impl Outbound {
    /// Queues a message and drops the oldest texts above the caps. A single message of any length
    /// stays: its transport refuses what is too long for it.
    pub(super) fn push_message(&mut self, text: String) {
        self.text_bytes += text.len();
        self.texts.push_back(OutboundText::Message(text));
        while self.texts.len() > MESSAGES_OUT_MAX || (self.text_bytes > MESSAGES_OUT_BYTES_MAX && self.texts.len() > 1)
        {
            if let Some(OutboundText::Message(_)) = self.pop_text() {
                self.messages_dropped += 1;
            }
        }
    }

    /// Queues what is for the record, unless the queue is full: it displaces no messages.
    pub(super) fn push_for_record(&mut self, text: OutboundText) {
        let bytes = self.text_bytes + text.as_str().len();
        if self.texts.len() < MESSAGES_OUT_MAX && bytes <= MESSAGES_OUT_BYTES_MAX {
            self.text_bytes = bytes;
            self.texts.push_back(text);
        }
    }

    /// Takes the oldest text.
    pub(super) fn pop_text(&mut self) -> Option<OutboundText> {
        let text = self.texts.pop_front()?;
        self.text_bytes -= text.as_str().len();
        Some(text)
    }

    /// Returns whether the transport has to take an interruption or new rates before more audio.
    pub(super) fn has_pending_change(&self) -> bool {
        self.interrupted || self.rate_changed
    }

    /// Returns how much speech is queued.
    pub(super) fn speech(&self) -> Duration {
        let rate_hz = self.audio.unwrap_or_default().out_rate_hz;
        Duration::from_secs(self.samples.len() as u64) / rate_hz
    }

    /// Returns how many samples the queue still takes.
    pub(super) fn space(&self) -> usize {
        let rate_hz = self.audio.unwrap_or_default().out_rate_hz as usize;
        let samples_max = rate_hz * AUDIO_OUT_QUEUE.as_millis() as usize / 1000;
        samples_max.saturating_sub(self.samples.len())
    }
}
