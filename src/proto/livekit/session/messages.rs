//! Data messages of a room: messages, text, calls and keys of callers, and all that the bot sends.
//!
//! In and out: the bytes of `DataPacket`s. The bot's messages go to everybody, once a caller is
//! present. Some of them also become transcripts and the state that front-ends show, and answers to
//! calls go to the caller alone. Messages of agents are ignored; a caller ignores all others.
//! Source:
//! `docs/spec/livekit.md` 5.3 to 5.6.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use prost::Message as _;
use serde::Deserialize;
use serde_json::json;

use super::{RoomPhase, RoomSession, SignalState};
use crate::audio::sender::SpeechEvent;
use crate::bot_message::{self, BotMessage, KEYS};
use crate::event::SessionEvent;
use crate::limits::{MESSAGES_IN_BYTES_MAX, ROOM_TEXT_BYTES_MAX};
use crate::livekit::roster::{Participant, RoomRole, is_valid_id};
use crate::livekit::signal::NoAudioCause;
use crate::livekit::transcripts::TranscriptSpeaker;
use crate::livekit::wire::{DataPacket, DataValue, RpcRequest, SipDtmf, UserPacket};
use crate::livekit::{NAME_ATTRIBUTE, STATE_ATTRIBUTE, TRANSCRIPTION_TOPIC};
use crate::rtvi::LABEL;
use crate::sorting;

/// Texts and keys that callers may send before the bot has joined: a greeting and some impatience.
const ROOM_EARLY_MAX: usize = 64;

