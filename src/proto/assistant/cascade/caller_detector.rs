//! The detector of the caller's speech that the configuration names.
//!
//! In: PCM at [`RECOGNIZER_RATE_HZ`]. Out: whether it contains speech.

use super::RECOGNIZER_RATE_HZ;
use crate::assistant::config::DetectorKind;
#[cfg(feature = "vad")]
use crate::kit::NeuralVad;
use crate::kit::{SpeechDetector, Vad};

/// A detector of speech.
pub enum CallerDetector {
    Energy(Vad),
    #[cfg(feature = "vad")]
    Neural(Box<NeuralVad>),
}

impl CallerDetector {
    /// Creates a detector. A build without the feature `vad` has the energy detector alone, and
    /// refuses the other one at the start.
    pub fn new(kind: DetectorKind) -> Self {
        match kind {
            #[cfg(feature = "vad")]
            DetectorKind::Neural => CallerDetector::Neural(Box::new(NeuralVad::new(RECOGNIZER_RATE_HZ))),
            _ => CallerDetector::Energy(Vad::new(RECOGNIZER_RATE_HZ)),
        }
    }
}

impl SpeechDetector for CallerDetector {
    fn is_speech(&mut self, pcm: &[i16]) -> bool {
        match self {
            CallerDetector::Energy(detector) => detector.is_speech(pcm),
            #[cfg(feature = "vad")]
            CallerDetector::Neural(detector) => detector.is_speech(pcm),
        }
    }
}
