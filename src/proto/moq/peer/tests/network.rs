//! Streams in memory between two peers: reads of any size, windows, credits, aborted streams.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use quinn_proto::Side;

use super::super::MoqPeer;
use super::MoqEvent;
use crate::moq::link::{Dir, LinkEvent, MoqStreams, StreamId, StreamRead};

/// One direction of a stream.
#[derive(Debug, Default)]
pub struct Half {
    unread: VecDeque<u8>,
    is_finished: bool,
    reset: Option<u32>,
    /// The end was read, or the reader stopped it.
    pub is_over: bool,
    /// The writer waits for room.
    is_blocked: bool,
}

/// What two ends share.
#[derive(Debug)]
pub struct Network {
    /// By sending side.
    pub halves: [BTreeMap<StreamId, Half>; 2],
    events: [VecDeque<LinkEvent>; 2],
    opened: [[u64; 2]; 2],
    /// Streams that a side may still open, by direction.
    credit: [[u64; 2]; 2],
    /// Bytes of one read.
    pub read_max: usize,
    /// Unread bytes that a stream holds.
    pub window: usize,
}

pub struct TestStreams<'a> {
    network: &'a mut Network,
    side: usize,
}

pub struct Pair {
    pub network: Network,
    pub peers: [MoqPeer; 2],
}

impl Network {
    pub fn new() -> Self {
        Self {
            halves: Default::default(),
            events: Default::default(),
            opened: [[0; 2]; 2],
            credit: [[100; 2]; 2],
            read_max: usize::MAX,
            window: usize::MAX,
        }
    }

    /// Sets the number of streams that a side may open from now on.
    pub fn set_credit(&mut self, side: usize, dir: Dir, streams: u64) {
        self.credit[side][dir as usize] = streams;
        if streams > 0 {
            self.events[side].push_back(LinkEvent::Available(dir));
        }
    }

    /// Forgets streams of one direction that are over, so that a long test stays fast.
    pub fn forget_over(&mut self) {
        for halves in &mut self.halves {
            halves.retain(|id, half| id.dir() == Dir::Bi || !half.is_over);
        }
    }

    pub fn streams(&mut self, side: usize) -> TestStreams<'_> {
        TestStreams { network: self, side }
    }

    /// Streams on which a side sends and that are not over.
    pub fn sending(&self, side: usize) -> usize {
        self.halves[side].values().filter(|half| !half.is_over).count()
    }

    /// The code with which a side aborted a stream.
    pub fn reset_code(&self, side: usize, id: StreamId) -> Option<u32> {
        self.halves[side].get(&id)?.reset
    }
}

impl TestStreams<'_> {
    /// The streams on which the other side sends, in their order.
    pub fn sent_streams(&self) -> Vec<StreamId> {
        self.network.halves[1 - self.side].keys().copied().collect()
    }

    /// Bytes that the other side sent and this side did not read.
    pub fn unread(&self, id: StreamId) -> usize {
        self.network.halves[1 - self.side][&id].unread.len()
    }
}

