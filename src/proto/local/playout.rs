//! The bot's speech as an unbroken stream for the loudspeaker.
//!
//! In: PCM (`i16` mono at the bot's rate), marks, interruptions, and `now`. Out, by
//! [`Playout::poll_output`]: chunks of 20 ms at the rate of the card, marks once all speech before
//! them was played, and the start and end of speech. Pauses are filled with silence, so that the
//! card never runs dry. The card holds between `LEAD_MIN` and `LEAD_MAX` of sound: an
//! interruption drops the rest, and speech that arrives in real time waits no longer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::audio::queue::take_samples;
use crate::audio::rate_converter::RateConverter;
use crate::limits::{PACER_QUEUE, SPEECH_HANGOVER};

/// Sound in the card below which silence follows speech that is not complete.
const LEAD_MIN: Duration = Duration::from_millis(40);
/// Sound in the card up to which speech is written: the buffer of the card, and one chunk.
const LEAD_MAX: Duration = Duration::from_millis(60);
/// The buffer of a card, beside which the pipe to it holds what was written.
const CARD_BUFFER: Duration = Duration::from_millis(40);
/// Sound that the pipe may hold all the time.
const BACKLOG_MAX: Duration = Duration::from_millis(40);
/// Time over which the pipe is watched.
const BACKLOG_WINDOW: Duration = Duration::from_secs(1);
/// Chunks per second.
const CHUNKS_HZ: u32 = 50;

/// Outputs of the playout.
#[derive(Debug, PartialEq, Eq)]
pub enum LocalPlayoutOutput<'a> {
    /// Write this chunk now.
    Chunk(&'a [i16]),
    /// All speech before this mark was played.
    Mark(String),
    /// The bot's speech starts; its first chunk follows.
    SpeechStarted,
    /// The bot's speech was played and the hangover has passed, or it was interrupted.
    SpeechStopped,
}

/// Paces the stream to one loudspeaker.
pub struct Playout {
    rate_hz: u32,
    converter: RateConverter,
    queue: VecDeque<i16>,
    chunk: Vec<i16>,
    /// The factor of the last sample, and that of the samples to come.
    gain: f32,
    next_gain: f32,
    /// A tone that is added to the stream; it is no speech of the bot.
    tone: VecDeque<i16>,
    /// Marks, each with the number of queued samples before it.
    marks: VecDeque<(usize, String)>,
    /// Marks whose speech is in the card, each with the time at which it was played.
    written_marks: VecDeque<(Instant, String)>,
    /// The time at which the card has played everything that was written.
    stream_end: Option<Instant>,
    /// The least that the pipe held since a time.
    backlog: Option<(Instant, Duration)>,
    /// Whether the card takes nothing.
    is_blocked: bool,
    /// The time at which the last sound will have been played, while the bot speaks.
    speaking: Option<Instant>,
    /// The time at which the last sound was or will be played.
    sound_end: Option<Instant>,
    interrupted: bool,
    chunks: u64,
    underruns: u64,
}

impl Playout {
    pub fn new(rate_hz: u32) -> Self {
        Playout {
            rate_hz,
            converter: RateConverter::new(rate_hz, rate_hz),
            queue: VecDeque::new(),
            chunk: Vec::new(),
            gain: 1.0,
            next_gain: 1.0,
            tone: VecDeque::new(),
            marks: VecDeque::new(),
            written_marks: VecDeque::new(),
            stream_end: None,
            backlog: None,
            is_blocked: false,
            speaking: None,
            sound_end: None,
            interrupted: false,
            chunks: 0,
            underruns: 0,
        }
    }

    /// Sets the rate of the bot's PCM, in Hz.
    pub fn set_rate(&mut self, rate_hz: u32) {
        if self.converter.from_hz() != rate_hz {
            self.converter = RateConverter::new(rate_hz, self.rate_hz);
        }
    }

    /// Plays a tone, at the rate of the card, beside the speech.
    pub fn add_tone(&mut self, pcm: Vec<i16>) {
        self.tone = pcm.into();
    }

    /// Sets the factor of all sound, which changes within the next chunk.
    pub fn set_gain(&mut self, gain: f32) {
        self.next_gain = gain;
    }

    /// Returns the free capacity of the queue, in samples at the bot's rate.
    pub fn free_capacity(&self) -> usize {
        let queued = PACER_QUEUE.as_millis() as usize * self.rate_hz as usize / 1000;
        self.converter.input_samples(queued.saturating_sub(self.queue.len()))
    }

    /// Queues speech at the bot's rate, at most [`Playout::free_capacity`] samples.
    pub fn handle_audio(&mut self, pcm: &[i16]) {
        self.queue.extend(self.converter.convert(pcm));
    }

    /// Adds a mark after all queued speech.
    pub fn handle_mark(&mut self, name: String) {
        self.marks.push_back((self.queue.len(), name));
    }

    /// Drops the queued speech, and returns the marks that were not played.
    pub fn handle_interruption(&mut self) -> Vec<String> {
        self.queue.clear();
        self.converter.reset();
        self.interrupted = self.speaking.is_some();
        let written = self.written_marks.drain(..).map(|(_, name)| name);
        written.chain(self.marks.drain(..).map(|(_, name)| name)).collect()
    }

