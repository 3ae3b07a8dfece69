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
    BEGIN, COOKIE_ACK, COOKIE_ECHO, DATA, DataChunk, INIT, INIT_ACK, InitChunk, SACK, first_chunk, kind, message,
    packet, sack,
};
use crate::limits::{DEVICE_COOKIE_ACKS_MAX, DEVICE_OPEN_AFTER, DEVICE_SETUP_REPEAT, DEVICE_SETUP_REPEAT_MAX};

/// The initiate tag that the stack of most microcontrollers has in place of a random number. It
/// repeats nothing, acknowledges anything, and has one channel, on stream 0.
const ONCE_ONLY_TAG: u32 = 0x1234_5678;
/// What it asks for: a reliable, ordered channel called `rtvi-ai`.
const CHANNEL_REQUEST: &[u8] = b"\x03\0\0\0\0\0\0\0\0\x07\0\0rtvi-ai";
const CHANNEL_OPEN: u8 = 3;
const CHANNEL_ACK: u8 = 2;
const PPID_CONTROL: u32 = 50;
/// Repeats before the time between two of them doubles.
const REPEATS_ALIKE: u32 = 4;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SctpAction {
    /// It goes on as it is.
    Pass,
    /// It ends here; what takes its place is polled.
    Taken,
}

/// How far the association is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum SetupStage {
    /// DTLS is not up.
    #[default]
    Closed,
    /// The device may begin.
    Waiting,
    /// str0m's INIT is out.
    Asking,
    /// An INIT ACK in str0m's name is out.
    Answering,
    /// str0m's COOKIE ECHO is out.
    Echoing,
    /// Both ends are up, and nothing came yet of a device that asks for its channel once.
    Opening,
    Open,
}

/// The data of a device that repeats nothing.
struct OneShotData {
    /// The number of its last chunk, as it came.
    last: u32,
    /// The number that str0m gets for the next one.
    next: u32,
    /// str0m has seen a request for the channel.
    requested: bool,
    /// The number of str0m's answer to that, which the device has not acknowledged.
    answer: Option<u32>,
}

/// One association.
#[derive(Default)]
pub struct AssociationSetup {
    stage: SetupStage,
    /// When the next step is due; `None` until the time is known.
    due: Option<Instant>,
    /// How often this stage's step was repeated.
    repeats: u32,
    /// The packet that is repeated.
    step: Vec<u8>,
    str0m: Option<InitChunk>,
    device: Option<InitChunk>,
    once_only: Option<OneShotData>,
    to_str0m: VecDeque<Vec<u8>>,
    to_device: VecDeque<Vec<u8>>,
}

impl AssociationSetup {
    /// DTLS is up.
    pub fn handle_connected(&mut self) {
        if self.stage == SetupStage::Closed {
            self.enter(SetupStage::Waiting);
        }
    }

    /// Takes a packet of str0m.
    pub fn handle_str0m(&mut self, bytes: &[u8]) -> SctpAction {
        match (kind(bytes), self.stage) {
            // It comes again every few seconds; what is repeated here is repeated sooner.
            (Some(INIT), _) => {
                if self.str0m.is_none() {
                    self.str0m = first_chunk(bytes).and_then(|chunk| InitChunk::read(chunk.value));
                    self.answer();
                }
                SctpAction::Taken
            }
            (Some(COOKIE_ECHO), SetupStage::Asking) => {
                self.step = bytes.to_vec();
                self.enter(SetupStage::Echoing);
                SctpAction::Pass
            }
            (Some(COOKIE_ECHO), _) => SctpAction::Taken,
            (Some(DATA), _) => {
                self.note_answer(bytes);
                SctpAction::Pass
            }
            _ => SctpAction::Pass,
        }
    }

