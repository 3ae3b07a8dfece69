//! The media handle: how a bot hears and speaks, whatever transport carries the session.
//!
//! Into the bot: [`Event`]s, with audio as `i16` mono PCM at the rate that the bot asked for, one
//! frame per packet of the caller. Out of the bot: PCM of any length at the bot's own rate, text
//! messages, marks and interruptions. A full inbound queue drops its oldest audio and counts it. A
//! full outbound queue makes the bot wait. No lock is held across an `await`.

mod event;
mod queues;
mod transport_side;

use std::fmt;

use edge_runner_http::common::lock;
use edge_runner_http::sync::Arc;

use crate::limits::KEYS_SENT_MAX;
use crate::limits::{MARK_BYTES_MAX, MARKS_MAX, RATES_HZ};
pub use crate::proto::event::LeaveReason;
pub use crate::proto::participant::Participant;
use crate::proto::silent_bot::BotReadiness;
pub use event::{AudioFrame, Event};
use queues::MediaQueues;
pub(crate) use queues::{OutboundText, RoomCallData};
pub(crate) use transport_side::{MediaDrops, MediaSlot, TransportSide, pair};

/// Characters of a bot's reason to hang up that are logged: one sentence.
const HANG_UP_REASON_CHARS_MAX: usize = 100;
/// Keys that wait for the telephones in a room.
const KEYS_WAITING_MAX: usize = 4 * KEYS_SENT_MAX;

/// The audio format that a bot asks for. Rates outside 8000 to 48000 Hz become the nearest end of
/// that range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audio {
    /// The rate of the caller's audio, in Hz.
    pub in_rate_hz: u32,
    /// The rate of the bot's audio, in Hz.
    pub out_rate_hz: u32,
    /// How a room with several participants is heard. It has no effect elsewhere.
    pub mix: AudioMix,
}

/// How the participants of a room are heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AudioMix {
    /// Mixed into one stream of 20 ms frames without an identity.
    #[default]
    Mixed,
    /// As one stream per participant, in frames with the participant's identity.
    PerParticipant,
}

impl Audio {
    /// Creates a format with one rate for both directions.
    pub fn at(rate_hz: u32) -> Self {
        Audio::new(rate_hz, rate_hz)
    }

    /// Creates a format with a rate for the caller's audio and one for the bot's.
    pub fn new(in_rate_hz: u32, out_rate_hz: u32) -> Self {
        Audio {
            in_rate_hz,
            out_rate_hz,
            mix: AudioMix::Mixed,
        }
        .clamped()
    }

    /// Returns the same rates with [`AudioMix::PerParticipant`].
    pub fn per_participant(self) -> Self {
        Audio {
            mix: AudioMix::PerParticipant,
            ..self
        }
    }

    /// Returns the format with both rates in the supported range.
    fn clamped(self) -> Self {
        let clamp = |rate_hz: u32| rate_hz.clamp(*RATES_HZ.start(), *RATES_HZ.end());
        Audio {
            in_rate_hz: clamp(self.in_rate_hz),
            out_rate_hz: clamp(self.out_rate_hz),
            ..self
        }
    }
}

impl Default for Audio {
    /// 16000 Hz in, 24000 Hz out, participants mixed.
    fn default() -> Self {
        Audio {
            in_rate_hz: 16_000,
            out_rate_hz: 24_000,
            mix: AudioMix::Mixed,
        }
    }
}

/// The error of sending after the session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaError;

impl fmt::Display for MediaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the session is over")
    }
}

impl std::error::Error for MediaError {}

/// Both directions of a session's media. [`Media::split`] separates them for two tasks.
pub struct Media {
    events: Events,
    output: Output,
}

impl fmt::Debug for Media {
    /// Omits speech and messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Media")
    }
}

