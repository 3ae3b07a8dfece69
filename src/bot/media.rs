//! The media handle: what a bot hears, and how it speaks, whatever carries the session.
//!
//! Into the bot: [`Event`]s, audio as `i16` mono PCM at the rate the bot asked for, one frame per packet of the caller.
//! Out of it: PCM of any length at the bot's own rate, text messages, and an interruption that empties what was not heard
//! yet. Both directions end: the inbound queue drops the oldest audio and counts it, since old speech is worthless; a full
//! outbound queue makes the bot wait. The transport's side is [`TransportSide`]. Neither side holds a lock across an `await`.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::lock;
use tokio::sync::Notify;

use crate::limits::{
    AUDIO_IN_FRAMES_MAX, AUDIO_OUT_QUEUE, EVENTS_IN_MAX, MARK_BYTES_MAX, MARKS_MAX, MESSAGES_IN_BYTES_MAX,
    MESSAGES_OUT_BYTES_MAX, MESSAGES_OUT_MAX, RATES_HZ,
};
use crate::proto::counts::Waiting;
use crate::proto::event;
pub use crate::proto::event::LeaveReason;
pub use crate::proto::participant::Participant;

/// The rates of PCM that a bot asks for, in Hz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audio {
    pub in_rate_hz: u32,
    pub out_rate_hz: u32,
    /// What of a room with several participants is heard; no matter anywhere else.
    pub mix: AudioMix,
}

/// How the participants of a room are heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AudioMix {
    /// As one sound, in frames of 20 ms that name nobody.
    #[default]
    Mixed,
    /// Each for himself, in frames that name their participant.
    PerParticipant,
}

impl Audio {
    /// One rate for both directions.
    ///
    /// A rate outside 8 000 to 48 000 Hz is taken as the nearest end of that range.
    pub fn at(rate_hz: u32) -> Self {
        Audio::new(rate_hz, rate_hz)
    }

    /// A rate for what is heard, and one for what is said, each taken as with [`Audio::at`].
    pub fn new(in_rate_hz: u32, out_rate_hz: u32) -> Self {
        let clamp = |rate_hz: u32| rate_hz.clamp(*RATES_HZ.start(), *RATES_HZ.end());
        Audio {
            in_rate_hz: clamp(in_rate_hz),
            out_rate_hz: clamp(out_rate_hz),
            mix: AudioMix::Mixed,
        }
    }

    /// The same rates, with every participant of a room heard for himself.
    pub fn per_participant(self) -> Self {
        Audio {
            mix: AudioMix::PerParticipant,
            ..self
        }
    }
}

impl Default for Audio {
    fn default() -> Self {
        Audio {
            in_rate_hz: 16_000,
            out_rate_hz: 24_000,
            mix: AudioMix::Mixed,
        }
    }
}

/// What happens to a bot, in the order in which it happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The caller is connected; audio and messages flow from here on. In a room: the first caller is within reach.
    Joined,
    /// What the caller said, usually 20 ms of it.
    Audio(AudioFrame),
    /// A text message of the caller, as it came; RTVI is read by [`crate::rtvi`].
    Message(String),
    /// A key of the telephone: one of `0`-`9`, `*`, `#`, `A`-`D`.
    Dtmf(char),
    /// The bot's speech begins to leave the runner.
    SpeechStarted,
    /// The last of the bot's speech left the runner, or was interrupted.
    SpeechStopped,
    /// A mark of [`Output::mark`] came back: everything before it was played, or was dropped by an interruption.
    Mark { name: String, played: bool },
    /// Somebody is in the room, or came into it.
    ParticipantJoined(Participant),
    /// Somebody left the room.
    ParticipantLeft(Participant),
    /// Somebody in the room began to speak, or stopped, as the server hears it.
    Speaking { identity: Arc<str>, speaking: bool },
    /// The room could not be entered: why. [`Event::Left`] follows.
    JoinFailed(String),
    /// Nothing was heard of the caller for some seconds; the session is kept for a while.
    Lost,
    /// A lost caller is heard again.
    Resumed,
    /// The session is over; nothing follows.
    Left(LeaveReason),
}

