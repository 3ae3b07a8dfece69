//! Sets up the SCTP association with a microcontroller that never retransmits.
//!
//! str0m is always the SCTP client of a device. [`AssociationSetup`] sits between it and DTLS. It
//! answers the device's INIT on str0m's behalf or, when none arrives, releases str0m's INIT. It
//! repeats the last step until the device takes the next one, and substitutes packets that the
//! device lost and never repeats. In: decrypted SCTP packets of both ends, and the time. Out:
//! packets for either end, and the next deadline.
//!
//! The most common stack is recognized by its constant initiate tag. A COOKIE ECHO makes it open
//! its channel, which overwrites its COOKIE ACK, so DATA counts as one. Its channel request may be
//! lost, so one is synthesized after a while. It ignores the channel's acknowledgement, so messages
//! do not wait for its SACK. The TSNs of its DATA are made consecutive, because str0m would wait
//! forever for a missing one. Sources: RFC 9260 sections 3 and 5, RFC 8832, `docs/spec/devices.md`
//! 8.

mod packet;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::packet::{
    BEGIN, COOKIE_ACK, COOKIE_ECHO, DATA, DataChunk, INIT, INIT_ACK, InitChunk, SACK, encode_message, encode_packet,
    encode_sack, first_chunk, first_chunk_type,
};
use crate::limits::DEVICE_SETUP_REPEAT;

/// Longest time between two repeats; each costs one datagram to a device that never answers.
const DEVICE_SETUP_REPEAT_MAX: Duration = Duration::from_secs(4);
/// Time from the association until a channel is opened without the request of the device, which is
/// then taken as lost. By then, two COOKIE ACKs may have been lost.
const DEVICE_OPEN_AFTER: Duration = Duration::from_millis(1_500);
/// COOKIE ACKs sent to a device that never sends on its channel, as most do.
const DEVICE_COOKIE_ACKS_MAX: u32 = 9;

/// The constant initiate tag of the most common stack. It retransmits nothing, acknowledges
/// anything, and has one channel, on stream 0.
const ONE_SHOT_TAG: u32 = 0x1234_5678;
/// Its channel request: reliable, ordered, labelled `rtvi-ai`.
const CHANNEL_REQUEST: &[u8] = b"\x03\0\0\0\0\0\0\0\0\x07\0\0rtvi-ai";
const CHANNEL_OPEN: u8 = 3;
const CHANNEL_ACK: u8 = 2;
const PPID_CONTROL: u32 = 50;
/// How many repeats have equal intervals before these double.
const REPEATS_BEFORE_BACKOFF: u32 = 4;

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SctpAction {
    /// Pass it on.
    Forward,
    /// Drop it; substitutes are polled.
    Consume,
}

/// The state of the setup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum SetupStage {
    /// DTLS is not up.
    #[default]
    Closed,
    /// Waits for the device's INIT.
    AwaitingInit,
    /// str0m's INIT was sent.
    InitSent,
    /// An INIT ACK was sent on str0m's behalf.
    InitAckSent,
    /// str0m's COOKIE ECHO was sent.
    CookieEchoSent,
    /// Both ends are established; waits for data of a device that requests its channel once.
    AwaitingChannel,
    Open,
}

/// The data of a device that never retransmits.
struct OneShotData {
    /// The TSN of its last chunk, as received.
    last_tsn: u32,
    /// The next TSN for str0m.
    next_tsn: u32,
    /// str0m received a channel request.
    channel_requested: bool,
    /// The TSN of str0m's channel acknowledgement, until the device acknowledges it.
    unacked_answer: Option<u32>,
}

/// The setup of one association.
#[derive(Default)]
pub struct AssociationSetup {
    stage: SetupStage,
    /// When the next step is due; `None` until the time is known.
    due_at: Option<Instant>,
    /// How often this stage's step was repeated.
    repeats: u32,
    /// The packet to repeat.
    last_step: Vec<u8>,
    str0m_init: Option<InitChunk>,
    device_init: Option<InitChunk>,
    one_shot: Option<OneShotData>,
    to_str0m: VecDeque<Vec<u8>>,
    to_device: VecDeque<Vec<u8>>,
}

