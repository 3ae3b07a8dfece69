//! DTMF in RTP: reports each key press once, however many packets describe it.
//!
//! In: the RTP timestamp and payload of a telephone-event packet. Out: the digit, with the first
//! packet of its press. All packets of a press share one timestamp, and the last is sent three
//! times; a press longer than eight seconds continues under new timestamps. Packets older than the
//! last press are ignored, as are further events in a payload and events other than the twelve
//! keys. Source: RFC 4733 sections 2.3 and 2.5.

/// The digits, indexed by event number.
const DIGITS: &[u8; 12] = b"0123456789*#";

/// Tracks the last key press.
#[derive(Clone, Copy, Debug, Default)]
pub struct DtmfReceiver {
    last: Option<DtmfPress>,
}

#[derive(Clone, Copy, Debug)]
struct DtmfPress {
    event: u8,
    timestamp: u32,
    /// The reported duration in ticks.
    duration: u16,
    has_ended: bool,
}

impl DtmfReceiver {
    /// Handles a packet. Returns the digit if it starts a new press.
    pub fn handle_packet(&mut self, timestamp: u32, payload: &[u8]) -> Option<char> {
        let &[event, flags, high, low, ..] = payload else {
            return None;
        };
        let key = DIGITS.get(usize::from(event)).copied()?;
        let press = DtmfPress {
            event,
            timestamp,
            duration: u16::from_be_bytes([high, low]),
            has_ended: flags & 0x80 != 0,
        };
        let Some(last) = &mut self.last else {
            self.last = Some(press);
            return Some(key.into());
        };
        let ahead = timestamp.wrapping_sub(last.timestamp);
        if ahead == 0 {
            last.duration = last.duration.max(press.duration);
            last.has_ended |= press.has_ended;
            return None;
        }
        // A difference in the upper half means an older packet.
        if ahead > u32::MAX / 2 {
            return None;
        }
        let goes_on =
            !last.has_ended && last.event == event && last.duration == u16::MAX && ahead == u32::from(u16::MAX);
        self.last = Some(press);
        (!goes_on).then(|| key.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(event: u8, is_over: bool, duration: u16) -> [u8; 4] {
        let [high, low] = duration.to_be_bytes();
        [event, 10 | if is_over { 0x80 } else { 0 }, high, low]
    }

    /// a press is reported every 20 ms and its end three times, but counts once.
    #[test]
    fn a_key_press_is_reported_once() {
        let mut keys = DtmfReceiver::default();
        let mut pressed = Vec::new();
        for (event, timestamp) in [(5, 960), (5, 9_600), (10, 20_000), (11, 29_600)] {
            for n in 1..=4 {
                pressed.extend(keys.handle_packet(timestamp, &report(event, false, n * 160)));
            }
            for _ in 0..3 {
                pressed.extend(keys.handle_packet(timestamp, &report(event, true, 800)));
            }
        }
        assert_eq!(pressed, ['5', '5', '*', '#']);
        let all: Vec<char> = (0..12)
            .filter_map(|event| DtmfReceiver::default().handle_packet(0, &report(event, true, 1)))
            .collect();
        assert_eq!(all.iter().collect::<String>(), "0123456789*#");
    }

    #[test]
    fn lost_and_late_reports_change_nothing() {
        let mut keys = DtmfReceiver::default();
        assert_eq!(
            keys.handle_packet(1_000, &report(1, true, 800)),
            Some('1'),
            "only its end came"
        );
        assert_eq!(keys.handle_packet(5_000, &report(2, false, 160)), Some('2'));
        assert_eq!(keys.handle_packet(1_000, &report(1, true, 800)), None, "late");
        assert_eq!(keys.handle_packet(5_000, &report(2, true, 320)), None);
        // Across the wrap of the timestamp.
        let mut keys = DtmfReceiver::default();
        assert_eq!(keys.handle_packet(u32::MAX, &report(3, true, 1)), Some('3'));
        assert_eq!(keys.handle_packet(500, &report(3, true, 1)), Some('3'));
        assert_eq!(keys.handle_packet(u32::MAX, &report(3, true, 1)), None);
    }

    #[test]
    fn a_long_press_goes_on_under_further_timestamps() {
        let mut keys = DtmfReceiver::default();
        assert_eq!(keys.handle_packet(0, &report(7, false, 160)), Some('7'));
        assert_eq!(keys.handle_packet(0, &report(7, false, u16::MAX)), None);
        assert_eq!(keys.handle_packet(u16::MAX.into(), &report(7, false, 160)), None);
        assert_eq!(keys.handle_packet(u16::MAX.into(), &report(7, true, 320)), None);
        assert_eq!(
            keys.handle_packet(2 * u32::from(u16::MAX), &report(7, false, 160)),
            Some('7'),
            "it was over"
        );
    }

    #[test]
    fn other_events_and_short_payloads_are_ignored() {
        let mut keys = DtmfReceiver::default();
        for event in 12..=255 {
            assert_eq!(keys.handle_packet(0, &report(event, false, 1)), None);
        }
        for short in [&[][..], &[5], &[5, 10, 0]] {
            assert_eq!(keys.handle_packet(0, short), None);
        }
    }
}
