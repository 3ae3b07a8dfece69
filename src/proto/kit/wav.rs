//! WAV files of 16-bit PCM: read into mono samples, and written.
//!
//! Reading takes any rate and up to 8 channels, which are averaged, and skips chunks that it does
//! not know. Source: RIFF WAVE, as `fmt ` chunks with format tag 1 and 0xFFFE.

use std::fmt;
use std::time::Duration;

use crate::audio::resample::Resampler;

/// Bytes of a header as it is written here.
const HEADER_BYTES: u32 = 44;
const FORMAT_PCM: u16 = 1;
const FORMAT_EXTENSIBLE: u16 = 0xfffe;
const CHANNELS_MAX: u16 = 8;
/// Sample rates of speech and music.
const RATES_HZ: std::ops::RangeInclusive<u32> = 4_000..=192_000;

/// The sound of a WAV file.
#[derive(Clone, PartialEq, Eq)]
pub struct Wav {
    /// Samples per second.
    pub rate_hz: u32,
    /// 16-bit mono.
    pub pcm: Vec<i16>,
}

impl fmt::Debug for Wav {
    /// Omits the samples: speech must never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wav({} samples at {} Hz)", self.pcm.len(), self.rate_hz)
    }
}

/// Why a file is no WAV file that can be read here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WavError {
    /// It does not begin as one.
    NoWav,
    /// It lacks a chunk of this name.
    Missing(&'static str),
    /// It is not PCM of 16 bits.
    Format {
        /// The format tag; 1 is PCM.
        format: u16,
        /// Bits of a sample.
        bits: u16,
    },
    /// It has this number of channels, none or too many.
    Channels(u16),
    /// Samples per second.
    Rate(u32),
}

impl fmt::Display for WavError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WavError::NoWav => f.write_str("no WAV file: it does not begin with RIFF and WAVE"),
            WavError::Missing(name) => write!(f, "the WAV file has no chunk `{}`", name.trim_end()),
            WavError::Format { format, bits } => write!(
                f,
                "the WAV file has format {format} with {bits} bits, expected PCM (1) with 16; `sox IN.wav -b 16 -e signed \
                 OUT.wav` converts it"
            ),
            WavError::Channels(count) => write!(f, "the WAV file has {count} channels, expected 1 to {CHANNELS_MAX}"),
            WavError::Rate(hz) => write!(
                f,
                "the WAV file has {hz} samples per second, expected {} to {}",
                RATES_HZ.start(),
                RATES_HZ.end()
            ),
        }
    }
}

impl std::error::Error for WavError {}

impl Wav {
    /// Reads a whole file. Its samples end with the file where the header says more or 0, as in
    /// files that were written to a pipe.
    ///
    /// # Errors
    /// [`WavError`] says what was expected.
    pub fn read(file: &[u8]) -> Result<Wav, WavError> {
        let mut rest = match file.split_at_checked(12) {
            Some((head, rest)) if head.starts_with(b"RIFF") && head.ends_with(b"WAVE") => rest,
            _ => return Err(WavError::NoWav),
        };
        let mut format = None;
        while let Some((head, body)) = rest.split_at_checked(8) {
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            // Programs that write to a pipe leave the length at 0 or at its maximum.
            let is_streamed = length == 0 && head.starts_with(b"data");
            let chunk = match is_streamed {
                true => body,
                false => &body[..length.min(body.len())],
            };
            match &head[..4] {
                b"fmt " => format = Some(Format::read(chunk).ok_or(WavError::Missing("fmt "))?),
                b"data" => {
                    let format: Format = format.ok_or(WavError::Missing("fmt "))?;
                    return format.samples(chunk);
                }
                _ => {}
            }
            // Chunks begin at even offsets.
            let next = length.saturating_add(length % 2);
            rest = body.get(next..).unwrap_or_default();
        }
        Err(WavError::Missing(if format.is_some() { "data" } else { "fmt " }))
    }

    /// Returns how long the sound is.
    pub fn length(&self) -> Duration {
        Duration::from_micros(self.pcm.len() as u64 * 1_000_000 / u64::from(self.rate_hz))
    }

