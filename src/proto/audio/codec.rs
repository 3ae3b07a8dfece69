//! The codecs of WebRTC calls: Opus, and both laws of G.711 for clients without Opus.
//!
//! In: nothing, or the payload of one RTP packet. Out: the properties of a codec that SDP, jitter
//! buffer and packetiser need: names, clock rates, durations. The codecs themselves are in `opus`
//! and `g711`. Source: RFC 7874 section 3 (mandatory codecs), RFC 7587 (Opus in RTP), RFC 3551
//! section 4.5.14 (PCMA and PCMU).

use std::fmt;

use crate::audio::g711::Law;
use crate::audio::{CODEC_NAMES, opus};

/// The codec of a connection, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    Opus,
    /// G.711 at 8 kHz.
    G711(Law),
}

impl Codec {
    /// All supported codecs, the preferred one first.
    pub const ALL: [Codec; CODEC_NAMES.len()] = [Codec::Opus, Codec::G711(Law::Mu), Codec::G711(Law::A)];

    /// Returns the name of the encoding as in `a=rtpmap`.
    pub fn name(self) -> &'static str {
        let [opus, pcmu, pcma] = CODEC_NAMES;
        match self {
            Codec::Opus => opus,
            Codec::G711(Law::Mu) => pcmu,
            Codec::G711(Law::A) => pcma,
        }
    }

    /// Returns the encoding as in `a=rtpmap`: the name, the clock, and channels if there are two.
    pub fn encoding(self) -> &'static str {
        match self {
            // RFC 7587 section 7: always these numbers.
            Codec::Opus => "opus/48000/2",
            Codec::G711(Law::Mu) => "PCMU/8000",
            Codec::G711(Law::A) => "PCMA/8000",
        }
    }

    /// Returns the payload type that needs no `a=rtpmap`, by RFC 3551 section 6.
    pub fn static_payload_type(self) -> Option<u8> {
        match self {
            Codec::Opus => None,
            Codec::G711(Law::Mu) => Some(0),
            Codec::G711(Law::A) => Some(8),
        }
    }

    /// Returns the rate of the RTP clock in hertz.
    pub fn clock_hz(self) -> u32 {
        match self {
            Codec::Opus => opus::RTP_CLOCK_HZ,
            Codec::G711(_) => G711_HZ,
        }
    }

    /// Returns the rate at which PCM of `rate_hz` is encoded.
    pub fn encoder_rate_hz(self, rate_hz: u32) -> u32 {
        match self {
            Codec::Opus => opus::encoder_rate_hz(rate_hz),
            Codec::G711(_) => G711_HZ,
        }
    }

    /// Returns the duration of a packet in ticks of the RTP clock; `None` for an invalid packet.
    pub fn packet_ticks(self, packet: &[u8]) -> Option<u32> {
        match self {
            Codec::Opus => opus::packet_ticks(packet),
            // One byte is one sample and one tick.
            Codec::G711(_) => u32::try_from(packet.len()).ok().filter(|ticks| *ticks > 0),
        }
    }

    /// Returns whether a packet carries in-band FEC (LBRR) for the previous packet.
    pub fn has_fec(self, packet: &[u8]) -> bool {
        self == Codec::Opus && opus::has_fec(packet)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Sample rate and RTP clock of G.711, in hertz.
pub const G711_HZ: u32 = 8_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_of_g711_is_one_tick() {
        for codec in [Codec::G711(Law::Mu), Codec::G711(Law::A)] {
            for ms in [10, 20, 30, 40, 60] {
                assert_eq!(codec.packet_ticks(&vec![0xff; 8 * ms]), Some(8 * ms as u32));
            }
            assert_eq!(codec.packet_ticks(&[]), None);
            // These bytes announce an FEC copy in Opus and are samples in G.711.
            assert!(!codec.has_fec(&[9 << 3, 0x40]) && Codec::Opus.has_fec(&[9 << 3, 0x40]));
            assert_eq!((codec.clock_hz(), codec.encoder_rate_hz(24_000)), (8_000, 8_000));
        }
    }

    #[test]
    fn names_are_those_of_the_iana_registry() {
        assert_eq!(Codec::ALL.map(Codec::name), ["Opus", "PCMU", "PCMA"]);
        assert_eq!(Codec::G711(Law::A).to_string(), "PCMA");
        for codec in Codec::ALL {
            let head = format!("{codec}/{}", codec.clock_hz());
            let channels = codec.encoding().get(head.len()..).expect("ASCII");
            assert!(codec.encoding()[..head.len()].eq_ignore_ascii_case(&head), "{codec}");
            assert_eq!(channels, if codec == Codec::Opus { "/2" } else { "" });
        }
    }
}
