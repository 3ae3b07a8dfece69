//! The speech of the caller, as samples and as packets.
//!
//! It is created once, on the machine that counts, and every run reads it, because an emulated
//! processor would need minutes.

use edge_runner_proto::audio::opus::{Encoder, EncoderSettings};
use edge_runner_proto::audio::resample::Resampler;

use crate::{Result, speech};

const RATE_HZ: u32 = speech::BROWSER_RATE_HZ;
/// Frames of 20 ms; a run repeats them.
pub const FRAMES: usize = 150;

/// Speech of [`FRAMES`] frames.
pub struct Voice {
    /// 48 kHz.
    pcm: Vec<i16>,
    /// Encoded like in a browser: 48 kHz, 32 kb/s.
    pub browser: Vec<Vec<u8>>,
    /// Encoded like on a microcontroller: nothing above 8 kHz.
    pub device: Vec<Vec<u8>>,
}

impl Voice {
    pub fn make() -> Result<Voice> {
        let pcm = speech::pcm(FRAMES / 50);
        let browser = speech::encode_as_browser(&pcm)?;
        let mut voice = Voice {
            pcm,
            browser,
            device: Vec::new(),
        };
        let mut encoder = Encoder::new(16_000, EncoderSettings::default())?;
        for frame in voice.at(16_000).chunks_exact(320) {
            let mut packet = vec![0; 1_275];
            let bytes = encoder.encode(frame, &mut packet)?;
            packet.truncate(bytes);
            voice.device.push(packet);
        }
        Ok(voice)
    }

    /// Returns the samples at this rate.
    pub fn at(&self, rate_hz: u32) -> Vec<i16> {
        if rate_hz == RATE_HZ {
            return self.pcm.clone();
        }
        let mut pcm = Vec::new();
        Resampler::new(RATE_HZ, rate_hz).process(&self.pcm, &mut pcm);
        pcm.resize(FRAMES * rate_hz as usize / 50, 0);
        pcm
    }

    /// Returns samples, then packets with length prefixes; all little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        for packet in self.browser.iter().chain(&self.device) {
            bytes.extend((packet.len() as u16).to_le_bytes());
            bytes.extend(packet);
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Voice> {
        let (samples, mut rest) = bytes.split_at_checked(FRAMES * RATE_HZ as usize / 50 * 2)?;
        let pcm = samples.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]]));
        let mut packets = Vec::new();
        while let Some((length, tail)) = rest.split_first_chunk::<2>() {
            let (packet, tail) = tail.split_at_checked(u16::from_le_bytes(*length).into())?;
            packets.push(packet.to_vec());
            rest = tail;
        }
        (packets.len() == 2 * FRAMES).then(|| Voice {
            pcm: pcm.collect(),
            device: packets.split_off(FRAMES),
            browser: packets,
        })
    }
}