/// The topic on which older front-ends send typed text as a message.
const LEGACY_CHAT_TOPIC: &str = "lk-chat-topic";

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
    /// Handles a message of the bot.
    pub(super) fn handle_bot_message(&mut self, text: String, now: Instant) {
        let unix_ms = self.unix_ms(now) as i64;
        match bot_message::read(&text) {
            BotMessage::Response { id, data } => {
                if let Some(answer) = self.remote_calls.handle_response(&id, &data) {
                    return self.outbox.push_direct(answer);
                }
            }
            BotMessage::Rejection { id, error } => {
                if let Some(answer) = self.remote_calls.handle_rejection(&id, &error) {
                    return self.outbox.push_direct(answer);
                }
            }
            BotMessage::ModelStarted => self.agent_state.handle_model_started(now),
            BotMessage::ModelStopped => self.agent_state.handle_model_stopped(now),
            BotMessage::BotInterrupted => {
                self.agent_state.handle_interruption();
                self.transcripts.handle_turn_end(&self.own_speaker(), unix_ms, now);
            }
            BotMessage::UserStartedSpeaking => {
                self.transcripts.handle_turn_end(&self.own_speaker(), unix_ms, now);
            }
            BotMessage::BotOutput(output) => {
                self.transcripts
                    .handle_output(&output, &self.own_speaker(), unix_ms, now);
            }
            BotMessage::BotTranscription(sentence) => self.transcripts.handle_sentence(&sentence, now),
            BotMessage::UserTranscription {
                text,
                user_id,
                is_final,
            } => {
                if let Some(who) = self.transcribed(&user_id) {
                    if is_final {
                        self.transcripts.handle_turn_end(&self.own_speaker(), unix_ms, now);
                    }
                    self.transcripts.handle_user(&who, &text, is_final, unix_ms);
                }
            }
            BotMessage::UserStoppedSpeaking
            | BotMessage::VoiceText(_)
            | BotMessage::FunctionCall(_)
            | BotMessage::Error(_)
            | BotMessage::Metrics(_)
            | BotMessage::Other => {}
        }
        self.push_message(text);
        self.push_transcripts();
    }

    /// Queues a message for the room.
    fn push_message(&mut self, text: String) {
        if text.is_empty() {
            return log::debug!("message dropped: it is empty");
        }
        if text.len() > ROOM_TEXT_BYTES_MAX {
            log::warn!(
                "message dropped: {} bytes, a room accepts {ROOM_TEXT_BYTES_MAX}",
                text.len()
            );
            self.oversized_messages += 1;
            return;
        }
        self.outbox.push(user_packet(text));
    }

    /// Queues the transcripts for those who are present: the server keeps nothing for others.
    fn push_transcripts(&mut self) {
        let is_connected = self.joined && !self.lost;
        while let Some(packet) = self.transcripts.poll_packet() {
            if is_connected {
                self.outbox.push(DataPacket {
                    participant_identity: packet.identity,
                    value: Some(packet.value),
                    ..DataPacket::default()
                });
            }
        }
    }

    /// Queues a key for the telephones in the room.
    pub(super) fn send_key(&mut self, key: char) {
        let Some(code) = KEYS.chars().position(|each| each == key) else {
            return;
        };
        let dtmf = SipDtmf {
            code: code as u32,
            digit: key.to_string(),
        };
        self.outbox.push(DataPacket {
            value: Some(DataValue::Dtmf(dtmf)),
            ..DataPacket::default()
        });
    }

    /// Sends as many packets as the channel takes. Tells whether it sent any.
    pub(super) fn send_messages(&mut self) -> bool {
        let mut sent = false;
        if !self.sends_audio() {
            return sent;
        }
        // The server keeps nothing for participants that join later.
        let direct_only = !self.joined || self.lost;
        let SignalState::Open(connection) = &mut self.signal else {
            return sent;
        };
        while let Some(bytes) = self.outbox.peek(direct_only) {
            if !connection.send_data(&bytes) {
                break;
            }
            self.outbox.handle_sent();
            sent = true;
        }
        sent
    }

    /// Tells whether the room is shown what the bot does. A caller has no such state.
    fn shows_state(&self) -> bool {
        self.role == RoomRole::Bot && matches!(self.phase, RoomPhase::Live { .. })
    }

    /// Shows the bot's state to the room, if it has changed.
    pub(super) fn show_state(&mut self, now: Instant) -> bool {
        if !self.shows_state() {
            return false;
        }
        let SignalState::Open(connection) = &mut self.signal else {
            return false;
        };
        let Some(state) = self.agent_state.poll_change(now) else {
            return false;
        };
        let mut attributes = sorting::map([(STATE_ATTRIBUTE.to_owned(), state.name().to_owned())]);
        if !self.agent_name.is_empty() {
            attributes.insert(NAME_ATTRIBUTE.to_owned(), self.agent_name.clone());
        }
        connection.update_attributes(attributes);
        true
    }

    /// Handles the begin or the end of the bot's speech.
    pub(super) fn handle_speech_event(&mut self, event: SpeechEvent, now: Instant) {
        let is_speaking = matches!(event, SpeechEvent::Started);
        self.agent_state.handle_speech(is_speaking);
        self.transcripts.handle_speech(is_speaking, now);
    }

    /// Ends calls that are not answered, and turns that are over.
    pub(super) fn expire_messages(&mut self, now: Instant) {
        for late in self.remote_calls.handle_timeout(now) {
            self.outbox.push_direct(late);
        }
        let unix_ms = self.unix_ms(now) as i64;
        self.transcripts.handle_timeout(&self.own_speaker(), unix_ms, now);
        self.push_transcripts();
    }

    /// Returns when [`RoomSession::expire_messages`] or [`RoomSession::show_state`] is due.
    pub(super) fn messages_timeout(&self, now: Instant) -> Option<Instant> {
        let state = self.shows_state().then(|| self.agent_state.poll_timeout(now));
        let timeouts = [
            self.remote_calls.poll_timeout(),
            self.transcripts.poll_timeout(),
            state.flatten(),
        ];
        timeouts.into_iter().flatten().min()
    }

    /// Forgets what belonged to a participant.
    pub(super) fn handle_participant_left(&mut self, identity: &str) {
        self.remote_calls.handle_left(identity);
        self.text_streams.handle_left(identity);
    }

    /// Handles the bytes of one `DataPacket`.
    pub(super) fn handle_data(&mut self, bytes: &[u8], now: Instant) {
        if self.is_ending() {
            return;
        }
        let packet = match DataPacket::decode(bytes) {
            Ok(packet) => packet,
            Err(error) => return log::debug!("data ignored: {error}"),
        };
        match self.participants.get(&packet.participant_identity) {
            None if is_valid_id(&packet.participant_identity) => self.unannounced.push(packet, bytes.len(), now),
            Some(who) if self.role.talks_to(who) => self.handle_data_packet(packet, now),
            _ => log::debug!("data ignored: the local participant does not talk to its sender"),
        }
    }

    /// Handles the data that a participant sent before the server announced it.
    pub(super) fn handle_announced(&mut self, who: &Participant, now: Instant) {
        if self.is_ending() {
            return;
        }
        let packets = self.unannounced.take(&who.identity, now);
        if self.role.talks_to(who) {
            for packet in packets {
                self.handle_data_packet(packet, now);
            }
        }
    }

    /// Handles a packet of a caller.
    fn handle_data_packet(&mut self, packet: DataPacket, now: Instant) {
        let identity = packet.participant_identity;
        match packet.value {
            Some(DataValue::User(user)) => self.handle_user_packet(user),
            Some(DataValue::Dtmf(dtmf)) => match dtmf_key(&dtmf) {
                Some(key) => self.deliver(SessionEvent::Dtmf(key)),
                None => log::debug!("DTMF ignored: there is no such key"),
            },
            Some(DataValue::RpcRequest(request)) => self.handle_call(&identity, request, now),
            Some(DataValue::StreamHeader(header)) => self.text_streams.handle_header(&identity, &header, now),
            Some(DataValue::StreamChunk(chunk)) => self.text_streams.handle_chunk(&identity, &chunk, now),
            Some(DataValue::StreamTrailer(trailer)) => {
                if let Some(text) = self.text_streams.handle_trailer(&identity, &trailer, now) {
                    self.deliver(match self.role {
                        RoomRole::Bot => typed_text(&trailer.stream_id, &text),
                        RoomRole::Caller => spoken_text(&text),
                    });
                }
            }
            Some(DataValue::Encrypted(_)) => self.report_no_audio(NoAudioCause::Encrypted),
            Some(DataValue::RpcAck(_) | DataValue::RpcResponse(_)) | None => {
                log::debug!("data ignored: its type is not supported");
            }
        }
    }

    fn handle_user_packet(&mut self, user: UserPacket) {
        if user.topic.as_deref() == Some(LEGACY_CHAT_TOPIC) {
            return match serde_json::from_slice::<LegacyChat>(&user.payload) {
                // The same text arrives as a stream.
                Ok(chat) if chat.ignore_legacy => {}
                Ok(chat) => self.deliver(typed_text(&chat.id, &chat.message)),
                Err(_) => log::debug!("typed text ignored: it is malformed"),
            };
        }
        match String::from_utf8(user.payload.into()) {
            Ok(text) => self.deliver(SessionEvent::Message(text)),
            Err(_) => log::debug!("data ignored: it is not UTF-8"),
        }
    }

    fn handle_call(&mut self, caller: &str, request: RpcRequest, now: Instant) {
        let start = self.remote_calls.handle_request(caller, request, now);
        start
            .packets
            .into_iter()
            .for_each(|packet| self.outbox.push_direct(packet));
        if let Some(message) = start.message {
            self.deliver(SessionEvent::Message(message));
        }
    }

    /// Reports something of a caller to the bot, once that has joined.
    fn deliver(&mut self, event: SessionEvent) {
        if self.joined {
            self.events.push_back(event);
        } else {
            self.early_messages.push(event);
        }
    }

    /// Says once per cause that callers cannot be heard.
    pub(super) fn report_no_audio(&mut self, cause: NoAudioCause) {
        if !self.no_audio.contains(&cause) {
            self.no_audio.push(cause);
            log::warn!("{cause}");
        }
    }

    /// Returns the bot as a speaker.
    fn own_speaker(&self) -> TranscriptSpeaker {
        let track = match &self.signal {
            SignalState::Open(connection) => connection.own_sids().1,
            _ => None,
        };
        TranscriptSpeaker {
            identity: String::new(),
            track_sid: track.unwrap_or_default().to_owned(),
        }
    }

    /// Returns the caller whose words the bot has transcribed: the one that it names, else the one
    /// who spoke last.
    fn transcribed(&self, user_id: &str) -> Option<TranscriptSpeaker> {
        let who = self.participants.transcribed(user_id)?;
        let track = match &self.signal {
            SignalState::Open(connection) => connection.track_of(&who.identity),
            _ => None,
        };
        Some(TranscriptSpeaker {
            identity: who.identity.to_string(),
            track_sid: track.map(ToString::to_string).unwrap_or_default(),
        })
    }
}

