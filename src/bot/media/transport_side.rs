//! The transport's side of a session's media: it pushes events and takes the bot's speech.
//!
//! In: events of the session, and the caller's `i16` mono PCM at the bot's input rate. Out: the
//! bot's PCM at its output rate, its messages, marks and interruptions. No call waits for the bot.

use std::sync::Arc;

use edge_runner_http::common::lock;
use edge_runner_http::sync::Mutex;
use serde_json::Value;

use super::queues::{Inbound, MediaQueues, OutboundText, RoomCallData};
use super::{Audio, AudioFrame, Event, Events, Media, Output, PLAYED_MARK};
use crate::limits::{EVENTS_IN_MAX, MESSAGES_IN_BYTES_MAX};
use crate::proto::audio::queue::take_samples;
use crate::proto::counts::QueueLevels;
use crate::proto::silent_bot::BotReadiness;

/// The media of a session before its bot has opened it, without rates.
pub struct MediaSlot(Arc<MediaQueues>);

impl MediaSlot {
    /// Returns where the data of a telephone call appears once the telephone is in the room.
    pub fn call_data(&self) -> RoomCallData {
        self.0.call_data.clone()
    }

    /// Opens the media at the given rates.
    pub fn open(self, audio: Audio) -> Media {
        {
            let mut outbound = lock(&self.0.outbound);
            outbound.audio = Some(audio.clamped());
            outbound.rate_changed = true;
        }
        self.0.outbound_changed.notify_one();
        Media {
            events: Events(self.0.clone()),
            output: Output(self.0.clone()),
        }
    }
}

/// The transport's side of a session's media. Dropping it ends the session for the bot.
pub struct TransportSide(pub(super) Arc<MediaQueues>);

/// Creates both sides of one session's media, with room for `frames_max` audio frames to the bot.
pub fn pair(frames_max: usize) -> (TransportSide, MediaSlot) {
    let queues = Arc::new(MediaQueues {
        frames_max,
        inbound: Mutex::new(Inbound {
            message_bytes_max: MESSAGES_IN_BYTES_MAX,
            ..Inbound::default()
        }),
        ..MediaQueues::default()
    });
    (TransportSide(queues.clone()), MediaSlot(queues))
}

impl TransportSide {
    /// Sets how many bytes of messages may wait for the bot.
    pub fn set_messages_max(&self, bytes_max: usize) {
        lock(&self.0.inbound).message_bytes_max = bytes_max;
    }

    /// Waits until the bot has queued or changed something.
    pub async fn notified(&self) {
        self.0.outbound_changed.notified().await;
    }

    /// Takes the rates, once the bot has opened its media.
    pub fn audio(&self) -> Option<Audio> {
        let mut outbound = lock(&self.0.outbound);
        outbound.rate_changed = false;
        outbound.audio
    }

    /// Returns how far the bot is, once it has opened its media.
    pub fn readiness(&self) -> Option<BotReadiness> {
        let outbound = lock(&self.0.outbound);
        outbound.audio.map(|_| outbound.readiness)
    }

    /// Queues an event for the bot. [`TransportSide::push_audio`] queues audio without a new
    /// buffer.
    ///
    /// Above the caps the oldest `Speaking` events are dropped first, then the oldest messages, so
    /// that a flood of either cannot displace events that change the session's state.
    pub fn push(&self, event: Event) {
        if let Event::Audio(frame) = event {
            return self.push_frame(&frame, frame.rate_hz, frame.identity.as_ref());
        }
        let is_own_mark = matches!(&event, Event::Mark { name, .. } if name == PLAYED_MARK);
        if is_own_mark || matches!(event, Event::Left(_)) {
            lock(&self.0.outbound).is_played = true;
            self.0.outbound_space.notify_waiters();
        }
        if is_own_mark {
            return;
        }
        let mut inbound = lock(&self.0.inbound);
        if inbound.ended {
            return;
        }
        match &event {
            Event::Left(_) => inbound.ended = true,
            Event::Message(text) => inbound.message_bytes += text.len(),
            _ => {}
        }
        inbound.events.push_back(event);
        while inbound.message_bytes > inbound.message_bytes_max {
            inbound.drop_oldest(&[is_message]);
        }
        while inbound.events.len() - inbound.frames > EVENTS_IN_MAX {
            inbound.drop_oldest(&[is_speaking, is_message, is_not_audio]);
        }
        drop(inbound);
        self.0.inbound_ready.notify_one();
    }

    /// Queues one frame of PCM, in a buffer that an earlier frame gave back. A full queue drops its
    /// oldest frame.
    pub fn push_audio(&self, pcm: &[i16], rate_hz: u32) {
        self.push_frame(pcm, rate_hz, None);
    }

    /// Queues one frame of PCM of one participant, as [`TransportSide::push_audio`] does.
    pub fn push_participant_audio(&self, pcm: &[i16], rate_hz: u32, identity: &Arc<str>) {
        self.push_frame(pcm, rate_hz, Some(identity));
    }

