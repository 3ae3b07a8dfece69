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
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PTIME: Duration = Duration::from_millis(20);
    const CALL: ChunkFormat = ChunkFormat {
        rate_hz: 8_000,
        chunk: 160,
        multiple: 1,
        lead: Duration::from_millis(200),
    };

    /// An output and its time after the start: chunks by their length, marks by their name.
    #[derive(Debug, PartialEq, Eq, Clone)]
    enum Left {
        Chunk(usize),
        Mark(String),
        Started,
        Stopped,
    }

    fn drain(pacer: &mut PlayoutPacer, now: Instant, left: &mut Vec<(Instant, Left)>) {
        while let Some(output) = pacer.poll_output(now) {
            let output = match output {
                PlayoutOutput::Chunk(pcm) => Left::Chunk(pcm.len()),
                PlayoutOutput::Mark(name) => Left::Mark(name),
                PlayoutOutput::SpeechStarted => Left::Started,
                PlayoutOutput::SpeechStopped => Left::Stopped,
            };
            left.push((now, output));
        }
    }

    /// Queues a long speech as the queue has capacity, from deadline to deadline, until all was
    /// played.
    fn say(pacer: &mut PlayoutPacer, samples: usize, start: Instant) -> Vec<(Instant, Left)> {
        let (mut left, mut rest, mut now) = (Vec::new(), samples, start);
        loop {
            let piece = rest.min(pacer.free_capacity());
            pacer.handle_audio(&vec![1_000; piece], now);
            rest -= piece;
            drain(pacer, now, &mut left);
            if rest > 0 && pacer.free_capacity() > 0 {
                continue;
            }
            match pacer.poll_timeout() {
                Some(at) => now = at,
                None => return left,
            }
        }
    }

    fn chunks(left: &[(Instant, Left)]) -> Vec<(Instant, usize)> {
        let chunk = |(at, left): &(Instant, Left)| match left {
            Left::Chunk(samples) => Some((*at, *samples)),
            _ => None,
        };
        left.iter().filter_map(chunk).collect()
    }

    /// The far end never holds more than the lead and one chunk, and every deadline is the start
    /// plus whole chunks.
    #[test]
    fn a_long_speech_leaves_at_playout_speed() {
        let start = Instant::now();
        let left = say(&mut PlayoutPacer::new(CALL), 8_000 * 10, start);
        let chunks = chunks(&left);
        assert_eq!(chunks.len(), 500);
        for (nth, (at, samples)) in chunks.iter().enumerate() {
            assert_eq!(*samples, 160);
            // The first eleven fill the lead; each further one leaves when a chunk of the lead
            // starts to play.
            let due = start + PTIME * u32::try_from(nth).expect("few").saturating_sub(10);
            assert_eq!(*at, due, "chunk {nth}");
        }
        assert_eq!(left.first().map(|(_, left)| left), Some(&Left::Started));
        let (stopped, last) = left.last().expect("something left");
        assert_eq!(*last, Left::Stopped);
        assert_eq!(*stopped, start + Duration::from_secs(10) + SPEECH_HANGOVER);
    }

    /// Real-time input leaves at once: the pacer does not wait for a fuller chunk.
    #[test]
    fn live_frames_are_not_delayed() {
        let start = Instant::now();
        let mut pacer = PlayoutPacer::new(CALL);
        for nth in 0..100 {
            let now = start + PTIME * nth;
            pacer.handle_audio(&[500; 160], now);
            let mut left = Vec::new();
            drain(&mut pacer, now, &mut left);
            assert_eq!(chunks(&left), [(now, 160)]);
        }
    }

    /// The rest of an utterance waits for more speech, and is then padded to the provider's
    /// multiple.
    #[test]
    fn pads_the_last_chunk() {
        let start = Instant::now();
        let cut = ChunkFormat {
            chunk: 1_600,
            multiple: 160,
            ..CALL
        };
        let mut pacer = PlayoutPacer::new(cut);
        let left = say(&mut pacer, 1_600 + 170, start);
        assert_eq!(chunks(&left), [(start, 1_600), (start + UTTERANCE_REST_WAIT, 320)]);
        // Speech that arrives within that time continues the utterance.
        pacer.handle_audio(&[1; 800], start);
        pacer.handle_audio(&[1; 800], start + UTTERANCE_REST_WAIT - MS);
        let mut left = Vec::new();
        drain(&mut pacer, start + UTTERANCE_REST_WAIT - MS, &mut left);
        assert_eq!(
            chunks(&left).iter().map(|(_, samples)| *samples).collect::<Vec<_>>(),
            [1_600]
        );
    }

    /// After a pause, speech leaves at once, and the pacer does not catch up.
    #[test]
    fn speech_after_a_pause_leaves_at_once() {
        let start = Instant::now();
        let mut pacer = PlayoutPacer::new(CALL);
        say(&mut pacer, 8_000, start);
        let later = start + Duration::from_secs(60);
        let left = say(&mut pacer, 8_000, later);
        assert_eq!(left[0], (later, Left::Started));
        let at_once = chunks(&left).iter().filter(|(at, _)| *at == later).count();
        assert_eq!(at_once, 11);
    }

    #[test]
    fn an_interruption_drops_all_queued_speech() {
        let start = Instant::now();
        let mut pacer = PlayoutPacer::new(CALL);
        let mut left = Vec::new();
        pacer.handle_audio(&[1; 160 * 11], start);
        drain(&mut pacer, start, &mut left);
        pacer.handle_audio(&[1; 700], start);
        pacer.handle_mark("never".into());
        assert_eq!(pacer.handle_interruption(), ["never"]);
        left.clear();
        drain(&mut pacer, start, &mut left);
        assert_eq!(left, [(start, Left::Stopped)]);
        assert_eq!((pacer.poll_timeout(), pacer.is_sent()), (None, true));
        // The far end was cleared, so the lead is free again.
        pacer.handle_audio(&[1; 160], start);
        left.clear();
        drain(&mut pacer, start, &mut left);
        assert_eq!(left, [(start, Left::Started), (start, Left::Chunk(160))]);
    }

    /// A mark leaves after the speech before it and before the speech after it.
    #[test]
    fn marks_keep_their_place() {
        let start = Instant::now();
        let mut pacer = PlayoutPacer::new(CALL);
        let mut left = Vec::new();
        pacer.handle_mark("first".into());
        pacer.handle_audio(&[1; 320], start);
        pacer.handle_mark("second".into());
        pacer.handle_audio(&[1; 160], start);
        drain(&mut pacer, start, &mut left);
        let order: Vec<Left> = left.into_iter().map(|(_, left)| left).collect();
        let mark = |name: &str| Left::Mark(name.into());
        let chunk = Left::Chunk(160);
        assert_eq!(
            order,
            [
                mark("first"),
                Left::Started,
                chunk.clone(),
                chunk.clone(),
                mark("second"),
                chunk
            ]
        );
    }

    /// Digital silence is sent, and does not count as speech.
    #[test]
    fn silence_is_not_speech() {
        let start = Instant::now();
        let mut pacer = PlayoutPacer::new(CALL);
        let mut left = Vec::new();
        pacer.handle_audio(&[0; 320], start);
        drain(&mut pacer, start, &mut left);
        assert_eq!(left, [(start, Left::Chunk(160)), (start, Left::Chunk(160))]);
    }

    #[test]
    fn a_full_queue_accepts_nothing() {
        let start = Instant::now();
        let mut pacer = PlayoutPacer::new(CALL);
        let free_capacity = pacer.free_capacity();
        assert_eq!(free_capacity, 800, "100 ms");
        pacer.handle_audio(&vec![1; free_capacity], start);
        assert_eq!(pacer.free_capacity(), 0);
        let wide = PlayoutPacer::new(ChunkFormat { chunk: 1_600, ..CALL });
        assert_eq!(wide.free_capacity(), 3_200, "two messages");
    }
}
