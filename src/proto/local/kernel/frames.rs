//! Conversion between the frames of a card and mono PCM.
//!
//! In and out: bytes of frames in the form of a card, and `i16` mono PCM at another rate, as bytes
//! too. Of a microphone the first channel is taken; all channels of a loudspeaker get the same
//! sound. Of longer samples the upper 16 bits count.

use super::negotiation::CardForm;
use crate::audio::rate_converter::RateConverter;

/// Converts what a card records.
pub struct RecordedFrames {
    form: CardForm,
    converter: RateConverter,
    mono: Vec<i16>,
}

impl RecordedFrames {
    /// Creates a converter to PCM of a rate in Hz.
    pub fn new(form: CardForm, rate_hz: u32) -> Self {
        RecordedFrames {
            form,
            converter: RateConverter::new(form.rate_hz, rate_hz),
            mono: Vec::new(),
        }
    }

    /// Returns the PCM of whole frames; an incomplete one is left out.
    pub fn convert(&mut self, bytes: &[u8]) -> Vec<u8> {
        let width = self.form.format.bytes();
        let frames = bytes.chunks_exact(self.form.frame_bytes());
        self.mono.clear();
        self.mono
            .extend(frames.map(|frame| i16::from_le_bytes([frame[width - 2], frame[width - 1]])));
        let pcm = self.converter.convert(&self.mono);
        pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect()
    }

    /// Forgets the frames so far, for a card that has lost some.
    pub fn handle_restart(&mut self) {
        self.converter.reset();
    }
}

/// Converts what a card plays.
pub struct PlayedFrames {
    form: CardForm,
    rate_hz: u32,
    converter: RateConverter,
    mono: Vec<i16>,
}

impl PlayedFrames {
    /// Creates a converter of PCM of a rate in Hz.
    pub fn new(form: CardForm, rate_hz: u32) -> Self {
        PlayedFrames {
            form,
            rate_hz,
            converter: RateConverter::new(rate_hz, form.rate_hz),
            mono: Vec::new(),
        }
    }

    /// Returns the frames of PCM; an incomplete sample is left out.
    pub fn convert(&mut self, pcm: &[u8]) -> Vec<u8> {
        self.mono.clear();
        let samples = pcm.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
        self.mono.extend(samples);
        let width = self.form.format.bytes();
        let mono = self.converter.convert(&self.mono);
        let mut frames = vec![0; mono.len() * self.form.frame_bytes()];
        let samples = frames.chunks_exact_mut(width);
        let values = mono
            .iter()
            .flat_map(|value| std::iter::repeat_n(*value, self.form.channels as usize));
        for (sample, value) in samples.zip(values) {
            sample[width - 2..].copy_from_slice(&value.to_le_bytes());
        }
        frames
    }

    /// Returns the bytes of PCM that frames of so many bytes stand for.
    pub fn pcm_bytes(&self, frames: usize) -> usize {
        let frames = (frames / self.form.frame_bytes()) as u64;
        2 * (frames * u64::from(self.rate_hz) / u64::from(self.form.rate_hz)) as usize
    }
}
