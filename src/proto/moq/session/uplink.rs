//! The connections of a session: the current one, and former ones until they are drained.
//!
//! It is also the streams of the current connection. Without one, streams cannot be opened and what
//! is written is dropped.

use std::time::{Duration, Instant};

use quinn_proto::ConnectionEvent;

use super::MoqCommand;
use crate::moq::link::{Dir, LinkEvent, MoqLink, MoqStreams, StreamId, StreamRead};

/// Former connections that are still closing. A session that redials leaves one each time, and each
/// drains within two seconds.
const FORMER_MAX: usize = 4;

/// One connection.
struct NumberedLink {
    number: u64,
    link: MoqLink,
    last_received: Instant,
}

/// The connections of a session.
#[derive(Default)]
pub struct Uplink {
    current: Option<Box<NumberedLink>>,
    former: Vec<Box<NumberedLink>>,
}

impl Uplink {
    /// Makes a connection the current one.
    pub fn open(&mut self, number: u64, link: MoqLink, now: Instant) {
        self.retire();
        self.current = Some(Box::new(NumberedLink {
            number,
            link,
            last_received: now,
        }));
    }

    /// Makes the current connection a former one, which only drains.
    pub fn retire(&mut self) {
        self.former.extend(self.current.take());
    }

    /// Closes the current connection, which then drains.
    pub fn close(&mut self, code: u32, reason: &str, now: Instant) {
        if let Some(current) = &mut self.current {
            current.link.close(code, reason, now);
        }
        self.retire();
    }

    /// Returns whether there is a current connection.
    pub fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// Returns whether every connection is drained and dropped.
    pub fn is_empty(&self) -> bool {
        self.current.is_none() && self.former.is_empty()
    }

    /// Returns the round trip of the current connection, as QUIC estimates it.
    pub fn round_trip(&self) -> Option<Duration> {
        self.current.as_ref().map(|current| current.link.round_trip())
    }

    /// Returns when the current connection last received a datagram.
    pub fn last_received(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.last_received)
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Box<NumberedLink>> {
        self.current.iter_mut().chain(&mut self.former)
    }

    pub fn handle_connection_event(&mut self, number: u64, event: ConnectionEvent, now: Instant) {
        if let Some(found) = self.all().find(|each| each.number == number) {
            found.last_received = now;
            found.link.handle_connection_event(event, now);
        }
    }

    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.all().filter_map(|each| each.link.poll_timeout()).min()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        for each in self.all() {
            if each.link.poll_timeout().is_some_and(|at| now >= at) {
                each.link.handle_timeout(now);
            }
        }
    }

    /// Returns the next event of the current connection.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.current.as_mut()?.link.poll_event()
    }

    /// Returns the next command for the transport. The datagram of [`MoqCommand::Send`] is in
    /// `buffer`.
    pub fn poll_command(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<MoqCommand> {
        for each in self.all() {
            // Events of a former connection concern no one.
            if let Some(transmit) = each.link.poll_transmit(now, buffer) {
                return Some(MoqCommand::Send(transmit));
            }
            if let Some(event) = each.link.poll_endpoint_event() {
                let connection = each.number;
                return Some(MoqCommand::Endpoint { connection, event });
            }
        }
        for each in &mut self.former {
            while each.link.poll_event().is_some() {}
        }
        let is_full = self.former.len() > FORMER_MAX;
        let drained = self.former.iter().position(|each| each.link.is_drained());
        let at = drained.or_else(|| is_full.then_some(0))?;
        let connection = self.former.remove(at).number;
        Some(MoqCommand::Drop { connection })
    }

    /// Drops a connection, drained or not. Returns its number.
    pub fn drop_next(&mut self) -> Option<u64> {
        self.retire();
        self.former.pop().map(|each| each.number)
    }
}

impl MoqStreams for Uplink {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        self.current.as_mut()?.link.open(dir)
    }

    fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        match &mut self.current {
            Some(current) => current.link.write(id, bytes),
            None => bytes.len(),
        }
    }

    fn write_backlog(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        match &mut self.current {
            Some(current) => current.link.write_backlog(id, bytes),
            None => bytes.len(),
        }
    }

    fn finish(&mut self, id: StreamId) {
        if let Some(current) = &mut self.current {
            current.link.finish(id);
        }
    }

    fn reset(&mut self, id: StreamId, code: u32) {
        if let Some(current) = &mut self.current {
            current.link.reset(id, code);
        }
    }

    fn stop(&mut self, id: StreamId, code: u32) {
        if let Some(current) = &mut self.current {
            current.link.stop(id, code);
        }
    }

    fn set_priority(&mut self, id: StreamId, priority: i32) {
        if let Some(current) = &mut self.current {
            current.link.set_priority(id, priority);
        }
    }

    fn read(&mut self, id: StreamId) -> StreamRead {
        match &mut self.current {
            Some(current) => current.link.read(id),
            None => StreamRead::Reset(0),
        }
    }
}
