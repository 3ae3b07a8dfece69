//! Handles messages of the peer of a WebSocket.
//!
//! In: text and binary messages, and `now`. Out: speech, events and state of the [`SocketSession`].
//! Messages of a plain client in another format, many such messages of a provider in a row, and a
//! call without a timely handshake, are rejected with a close code and a reason.

use std::time::Instant;

use bytes::Bytes;

use super::audio_sender::SocketAudioSender;
use super::ending::{SocketReadError, UNRECOGNISED};
use super::{SentMark, SocketPhase, SocketSession, WireProtocol, call_chunk_format};
use crate::event::{LeaveReason, SessionEvent};
use crate::features::Feature;
use crate::limits::{
    CALL_DEAF_AFTER, EARLY_MESSAGE_BYTES_MAX, HANDSHAKE_MESSAGES_MAX, RATES_HZ, TELEPHONY_UNREADABLE_MAX,
};
use crate::sockets::eval;
use crate::sockets::frames::{self, ProtobufFrame};
use crate::telephony::{self, PROVIDERS, ProviderInput, TelephonyCall};

impl SocketSession {
    /// Handles a text message of the peer.
    pub fn handle_text(&mut self, text: &str, now: Instant) {
        self.last_received = now;
        self.has_received = true;
        if text.len() > self.message_bytes_max() {
            return self.handle_read_error(SocketReadError::TooLong, now);
        }
        match (&self.wire, self.phase) {
            (WireProtocol::Call(_), SocketPhase::Handshake { .. }) => self.detect(Some(text), now),
            (WireProtocol::Eval(_), SocketPhase::Live | SocketPhase::Finishing { .. }) => {
                self.events.push_back(SessionEvent::Message(text.to_owned()));
            }
            (WireProtocol::Client, SocketPhase::Live | SocketPhase::Finishing { .. }) => {
                self.end(
                    LeaveReason::Protocol,
                    1003,
                    "send binary messages with protobuf frames",
                    now,
                );
            }
            (WireProtocol::Call(_), SocketPhase::Live | SocketPhase::Finishing { .. }) => {
                if self.read(text, now) {
                    self.unreadable = 0;
                } else {
                    self.skip_unreadable("send JSON objects", now);
                }
            }
            _ => {}
        }
    }

    /// Handles a binary message of the peer.
    pub fn handle_binary(&mut self, bytes: Bytes, now: Instant) {
        self.last_received = now;
        self.has_received = true;
        if bytes.len() > self.message_bytes_max() {
            return self.handle_read_error(SocketReadError::TooLong, now);
        }
        match (&self.wire, self.phase) {
            (WireProtocol::Call(_), SocketPhase::Handshake { .. }) => self.detect(None, now),
            (WireProtocol::Call(_), SocketPhase::Live | SocketPhase::Finishing { .. }) => {
                if let WireProtocol::Call(Some(call)) = &mut self.wire {
                    call.skip_binary();
                }
                self.skip_unreadable("send text messages", now);
            }
            (WireProtocol::Eval(_), SocketPhase::Live | SocketPhase::Finishing { .. }) => {
                self.end(LeaveReason::Protocol, 1003, "send text messages", now);
            }
            (WireProtocol::Client, SocketPhase::Live | SocketPhase::Finishing { .. }) => self.take_frame(bytes, now),
            _ => {}
        }
    }

    /// Counts a message of a provider that cannot be read. One costs itself alone, since the caller
    /// cannot help a fault of a gateway; many in a row end the call.
    fn skip_unreadable(&mut self, due: &'static str, now: Instant) {
        self.unreadable += 1;
        if self.unreadable >= TELEPHONY_UNREADABLE_MAX {
            self.end(LeaveReason::Protocol, 1003, due, now);
        }
    }

