//! The queue from a program to its session, for speech and marks sent ahead of time.
//!
//! In: PCM, `i16` mono with its rate in Hz, and marks, in the order of the program's socket. Out:
//! [`PlayoutStep`]s in that order, with a change of rate before the speech it applies to. While
//! [`PlayoutQueue::has_capacity`] is false, the program's socket is not read. An interruption
//! empties the queue. Rates outside `RATES_HZ` are rejected.

use std::collections::VecDeque;
use std::fmt;

use crate::limits::{MARK_BYTES_MAX, PROCESS_OUT_SAMPLES_MAX, RATES_HZ};

/// Samples into which small frames are merged: 200 ms at 24 kHz.
const PROCESS_CHUNK_SAMPLES: usize = 4_800;
/// Marks in that queue: one per sentence.
const PROCESS_MARKS_OUT_MAX: usize = 256;

/// The queue from one program to its session.
pub struct PlayoutQueue {
    items: VecDeque<PlayoutItem>,
    samples: usize,
    marks: usize,
    rate_hz: u32,
    /// The reason of a hang-up, which follows the last speech.
    hang_up: Option<String>,
    /// Whether the last step may still be in progress.
    in_flight: bool,
}

enum PlayoutItem {
    Speech { samples: Vec<i16>, rate_hz: u32 },
    Mark(String),
}

/// The next step for the session.
#[derive(Debug, PartialEq, Eq)]
pub enum PlayoutStep {
    /// Further speech has this rate.
    Rate(u32),
    Speech(Vec<i16>),
    Mark(String),
    /// End the session for this reason.
    HangUp(String),
}

/// A rate that sessions do not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedRate(pub u32);

impl fmt::Display for UnsupportedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "audio at {} Hz; {} to {} Hz can be played",
            self.0,
            RATES_HZ.start(),
            RATES_HZ.end()
        )
    }
}

impl std::error::Error for UnsupportedRate {}

impl PlayoutQueue {
    /// Creates an empty queue to a session that plays at `rate_hz`, the initial rate of speech.
    pub fn new(rate_hz: u32) -> Self {
        PlayoutQueue {
            items: VecDeque::new(),
            samples: 0,
            marks: 0,
            rate_hz,
            hang_up: None,
            in_flight: false,
        }
    }

    /// Queues speech of any length: check [`PlayoutQueue::has_capacity`] before the next call.
    ///
    /// # Errors
    /// Returns [`UnsupportedRate`]; nothing is queued then.
    pub fn push_speech(&mut self, mut samples: Vec<i16>, rate_hz: u32) -> Result<(), UnsupportedRate> {
        let rate_hz = if rate_hz == 0 { self.last_rate_hz() } else { rate_hz };
        if !RATES_HZ.contains(&rate_hz) {
            return Err(UnsupportedRate(rate_hz));
        }
        self.samples += samples.len();
        // Small frames are merged, so that single samples do not take an allocation each.
        match self.items.back_mut() {
            Some(PlayoutItem::Speech {
                samples: last,
                rate_hz: last_rate_hz,
            }) if *last_rate_hz == rate_hz && last.len() + samples.len() <= PROCESS_CHUNK_SAMPLES => {
                last.append(&mut samples);
            }
            _ if samples.is_empty() => {}
            _ => self.items.push_back(PlayoutItem::Speech { samples, rate_hz }),
        }
        Ok(())
    }

    /// Queues a mark.
    ///
    /// # Errors
    /// Returns the name if there are too many marks, or it is too long.
    pub fn push_mark(&mut self, name: String) -> Result<(), String> {
        if self.marks == PROCESS_MARKS_OUT_MAX || name.len() > MARK_BYTES_MAX {
            return Err(name);
        }
        self.marks += 1;
        self.items.push_back(PlayoutItem::Mark(name));
        Ok(())
    }

    /// Ends the session once the queue is empty.
    pub fn hang_up(&mut self, reason: String) {
        self.hang_up = Some(reason);
    }

    /// Returns whether more may be read from the program.
    pub fn has_capacity(&self) -> bool {
        self.samples < PROCESS_OUT_SAMPLES_MAX
    }

    /// Returns the next step. A call states that the last step is done.
    pub fn poll_step(&mut self) -> Option<PlayoutStep> {
        self.in_flight = !self.items.is_empty();
        if let Some(PlayoutItem::Speech { rate_hz, .. }) = self.items.front()
            && *rate_hz != self.rate_hz
        {
            self.rate_hz = *rate_hz;
            return Some(PlayoutStep::Rate(*rate_hz));
        }
        let Some(item) = self.items.pop_front() else {
            return self.hang_up.take().map(PlayoutStep::HangUp);
        };
        Some(match item {
            PlayoutItem::Speech { samples, .. } => {
                self.samples -= samples.len();
                PlayoutStep::Speech(samples)
            }
            PlayoutItem::Mark(name) => {
                self.marks -= 1;
                PlayoutStep::Mark(name)
            }
        })
    }

    /// Returns whether every step is done.
    pub fn is_done(&self) -> bool {
        self.items.is_empty() && !self.in_flight
    }

    /// Drops the queue, and returns its marks. A hang-up stays.
    pub fn interrupt(&mut self) -> Vec<String> {
        (self.samples, self.marks) = (0, 0);
        let marks = self.items.drain(..).filter_map(|item| match item {
            PlayoutItem::Mark(name) => Some(name),
            PlayoutItem::Speech { .. } => None,
        });
        marks.collect()
    }

