//! Messages to the client: sent at once to a browser, paced for a microcontroller.
//!
//! In: texts, and when the channel opened. Out: the next text to send, and when to ask again. A
//! device reads only the first chunk of a packet, loses messages that arrive faster than it polls,
//! and crashes on a message without a string `type`. So it gets one message of at most 1000 bytes
//! at a time, five per second; speaking events and errors go first, and cosmetic messages only when
//! nothing else waits. The queue is bounded, and dropped messages are counted. Source:
//! `docs/spec/devices.md` 8.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::limits::{
    DEVICE_MESSAGE_BYTES_MAX, DEVICE_MESSAGE_INTERVAL, MESSAGE_BYTES_MAX, MESSAGES_OUT_BYTES_MAX, MESSAGES_OUT_MAX,
};

/// Time from the open channel of a device to the first message: the device loses data that arrives
/// with the acknowledgement.
const DEVICE_CHANNEL_SETTLE: Duration = Duration::from_millis(120);

/// The message queue of a session.
pub struct Outbox {
    is_device: bool,
    opened_at: Option<Instant>,
    sent_at: Option<Instant>,
    urgent: VecDeque<String>,
    ordinary: VecDeque<String>,
    /// The bytes of queued text.
    bytes: usize,
    dropped: u64,
}

/// The priority of a message to a device.
#[derive(PartialEq, Eq, Debug)]
enum MessagePriority {
    Urgent,
    Ordinary,
    Cosmetic,
    /// Not an object with a string `type`; the device would crash.
    Unsupported,
}

impl Outbox {
    pub fn new(device: bool) -> Self {
        Outbox {
            is_device: device,
            opened_at: None,
            sent_at: None,
            urgent: VecDeque::new(),
            ordinary: VecDeque::new(),
            bytes: 0,
            dropped: 0,
        }
    }

    /// Handles an opened channel.
    pub fn handle_open(&mut self, now: Instant) {
        self.opened_at = Some(now);
    }

    /// Handles a closed channel. Messages wait for the next one.
    pub fn handle_close(&mut self) {
        self.opened_at = None;
    }

    /// Queues a text. One that the client cannot receive is dropped, counted and logged.
    pub fn push(&mut self, text: String) {
        let bytes_max = if self.is_device {
            DEVICE_MESSAGE_BYTES_MAX
        } else {
            MESSAGE_BYTES_MAX
        };
        if text.len() > bytes_max {
            log::warn!("message dropped: {} bytes, the client takes {bytes_max}", text.len());
            self.dropped += 1;
            return;
        }
        if text.is_empty() {
            // SCTP cannot carry an empty message: its number would be missing, and all later
            // messages would wait.
            log::debug!("message dropped: it is empty");
            return;
        }
        let class = if self.is_device {
            classify(&text)
        } else {
            MessagePriority::Ordinary
        };
        let queue = match class {
            MessagePriority::Urgent => &mut self.urgent,
            MessagePriority::Ordinary => &mut self.ordinary,
            // Only queued while nothing else waits.
            MessagePriority::Cosmetic if !self.is_empty() => return,
            MessagePriority::Cosmetic => &mut self.ordinary,
            MessagePriority::Unsupported => {
                log::warn!("message dropped: a device takes JSON objects with a string `type` only");
                self.dropped += 1;
                return;
            }
        };
        self.bytes += text.len();
        queue.push_back(text);
        while self.urgent.len() + self.ordinary.len() > MESSAGES_OUT_MAX || self.bytes > MESSAGES_OUT_BYTES_MAX {
            let oldest = self.ordinary.pop_front().or_else(|| self.urgent.pop_front());
            self.bytes -= oldest.map_or(0, |text| text.len());
            self.dropped += 1;
        }
    }

    /// Queues a text before all others.
    pub fn push_first(&mut self, text: String) {
        self.bytes += text.len();
        self.urgent.push_front(text);
    }

    /// Drops the text that [`Outbox::peek`] returned, which its client does not expect.
    pub fn discard(&mut self) {
        let text = self.urgent.pop_front().or_else(|| self.ordinary.pop_front());
        self.bytes -= text.map_or(0, |text| text.len());
    }

    /// Returns the text to send now. `in_flight` is the number of unacknowledged bytes.
    pub fn peek(&self, in_flight: usize, now: Instant) -> Option<&str> {
        let due = self.poll_timeout()?;
        if now < due || (self.is_device && in_flight > 0) {
            return None;
        }
        self.urgent.front().or(self.ordinary.front()).map(String::as_str)
    }

    /// Removes the text that [`Outbox::peek`] returned.
    pub fn handle_sent(&mut self, now: Instant) {
        self.sent_at = Some(now);
        self.discard();
    }

