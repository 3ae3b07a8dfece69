//! The set-up of a data channel with a microcontroller, which sends every packet once.
//!
//! For devices, str0m is always the client of its SCTP association. [`AssociationSetup`] stands between it and
//! DTLS: it answers the device's INIT in str0m's name or, when none comes, lets str0m's INIT out;
//! it repeats the last step until the device takes the next; and it stands in for what a device has
//! lost and never sends again. In: SCTP packets of both ends, decrypted, and the time. Out: packets
//! for either end, and the next deadline.
//!
//! What the most common stack does, which its constant tag gives away, and what is done about it:
//! a COOKIE ECHO makes it open its channel, which overwrites its COOKIE ACK, so DATA counts as one;
//! its request for the channel may be lost, so it is made up after a while; it has no use for the
//! answer, so messages do not wait long for its acknowledgement; and the numbers of its DATA are
//! made consecutive, since a gap would never be filled, and str0m keeps all data behind a gap.
//! Sources: RFC 9260 sections 3 and 5, RFC 8832, the embedded fact sheet, section 8.

mod packet;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::packet::{
    BEGIN, COOKIE_ACK, COOKIE_ECHO, DATA, DataChunk, INIT, INIT_ACK, InitChunk, SACK, encode_message, encode_packet,
    encode_sack, first_chunk, first_chunk_type,
};
use crate::limits::{DEVICE_COOKIE_ACKS_MAX, DEVICE_OPEN_AFTER, DEVICE_SETUP_REPEAT, DEVICE_SETUP_REPEAT_MAX};

/// The initiate tag that the stack of most microcontrollers has in place of a random number. It
/// repeats nothing, acknowledges anything, and has one channel, on stream 0.
const ONE_SHOT_TAG: u32 = 0x1234_5678;
/// What it asks for: a reliable, ordered channel called `rtvi-ai`.
const CHANNEL_REQUEST: &[u8] = b"\x03\0\0\0\0\0\0\0\0\x07\0\0rtvi-ai";
const CHANNEL_OPEN: u8 = 3;
const CHANNEL_ACK: u8 = 2;
const PPID_CONTROL: u32 = 50;
/// Repeats before the time between two of them doubles.
const REPEATS_BEFORE_BACKOFF: u32 = 4;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SctpAction {
    /// It goes on as it is.
    Forward,
    /// It ends here; what takes its place is polled.
    Consume,
}

/// How far the association is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum SetupStage {
    /// DTLS is not up.
    #[default]
    Closed,
    /// The device may begin.
    AwaitingInit,
    /// str0m's INIT is out.
    InitSent,
    /// An INIT ACK in str0m's name is out.
    InitAckSent,
    /// str0m's COOKIE ECHO is out.
    CookieEchoSent,
    /// Both ends are up, and nothing came yet of a device that asks for its channel once.
    AwaitingChannel,
    Open,
}

/// The data of a device that repeats nothing.
struct OneShotData {
    /// The number of its last chunk, as it came.
    last_tsn: u32,
    /// The number that str0m gets for the next one.
    next_tsn: u32,
    /// str0m has seen a request for the channel.
    channel_requested: bool,
    /// The number of str0m's answer to that, which the device has not acknowledged.
    unacked_answer: Option<u32>,
}

/// One association.
#[derive(Default)]
pub struct AssociationSetup {
    stage: SetupStage,
    /// When the next step is due; `None` until the time is known.
    due_at: Option<Instant>,
    /// How often this stage's step was repeated.
    repeats: u32,
    /// The packet that is repeated.
    last_step: Vec<u8>,
    str0m_init: Option<InitChunk>,
    device_init: Option<InitChunk>,
    one_shot: Option<OneShotData>,
    to_str0m: VecDeque<Vec<u8>>,
    to_device: VecDeque<Vec<u8>>,
}

impl AssociationSetup {
    /// DTLS is up.
    pub fn handle_connected(&mut self) {
        if self.stage == SetupStage::Closed {
            self.enter_stage(SetupStage::AwaitingInit);
        }
    }

    /// Takes a packet of str0m.
    pub fn handle_str0m(&mut self, bytes: &[u8]) -> SctpAction {
        match (first_chunk_type(bytes), self.stage) {
            // It comes again every few seconds; what is repeated here is repeated sooner.
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

    /// Takes a packet of the device.
    pub fn handle_device(&mut self, bytes: &[u8]) -> SctpAction {
        let Some(kind) = first_chunk_type(bytes) else {
            return SctpAction::Consume;
        };
        match (kind, self.stage) {
            // It would become a second association in str0m, which nothing ends.
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
            // It has read the COOKIE ECHO, whatever it says.
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
        // It must not overtake what was made up.
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

    /// Returns when [`AssociationSetup::handle_timeout`] is wanted: at once, where the time is not known yet.
    pub fn poll_timeout(&self, last: Instant) -> Option<Instant> {
        self.step_interval().map(|_| self.due_at.unwrap_or(last))
    }

    pub fn poll_str0m(&mut self) -> Option<Vec<u8>> {
        self.to_str0m.pop_front()
    }

    pub fn poll_device(&mut self) -> Option<Vec<u8>> {
        self.to_device.pop_front()
    }

    /// Returns how long the step of this stage waits.
    fn step_interval(&self) -> Option<Duration> {
        match self.stage {
            SetupStage::Open => self.unacked_answer().map(|_| DEVICE_SETUP_REPEAT),
            SetupStage::Closed => None,
            // There is no data channel.
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

    /// Returns the tag of packets to str0m.
    fn str0m_tag(&self) -> u32 {
        self.str0m_init.as_ref().map_or(0, |init| init.tag)
    }

    /// Answers the device's INIT, once str0m has said what the answer is.
    fn send_init_ack(&mut self) {
        let (Some(str0m), Some(device)) = (&self.str0m_init, &self.device_init) else {
            return;
        };
        let acknowledgement = encode_packet(device.tag, INIT_ACK, 0, &str0m.encode_init_ack());
        self.to_device.push_back(acknowledgement.clone());
        // Where str0m's own cookie is out already, either will do.
        if self.stage != SetupStage::CookieEchoSent {
            self.last_step = acknowledgement;
            self.enter_stage(SetupStage::InitAckSent);
        }
    }

    /// The device has returned the cookie: it knows of str0m, and str0m learns of it.
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

    /// The association is up.
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

    /// Nothing came of the device: it does not know that it may ask for its channel, or has asked.
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

    /// Asks str0m for the channel in the name of a device whose own request was lost.
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

    /// Takes data that comes once, or never.
    fn handle_one_shot_data(&mut self, bytes: &[u8]) {
        // What overwrote a COOKIE ACK is cut off.
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
        // Pieces belong together by their numbers alone.
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

    /// Notes str0m's answer to a request for the channel.
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

    /// Acknowledges the answer in the name of a device that has missed it, or whose own word was
    /// lost. It drops the answer unread; but no message leaves before, and str0m waits for seconds.
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
