//! Warns once about received audio that cannot be used.
//!
//! In: the payload type of each RTP packet of a connected peer, and each packet that was used. Out:
//! [`UnusableAudio::poll_warning`], at most once per connection.

use std::time::{Duration, Instant};

/// How long unusable packets arrive before the warning. A muted client sends none, and losses are
/// shorter.
const UNUSABLE_FOR: Duration = Duration::from_secs(3);
/// The least number of packets: half of what a client sends in that time.
const UNUSABLE_PACKETS_MIN: u32 = 75;

/// The packets since the last usable one.
#[derive(Debug, Default)]
pub struct UnusableAudio {
    since: Option<Instant>,
    packets: u32,
    payload_type: u8,
    /// The last packet's header extension is longer than the packet.
    is_cut_off: bool,
    reported: bool,
}

impl UnusableAudio {
    /// Records a received packet.
    pub fn handle_packet(&mut self, payload_type: u8, is_cut_off: bool, now: Instant) {
        self.since.get_or_insert(now);
        self.packets = self.packets.saturating_add(1);
        self.payload_type = payload_type;
        self.is_cut_off = is_cut_off;
    }

    /// Records a used packet.
    pub fn handle_used(&mut self) {
        self.since = None;
        self.packets = 0;
    }

    #[cfg(test)]
    pub fn is_reported(&self) -> bool {
        self.reported
    }

    /// Returns the warning when it is due. `expected` is the negotiated payload type.
    pub fn poll_warning(&mut self, expected: Option<u8>, now: Instant) -> Option<String> {
        let for_long = self.since.is_some_and(|since| now >= since + UNUSABLE_FOR);
        if self.reported || !for_long || self.packets < UNUSABLE_PACKETS_MIN {
            return None;
        }
        self.reported = true;
        let (packets, seconds, came) = (self.packets, UNUSABLE_FOR.as_secs(), self.payload_type);
        let why = match expected {
            None => "the call has no audio any more".to_owned(),
            Some(expected) if expected != came => {
                format!(
                    "they have payload type {came}, and the call's is {expected}: the client has to send what was answered"
                )
            }
            Some(_) if self.is_cut_off => "their header extension is longer than the packet".to_owned(),
            Some(_) => "none was sealed with the keys of this call, or all are older than what came before".to_owned(),
        };
        Some(format!(
            "the bot is deaf: {packets} packets of sound came in {seconds} s and none could be used; {why}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds packets every 20 ms; every `used`th is used.
    fn warnings(packets: u32, used: u32, payload_type: u8) -> Vec<String> {
        warnings_with(packets, used, payload_type, false)
    }

    fn warnings_with(packets: u32, used: u32, payload_type: u8, is_cut_off: bool) -> Vec<String> {
        let (mut audio, start) = (UnusableAudio::default(), Instant::now());
        let words = (0..packets).filter_map(|n| {
            let now = start + n * Duration::from_millis(20);
            audio.handle_packet(payload_type, is_cut_off, now);
            if used > 0 && n % used == 0 {
                audio.handle_used();
            }
            audio.poll_warning(Some(111), now)
        });
        words.collect()
    }

    #[test]
    fn unusable_audio_is_reported_once() {
        let said = warnings(1_000, 0, 96);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("payload type 96") && said[0].contains("111"),
            "{said:?}"
        );
        assert!(warnings(1_000, 0, 111)[0].contains("keys"));
        let cut_off = warnings_with(1_000, 0, 111, true);
        assert!(
            cut_off[0].contains("header extension") && !cut_off[0].contains("keys"),
            "{cut_off:?}"
        );
        assert_eq!(warnings(150, 0, 96).len(), 0, "a moment is none");
        assert_eq!(
            warnings(1_000, 100, 96).len(),
            0,
            "usable packets now and then are enough"
        );
    }
}