    /// Returns when a waiting text may be sent; `None` without a text or a channel.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let opened = self.opened_at?;
        if self.is_empty() {
            return None;
        }
        if !self.is_device {
            return Some(opened);
        }
        let settled = opened + DEVICE_CHANNEL_SETTLE;
        Some(
            self.sent_at
                .map_or(settled, |sent| settled.max(sent + DEVICE_MESSAGE_INTERVAL)),
        )
    }

    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.ordinary.is_empty()
    }

    /// Returns how many texts were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn classify(text: &str) -> MessagePriority {
    #[derive(Deserialize)]
    struct RtviMessage {
        r#type: String,
        #[serde(default)]
        data: serde_json::Value,
    }
    let Ok(envelope) = serde_json::from_str::<RtviMessage>(text) else {
        return MessagePriority::Unsupported;
    };
    match envelope.r#type.as_str() {
        "bot-ready" | "error" | "error-response" | "bot-started-speaking" | "bot-stopped-speaking" => {
            MessagePriority::Urgent
        }
        "metrics" | "user-audio-level" | "bot-audio-level" | "bot-llm-text" | "bot-tts-audio" | "system-log" => {
            MessagePriority::Cosmetic
        }
        "user-transcription" if envelope.data["final"] == false => MessagePriority::Cosmetic,
        "bot-output" if envelope.data["spoken_status"] == "in-progress" => MessagePriority::Cosmetic,
        // The firmware does not check that `data.text` is a string.
        "bot-tts-text" if !envelope.data["text"].is_string() => MessagePriority::Unsupported,
        _ => MessagePriority::Ordinary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn message(kind: &str) -> String {
        format!(r#"{{"label":"rtvi-ai","type":"{kind}","data":{{"text":"x"}}}}"#)
    }

    /// Sends what is due until `end` in steps of 1 ms, and acknowledges it at once.
    fn drain(outbox: &mut Outbox, start: Instant, end: Duration) -> Vec<(Duration, String)> {
        let mut sent = Vec::new();
        for ms in 0..end.as_millis() as u64 {
            let now = start + Duration::from_millis(ms);
            while let Some(text) = outbox.peek(0, now) {
                sent.push((now - start, text.to_owned()));
                outbox.handle_sent(now);
            }
        }
        sent
    }

    /// A browser's messages are sent in order as soon as its channel opens.
    #[test]
    fn a_browser_gets_everything_at_once_and_in_order() {
        let start = Instant::now();
        let mut outbox = Outbox::new(false);
        outbox.push("one".into());
        outbox.push(message("metrics"));
        assert_eq!(outbox.peek(0, start), None);
        outbox.handle_open(start);
        let sent = drain(&mut outbox, start, Duration::from_millis(1));
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0].1, "one");
    }

    /// The first message waits until the device left its open handler; then at most five are sent
    /// per second.
    #[test]
    fn a_device_gets_one_message_at_a_time() {
        let start = Instant::now();
        let mut outbox = Outbox::new(true);
        outbox.handle_open(start);
        for _ in 0..20 {
            outbox.push(message("bot-transcription"));
        }
        let sent = drain(&mut outbox, start, Duration::from_secs(6));
        assert!(sent[0].0 >= Duration::from_millis(100));
        assert_eq!(sent.len(), 20);
        for window in sent.windows(6) {
            assert!(window[5].0 - window[0].0 >= Duration::from_secs(1));
        }
    }

    /// An unacknowledged message blocks the next.
    #[test]
    fn a_device_gets_one_unacknowledged_message() {
        let start = Instant::now();
        let mut outbox = Outbox::new(true);
        outbox.handle_open(start);
        outbox.push(message("bot-ready"));
        let later = start + Duration::from_secs(1);
        assert_eq!(outbox.peek(1, later), None);
        assert!(outbox.peek(0, later).is_some());
    }

    /// Cosmetic messages are sent while nothing else waits.
    #[test]
    fn cosmetic_messages_are_sent_while_nothing_else_waits() {
        let start = Instant::now();
        let mut outbox = Outbox::new(true);
        outbox.handle_open(start);
        outbox.push(message("user-audio-level"));
        outbox.push(message("bot-audio-level"));
        let sent = drain(&mut outbox, start, Duration::from_secs(1));
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].1, message("user-audio-level"));
    }

    /// Urgent messages overtake texts, cosmetic ones are dropped for them, and unsupported ones are
    /// always dropped.
    #[test]
    fn a_device_gets_urgent_messages_first() {
        let start = Instant::now();
        let mut outbox = Outbox::new(true);
        outbox.handle_open(start);
        outbox.push(message("bot-transcription"));
        outbox.push(message("metrics"));
        outbox.push(message("bot-started-speaking"));
        outbox.push("[]".into());
        outbox.push("{}".into());
        outbox.push(r#"{"type":"bot-tts-text","data":{"text":7}}"#.into());
        outbox.push(r#"{"type":"user-transcription","data":{"final":false}}"#.into());
        let sent = drain(&mut outbox, start, Duration::from_secs(3));
        let texts: Vec<_> = sent.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, [message("bot-started-speaking"), message("bot-transcription")]);
        assert_eq!(outbox.dropped(), 3);
    }

    /// A message of the maximum length is sent; a longer one is dropped.
    #[test]
    fn a_device_message_has_a_limit() {
        let mut outbox = Outbox::new(true);
        let pad = |bytes: usize| {
            let frame = r#"{"type":"t","d":""}"#.len();
            format!(r#"{{"type":"t","d":"{}"}}"#, "x".repeat(bytes - frame))
        };
        outbox.push(pad(DEVICE_MESSAGE_BYTES_MAX));
        assert!(!outbox.is_empty());
        outbox.push(pad(DEVICE_MESSAGE_BYTES_MAX + 1));
        assert_eq!(outbox.dropped(), 1);
    }

    /// A client that never opens a channel costs no more than the queue.
    #[test]
    fn the_queue_keeps_the_newest() {
        let start = Instant::now();
        let mut outbox = Outbox::new(false);
        for number in 0..MESSAGES_OUT_MAX + 3 {
            outbox.push(number.to_string());
        }
        outbox.handle_open(start);
        assert_eq!(outbox.dropped(), 3);
        assert_eq!(outbox.peek(0, start), Some("3"));
    }
}
