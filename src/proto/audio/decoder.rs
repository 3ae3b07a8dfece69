//! Decodes the packets of a caller, and conceals lost ones.
//!
//! In: RTP payloads in order. Out: `i16` mono PCM at the rate that the bot requested. Any byte is
//! valid G.711. A lost G.711 packet is replaced by the packet before it, reversed so that the
//! waveform is continuous, and attenuated by half with each further loss.

use crate::audio::codec::{Codec, G711_HZ};
use crate::audio::g711::Law;
use crate::audio::opus::{self, OpusError};
use crate::audio::resample::Resampler;
use crate::limits::RATES_HZ;

/// The decoder of one incoming stream. Both variants are boxed, since a session has only one.
pub enum AudioDecoder {
    Opus(Box<opus::Decoder>),
    G711(Box<G711Decoder>),
}

impl AudioDecoder {
    /// Creates a decoder for PCM at `rate_hz`.
    ///
    /// # Errors
    /// Returns an error for a rate outside [`RATES_HZ`].
    pub fn new(codec: Codec, rate_hz: u32) -> Result<Self, OpusError> {
        Ok(match codec {
            Codec::Opus => AudioDecoder::Opus(Box::new(opus::Decoder::new(rate_hz)?)),
            Codec::G711(law) => AudioDecoder::G711(Box::new(G711Decoder::new(law, rate_hz)?)),
        })
    }

    /// Returns the rate of the PCM output, in hertz.
    pub fn rate_hz(&self) -> u32 {
        match self {
            AudioDecoder::Opus(decoder) => decoder.rate_hz(),
            AudioDecoder::G711(decoder) => decoder.rate_hz,
        }
    }

    /// Decodes the next packet.
    ///
    /// # Errors
    /// Returns an error for bytes that are not a packet of the codec.
    pub fn decode(&mut self, packet: &[u8]) -> Result<&[i16], OpusError> {
        match self {
            AudioDecoder::Opus(decoder) => decoder.decode(packet),
            AudioDecoder::G711(decoder) => Ok(decoder.decode(packet)),
        }
    }

    /// Recovers the packet lost just before `next_packet`, or conceals it.
    ///
    /// # Errors
    /// Returns the errors of [`AudioDecoder::decode`].
    pub fn decode_fec(&mut self, next_packet: &[u8]) -> Result<&[i16], OpusError> {
        match self {
            AudioDecoder::Opus(decoder) => decoder.decode_fec(next_packet),
            AudioDecoder::G711(decoder) => Ok(decoder.conceal()),
        }
    }

    /// Conceals one lost packet with audio of the length of the packet before it.
    ///
    /// # Errors
    /// Returns an error if the codec fails internally.
    pub fn conceal(&mut self) -> Result<&[i16], OpusError> {
        match self {
            AudioDecoder::Opus(decoder) => decoder.conceal(),
            AudioDecoder::G711(decoder) => Ok(decoder.conceal()),
        }
    }
}

/// Decodes G.711.
pub struct G711Decoder {
    law: Law,
    rate_hz: u32,
    resampler: Option<Resampler>,
    /// The last packet at the codec's rate, reversed once for each packet lost since.
    decoded: Vec<i16>,
    lost: u32,
    faded: Vec<i16>,
    resampled: Vec<i16>,
}

impl G711Decoder {
    fn new(law: Law, rate_hz: u32) -> Result<Self, OpusError> {
        if !RATES_HZ.contains(&rate_hz) {
            return Err(OpusError::DecoderRate { rate_hz });
        }
        Ok(Self {
            law,
            rate_hz,
            resampler: (rate_hz != G711_HZ).then(|| Resampler::new(G711_HZ, rate_hz)),
            decoded: Vec::new(),
            lost: 0,
            faded: Vec::new(),
            resampled: Vec::new(),
        })
    }

    fn decode(&mut self, packet: &[u8]) -> &[i16] {
        self.decoded.clear();
        self.law.decode(packet, &mut self.decoded);
        self.lost = 0;
        resampled(&mut self.resampler, &self.decoded, &mut self.resampled)
    }

