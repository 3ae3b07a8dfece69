//! The codec of the crate `opus-pure`: Rust alone, so that a build from source needs no CMake. The
//! rates avoid two of its defects: permanent noise from an encoder at 48 kHz, aliases below it.

use opus_pure::{Application, Bandwidth, OpusDecoder, OpusEncoder, Signal};

use super::{EncoderSettings, FULL_HZ, OpusError};

/// Whether packets with content above 8 kHz must be decoded at 48 kHz: at lower rates it aliases.
pub(super) const MUST_WIDEN: bool = true;

/// The decoding rate for a bot at 16 kHz while no packet has content above 8 kHz, as from
/// microcontrollers and many others: a third of the cost, and no resampling.
const NARROW_HZ: u32 = 16_000;

pub(super) fn name() -> &'static str {
    "opus-pure 0.2.2"
}

/// Returns the rate at which to decode for an output of `rate_hz`.
pub(super) fn decoding_rate_hz(rate_hz: u32) -> u32 {
    if rate_hz == NARROW_HZ { NARROW_HZ } else { FULL_HZ }
}

/// The encoder for one channel of speech.
pub(super) struct PureEncoder(OpusEncoder);

impl PureEncoder {
    pub(super) fn new(rate_hz: u32) -> Result<Self, OpusError> {
        let mut codec = OpusEncoder::new(rate_hz as i32, 1, Application::Voip).map_err(|_| OpusError::Codec)?;
        codec.signal_type = Some(Signal::Voice);
        codec.use_dtx = false;
        Ok(Self(codec))
    }

    /// Applies settings that are within their ranges.
    pub(super) fn configure(&mut self, settings: EncoderSettings) -> Result<(), OpusError> {
        self.0.bitrate_bps = settings.bitrate_bps as i32;
        self.0.complexity = i32::from(settings.complexity);
        self.0.use_inband_fec = settings.expected_loss_percent > 0;
        self.0.packet_loss_perc = i32::from(settings.expected_loss_percent);
        Ok(())
    }

    pub(super) fn limit_to_wideband(&mut self, wideband: bool) {
        self.0.max_bandwidth = if wideband {
            Bandwidth::Wideband
        } else {
            Bandwidth::Fullband
        };
    }

    pub(super) fn encode(&mut self, pcm: &[i16], out: &mut [u8]) -> Result<usize, OpusError> {
        self.0.encode_s16(pcm, pcm.len(), out).map_err(|_| OpusError::Codec)
    }
}

/// The decoder to one channel. Each method fills `out`.
pub(super) struct PureDecoder(OpusDecoder);

impl PureDecoder {
    pub(super) fn new(rate_hz: u32) -> Result<Self, OpusError> {
        OpusDecoder::new(rate_hz as i32, 1)
            .map(Self)
            .map_err(|_| OpusError::Codec)
    }

    pub(super) fn decode(&mut self, packet: &[u8], out: &mut [i16]) -> Result<(), OpusError> {
        let decoded = self.0.decode_s16(packet, out.len(), out);
        decoded.map(drop).map_err(|_| OpusError::Codec)
    }

    pub(super) fn decode_fec(&mut self, next_packet: &[u8], out: &mut [i16]) -> Result<(), OpusError> {
        let decoded = self.0.decode_fec_s16(next_packet, out.len(), out);
        decoded.map(drop).map_err(|_| OpusError::Codec)
    }

    pub(super) fn conceal(&mut self, out: &mut [i16]) -> Result<(), OpusError> {
        self.decode(&[], out)
    }
}
