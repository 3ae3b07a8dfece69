//! Opus, mono: PCM in and packets out ([`Encoder`]), packets in and PCM out ([`Decoder`]).
//!
//! The encoder takes `i16` at 8, 12, 16 or 24 kHz, exactly 20 ms at a time, and writes one packet:
//! VOIP mode, in-band FEC, and never DTX (a microcontroller keeps its microphone shut during DTX
//! noise). The decoder takes any packet of RFC 6716, up to 120 ms and also stereo, which it mixes
//! down, and gives `i16` at any rate of `limits::RATES_HZ`. Refused: other rates, other frame
//! lengths, packets that do not parse. A refused packet leaves the decoder usable. Source: RFC 6716
//! (packets: section 3), RFC 7587 (RTP). The codec itself is the crate `opus-pure`; two of its
//! faults are kept out here, by the rates of the encoder and by the one rate at which the decoder
//! runs.

use std::fmt;

use opus_pure::{Application, Bandwidth, OpusDecoder, OpusEncoder, Signal};

use crate::audio::resample::Resampler;
use crate::limits::{
    OPUS_COMPLEXITY_DEFAULT, OPUS_COMPLEXITY_MAX, OPUS_PACKET_BYTES_MAX, OPUS_RECEIVED_BYTES_MAX, RATES_HZ,
};

/// The rates at which the encoder takes PCM, in hertz. Not 48 kHz: there the codec turns digital
/// silence into noise of a few units for ever, which keeps a microcontroller's microphone shut.
pub const ENCODER_RATES_HZ: [u32; 4] = [8_000, 12_000, 16_000, 24_000];

/// The rate at which the codec decodes, in hertz. At a lower one it folds what lies above its band
/// back into it.
const DECODED_HZ: u32 = 48_000;

/// The rate at which it may decode as long as nothing lies above: a third of the cost, and no
/// change of the rate behind it.
const DECODED_NARROW_HZ: u32 = 16_000;

/// RTP clock of Opus in hertz, for every PCM rate (RFC 7587 section 4.1).
pub const RTP_CLOCK_HZ: u32 = 48_000;

/// Longest packet in RTP clock ticks: 120 ms.
pub const PACKET_TICKS_MAX: u32 = 5_760;

/// What an encoder is asked to do. The default is what a voice bot on a small board wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderSettings {
    /// Target in bits per second; 16,000 to 32,000 is plenty for one voice.
    pub bitrate_bps: u32,
    /// 0 (cheap) to 10 (best).
    pub complexity: u8,
    /// Loss to protect against with in-band FEC, 0 to 100; 0 switches FEC off.
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

/// Why the codec refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpusError {
    /// The codec has no such PCM rate.
    EncoderRate { rate_hz: u32 },
    /// The decoder gives no such rate.
    DecoderRate { rate_hz: u32 },
    /// A setting is out of its range.
    Settings(EncoderSettings),
    /// The PCM handed to the encoder is not 20 ms long.
    FrameLength { samples: usize, wanted: usize },
    /// The output buffer is smaller than [`OPUS_PACKET_BYTES_MAX`].
    OutputTooSmall { bytes: usize },
    /// The packet is empty, too long, or its framing contradicts RFC 6716.
    Packet { bytes: usize },
    /// The codec itself failed.
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

/// Encodes 20 ms frames of mono PCM.
pub struct Encoder {
    codec: OpusEncoder,
    frame_samples: usize,
}

impl Encoder {
    /// Makes an encoder for PCM at `rate_hz`.
    ///
    /// # Errors
    /// A rate outside [`ENCODER_RATES_HZ`], or settings out of range.
    pub fn new(rate_hz: u32, settings: EncoderSettings) -> Result<Self, OpusError> {
        if !ENCODER_RATES_HZ.contains(&rate_hz) {
            return Err(OpusError::EncoderRate { rate_hz });
        }
        let mut codec = OpusEncoder::new(rate_hz as i32, 1, Application::Voip).map_err(|_| OpusError::Codec)?;
        codec.signal_type = Some(Signal::Voice);
        codec.use_dtx = false;
        let mut encoder = Self {
            codec,
            frame_samples: rate_hz as usize / 50,
        };
        encoder.configure(settings)?;
        Ok(encoder)
    }

