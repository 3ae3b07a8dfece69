//! The model's speech between its arrival and its playout, and how much of it was heard.
//!
//! In: PCM of items as it arrives, faster than it plays; marks that came back. Out: pieces of at
//! most [`PIECE`] with a mark, and what to truncate after an interruption: milliseconds that were
//! heard of an item, rounded down, so that they never exceed what was received.

use std::collections::VecDeque;
use std::time::Duration;

use crate::assistant::report::SpeechMark;
use crate::audio::queue::take_samples;

/// Length of a piece: the resolution of the position.
const PIECE: Duration = Duration::from_millis(100);
/// Speech that waits in all. Services answer faster than they are heard.
pub const WAITING_MAX: Duration = Duration::from_secs(64);
/// Items whose playout is remembered.
const ITEMS_MAX: usize = 32;

/// Speech of one item of a response.
#[derive(Debug)]
struct SpeechItem {
    id: String,
    content_index: u64,
    waiting: VecDeque<i16>,
    received: usize,
    played: usize,
    is_complete: bool,
    /// Whether the service does not know of it.
    is_local: bool,
}

/// What was heard of an item that was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncation {
    pub item_id: String,
    pub content_index: u64,
    pub played_ms: u64,
}

/// The speech of a session.
#[derive(Debug)]
pub struct SpeechPlayback {
    rate_hz: u32,
    items: VecDeque<SpeechItem>,
    /// Marks that are out: number, item, and samples of the item before it.
    marks: VecDeque<(u64, String, usize)>,
    next_mark: u64,
}

impl SpeechPlayback {
    pub fn new(rate_hz: u32) -> Self {
        SpeechPlayback {
            rate_hz,
            items: VecDeque::new(),
            marks: VecDeque::new(),
            next_mark: 0,
        }
    }

    /// Adds speech to an item. Returns false if too much waits, and drops it.
    pub fn push(&mut self, item_id: &str, content_index: u64, pcm: &[i16]) -> bool {
        if self.waiting_samples() + pcm.len() > self.samples(WAITING_MAX) {
            return false;
        }
        let item = self.item(item_id, content_index);
        item.waiting.extend(pcm);
        item.received += pcm.len();
        true
    }

    /// Adds a whole item of which the service does not know, such as a sound. Returns false if too
    /// much waits, and drops it.
    pub fn push_local(&mut self, item_id: &str, pcm: &[i16]) -> bool {
        let is_taken = self.push(item_id, 0, pcm);
        if is_taken {
            let item = self.item(item_id, 0);
            item.is_local = true;
            item.is_complete = true;
        }
        is_taken
    }

    /// Returns whether such an item waits or is heard.
    pub fn has_item(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        self.items.iter().any(|item| is_wanted(&item.id))
    }

    fn waiting_samples(&self) -> usize {
        self.items.iter().map(|item| item.waiting.len()).sum()
    }

    /// Returns the length of the speech that waits.
    pub fn waiting(&self) -> Duration {
        Duration::from_millis(self.waiting_samples() as u64 * 1_000 / u64::from(self.rate_hz))
    }

    fn item(&mut self, item_id: &str, content_index: u64) -> &mut SpeechItem {
        let at = self.items.iter().position(|item| item.id == item_id);
        let at = at.unwrap_or_else(|| {
            if self.items.len() == ITEMS_MAX {
                self.items.pop_front();
            }
            self.items.push_back(SpeechItem {
                id: item_id.to_owned(),
                content_index,
                waiting: VecDeque::new(),
                received: 0,
                played: 0,
                is_complete: false,
                is_local: false,
            });
            self.items.len() - 1
        });
        &mut self.items[at]
    }

    /// Records that an item has no further speech.
    pub fn complete(&mut self, item_id: &str) {
        if let Some(item) = self.items.iter_mut().find(|item| item.id == item_id) {
            item.is_complete = true;
        }
        self.forget_played();
    }

    /// Takes the next piece.
    pub fn next_piece(&mut self, pcm: &mut Vec<i16>) -> Option<SpeechMark> {
        let samples_max = self.samples(PIECE);
        let item = self.items.iter_mut().find(|item| !item.waiting.is_empty())?;
        let samples = item.waiting.len().min(samples_max);
        pcm.clear();
        take_samples(&mut item.waiting, samples, pcm);
        let number = self.next_mark;
        self.next_mark += 1;
        self.marks
            .push_back((number, item.id.clone(), item.received - item.waiting.len()));
        Some(SpeechMark(format!("speech {number}")))
    }

    /// Returns the item of the piece that was taken last.
    pub fn newest_item(&self) -> Option<&str> {
        self.marks.back().map(|(_, item_id, _)| item_id.as_str())
    }

    /// Records a mark that came back. Returns the item that was heard further.
    pub fn handle_mark(&mut self, name: &str, is_played: bool) -> Option<String> {
        let number: u64 = name.strip_prefix("speech ")?.parse().ok()?;
        let at = self.marks.iter().position(|(known, ..)| *known == number)?;
        let (_, item_id, samples) = self.marks.remove(at)?;
        let item = self.items.iter_mut().find(|item| item.id == item_id)?;
        if !is_played {
            return None;
        }
        item.played = item.played.max(samples);
        Some(item_id)
    }

