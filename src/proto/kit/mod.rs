//! Building blocks for bots: turns of the caller, sentences, transcripts, calls of functions,
//! collected keys, tones, WAV files, recordings, and rates.
//!
//! Each is a plain value without I/O and without a clock of its own: keys, samples and times go in,
//! decisions and samples come out. PCM is 16-bit mono.

// Users of the crate `edge-runner` see these items.
#![deny(missing_docs)]

mod digits;
mod function_calls;
mod recorder;
mod sentences;
mod tones;
mod transcript;
mod turns;
mod wav;

cfg_if::cfg_if! {
    if #[cfg(feature = "vad")] {
        mod neural_vad;

        pub use neural_vad::NeuralVad;
    }
}

pub use crate::audio::rate_converter::RateConverter;
pub use crate::audio::vad::Vad;
pub use digits::{DigitCollector, DigitRules, Digits, DigitsEnd};
pub use function_calls::{FunctionCalls, FunctionOutput, FunctionOutputs};
pub use recorder::Recorder;
pub(crate) use sentences::whole_words;
pub use sentences::{SENTENCE_BYTES_MAX, SentenceSplitter, sentence_end};
pub use tones::{TONE_GAP, TONE_LENGTH, ToneSegment, dtmf_tone, tones};
pub use transcript::{Speaker, Transcript};
pub use turns::{EndedTurn, SpeechDetector, TurnBoundary, TurnDetector, TurnRules};
pub use wav::{Wav, WavError, write_wav};