    fn last_rate_hz(&self) -> u32 {
        let rates = self.items.iter().rev().filter_map(|item| match item {
            PlayoutItem::Speech { rate_hz, .. } => Some(*rate_hz),
            PlayoutItem::Mark(_) => None,
        });
        rates.into_iter().next().unwrap_or(self.rate_hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(ahead: &mut PlayoutQueue) -> Vec<PlayoutStep> {
        std::iter::from_fn(|| ahead.poll_step()).collect()
    }

    #[test]
    fn returns_speech_and_marks_in_order_with_their_rates() {
        let mut ahead = PlayoutQueue::new(24_000);
        ahead.push_speech(vec![1, 2], 24_000).expect("a good rate");
        ahead.push_speech(vec![3], 0).expect("no rate is the last rate");
        ahead.push_mark("m".into()).expect("room");
        ahead.push_speech(vec![4], 16_000).expect("a good rate");
        ahead.push_speech(vec![], 16_000).expect("a good rate");
        ahead.push_speech(vec![5], 0).expect("no rate is the last rate");
        ahead.push_speech(vec![6], 48_000).expect("a good rate");
        assert_eq!(
            steps(&mut ahead),
            [
                PlayoutStep::Speech(vec![1, 2, 3]),
                PlayoutStep::Mark("m".into()),
                PlayoutStep::Rate(16_000),
                PlayoutStep::Speech(vec![4, 5]),
                PlayoutStep::Rate(48_000),
                PlayoutStep::Speech(vec![6]),
            ]
        );
        ahead.push_speech(vec![7], 48_000).expect("a good rate");
        assert_eq!(
            steps(&mut ahead),
            [PlayoutStep::Speech(vec![7])],
            "the rate is told once"
        );
    }

    #[test]
    fn rejects_unsupported_rates() {
        let mut ahead = PlayoutQueue::new(24_000);
        for rate_hz in [1, 7_999, 48_001, u32::MAX] {
            assert_eq!(ahead.push_speech(vec![1], rate_hz), Err(UnsupportedRate(rate_hz)));
        }
        for rate_hz in [8_000, 48_000] {
            assert_eq!(ahead.push_speech(vec![1], rate_hz), Ok(()));
        }
    }

    /// The queue has capacity below the limit and none at it; each step frees some.
    #[test]
    fn the_queue_is_limited() {
        let mut ahead = PlayoutQueue::new(24_000);
        ahead
            .push_speech(vec![0; PROCESS_OUT_SAMPLES_MAX - 1], 24_000)
            .expect("a good rate");
        assert!(ahead.has_capacity());
        ahead.push_speech(vec![0], 24_000).expect("a good rate");
        assert!(!ahead.has_capacity());
        assert!(ahead.poll_step().is_some());
        assert!(ahead.has_capacity());

        for _ in 0..PROCESS_MARKS_OUT_MAX {
            ahead.push_mark("m".into()).expect("room");
        }
        assert_eq!(ahead.push_mark("n".into()), Err("n".into()));

        let mut ahead = PlayoutQueue::new(24_000);
        let longest = "n".repeat(MARK_BYTES_MAX);
        assert_eq!(ahead.push_mark(longest.clone()), Ok(()));
        assert!(ahead.push_mark(longest + "n").is_err(), "no session takes that name");
    }

    /// Single samples are merged up to the size of a chunk.
    #[test]
    fn merges_small_frames() {
        let mut ahead = PlayoutQueue::new(24_000);
        for _ in 0..=PROCESS_CHUNK_SAMPLES {
            ahead.push_speech(vec![5], 24_000).expect("a good rate");
        }
        assert_eq!(
            steps(&mut ahead),
            [
                PlayoutStep::Speech(vec![5; PROCESS_CHUNK_SAMPLES]),
                PlayoutStep::Speech(vec![5])
            ]
        );
    }

    #[test]
    fn an_interruption_drops_speech_and_returns_marks() {
        let mut ahead = PlayoutQueue::new(24_000);
        ahead
            .push_speech(vec![0; PROCESS_OUT_SAMPLES_MAX], 24_000)
            .expect("a good rate");
        ahead.push_mark("a".into()).expect("room");
        ahead.push_speech(vec![1], 16_000).expect("a good rate");
        ahead.push_mark("b".into()).expect("room");
        assert_eq!(ahead.interrupt(), ["a", "b"]);
        assert!(ahead.has_capacity() && ahead.is_done());
        assert_eq!(ahead.poll_step(), None);
    }

    #[test]
    fn a_hang_up_follows_all_speech() {
        let mut ahead = PlayoutQueue::new(24_000);
        ahead.push_speech(vec![1], 24_000).expect("a good rate");
        ahead.hang_up("done".into());
        ahead.push_speech(vec![2], 16_000).expect("a good rate");
        let last = PlayoutStep::HangUp("done".into());
        assert_eq!(steps(&mut ahead).pop(), Some(last), "after the speech that came later");
        ahead.push_speech(vec![1], 16_000).expect("a good rate");
        ahead.hang_up("again".into());
        ahead.interrupt();
        assert_eq!(steps(&mut ahead), [PlayoutStep::HangUp("again".into())]);
    }

    #[test]
    fn is_done_after_the_last_step() {
        let mut ahead = PlayoutQueue::new(24_000);
        assert!(ahead.is_done());
        ahead.push_speech(vec![1], 24_000).expect("a good rate");
        assert!(!ahead.is_done());
        assert!(ahead.poll_step().is_some());
        assert!(!ahead.is_done(), "the speech is on its way");
        assert_eq!(ahead.poll_step(), None);
        assert!(ahead.is_done());
    }
}