    /// Drops items that were heard to their end.
    pub fn forget_played(&mut self) {
        self.items
            .retain(|item| !item.is_complete || item.played < item.received);
    }

    /// Returns the played share of an item as two numbers of samples: played and received.
    pub fn progress(&self, item_id: &str) -> Option<(usize, usize)> {
        let item = self.items.iter().find(|item| item.id == item_id)?;
        Some((item.played, item.received))
    }

    /// Returns whether speech was given or waits that was not heard yet.
    pub fn is_speaking(&self) -> bool {
        self.items.iter().any(|item| item.played < item.received)
    }

    /// Returns whether other speech than this item was given or waits that was not heard yet.
    pub fn is_speaking_besides(&self, item_id: &str) -> bool {
        let others = self.items.iter().filter(|item| item.id != item_id);
        others.into_iter().any(|item| item.played < item.received)
    }

    /// Drops everything, and returns what was heard of each item of the service that was cut off.
    pub fn interrupt(&mut self) -> Vec<Truncation> {
        self.marks.clear();
        let rate_hz = u64::from(self.rate_hz);
        let of_service = self.items.drain(..).filter(|item| !item.is_local);
        let cut = of_service.filter(|item| item.played < item.received);
        cut.map(|item| Truncation {
            played_ms: item.played as u64 * 1_000 / rate_hz,
            item_id: item.id,
            content_index: item.content_index,
        })
        .collect()
    }

    fn samples(&self, time: Duration) -> usize {
        (time.as_millis() as u64 * u64::from(self.rate_hz) / 1_000) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(playback: &mut SpeechPlayback) -> (String, usize) {
        let mut pcm = Vec::new();
        let mark = playback.next_piece(&mut pcm).expect("speech waits");
        (mark.0, pcm.len())
    }

    #[test]
    fn speech_leaves_in_pieces_of_100_ms_in_the_order_of_the_items() {
        let mut playback = SpeechPlayback::new(8_000);
        assert!(playback.push("a", 0, &[1; 1_000]));
        assert!(playback.push("b", 0, &[2; 80]));
        let lengths: Vec<usize> = (0..3).map(|_| take(&mut playback).1).collect();
        assert_eq!(lengths, [800, 200, 80]);
        assert_eq!(playback.next_piece(&mut Vec::new()), None);
        assert!(playback.is_speaking(), "nothing was heard yet");
    }

    #[test]
    fn what_was_played_is_the_last_returned_mark_rounded_down() {
        let mut playback = SpeechPlayback::new(24_000);
        playback.push("a", 0, &[1; 7_201]);
        playback.push("b", 0, &[1; 2_400]);
        let (first, _) = take(&mut playback);
        let (second, _) = take(&mut playback);
        assert_eq!(playback.handle_mark(&first, true).as_deref(), Some("a"));
        assert_eq!(playback.handle_mark(&second, false), None);
        let cut = |item_id: &str, played_ms| Truncation {
            item_id: item_id.to_owned(),
            content_index: 0,
            played_ms,
        };
        assert_eq!(playback.interrupt(), [cut("a", 100), cut("b", 0)]);
        assert_eq!(playback.interrupt(), []);
        assert!(!playback.is_speaking());
    }

    #[test]
    fn an_item_that_was_played_in_full_is_not_truncated() {
        let mut playback = SpeechPlayback::new(24_000);
        playback.push("a", 0, &[1; 2_401]);
        for _ in 0..2 {
            let (mark, _) = take(&mut playback);
            playback.handle_mark(&mark, true);
        }
        assert_eq!(playback.interrupt(), []);
    }

    #[test]
    fn a_local_item_is_played_and_not_truncated() {
        let mut playback = SpeechPlayback::new(8_000);
        playback.push("a", 0, &[1; 80]);
        assert!(playback.push_local("sound", &[1; 80]));
        let (first, _) = take(&mut playback);
        let (second, length) = take(&mut playback);
        assert_eq!((length, playback.has_item(|id| id == "sound")), (80, true));
        assert!(playback.is_speaking_besides("sound"));
        playback.handle_mark(&first, true);
        assert!(playback.is_speaking() && !playback.is_speaking_besides("sound"));
        assert_eq!(playback.handle_mark(&second, true).as_deref(), Some("sound"));
        playback.forget_played();
        assert!(!playback.has_item(|id| id == "sound"));
        playback.push_local("sound", &[1; 80]);
        assert_eq!(playback.interrupt().len(), 0);
        assert!(!playback.is_speaking());
    }

    #[test]
    fn speech_above_the_cap_is_dropped() {
        let mut playback = SpeechPlayback::new(8_000);
        assert!(playback.push("a", 0, &vec![0; 64 * 8_000]));
        assert!(!playback.push("a", 0, &[0]));
        take(&mut playback);
        assert!(playback.push("a", 0, &[0]));
    }

    #[test]
    fn unknown_marks_are_ignored() {
        let mut playback = SpeechPlayback::new(8_000);
        for name in ["", "speech", "speech x", "speech 0", "other 1"] {
            assert_eq!(playback.handle_mark(name, true), None);
        }
    }
}
