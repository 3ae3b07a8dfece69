//! Tells speech from background by its energy: the parrot's ear.
//!
//! In: PCM, `i16` mono at 16 kHz, pieces of any length. Out: whether there was speech in them. The background is the quietest
//! 10 ms of the last 3 s, so it follows a fan within that time and is not raised by speech, which has gaps between its
//! syllables. Speech stands out of it by 9 dB and is no whisper from the next room. A tone that lasts longer than that
//! becomes background, as it should.

use super::listener::Ear;

/// 10 ms.
const BLOCK: usize = 160;
/// Blocks of one window: 500 ms.
const WINDOW_BLOCKS: u32 = 50;
/// Windows over which the background is the quietest.
const WINDOWS: usize = 6;
/// How far speech stands out, as a ratio of energies: 9 dB.
const STANDS_OUT: f32 = 8.0;
/// Energy of the faintest speech, as the mean square of samples: 56 dB below the loudest, a soft voice on a quiet microphone.
const FAINTEST: f32 = 2.5e3;

/// Listens to one caller.
pub struct EnergyEar {
    /// The energy of the block that is not full yet, and how many samples are in it.
    sum: f32,
    filled: usize,
    /// The quietest block of the window that is not full yet, and how many blocks are in it.
    quietest: f32,
    blocks: u32,
    /// The quietest block of each window before, the newest last.
    windows: [f32; WINDOWS],
}

impl EnergyEar {
    pub fn new() -> Self {
        EnergyEar {
            sum: 0.0,
            filled: 0,
            quietest: f32::INFINITY,
            blocks: 0,
            windows: [f32::INFINITY; WINDOWS],
        }
    }

    /// Takes one block's mean square, and tells whether it is speech.
    fn judge(&mut self, energy: f32) -> bool {
        let background = self.windows.iter().copied().fold(self.quietest, f32::min);
        self.quietest = self.quietest.min(energy);
        self.blocks += 1;
        if self.blocks == WINDOW_BLOCKS {
            self.windows.rotate_left(1);
            self.windows[WINDOWS - 1] = self.quietest;
            (self.quietest, self.blocks) = (f32::INFINITY, 0);
        }
        energy > FAINTEST.max(background * STANDS_OUT)
    }
}

impl Ear for EnergyEar {
    fn hears_speech(&mut self, pcm: &[i16]) -> bool {
        let mut speech = false;
        for sample in pcm {
            self.sum += f32::from(*sample).powi(2);
            self.filled += 1;
            if self.filled == BLOCK {
                let energy = self.sum / BLOCK as f32;
                (self.sum, self.filled) = (0.0, 0);
                speech |= self.judge(energy);
            }
        }
        speech
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// White noise with a given effective value, from a seed.
    fn noise(effective: f32, ms: usize, seed: &mut u32) -> Vec<i16> {
        let sample = |_| {
            *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let uniform = (*seed >> 8) as f32 / 8_388_608.0 - 1.0;
            (uniform * 3.0_f32.sqrt() * effective) as i16
        };
        (0..ms * 16).map(sample).collect()
    }

    /// Returns the share of 20 ms frames in which the ear hears speech.
    fn share(ear: &mut EnergyEar, pcm: &[i16]) -> f32 {
        let frames = pcm.chunks(320);
        let count = frames.len() as f32;
        frames.filter(|frame| ear.hears_speech(frame)).count() as f32 / count
    }

    /// Syllables of 160 ms with gaps of 60 ms, as speech has.
    fn speech(effective: f32, background: f32, ms: usize, seed: &mut u32) -> Vec<i16> {
        let syllable = |seed: &mut u32| [noise(effective, 160, seed), noise(background, 60, seed)].concat();
        (0..ms / 220).flat_map(|_| syllable(seed)).collect()
    }

    #[test]
    fn silence_is_no_speech_and_the_first_word_is() {
        let mut ear = EnergyEar::new();
        assert_eq!(share(&mut ear, &[0; 48_000]), 0.0);
        assert!(share(&mut ear, &speech(1_000.0, 0.0, 2_000, &mut 1)) > 0.7);
        let mut ear = EnergyEar::new();
        share(&mut ear, &speech(1_000.0, 0.0, 220, &mut 1));
        let next = share(&mut ear, &speech(1_000.0, 0.0, 440, &mut 1));
        assert!(
            next > 0.6,
            "a caller who speaks at once is heard from the second syllable on: {next}"
        );
    }

    #[test]
    fn speech_is_heard_over_a_fan_and_the_fan_is_not() {
        let mut seed = 7;
        let mut ear = EnergyEar::new();
        assert!(
            share(&mut ear, &noise(300.0, 200, &mut seed)) < 0.2,
            "not even at the start"
        );
        assert_eq!(share(&mut ear, &noise(300.0, 10_000, &mut seed)), 0.0);
        assert!(
            share(&mut ear, &speech(1_500.0, 300.0, 10_000, &mut seed)) > 0.6,
            "and it stays heard"
        );
        assert!(share(&mut ear, &noise(300.0, 2_000, &mut seed)) < 0.02);
    }

    #[test]
    fn a_fan_that_is_switched_on_is_background_after_three_seconds() {
        let mut seed = 9;
        let mut ear = EnergyEar::new();
        share(&mut ear, &[0; 64_000]);
        assert!(share(&mut ear, &noise(500.0, 2_000, &mut seed)) > 0.9);
        share(&mut ear, &noise(500.0, 1_600, &mut seed));
        assert_eq!(share(&mut ear, &noise(500.0, 5_000, &mut seed)), 0.0);
    }

    #[test]
    fn pieces_of_any_length_are_heard_alike() {
        let pcm = speech(1_000.0, 20.0, 4_000, &mut 3);
        for length in [1, 7, 160, 999, 5_760] {
            let mut ear = EnergyEar::new();
            assert!(!ear.hears_speech(&[]));
            let heard: usize = pcm
                .chunks(length)
                .filter(|piece| ear.hears_speech(piece))
                .map(<[i16]>::len)
                .sum();
            assert!(heard > 0, "pieces of {length}");
            assert_eq!(ear.filled, pcm.len() % BLOCK);
        }
    }

    #[test]
    fn the_loudest_sound_is_speech_and_no_overflow() {
        let mut ear = EnergyEar::new();
        share(&mut ear, &[0; 320]);
        assert_eq!(share(&mut ear, &[i16::MIN; 16_000]), 1.0);
    }
}
