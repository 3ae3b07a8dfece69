//! A recording with the caller on the left and the bot on the right.
//!
//! In: frames of both sides of the same time, at 16 kHz. Out: a stereo WAV file.
//! It is as long as the longest call: an hour has 230 MB.

use std::time::Duration;

use super::RATE_HZ;

/// Bytes of a stereo frame.
const FRAME_BYTES: u32 = 4;
/// Bytes of the header.
const HEADER_BYTES: u32 = 44;

/// A bounded stereo recording.
#[derive(Debug)]
pub struct StereoRecording {
    samples_max: usize,
    interleaved: Vec<[i16; 2]>,
}

impl StereoRecording {
    /// Creates a recording of at most `longest`.
    pub fn new(longest: Duration) -> StereoRecording {
        let samples = longest.as_millis() * u128::from(RATE_HZ) / 1_000;
        StereoRecording {
            samples_max: usize::try_from(samples).unwrap_or(usize::MAX),
            interleaved: Vec::new(),
        }
    }

    /// Adds one frame of each side; the shorter one ends in silence.
    pub fn push(&mut self, caller: &[i16], bot: &[i16]) {
        let room = self.samples_max - self.interleaved.len();
        for at in 0..caller.len().max(bot.len()).min(room) {
            let sample = |side: &[i16]| side.get(at).copied().unwrap_or_default();
            self.interleaved.push([sample(caller), sample(bot)]);
        }
    }

    /// Returns the recording as a WAV file of 16-bit PCM.
    pub fn to_wav(&self) -> Vec<u8> {
        // At most an hour: below 4 GiB.
        let bytes = self.interleaved.len() as u32 * FRAME_BYTES;
        let mut file = Vec::with_capacity((HEADER_BYTES + bytes) as usize);
        file.extend(b"RIFF");
        file.extend((HEADER_BYTES - 8 + bytes).to_le_bytes());
        file.extend(b"WAVEfmt ");
        file.extend(16_u32.to_le_bytes());
        // PCM, two channels, the rate, bytes per second, bytes per frame, bits per sample.
        file.extend([1_u16, 2].map(u16::to_le_bytes).concat());
        file.extend([RATE_HZ, RATE_HZ * FRAME_BYTES].map(u32::to_le_bytes).concat());
        file.extend([FRAME_BYTES as u16, 16].map(u16::to_le_bytes).concat());
        file.extend(b"data");
        file.extend(bytes.to_le_bytes());
        file.extend(
            self.interleaved
                .iter()
                .flatten()
                .flat_map(|sample| sample.to_le_bytes()),
        );
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::Wav;

    #[test]
    fn the_caller_is_left_and_the_bot_is_right() {
        let mut recording = StereoRecording::new(Duration::from_secs(1));
        recording.push(&[1, 2], &[-1]);
        recording.push(&[], &[-3]);
        let file = recording.to_wav();
        assert_eq!(file[44..], [1, 0, 255, 255, 2, 0, 0, 0, 0, 0, 253, 255]);
        assert_eq!((file[22], file[32]), (2, 4));
        let wav = Wav::read(&file).expect("a WAV file");
        assert_eq!((wav.rate_hz, wav.pcm), (16_000, vec![0, 1, -1]));
    }

    #[test]
    fn the_recording_is_bounded() {
        let mut recording = StereoRecording::new(Duration::from_millis(1));
        recording.push(&[1; 15], &[]);
        assert_eq!(recording.interleaved.len(), 15);
        recording.push(&[1; 3], &[]);
        recording.push(&[1; 3], &[]);
        assert_eq!(recording.interleaved.len(), 16);
    }
}
