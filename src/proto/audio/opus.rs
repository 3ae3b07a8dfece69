//! Opus, mono: PCM to packets ([`Encoder`]), packets to PCM ([`Decoder`]).
//!
//! The encoder takes `i16` at 8, 12, 16 or 24 kHz, exactly 20 ms at a time, and returns one packet:
//! VOIP mode, in-band FEC, no DTX (a microcontroller keeps its microphone muted during DTX noise).
//! The decoder takes any packet of RFC 6716, up to 120 ms, downmixes stereo, and returns `i16` at
//! any rate of `limits::RATES_HZ`. Other rates, other frame lengths and invalid packets are
//! rejected; the decoder stays usable. Source: RFC 6716 (packets: section 3), RFC 7587 (RTP).
//!
//! Two codecs serve: `reference` with the feature `libopus`, else `pure`. Both have `name`,
//! `decoding_rate_hz` and `MUST_WIDEN`, and an encoder and a decoder with the same methods. What
//! differs between them for callers of this module is cost, not behaviour.

use std::fmt;

use crate::audio::resample::Resampler;
use crate::limits::{
    OPUS_COMPLEXITY_DEFAULT, OPUS_COMPLEXITY_MAX, OPUS_PACKET_BYTES_MAX, OPUS_RECEIVED_BYTES_MAX, RATES_HZ,
};

cfg_if::cfg_if! {
    if #[cfg(feature = "libopus")] {
        // The tests compare the two.
        #[cfg(test)]
        #[expect(dead_code, reason = "a test uses a part")]
        mod pure;
        mod reference;

        use reference::{self as implementation, ReferenceDecoder as RawDecoder, ReferenceEncoder as RawEncoder};
    } else {
        mod pure;

        use pure::{self as implementation, PureDecoder as RawDecoder, PureEncoder as RawEncoder};
    }
}

/// PCM rates of the encoder, in hertz. At 48 kHz, `opus-pure` turns digital silence into permanent
/// noise of a few units, which keeps the microphone of a microcontroller muted.
pub const ENCODER_RATES_HZ: [u32; 4] = [8_000, 12_000, 16_000, 24_000];

/// The rate of the whole audible band, in hertz.
const FULL_HZ: u32 = 48_000;

/// RTP clock of Opus in hertz, for all PCM rates (RFC 7587 section 4.1).
pub const RTP_CLOCK_HZ: u32 = 48_000;

/// Duration of the longest packet, in RTP clock ticks: 120 ms.
pub const PACKET_TICKS_MAX: u32 = 5_760;

/// Settings of an encoder. The default suits a voice bot on a small board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderSettings {
    /// Target bit rate; 16,000 to 32,000 is enough for one voice.
    pub bitrate_bps: u32,
    /// Complexity, 0 (cheap) to 10 (best).
    pub complexity: u8,
    /// Packet loss to protect against with in-band FEC, 0 to 100; 0 disables FEC.
    pub expected_loss_percent: u8,
}

impl Default for EncoderSettings {
    fn default() -> Self {
        Self {
            bitrate_bps: 28_000,
            complexity: OPUS_COMPLEXITY_DEFAULT,
            expected_loss_percent: 10,
        }
    }
}

/// An error of the codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpusError {
    /// The encoder does not support the PCM rate.
    EncoderRate { rate_hz: u32 },
    /// The decoder does not support the PCM rate.
    DecoderRate { rate_hz: u32 },
    /// A setting is out of its range.
    Settings(EncoderSettings),
    /// The PCM is not 20 ms long.
    FrameLength { samples: usize, wanted: usize },
    /// The output buffer is smaller than [`OPUS_PACKET_BYTES_MAX`].
    OutputTooSmall { bytes: usize },
    /// The packet is empty, too long, or malformed by RFC 6716.
    Packet { bytes: usize },
    /// The codec failed internally.
    Codec,
}

impl fmt::Display for OpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EncoderRate { rate_hz } => write!(f, "no Opus from {rate_hz} Hz, only from {ENCODER_RATES_HZ:?}"),
            Self::DecoderRate { rate_hz } => write!(f, "no Opus to {rate_hz} Hz, only to {RATES_HZ:?}"),
            Self::Settings(s) => write!(f, "Opus settings out of range: {s:?}"),
            Self::FrameLength { samples, wanted } => write!(f, "a frame has {samples} samples, 20 ms are {wanted}"),
            Self::OutputTooSmall { bytes } => {
                write!(f, "room for {bytes} bytes, a packet may need {OPUS_PACKET_BYTES_MAX}")
            }
            Self::Packet { bytes } => write!(f, "{bytes} bytes that are not an Opus packet"),
            Self::Codec => f.write_str("the Opus codec failed"),
        }
    }
}