impl AssociationSetup {
    /// Handles the end of the DTLS handshake.
    pub fn handle_connected(&mut self) {
        if self.stage == SetupStage::Closed {
            self.enter_stage(SetupStage::AwaitingInit);
        }
    }

    /// Handles a packet of str0m.
    pub fn handle_str0m(&mut self, bytes: &[u8]) -> SctpAction {
        match (first_chunk_type(bytes), self.stage) {
            // str0m repeats its INIT every few seconds, which is slower than the repeats here.
            (Some(INIT), _) => {
                if self.str0m_init.is_none() {
                    self.str0m_init = first_chunk(bytes).and_then(|chunk| InitChunk::parse(chunk.value));
                    self.send_init_ack();
                }
                SctpAction::Consume
            }
            (Some(COOKIE_ECHO), SetupStage::InitSent) => {
                self.last_step = bytes.to_vec();
                self.enter_stage(SetupStage::CookieEchoSent);
                SctpAction::Forward
            }
            (Some(COOKIE_ECHO), _) => SctpAction::Consume,
            (Some(DATA), _) => {
                self.record_channel_ack(bytes);
                SctpAction::Forward
            }
            _ => SctpAction::Forward,
        }
    }

    /// Handles a packet of the device.
    pub fn handle_device(&mut self, bytes: &[u8]) -> SctpAction {
        let Some(kind) = first_chunk_type(bytes) else {
            return SctpAction::Consume;
        };
        match (kind, self.stage) {
            // str0m would create a second association that never ends.
            (INIT, SetupStage::AwaitingChannel | SetupStage::Open) => return SctpAction::Consume,
            (INIT, _) => {
                if let Some(init) = first_chunk(bytes).and_then(|chunk| InitChunk::parse(chunk.value)) {
                    self.device_init = Some(init);
                    self.send_init_ack();
                }
                return SctpAction::Consume;
            }
            (INIT_ACK, SetupStage::InitSent) => {
                self.device_init = first_chunk(bytes).and_then(|chunk| InitChunk::parse(chunk.value));
                return SctpAction::Forward;
            }
            (COOKIE_ECHO, _) => {
                self.handle_cookie_echo();
                return SctpAction::Consume;
            }
            // The device has processed the COOKIE ECHO.
            (COOKIE_ACK, SetupStage::CookieEchoSent) => self.set_established(),
            (_, SetupStage::CookieEchoSent) if kind != INIT_ACK => {
                self.to_str0m
                    .push_back(encode_packet(self.str0m_tag(), COOKIE_ACK, 0, &[]));
                self.set_established();
            }
            (_, SetupStage::AwaitingChannel | SetupStage::Open) => {}
            _ => return SctpAction::Consume,
        }
        if kind == DATA && self.one_shot.is_some() {
            self.handle_one_shot_data(bytes);
            return SctpAction::Consume;
        }
        if kind == SACK
            && let Some(data) = &mut self.one_shot
        {
            data.unacked_answer = None;
        }
        if self.to_str0m.is_empty() {
            return SctpAction::Forward;
        }
        // Keeps the order behind synthesized packets.
        self.to_str0m.push_back(bytes.to_vec());
        SctpAction::Consume
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(wait) = self.step_interval() else {
            return;
        };
        if now < *self.due_at.get_or_insert(now + wait) {
            return;
        }
        self.repeats += 1;
        self.due_at = None;
        self.acknowledge_channel_ack();
        match (self.stage, &self.str0m_init) {
            (SetupStage::AwaitingInit, Some(init)) => {
                log::debug!("the device did not begin its association, so this end does");
                self.last_step = encode_packet(0, INIT, 0, &init.encode_init());
                self.to_device.push_back(self.last_step.clone());
                self.enter_stage(SetupStage::InitSent);
            }
            (SetupStage::InitSent | SetupStage::InitAckSent | SetupStage::CookieEchoSent, _) => {
                self.to_device.push_back(self.last_step.clone())
            }
            (SetupStage::AwaitingChannel, _) => self.handle_channel_timeout(),
            _ => {}
        }
        self.due_at = self.step_interval().map(|wait| now + wait);
    }

