//! The queue from a bot's program to its session, with speech and marks that the program sent ahead
//! of time.
//!
//! In: PCM, `i16` mono with its rate in Hz, and marks, in the order of the program's socket. Out:
//! [`PlayoutStep`]s in that order, with a change of rate before the speech it applies to. While
//! [`PlayoutQueue::has_capacity`] is false, the program's socket is not read. An interruption
//! empties the queue. Rates outside `RATES_HZ` are rejected.

use std::collections::VecDeque;
use std::fmt;

use crate::limits::{MARK_BYTES_MAX, PROCESS_CHUNK_SAMPLES, PROCESS_MARKS_OUT_MAX, PROCESS_OUT_SAMPLES_MAX, RATES_HZ};

/// The queue from one program to its session.
pub struct PlayoutQueue {
    items: VecDeque<PlayoutItem>,
    samples: usize,
    marks: usize,
    rate_hz: u32,
    /// What was taken last may still be on its way.
    in_flight: bool,
}

enum PlayoutItem {
    Speech { samples: Vec<i16>, rate_hz: u32 },
    Mark(String),
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum PlayoutStep {
    /// Speech comes at this rate from here on.
    Rate(u32),
    Speech(Vec<i16>),
    Mark(String),
}

/// Audio at a rate outside of what sessions play.
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
    /// Makes an empty queue to a session that plays at `rate_hz`, which is also what speech without
    /// a rate has.
    pub fn new(rate_hz: u32) -> Self {
        PlayoutQueue {
            items: VecDeque::new(),
            samples: 0,
            marks: 0,
            rate_hz,
            in_flight: false,
        }
    }

    /// Queues speech. It is taken whole, however long: ask [`PlayoutQueue::has_capacity`] before
    /// the next.
    ///
    /// # Errors
    /// [`UnsupportedRate`], and nothing is queued then.
    pub fn push_speech(&mut self, mut samples: Vec<i16>, rate_hz: u32) -> Result<(), UnsupportedRate> {
        let rate_hz = if rate_hz == 0 { self.last_rate_hz() } else { rate_hz };
        if !RATES_HZ.contains(&rate_hz) {
            return Err(UnsupportedRate(rate_hz));
        }
        self.samples += samples.len();
        // Small frames share memory: a program that sends single samples must not cost a block for
        // each.
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

    /// Queues a mark; gives it back when there are too many, or its name is too long for any
    /// session.
    ///
    /// # Errors
    /// The name of the mark that found no room.
    pub fn push_mark(&mut self, name: String) -> Result<(), String> {
        if self.marks == PROCESS_MARKS_OUT_MAX || name.len() > MARK_BYTES_MAX {
            return Err(name);
        }
        self.marks += 1;
        self.items.push_back(PlayoutItem::Mark(name));
        Ok(())
    }

    /// Tells whether more may be read from the program.
    pub fn has_capacity(&self) -> bool {
        self.samples < PROCESS_OUT_SAMPLES_MAX
    }

    /// Takes the next step. To ask is to say that the step before is done.
    pub fn poll_step(&mut self) -> Option<PlayoutStep> {
        self.in_flight = !self.items.is_empty();
        if let Some(PlayoutItem::Speech { rate_hz, .. }) = self.items.front()
            && *rate_hz != self.rate_hz
        {
            self.rate_hz = *rate_hz;
            return Some(PlayoutStep::Rate(*rate_hz));
        }
        Some(match self.items.pop_front()? {
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

    /// Tells whether every step was taken and done.
    pub fn is_done(&self) -> bool {
        self.items.is_empty() && !self.in_flight
    }

    /// Drops what waits, and returns the marks among it.
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
    fn speech_and_marks_come_out_in_order_with_their_rates() {
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
    fn a_rate_that_cannot_be_played_is_refused() {
        let mut ahead = PlayoutQueue::new(24_000);
        for rate_hz in [1, 7_999, 48_001, u32::MAX] {
            assert_eq!(ahead.push_speech(vec![1], rate_hz), Err(UnsupportedRate(rate_hz)));
        }
        for rate_hz in [8_000, 48_000] {
            assert_eq!(ahead.push_speech(vec![1], rate_hz), Ok(()));
        }
    }

    /// Below the cap there is room, at it there is none, and each step that is taken makes some.
    #[test]
    fn the_queue_has_an_end() {
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

    /// Single samples are joined, up to the size of a chunk.
    #[test]
    fn small_frames_share_memory() {
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
    fn an_interruption_leaves_nothing_but_the_names_of_marks() {
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
    fn it_is_done_when_the_last_step_is() {
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
