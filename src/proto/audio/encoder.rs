//! Encodes the bot's speech, and skips encoding during silence.
//!
//! In: 20 ms frames of `i16` mono PCM, and whether a frame is digital silence. Out: one packet per
//! frame. Encoding silence with Opus costs as much as speech, and a bot is silent most of the time.
//! After `SILENT_FRAMES_ENCODED` silent frames, the codec and its memory are dropped and the last
//! packet is repeated. It decodes to silence (each sample within -1 and 1), and a new codec
//! continues without an audible difference. Unlike DTX, a packet leaves every 20 ms.

use crate::audio::codec::{Codec, G711_HZ};
use crate::audio::g711::Law;
use crate::audio::opus::{Encoder, EncoderSettings, OpusError};
use crate::limits::OPUS_PACKET_BYTES_MAX;

/// Silent frames that are encoded before the last packet is repeated: by then, the decoder of a
/// device has settled.
const SILENT_FRAMES_ENCODED: u32 = 35;

/// Bytes of 20 ms of G.711.
const G711_FRAME: usize = G711_HZ as usize / 50;

/// The encoder of one outgoing stream. Opus is boxed: it is many times larger than G.711.
pub enum SpeechEncoder {
    Opus(Box<OpusSpeech>),
    G711 { law: Law, packet: [u8; G711_FRAME] },
}

impl SpeechEncoder {
    /// Creates an encoder for PCM at `rate_hz`, which is that of [`Codec::encoder_rate_hz`];
    /// `limit_to_wideband` limits the band to 8 kHz.
    ///
    /// # Errors
    /// Returns the errors of [`Encoder::new`].
    pub fn new(
        codec: Codec,
        rate_hz: u32,
        settings: EncoderSettings,
        limit_to_wideband: bool,
    ) -> Result<Self, OpusError> {
        Ok(match codec {
            Codec::Opus => SpeechEncoder::Opus(Box::new(OpusSpeech::new(rate_hz, settings, limit_to_wideband)?)),
            Codec::G711(law) => SpeechEncoder::G711 {
                law,
                packet: [0; G711_FRAME],
            },
        })
    }

    /// Encodes 20 ms; `is_silent` states that every sample is zero. The packet is valid until the
    /// next call.
    ///
    /// # Errors
    /// Returns an error for a frame that is not 20 ms long at the codec's rate.
    pub fn encode(&mut self, pcm: &[i16], is_silent: bool) -> Result<&[u8], OpusError> {
        match self {
            SpeechEncoder::Opus(speech) => speech.encode(pcm, is_silent),
            SpeechEncoder::G711 { law, packet } if pcm.len() == G711_FRAME => {
                law.encode(pcm, packet);
                Ok(packet)
            }
            SpeechEncoder::G711 { .. } => Err(OpusError::FrameLength {
                samples: pcm.len(),
                wanted: G711_FRAME,
            }),
        }
    }
}

/// An Opus encoder that is dropped during a long silence.
pub struct OpusSpeech {
    rate_hz: u32,
    settings: EncoderSettings,
    limit_to_wideband: bool,
    /// `None` during a long silence.
    codec: Option<Encoder>,
    packet: [u8; OPUS_PACKET_BYTES_MAX],
    bytes: usize,
    /// Consecutive silent frames.
    silent: u32,
}

impl OpusSpeech {
    fn new(rate_hz: u32, settings: EncoderSettings, limit_to_wideband: bool) -> Result<Self, OpusError> {
        let codec = Some(codec(rate_hz, settings, limit_to_wideband)?);
        let packet = [0; OPUS_PACKET_BYTES_MAX];
        Ok(Self {
            rate_hz,
            settings,
            limit_to_wideband,
            codec,
            packet,
            bytes: 0,
            silent: 0,
        })
    }

    fn encode(&mut self, pcm: &[i16], is_silent: bool) -> Result<&[u8], OpusError> {
        self.silent = if is_silent { self.silent.saturating_add(1) } else { 0 };
        if self.silent > SILENT_FRAMES_ENCODED {
            self.codec = None;
        } else {
            let codec = match &mut self.codec {
                Some(codec) => codec,
                None => self
                    .codec
                    .insert(codec(self.rate_hz, self.settings, self.limit_to_wideband)?),
            };
            self.bytes = codec.encode(pcm, &mut self.packet)?;
        }
        Ok(&self.packet[..self.bytes])
    }
}

fn codec(rate_hz: u32, settings: EncoderSettings, limit_to_wideband: bool) -> Result<Encoder, OpusError> {
    let mut codec = Encoder::new(rate_hz, settings)?;
    codec.limit_to_wideband(limit_to_wideband);
    Ok(codec)
}

#[cfg(test)]
mod tests;