    /// Handles a card that takes nothing more for now: its clock is slower than that of the
    /// machine.
    pub fn handle_blocked(&mut self) {
        self.is_blocked = true;
    }

    /// Handles a card that takes chunks again; it holds `held` of sound.
    pub fn handle_writable(&mut self, held: Duration, now: Instant) {
        if std::mem::take(&mut self.is_blocked) {
            self.stream_end = Some(now + held);
        }
    }

    /// Handles a card that has run dry, while the pipe to it still held `piped`: its program was
    /// late.
    pub fn handle_underrun(&mut self, piped: Duration, now: Instant) {
        self.underruns += 1;
        self.backlog = None;
        self.stream_end = self.stream_end.map(|end| end.min(now + piped));
    }

    /// Handles the sound in the pipe to the card. What stays there after an underrun, or because
    /// the clock of the card is slower, is latency: the next silence is left out.
    pub fn handle_backlog(&mut self, piped: Duration, now: Instant) {
        let (since, least) = self.backlog.get_or_insert((now, piped));
        *least = piped.min(*least);
        if now.saturating_duration_since(*since) < BACKLOG_WINDOW {
            return;
        }
        if *least > BACKLOG_MAX {
            self.stream_end = self.stream_end.map(|end| end.max(now + piped + CARD_BUFFER));
        }
        self.backlog = None;
    }

    /// Returns whether all speech was played and all marks were returned.
    pub fn is_played(&self, now: Instant) -> bool {
        let is_sent = self.queue.is_empty() && self.marks.is_empty() && self.written_marks.is_empty();
        is_sent && self.sound_end.is_none_or(|end| now >= end)
    }

    /// Returns the time at which the last sound was or will be played.
    pub fn sound_end(&self) -> Option<Instant> {
        self.sound_end
    }

    /// Returns the number of chunks written, and how often the card ran dry.
    pub fn counts(&self) -> (u64, u64) {
        (self.chunks, self.underruns)
    }

    /// Returns the next deadline; `None` while the card takes nothing.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let silence = self
            .speaking
            .filter(|_| self.queue.is_empty())
            .map(|sound| sound + SPEECH_HANGOVER);
        let mark = self.written_marks.front().map(|(at, _)| *at);
        let chunk = (!self.is_blocked).then(|| self.due(now));
        [silence, mark, chunk].into_iter().flatten().min()
    }

    /// Returns the next output that is due.
    pub fn poll_output(&mut self, now: Instant) -> Option<LocalPlayoutOutput<'_>> {
        let is_over = self.queue.is_empty() && self.speaking.is_some_and(|sound| now >= sound + SPEECH_HANGOVER);
        if std::mem::take(&mut self.interrupted) || is_over {
            self.speaking = None;
            return Some(LocalPlayoutOutput::SpeechStopped);
        }
        while self.marks.front().is_some_and(|(before, _)| *before == 0) {
            let played = self.sound_end.map_or(now, |end| end.max(now));
            let name = self.marks.pop_front().map(|(_, name)| name);
            self.written_marks.extend(name.map(|name| (played, name)));
        }
        if self.written_marks.front().is_some_and(|(at, _)| now >= *at) {
            return self
                .written_marks
                .pop_front()
                .map(|(_, name)| LocalPlayoutOutput::Mark(name));
        }
        if self.is_blocked || now < self.due(now) {
            return None;
        }
        let samples = self.chunk_samples();
        let takes = self.queue.len().min(samples);
        let is_voiced = self.queue.range(..takes).any(|sample| *sample != 0);
        let length = Duration::from_secs(samples as u64) / self.rate_hz;
        let end = self.stream_end.map_or(now, |end| end.max(now)) + length;
        if is_voiced && self.speaking.replace(end).is_none() {
            return Some(LocalPlayoutOutput::SpeechStarted);
        }
        if takes > 0 {
            self.sound_end = Some(end);
        }
        self.stream_end = Some(end);
        self.chunk.clear();
        take_samples(&mut self.queue, takes, &mut self.chunk);
        self.chunk.resize(samples, 0);
        let tone_samples = self.tone.len().min(samples);
        for (sample, tone) in self.chunk.iter_mut().zip(self.tone.drain(..tone_samples)) {
            *sample = sample.saturating_add(tone);
        }
        let (from, step) = (self.gain, (self.next_gain - self.gain) / samples as f32);
        for (at, sample) in self.chunk.iter_mut().enumerate() {
            // A cast of a float saturates.
            *sample = (f32::from(*sample) * (from + step * (at + 1) as f32)).round() as i16;
        }
        self.gain = self.next_gain;
        for (before, _) in &mut self.marks {
            *before = before.saturating_sub(takes);
        }
        self.chunks += 1;
        Some(LocalPlayoutOutput::Chunk(&self.chunk))
    }

    fn chunk_samples(&self) -> usize {
        (self.rate_hz / CHUNKS_HZ) as usize
    }

    /// Returns the time at which the next chunk is written.
    fn due(&self, now: Instant) -> Instant {
        let lead = match self.queue.len() >= self.chunk_samples() {
            true => LEAD_MAX,
            false => LEAD_MIN,
        };
        self.stream_end.and_then(|end| end.checked_sub(lead)).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests;