    fn conceal(&mut self) -> &[i16] {
        self.decoded.reverse();
        let halved = self.lost.min(15);
        self.lost = halved + 1;
        let whole = 2 * self.decoded.len() as i32;
        // The gain falls from full to half along the packet.
        let fade = |(sample, past)| ((i32::from(sample) * (whole - past) / whole) >> halved) as i16;
        self.faded.clear();
        self.faded.extend(self.decoded.iter().copied().zip(0..).map(fade));
        resampled(&mut self.resampler, &self.faded, &mut self.resampled)
    }
}

/// Resamples PCM to the requested rate.
fn resampled<'a>(resampler: &mut Option<Resampler>, pcm: &'a [i16], memory: &'a mut Vec<i16>) -> &'a [i16] {
    let Some(resampler) = resampler else {
        return pcm;
    };
    memory.clear();
    resampler.process(pcm, memory);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::tone::{Tone, share};

    fn packets(law: Law, ms: usize, count: usize) -> Vec<Vec<u8>> {
        let mut tone = Tone::new(440.0, G711_HZ);
        (0..count)
            .map(|_| {
                let mut block = vec![0; 8 * ms];
                law.encode(&tone.take(8 * ms), &mut block);
                block
            })
            .collect()
    }

    /// Packets of every usual length yield the same length of PCM at every rate, with the same
    /// tone.
    #[test]
    fn decodes_packets_of_any_length_at_any_rate() {
        for law in [Law::Mu, Law::A] {
            for rate_hz in [8_000, 11_025, 16_000, 24_000, 48_000] {
                for ms in [10, 20, 30, 60] {
                    let mut decoder = AudioDecoder::new(Codec::G711(law), rate_hz).unwrap();
                    let mut pcm = Vec::new();
                    for packet in packets(law, ms, 600 / ms) {
                        pcm.extend_from_slice(decoder.decode(&packet).unwrap());
                    }
                    let whole = rate_hz as usize * 600 / 1000;
                    assert!(pcm.len().abs_diff(whole) <= 1, "{rate_hz} Hz, {ms} ms: {}", pcm.len());
                    let got = share(&pcm[whole / 4..], 440.0, rate_hz);
                    assert!(got > 0.95, "{rate_hz} Hz, {ms} ms: {got}");
                }
            }
        }
    }

    /// Concealment is as long as the packet before it, starts at its last sample, and fades out.
    #[test]
    fn conceals_a_lost_g711_packet_with_a_fading_echo() {
        let mut decoder = AudioDecoder::new(Codec::G711(Law::Mu), 8_000).unwrap();
        assert_eq!(decoder.conceal().unwrap(), [0; 0], "nothing to make it from");
        let mut before = Vec::new();
        for packet in packets(Law::Mu, 20, 5) {
            before = decoder.decode(&packet).unwrap().to_vec();
        }
        let loudest = |pcm: &[i16]| pcm.iter().map(|sample| sample.unsigned_abs()).max().unwrap();
        let whole = loudest(&before);
        for lost in 0..5 {
            let made_up = decoder.conceal().unwrap().to_vec();
            assert_eq!(made_up.len(), 160);
            let jump = made_up[0].abs_diff(before[159]);
            assert!(jump <= whole / 50, "{jump} of {whole}");
            let (begin, end) = (loudest(&made_up[..20]), loudest(&made_up[140..]));
            assert!(
                begin > (whole >> lost) * 8 / 10,
                "{begin} of {whole}, {lost} lost before"
            );
            assert!(end < (whole >> lost) * 6 / 10, "{end} of {whole}, {lost} lost before");
            before = made_up;
        }
    }

    /// The loudest samples of the code stay within `i16`.
    #[test]
    fn concealment_of_loud_packets_does_not_overflow() {
        for (law, byte) in [(Law::Mu, 0x00), (Law::Mu, 0x80), (Law::A, 0x2a), (Law::A, 0xaa)] {
            let mut decoder = AudioDecoder::new(Codec::G711(law), 8_000).unwrap();
            let before = decoder.decode(&[byte; 1_500]).unwrap()[0];
            let made_up = decoder.decode_fec(&[]).unwrap();
            assert!(made_up.iter().all(|sample| sample.signum() == before.signum()));
            assert!(made_up[1_499].unsigned_abs().abs_diff(before.unsigned_abs() / 2) < 20);
        }
    }

    #[test]
    fn rejects_rates_out_of_range() {
        for codec in Codec::ALL {
            assert!(AudioDecoder::new(codec, 7_999).is_err() && AudioDecoder::new(codec, 48_001).is_err());
        }
    }
}
