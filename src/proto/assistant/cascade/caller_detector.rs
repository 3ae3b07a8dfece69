//! The detector of the caller's speech that the configuration names.
//!
//! In: PCM at [`RECOGNIZER_RATE_HZ`]. Out: whether it contains speech.

use super::RECOGNIZER_RATE_HZ;
use crate::assistant::config::DetectorKind;
use crate::kit::{SpeechDetector, Vad};

/// A detector of speech.
pub struct CallerDetector(Box<dyn SpeechDetector + Send>);

impl CallerDetector {
    /// Creates a detector. A build without the feature `vad` has the energy detector alone, and
    /// rejects the other one at the start.
    pub fn new(kind: DetectorKind) -> Self {
        CallerDetector(match kind {
            #[cfg(feature = "vad")]
            DetectorKind::Neural => Box::new(crate::kit::NeuralVad::new(RECOGNIZER_RATE_HZ)),
            _ => Box::new(Vad::new(RECOGNIZER_RATE_HZ)),
        })
    }
}

impl SpeechDetector for CallerDetector {
    fn is_speech(&mut self, pcm: &[i16]) -> bool {
        self.0.is_speech(pcm)
    }
}