    /// Changes the settings from the next frame on.
    ///
    /// # Errors
    /// A setting out of range; the old settings stay in force.
    pub fn configure(&mut self, settings: EncoderSettings) -> Result<(), OpusError> {
        let EncoderSettings {
            bitrate_bps,
            complexity,
            expected_loss_percent,
        } = settings;
        if !(6_000..=64_000).contains(&bitrate_bps) || complexity > OPUS_COMPLEXITY_MAX || expected_loss_percent > 100 {
            return Err(OpusError::Settings(settings));
        }
        self.codec.bitrate_bps = bitrate_bps as i32;
        self.codec.complexity = i32::from(complexity);
        self.codec.use_inband_fec = expected_loss_percent > 0;
        self.codec.packet_loss_perc = i32::from(expected_loss_percent);
        Ok(())
    }

    /// Chooses whether nothing above 8 kHz is coded: what a microcontroller cannot play costs it
    /// decoding time.
    pub fn set_wideband(&mut self, wideband: bool) {
        self.codec.max_bandwidth = if wideband {
            Bandwidth::Wideband
        } else {
            Bandwidth::Fullband
        };
    }

    /// Samples in the 20 ms that [`encode`](Self::encode) takes.
    pub fn frame_samples(&self) -> usize {
        self.frame_samples
    }

    /// Encodes 20 ms and returns how many bytes of `out` the packet fills.
    ///
    /// # Errors
    /// `pcm` that is not 20 ms, `out` below [`OPUS_PACKET_BYTES_MAX`], or an error inside the
    /// codec.
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
        self.codec
            .encode_s16(pcm, self.frame_samples, out)
            .map_err(|_| OpusError::Codec)
    }
}

/// Decodes a stream of Opus packets to mono PCM, and fills in for packets that were lost.
pub struct Decoder {
    codec: OpusDecoder,
    /// The rate at which `codec` decodes, and the one that was asked for.
    codec_hz: u32,
    rate_hz: u32,
    resampler: Option<Resampler>,
    decoded: Vec<i16>,
    resampled: Vec<i16>,
    /// Duration of the last packet, hence the best guess for a lost one.
    packet_ticks: u32,
}

impl Decoder {
    /// Makes a decoder that gives PCM at `rate_hz`.
    ///
    /// # Errors
    /// A rate outside [`RATES_HZ`].
    pub fn new(rate_hz: u32) -> Result<Self, OpusError> {
        if !RATES_HZ.contains(&rate_hz) {
            return Err(OpusError::DecoderRate { rate_hz });
        }
        // A microcontroller, and much else, sends nothing above 8 kHz.
        let codec_hz = if rate_hz == DECODED_NARROW_HZ {
            DECODED_NARROW_HZ
        } else {
            DECODED_HZ
        };
        Ok(Self {
            codec: OpusDecoder::new(codec_hz as i32, 1).map_err(|_| OpusError::Codec)?,
            codec_hz,
            rate_hz,
            resampler: (rate_hz != codec_hz).then(|| Resampler::new(codec_hz, rate_hz)),
            decoded: Vec::new(),
            resampled: Vec::new(),
            packet_ticks: RTP_CLOCK_HZ / 50,
        })
    }

    /// Rate of the PCM that comes out, in hertz.
    pub fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    /// Decodes the packet that is next in order.
    ///
    /// # Errors
    /// Bytes that are not an Opus packet. The stream may go on with [`conceal`](Self::conceal) or
    /// the next packet.
    pub fn decode(&mut self, packet: &[u8]) -> Result<&[i16], OpusError> {
        let refused = OpusError::Packet { bytes: packet.len() };
        let ticks = packet_ticks(packet).ok_or(refused)?;
        if self.codec_hz < DECODED_HZ && is_wide(packet) {
            self.widen()?;
        }
        let samples = self.prepare(ticks);
        self.codec
            .decode_s16(packet, samples, &mut self.decoded)
            .map_err(|_| refused)?;
        self.packet_ticks = ticks;
        Ok(self.pcm())
    }

