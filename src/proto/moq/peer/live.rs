//! Groups of live tracks: a fixed number of frames each, numbered when their streams open.
//!
//! The published player plays groups by their numbers and waits for a missing one until its buffer
//! is full, so no number is skipped: a frame that waits too long for a stream never becomes a
//! group, and a group whose stream is open is sent to its end. Source: `docs/spec/moq.md` 5.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::moq::link::{Dir, MoqStreams, StreamId};

use super::STREAM_CODE_CANCEL;

/// Time that a frame of a live track may wait for its group; older audio is useless.
pub const LIVE_BUDGET: Duration = Duration::from_millis(500);
/// Frames per subscriber that are not acknowledged: 640 ms of audio packets, more than a round
/// trip. It bounds the groups; further frames wait.
pub const LIVE_FRAMES_MAX: usize = 32;
/// The groups that fit in any case: the one that is being written, and the one before.
const LIVE_GROUPS_MIN: usize = 2;
/// Frames that wait: more than audio packets of [`LIVE_BUDGET`]. A further one drops the oldest.
const WAITING_FRAMES_MAX: usize = 64;

/// The groups in flight, and the frames behind them.
#[derive(Debug)]
pub struct LiveGroups {
    frames_per_group: usize,
    in_flight: Vec<LiveGroup>,
    /// Oldest first.
    waiting: VecDeque<WaitingFrame>,
    /// Streams for the next frame, which needs one per subscriber.
    reserved: Vec<StreamId>,
}

#[derive(Debug)]
struct LiveGroup {
    track: usize,
    /// The request stream of the subscriber.
    subscriber: StreamId,
    stream: StreamId,
    /// What is not written yet.
    rest: Vec<u8>,
    /// Whether more frames follow.
    is_open: bool,
}

/// A frame without a group.
#[derive(Debug)]
pub struct WaitingFrame {
    pub track: usize,
    pub payload: Vec<u8>,
    deadline: Instant,
}

impl Default for LiveGroups {
    fn default() -> Self {
        Self {
            frames_per_group: 1,
            in_flight: Vec::new(),
            waiting: VecDeque::new(),
            reserved: Vec::new(),
        }
    }
}

impl LiveGroups {
    pub fn frames_per_group(&self) -> usize {
        self.frames_per_group
    }

    /// Sets the number of frames per group, from 1.
    pub fn set_frames_per_group(&mut self, frames: usize) {
        self.frames_per_group = frames;
    }

    /// Whether a subscriber may have another group in flight.
    pub fn has_room(&self, subscriber: StreamId) -> bool {
        let of_it = |group: &&LiveGroup| group.subscriber == subscriber;
        let groups_max = (LIVE_FRAMES_MAX / self.frames_per_group).max(LIVE_GROUPS_MIN);
        self.in_flight.iter().filter(of_it).count() < groups_max
    }

    /// Opens the streams of the next frame; returns whether there are `count`.
    pub fn reserve(&mut self, count: usize, streams: &mut impl MoqStreams) -> bool {
        while self.reserved.len() < count {
            match streams.open(Dir::Uni) {
                Some(id) => self.reserved.push(id),
                None => return false,
            }
        }
        true
    }

    /// Begins a group for a subscriber on a reserved stream, with its header and its first frame.
    pub fn begin(&mut self, track: usize, subscriber: StreamId, bytes: &[u8], streams: &mut impl MoqStreams) {
        let Some(stream) = self.reserved.pop() else {
            return;
        };
        let mut group = LiveGroup {
            track,
            subscriber,
            stream,
            rest: Vec::new(),
            is_open: true,
        };
        group.write(bytes, streams);
        self.in_flight.push(group);
    }

    /// Whether the open groups of a track take another frame: all bytes before it are written.
    pub fn can_extend(&self, track: usize) -> bool {
        let mut open = self
            .in_flight
            .iter()
            .filter(|group| group.track == track && group.is_open);
        open.all(|group| group.rest.is_empty())
    }

