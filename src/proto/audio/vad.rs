//! Detects speech by its energy.
//!
//! In: `i16` mono PCM at one rate, in pieces of any length. Out: whether they contain speech.
//! Speech is at least 7 dB above the noise floor, and above an absolute minimum. The background is
//! the quietest 40 ms of the last 3 s: it adapts to a fan within that time, and speech does not
//! raise it, since it has gaps between syllables. A high-pass filter removes rumble below the
//! voice. Digital silence means a muted microphone (a microcontroller mutes it while the bot
//! speaks), not a quiet room: it is not speech, and it leaves the background unchanged. The caller
//! handles pauses between words and sounds shorter than a word.

use std::f32::consts::TAU;

/// Blocks per second: energy is measured over 10 ms.
const BLOCKS_HZ: u32 = 100;
/// Blocks over which energy is averaged for the background, so that its fluctuations do not count
/// as speech.
const SMOOTH: usize = 4;
/// Blocks of one window: 500 ms.
const WINDOW_BLOCKS: u32 = 50;
/// Windows over which the background is the minimum.
const WINDOWS: usize = 6;
/// Ratio of the energies of speech and background: 7 dB.
const MIN_SNR: f32 = 5.0;
/// Energy of the faintest speech, as the mean square of samples: 56 dB below full scale.
const MIN_SPEECH_ENERGY: f32 = 2.5e3;
/// Cutoff of the high-pass filter, in hertz.
const RUMBLE_HZ: f32 = 380.0;

/// The detector of one voice.
pub struct Vad {
    block_samples: usize,
    /// The high-pass filter: its pole, and its last input and output.
    pole: f32,
    last: (f32, f32),
    /// The incomplete block: its energy, its number of samples, and whether all are silent.
    energy: f32,
    filled: usize,
    is_digital_silence: bool,
    /// The last blocks, for the average.
    recent: [f32; SMOOTH],
    next: usize,
    /// The minimum of the incomplete window, and its number of blocks.
    quietest: f32,
    blocks: u32,
    /// The minimum of each earlier window, the newest last.
    windows: [f32; WINDOWS],
}

impl Vad {
    /// Creates a detector for PCM at `rate_hz`.
    pub fn new(rate_hz: u32) -> Self {
        Self {
            block_samples: (rate_hz / BLOCKS_HZ) as usize,
            pole: 1.0 - TAU * RUMBLE_HZ / rate_hz as f32,
            last: (0.0, 0.0),
            energy: 0.0,
            filled: 0,
            is_digital_silence: true,
            recent: [f32::INFINITY; SMOOTH],
            next: 0,
            quietest: f32::INFINITY,
            blocks: 0,
            windows: [f32::INFINITY; WINDOWS],
        }
    }

    /// Processes the next samples, and returns whether a block of 10 ms that they complete is
    /// speech.
    pub fn hears_speech(&mut self, pcm: &[i16]) -> bool {
        let mut speech = false;
        for sample in pcm {
            // A codec decodes digital silence within one unit.
            self.is_digital_silence &= (-1..=1).contains(sample);
            let input = f32::from(*sample);
            let output = input - self.last.0 + self.pole * self.last.1;
            self.last = (input, output);
            self.energy += output * output;
            self.filled += 1;
            if self.filled == self.block_samples {
                let energy = self.energy / self.block_samples as f32;
                let is_digital_silence = std::mem::replace(&mut self.is_digital_silence, true);
                (self.energy, self.filled) = (0.0, 0);
                speech |= !is_digital_silence && self.judge(energy);
            }
        }
        speech
    }