    /// Recovers the packet lost just before `next_packet` from the low-rate copy inside it, or
    /// conceals it when there is none. `next_packet` itself must then be given to
    /// [`decode`](Self::decode).
    ///
    /// # Errors
    /// `next_packet` is not an Opus packet.
    pub fn decode_fec(&mut self, next_packet: &[u8]) -> Result<&[i16], OpusError> {
        let refused = OpusError::Packet {
            bytes: next_packet.len(),
        };
        packet_ticks(next_packet).ok_or(refused)?;
        let samples = self.prepare(self.packet_ticks);
        self.codec
            .decode_fec_s16(next_packet, samples, &mut self.decoded)
            .map_err(|_| refused)?;
        Ok(self.pcm())
    }

    /// Makes up audio for one lost packet, as long as the packet before it.
    ///
    /// # Errors
    /// None that a caller can cause; the codec's error is passed on.
    pub fn conceal(&mut self) -> Result<&[i16], OpusError> {
        let samples = self.prepare(self.packet_ticks);
        self.codec
            .decode_s16(&[], samples, &mut self.decoded)
            .map_err(|_| OpusError::Codec)?;
        Ok(self.pcm())
    }

    /// Goes on with the rate that holds every packet. What the codec remembers is lost, once in a
    /// session.
    fn widen(&mut self) -> Result<(), OpusError> {
        self.codec = OpusDecoder::new(DECODED_HZ as i32, 1).map_err(|_| OpusError::Codec)?;
        self.codec_hz = DECODED_HZ;
        self.resampler = Some(Resampler::new(DECODED_HZ, self.rate_hz));
        Ok(())
    }

    /// Makes room for `ticks` of zeros: what the codec leaves out is silence, never an older frame.
    fn prepare(&mut self, ticks: u32) -> usize {
        let samples = (ticks / (RTP_CLOCK_HZ / self.codec_hz)) as usize;
        self.decoded.clear();
        self.decoded.resize(samples, 0);
        samples
    }

    /// Gives what was decoded at the rate that was asked for.
    fn pcm(&mut self) -> &[i16] {
        let Some(resampler) = &mut self.resampler else {
            return &self.decoded;
        };
        self.resampled.clear();
        resampler.process(&self.decoded, &mut self.resampled);
        &self.resampled
    }
}

/// Returns the rate at which PCM of `rate_hz` is best encoded: the next one up, or the highest
/// there is.
pub fn encoder_rate_hz(rate_hz: u32) -> u32 {
    ENCODER_RATES_HZ
        .into_iter()
        .find(|candidate| *candidate >= rate_hz)
        .unwrap_or(24_000)
}

/// Duration of a packet in RTP clock ticks (48 kHz) from its first bytes, or `None` when it cannot
/// be an Opus packet.
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

/// Tells whether a packet carries a low-rate copy of the packet before it (RFC 6716 section 4.2.4).
pub fn has_fec(packet: &[u8]) -> bool {
    let Some((&toc, rest)) = packet.split_first() else {
        return false;
    };
    if toc & 0x80 != 0 {
        return false; // CELT has no such copy
    }
    let header = match toc & 3 {
        0 | 1 => rest.first(),
        // Two frames of different sizes: the first one's size, in one byte or two, stands in
        // between.
        2 => rest.get(if rest.first().is_some_and(|size| *size >= 252) {
            2
        } else {
            1
        }),
        _ => return false, // several frames per packet: the copy would be of an older packet than the lost one
    };
    let Some(&header) = header else { return false };
    // One voice-activity bit per 20 ms of the frame stands before the bit that announces the copy.
    let activity_bits = (frame_ticks(toc) / 960).max(1);
    let middle = header & (0x80 >> activity_bits) != 0;
    let side = toc & 4 != 0 && header & (0x80 >> (2 * activity_bits + 1)) != 0;
    middle || side
}

/// Tells whether a packet codes anything above 8 kHz (RFC 6716 table 2: hybrid, and CELT of the two
/// upper bands).
fn is_wide(packet: &[u8]) -> bool {
    packet.first().is_some_and(|toc| matches!(toc >> 3, 12..16 | 24..32))
}

/// Ticks of one frame by the configuration in the packet's first byte (RFC 6716 table 2).
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
