//! What callers and services say: packets of callers, PCM of answers, and its level.

use std::f64::consts::TAU;
use std::time::Duration;

use crate::Result;
use crate::speech::{self, BROWSER_RATE_HZ};

/// Packets of 20 ms of a question in a conversation, and up to the next one: a question of 3 s, an
/// answer of 5 s, and a second in which both are silent.
const QUESTION_PACKETS: usize = 150;
const CYCLE_PACKETS: usize = 450;
/// Length of an answer in a conversation.
pub const ANSWER: Duration = Duration::from_secs(5);
/// Root mean square above which 10 ms of a caller are speech, and above which they are a mark.
const SPEECH_LEVEL: f64 = 300.0;
const MARK_LEVEL: f64 = 5_000.0;
/// Amplitudes of a measured question: of the room, of its tone, and of the marks in it.
const ROOM: i32 = 40;
const TONE: f64 = 2_500.0;
const MARK: f64 = 14_000.0;
const TONE_HZ: f64 = 700.0;
/// Packets from one mark to the next, and of a mark: one more than two pieces of 80 ms, so that
/// marks meet every phase of a piece.
const MARK_STEP: usize = 9;
const MARK_PACKETS: usize = 3;
/// Packets from the beginning of a question to its first mark, in which the turn begins.
const MARKS_FROM: usize = 20;
/// Packets of silence before a question, from which the detector of the runner knows the room.
const LEAD_PACKETS: usize = 25;

/// What a service answers.
#[derive(Clone, Copy)]
pub enum Answer {
    /// Speech, which costs a codec as much as a real voice.
    Speech(Duration),
    /// A tone, which is loud from its first sample to its last.
    Tone(Duration),
}

impl Answer {
    /// Returns its samples at a rate.
    pub fn pcm(self, rate_hz: u32) -> Vec<i16> {
        let samples = |length: Duration| (length.as_millis() as usize) * rate_hz as usize / 1_000;
        match self {
            Answer::Speech(length) => speech::pcm_at(rate_hz, samples(length)),
            Answer::Tone(length) => (0..samples(length))
                .map(|at| (10_000.0 * (TAU * 400.0 * at as f64 / f64::from(rate_hz)).sin()) as i16)
                .collect(),
        }
    }
}

/// Returns a question and the pause for its answer, at a rate.
pub fn conversation(rate_hz: u32) -> Vec<i16> {
    let frame = rate_hz as usize / 50;
    let mut pcm = speech::pcm_at(rate_hz, QUESTION_PACKETS * frame);
    pcm.extend(room(frame * (CYCLE_PACKETS - QUESTION_PACKETS)));
    pcm
}

/// What a caller says in each round of a measurement.
pub struct Question {
    pub packets: Vec<Vec<u8>>,
    /// The first and the last loud packet.
    pub spoken: (usize, usize),
    /// The packets in which a mark begins.
    pub marks: Vec<usize>,
}

impl Question {
    /// Returns a round of so many packets with a question of so many; with marks if it is long.
    pub fn new(spoken: usize, all: usize) -> Result<Question> {
        let frame = BROWSER_RATE_HZ as usize / 50;
        let end = LEAD_PACKETS + spoken;
        let marks: Vec<usize> = (LEAD_PACKETS + MARKS_FROM..=end - MARK_PACKETS)
            .step_by(MARK_STEP)
            .collect();
        let mut pcm = room(all * frame);
        for (at, sample) in pcm.iter_mut().enumerate().take(end * frame).skip(LEAD_PACKETS * frame) {
            let packet = at / frame;
            let is_mark = marks.iter().any(|mark| (*mark..mark + MARK_PACKETS).contains(&packet));
            let amplitude = if is_mark { MARK } else { TONE };
            *sample = (amplitude * (TAU * TONE_HZ * at as f64 / f64::from(BROWSER_RATE_HZ)).sin()) as i16;
        }
        Ok(Question {
            packets: speech::encode_as_browser(&pcm)?,
            spoken: (LEAD_PACKETS, end - 1),
            marks,
        })
    }
}

/// The noise of a quiet room.
fn room(samples: usize) -> Vec<i16> {
    let mut state = 1_u32;
    (0..samples)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 16) as i32 % (2 * ROOM) - ROOM) as i16
        })
        .collect()
}

/// Finds speech and marks in the audio of one caller, in frames of 20 ms. Only the second half of a
/// frame counts: the look-ahead of the codec fills the first with what was before.
#[derive(Default)]
pub struct FrameLevel {
    was_mark: bool,
}

/// What a frame is.
pub struct FrameKind {
    pub is_speech: bool,
    pub begins_mark: bool,
}

impl FrameLevel {
    pub fn push(&mut self, frame: &[i16]) -> FrameKind {
        let level = level(frame);
        let is_mark = level > MARK_LEVEL;
        let was_mark = std::mem::replace(&mut self.was_mark, is_mark);
        FrameKind {
            is_speech: level > SPEECH_LEVEL,
            begins_mark: is_mark && !was_mark,
        }
    }
}

/// Returns the root mean square of the second half.
pub fn level(frame: &[i16]) -> f64 {
    let half = &frame[frame.len() / 2..];
    let sum: f64 = half.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    (sum / half.len().max(1) as f64).sqrt()
}
