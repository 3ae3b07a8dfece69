//! Warns once about received audio that cannot be used, and about audio that does not come.
//!
//! In: the payload type of each RTP packet of a connected peer, each packet that was used, and
//! whether the peer has agreed to send. Out: [`UnusableAudio::poll_warning`] and
//! [`AwaitedAudio::poll_warning`], each at most once per connection.

use std::time::{Duration, Instant};

use crate::limits::CALL_DEAF_AFTER;

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

/// The first packet of a peer that has agreed to send audio.
#[derive(Debug, Default)]
pub struct AwaitedAudio {
    due: Option<Instant>,
    /// A packet has come, or its absence was reported.
    is_done: bool,
    #[cfg(test)]
    is_reported: bool,
}

impl AwaitedAudio {
    /// Records a packet.
    pub fn handle_packet(&mut self) {
        *self = AwaitedAudio {
            is_done: true,
            ..AwaitedAudio::default()
        };
    }

    /// Returns when to call [`AwaitedAudio::poll_warning`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the warning when it is due. `is_agreed` tells whether the peer may send now.
    pub fn poll_warning(&mut self, is_agreed: bool, now: Instant) -> Option<String> {
        if self.is_done || !is_agreed {
            self.due = None;
            return None;
        }
        if now < *self.due.get_or_insert(now + CALL_DEAF_AFTER) {
            return None;
        }
        self.handle_packet();
        #[cfg(test)]
        {
            self.is_reported = true;
        }
        let seconds = CALL_DEAF_AFTER.as_secs();
        Some(format!(
            "the bot is deaf: the caller has agreed to send sound, and not one packet of it came in {seconds} s; is its \
             microphone on, and part of the connection?"
        ))
    }

    #[cfg(test)]
    pub fn is_reported(&self) -> bool {
        self.is_reported
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

    /// Holding the call, or only listening, begins the time anew.
    #[test]
    fn audio_that_does_not_come_is_reported_once() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut awaited = AwaitedAudio::default();
        assert_eq!(awaited.poll_warning(true, start), None);
        assert_eq!(awaited.poll_timeout(), Some(start + CALL_DEAF_AFTER));
        assert_eq!(awaited.poll_warning(false, start + 4 * second), None);
        assert_eq!(awaited.poll_warning(true, start + 60 * second), None);
        assert_eq!(awaited.poll_warning(true, start + 64 * second), None);
        let warning = awaited.poll_warning(true, start + 65 * second).expect("a warning");
        assert!(warning.contains("not one packet"), "{warning}");
        assert_eq!(awaited.poll_warning(true, start + 99 * second), None);
        let mut present = AwaitedAudio::default();
        assert_eq!(present.poll_warning(true, start), None);
        present.handle_packet();
        assert_eq!(
            (present.poll_timeout(), present.poll_warning(true, start + 9 * second)),
            (None, None)
        );
    }
}