impl From<event::Event> for Event {
    fn from(event: event::Event) -> Self {
        match event {
            event::Event::Joined => Event::Joined,
            event::Event::Message(text) => Event::Message(text),
            event::Event::Dtmf(key) => Event::Dtmf(key),
            event::Event::Mark { name, played } => Event::Mark { name, played },
            event::Event::SpeechStarted => Event::SpeechStarted,
            event::Event::SpeechStopped => Event::SpeechStopped,
            event::Event::ParticipantJoined(who) => Event::ParticipantJoined(who),
            event::Event::ParticipantLeft(who) => Event::ParticipantLeft(who),
            event::Event::Speaking { identity, speaking } => Event::Speaking { identity, speaking },
            event::Event::JoinFailed(why) => Event::JoinFailed(why),
            event::Event::Lost => Event::Lost,
            event::Event::Resumed => Event::Resumed,
            event::Event::Left(reason) => Event::Left(reason),
        }
    }
}

/// PCM of one packet: `i16` mono at [`AudioFrame::rate_hz`]. Its memory goes back to the session when it is dropped.
pub struct AudioFrame {
    samples: Vec<i16>,
    rate_hz: u32,
    /// Whose voice it is, where each participant is heard for himself.
    identity: Option<Arc<str>>,
    /// Set while a bot holds the frame. A queued frame has none: a queue that owned itself would never be freed.
    pool: Option<Arc<MediaQueues>>,
}

impl AudioFrame {
    /// Makes a frame that belongs to no session, as a bot's own tests need.
    pub fn new(samples: Vec<i16>, rate_hz: u32) -> Self {
        AudioFrame {
            samples,
            rate_hz,
            identity: None,
            pool: None,
        }
    }

    pub fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    /// Returns the identity of the participant whose voice this is, with [`AudioMix::PerParticipant`] in a room.
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
    /// Speech never reaches a log.
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

/// The session is over: what was sent goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaError;

impl fmt::Display for MediaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the session is over")
    }
}

impl std::error::Error for MediaError {}

/// Both directions of a session's media. [`Media::split`] it when two tasks need them.
pub struct Media {
    events: Events,
    output: Output,
}

impl fmt::Debug for Media {
    /// Neither speech nor messages are part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Media")
    }
}

impl Media {
    /// Waits for the next event; `None` once the session is over.
    pub async fn recv(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Returns the speaking side; clones of it speak into the same session.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Queues speech, and waits while the queue is full. See [`Output::send_audio`].
    ///
    /// # Errors
    /// [`MediaError`] once the session is over.
    pub async fn send_audio(&self, pcm: &[i16]) -> Result<(), MediaError> {
        self.output.send_audio(pcm).await
    }

    /// Sends a text message to the caller. See [`Output::send_message`].
    ///
    /// # Errors
    /// [`MediaError`] once the session is over.
    pub fn send_message(&self, text: impl Into<String>) -> Result<(), MediaError> {
        self.output.send_message(text)
    }

    /// Drops the speech that has not left yet. See [`Output::interrupt`].
    pub fn interrupt(&self) {
        self.output.interrupt();
    }

    /// Sets a mark behind the speech that is queued. See [`Output::mark`].
    ///
    /// # Errors
    /// [`MediaError`] once the session is over.
    pub fn mark(&self, name: impl Into<String>) -> Result<(), MediaError> {
        self.output.mark(name)
    }

    pub fn split(self) -> (Events, Output) {
        (self.events, self.output)
    }
}

/// The hearing side of a session.
pub struct Events(Arc<MediaQueues>);

impl fmt::Debug for Events {
    /// Neither speech nor messages are part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    /// Waits for the next event; `None` once the session is over.
    ///
    /// It can be dropped and called again at any time without losing an event.
    pub async fn recv(&mut self) -> Option<Event> {
        loop {
            let arrived = self.0.inbound_ready.notified();
            {
                let mut inbound = lock(&self.0.inbound);
                if let Some(mut event) = inbound.events.pop_front() {
                    match &mut event {
                        Event::Audio(frame) => {
                            inbound.frames -= 1;
                            frame.pool = Some(self.0.clone());
                        }
                        Event::Message(text) => inbound.message_bytes -= text.len(),
                        _ => {}
                    }
                    return Some(event);
                }
                if inbound.ended {
                    return None;
                }
            }
            arrived.await;
        }
    }
}

/// The speaking side of a session. Clones share one queue.
#[derive(Clone)]
pub struct Output(Arc<MediaQueues>);

impl fmt::Debug for Output {
    /// Neither speech nor messages are part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

impl Output {
    /// Queues `i16` mono PCM at the rate of [`Audio::out_rate_hz`], any number of samples, and waits while the queue is full.
    ///
    /// Samples that an interruption overtakes are dropped: the call returns at once, and that is no error.
    ///
    /// # Errors
    /// [`MediaError`] once the session is over.
    pub async fn send_audio(&self, mut pcm: &[i16]) -> Result<(), MediaError> {
        let epoch = lock(&self.0.outbound).epoch;
        while !pcm.is_empty() {
            let space = self.0.outbound_space.notified();
            {
                let mut outbound = lock(&self.0.outbound);
                if outbound.ended {
                    return Err(MediaError);
                }
                if outbound.epoch != epoch {
                    return Ok(());
                }
                let take = pcm.len().min(outbound.space());
                let (head, tail) = pcm.split_at(take);
                outbound.samples.extend(head);
                pcm = tail;
            }
            self.0.outbound_changed.notify_one();
            if !pcm.is_empty() {
                space.await;
            }
        }
        Ok(())
    }

