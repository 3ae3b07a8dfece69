//! Cuts the bot's speech into 20 ms frames and releases them on a steady clock.
//!
//! In: PCM of any length (`i16` mono at the given rate), interruptions, and `now`. Out, by
//! [`Pacer::poll_output`]: frames of exactly 20 ms with their RTP timestamp (48 kHz ticks), and the
//! start and end of speech. After [`Pacer::start`] the stream is continuous: a slot without speech
//! is a frame of digital silence.
//!
//! Slots are absolute, 20 ms apart. Speech may leave up to one slot early, so real-time input keeps
//! its own phase. When the queue runs dry during speech, the pacer waits one slot before it sends
//! silence. It skips slots that a late wake-up missed: at most two frames leave within 20 ms. A
//! full queue accepts nothing; [`Pacer::free_capacity`] returns its free capacity.
//!
//! The slots follow a source with a faster clock, if it delivers single frames. Pieces of more than
//! 20 ms and queued frames wait by design and do not move the slots: their backlog stays until the
//! speech pauses. The RTP timestamps then run ahead of the wall clock, as the source's samples do.
//! Source: `docs/spec/signalling.md` 6.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::audio::queue::take_samples;
use crate::audio::rate_converter::RateConverter;
use crate::counts::{Count, Counts};
use crate::limits::{PACER_QUEUE, SPEECH_HANGOVER};

/// Duration of a frame, and distance of slots.
const PTIME: Duration = Duration::from_millis(20);
/// The same in ticks of the RTP clock.
pub const PTIME_TICKS: u64 = 960;
/// How much earlier the next slot is scheduled for each frame that had to wait, to follow a source
/// whose clock runs fast. 20 us per 20 ms is 1000 ppm, more than any real clock error.
const PULL: Duration = Duration::from_micros(20);

/// Output of the pacer.
#[derive(Debug, PartialEq, Eq)]
pub enum PacerOutput<'a> {
    /// Send this frame now.
    Frame(PacedFrame<'a>),
    /// The bot's speech starts; its first frame follows.
    SpeechStarted,
    /// The bot's speech ended, after the hangover, or was interrupted.
    SpeechStopped,
}

/// 20 ms of PCM.
#[derive(Debug, PartialEq, Eq)]
pub struct PacedFrame<'a> {
    pub pcm: &'a [i16],
    /// RTP timestamp, counted from zero in ticks of 48 kHz.
    pub rtp_ticks: u64,
    /// Whether every sample is zero.
    pub is_silent: bool,
}

/// The reason of the next deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacerDeadline {
    Speech,
    Silence,
    SpeechEnd,
}

/// Frames sent since the session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacerStats {
    pub frames: u64,
    /// The silent frames of `frames`.
    pub silent: u64,
    /// Slots without a frame because of a late wake-up.
    pub skipped: u64,
}

impl PacerStats {
    /// Copies these values into `counts`.
    pub fn write_to(&self, counts: &mut Counts) {
        counts.set(Count::FramesOut, self.frames);
        counts.set(Count::FramesSkipped, self.skipped);
    }
}

/// Paces one outgoing stream.
pub struct Pacer {
    rate_hz: u32,
    queue: VecDeque<i16>,
    frame: Vec<i16>,
    /// Time of the next slot. Silence is sent at the slot; a full speech frame may be sent up to
    /// `PTIME` before it. `None` until `start`.
    slot: Option<Instant>,
    /// When the last two frames were sent, the older first.
    last_departures: [Option<Instant>; 2],
    /// Whether the last frame was full of speech, so that the pacer waits for the next one.
    in_speech: bool,
    /// When the queue last received audio.
    last_input_at: Option<Instant>,
    /// When the queue last came to hold a full frame.
    frame_ready_at: Option<Instant>,
    ticks: u64,
    /// Slot delay not yet applied to the RTP timestamps.
    timestamp_lag: Duration,
    /// When sound was last sent, while the bot speaks.
    speaking: Option<Instant>,
    interrupted: bool,
    now: Option<Instant>,
    counters: PacerStats,
}

