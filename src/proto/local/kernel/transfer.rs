//! When frames move between an open card and the runner, and what follows lost audio.
//!
//! In: the answers of a card to reads and writes, chunks of mono PCM, and `now`. Out: one step at a
//! time for the driver, and of a microphone mono PCM. A loudspeaker starts, also after an underrun,
//! once there is enough for its card not to run dry at once. A card that is made ready again has
//! lost what it had, but nothing that it has not taken. [`Supervision`] gives up one that moves no
//! audio, or loses all of it.

use std::time::{Duration, Instant};

use super::CardError;
use super::frames::{PlayedFrames, RecordedFrames};
use super::negotiation::CardForm;
use crate::local::supervision::{CommandFailure, Supervision};

/// Longest time between two questions whether a card has or takes frames.
const ASKED_EVERY: Duration = Duration::from_millis(10);
/// Sound with which a loudspeaker starts: USB cards take some 15 ms of it at once. It is a little
/// less than what the session is ahead of the loudspeaker at least.
const STARTS_WITH: Duration = Duration::from_millis(35);

/// What a card answers to a read or a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardAnswer {
    /// It has moved so many bytes.
    Moved(usize),
    /// It has or takes nothing for now.
    Pending,
    /// It has lost audio, or has slept with its machine, and is to be made ready.
    Xrun,
    Failed(CardError),
}

/// What a driver does with a microphone.
#[derive(Debug, PartialEq, Eq)]
pub enum RecordingStep<'a> {
    /// Read into this buffer; the answer goes to [`CardRecorder::handle_answer`].
    Read(&'a mut [u8]),
    /// Pass on this PCM.
    Pcm(Vec<u8>),
    /// The card has lost audio. Report that, and make it ready; the result goes to
    /// [`CardRecorder::handle_prepared`].
    Prepare,
    /// Ask for the next step at this time.
    Wait(Instant),
    /// Close the card.
    End(CommandFailure),
}

/// What a driver does with a loudspeaker.
#[derive(Debug, PartialEq, Eq)]
pub enum PlaybackStep<'a> {
    /// Wait for [`CardPlayer::handle_chunk`].
    NextChunk,
    /// Write these frames; the answer goes to [`CardPlayer::handle_answer`].
    Write(&'a [u8]),
    /// The card has run dry. Report that, and make it ready; the result goes to
    /// [`CardPlayer::handle_prepared`].
    Prepare,
    /// Ask for the next step at this time.
    Wait(Instant),
    /// All was played at this time: then close the card, which loses what it has.
    Played(Instant),
    /// Close the card.
    End(CommandFailure),
}

/// What both directions have: an open card.
struct SupervisedCard<'a> {
    supervision: &'a mut Supervision,
    /// Time between two questions.
    pause: Duration,
    asked_again: Option<Instant>,
    is_lost: bool,
    failure: Option<CommandFailure>,
}

impl<'a> SupervisedCard<'a> {
    fn new(form: CardForm, supervision: &'a mut Supervision, now: Instant) -> Self {
        supervision.handle_started(now);
        SupervisedCard {
            supervision,
            pause: form.length(form.buffer_frames / 4).min(ASKED_EVERY),
            asked_again: None,
            is_lost: false,
            failure: None,
        }
    }

    /// Returns why the card is closed, if it is.
    fn poll_failure(&mut self, now: Instant) -> Option<CommandFailure> {
        self.failure.clone().or_else(|| self.supervision.poll_failure(now))
    }

    /// Returns until when the card is not asked.
    fn waits_until(&mut self, now: Instant) -> Option<Instant> {
        self.asked_again = self.asked_again.filter(|at| now < *at);
        self.asked_again
    }

    /// Handles an answer, and returns how many bytes have moved.
    fn handle_answer(&mut self, answer: CardAnswer, now: Instant) -> usize {
        match answer {
            CardAnswer::Moved(bytes @ 1..) => {
                self.supervision.note_traffic(now);
                return bytes;
            }
            CardAnswer::Moved(0) | CardAnswer::Pending => self.asked_again = Some(now + self.pause),
            CardAnswer::Xrun => {
                self.supervision.handle_xrun(now);
                self.is_lost = true;
            }
            CardAnswer::Failed(error) => self.fail(&error, now),
        }
        0
    }

    fn handle_prepared(&mut self, result: Result<(), CardError>, now: Instant) {
        self.is_lost = false;
        if let Err(error) = result {
            self.fail(&error, now);
        }
    }

    fn fail(&mut self, error: &CardError, now: Instant) {
        self.supervision.handle_line(&error.to_string(), now);
        self.failure = Some(CommandFailure::Card);
    }
}

/// A card that records.
pub struct CardRecorder<'a> {
    card: SupervisedCard<'a>,
    frames: RecordedFrames,
    buffer: Vec<u8>,
    /// What was recorded, and is not passed on yet.
    pcm: Vec<u8>,
}

