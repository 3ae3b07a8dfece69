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
//! full queue accepts nothing; [`Pacer::room`] returns its free capacity.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::counts::{Count, Counts};
use crate::limits::{PACER_QUEUE, SPEECH_HANGOVER};

/// Duration of a frame, and distance of slots.
const PTIME: Duration = Duration::from_millis(20);
/// The same in ticks of the RTP clock.
pub const PTIME_TICKS: u64 = 960;
/// Correction of a slot towards a source with a faster clock: 0.1 %, far more than clocks differ.
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
    /// Adds the counters to the metrics.
    pub fn count(&self, counts: &mut Counts) {
        counts.set(Count::FramesOut, self.frames);
        counts.set(Count::FramesSkipped, self.skipped);
    }
}

/// Paces one outgoing stream.
pub struct Pacer {
    rate_hz: u32,
    queue: VecDeque<i16>,
    frame: Vec<i16>,
    /// Deadline of the next frame; `None` before the start.
    slot: Option<Instant>,
    /// Times at which the last two frames left, the older first.
    left: [Option<Instant>; 2],
    /// Whether the last frame was full of speech, so that the pacer waits for the next one.
    flowing: bool,
    /// Times at which the queue last received audio, and at which it last reached a full frame.
    fed: Option<Instant>,
    full: Option<Instant>,
    ticks: u64,
    /// Delay of the slots that the timestamps do not include yet.
    owed: Duration,
    /// Time at which sound last left, while the bot speaks.
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
            left: [None; 2],
            flowing: false,
            fed: None,
            full: None,
            ticks: 0,
            owed: Duration::ZERO,
            speaking: None,
            interrupted: false,
            now: None,
            counters: PacerStats::default(),
        }
    }

    /// Starts or resumes the stream: the next frame is due at once.
    pub fn start(&mut self, now: Instant) {
        self.now = Some(now);
        self.slot = Some(now);
        self.left = [None; 2];
        self.flowing = false;
    }

    /// Returns the free capacity of the queue, in samples.
    pub fn room(&self) -> usize {
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

    /// Queues speech and returns the number of accepted samples. The caller then drains
    /// [`Self::poll_output`].
    pub fn handle_audio(&mut self, pcm: &[i16], now: Instant) -> usize {
        self.now = Some(now);
        let taken = pcm.len().min(self.room());
        if taken > 0 {
            let was_full = self.queue.len() >= self.frame_samples();
            self.queue.extend(&pcm[..taken]);
            self.fed = Some(now);
            if !was_full {
                self.full = Some(now);
            }
        }
        taken
    }

    /// Drops the queued speech. The caller then drains [`Self::poll_output`].
    pub fn handle_interruption(&mut self, now: Instant) {
        self.now = Some(now);
        self.queue.clear();
        self.flowing = false;
        self.interrupted = self.speaking.is_some();
    }

    /// Pauses the stream until the next [`Self::start`]. Current speech ends; queued speech starts
    /// again then. Returns whether the bot was speaking.
    pub fn handle_pause(&mut self) -> bool {
        self.flowing = false;
        self.interrupted = false;
        self.speaking.take().is_some()
    }

    /// Advances the time. The caller then drains [`Self::poll_output`].
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
        self.cut(now);
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
    fn takes(&self) -> usize {
        let samples = self.frame_samples();
        // While speech flows, the deadline of the frame already includes the wait for the rest.
        let ended = self.flowing || self.fed.zip(self.now).is_some_and(|(fed, now)| now >= fed + PTIME);
        if self.queue.len() >= samples || ended {
            self.queue.len().min(samples)
        } else {
            0
        }
    }

    fn is_voiced(&self) -> bool {
        self.queue.range(..self.takes()).any(|sample| *sample != 0)
    }

    /// Returns the deadline of the next frame.
    fn due(&self) -> Option<(Instant, PacerDeadline)> {
        let slot = self.slot?;
        let (at, due) = if self.queue.len() >= self.frame_samples() {
            (slot.checked_sub(PTIME).unwrap_or(slot), PacerDeadline::Speech)
        } else if let (true, Some(left)) = (self.flowing, self.left[1]) {
            let rest = if self.queue.is_empty() {
                PacerDeadline::Silence
            } else {
                PacerDeadline::Speech
            };
            (left + PTIME + PTIME, rest)
        } else {
            (slot, PacerDeadline::Silence)
        };
        Some((self.left[0].map_or(at, |left| at.max(left + PTIME)), due))
    }

    /// Cuts the next frame from the queue, pads it with silence, and advances to the next slot.
    fn cut(&mut self, now: Instant) {
        let (samples, takes) = (self.frame_samples(), self.takes());
        let flowed = std::mem::replace(&mut self.flowing, takes == samples);
        if !flowed {
            // A timestamp jump is inaudible in silence, and between silence and speech.
            while let Some(rest) = self.owed.checked_sub(PTIME) {
                self.owed = rest;
                self.ticks += PTIME_TICKS;
            }
        }
        self.frame.clear();
        self.frame.extend(self.queue.drain(..takes));
        self.frame.resize(samples, 0);
        let came_alone = self.full > self.left[1] && self.queue.len() < samples;
        if self.flowing && came_alone && self.full < Some(now) {
            // Single frames that still wait in the queue: the clock of the source is faster.
            self.slot = self.slot.and_then(|slot| slot.checked_sub(PULL));
            self.owed = self.owed.saturating_sub(PULL);
        }
        self.full = Some(now);
        self.slot = self.slot.map(|slot| self.next_slot(slot, flowed && !self.flowing, now));
        self.left = [self.left[1], Some(now)];
    }

    /// Returns the first slot after `slot` that is in the future.
    fn next_slot(&mut self, slot: Instant, ran_dry: bool, now: Instant) -> Instant {
        let next = slot + PTIME;
        if ran_dry {
            // The clock waited for speech and continues from here, so that late speech finds its
            // slot free.
            self.owed += now.saturating_duration_since(slot);
            return next.max(now + PTIME);
        }
        if next > now {
            return next;
        }
        let missed = 1 + (now - next).as_micros() / PTIME.as_micros();
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        self.counters.skipped += u64::from(missed);
        self.owed += PTIME * missed;
        next + PTIME * missed
    }
}

#[cfg(test)]
mod tests;
