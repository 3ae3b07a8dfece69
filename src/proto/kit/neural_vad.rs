//! Detects speech by a small neural network, the crate `earshot`.
//!
//! In: `i16` mono PCM at any rate, in pieces of any length. Out: whether they contain speech. The
//! network takes frames of 16 ms at 16 kHz. It hears speech in broadband noise and beside a
//! television, which the energy detector does not, and 80 ms later: `tests/peers/vad/README.md` has
//! the figures.

use super::SpeechDetector;
use crate::audio::rate_converter::RateConverter;

const RATE_HZ: u32 = 16_000;
/// Samples of a frame: 16 ms.
const FRAME: usize = 256;
/// The probability from which a frame is speech. At 0.5, a distant television is speech.
const THRESHOLD: f32 = 0.7;

/// A detector of speech in noise, for
/// [`TurnDetector::with_detector`](super::TurnDetector::with_detector). It takes 8 kB.
///
/// ```
/// # use edge_runner_proto::kit::{NeuralVad, TurnDetector, TurnRules};
/// let turns = TurnDetector::with_detector(TurnRules::default(), 8_000, NeuralVad::new(8_000));
/// assert!(!turns.is_in_turn());
/// ```
pub struct NeuralVad {
    network: Box<earshot::Detector>,
    converter: RateConverter,
    /// The incomplete frame, at 16 kHz.
    frame: [i16; FRAME],
    filled: usize,
    was_speech: bool,
}

impl NeuralVad {
    /// Creates a detector for PCM at `rate_hz`.
    ///
    /// # Panics
    /// If the rate is 0.
    pub fn new(rate_hz: u32) -> Self {
        NeuralVad {
            network: earshot::Detector::default_boxed(),
            converter: RateConverter::new(rate_hz, RATE_HZ),
            frame: [0; FRAME],
            filled: 0,
            was_speech: false,
        }
    }
}

impl SpeechDetector for NeuralVad {
    /// Returns whether a frame that the samples complete is speech; without such a frame, the last
    /// answer.
    fn is_speech(&mut self, pcm: &[i16]) -> bool {
        let mut speech = None;
        let mut rest = self.converter.convert(pcm);
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(FRAME - self.filled));
            self.frame[self.filled..self.filled + head.len()].copy_from_slice(head);
            self.filled += head.len();
            rest = tail;
            if self.filled == FRAME {
                self.filled = 0;
                let is_speech = self.network.predict_i16(&self.frame) >= THRESHOLD;
                speech = Some(speech.unwrap_or(false) || is_speech);
            }
        }
        self.was_speech = speech.unwrap_or(self.was_speech);
        self.was_speech
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::resample::Resampler;

    /// Two sentences, 16 kHz; see `tests/data/audio/README.md`.
    fn sentences() -> Vec<i16> {
        let bytes = include_bytes!("../../../tests/data/audio/speech.raw");
        bytes
            .as_chunks()
            .0
            .iter()
            .map(|bytes| i16::from_le_bytes(*bytes))
            .collect()
    }

    /// Returns the share of packets of 20 ms with speech.
    fn share(pcm: &[i16], rate_hz: u32) -> f32 {
        let mut vad = NeuralVad::new(rate_hz);
        let packets: Vec<bool> = pcm
            .chunks(rate_hz as usize / 50)
            .map(|packet| vad.is_speech(packet))
            .collect();
        packets.iter().filter(|speech| **speech).count() as f32 / packets.len() as f32
    }

    #[test]
    fn speech_is_detected_at_any_rate() {
        let pcm = sentences();
        assert!(share(&pcm, 16_000) > 0.5, "{}", share(&pcm, 16_000));
        for rate_hz in [8_000, 24_000, 48_000] {
            let mut resampled = Vec::new();
            Resampler::new(16_000, rate_hz).process(&pcm, &mut resampled);
            assert!(share(&resampled, rate_hz) > 0.5, "{rate_hz}");
        }
    }

    #[test]
    fn silence_and_noise_are_no_speech() {
        assert!(share(&[0; 32_000], 16_000) < 0.05);
        let mut seed = 1_u32;
        let hiss: Vec<i16> = (0..32_000)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 21) as i16 - 1_024
            })
            .collect();
        assert!(share(&hiss, 16_000) < 0.1, "{}", share(&hiss, 16_000));
    }

    /// A piece without a whole frame repeats the last answer.
    #[test]
    fn pieces_of_any_length_are_taken() {
        let pcm = sentences();
        for piece in [1, 100, 256, 5_000] {
            let mut vad = NeuralVad::new(16_000);
            let detected = pcm.chunks(piece).filter(|piece| vad.is_speech(piece)).count();
            assert!(detected * piece > pcm.len() / 2, "{piece}: {detected}");
        }
        let mut vad = NeuralVad::new(16_000);
        assert!(!vad.is_speech(&[]));
    }
}