    fn push_frame(&self, pcm: &[i16], rate_hz: u32, identity: Option<&Arc<str>>) {
        let mut inbound = lock(&self.0.inbound);
        if inbound.ended {
            return;
        }
        let mut samples = if inbound.frames >= self.0.frames_max {
            inbound.frames_dropped += 1;
            inbound.take_oldest_frame()
        } else {
            inbound.free_buffers.pop().unwrap_or_default()
        };
        samples.clear();
        samples.extend_from_slice(pcm);
        inbound.frames += 1;
        inbound.events.push_back(Event::Audio(AudioFrame {
            samples,
            rate_hz,
            identity: identity.cloned(),
            pool: None,
        }));
        drop(inbound);
        self.0.inbound_ready.notify_one();
    }

    /// Returns whether the bot has interrupted its speech since the last call.
    pub fn take_interruption(&self) -> bool {
        std::mem::take(&mut lock(&self.0.outbound).interrupted)
    }

    /// Moves queued speech into `into`, up to the next mark and at most `samples_max` samples, and
    /// returns how many.
    ///
    /// Returns 0 while an interruption or new rates wait to be taken: the speech behind them would
    /// be dropped with the old speech, or play at the old rate.
    pub fn take_audio(&self, into: &mut Vec<i16>, samples_max: usize) -> usize {
        let taken = {
            let mut outbound = lock(&self.0.outbound);
            if outbound.has_pending_change() {
                return 0;
            }
            let marked = outbound.marks.front().map_or(usize::MAX, |(behind, _)| *behind);
            let take = outbound.samples.len().min(samples_max).min(marked);
            take_samples(&mut outbound.samples, take, into);
            for (behind, _) in &mut outbound.marks {
                *behind -= take;
            }
            take
        };
        if taken > 0 {
            self.0.outbound_space.notify_waiters();
        }
        taken
    }

    /// Takes the next mark, if all speech before it was taken.
    pub fn take_mark(&self) -> Option<String> {
        let mut outbound = lock(&self.0.outbound);
        if outbound.has_pending_change() || outbound.marks.front()?.0 > 0 {
            return None;
        }
        outbound.marks.pop_front().map(|(_, name)| name)
    }

    /// Takes the marks whose speech was dropped.
    pub fn take_unplayed_marks(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0.outbound).unplayed)
    }

    /// Returns whether speech is queued.
    #[cfg(test)]
    pub fn has_audio(&self) -> bool {
        !lock(&self.0.outbound).samples.is_empty()
    }

    /// Takes the reason for which the bot hangs up.
    pub fn take_hang_up(&self) -> Option<String> {
        lock(&self.0.outbound).hang_up.take()
    }

    /// Tells the bot about the telephone in the room. The first one counts.
    pub fn set_call_data(&self, call_data: Value) {
        let _ = self.0.call_data.set(call_data);
    }

    /// Takes the keys for the telephones in the room.
    pub fn take_keys(&self) -> Option<String> {
        let keys = std::mem::take(&mut lock(&self.0.outbound).keys);
        (!keys.is_empty()).then_some(keys)
    }

    /// Returns where the bot has transferred the call.
    pub fn transferred_to(&self) -> Option<String> {
        lock(&self.0.outbound).transferred.clone()
    }

    /// Takes the next text of the bot.
    pub fn take_text(&self) -> Option<OutboundText> {
        lock(&self.0.outbound).pop_text()
    }

    /// Takes the next message to the caller, and drops reports before it.
    pub fn take_message(&self) -> Option<String> {
        loop {
            if let OutboundText::Message(text) = self.take_text()? {
                return Some(text);
            }
        }
    }

    /// Returns how much audio the queues hold.
    pub fn waiting(&self) -> QueueLevels {
        let frames = lock(&self.0.inbound).frames;
        QueueLevels {
            frames,
            speech: lock(&self.0.outbound).speech(),
        }
    }

    /// Returns how much the queues have dropped.
    pub fn dropped(&self) -> MediaDrops {
        let (frames_in, events_in) = {
            let inbound = lock(&self.0.inbound);
            (inbound.frames_dropped, inbound.events_dropped)
        };
        MediaDrops {
            frames_in,
            events_in,
            messages_out: lock(&self.0.outbound).messages_dropped,
        }
    }
}

impl Drop for TransportSide {
    fn drop(&mut self) {
        lock(&self.0.inbound).ended = true;
        lock(&self.0.outbound).ended = true;
        self.0.inbound_ready.notify_waiters();
        self.0.inbound_ready.notify_one();
        self.0.outbound_space.notify_waiters();
    }
}

/// How much a session's queues have dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaDrops {
    /// Audio frames that the bot did not read in time.
    pub frames_in: u64,
    /// Other events that the bot did not read in time.
    pub events_in: u64,
    /// Messages that the transport did not take in time.
    pub messages_out: u64,
}

fn is_speaking(event: &Event) -> bool {
    matches!(event, Event::Speaking { .. })
}

fn is_message(event: &Event) -> bool {
    matches!(event, Event::Message(_))
}

fn is_not_audio(event: &Event) -> bool {
    !matches!(event, Event::Audio(_))
}