    /// Processes the mean square of one block, and returns whether it is speech.
    fn judge(&mut self, energy: f32) -> bool {
        self.recent[self.next] = energy;
        self.next = (self.next + 1) % SMOOTH;
        let smooth = self.recent.iter().sum::<f32>() / SMOOTH as f32;
        self.quietest = self.quietest.min(smooth);
        let background = self.windows.iter().copied().fold(self.quietest, f32::min);
        self.blocks += 1;
        if self.blocks == WINDOW_BLOCKS {
            self.windows.rotate_left(1);
            self.windows[WINDOWS - 1] = self.quietest;
            (self.quietest, self.blocks) = (f32::INFINITY, 0);
        }
        energy > MIN_SPEECH_ENERGY.max(background * MIN_SNR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::resample::Resampler;

    const HZ: usize = 16_000;

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

    /// Returns white noise of a given root mean square, from a seed.
    fn hiss(effective: f32, samples: usize, seed: &mut u32) -> Vec<f32> {
        let mut sample = || {
            *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((*seed >> 8) as f32 / 8_388_608.0 - 1.0) * 3.0_f32.sqrt() * effective
        };
        (0..samples).map(|_| sample()).collect()
    }

    /// Returns the noise of a fan, most of it low.
    fn fan(effective: f32, samples: usize, seed: &mut u32) -> Vec<f32> {
        let mut deep = 0.0;
        let pole = 0.97_f32;
        let scale = (1.0 - pole * pole).sqrt();
        hiss(effective * scale, samples, seed)
            .into_iter()
            .map(|sample| {
                deep = deep * pole + sample;
                deep
            })
            .collect()
    }

    fn pcm(samples: &[f32]) -> Vec<i16> {
        samples.iter().map(|sample| *sample as i16).collect()
    }

    fn mixed(speech: &[i16], noise: &[f32]) -> Vec<i16> {
        speech
            .iter()
            .zip(noise)
            .map(|(a, b)| (f32::from(*a) + b) as i16)
            .collect()
    }

    /// Returns the share of 20 ms frames with speech.
    fn share(vad: &mut Vad, pcm: &[i16]) -> f32 {
        let frames = pcm.chunks(HZ / 50);
        let count = frames.len() as f32;
        frames.filter(|frame| vad.hears_speech(frame)).count() as f32 / count
    }

    #[test]
    fn detects_speech_in_quiet_and_noisy_rooms() {
        let speech = sentences();
        for (noise, least) in [(5.0, 0.7), (60.0, 0.65), (300.0, 0.5)] {
            for sound in [hiss, fan] {
                let mut seed = 3;
                let mut vad = Vad::new(HZ as u32);
                let before = share(&mut vad, &pcm(&sound(noise, HZ, &mut seed)));
                let detected = share(&mut vad, &mixed(&speech, &sound(noise, speech.len(), &mut seed)));
                let after = share(&mut vad, &pcm(&sound(noise, HZ, &mut seed)));
                assert!(detected > least, "detected {detected} of speech over {noise}");
                assert!(
                    before < 0.03 && after < 0.05,
                    "detected {before} and {after} of noise {noise}"
                );
            }
        }
    }

    #[test]
    fn detects_the_first_word_after_digital_silence() {
        let mut vad = Vad::new(HZ as u32);
        assert_eq!(share(&mut vad, &[0; 3 * HZ]), 0.0);
        assert!(share(&mut vad, &sentences()[..HZ / 2]) > 0.5);
    }

    #[test]
    fn an_unmuted_microphone_is_not_speech() {
        for sound in [hiss, fan] {
            for noise in [100.0, 300.0, 1_000.0] {
                let mut seed = 5;
                let mut vad = Vad::new(HZ as u32);
                // A microcontroller: the bot greets before any audio, room noise, the bot speaks,
                // room noise.
                for is_digital_silence in [HZ / 2, 4 * HZ, 20 * HZ] {
                    assert_eq!(share(&mut vad, &vec![0; is_digital_silence]), 0.0);
                    let room = share(&mut vad, &pcm(&sound(noise, 2 * HZ, &mut seed)));
                    assert!(room < 0.03, "{room} of a room with noise of {noise}");
                }
            }
        }
    }

    #[test]
    fn a_fan_becomes_background_after_three_seconds() {
        let mut seed = 9;
        let mut vad = Vad::new(HZ as u32);
        share(&mut vad, &pcm(&hiss(10.0, 4 * HZ, &mut seed)));
        assert!(share(&mut vad, &pcm(&hiss(500.0, 2 * HZ, &mut seed))) > 0.9);
        share(&mut vad, &pcm(&hiss(500.0, 2 * HZ, &mut seed)));
        assert_eq!(share(&mut vad, &pcm(&hiss(500.0, 5 * HZ, &mut seed))), 0.0);
    }

    #[test]
    fn the_length_of_pieces_and_the_rate_do_not_matter() {
        let speech = sentences();
        let whole = share(&mut Vad::new(HZ as u32), &speech);
        for length in [1, 7, 160, 999] {
            let mut vad = Vad::new(HZ as u32);
            let blocks: usize = speech.chunks(length).filter(|piece| vad.hears_speech(piece)).count();
            assert!(blocks > 10, "pieces of {length}");
            assert!(!vad.hears_speech(&[]));
        }
        for rate_hz in [8_000, 24_000, 48_000] {
            let mut other = Vec::new();
            Resampler::new(HZ as u32, rate_hz).process(&speech, &mut other);
            let mut vad = Vad::new(rate_hz);
            let frames = other.chunks(rate_hz as usize / 50);
            let count = frames.len() as f32;
            let detected = frames.filter(|frame| vad.hears_speech(frame)).count() as f32 / count;
            assert!(
                (detected - whole).abs() < 0.1,
                "{detected} at {rate_hz} Hz, {whole} at {HZ}"
            );
        }
    }

    #[test]
    fn the_loudest_sound_does_not_overflow() {
        let mut vad = Vad::new(HZ as u32);
        let square: Vec<i16> = (0..HZ).map(|n| if n % 20 < 10 { i16::MAX } else { i16::MIN }).collect();
        share(&mut vad, &square);
        share(&mut vad, &pcm(&hiss(20.0, HZ, &mut 1)));
        assert!(share(&mut vad, &sentences()) > 0.6, "speech is detected afterwards");
    }
}