impl std::error::Error for OpusError {}

/// Returns the name and version of the codec.
pub fn codec_name() -> &'static str {
    implementation::name()
}

/// Encodes 20 ms frames of mono PCM.
pub struct Encoder {
    codec: RawEncoder,
    frame_samples: usize,
}

impl Encoder {
    /// Creates an encoder for PCM at `rate_hz`.
    ///
    /// # Errors
    /// Returns an error for a rate outside [`ENCODER_RATES_HZ`], or settings out of range.
    pub fn new(rate_hz: u32, settings: EncoderSettings) -> Result<Self, OpusError> {
        if !ENCODER_RATES_HZ.contains(&rate_hz) {
            return Err(OpusError::EncoderRate { rate_hz });
        }
        let mut encoder = Self {
            codec: RawEncoder::new(rate_hz)?,
            frame_samples: rate_hz as usize / 50,
        };
        encoder.configure(settings)?;
        Ok(encoder)
    }

    /// Applies settings from the next frame on.
    ///
    /// # Errors
    /// Returns an error for a setting out of range; the old settings remain.
    pub fn configure(&mut self, settings: EncoderSettings) -> Result<(), OpusError> {
        let EncoderSettings {
            bitrate_bps,
            complexity,
            expected_loss_percent,
        } = settings;
        if !(6_000..=64_000).contains(&bitrate_bps) || complexity > OPUS_COMPLEXITY_MAX || expected_loss_percent > 100 {
            return Err(OpusError::Settings(settings));
        }
        self.codec.configure(settings)
    }

    /// Limits the band to 8 kHz or lifts the limit: a microcontroller cannot play more, and decodes
    /// less in less time.
    pub fn limit_to_wideband(&mut self, wideband: bool) {
        self.codec.limit_to_wideband(wideband);
    }

    /// Returns the samples of 20 ms, the input of [`encode`](Self::encode).
    pub fn frame_samples(&self) -> usize {
        self.frame_samples
    }

    /// Encodes 20 ms and returns the length of the packet in `out`.
    ///
    /// # Errors
    /// Returns an error if `pcm` is not 20 ms, `out` is below [`OPUS_PACKET_BYTES_MAX`], or the
    /// codec fails.
    pub fn encode(&mut self, pcm: &[i16], out: &mut [u8]) -> Result<usize, OpusError> {
        if pcm.len() != self.frame_samples {
            return Err(OpusError::FrameLength {
                samples: pcm.len(),
                wanted: self.frame_samples,
            });
        }
        let bytes = out.len();
        let out = out
            .get_mut(..OPUS_PACKET_BYTES_MAX)
            .ok_or(OpusError::OutputTooSmall { bytes })?;
        self.codec.encode(pcm, out)
    }
}

/// Decodes a stream of Opus packets to mono PCM, and conceals lost packets.
pub struct Decoder {
    codec: RawDecoder,
    /// The rates of `codec` and of the output.
    codec_hz: u32,
    rate_hz: u32,
    resampler: Option<Resampler>,
    decoded: Vec<i16>,
    resampled: Vec<i16>,
    /// Duration of the last packet, the estimate for a lost one.
    packet_ticks: u32,
}

impl Decoder {
    /// Creates a decoder for PCM at `rate_hz`.
    ///
    /// # Errors
    /// Returns an error for a rate outside [`RATES_HZ`].
    pub fn new(rate_hz: u32) -> Result<Self, OpusError> {
        if !RATES_HZ.contains(&rate_hz) {
            return Err(OpusError::DecoderRate { rate_hz });
        }
        let codec_hz = implementation::decoding_rate_hz(rate_hz);
        Ok(Self {
            codec: RawDecoder::new(codec_hz)?,
            codec_hz,
            rate_hz,
            resampler: (rate_hz != codec_hz).then(|| Resampler::new(codec_hz, rate_hz)),
            decoded: Vec::new(),
            resampled: Vec::new(),
            packet_ticks: RTP_CLOCK_HZ / 50,
        })
    }

    /// Returns the rate of the PCM output, in hertz.
    pub fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    /// Decodes the next packet.
    ///
    /// # Errors
    /// Returns an error for bytes that are not an Opus packet. The stream can continue with
    /// [`conceal`](Self::conceal) or the next packet.
    pub fn decode(&mut self, packet: &[u8]) -> Result<&[i16], OpusError> {
        let refused = OpusError::Packet { bytes: packet.len() };
        let ticks = packet_ticks(packet).ok_or(refused)?;
        if implementation::MUST_WIDEN && self.codec_hz < FULL_HZ && is_wide(packet) {
            self.widen()?;
        }
        self.prepare(ticks);
        self.codec.decode(packet, &mut self.decoded).map_err(|_| refused)?;
        self.packet_ticks = ticks;
        Ok(self.pcm())
    }

