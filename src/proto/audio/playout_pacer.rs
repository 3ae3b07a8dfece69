//! Cuts the bot's speech into chunks for a socket, and releases them at playing speed.
//!
//! In: PCM of any length (`i16` mono at the given rate), marks, interruptions, and `now`. Out, by
//! [`PlayoutPacer::poll_output`]: chunks of one length, marks once all speech before them has left,
//! and the start and end of speech. Unlike `pacer`, it sends nothing while the bot is silent.
//!
//! A chunk is sent when the remote end has at most `lead` of unplayed audio; deadlines are absolute
//! and do not drift. An incomplete last chunk is
//! padded with silence when no more speech arrives for a while. A full queue accepts nothing;
//! [`PlayoutPacer::free_capacity`] returns its free capacity.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::audio::queue::take_samples;
use crate::limits::{PACER_QUEUE, SPEECH_HANGOVER};

/// Time that an incomplete last frame waits for more speech before it is padded with silence:
/// longer than the 100 ms of the longest provider frame, which a bot may echo as it arrives.
const UTTERANCE_REST_WAIT: Duration = Duration::from_millis(150);

/// The chunk size, and the lead of sending over playout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkFormat {
    pub rate_hz: u32,
    /// Samples of one chunk.
    pub chunk: usize,
    /// The last chunk of an utterance is padded to a multiple of this number of samples.
    pub multiple: usize,
    /// Unplayed audio that the remote end may hold before the next chunk is sent.
    pub lead: Duration,
}

/// Outputs of the playout pacer.
#[derive(Debug, PartialEq, Eq)]
pub enum PlayoutOutput<'a> {
    /// Send this chunk now.
    Chunk(&'a [i16]),
    /// All speech before this mark has left.
    Mark(String),
    /// The bot's speech starts; its first chunk follows.
    SpeechStarted,
    /// The bot's speech was played, and the hangover has passed, or it was interrupted.
    SpeechStopped,
}

/// Paces one outgoing stream of messages.
pub struct PlayoutPacer {
    format: ChunkFormat,
    queue: VecDeque<i16>,
    chunk: Vec<i16>,
    /// Marks, each with the number of queued samples before it.
    marks: VecDeque<(usize, String)>,
    /// Time at which the far end has played everything that was sent.
    played: Option<Instant>,
    /// Time at which the queue last received audio.
    last_input_at: Option<Instant>,
    /// Time at which the last sound will have been played, while the bot speaks.
    speaking: Option<Instant>,
    interrupted: bool,
    chunks: u64,
}

impl PlayoutPacer {
    pub fn new(format: ChunkFormat) -> Self {
        PlayoutPacer {
            format,
            queue: VecDeque::new(),
            chunk: Vec::new(),
            marks: VecDeque::new(),
            played: None,
            last_input_at: None,
            speaking: None,
            interrupted: false,
            chunks: 0,
        }
    }

    /// Returns the free capacity of the queue, in samples.
    pub fn free_capacity(&self) -> usize {
        let queued = PACER_QUEUE.as_millis() as usize * self.format.rate_hz as usize / 1000;
        queued.max(2 * self.format.chunk).saturating_sub(self.queue.len())
    }

    /// Returns the number of chunks sent.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Queues speech, at most [`PlayoutPacer::free_capacity`] samples.
    pub fn handle_audio(&mut self, pcm: &[i16], now: Instant) {
        if !pcm.is_empty() {
            self.queue.extend(pcm);
            self.last_input_at = Some(now);
        }
    }

    /// Adds a mark after all queued speech.
    pub fn handle_mark(&mut self, name: String) {
        self.marks.push_back((self.queue.len(), name));
    }

    /// Drops the queued speech, and returns its marks. The far end is assumed to discard its
    /// buffer.
    pub fn handle_interruption(&mut self) -> Vec<String> {
        self.queue.clear();
        self.played = None;
        self.interrupted = self.speaking.is_some();
        self.marks.drain(..).map(|(_, name)| name).collect()
    }

    /// Returns whether all speech and all marks have left.
    pub fn is_sent(&self) -> bool {
        self.queue.is_empty() && self.marks.is_empty()
    }

    /// Returns the time at which the far end has played everything that was sent.
    pub fn played(&self) -> Option<Instant> {
        self.played
    }

    /// Returns the next deadline; `None` when nothing is queued or playing.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silence = self
            .speaking
            .filter(|_| self.queue.is_empty())
            .map(|sound| sound + SPEECH_HANGOVER);
        self.due().or(silence)
    }

    /// Returns the next output that is due.
    pub fn poll_output(&mut self, now: Instant) -> Option<PlayoutOutput<'_>> {
        let over = self.queue.is_empty() && self.speaking.is_some_and(|sound| now >= sound + SPEECH_HANGOVER);
        if std::mem::take(&mut self.interrupted) || over {
            self.speaking = None;
            return Some(PlayoutOutput::SpeechStopped);
        }
        if self.marks.front().is_some_and(|(before, _)| *before == 0) {
            return self.marks.pop_front().map(|(_, name)| PlayoutOutput::Mark(name));
        }
        if now < self.due()? {
            return None;
        }
        let takes = self.queue.len().min(self.format.chunk);
        let voiced = self.queue.range(..takes).any(|sample| *sample != 0);
        let filled = if takes < self.format.chunk {
            takes.next_multiple_of(self.format.multiple)
        } else {
            takes
        };
        let length = Duration::from_secs(filled as u64) / self.format.rate_hz;
        let played = self.played.map_or(now, |played| played.max(now)) + length;
        if voiced && self.speaking.replace(played).is_none() {
            return Some(PlayoutOutput::SpeechStarted);
        }
        self.played = Some(played);
        self.chunk.clear();
        take_samples(&mut self.queue, takes, &mut self.chunk);
        self.chunk.resize(filled, 0);
        for (before, _) in &mut self.marks {
            *before = before.saturating_sub(takes);
        }
        self.chunks += 1;
        Some(PlayoutOutput::Chunk(&self.chunk))
    }

    /// Returns the time at which the next chunk leaves.
    fn due(&self) -> Option<Instant> {
        let fed = self.last_input_at.filter(|_| !self.queue.is_empty())?;
        let complete = if self.queue.len() >= self.format.chunk {
            fed
        } else {
            fed + UTTERANCE_REST_WAIT
        };
        let lead_free = self.played.and_then(|played| played.checked_sub(self.format.lead));
        Some(lead_free.map_or(complete, |at| at.max(complete)))
    }
}

#[cfg(test)]
mod tests;
