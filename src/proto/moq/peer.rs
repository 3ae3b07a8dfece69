//! `moq-lite-04` on the streams of a link: announcements, subscriptions and groups of both roles.
//!
//! Events of the link come in by [`MoqPeer::handle_event`]; what the remote end did comes out of
//! [`MoqPeer::poll_event`], which reads the streams as far as the caller polls, so that the flow
//! control of QUIC slows down a peer that sends faster. Methods that may send take the streams.
//! Source: `docs/spec/moq.md` 3.

mod consumer;
mod control;
mod inbound;
mod live;
mod publisher;
mod stream_reader;
mod tracks;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::link::{Dir, LinkEvent, MoqStreams, StreamId};
use consumer::MoqConsumer;
use control::ControlStreams;
use inbound::InboundStream;
use publisher::MoqPublisher;

pub use live::{LIVE_BUDGET, LIVE_FRAMES_MAX};

/// Bytes of a frame of a live track: the longest Opus packets fit.
const LIVE_FRAME_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a snapshot: catalogs in use have up to 2 kB.
const SNAPSHOT_FRAME_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a compressed record: the longest message that other transports accept.
const LOG_FRAME_BYTES_MAX: usize = crate::limits::MESSAGE_BYTES_MAX;
/// Origin ids have 53 bits: browsers before `@moq/net` 0.1.9 reject longer ones.
const ORIGIN_MASK: u64 = (1 << 53) - 1;

/// Codes of aborted streams, in the numbering of the libraries that speak `moq-lite-04`. Receivers
/// take every reset of a subscription as its end. `docs/spec/moq.md` 3.
const STREAM_CODE_CANCEL: u32 = 0;
const STREAM_CODE_TOO_LATE: u32 = 2;
const STREAM_CODE_TOO_MANY: u32 = 11;
const STREAM_CODE_DUPLICATE: u32 = 12;
const STREAM_CODE_NOT_FOUND: u32 = 13;
const STREAM_CODE_VIOLATION: u32 = 15;
const STREAM_CODE_UNSUPPORTED: u32 = 17;

/// A track of this end's broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MoqTrackId(pub u32);

/// A subscription of this end to a track of the remote end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MoqSubscriptionId(pub u64);

/// How a track is cut into groups, and what of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoqTrackKind {
    /// A group per frame; later subscribers receive the latest: the catalog.
    Snapshot,
    /// Groups of a fixed number of frames, nothing is kept, and frames that wait longer than
    /// [`LIVE_BUDGET`] for their group are dropped: audio.
    Live,
    /// One group with all frames; later subscribers receive each of them: records.
    Log,
}

impl MoqTrackKind {
    /// Bytes of the longest frame that is accepted from a remote end.
    pub fn frame_bytes_max(self) -> usize {
        match self {
            Self::Snapshot => SNAPSHOT_FRAME_BYTES_MAX,
            Self::Live => LIVE_FRAME_BYTES_MAX,
            Self::Log => LOG_FRAME_BYTES_MAX,
        }
    }
}

/// What a subscription asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoqSubscribeOptions {
    /// Bounds the frames. A frame that is too long ends its group on a live track, and else the
    /// session.
    pub kind: MoqTrackKind,
    /// Higher is more urgent.
    pub priority: u8,
    /// Time that the publisher may delay a group behind newer ones.
    pub max_latency: Duration,
}

/// What the remote end did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoqEvent {
    /// A broadcast is available under this path.
    Announced { path: String },
    /// The broadcast is gone, or the stream of announcements ended.
    Retracted { path: String },
    /// The remote end receives a track of this end from now on.
    Subscribed { track: MoqTrackId },
    /// A complete frame of a subscribed track. Groups may arrive in any order; the frames of one
    /// group arrive in theirs.
    Frame {
        subscription: MoqSubscriptionId,
        group: u64,
        payload: Bytes,
    },
    /// A group ended; no more frames of it follow.
    GroupEnded {
        subscription: MoqSubscriptionId,
        group: u64,
        /// Whether it was aborted.
        is_reset: bool,
    },
    /// The subscription was accepted by the publisher.
    Accepted { subscription: MoqSubscriptionId },
    /// The track ended, or does not exist. No more events of the subscription follow.
    Ended {
        subscription: MoqSubscriptionId,
        /// The code of a reset; `None` if the track was finished.
        code: Option<u32>,
    },
    /// The remote end shuts down soon.
    GoingAway,
    /// The remote end violated the protocol, or exceeded a limit; close the link with this reason.
    /// No more events follow.
    Violation(String),
}

