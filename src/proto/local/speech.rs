//! Whether somebody speaks: most of a short window is speech by its energy.
//!
//! In: `i16` mono PCM at one rate, in pieces of any length. Out: whether a window of 200 ms up to
//! one of the blocks of 10 ms that they complete is speech. A click, or a lone loud block of noise,
//! is too short; pauses between syllables do not end it.

use std::collections::VecDeque;

use crate::audio::vad::Vad;

/// Blocks of 10 ms in the window.
const WINDOW_BLOCKS: usize = 20;
/// Blocks with speech in it, from which on it is speech.
const SPEECH_BLOCKS: usize = 12;

/// Finds speech in one stream.
pub struct SpeechWindow {
    vad: Vad,
    block_samples: usize,
    /// Whether the last blocks are speech, the newest last.
    window: VecDeque<bool>,
    /// Samples of the next block.
    block: Vec<i16>,
}

impl SpeechWindow {
    pub fn new(rate_hz: u32) -> Self {
        SpeechWindow {
            vad: Vad::new(rate_hz),
            block_samples: (rate_hz / 100) as usize,
            window: VecDeque::new(),
            block: Vec::new(),
        }
    }

    /// Processes the next samples, and returns whether somebody speaks.
    pub fn hears_speech(&mut self, pcm: &[i16]) -> bool {
        let mut is_speech = false;
        self.block.extend_from_slice(pcm);
        let whole = self.block.len() - self.block.len() % self.block_samples;
        for block in self.block[..whole].chunks_exact(self.block_samples) {
            if self.window.len() == WINDOW_BLOCKS {
                self.window.pop_front();
            }
            self.window.push_back(self.vad.hears_speech(block));
            is_speech |= self.window.iter().filter(|speech| **speech).count() >= SPEECH_BLOCKS;
        }
        self.block.drain(..whole);
        is_speech
    }

    /// Forgets the last window, and keeps what is known of the background.
    pub fn reset(&mut self) {
        self.window.clear();
        self.block.clear();
    }
}