impl Pacer {
    /// Creates a pacer for PCM at `rate_hz`, a multiple of 50.
    pub fn new(rate_hz: u32) -> Self {
        Self {
            rate_hz,
            queue: VecDeque::new(),
            frame: Vec::new(),
            slot: None,
            last_departures: [None; 2],
            in_speech: false,
            last_input_at: None,
            frame_ready_at: None,
            ticks: 0,
            timestamp_lag: Duration::ZERO,
            speaking: None,
            interrupted: false,
            now: None,
            counters: PacerStats::default(),
        }
    }

    /// Returns the rate of the PCM, in Hz.
    pub fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    /// Sets the rate of further PCM, a multiple of 50. Queued speech is converted to it.
    pub fn set_rate(&mut self, rate_hz: u32) {
        let queued = self.queue.make_contiguous();
        let length = queued.len() as u64 * u64::from(rate_hz) / u64::from(self.rate_hz);
        let mut converter = RateConverter::new(self.rate_hz, rate_hz);
        let mut converted = converter.convert(queued).to_vec();
        // The filter holds the end of the speech back, for a few milliseconds.
        converted.extend_from_slice(converter.convert(&vec![0; self.frame_samples()]));
        converted.truncate(length as usize);
        self.queue = converted.into();
        self.rate_hz = rate_hz;
    }

    /// Starts or resumes the stream: the next frame is due at once.
    pub fn start(&mut self, now: Instant) {
        self.now = Some(now);
        self.slot = Some(now);
        self.last_departures = [None; 2];
        self.in_speech = false;
    }

    /// Returns the free capacity of the queue, in samples.
    pub fn free_capacity(&self) -> usize {
        let cap = (PACER_QUEUE.as_millis() as usize * self.rate_hz as usize) / 1000;
        cap.saturating_sub(self.queue.len())
    }

    /// Returns the duration of the queued speech.
    pub fn queued(&self) -> Duration {
        Duration::from_secs(self.queue.len() as u64) / self.rate_hz
    }

    /// Returns the PCM of the last frame.
    pub fn last_frame(&self) -> &[i16] {
        &self.frame
    }

    pub fn is_speaking(&self) -> bool {
        self.speaking.is_some()
    }

    pub fn counters(&self) -> &PacerStats {
        &self.counters
    }

    /// Queues speech and returns the number of accepted samples. Then drain
    /// [`Self::poll_output`].
    pub fn handle_audio(&mut self, pcm: &[i16], now: Instant) -> usize {
        self.now = Some(now);
        let taken = pcm.len().min(self.free_capacity());
        if taken > 0 {
            let was_full = self.queue.len() >= self.frame_samples();
            self.queue.extend(&pcm[..taken]);
            self.last_input_at = Some(now);
            if !was_full {
                self.frame_ready_at = Some(now);
            }
        }
        taken
    }

    /// Drops the queued speech. Then drain [`Self::poll_output`].
    pub fn handle_interruption(&mut self, now: Instant) {
        self.now = Some(now);
        self.queue.clear();
        self.in_speech = false;
        self.interrupted = self.speaking.is_some();
    }

    /// Pauses the stream until the next [`Self::start`]. Current speech ends; queued speech starts
    /// again then. Returns whether the bot was speaking.
    pub fn handle_pause(&mut self) -> bool {
        self.in_speech = false;
        self.interrupted = false;
        self.speaking.take().is_some()
    }

    /// Advances the time. Then drain [`Self::poll_output`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Returns the next deadline and its reason.
    pub fn poll_timeout(&self) -> Option<(Instant, PacerDeadline)> {
        let frame = self.due()?;
        match self.speaking.map(|sound| sound + SPEECH_HANGOVER) {
            Some(end) if end < frame.0 && !self.is_voiced() => Some((end, PacerDeadline::SpeechEnd)),
            _ => Some(frame),
        }
    }

