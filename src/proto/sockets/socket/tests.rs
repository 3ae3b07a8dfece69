//! Tests sessions on a WebSocket in virtual time: messages of the peer are values, and the bot is a
//! list of samples.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::limits::{EARLY_AUDIO, EARLY_MESSAGE_BYTES_MAX, RATE_CHANGES_MAX, SOCKET_FREED_AFTER};
use crate::refusal::SessionRefusal;
use crate::session::CallerFrame;
use crate::sockets::socket::CLIENT_LEAD;

mod calls;
mod clients;

const MS: Duration = Duration::from_millis(1);

/// A session with its recorded outputs.
struct Rig {
    session: SocketSession,
    start: Instant,
    now: Instant,
    writable: bool,
    /// Speech that the bot has yet to send.
    speech: VecDeque<i16>,
    sent: Vec<(Duration, SocketMessage)>,
    events: Vec<SessionEvent>,
    received: Vec<i16>,
    received_hz: u32,
    /// Permits that were requested, and refused if there is a reason.
    permits: u32,
    refusal: Option<SessionRefusal>,
    begun: Vec<SocketBotStart>,
    hang_ups: u32,
    gone: bool,
    next: Instant,
}

impl Rig {
    fn new(make: impl FnOnce(Instant) -> SocketSession) -> Rig {
        let start = Instant::now();
        let mut rig = Rig {
            session: make(start),
            start,
            now: start,
            writable: true,
            speech: VecDeque::new(),
            sent: Vec::new(),
            events: Vec::new(),
            received: Vec::new(),
            received_hz: 0,
            permits: 0,
            refusal: None,
            begun: Vec::new(),
            hang_ups: 0,
            gone: false,
            next: start,
        };
        rig.drain();
        rig
    }

    /// A plain client whose bot receives at 16 kHz and sends at 24 kHz.
    fn client() -> Rig {
        let mut rig = Rig::new(SocketSession::client);
        rig.session.set_audio(16_000, 24_000, true, rig.now);
        rig.drain();
        rig
    }

    fn drain(&mut self) {
        if self.writable {
            self.session.handle_writable();
        } else {
            self.session.handle_blocked(self.now);
        }
        self.hand_speech();
        self.poll();
    }

    /// Polls the session until it waits, and hands it speech only if it asks.
    fn poll(&mut self) {
        loop {
            match self.session.poll_output(self.now) {
                SessionOutput::Timeout(deadline) => {
                    self.next = deadline.at;
                    return;
                }
                SessionOutput::Closed => {
                    self.gone = true;
                    return;
                }
                SessionOutput::BotAudioWanted => self.hand_speech(),
                SessionOutput::Command(SocketCommand::Send(message)) => {
                    self.sent.push((self.now - self.start, message))
                }
                SessionOutput::Command(SocketCommand::Admit) => {
                    assert!(self.begun.is_empty(), "a permit is needed before the bot starts");
                    self.permits += 1;
                    if let Some(refusal) = &self.refusal {
                        self.session.handle_refused(refusal, self.now);
                    }
                }
                SessionOutput::Command(SocketCommand::StartBot(start)) => {
                    assert!(self.events.is_empty(), "the bot starts before anything happens");
                    self.begun.push(*start);
                }
                SessionOutput::Command(SocketCommand::HangUp(..)) => self.hang_ups += 1,
                SessionOutput::Audio(CallerFrame { pcm, rate_hz, .. }) => {
                    assert!(pcm.len() <= rate_hz as usize / 50, "at most 20 ms");
                    self.received.extend_from_slice(pcm);
                    self.received_hz = rate_hz;
                }
                SessionOutput::Event(event) => self.events.push(event),
            }
        }
    }

    fn hand_speech(&mut self) {
        if let Some(room) = self.session.bot_audio_capacity() {
            let take = self.speech.len().min(room);
            let pcm: Vec<i16> = self.speech.drain(..take).collect();
            self.session.handle_bot_audio(&pcm, self.now);
        }
    }

    /// Performs an input, and drains the outputs.
    fn with(&mut self, act: impl FnOnce(&mut SocketSession, Instant)) {
        act(&mut self.session, self.now);
        self.drain();
    }

    /// Advances the time from deadline to deadline.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        let mut turns = 0;
        while !self.gone && self.next <= until {
            turns += 1;
            assert!(turns < 100_000, "the session spins at {:?}", self.now - self.start);
            self.now = self.now.max(self.next);
            self.session.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    fn text(&mut self, text: impl AsRef<str>) {
        self.with(|session, now| session.handle_text(text.as_ref(), now));
    }

    fn json(&mut self, value: Value) {
        self.text(value.to_string());
    }

    fn binary(&mut self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        self.with(|session, now| session.handle_binary(bytes, now));
    }

    /// Returns the close frame, if one was sent.
    fn closed(&self) -> Option<(u16, &'static str)> {
        self.sent.iter().find_map(|(_, message)| match message {
            SocketMessage::Close(code, why) => Some((*code, *why)),
            _ => None,
        })
    }

    /// Returns the reason of the last event, if it is the end.
    fn left(&self) -> Option<LeaveReason> {
        let ends: Vec<&SessionEvent> = self
            .events
            .iter()
            .filter(|event| matches!(event, SessionEvent::Left(_)))
            .collect();
        assert!(ends.len() <= 1, "a session ends once");
        match self.events.last() {
            Some(SessionEvent::Left(reason)) => Some(*reason),
            _ => None,
        }
    }

    fn pings(&self) -> usize {
        self.sent
            .iter()
            .filter(|(_, message)| *message == SocketMessage::Ping)
            .count()
    }
}

fn tone(samples: usize, rate_hz: u32) -> Vec<i16> {
    let step = std::f64::consts::TAU * 440.0 / f64::from(rate_hz);
    (0..samples)
        .map(|n| ((n as f64 * step).sin() * 9_000.0) as i16)
        .collect()
}