    /// Adds a frame to the open groups of a track.
    pub fn extend(&mut self, track: usize, bytes: &[u8], streams: &mut impl MoqStreams) {
        for group in self.in_flight.iter_mut() {
            if group.track == track && group.is_open {
                group.write(bytes, streams);
            }
        }
    }

    /// Ends the open groups of a track.
    pub fn end(&mut self, track: usize, streams: &mut impl MoqStreams) {
        for group in self.in_flight.iter_mut() {
            if group.track == track && std::mem::replace(&mut group.is_open, false) {
                group.finish_if_written(streams);
            }
        }
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Keeps a frame until a group of it can be sent.
    pub fn wait(&mut self, track: usize, payload: &[u8], now: Instant) {
        if self.waiting.len() == WAITING_FRAMES_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(WaitingFrame {
            track,
            payload: payload.to_vec(),
            deadline: now + LIVE_BUDGET,
        });
    }

    pub fn next_waiting(&mut self) -> Option<WaitingFrame> {
        self.waiting.pop_front()
    }

    /// Takes back a frame of [`Self::next_waiting`].
    pub fn wait_again(&mut self, frame: WaitingFrame) {
        self.waiting.push_front(frame);
    }

    /// Drops the frames that wait; those of one track, or all.
    pub fn drop_waiting(&mut self, track: Option<usize>) {
        self.waiting
            .retain(|frame| track.is_some_and(|track| frame.track != track));
    }

    /// When the next frame has waited too long.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|frame| frame.deadline)
    }

    /// Drops the frames that waited too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|frame| frame.deadline <= now) {
            self.waiting.pop_front();
        }
    }

    /// A stream takes bytes again. Returns whether it is one of these.
    pub fn handle_writable(&mut self, id: StreamId, streams: &mut impl MoqStreams) -> bool {
        let Some(group) = self.in_flight.iter_mut().find(|group| group.stream == id) else {
            return false;
        };
        if !group.rest.is_empty() {
            let taken = streams.write(id, &group.rest);
            group.rest.drain(..taken);
            if !group.is_open {
                group.finish_if_written(streams);
            }
        }
        true
    }

    /// The receiver acknowledged a stream to its end.
    pub fn handle_finished(&mut self, id: StreamId) {
        self.in_flight.retain(|group| group.stream != id);
    }

    /// The receiver wants no more of a group. Returns whether it is one of these.
    pub fn handle_stopped(&mut self, id: StreamId, streams: &mut impl MoqStreams) -> bool {
        let count = self.in_flight.len() + self.reserved.len();
        self.in_flight.retain(|group| group.stream != id);
        self.reserved.retain(|reserved| *reserved != id);
        let is_ours = self.in_flight.len() + self.reserved.len() < count;
        if is_ours {
            streams.reset(id, STREAM_CODE_CANCEL);
        }
        is_ours
    }

    /// Aborts the groups of a subscriber that left.
    pub fn cancel(&mut self, subscriber: StreamId, streams: &mut impl MoqStreams) {
        self.in_flight.retain(|group| {
            let is_other = group.subscriber != subscriber;
            if !is_other {
                streams.reset(group.stream, STREAM_CODE_CANCEL);
            }
            is_other
        });
    }

    /// Forgets all groups and frames: the connection is gone.
    pub fn clear(&mut self) {
        self.in_flight.clear();
        self.waiting.clear();
        self.reserved.clear();
    }
}

impl LiveGroup {
    /// Writes what the stream takes, and keeps the rest.
    fn write(&mut self, bytes: &[u8], streams: &mut impl MoqStreams) {
        let taken = streams.write(self.stream, bytes);
        self.rest.extend_from_slice(&bytes[taken..]);
    }

    fn finish_if_written(&self, streams: &mut impl MoqStreams) {
        if self.rest.is_empty() {
            streams.finish(self.stream);
        }
    }
}