impl Media {
    /// Waits for the next event. Returns `None` once the session is over.
    ///
    /// This method is cancel safe: dropping its future loses no event.
    pub async fn recv(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Returns the sending half. Clones of it send into the same session.
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

    /// Drops the speech that has not been played. See [`Output::interrupt`].
    pub fn interrupt(&self) {
        self.output.interrupt();
    }

    /// Ends the session when the queued speech has been played. See [`Output::hang_up`].
    pub fn hang_up(&self, reason: impl Into<String>) {
        self.output.hang_up(reason);
    }

    /// Sets a mark after the queued speech. See [`Output::mark`].
    ///
    /// # Errors
    /// [`MediaError`] once the session is over.
    pub fn mark(&self, name: impl Into<String>) -> Result<(), MediaError> {
        self.output.mark(name)
    }

    /// Splits the handle into its receiving and its sending half.
    pub fn split(self) -> (Events, Output) {
        (self.events, self.output)
    }
}

/// The receiving half of a session's media.
pub struct Events(Arc<MediaQueues>);

impl fmt::Debug for Events {
    /// Omits speech and messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    /// Waits for the next event. Returns `None` once the session is over.
    ///
    /// This method is cancel safe: dropping its future loses no event.
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

/// The sending half of a session's media. Clones share one queue.
#[derive(Clone)]
pub struct Output(Arc<MediaQueues>);

impl fmt::Debug for Output {
    /// Omits speech and messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

/// A mark of the runner's own, of which the bot is not told.
pub(crate) const PLAYED_MARK: &str = "edge-runner-played";

impl Output {
    /// Queues `i16` mono PCM at [`Audio::out_rate_hz`], any number of samples, and waits while the
    /// queue is full.
    ///
    /// An interruption drops the samples of a waiting call, which then returns `Ok`.
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
                outbound.has_spoken = true;
                pcm = tail;
            }
            self.0.outbound_changed.notify_one();
            if !pcm.is_empty() {
                space.await;
            }
        }
        Ok(())
    }

    /// Sets how far the bot is, where its open media do not say that.
    pub(crate) fn set_readiness(&self, readiness: BotReadiness) {
        lock(&self.0.outbound).readiness = readiness;
        self.0.outbound_changed.notify_one();
    }

    /// Sends a text message to the caller, ahead of queued speech, without waiting.
    ///
    /// A full queue drops its oldest message and counts it.
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

    /// Passes a message of RTVI to the record of the call alone: the caller gets none, or not this
    /// one.
    pub(crate) fn report(&self, text: String) {
        self.record(OutboundText::Report(text));
    }

    /// Passes the words of speech that is queued next to the record of the call.
    pub(crate) fn report_words(&self, text: String) {
        self.record(OutboundText::Spoken(text));
    }

    fn record(&self, text: OutboundText) {
        {
            let mut outbound = lock(&self.0.outbound);
            if outbound.ended {
                return;
            }
            outbound.push_for_record(text);
        }
        self.0.outbound_changed.notify_one();
    }