impl MoqStreams for TestStreams<'_> {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        let (side, network) = (self.side, &mut *self.network);
        let credit = &mut network.credit[side][dir as usize];
        *credit = credit.checked_sub(1)?;
        let index = &mut network.opened[side][dir as usize];
        let id = StreamId::new([Side::Client, Side::Server][side], dir, *index);
        *index += 1;
        network.halves[side].insert(id, Half::default());
        if dir == Dir::Bi {
            network.halves[1 - side].insert(id, Half::default());
        }
        network.events[1 - side].push_back(LinkEvent::Opened(id));
        Some(id)
    }

    fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        let (side, network) = (self.side, &mut *self.network);
        let half = network.halves[side].get_mut(&id).expect("an own stream");
        assert!(!half.is_finished, "a write after the end of {id}");
        if half.is_over || half.reset.is_some() {
            return bytes.len();
        }
        let taken = bytes.len().min(network.window.saturating_sub(half.unread.len()));
        half.is_blocked = taken < bytes.len();
        half.unread.extend(&bytes[..taken]);
        network.events[1 - side].push_back(LinkEvent::Readable(id));
        taken
    }

    fn write_backlog(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        self.write(id, bytes)
    }

    fn finish(&mut self, id: StreamId) {
        let half = self.network.halves[self.side].get_mut(&id).expect("an own stream");
        if half.is_over || half.reset.is_some() {
            return;
        }
        half.is_finished = true;
        self.network.events[1 - self.side].push_back(LinkEvent::Readable(id));
    }

    fn reset(&mut self, id: StreamId, code: u32) {
        let Some(half) = self.network.halves[self.side].get_mut(&id) else {
            return;
        };
        if !half.is_over {
            half.reset = half.reset.or(Some(code));
            self.network.events[1 - self.side].push_back(LinkEvent::Readable(id));
        }
    }

    fn stop(&mut self, id: StreamId, code: u32) {
        let half = self.network.halves[1 - self.side]
            .get_mut(&id)
            .expect("a stream of the other");
        if !half.is_over {
            half.is_over = true;
            self.network.events[1 - self.side].push_back(LinkEvent::Stopped { id, code });
        }
    }

    fn set_priority(&mut self, id: StreamId, _: i32) {
        assert!(self.network.halves[self.side].contains_key(&id));
    }

    fn read(&mut self, id: StreamId) -> StreamRead {
        let (side, network) = (self.side, &mut *self.network);
        let half = network.halves[1 - side].get_mut(&id).expect("a stream of the other");
        if half.is_over {
            return StreamRead::Reset(0);
        }
        if let Some(code) = half.reset {
            half.is_over = true;
            return StreamRead::Reset(code);
        }
        if half.unread.is_empty() {
            if !half.is_finished {
                return StreamRead::Blocked;
            }
            half.is_over = true;
            network.events[1 - side].push_back(LinkEvent::Finished(id));
            return StreamRead::Finished;
        }
        let count = half.unread.len().min(network.read_max);
        let bytes: Bytes = half.unread.drain(..count).collect();
        if std::mem::take(&mut half.is_blocked) {
            network.events[1 - side].push_back(LinkEvent::Writable(id));
        }
        StreamRead::Bytes(bytes)
    }
}

impl Pair {
    pub fn new() -> Self {
        Self {
            network: Network::new(),
            peers: [MoqPeer::new(11), MoqPeer::new(22)],
        }
    }

    pub fn side(&mut self, side: usize) -> (&mut MoqPeer, TestStreams<'_>) {
        (&mut self.peers[side], self.network.streams(side))
    }

    /// Lets a side write to streams that were blocked, after the window grew.
    pub fn wake_writers(&mut self, side: usize) {
        let blocked = self.network.halves[side].iter_mut().filter(|(_, half)| half.is_blocked);
        let events = blocked.map(|(id, _)| LinkEvent::Writable(*id));
        self.network.events[side].extend(events);
    }

    /// Hands over events until both peers are quiet; returns what each reported.
    pub fn run(&mut self) -> [Vec<MoqEvent>; 2] {
        let mut reported = [Vec::new(), Vec::new()];
        loop {
            let mut is_quiet = true;
            for side in [0, 1] {
                is_quiet &= !self.run_side(side, &mut reported[side]);
            }
            if is_quiet {
                return reported;
            }
        }
    }

    /// Hands over the events of one peer; returns whether there were any.
    pub fn run_side(&mut self, side: usize, reported: &mut Vec<MoqEvent>) -> bool {
        let mut is_busy = false;
        while let Some(event) = self.network.events[side].pop_front() {
            is_busy = true;
            let mut streams = self.network.streams(side);
            self.peers[side].handle_event(event, &mut streams);
        }
        let mut streams = self.network.streams(side);
        while let Some(event) = self.peers[side].poll_event(&mut streams) {
            is_busy = true;
            reported.push(event);
        }
        is_busy
    }

    /// A stream that a side opens by hand, with these bytes.
    pub fn raw(&mut self, side: usize, dir: Dir, bytes: &[u8]) -> StreamId {
        let mut streams = self.network.streams(side);
        let id = streams.open(dir).expect("credit for a stream");
        assert_eq!(streams.write(id, bytes), bytes.len());
        id
    }
}
