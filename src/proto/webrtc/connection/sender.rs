//! The outgoing audio: one RTP stream.
//!
//! In: encoded payloads, and their times in ticks of the codec's clock. Out: RTP packets, which
//! str0m encrypts and sends. Sources: RFC 3550 section 5.1, RFC 6464 (audio level).

use std::time::Instant;

use str0m::Rtc;
use str0m::media::{Mid, Pt};
use str0m::rtp::{ExtensionValues, RtpWrite};

/// The audio level of a packet, which SFUs use to detect speakers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AudioLevel {
    /// In -dBov: 0 is the loudest, 127 is silence.
    pub dbov_below: u8,
    pub is_speech: bool,
}

/// Sends one stream.
pub struct RtpSender {
    /// Known after negotiation.
    section: Option<(Mid, Pt)>,
    sequence: u64,
    /// The RTP timestamp at tick 0.
    timestamp: u32,
}

impl RtpSender {
    /// Creates a stream whose numbers start at random bits.
    pub fn new(seed: u64) -> Self {
        RtpSender {
            section: None,
            // A stream must start with a roll-over counter of 0, so the upper bits stay clear.
            sequence: seed & 0x7fff,
            timestamp: (seed >> 32) as u32,
        }
    }

    /// Sets the section and payload type of the stream.
    pub fn bind(&mut self, mid: Mid, payload_type: Option<Pt>) {
        self.section = payload_type.map(|payload_type| (mid, payload_type));
    }

    /// Returns the payload type, once it is known.
    pub fn payload_type(&self) -> Option<Pt> {
        self.section.map(|(_, payload_type)| payload_type)
    }

    /// Queues one payload of 20 ms at a position in ticks.
    pub fn send(&mut self, rtc: &mut Rtc, payload: &[u8], ticks: u64, level: Option<AudioLevel>, now: Instant) {
        let Some((mid, payload_type)) = self.section else {
            return;
        };
        // RTP timestamps are modulo 2^32.
        let timestamp = self.timestamp.wrapping_add(ticks as u32);
        let mut write = RtpWrite::new(payload_type, self.sequence.into(), timestamp, now, payload);
        if let Some(level) = level {
            write = write.ext_vals(ExtensionValues {
                // RFC 6464 has seven bits; str0m uses negative values.
                audio_level: Some(-level.dbov_below.min(127).cast_signed()),
                voice_activity: Some(level.is_speech),
                ..ExtensionValues::default()
            });
        }
        self.sequence += 1;
        if let Some(stream) = rtc.direct_api().stream_tx_by_mid(mid, None) {
            stream.write_rtp(write);
        }
    }

    /// Advances the sequence number as if `packets` had been sent.
    #[cfg(test)]
    pub fn skip_packets(&mut self, packets: u64) {
        self.sequence += packets;
    }
}
