//! Data messages of a room: the bot's messages, those of the callers, and DTMF of telephones.
//!
//! In and out: the bytes of `DataPacket`s. The bot's messages go to everybody, once a caller is
//! present. Messages of agents are ignored. Source: `docs/spec/livekit.md` 5.3.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use prost::Message as _;

use super::{RoomSession, SignalState};
use crate::event::SessionEvent;
use crate::limits::{MESSAGES_IN_BYTES_MAX, ROOM_EARLY_MAX, ROOM_TEXT_BYTES_MAX};
use crate::livekit::wire::{DataPacket, DataValue, SipDtmf, UserPacket};

/// Messages of callers from before the bot has joined. The subscriber connection may be up before
/// the publisher, and a waiting caller sends at once.
#[derive(Default)]
pub(super) struct EarlyMessages {
    events: VecDeque<SessionEvent>,
    bytes: usize,
}

impl EarlyMessages {
    /// Keeps an event, if it fits.
    fn push(&mut self, event: SessionEvent) {
        let bytes = match &event {
            SessionEvent::Message(text) => text.len(),
            _ => 0,
        };
        if self.events.len() < ROOM_EARLY_MAX && self.bytes + bytes <= MESSAGES_IN_BYTES_MAX {
            self.bytes += bytes;
            self.events.push_back(event);
        } else {
            log::debug!("data ignored: too much before the bot has joined");
        }
    }

    /// Returns the events in their order.
    pub fn take(&mut self) -> VecDeque<SessionEvent> {
        std::mem::take(self).events
    }
}

impl RoomSession {
    /// Queues a message for the room.
    pub(super) fn push_message(&mut self, text: String) {
        if text.len() > ROOM_TEXT_BYTES_MAX {
            log::warn!(
                "message dropped: {} bytes, a room accepts {ROOM_TEXT_BYTES_MAX}",
                text.len()
            );
            self.oversized_messages += 1;
            return;
        }
        self.outbox.push(text);
    }

    /// Sends as many messages as the channel takes. Tells whether it sent any.
    pub(super) fn send_messages(&mut self, now: Instant) -> bool {
        let mut sent = false;
        // The server keeps nothing for participants that join later.
        if !self.joined || self.lost || !self.sends_audio() {
            return sent;
        }
        let SignalState::Open(connection) = &mut self.signal else {
            return sent;
        };
        while let Some(text) = self.outbox.peek(connection.data_in_flight(), now) {
            if !connection.send_data(&user_packet(text)) {
                break;
            }
            self.outbox.handle_sent(now);
            sent = true;
        }
        sent
    }

    /// Handles the bytes of one `DataPacket`.
    pub(super) fn handle_data(&mut self, bytes: &[u8]) {
        if self.is_ending() {
            return;
        }
        let packet = match DataPacket::decode(bytes) {
            Ok(packet) => packet,
            Err(error) => return log::debug!("data ignored: {error}"),
        };
        let is_callers = self
            .participants
            .get(&packet.participant_identity)
            .is_some_and(|who| !who.is_agent);
        if !is_callers {
            return log::debug!("data ignored: it is not from a caller");
        }
        let event = match packet.value {
            Some(DataValue::User(user)) => match String::from_utf8(user.payload.into()) {
                Ok(text) => SessionEvent::Message(text),
                Err(_) => return log::debug!("data ignored: it is not UTF-8"),
            },
            Some(DataValue::Dtmf(dtmf)) => match dtmf_key(&dtmf) {
                Some(key) => SessionEvent::Dtmf(key),
                None => return log::debug!("DTMF ignored: there is no such key"),
            },
            None => return log::debug!("data ignored: its type is not supported"),
        };
        if self.joined {
            self.events.push_back(event);
        } else {
            self.early_messages.push(event);
        }
    }
}

fn user_packet(text: &str) -> Vec<u8> {
    let user = UserPacket {
        payload: Bytes::copy_from_slice(text.as_bytes()),
        ..UserPacket::default()
    };
    let packet = DataPacket {
        value: Some(DataValue::User(user)),
        ..DataPacket::default()
    };
    packet.encode_to_vec()
}

/// Returns the key by its digit, or else by its code (RFC 4733 section 3.2).
fn dtmf_key(dtmf: &SipDtmf) -> Option<char> {
    const KEYS: &str = "0123456789*#ABCD";
    let mut digits = dtmf.digit.chars();
    match (digits.next(), digits.next()) {
        (Some(digit), None) => KEYS.chars().find(|key| *key == digit.to_ascii_uppercase()),
        (None, _) => KEYS.chars().nth(dtmf.code as usize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_early_messages() {
        let mut early = EarlyMessages::default();
        for count in 0..=ROOM_EARLY_MAX {
            early.push(SessionEvent::Message(count.to_string()));
        }
        let kept = early.take();
        assert_eq!(
            (kept.len(), &kept[0]),
            (ROOM_EARLY_MAX, &SessionEvent::Message("0".into()))
        );
        early.push(SessionEvent::Message("x".repeat(MESSAGES_IN_BYTES_MAX)));
        early.push(SessionEvent::Message("y".into()));
        early.push(SessionEvent::Dtmf('1'));
        assert_eq!(early.take().len(), 2);
        assert!(early.take().is_empty());
    }

    #[test]
    fn reads_dtmf_by_digit_or_code() {
        let key = |code, digit: &str| {
            dtmf_key(&SipDtmf {
                code,
                digit: digit.into(),
            })
        };
        assert_eq!(key(7, "7"), Some('7'));
        assert_eq!(key(10, "*"), Some('*'));
        assert_eq!(key(0, "d"), Some('D'));
        assert_eq!(key(11, ""), Some('#'));
        assert_eq!(key(0, ""), Some('0'));
        for (code, digit) in [(16, ""), (1, "x"), (1, "12"), (u32::MAX, "")] {
            assert_eq!(key(code, digit), None);
        }
    }
}