    /// Returns the next output that is due.
    pub fn poll_output(&mut self) -> Option<PacerOutput<'_>> {
        let now = self.now?;
        let (due, _) = self.due()?;
        let voiced = self.is_voiced();
        let over = self.speaking.is_some_and(|sound| now >= sound + SPEECH_HANGOVER) && !voiced;
        if std::mem::take(&mut self.interrupted) || over {
            self.speaking = None;
            return Some(PacerOutput::SpeechStopped);
        }
        if now < due {
            return None;
        }
        if voiced && self.speaking.replace(now).is_none() {
            return Some(PacerOutput::SpeechStarted);
        }
        self.build_frame(now);
        let rtp_ticks = self.ticks;
        self.ticks += PTIME_TICKS;
        self.counters.frames += 1;
        self.counters.silent += u64::from(!voiced);
        Some(PacerOutput::Frame(PacedFrame {
            pcm: &self.frame,
            rtp_ticks,
            is_silent: !voiced,
        }))
    }

    fn frame_samples(&self) -> usize {
        self.rate_hz as usize / 50
    }

    /// Returns the number of queued samples for the next frame: a full frame, or the rest of speech
    /// that has ended.
    fn samples_for_next_frame(&self) -> usize {
        let samples = self.frame_samples();
        // In continuous speech, `due()` has already waited for the rest, so a short frame can go
        // out now.
        let ended = self.in_speech
            || self
                .last_input_at
                .zip(self.now)
                .is_some_and(|(fed, now)| now >= fed + PTIME);
        if self.queue.len() >= samples || ended {
            self.queue.len().min(samples)
        } else {
            0
        }
    }

    fn is_voiced(&self) -> bool {
        self.queue
            .range(..self.samples_for_next_frame())
            .any(|sample| *sample != 0)
    }

    /// Returns the deadline of the next frame.
    fn due(&self) -> Option<(Instant, PacerDeadline)> {
        let slot = self.slot?;
        let (at, due) = if self.queue.len() >= self.frame_samples() {
            (slot.checked_sub(PTIME).unwrap_or(slot), PacerDeadline::Speech)
        } else if let (true, Some(left)) = (self.in_speech, self.last_departures[1]) {
            let rest = if self.queue.is_empty() {
                PacerDeadline::Silence
            } else {
                PacerDeadline::Speech
            };
            (left + PTIME + PTIME, rest)
        } else {
            (slot, PacerDeadline::Silence)
        };
        Some((self.last_departures[0].map_or(at, |left| at.max(left + PTIME)), due))
    }

    /// Cuts the next frame from the queue, pads it with silence, and advances to the next slot.
    fn build_frame(&mut self, now: Instant) {
        let (samples, filled) = (self.frame_samples(), self.samples_for_next_frame());
        let was_in_speech = std::mem::replace(&mut self.in_speech, filled == samples);
        if !was_in_speech {
            // A jump of the RTP timestamp is inaudible in silence, and between silence and speech.
            while let Some(rest) = self.timestamp_lag.checked_sub(PTIME) {
                self.timestamp_lag = rest;
                self.ticks += PTIME_TICKS;
            }
        }
        self.frame.clear();
        take_samples(&mut self.queue, filled, &mut self.frame);
        self.frame.resize(samples, 0);
        let came_alone = self.frame_ready_at > self.last_departures[1] && self.queue.len() < samples;
        if self.in_speech && came_alone && self.frame_ready_at < Some(now) {
            // The source delivers single frames in real time, but this one had to wait for its
            // slot: the source's clock is fast, so schedule the slots earlier.
            self.slot = self.slot.and_then(|slot| slot.checked_sub(PULL));
            self.timestamp_lag = self.timestamp_lag.saturating_sub(PULL);
        }
        // What is still queued counts as ready from now on.
        self.frame_ready_at = Some(now);
        self.slot = self
            .slot
            .map(|slot| self.next_slot(slot, was_in_speech && !self.in_speech, now));
        self.last_departures = [self.last_departures[1], Some(now)];
    }

    /// Returns the first slot after `slot` that is in the future.
    fn next_slot(&mut self, slot: Instant, ran_dry: bool, now: Instant) -> Instant {
        let next = slot + PTIME;
        if ran_dry {
            // The slots waited for speech and continue from here, so that late speech finds its
            // slot free.
            self.timestamp_lag += now.saturating_duration_since(slot);
            return next.max(now + PTIME);
        }
        if next > now {
            return next;
        }
        let missed = 1 + (now - next).as_micros() / PTIME.as_micros();
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        self.counters.skipped += u64::from(missed);
        self.timestamp_lag += PTIME * missed;
        next + PTIME * missed
    }
}

#[cfg(test)]
mod tests;
