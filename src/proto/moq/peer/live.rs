//! Groups of live tracks on their way: one frame each, aborted when it is too old.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::moq::link::{Dir, MoqStreams, StreamId};

use super::{STREAM_CODE_CANCEL, STREAM_CODE_TOO_LATE};

/// Time that a group of a live track has to be sent and acknowledged; older audio is useless.
pub const LIVE_BUDGET: Duration = Duration::from_millis(500);
/// Groups within their budget, per subscriber: 640 ms of audio packets. A further one ends the
/// oldest.
pub const LIVE_GROUPS_MAX: usize = 32;

/// The groups within their budget, oldest first. A group stays after it was written, because the
/// network may still retransmit it; aborting one that was acknowledged does nothing.
#[derive(Debug, Default)]
pub struct LiveGroups {
    groups: VecDeque<LiveGroup>,
}

#[derive(Debug)]
struct LiveGroup {
    /// The request stream of the subscriber.
    subscriber: StreamId,
    /// `None` until a stream can be opened.
    stream: Option<StreamId>,
    /// What is not written yet.
    rest: Vec<u8>,
    deadline: Instant,
}

impl LiveGroups {
    /// Sends a group, header included, to a subscriber.
    pub fn send(&mut self, subscriber: StreamId, bytes: &[u8], now: Instant, streams: &mut impl MoqStreams) {
        let stream = streams.open(Dir::Uni);
        let taken = stream.map_or(0, |id| streams.write(id, bytes));
        let mut group = LiveGroup {
            subscriber,
            stream,
            rest: Vec::new(),
            deadline: now + LIVE_BUDGET,
        };
        match stream.filter(|_| taken == bytes.len()) {
            Some(id) => streams.finish(id),
            None => group.rest = bytes[taken..].to_vec(),
        }
        let of_it = |group: &LiveGroup| group.subscriber == subscriber;
        if self.groups.iter().filter(|group| of_it(group)).count() >= LIVE_GROUPS_MAX {
            let oldest = self.groups.iter().position(of_it);
            if let Some(oldest) = oldest.and_then(|at| self.groups.remove(at)) {
                oldest.abort(STREAM_CODE_TOO_LATE, streams);
            }
        }
        self.groups.push_back(group);
    }

    /// A stream takes bytes again. Returns whether it is one of these.
    pub fn handle_writable(&mut self, id: StreamId, streams: &mut impl MoqStreams) -> bool {
        let group = self.groups.iter_mut().find(|group| group.stream == Some(id));
        group.map(|group| group.send(streams)).is_some()
    }

    /// Streams can be opened again.
    pub fn handle_available(&mut self, streams: &mut impl MoqStreams) {
        for group in self.groups.iter_mut().filter(|group| group.stream.is_none()) {
            group.stream = streams.open(Dir::Uni);
            if group.stream.is_none() {
                break;
            }
            group.send(streams);
        }
    }

    /// The receiver wants no more of a group. Returns whether it is one of these.
    pub fn handle_stopped(&mut self, id: StreamId, streams: &mut impl MoqStreams) -> bool {
        let at = self.groups.iter().position(|group| group.stream == Some(id));
        let stopped = at.and_then(|at| self.groups.remove(at));
        stopped.map(|group| group.abort(STREAM_CODE_CANCEL, streams)).is_some()
    }

    /// Aborts the groups of a subscriber that left.
    pub fn cancel(&mut self, subscriber: StreamId, streams: &mut impl MoqStreams) {
        self.groups.retain(|group| {
            let is_other = group.subscriber != subscriber;
            if !is_other {
                group.abort(STREAM_CODE_CANCEL, streams);
            }
            is_other
        });
    }

    /// Aborts all groups: what they carry is not wanted any more.
    pub fn abort_all(&mut self, streams: &mut impl MoqStreams) {
        for group in self.groups.drain(..) {
            group.abort(STREAM_CODE_CANCEL, streams);
        }
    }

    /// When the next group becomes too old.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.groups.front().map(|group| group.deadline)
    }

    /// Aborts groups that are too old.
    pub fn handle_timeout(&mut self, now: Instant, streams: &mut impl MoqStreams) {
        while self.groups.front().is_some_and(|group| group.deadline <= now) {
            if let Some(late) = self.groups.pop_front() {
                late.abort(STREAM_CODE_TOO_LATE, streams);
            }
        }
    }

    /// Forgets the groups of a connection that is gone.
    pub fn clear(&mut self) {
        self.groups.clear();
    }
}

impl LiveGroup {
    fn send(&mut self, streams: &mut impl MoqStreams) {
        let Some(id) = self.stream.filter(|_| !self.rest.is_empty()) else {
            return;
        };
        let taken = streams.write(id, &self.rest);
        self.rest.drain(..taken);
        if self.rest.is_empty() {
            streams.finish(id);
        }
    }

    fn abort(&self, code: u32, streams: &mut impl MoqStreams) {
        if let Some(id) = self.stream {
            streams.reset(id, code);
        }
    }
}