/// One end of a MoQ session.
#[derive(Debug)]
pub struct MoqPeer {
    /// The hop id of this end.
    origin: u64,
    publisher: MoqPublisher,
    consumer: MoqConsumer,
    control: ControlStreams,
    /// The receiving halves of streams.
    inbound: HashMap<StreamId, InboundStream>,
    /// Streams that may have bytes, each once.
    readable: VecDeque<StreamId>,
    /// Bytes of incomplete messages and frames.
    partial_bytes: usize,
    /// Invalid streams and requests so far.
    rejected: usize,
    /// Subscriptions whose publisher finished them, until the groups that arrived are read.
    finished: VecDeque<u64>,
    events: VecDeque<MoqEvent>,
    is_violated: bool,
    /// The reason of a violation that was not reported yet.
    violation: Option<String>,
}

impl MoqPeer {
    /// `origin` is random; 53 of its bits become the hop id of this end.
    pub fn new(origin: u64) -> Self {
        Self {
            origin: (origin & ORIGIN_MASK).max(1),
            publisher: MoqPublisher::default(),
            consumer: MoqConsumer::default(),
            control: ControlStreams::default(),
            inbound: HashMap::new(),
            readable: VecDeque::new(),
            partial_bytes: 0,
            rejected: 0,
            finished: VecDeque::new(),
            events: VecDeque::new(),
            is_violated: false,
            violation: None,
        }
    }

    /// Begins again on a new link, under a new origin. Broadcast, tracks and what they keep remain;
    /// requests of both ends are forgotten.
    pub fn reconnect(&mut self, origin: u64) {
        let mut fresh = Self::new(origin);
        std::mem::swap(&mut fresh.publisher, &mut self.publisher);
        std::mem::swap(&mut fresh.consumer, &mut self.consumer);
        fresh.publisher.clear();
        fresh.consumer.clear();
        *self = fresh;
    }

    /// Takes an event of the link. Then poll the events of the peer.
    pub fn handle_event(&mut self, event: LinkEvent, streams: &mut impl MoqStreams) {
        if self.is_violated {
            return;
        }
        match event {
            LinkEvent::Opened(id) => self.handle_opened(id, streams),
            LinkEvent::Readable(id) => self.handle_readable(id),
            LinkEvent::Writable(id) => {
                if !self.publisher.handle_writable(id, &mut self.control, streams) {
                    self.control.handle_writable(id, streams);
                }
            }
            LinkEvent::Stopped { id, .. } => self.handle_stopped(id, streams),
            LinkEvent::Finished(id) => self.publisher.handle_finished(id, &mut self.control, streams),
            LinkEvent::Available(Dir::Uni) => self.publisher.handle_available(&mut self.control, streams),
            LinkEvent::Available(Dir::Bi) => self.open_requests(streams),
            LinkEvent::Connected => {
                self.open_requests(streams);
                self.publisher.handle_available(&mut self.control, streams);
            }
            LinkEvent::Requested(_) | LinkEvent::Closed(_) => {}
        }
    }

    /// The next event. It reads from streams that have bytes until one is found.
    pub fn poll_event(&mut self, streams: &mut impl MoqStreams) -> Option<MoqEvent> {
        loop {
            if self.is_violated {
                let event = self.events.pop_front().filter(|_| self.violation.is_some());
                return event.or_else(|| self.violation.take().map(MoqEvent::Violation));
            }
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match self.readable.pop_front() {
                Some(id) => self.read(id, streams),
                None => {
                    let id = self.finished.pop_front()?;
                    self.end_subscription(id, None, streams);
                }
            }
        }
    }