    /// Takes a packet of the device.
    pub fn handle_device(&mut self, bytes: &[u8]) -> SctpAction {
        let Some(kind) = kind(bytes) else {
            return SctpAction::Taken;
        };
        match (kind, self.stage) {
            // It would become a second association in str0m, which nothing ends.
            (INIT, SetupStage::Opening | SetupStage::Open) => return SctpAction::Taken,
            (INIT, _) => {
                if let Some(init) = first_chunk(bytes).and_then(|chunk| InitChunk::read(chunk.value)) {
                    self.device = Some(init);
                    self.answer();
                }
                return SctpAction::Taken;
            }
            (INIT_ACK, SetupStage::Asking) => {
                self.device = first_chunk(bytes).and_then(|chunk| InitChunk::read(chunk.value));
                return SctpAction::Pass;
            }
            (COOKIE_ECHO, _) => {
                self.handle_cookie();
                return SctpAction::Taken;
            }
            // It has read the COOKIE ECHO, whatever it says.
            (COOKIE_ACK, SetupStage::Echoing) => self.up(),
            (_, SetupStage::Echoing) if kind != INIT_ACK => {
                self.to_str0m.push_back(packet(self.tag(), COOKIE_ACK, 0, &[]));
                self.up();
            }
            (_, SetupStage::Opening | SetupStage::Open) => {}
            _ => return SctpAction::Taken,
        }
        if kind == DATA && self.once_only.is_some() {
            self.handle_once_only_data(bytes);
            return SctpAction::Taken;
        }
        if kind == SACK
            && let Some(data) = &mut self.once_only
        {
            data.answer = None;
        }
        if self.to_str0m.is_empty() {
            return SctpAction::Pass;
        }
        // It must not overtake what was made up.
        self.to_str0m.push_back(bytes.to_vec());
        SctpAction::Taken
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(wait) = self.wait() else {
            return;
        };
        if now < *self.due.get_or_insert(now + wait) {
            return;
        }
        self.repeats += 1;
        self.due = None;
        self.acknowledge_answer();
        match (self.stage, &self.str0m) {
            (SetupStage::Waiting, Some(init)) => {
                log::debug!("the device did not begin its association, so this end does");
                self.step = packet(0, INIT, 0, &init.value());
                self.to_device.push_back(self.step.clone());
                self.enter(SetupStage::Asking);
            }
            (SetupStage::Asking | SetupStage::Answering | SetupStage::Echoing, _) => {
                self.to_device.push_back(self.step.clone())
            }
            (SetupStage::Opening, _) => self.wait_for_channel(),
            _ => {}
        }
        self.due = self.wait().map(|wait| now + wait);
    }

    /// Returns when [`AssociationSetup::handle_timeout`] is wanted: at once, where the time is not known yet.
    pub fn poll_timeout(&self, last: Instant) -> Option<Instant> {
        self.wait().map(|_| self.due.unwrap_or(last))
    }

    pub fn poll_str0m(&mut self) -> Option<Vec<u8>> {
        self.to_str0m.pop_front()
    }

    pub fn poll_device(&mut self) -> Option<Vec<u8>> {
        self.to_device.pop_front()
    }

    /// Returns how long the step of this stage waits.
    fn wait(&self) -> Option<Duration> {
        match self.stage {
            SetupStage::Open => self.unacknowledged().map(|_| DEVICE_SETUP_REPEAT),
            SetupStage::Closed => None,
            // There is no data channel.
            SetupStage::Waiting if self.str0m.is_none() => None,
            _ => {
                let doubled = DEVICE_SETUP_REPEAT.saturating_mul(1 << (self.repeats / REPEATS_ALIKE).min(8));
                Some(doubled.min(DEVICE_SETUP_REPEAT_MAX))
            }
        }
    }

    fn enter(&mut self, stage: SetupStage) {
        self.stage = stage;
        self.due = None;
        self.repeats = 0;
    }

    /// Returns the tag of packets to str0m.
    fn tag(&self) -> u32 {
        self.str0m.as_ref().map_or(0, |init| init.tag)
    }

    /// Answers the device's INIT, once str0m has said what the answer is.
    fn answer(&mut self) {
        let (Some(str0m), Some(device)) = (&self.str0m, &self.device) else {
            return;
        };
        let acknowledgement = packet(device.tag, INIT_ACK, 0, &str0m.acknowledgement());
        self.to_device.push_back(acknowledgement.clone());
        // Where str0m's own cookie is out already, either will do.
        if self.stage != SetupStage::Echoing {
            self.step = acknowledgement;
            self.enter(SetupStage::Answering);
        }
    }

