//! Building blocks for bots: collected keys, tones, and WAV files.
//!
//! Each is a plain value without I/O and without a clock of its own: keys, samples and times go in,
//! decisions and samples come out. PCM is 16-bit mono.

mod digits;
mod tones;
mod wav;

pub use digits::{DigitCollector, DigitRules, Digits, DigitsEnd};
pub use tones::{TONE_GAP, TONE_LENGTH, ToneSegment, dtmf_tone, tones};
pub use wav::{Wav, WavError, write_wav};
