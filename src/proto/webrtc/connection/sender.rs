//! The outgoing audio: one RTP stream.
//!
//! In: encoded payloads, and their times in ticks of the codec's clock. Out: RTP packets, which
//! str0m encrypts and sends. They are sent in the first section whose negotiated direction allows
//! it, and in none while the peer holds the call; the stream's clock goes on. Sources: RFC 3550
//! section 5.1, RFC 6464 (audio level), RFC 3264 section 8.4 (hold).

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
    /// The audio sections, once they are negotiated.
    sections: Vec<(Mid, Pt)>,
    sequence: u64,
    /// The RTP timestamp at tick 0.
    timestamp: u32,
}

impl RtpSender {
    /// Creates a stream whose numbers start at random bits.
    pub fn new(seed: u64) -> Self {
        RtpSender {
            sections: Vec::new(),
            // A stream must start with a roll-over counter of 0, so the upper bits stay clear.
            sequence: seed & 0x7fff,
            timestamp: (seed >> 32) as u32,
        }
    }

    /// Sets the only section and the payload type of the stream.
    pub fn bind(&mut self, mid: Mid, payload_type: Option<Pt>) {
        self.sections.clear();
        self.sections
            .extend(payload_type.map(|payload_type| (mid, payload_type)));
    }

    /// Adds a section in which the stream may be sent.
    pub fn add_section(&mut self, mid: Mid, payload_type: Pt) {
        self.sections.retain(|(known, _)| *known != mid);
        self.sections.push((mid, payload_type));
    }

    /// Returns the payload type of the first section, once it is known.
    pub fn payload_type(&self) -> Option<Pt> {
        self.sections.first().map(|(_, payload_type)| *payload_type)
    }

    /// Returns whether a section has this payload type.
    pub fn has_payload_type(&self, payload_type: Pt) -> bool {
        self.sections.iter().any(|(_, known)| *known == payload_type)
    }

    /// Returns the first section whose direction allows to send.
    fn open_section(&self, rtc: &Rtc) -> Option<(Mid, Pt)> {
        let may_send = |mid| rtc.media(mid).is_some_and(|media| media.direction().is_sending());
        self.sections.iter().copied().find(|(mid, _)| may_send(*mid))
    }

    /// Returns whether the peer accepts nothing in any section, RFC 3264 section 8.4.
    pub fn is_on_hold(&self, rtc: &Rtc) -> bool {
        !self.sections.is_empty() && self.open_section(rtc).is_none()
    }

    /// Returns whether the peer may send in one of the sections.
    pub fn may_receive(&self, rtc: &Rtc) -> bool {
        let may_receive = |mid| rtc.media(mid).is_some_and(|media| media.direction().is_receiving());
        self.sections.iter().any(|(mid, _)| may_receive(*mid))
    }

    /// Queues one payload of 20 ms at a position in ticks.
    pub fn send(&mut self, rtc: &mut Rtc, payload: &[u8], ticks: u64, level: Option<AudioLevel>, now: Instant) {
        let Some((mid, payload_type)) = self.open_section(rtc) else {
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
