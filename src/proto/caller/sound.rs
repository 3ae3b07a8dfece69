//! A sound that a caller plays, and which of its samples are loud.
//!
//! In: a WAV file, or PCM. Out: PCM at 16 kHz, with the place where its last sound ends, from
//! which the latency of an answer counts. A file may end in silence. Sound is 10 ms whose mean
//! square is more than 56 dB below full scale: callers and bots are not measured in a noisy room.

use std::fmt;
use std::time::Duration;

use super::{RATE_HZ, SOUND_SECONDS_MAX};
use crate::kit::{Wav, WavError};

/// Samples over which the energy is measured: 10 ms.
const BLOCK_SAMPLES: usize = RATE_HZ as usize / 100;
/// The energy of the faintest sound, as the mean square of samples: 56 dB below full scale.
const SOUND_ENERGY_MIN: i64 = 2_500;

/// A sound of the caller, at 16 kHz.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSound {
    pub pcm: Vec<i16>,
    /// The sample after the last sound; 0 if there is none.
    pub loud_until: usize,
}

/// Why a sound cannot be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SoundError {
    /// The file is no WAV file of 16-bit PCM.
    File(WavError),
    /// It is empty.
    Empty,
    /// It is longer than a step may be.
    TooLong(Duration),
}

impl fmt::Display for SoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SoundError::File(error) => error.fmt(f),
            SoundError::Empty => f.write_str("it holds no sound"),
            SoundError::TooLong(length) => {
                let seconds = length.as_secs();
                write!(f, "it is {seconds} s long; a step takes at most {SOUND_SECONDS_MAX} s")
            }
        }
    }
}

impl PlannedSound {
    /// Reads a WAV file.
    ///
    /// # Errors
    /// [`SoundError`] says what is wrong with the file.
    pub fn from_wav(file: &[u8]) -> Result<PlannedSound, SoundError> {
        let wav = Wav::read(file).map_err(SoundError::File)?;
        let length = wav.length();
        if wav.pcm.is_empty() {
            return Err(SoundError::Empty);
        }
        if length > Duration::from_secs(SOUND_SECONDS_MAX) {
            return Err(SoundError::TooLong(length));
        }
        let pcm = wav.resampled(RATE_HZ);
        let blocks = pcm.chunks(BLOCK_SAMPLES).rposition(is_loud);
        let loud_until = blocks.map_or(0, |last| ((last + 1) * BLOCK_SAMPLES).min(pcm.len()));
        Ok(PlannedSound { pcm, loud_until })
    }
}

/// Returns whether a part of PCM at 16 kHz has sound in it.
pub fn has_sound(pcm: &[i16]) -> bool {
    pcm.chunks(BLOCK_SAMPLES).any(is_loud)
}

fn is_loud(block: &[i16]) -> bool {
    let energy: i64 = block.iter().map(|sample| i64::from(*sample).pow(2)).sum();
    energy > SOUND_ENERGY_MIN * block.len() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::write_wav;

    #[test]
    fn the_end_of_the_sound_is_found_before_the_silence() {
        let mut pcm = vec![4_000; 8_000];
        pcm.extend(vec![20; 8_000]);
        let sound = PlannedSound::from_wav(&write_wav(&pcm, 16_000)).expect("a sound");
        assert_eq!((sound.pcm.len(), sound.loud_until), (16_000, 8_000));
        let quiet = PlannedSound::from_wav(&write_wav(&[1; 1_000], 16_000)).expect("a sound");
        assert_eq!(quiet.loud_until, 0);
        let short = PlannedSound::from_wav(&write_wav(&[4_000; 170], 16_000)).expect("a sound");
        assert_eq!(short.loud_until, 170);
    }

    #[test]
    fn other_rates_keep_their_length() {
        let pcm: Vec<i16> = (0..4_410)
            .map(|at| if at % 100 < 50 { 5_000 } else { -5_000 })
            .collect();
        let sound = PlannedSound::from_wav(&write_wav(&pcm, 44_100)).expect("a sound");
        assert_eq!(sound.pcm.len(), 1_600);
    }

    #[test]
    fn files_that_cannot_be_played_are_refused() {
        let refused = |file: &[u8]| PlannedSound::from_wav(file).expect_err("no sound").to_string();
        assert!(refused(b"ID3").contains("WAV"), "{}", refused(b"ID3"));
        assert_eq!(refused(&write_wav(&[], 8_000)), "it holds no sound");
        let long = write_wav(&vec![0; 8_000 * 601], 8_000);
        assert_eq!(refused(&long), "it is 601 s long; a step takes at most 600 s");
        let longest = write_wav(&vec![0; 16_000 * 600], 16_000);
        assert!(PlannedSound::from_wav(&longest).is_ok());
    }

    #[test]
    fn a_click_is_a_sound_and_noise_is_none() {
        let mut pcm = [20; 320];
        assert!(!has_sound(&pcm) && !has_sound(&[]));
        pcm[300] = 12_000;
        assert!(has_sound(&pcm));
    }
}