    /// Recovers the packet lost just before `next_packet` from its FEC copy, or conceals the loss
    /// if there is none. The caller then passes `next_packet` to [`decode`](Self::decode).
    ///
    /// # Errors
    /// Returns an error if `next_packet` is not an Opus packet.
    pub fn decode_fec(&mut self, next_packet: &[u8]) -> Result<&[i16], OpusError> {
        let refused = OpusError::Packet {
            bytes: next_packet.len(),
        };
        packet_ticks(next_packet).ok_or(refused)?;
        self.prepare(self.packet_ticks);
        self.codec
            .decode_fec(next_packet, &mut self.decoded)
            .map_err(|_| refused)?;
        Ok(self.pcm())
    }

    /// Conceals one lost packet with audio of the length of the packet before it.
    ///
    /// # Errors
    /// Returns an error if the codec fails internally.
    pub fn conceal(&mut self) -> Result<&[i16], OpusError> {
        self.prepare(self.packet_ticks);
        self.codec.conceal(&mut self.decoded)?;
        Ok(self.pcm())
    }

    /// Switches to the full decoding rate. The decoder loses its state, at most once per session.
    fn widen(&mut self) -> Result<(), OpusError> {
        self.codec = RawDecoder::new(FULL_HZ)?;
        self.codec_hz = FULL_HZ;
        self.resampler = Some(Resampler::new(FULL_HZ, self.rate_hz));
        Ok(())
    }

    /// Clears the output for `ticks`, so that samples that the codec does not write are silence.
    fn prepare(&mut self, ticks: u32) {
        let samples = (ticks / (RTP_CLOCK_HZ / self.codec_hz)) as usize;
        self.decoded.clear();
        self.decoded.resize(samples, 0);
    }

    /// Returns the decoded PCM at the requested rate.
    fn pcm(&mut self) -> &[i16] {
        let Some(resampler) = &mut self.resampler else {
            return &self.decoded;
        };
        self.resampled.clear();
        resampler.process(&self.decoded, &mut self.resampled);
        &self.resampled
    }
}

/// Returns the encoder rate for PCM of `rate_hz`: the next higher one, or the highest.
pub fn encoder_rate_hz(rate_hz: u32) -> u32 {
    ENCODER_RATES_HZ
        .into_iter()
        .find(|candidate| *candidate >= rate_hz)
        .unwrap_or(24_000)
}

/// Returns the duration of a packet in RTP clock ticks (48 kHz) from its header; `None` if it is
/// not an Opus packet.
pub fn packet_ticks(packet: &[u8]) -> Option<u32> {
    let (&toc, rest) = packet.split_first()?;
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(rest.first()? & 0x3f),
    };
    let ticks = frames * frame_ticks(toc);
    (frames > 0 && ticks <= PACKET_TICKS_MAX && packet.len() <= OPUS_RECEIVED_BYTES_MAX).then_some(ticks)
}

/// Returns whether a packet carries an FEC copy of the packet before it (RFC 6716 section 4.2.4).
pub fn has_fec(packet: &[u8]) -> bool {
    let Some((&toc, rest)) = packet.split_first() else {
        return false;
    };
    if toc & 0x80 != 0 {
        return false; // CELT has no such copy
    }
    let header = match toc & 3 {
        0 | 1 => rest.first(),
        // The size of the first of two frames precedes them, in one byte or two.
        2 => rest.get(if rest.first().is_some_and(|size| *size >= 252) {
            2
        } else {
            1
        }),
        _ => return false, // several frames per packet: the copy would be of an older packet than the lost one
    };
    let Some(&header) = header else { return false };
    // One voice-activity bit per 20 ms of the frame precedes the FEC flag.
    let activity_bits = (frame_ticks(toc) / 960).max(1);
    let middle = header & (0x80 >> activity_bits) != 0;
    let side = toc & 4 != 0 && header & (0x80 >> (2 * activity_bits + 1)) != 0;
    middle || side
}

/// Returns whether a packet has content above 8 kHz (RFC 6716 table 2: hybrid, and CELT of the two
/// upper bands).
fn is_wide(packet: &[u8]) -> bool {
    packet.first().is_some_and(|toc| matches!(toc >> 3, 12..16 | 24..32))
}

/// Returns the ticks of one frame for the configuration in the first byte (RFC 6716 table 2).
fn frame_ticks(toc: u8) -> u32 {
    let config = toc >> 3;
    match config {
        0..12 => [480, 960, 1_920, 2_880][usize::from(config & 3)],
        12..16 => [480, 960][usize::from(config & 1)],
        _ => [120, 240, 480, 960][usize::from(config & 3)],
    }
}

#[cfg(test)]
mod tests;
