//! The reference codec, libopus in C, by the safe interface of the crate `opus`.

use opus::{Application, Bandwidth, Bitrate, Channels, Signal};

use super::{EncoderSettings, FULL_HZ, OpusError};

/// Whether packets with content above 8 kHz must be decoded at 48 kHz. It drops what a rate cannot
/// have.
pub(super) const MUST_WIDEN: bool = false;

/// The rates of its decoder, in hertz.
const RATES_HZ: [u32; 5] = [8_000, 12_000, 16_000, 24_000, FULL_HZ];

pub(super) fn name() -> &'static str {
    opus::version()
}

/// Returns the rate at which to decode for an output of `rate_hz`: the next higher one.
pub(super) fn decoding_rate_hz(rate_hz: u32) -> u32 {
    let higher = RATES_HZ.into_iter().find(|candidate| *candidate >= rate_hz);
    higher.unwrap_or(FULL_HZ)
}

/// The encoder for one channel of speech.
pub(super) struct ReferenceEncoder(opus::Encoder);

impl ReferenceEncoder {
    pub(super) fn new(rate_hz: u32) -> Result<Self, OpusError> {
        let mut codec = opus::Encoder::new(rate_hz, Channels::Mono, Application::Voip)?;
        codec.set_signal(Signal::Voice)?;
        codec.set_dtx(false)?;
        Ok(Self(codec))
    }

    /// Applies settings that are within their ranges.
    pub(super) fn configure(&mut self, settings: EncoderSettings) -> Result<(), OpusError> {
        self.0.set_bitrate(Bitrate::Bits(settings.bitrate_bps as i32))?;
        self.0.set_complexity(i32::from(settings.complexity))?;
        self.0.set_inband_fec(settings.expected_loss_percent > 0)?;
        self.0.set_packet_loss_perc(i32::from(settings.expected_loss_percent))?;
        Ok(())
    }

    pub(super) fn limit_to_wideband(&mut self, wideband: bool) {
        let widest = if wideband {
            Bandwidth::Wideband
        } else {
            Bandwidth::Fullband
        };
        // Fails for a bandwidth that does not exist.
        let _ = self.0.set_max_bandwidth(widest);
    }

    pub(super) fn encode(&mut self, pcm: &[i16], out: &mut [u8]) -> Result<usize, OpusError> {
        Ok(self.0.encode(pcm, out)?)
    }
}

/// The decoder to one channel. Each method fills `out`.
pub(super) struct ReferenceDecoder(opus::Decoder);

impl ReferenceDecoder {
    pub(super) fn new(rate_hz: u32) -> Result<Self, OpusError> {
        Ok(Self(opus::Decoder::new(rate_hz, Channels::Mono)?))
    }

    pub(super) fn decode(&mut self, packet: &[u8], out: &mut [i16]) -> Result<(), OpusError> {
        self.0.decode(packet, out, false)?;
        Ok(())
    }

    pub(super) fn decode_fec(&mut self, next_packet: &[u8], out: &mut [i16]) -> Result<(), OpusError> {
        self.0.decode(next_packet, out, true)?;
        Ok(())
    }

    pub(super) fn conceal(&mut self, out: &mut [i16]) -> Result<(), OpusError> {
        self.decode(&[], out)
    }
}

impl From<opus::Error> for OpusError {
    fn from(_: opus::Error) -> Self {
        Self::Codec
    }
}