    /// Adds a track. The tracks are complete before [`Self::publish`].
    pub fn add_track(&mut self, name: &str, kind: MoqTrackKind) -> MoqTrackId {
        self.publisher.add_track(name, kind)
    }

    /// Sets the frames per group of live tracks; 1 is the default.
    pub fn set_frames_per_group(&mut self, frames: usize) {
        self.publisher.set_frames_per_group(frames);
    }

    /// Announces the broadcast to each remote request, present and future. Subscriptions wait
    /// before it; after it those to other paths and tracks are rejected.
    pub fn publish(&mut self, path: &str, streams: &mut impl MoqStreams) {
        let events = &mut self.events;
        self.publisher
            .publish(path, self.origin, &mut self.control, events, streams);
    }

    /// Withdraws the broadcast. Subscriptions go on until their tracks are finished.
    pub fn retract(&mut self, streams: &mut impl MoqStreams) {
        self.publisher.retract(self.origin, &mut self.control, streams);
    }

    /// Publishes a frame. Frames of a finished track are ignored.
    pub fn write(&mut self, track: MoqTrackId, frame: &[u8], now: Instant, streams: &mut impl MoqStreams) {
        let written = self.publisher.write(track, frame, now, &mut self.control, streams);
        if let Err(reason) = written {
            self.violate(reason);
        }
    }

    /// Drops the frames of live tracks that wait for their groups. Groups in flight are sent to
    /// their end.
    pub fn drop_live(&mut self) {
        self.publisher.drop_live();
    }

    /// Ends a track: subscribers receive what is kept, then its end.
    pub fn finish(&mut self, track: MoqTrackId, streams: &mut impl MoqStreams) {
        self.publisher.finish(track, &mut self.control, streams);
    }

    pub fn has_subscriber(&self, track: MoqTrackId) -> bool {
        self.publisher.has_subscriber(track)
    }

    /// Whether the start of a log was dropped, so that no later subscriber can receive it.
    pub fn is_truncated(&mut self, track: MoqTrackId) -> bool {
        self.publisher.track(track).is_some_and(|track| track.is_truncated)
    }

    /// Forgets the frames of a log before a new connection; its writer begins a new epoch.
    pub fn restart(&mut self, track: MoqTrackId) {
        if let Some(track) = self.publisher.track(track) {
            track.restart();
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.publisher.poll_timeout()
    }

    /// Drops the frames of live tracks that waited too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.publisher.handle_timeout(now);
    }

    /// Asks for announcements of the paths below a prefix; an empty prefix is all paths.
    pub fn discover(&mut self, prefix: &str, streams: &mut impl MoqStreams) {
        self.consumer.discover(prefix);
        self.open_requests(streams);
    }

    /// Subscribes to a track of the remote end, from its latest group.
    pub fn subscribe(
        &mut self,
        broadcast: &str,
        track: &str,
        options: MoqSubscribeOptions,
        streams: &mut impl MoqStreams,
    ) -> MoqSubscriptionId {
        let id = self.consumer.subscribe(broadcast, track, options);
        self.open_requests(streams);
        id
    }

    /// Ends a subscription. Events that were not polled yet may still name it.
    pub fn unsubscribe(&mut self, id: MoqSubscriptionId, streams: &mut impl MoqStreams) {
        self.drop_subscription(id.0, streams);
    }

    fn open_requests(&mut self, streams: &mut impl MoqStreams) {
        while let Some((id, opened)) = self.consumer.open_next(self.origin, &mut self.control, streams) {
            self.inbound.insert(id, InboundStream::of_request(opened));
        }
    }

    fn violate(&mut self, reason: String) {
        if !self.is_violated {
            self.is_violated = true;
            self.violation = Some(reason);
        }
    }
}

#[cfg(test)]
mod tests;