    /// Sends a text message to the caller. It overtakes queued speech, and never waits.
    ///
    /// When more messages are waiting than the session holds, the oldest is dropped and counted.
    ///
    /// # Errors
    /// [`MediaError`] once the session is over.
    pub fn send_message(&self, text: impl Into<String>) -> Result<(), MediaError> {
        {
            let mut outbound = lock(&self.0.outbound);
            if outbound.ended {
                return Err(MediaError);
            }
            outbound.push_message(text.into());
        }
        self.0.outbound_changed.notify_one();
        Ok(())
    }

    /// Sets a mark behind the speech that is queued. It comes back as [`Event::Mark`] when the caller heard all before it.
    ///
    /// A telephony provider says when that is; on other transports it is when the last of that speech is about to leave.
    /// Beyond 64 marks under way, or 256 bytes of name, it comes back at once as not played.
    ///
    /// # Errors
    /// [`MediaError`] once the session is over.
    pub fn mark(&self, name: impl Into<String>) -> Result<(), MediaError> {
        let name = name.into();
        {
            let mut outbound = lock(&self.0.outbound);
            if outbound.ended {
                return Err(MediaError);
            }
            if outbound.marks.len() < MARKS_MAX && name.len() <= MARK_BYTES_MAX {
                let behind = outbound.samples.len();
                outbound.marks.push_back((behind, name));
            } else if outbound.unplayed.len() < MARKS_MAX {
                outbound.unplayed.push(name);
            }
        }
        self.0.outbound_changed.notify_one();
        Ok(())
    }

    /// Changes the rate of what is queued from here on, in Hz; waits until what was queued before has left.
    ///
    /// For a bot that learns its rate only when it has its first speech. A change in mid-speech may click.
    ///
    /// # Errors
    /// [`MediaError`] once the session is over.
    pub async fn set_rate(&self, rate_hz: u32) -> Result<(), MediaError> {
        let rate_hz = rate_hz.clamp(*RATES_HZ.start(), *RATES_HZ.end());
        loop {
            let space = self.0.outbound_space.notified();
            {
                let mut outbound = lock(&self.0.outbound);
                if outbound.ended {
                    return Err(MediaError);
                }
                let audio = outbound.audio.unwrap_or_default();
                if outbound.samples.is_empty() || audio.out_rate_hz == rate_hz {
                    outbound.rate_changed |= audio.out_rate_hz != rate_hz;
                    outbound.audio = Some(Audio {
                        out_rate_hz: rate_hz,
                        ..audio
                    });
                    break;
                }
            }
            space.await;
        }
        self.0.outbound_changed.notify_one();
        Ok(())
    }

