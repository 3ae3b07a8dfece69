//! Cuts the bot's speech into 20 ms frames and releases them on a steady clock.
//!
//! In: PCM of any length (`i16` mono at the given rate), interruptions, and `now`. Out, by
//! [`Pacer::poll_output`]: frames of exactly 20 ms with their RTP timestamp (48 kHz ticks), and the
//! start and end of speech. After [`Pacer::start`] the stream is continuous: a slot without speech
//! is a frame of digital silence.
//!
//! Slots are absolute, 20 ms apart. Speech may leave up to one slot early, so real-time input keeps
//! its own phase. When speech runs dry, silence waits one slot longer for the rest of it. Slots
//! that a late wake-up missed are skipped: at most two frames leave within 20 ms. A full queue
//! accepts nothing; [`Pacer::room`] returns its free capacity.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::counts::{Count, Counts};
use crate::limits::{PACER_QUEUE, SPEECH_HANGOVER};

/// The length of a frame, and the distance of slots.
const PTIME: Duration = Duration::from_millis(20);
/// The same in ticks of the RTP clock.
pub const PTIME_TICKS: u64 = 960;
/// How far a slot moves towards a source whose clock is faster than ours; a thousandth, far more
/// than clocks differ.
const PULL: Duration = Duration::from_micros(20);

/// What the pacer has for the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum PacerOutput<'a> {
    /// Send this now.
    Frame(PacedFrame<'a>),
    /// The bot's speech begins to leave; its first frame follows.
    SpeechStarted,
    /// The last of the bot's speech left a while ago, or was interrupted.
    SpeechStopped,
}

/// 20 ms of PCM.
#[derive(Debug, PartialEq, Eq)]
pub struct PacedFrame<'a> {
    pub pcm: &'a [i16],
    /// RTP timestamp, counted from zero in ticks of 48 kHz.
    pub rtp_ticks: u64,
    /// Every sample is zero.
    pub is_silent: bool,
}

/// What the next deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacerDeadline {
    Speech,
    Silence,
    SpeechEnd,
}

/// What left since the session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacerStats {
    pub frames: u64,
    /// Of those, the silent ones.
    pub silent: u64,
    /// Slots that passed without a frame, for want of a timely wake-up.
    pub skipped: u64,
}

impl PacerStats {
    /// Puts what the metrics know of it.
    pub fn count(&self, counts: &mut Counts) {
        counts.set(Count::FramesOut, self.frames);
        counts.set(Count::FramesSkipped, self.skipped);
    }
}

/// The clock of one outgoing stream.
pub struct Pacer {
    rate_hz: u32,
    queue: VecDeque<i16>,
    frame: Vec<i16>,
    /// When the next frame is due; `None` before the start.
    slot: Option<Instant>,
    /// When the last two frames left, the older one first.
    left: [Option<Instant>; 2],
    /// The last frame was full of speech: the next one is worth a wait.
    flowing: bool,
    /// When the queue last took audio, and when it last came to hold a full frame.
    fed: Option<Instant>,
    full: Option<Instant>,
    ticks: u64,
    /// How far the slots slipped and the timestamps have not followed yet.
    owed: Duration,
    /// When sound last left, while the bot speaks.
    speaking: Option<Instant>,
    interrupted: bool,
    now: Option<Instant>,
    counters: PacerStats,
}

impl Pacer {
    /// Makes a pacer for PCM at `rate_hz`, a multiple of 50.
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

    /// Lets the stream begin: its first frame is due at once. A stream that began before goes on
    /// from here.
    pub fn start(&mut self, now: Instant) {
        self.now = Some(now);
        self.slot = Some(now);
        self.left = [None; 2];
        self.flowing = false;
    }

    /// Returns how many samples the queue takes.
    pub fn room(&self) -> usize {
        let cap = (PACER_QUEUE.as_millis() as usize * self.rate_hz as usize) / 1000;
        cap.saturating_sub(self.queue.len())
    }

    /// Returns how much speech is queued.
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

    /// Queues speech and returns how many samples of it were taken. Then drain
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

    /// Drops all speech that has not left. Then drain [`Self::poll_output`].
    pub fn handle_interruption(&mut self, now: Instant) {
        self.now = Some(now);
        self.queue.clear();
        self.flowing = false;
        self.interrupted = self.speaking.is_some();
    }

    /// Nothing leaves until the next [`Self::start`]: speech that is on ends here, and what is
    /// queued of it begins anew then. Returns whether there was any.
    pub fn handle_pause(&mut self) -> bool {
        self.flowing = false;
        self.interrupted = false;
        self.speaking.take().is_some()
    }

    /// Lets time pass. Then drain [`Self::poll_output`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Returns the next deadline and what it is for.
    pub fn poll_timeout(&self) -> Option<(Instant, PacerDeadline)> {
        let frame = self.due()?;
        match self.speaking.map(|sound| sound + SPEECH_HANGOVER) {
            Some(end) if end < frame.0 && !self.is_voiced() => Some((end, PacerDeadline::SpeechEnd)),
            _ => Some(frame),
        }
    }

    /// Returns what is due by now, one thing at a time.
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

    /// Tells how many queued samples the next frame takes: a full frame, or what is left of a
    /// speech that has ended.
    fn takes(&self) -> usize {
        let samples = self.frame_samples();
        // While speech flows, its rest has already been waited for when the frame is due.
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

    /// Returns when the next frame leaves.
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

    /// Makes the next frame out of the queue, padded with silence, and moves on to the next slot.
    fn cut(&mut self, now: Instant) {
        let (samples, takes) = (self.frame_samples(), self.takes());
        let flowed = std::mem::replace(&mut self.flowing, takes == samples);
        if !flowed {
            // A jump of the clock is inaudible in silence, and between silence and speech.
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
            // It comes one by one and yet has to wait: its clock is ahead of the slots.
            self.slot = self.slot.and_then(|slot| slot.checked_sub(PULL));
            self.owed = self.owed.saturating_sub(PULL);
        }
        self.full = Some(now);
        self.slot = self.slot.map(|slot| self.next_slot(slot, flowed && !self.flowing, now));
        self.left = [self.left[1], Some(now)];
    }

    /// Returns the slot after `slot` that is still ahead.
    fn next_slot(&mut self, slot: Instant, ran_dry: bool, now: Instant) -> Instant {
        let next = slot + PTIME;
        if ran_dry {
            // The clock waited for the speech: it goes on from here, so that late speech finds its
            // slot open.
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