    /// Returns the sound at another rate, in Hz and above zero.
    pub fn resampled(&self, rate_hz: u32) -> Vec<i16> {
        if rate_hz == self.rate_hz {
            return self.pcm.clone();
        }
        let mut resampled = Vec::new();
        let mut resampler = Resampler::new(self.rate_hz, rate_hz);
        resampler.process(&self.pcm, &mut resampled);
        // The filter holds the end of the sound back, for a few milliseconds.
        resampler.process(&vec![0; self.rate_hz as usize / 50], &mut resampled);
        let samples = self.pcm.len() as u64 * u64::from(rate_hz) / u64::from(self.rate_hz);
        resampled.truncate(samples as usize);
        resampled
    }
}

/// The `fmt ` chunk.
#[derive(Clone, Copy)]
struct Format {
    format: u16,
    channels: u16,
    rate_hz: u32,
    bits: u16,
}

impl Format {
    fn read(chunk: &[u8]) -> Option<Format> {
        let word = |at: usize| Some(u16::from_le_bytes(*chunk.get(at..)?.first_chunk()?));
        let mut format = word(0)?;
        if format == FORMAT_EXTENSIBLE {
            // The first bytes of the sub-format are the tag.
            format = word(24)?;
        }
        Some(Format {
            format,
            channels: word(2)?,
            rate_hz: u32::from_le_bytes(*chunk.get(4..)?.first_chunk()?),
            bits: word(14)?,
        })
    }

    fn samples(self, data: &[u8]) -> Result<Wav, WavError> {
        let Format {
            format,
            channels,
            rate_hz,
            bits,
        } = self;
        if (format, bits) != (FORMAT_PCM, 16) {
            return Err(WavError::Format { format, bits });
        }
        if channels == 0 || channels > CHANNELS_MAX {
            return Err(WavError::Channels(channels));
        }
        if !RATES_HZ.contains(&rate_hz) {
            return Err(WavError::Rate(rate_hz));
        }
        let frames = data.chunks_exact(2 * usize::from(channels));
        let mono = |frame: &[u8]| {
            let samples = frame
                .as_chunks()
                .0
                .iter()
                .map(|bytes| i32::from(i16::from_le_bytes(*bytes)));
            (samples.sum::<i32>() / i32::from(channels)) as i16
        };
        Ok(Wav {
            rate_hz,
            pcm: frames.map(mono).collect(),
        })
    }
}