    /// Drops, at once, all speech that has not left the runner yet, and where the far end can, what it has not played.
    pub fn interrupt(&self) {
        {
            let mut outbound = lock(&self.0.outbound);
            outbound.epoch += 1;
            outbound.samples.clear();
            outbound.interrupted = true;
            let marks = std::mem::take(&mut outbound.marks);
            outbound.unplayed.extend(marks.into_iter().map(|(_, name)| name));
        }
        self.0.outbound_changed.notify_one();
        self.0.outbound_space.notify_waiters();
    }
}

/// The bot's place in a session that has not been taken yet: it knows no rates.
pub struct MediaSlot(Arc<MediaQueues>);

impl MediaSlot {
    /// Takes the slot with the given rates.
    pub fn open(self, audio: Audio) -> Media {
        let clamp = |rate_hz: u32| rate_hz.clamp(*RATES_HZ.start(), *RATES_HZ.end());
        {
            let mut outbound = lock(&self.0.outbound);
            outbound.audio = Some(Audio {
                in_rate_hz: clamp(audio.in_rate_hz),
                out_rate_hz: clamp(audio.out_rate_hz),
                mix: audio.mix,
            });
            outbound.rate_changed = true;
        }
        self.0.outbound_changed.notify_one();
        Media {
            events: Events(self.0.clone()),
            output: Output(self.0.clone()),
        }
    }
}

/// The transport's side of a session's media.
pub struct TransportSide(Arc<MediaQueues>);

/// Makes the two sides of one session's media. At most `frames_max` frames of audio wait for a slow bot.
pub fn pair(frames_max: usize) -> (TransportSide, MediaSlot) {
    let shared = Arc::new(MediaQueues {
        frames_max,
        ..MediaQueues::default()
    });
    (TransportSide(shared.clone()), MediaSlot(shared))
}

impl TransportSide {
    /// Waits until the bot did something that concerns the transport.
    pub async fn notified(&self) {
        self.0.outbound_changed.notified().await;
    }

    /// Returns the rates, once the bot has opened its media.
    pub fn audio(&self) -> Option<Audio> {
        let mut outbound = lock(&self.0.outbound);
        outbound.rate_changed = false;
        outbound.audio
    }

    /// Hands an event to the bot. Audio goes through [`TransportSide::push_audio`], which spares a copy.
    ///
    /// A bot that reads nothing loses the oldest news of who speaks first, then messages: nobody who floods it can hide what
    /// happened.
    pub fn push(&self, event: Event) {
        if let Event::Audio(frame) = event {
            return self.push_frame(&frame, frame.rate_hz, frame.identity.as_ref());
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
        while inbound.message_bytes > MESSAGES_IN_BYTES_MAX {
            inbound.drop_oldest(&[is_message]);
        }
        while inbound.events.len() - inbound.frames > EVENTS_IN_MAX {
            // Who speaks is the least of it; what somebody wrote is less than who is there.
            inbound.drop_oldest(&[is_speaking, is_message, is_not_audio]);
        }
        drop(inbound);
        self.0.inbound_ready.notify_one();
    }

    /// Hands one frame of PCM to the bot, in memory that an earlier frame gave back. A full queue drops its oldest frame.
    pub fn push_audio(&self, pcm: &[i16], rate_hz: u32) {
        self.push_frame(pcm, rate_hz, None);
    }

    /// The same for the voice of one participant among several.
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

    /// Tells whether the bot interrupted its speech since the last call.
    pub fn take_interruption(&self) -> bool {
        std::mem::take(&mut lock(&self.0.outbound).interrupted)
    }

    /// Moves queued speech into `into`, up to the next mark and at most `samples_max` of it, and returns how much that was.
    ///
    /// Nothing, while the transport has not asked for an interruption or for rates that came before that speech: it would
    /// drop the new words for the old ones, or play them at the wrong speed.
    pub fn take_audio(&self, into: &mut Vec<i16>, samples_max: usize) -> usize {
        let taken = {
            let mut outbound = lock(&self.0.outbound);
            if outbound.has_pending_change() {
                return 0;
            }
            let marked = outbound.marks.front().map_or(usize::MAX, |(behind, _)| *behind);
            let take = outbound.samples.len().min(samples_max).min(marked);
            into.extend(outbound.samples.drain(..take));
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

    /// Takes the marks whose speech was dropped before it left.
    pub fn take_unplayed_marks(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0.outbound).unplayed)
    }

    /// Tells whether speech is queued.
    pub fn has_audio(&self) -> bool {
        !lock(&self.0.outbound).samples.is_empty()
    }

    /// Takes the next message to the caller.
    pub fn take_message(&self) -> Option<String> {
        let mut outbound = lock(&self.0.outbound);
        let text = outbound.messages.pop_front()?;
        outbound.message_bytes -= text.len();
        Some(text)
    }

    /// Returns what waits in the queues at this moment.
    pub fn waiting(&self) -> Waiting {
        let frames = lock(&self.0.inbound).frames;
        let outbound = lock(&self.0.outbound);
        let rate_hz = outbound.audio.unwrap_or_default().out_rate_hz;
        Waiting {
            frames,
            speech: Duration::from_secs(outbound.samples.len() as u64) / rate_hz,
        }
    }

    /// Returns what the queues had to drop.
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
    /// The session is over: the bot's waits end.
    fn drop(&mut self) {
        lock(&self.0.inbound).ended = true;
        lock(&self.0.outbound).ended = true;
        self.0.inbound_ready.notify_waiters();
        self.0.inbound_ready.notify_one();
        self.0.outbound_space.notify_waiters();
    }
}

/// What a session's queues had to drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaDrops {
    /// Audio frames that the bot did not read in time.
    pub frames_in: u64,
    /// Other events that the bot did not read in time.
    pub events_in: u64,
    /// Messages that the caller did not take in time.
    pub messages_out: u64,
}

#[derive(Default)]
struct MediaQueues {
    /// How many frames may wait for the bot.
    frames_max: usize,
    inbound: Mutex<Inbound>,
    outbound: Mutex<Outbound>,
    /// An event is there.
    inbound_ready: Notify,
    /// Audio, a message, an interruption or the rates are there.
    outbound_changed: Notify,
    /// The outbound queue has room again.
    outbound_space: Notify,
}

#[derive(Default)]
struct Inbound {
    events: VecDeque<Event>,
    /// How many of `events` are audio.
    frames: usize,
    /// How many bytes of text are in `events`.
    message_bytes: usize,
    free_buffers: Vec<Vec<i16>>,
    frames_dropped: u64,
    events_dropped: u64,
    ended: bool,
}

impl Inbound {
    /// Drops the oldest event of the first of these kinds of which there is any.
    fn drop_oldest(&mut self, kinds: &[fn(&Event) -> bool]) {
        let oldest = kinds.iter().find_map(|kind| self.events.iter().position(kind));
        if let Some(Event::Message(text)) = oldest.and_then(|oldest| self.events.remove(oldest)) {
            self.message_bytes -= text.len();
        }
        self.events_dropped += 1;
    }