    /// Checks a message of a peer that is not yet recognised; `None` is a binary message.
    fn detect(&mut self, text: Option<&str>, now: Instant) {
        let is_for_clients = Feature::WebSocket.in_this_build();
        if let Some(flags) = text.filter(|_| is_for_clients).and_then(eval::flags) {
            // A client like those of the other endpoint, so it needs no proof of a provider.
            self.wire = WireProtocol::Eval(flags);
            self.phase = SocketPhase::Live;
            self.early.clear();
            self.needs_permit = true;
            return self.begin();
        }
        match text.map_or(Ok(None), |text| telephony::detect(&PROVIDERS, text)) {
            Ok(Some(call)) => {
                if let Some(rules) = &self.rules
                    && let Err(unproven) = rules.proof.admit(&call, &rules.config.telephony)
                {
                    self.advice = Some(unproven.advice(rules.config.proxy.as_deref()));
                    return self.refuse(1008, unproven.reason(), now);
                }
                let chunk_format = call_chunk_format(&call);
                self.audio_sender = SocketAudioSender::new(chunk_format);
                self.wire = WireProtocol::Call(Some(Box::new(call)));
                self.phase = SocketPhase::Live;
                self.deaf_at = Some(now + CALL_DEAF_AFTER);
                self.needs_permit = true;
                self.begin();
                // An unordered provider may send its first audio before the handshake.
                for text in std::mem::take(&mut self.early) {
                    self.read(&text, now);
                }
            }
            Ok(None) => {
                let SocketPhase::Handshake { messages, .. } = &mut self.phase else {
                    return;
                };
                *messages += 1;
                if *messages >= HANDSHAKE_MESSAGES_MAX {
                    self.refuse(1008, UNRECOGNISED, now);
                } else if let Some(text) = text.filter(|text| text.len() <= EARLY_MESSAGE_BYTES_MAX) {
                    self.early.push(text.to_owned());
                }
            }
            Err(telephony::StreamError::Encoding(encoding)) => {
                log::warn!("call refused: its audio encoding `{encoding}` cannot be decoded here");
                self.refuse(1003, "unsupported audio encoding", now);
            }
        }
    }

    /// Handles a message of a recognised provider; returns whether it is a JSON object.
    fn read(&mut self, text: &str, now: Instant) -> bool {
        let WireProtocol::Call(Some(call)) = &mut self.wire else {
            return false;
        };
        self.pcm.clear();
        let Ok(input) = call.read(text, &mut self.pcm) else {
            return false;
        };
        if !self.pcm.is_empty() {
            self.deaf_at = None;
            self.audio_receiver.push(&self.pcm, call.rx.rate_hz);
        }
        match input {
            ProviderInput::Audio | ProviderInput::Nothing => {}
            ProviderInput::Dtmf(key) => self.events.push_back(SessionEvent::Dtmf(key)),
            ProviderInput::Mark(name) => self.mark_returned(name, now),
            ProviderInput::Stop => {
                self.leave(LeaveReason::Left);
                self.close(1000, "", now);
            }
        }
        true
    }

    fn mark_returned(&mut self, name: String, now: Instant) {
        let awaited = self.marks.iter().position(|mark| mark.name == name);
        let cleared = self.cleared.iter().position(|cleared| *cleared == name);
        // A cleared mark was already reported. If the provider may never return it, a pending mark
        // of the same name is assumed instead.
        let cleared_first = awaited.is_none() || self.telephone().is_some_and(TelephonyCall::returns_cleared);
        if let Some(at) = cleared.filter(|_| cleared_first) {
            self.cleared.remove(at);
            return;
        }
        if let Some(mark) = awaited.and_then(|at| self.marks.remove(at)) {
            self.mark_returned_at = Some(now);
            self.handle_played(&mark, now);
        }
        self.report_mark(name, true);
    }

    /// Measures how late the first speech of an answer is played. A mark that returns before its
    /// speech can have been played tells nothing.
    fn handle_played(&mut self, mark: &SentMark, now: Instant) {
        let late = mark.played.and_then(|played| now.checked_duration_since(played));
        let return_trip = self.round_trip.unwrap_or_default() / 2;
        let delay = late.map(|late| late.saturating_sub(return_trip));
        self.playout_delay = self.playout_delay.or(delay);
    }

    fn take_frame(&mut self, bytes: Bytes, now: Instant) {
        match frames::decode(bytes) {
            Err(_) => self.end(LeaveReason::Protocol, 1003, "not a protobuf frame", now),
            Ok(ProtobufFrame::Audio { pcm, rate_hz, channels }) => {
                self.pcm.clear();
                if !RATES_HZ.contains(&rate_hz) || frames::samples(&pcm, channels, &mut self.pcm).is_err() {
                    let due = "audio is 16-bit PCM at 8000 to 48000 Hz";
                    self.end(LeaveReason::Protocol, 1003, due, now);
                } else if !self.audio_receiver.push(&self.pcm, rate_hz) {
                    self.end(LeaveReason::Protocol, 1008, "the rate changed too often", now);
                }
            }
            Ok(ProtobufFrame::Message(text)) => self.events.push_back(SessionEvent::Message(text)),
            Ok(_) => {}
        }
    }
}
