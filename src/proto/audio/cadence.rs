//! Cuts the bot's speech into messages of a socket, and lets them leave at the speed at which they are played.
//!
//! In: PCM of any length (`i16` mono at the rate given), marks, interruptions, and `now`. Out, by [`Cadence::poll_output`]:
//! chunks of one length, marks once all speech before them has left, and the begin and end of speech. Unlike the clock of
//! `pacer`, this one is silent while the bot is: the far end plays what it gets, in order, and nothing while it gets nothing.
//! When a chunk leaves, the time at which the far end will have played it is known: it lies behind what is still unplayed. A
//! chunk leaves when that time is at most the lead ahead, so deadlines are absolute and never drift. The rest of an
//! utterance is filled up with silence once nothing has come for a while.
//! A full queue takes nothing more; [`Cadence::room`] tells how much it takes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::limits::{PACER_QUEUE, SPEECH_HANGOVER, UTTERANCE_REST_WAIT};

/// How speech is cut, and how far ahead of its playing it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub rate_hz: u32,
    /// Samples of one message.
    pub chunk: usize,
    /// The last message of an utterance is filled up to a multiple of so many samples.
    pub multiple: usize,
    /// How much the far end may hold that it has not played.
    pub lead: Duration,
}

/// What the cadence has for the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// Send this now.
    Chunk(&'a [i16]),
    /// All speech before this mark has left.
    Mark(String),
    /// The bot's speech begins to leave; its first chunk follows.
    SpeechStarted,
    /// The last of the bot's speech was played a while ago, or was interrupted.
    SpeechStopped,
}

/// The clock of one outgoing stream of messages.
pub struct Cadence {
    cut: Cut,
    queue: VecDeque<i16>,
    chunk: Vec<i16>,
    /// Marks, each with the number of queued samples before it.
    marks: VecDeque<(usize, String)>,
    /// When the far end will have played all that was sent.
    played: Option<Instant>,
    /// When the queue last took audio.
    fed: Option<Instant>,
    /// When what last sounded will have been played, while the bot speaks.
    speaking: Option<Instant>,
    interrupted: bool,
    chunks: u64,
}

impl Cadence {
    pub fn new(cut: Cut) -> Self {
        Cadence {
            cut,
            queue: VecDeque::new(),
            chunk: Vec::new(),
            marks: VecDeque::new(),
            played: None,
            fed: None,
            speaking: None,
            interrupted: false,
            chunks: 0,
        }
    }

    /// Returns how many samples the queue takes.
    pub fn room(&self) -> usize {
        let queued = PACER_QUEUE.as_millis() as usize * self.cut.rate_hz as usize / 1000;
        queued.max(2 * self.cut.chunk).saturating_sub(self.queue.len())
    }

    /// Returns how many chunks have left.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Queues speech; the caller keeps to [`Cadence::room`].
    pub fn handle_audio(&mut self, pcm: &[i16], now: Instant) {
        if !pcm.is_empty() {
            self.queue.extend(pcm);
            self.fed = Some(now);
        }
    }

    /// Sets a mark behind all queued speech.
    pub fn handle_mark(&mut self, name: String) {
        self.marks.push_back((self.queue.len(), name));
    }

    /// Drops all speech that has not left, and gives back its marks. What was sent counts as dropped by the far end.
    pub fn handle_interruption(&mut self) -> Vec<String> {
        self.queue.clear();
        self.played = None;
        self.interrupted = self.speaking.is_some();
        self.marks.drain(..).map(|(_, name)| name).collect()
    }

    /// Tells whether all speech, and every mark, has left.
    pub fn is_sent(&self) -> bool {
        self.queue.is_empty() && self.marks.is_empty()
    }

    /// Returns when the far end will have played all that was sent.
    pub fn played(&self) -> Option<Instant> {
        self.played
    }

    /// Returns the next deadline; `None` when nothing is on its way.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silence = self
            .speaking
            .filter(|_| self.queue.is_empty())
            .map(|sound| sound + SPEECH_HANGOVER);
        self.due().or(silence)
    }

    /// Returns what is due by now, one thing at a time.
    pub fn poll_output(&mut self, now: Instant) -> Option<Output<'_>> {
        let over = self.queue.is_empty() && self.speaking.is_some_and(|sound| now >= sound + SPEECH_HANGOVER);
        if std::mem::take(&mut self.interrupted) || over {
            self.speaking = None;
            return Some(Output::SpeechStopped);
        }
        if self.marks.front().is_some_and(|(before, _)| *before == 0) {
            return self.marks.pop_front().map(|(_, name)| Output::Mark(name));
        }
        if now < self.due()? {
            return None;
        }
        let takes = self.queue.len().min(self.cut.chunk);
        let voiced = self.queue.range(..takes).any(|sample| *sample != 0);
        let filled = if takes < self.cut.chunk {
            takes.next_multiple_of(self.cut.multiple)
        } else {
            takes
        };
        let length = Duration::from_secs(filled as u64) / self.cut.rate_hz;
        let played = self.played.map_or(now, |played| played.max(now)) + length;
        if voiced && self.speaking.replace(played).is_none() {
            return Some(Output::SpeechStarted);
        }
        self.played = Some(played);
        self.chunk.clear();
        self.chunk.extend(self.queue.drain(..takes));
        self.chunk.resize(filled, 0);
        for (before, _) in &mut self.marks {
            *before = before.saturating_sub(takes);
        }
        self.chunks += 1;
        Some(Output::Chunk(&self.chunk))
    }

    /// Returns when the next chunk leaves.
    fn due(&self) -> Option<Instant> {
        let fed = self.fed.filter(|_| !self.queue.is_empty())?;
        let complete = if self.queue.len() >= self.cut.chunk {
            fed
        } else {
            fed + UTTERANCE_REST_WAIT
        };
        let room = self.played.and_then(|played| played.checked_sub(self.cut.lead));
        Some(room.map_or(complete, |room| room.max(complete)))
    }
}