    /// The device has returned the cookie: it knows of str0m, and str0m learns of it.
    fn handle_cookie(&mut self) {
        let Some(device) = self.device.as_ref().filter(|_| self.stage > SetupStage::Asking) else {
            return;
        };
        let done = packet(device.tag, COOKIE_ACK, 0, &[]);
        if self.stage == SetupStage::Answering {
            let acknowledgement = packet(self.tag(), INIT_ACK, 0, &device.acknowledgement());
            self.to_str0m.push_back(acknowledgement);
        }
        if matches!(self.stage, SetupStage::Answering | SetupStage::Echoing) {
            self.to_str0m.push_back(packet(self.tag(), COOKIE_ACK, 0, &[]));
            self.up();
            self.step.clone_from(&done);
        }
        self.to_device.push_back(done);
    }

    /// The association is up.
    fn up(&mut self) {
        let device = self.device.as_ref().filter(|device| device.tag == ONCE_ONLY_TAG);
        self.once_only = device.map(|device| OneShotData {
            last: device.tsn.wrapping_sub(1),
            next: device.tsn,
            requested: false,
            answer: None,
        });
        self.step.clear();
        self.enter(if self.once_only.is_some() {
            SetupStage::Opening
        } else {
            SetupStage::Open
        });
    }

    /// Nothing came of the device: it does not know that it may ask for its channel, or has asked.
    fn wait_for_channel(&mut self) {
        if DEVICE_SETUP_REPEAT * self.repeats >= DEVICE_OPEN_AFTER {
            self.request_channel();
        }
        if self.step.is_empty() && self.is_requested() || self.repeats > DEVICE_COOKIE_ACKS_MAX {
            self.enter(SetupStage::Open);
        } else if !self.step.is_empty() {
            self.to_device.push_back(self.step.clone());
        }
    }

    fn is_requested(&self) -> bool {
        self.once_only.as_ref().is_none_or(|data| data.requested)
    }

    /// Asks str0m for the channel in the name of a device whose own request was lost.
    fn request_channel(&mut self) {
        let tag = self.tag();
        if let Some(data) = self.once_only.as_mut().filter(|data| !data.requested) {
            log::info!("the device's request for a data channel was lost; its stream 0 is taken as `rtvi-ai`");
            let request = message(tag, data.next, PPID_CONTROL, CHANNEL_REQUEST);
            data.next = data.next.wrapping_add(1);
            data.requested = true;
            self.to_str0m.push_back(request);
        }
    }

    /// Takes data that comes once, or never.
    fn handle_once_only_data(&mut self, bytes: &[u8]) {
        // What overwrote a COOKIE ACK is cut off.
        let Some(chunk) = DataChunk::read(bytes) else {
            return;
        };
        if self.stage == SetupStage::Opening {
            self.enter(SetupStage::Open);
        }
        let is_request = chunk.ppid == PPID_CONTROL && chunk.content.first() == Some(&CHANNEL_OPEN);
        if !is_request {
            self.request_channel();
        }
        let tag = self.tag();
        let Some(data) = &mut self.once_only else {
            return;
        };
        // Pieces belong together by their numbers alone.
        let is_torn = chunk.flags & BEGIN == 0 && chunk.tsn != data.last.wrapping_add(1);
        let is_late_request = is_request && data.requested;
        data.last = chunk.tsn;
        if is_torn || is_late_request {
            return;
        }
        data.requested |= is_request;
        self.to_str0m.push_back(chunk.numbered(tag, data.next));
        data.next = data.next.wrapping_add(1);
    }

    /// Notes str0m's answer to a request for the channel.
    fn note_answer(&mut self, bytes: &[u8]) {
        let Some(data) = &mut self.once_only else {
            return;
        };
        let is_answer = |chunk: &DataChunk<'_>| chunk.ppid == PPID_CONTROL && chunk.content == [CHANNEL_ACK];
        if let Some(chunk) = DataChunk::read(bytes).filter(is_answer) {
            data.answer = Some(chunk.tsn);
            if self.stage == SetupStage::Open {
                self.due = None;
            }
        }
    }

    fn unacknowledged(&self) -> Option<u32> {
        self.once_only.as_ref()?.answer
    }

    /// Acknowledges the answer in the name of a device that has missed it, or whose own word was
    /// lost. It drops the answer unread; but no message leaves before, and str0m waits for seconds.
    fn acknowledge_answer(&mut self) {
        let (tag, window) = (self.tag(), self.device.as_ref().map_or(0, |device| device.window));
        let answer = self.once_only.as_mut().and_then(|data| data.answer.take());
        if let Some(tsn) = answer {
            self.to_str0m.push_back(sack(tag, tsn, window));
        }
    }
}