    /// Returns when [`AssociationSetup::handle_timeout`] is due; at once while the time is unknown.
    pub fn poll_timeout(&self, last: Instant) -> Option<Instant> {
        self.step_interval().map(|_| self.due_at.unwrap_or(last))
    }

    pub fn poll_str0m(&mut self) -> Option<Vec<u8>> {
        self.to_str0m.pop_front()
    }

    pub fn poll_device(&mut self) -> Option<Vec<u8>> {
        self.to_device.pop_front()
    }

    /// Returns the repeat interval of this stage.
    fn step_interval(&self) -> Option<Duration> {
        match self.stage {
            SetupStage::Open => self.unacked_answer().map(|_| DEVICE_SETUP_REPEAT),
            SetupStage::Closed => None,
            // str0m opens no data channel.
            SetupStage::AwaitingInit if self.str0m_init.is_none() => None,
            _ => {
                let doubled = DEVICE_SETUP_REPEAT.saturating_mul(1 << (self.repeats / REPEATS_BEFORE_BACKOFF).min(8));
                Some(doubled.min(DEVICE_SETUP_REPEAT_MAX))
            }
        }
    }

    fn enter_stage(&mut self, stage: SetupStage) {
        self.stage = stage;
        self.due_at = None;
        self.repeats = 0;
    }

    /// Returns the verification tag for packets to str0m.
    fn str0m_tag(&self) -> u32 {
        self.str0m_init.as_ref().map_or(0, |init| init.tag)
    }

    /// Sends an INIT ACK to the device once both INITs are known.
    fn send_init_ack(&mut self) {
        let (Some(str0m), Some(device)) = (&self.str0m_init, &self.device_init) else {
            return;
        };
        let acknowledgement = encode_packet(device.tag, INIT_ACK, 0, &str0m.encode_init_ack());
        self.to_device.push_back(acknowledgement.clone());
        // After str0m's COOKIE ECHO, either cookie will do.
        if self.stage != SetupStage::CookieEchoSent {
            self.last_step = acknowledgement;
            self.enter_stage(SetupStage::InitAckSent);
        }
    }

    /// Handles the device's COOKIE ECHO: completes the handshake with both ends.
    fn handle_cookie_echo(&mut self) {
        let Some(device) = self.device_init.as_ref().filter(|_| self.stage > SetupStage::InitSent) else {
            return;
        };
        let done = encode_packet(device.tag, COOKIE_ACK, 0, &[]);
        if self.stage == SetupStage::InitAckSent {
            let acknowledgement = encode_packet(self.str0m_tag(), INIT_ACK, 0, &device.encode_init_ack());
            self.to_str0m.push_back(acknowledgement);
        }
        if matches!(self.stage, SetupStage::InitAckSent | SetupStage::CookieEchoSent) {
            self.to_str0m
                .push_back(encode_packet(self.str0m_tag(), COOKIE_ACK, 0, &[]));
            self.set_established();
            self.last_step.clone_from(&done);
        }
        self.to_device.push_back(done);
    }

    /// Enters the established state.
    fn set_established(&mut self) {
        let device = self.device_init.as_ref().filter(|device| device.tag == ONE_SHOT_TAG);
        self.one_shot = device.map(|device| OneShotData {
            last_tsn: device.tsn.wrapping_sub(1),
            next_tsn: device.tsn,
            channel_requested: false,
            unacked_answer: None,
        });
        self.last_step.clear();
        self.enter_stage(if self.one_shot.is_some() {
            SetupStage::AwaitingChannel
        } else {
            SetupStage::Open
        });
    }