    /// Sets a mark after the queued speech. It comes back as [`Event::Mark`] when the caller has
    /// heard everything before it.
    ///
    /// Telephony providers report that moment. On other transports, it is the moment before the
    /// last of that speech leaves the runner. A mark beyond 64 pending ones, or with a name above
    /// 256 bytes, comes back at once as not played.
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
            let is_full = outbound.marks.len() >= MARKS_MAX || outbound.unplayed.len() >= MARKS_MAX;
            if !is_full && name.len() <= MARK_BYTES_MAX {
                let behind = outbound.samples.len();
                outbound.marks.push_back((behind, name));
            } else if outbound.unplayed.len() < MARKS_MAX {
                outbound.unplayed.push(name);
            }
        }
        self.0.outbound_changed.notify_one();
        Ok(())
    }

    /// Changes the rate of all speech that is queued after this call, in Hz, and waits until the
    /// speech before it has left.
    ///
    /// Use it when the rate is only known with the first speech. A change in the middle of speech
    /// may click.
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

    /// Returns the rate of the speech that is queued next, in Hz.
    pub fn rate_hz(&self) -> u32 {
        lock(&self.0.outbound).audio.unwrap_or_default().out_rate_hz
    }

    /// Ends the session when the queued speech has been played, as if the bot had returned. The bot
    /// receives [`Event::Left`] and must still return.
    ///
    /// The reason is written to the log, without control characters and at most 100 characters of
    /// it. It must not name the caller.
    ///
    /// ```
    /// # use edge_runner::{Audio, BotError, Event, RunnerArguments};
    /// async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    ///     let mut media = args.media(Audio::at(8_000))?;
    ///     while let Some(event) = media.recv().await {
    ///         if let Event::Dtmf('#') = event {
    ///             media.send_audio(&[100; 800]).await?;
    ///             media.hang_up("the caller is done");
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let mut call = edge_runner::testing::Caller::browser().call(bot);
    /// # call.join();
    /// # call.press("#");
    /// # assert_eq!(call.hung_up().await.as_deref(), Some("the caller is done"));
    /// # call.ended().await.expect("it returns");
    /// # });
    /// ```
    pub fn hang_up(&self, reason: impl Into<String>) {
        let reason = reason.into();
        let plain = reason.chars().filter(|letter| !letter.is_control());
        lock(&self.0.outbound).hang_up = Some(plain.take(HANG_UP_REASON_CHARS_MAX).collect());
        self.0.outbound_changed.notify_one();
    }

    /// Returns whether speech is queued that the transport has not taken.
    pub(crate) fn is_waiting(&self) -> bool {
        !lock(&self.0.outbound).speech().is_zero()
    }

    /// Queues keys for the telephones in a room, ahead of speech. Returns `false` if too many wait.
    pub(crate) fn send_keys(&self, keys: &str) -> bool {
        {
            let mut outbound = lock(&self.0.outbound);
            if outbound.ended || outbound.keys.len() + keys.len() > KEYS_WAITING_MAX {
                return false;
            }
            outbound.keys += keys;
        }
        self.0.outbound_changed.notify_one();
        true
    }

    /// Returns whether the bot has sent speech since its last interruption.
    pub(crate) fn has_spoken(&self) -> bool {
        lock(&self.0.outbound).has_spoken
    }

    /// Begins to wait: until [`PLAYED_MARK`] comes back, speech is waiting.
    pub(crate) fn expect_played(&self) {
        lock(&self.0.outbound).is_played = false;
    }

    /// States that the mark will not come back.
    pub(crate) fn set_played(&self) {
        lock(&self.0.outbound).is_played = true;
        self.0.outbound_space.notify_waiters();
    }

    /// Waits until the speech before [`PLAYED_MARK`] was played or dropped, or the call is over.
    pub(crate) async fn played(&self) {
        loop {
            let mut changed = std::pin::pin!(self.0.outbound_space.notified());
            changed.as_mut().enable();
            {
                let outbound = lock(&self.0.outbound);
                if outbound.is_played || outbound.ended {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Leaves the call to its provider when the session ends, which has transferred it.
    pub(crate) fn leave_to_provider(&self, transferred_to: String) {
        lock(&self.0.outbound).transferred = Some(transferred_to);
        self.0.outbound_changed.notify_one();
    }

    /// Drops all speech that has not left the runner, at once, and asks the transport to drop what
    /// it has not played.
    pub fn interrupt(&self) {
        {
            let mut outbound = lock(&self.0.outbound);
            outbound.epoch += 1;
            outbound.samples.clear();
            outbound.has_spoken = false;
            outbound.interrupted = true;
            let marks = std::mem::take(&mut outbound.marks);
            outbound.unplayed.extend(marks.into_iter().map(|(_, name)| name));
        }
        self.0.outbound_changed.notify_one();
        self.0.outbound_space.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