/// Returns a WAV file of 16-bit mono PCM.
///
/// ```
/// # use edge_runner_proto::kit::{Wav, write_wav};
/// let file = write_wav(&[0, 1_000, -1_000], 16_000);
/// let wav = Wav::read(&file).expect("a WAV file");
/// assert_eq!((wav.rate_hz, wav.pcm.as_slice()), (16_000, &[0, 1_000, -1_000][..]));
/// ```
pub fn write_wav(pcm: &[i16], rate_hz: u32) -> Vec<u8> {
    // Longer files than 4 GiB say so; readers then go by the length of the file.
    let bytes = u32::try_from(pcm.len() * 2).unwrap_or(u32::MAX - HEADER_BYTES);
    let mut file = Vec::with_capacity(HEADER_BYTES as usize + pcm.len() * 2);
    file.extend(b"RIFF");
    file.extend((HEADER_BYTES - 8 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    // PCM, one channel, the rate, bytes per second, bytes per frame, bits per sample.
    file.extend([FORMAT_PCM, 1].map(u16::to_le_bytes).concat());
    file.extend([rate_hz, rate_hz.saturating_mul(2)].map(u32::to_le_bytes).concat());
    file.extend([2_u16, 16].map(u16::to_le_bytes).concat());
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    file.extend(pcm.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sound keeps its length and its end at any rate.
    #[test]
    fn a_sound_is_brought_to_another_rate() {
        let pcm = (0..4_410)
            .map(|at| ((at as f32 * 0.05).sin() * 8_000.0) as i16)
            .collect();
        let wav = Wav { rate_hz: 44_100, pcm };
        assert_eq!(wav.resampled(44_100), wav.pcm);
        for rate_hz in [8_000, 16_000, 24_000, 48_000] {
            let resampled = wav.resampled(rate_hz);
            assert_eq!(resampled.len() as u32, rate_hz / 10);
            let end = &resampled[resampled.len() * 9 / 10..];
            let peak = end.iter().map(|sample| sample.unsigned_abs()).max();
            assert!(
                peak.is_some_and(|peak| (7_000..9_000).contains(&peak)),
                "{rate_hz}: {peak:?}"
            );
        }
        let empty = Wav {
            rate_hz: 8_000,
            pcm: Vec::new(),
        };
        assert!(empty.resampled(16_000).is_empty());
    }

    fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32).to_le_bytes();
        let padding = vec![0; body.len() % 2];
        [&name[..], &length, body, &padding].concat()
    }

    fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
        [&b"RIFF\xff\xff\xff\xffWAVE"[..], &chunks.concat()].concat()
    }

    fn format(tag: u16, channels: u16, rate_hz: u32, bits: u16) -> Vec<u8> {
        let mut body = [tag.to_le_bytes(), channels.to_le_bytes()].concat();
        body.extend(rate_hz.to_le_bytes());
        body.extend([0; 6]);
        body.extend(bits.to_le_bytes());
        chunk(b"fmt ", &body)
    }

    fn data(samples: &[i16]) -> Vec<u8> {
        chunk(
            b"data",
            &samples
                .iter()
                .flat_map(|sample| sample.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn what_is_written_is_read() {
        for count in [0, 1, 999] {
            let pcm: Vec<i16> = (0..count).map(|n| n - 500).collect();
            let file = write_wav(&pcm, 24_000);
            assert_eq!(file.len(), 44 + pcm.len() * 2);
            assert_eq!(Wav::read(&file), Ok(Wav { rate_hz: 24_000, pcm }));
        }
    }

    #[test]
    fn other_chunks_channels_and_the_extensible_format_are_read() {
        let odd = chunk(b"LIST", b"odd");
        let stereo = file(&[odd, format(1, 2, 44_100, 16), data(&[100, 300, -2, -4])]);
        assert_eq!(
            Wav::read(&stereo).map(|wav| (wav.rate_hz, wav.pcm)),
            Ok((44_100, vec![200, -3]))
        );
        let mut body = format(0xfffe, 1, 8_000, 16)[8..].to_vec();
        body.extend([22, 0, 16, 0, 4, 0, 0, 0, 1, 0]);
        body.extend([0; 14]);
        let extensible = file(&[chunk(b"fmt ", &body), data(&[7])]);
        assert_eq!(Wav::read(&extensible).map(|wav| wav.pcm), Ok(vec![7]));
    }

    #[test]
    fn the_length_may_be_wrong() {
        let mut streamed = write_wav(&[1, 2, 3], 8_000);
        for length in [0, u32::MAX] {
            streamed[40..44].copy_from_slice(&length.to_le_bytes());
            assert_eq!(Wav::read(&streamed).map(|wav| wav.pcm), Ok(vec![1, 2, 3]));
        }
        streamed.pop();
        assert_eq!(Wav::read(&streamed).map(|wav| wav.pcm), Ok(vec![1, 2]));
    }

    #[test]
    fn other_files_are_named() {
        let read = |chunks: &[Vec<u8>]| Wav::read(&file(chunks));
        assert_eq!(Wav::read(b"ID3"), Err(WavError::NoWav));
        assert_eq!(Wav::read(b"RIFF\0\0\0\0AVI LIST"), Err(WavError::NoWav));
        assert_eq!(read(&[]), Err(WavError::Missing("fmt ")));
        assert_eq!(read(&[data(&[1])]), Err(WavError::Missing("fmt ")));
        assert_eq!(read(&[chunk(b"fmt ", b"\x01\0")]), Err(WavError::Missing("fmt ")));
        assert_eq!(read(&[format(1, 1, 8_000, 16)]), Err(WavError::Missing("data")));
        let of = |tag, channels, rate_hz, bits| read(&[format(tag, channels, rate_hz, bits), data(&[1])]);
        assert_eq!(of(3, 1, 8_000, 32), Err(WavError::Format { format: 3, bits: 32 }));
        assert_eq!(of(1, 1, 8_000, 8), Err(WavError::Format { format: 1, bits: 8 }));
        assert_eq!(of(1, 0, 8_000, 16), Err(WavError::Channels(0)));
        assert_eq!(of(1, 9, 8_000, 16), Err(WavError::Channels(9)));
        assert_eq!(of(1, 1, 0, 16), Err(WavError::Rate(0)));
    }

    #[test]
    fn every_cut_is_an_error_or_shorter() {
        let whole = write_wav(&[1, 2, 3], 8_000);
        for length in 0..whole.len() {
            if let Ok(wav) = Wav::read(&whole[..length]) {
                assert!(wav.pcm.len() < 3 && length >= 44);
            }
        }
    }
}