    /// Handles silence after the setup: the device missed the COOKIE ACK, or its channel request
    /// was lost.
    fn handle_channel_timeout(&mut self) {
        if DEVICE_SETUP_REPEAT * self.repeats >= DEVICE_OPEN_AFTER {
            self.synthesize_channel_request();
        }
        if self.last_step.is_empty() && self.is_channel_requested() || self.repeats > DEVICE_COOKIE_ACKS_MAX {
            self.enter_stage(SetupStage::Open);
        } else if !self.last_step.is_empty() {
            self.to_device.push_back(self.last_step.clone());
        }
    }

    fn is_channel_requested(&self) -> bool {
        self.one_shot.as_ref().is_none_or(|data| data.channel_requested)
    }

    /// Requests the channel from str0m on behalf of a device whose request was lost.
    fn synthesize_channel_request(&mut self) {
        let tag = self.str0m_tag();
        if let Some(data) = self.one_shot.as_mut().filter(|data| !data.channel_requested) {
            log::info!("the device's request for a data channel was lost; its stream 0 is taken as `rtvi-ai`");
            let request = encode_message(tag, data.next_tsn, PPID_CONTROL, CHANNEL_REQUEST);
            data.next_tsn = data.next_tsn.wrapping_add(1);
            data.channel_requested = true;
            self.to_str0m.push_back(request);
        }
    }

    /// Handles a DATA chunk that is never retransmitted.
    fn handle_one_shot_data(&mut self, bytes: &[u8]) {
        // The device's DATA overwrites a COOKIE ACK and truncates it.
        let Some(chunk) = DataChunk::parse(bytes) else {
            return;
        };
        if self.stage == SetupStage::AwaitingChannel {
            self.enter_stage(SetupStage::Open);
        }
        let is_request = chunk.ppid == PPID_CONTROL && chunk.content.first() == Some(&CHANNEL_OPEN);
        if !is_request {
            self.synthesize_channel_request();
        }
        let tag = self.str0m_tag();
        let Some(data) = &mut self.one_shot else {
            return;
        };
        // Fragments belong together by consecutive TSNs alone.
        let is_torn = chunk.flags & BEGIN == 0 && chunk.tsn != data.last_tsn.wrapping_add(1);
        let is_late_request = is_request && data.channel_requested;
        data.last_tsn = chunk.tsn;
        if is_torn || is_late_request {
            return;
        }
        data.channel_requested |= is_request;
        self.to_str0m.push_back(chunk.encode_with_tsn(tag, data.next_tsn));
        data.next_tsn = data.next_tsn.wrapping_add(1);
    }

    /// Records the TSN of str0m's channel acknowledgement.
    fn record_channel_ack(&mut self, bytes: &[u8]) {
        let Some(data) = &mut self.one_shot else {
            return;
        };
        let is_answer = |chunk: &DataChunk<'_>| chunk.ppid == PPID_CONTROL && chunk.content == [CHANNEL_ACK];
        if let Some(chunk) = DataChunk::parse(bytes).filter(is_answer) {
            data.unacked_answer = Some(chunk.tsn);
            if self.stage == SetupStage::Open {
                self.due_at = None;
            }
        }
    }

    fn unacked_answer(&self) -> Option<u32> {
        self.one_shot.as_ref()?.unacked_answer
    }

    /// Acknowledges the channel acknowledgement on behalf of the device, which ignores it.
    /// Otherwise no message is sent until str0m's timeout, seconds later.
    fn acknowledge_channel_ack(&mut self) {
        let (tag, window) = (
            self.str0m_tag(),
            self.device_init.as_ref().map_or(0, |device| device.window),
        );
        let answer = self.one_shot.as_mut().and_then(|data| data.unacked_answer.take());
        if let Some(tsn) = answer {
            self.to_str0m.push_back(encode_sack(tag, tsn, window));
        }
    }
}