    /// Removes the oldest frame and returns its memory.
    fn take_oldest_frame(&mut self) -> Vec<i16> {
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

#[derive(Default)]
struct Outbound {
    audio: Option<Audio>,
    samples: VecDeque<i16>,
    /// Marks, each with the number of queued samples before it.
    marks: VecDeque<(usize, String)>,
    /// Marks that never left.
    unplayed: Vec<String>,
    messages: VecDeque<String>,
    /// How many bytes of text are in `messages`.
    message_bytes: usize,
    messages_dropped: u64,
    /// Counts interruptions, so that a waiting `send_audio` sees that it was overtaken.
    epoch: u64,
    /// The transport has not asked yet for an interruption, or for the rates since they changed.
    interrupted: bool,
    rate_changed: bool,
    ended: bool,
}

impl Outbound {
    /// Queues a text; the oldest ones make room. One alone is kept, however long: the channel knows what it takes.
    fn push_message(&mut self, text: String) {
        self.message_bytes += text.len();
        self.messages.push_back(text);
        while self.messages.len() > MESSAGES_OUT_MAX
            || (self.message_bytes > MESSAGES_OUT_BYTES_MAX && self.messages.len() > 1)
        {
            let oldest = self.messages.pop_front().unwrap_or_default();
            self.message_bytes -= oldest.len();
            self.messages_dropped += 1;
        }
    }

    /// Tells whether what is queued follows something that the transport does not know yet.
    fn has_pending_change(&self) -> bool {
        self.interrupted || self.rate_changed
    }

    /// Returns how many samples the queue still takes.
    fn space(&self) -> usize {
        let rate_hz = self.audio.unwrap_or_default().out_rate_hz as usize;
        let samples_max = rate_hz * AUDIO_OUT_QUEUE.as_millis() as usize / 1000;
        samples_max.saturating_sub(self.samples.len())
    }
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

#[cfg(test)]
mod tests;