/// Typed text as older front-ends send it. Newer ones send it as a stream too, and say so.
#[derive(Deserialize)]
struct LegacyChat {
    #[serde(default)]
    id: String,
    message: String,
    #[serde(default, rename = "ignoreLegacy")]
    ignore_legacy: bool,
}

/// Returns typed text as a message of RTVI, in which it arrives on other transports.
fn typed_text(id: &str, text: &str) -> SessionEvent {
    let message = json!({
        "label": LABEL,
        "type": "send-text",
        "id": id,
        "data": {"content": text, "options": {}},
    });
    SessionEvent::Message(message.to_string())
}

/// Returns a transcript of what the bot said as a message. It is none of RTVI, which the bot may
/// send as well.
fn spoken_text(text: &str) -> SessionEvent {
    let message = json!({"label": TRANSCRIPTION_TOPIC, "data": {"text": text}});
    SessionEvent::Message(message.to_string())
}

fn user_packet(text: String) -> DataPacket {
    let user = UserPacket {
        payload: Bytes::from(text),
        ..UserPacket::default()
    };
    DataPacket {
        value: Some(DataValue::User(user)),
        ..DataPacket::default()
    }
}

/// Returns the key by its digit, or else by its code (RFC 4733 section 3.2).
fn dtmf_key(dtmf: &SipDtmf) -> Option<char> {
    match dtmf.digit.is_empty() {
        true => KEYS.chars().nth(dtmf.code as usize),
        false => bot_message::key(&dtmf.digit),
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