impl<'a> CardRecorder<'a> {
    /// Handles a card that was opened. The rate is that of the PCM, in Hz.
    pub fn new(form: CardForm, rate_hz: u32, supervision: &'a mut Supervision, now: Instant) -> Self {
        CardRecorder {
            card: SupervisedCard::new(form, supervision, now),
            frames: RecordedFrames::new(form, rate_hz),
            buffer: vec![0; form.buffer_frames as usize * form.frame_bytes()],
            pcm: Vec::new(),
        }
    }

    /// Returns what is to be done now.
    pub fn poll_step(&mut self, now: Instant) -> RecordingStep<'_> {
        if !self.pcm.is_empty() {
            return RecordingStep::Pcm(std::mem::take(&mut self.pcm));
        }
        if let Some(failure) = self.card.poll_failure(now) {
            return RecordingStep::End(failure);
        }
        if self.card.is_lost {
            return RecordingStep::Prepare;
        }
        match self.card.waits_until(now) {
            Some(at) => RecordingStep::Wait(at),
            None => RecordingStep::Read(&mut self.buffer),
        }
    }

    /// Handles the answer to a read.
    pub fn handle_answer(&mut self, answer: CardAnswer, now: Instant) {
        let bytes = self.card.handle_answer(answer, now);
        if bytes > 0 {
            self.pcm = self.frames.convert(&self.buffer[..bytes.min(self.buffer.len())]);
            self.card.asked_again = Some(now + self.card.pause);
        }
    }

    /// Handles a card that was made ready after it has lost audio.
    pub fn handle_prepared(&mut self, result: Result<(), CardError>, now: Instant) {
        self.frames.handle_restart();
        self.card.handle_prepared(result, now);
    }
}

/// A card that plays.
pub struct CardPlayer<'a> {
    card: SupervisedCard<'a>,
    frames: PlayedFrames,
    /// Bytes that the card gets first.
    start_bytes: usize,
    is_started: bool,
    /// Frames that the card has not taken.
    bytes: Vec<u8>,
    /// Time in which a full buffer is played.
    buffer: Duration,
    /// Set after the last chunk: the time at which all that the card has taken was played.
    played: Option<Instant>,
}

impl<'a> CardPlayer<'a> {
    /// Handles a card that was opened. The rate is that of the PCM, in Hz.
    pub fn new(form: CardForm, rate_hz: u32, supervision: &'a mut Supervision, now: Instant) -> Self {
        let start_frames = form.buffer_frames.min(form.frames_in(STARTS_WITH));
        CardPlayer {
            card: SupervisedCard::new(form, supervision, now),
            frames: PlayedFrames::new(form, rate_hz),
            start_bytes: start_frames as usize * form.frame_bytes(),
            is_started: false,
            bytes: Vec::new(),
            buffer: form.length(form.buffer_frames),
            played: None,
        }
    }

    /// Returns the bytes of PCM that the card has not taken.
    pub fn pending(&self) -> usize {
        self.frames.pcm_bytes(self.bytes.len())
    }

    /// Returns what is to be done now.
    pub fn poll_step(&mut self, now: Instant) -> PlaybackStep<'_> {
        if let Some(failure) = self.card.failure.clone() {
            return PlaybackStep::End(failure);
        }
        let is_due = self.is_started || self.played.is_some() || self.bytes.len() >= self.start_bytes;
        if self.bytes.is_empty() || !is_due {
            return match self.played {
                Some(at) => PlaybackStep::Played(at),
                None => PlaybackStep::NextChunk,
            };
        }
        if let Some(failure) = self.card.poll_failure(now) {
            return PlaybackStep::End(failure);
        }
        if self.card.is_lost {
            return PlaybackStep::Prepare;
        }
        match self.card.waits_until(now) {
            Some(at) => PlaybackStep::Wait(at),
            None => PlaybackStep::Write(&self.bytes),
        }
    }

    /// Handles PCM to play; `None` after the last one.
    pub fn handle_chunk(&mut self, pcm: Option<&[u8]>, now: Instant) {
        match pcm {
            Some(pcm) => self.bytes.extend(self.frames.convert(pcm)),
            None => self.played = Some(now + self.buffer),
        }
    }

    /// Handles the answer to a write.
    pub fn handle_answer(&mut self, answer: CardAnswer, now: Instant) {
        let taken = self.card.handle_answer(answer, now).min(self.bytes.len());
        if taken > 0 {
            self.is_started = true;
            self.bytes.drain(..taken);
            self.played = self.played.map(|_| now + self.buffer);
        }
    }

    /// Handles a card that was made ready after it has run dry.
    pub fn handle_prepared(&mut self, result: Result<(), CardError>, now: Instant) {
        self.is_started = false;
        self.card.handle_prepared(result, now);
    }
}

#[cfg(test)]
mod tests;
