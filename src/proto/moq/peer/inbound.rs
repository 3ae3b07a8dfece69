//! The receiving halves of streams: what each carries, and what its bytes and its end mean.

use bytes::Bytes;

use crate::moq::link::{Dir, MoqStreams, StreamId, StreamRead};
use crate::moq::message::{
    AnnounceInterest, AnnounceMessage, GroupHeader, MESSAGE_LENGTH_MAX, MoqMessageError, REPLY_DROP, REPLY_OK,
    STREAM_ANNOUNCE, STREAM_FETCH, STREAM_GOAWAY, STREAM_GROUP, STREAM_PROBE, STREAM_SUBSCRIBE, SubscribeMessage,
    SubscribeTerms,
};

use super::consumer::{ANNOUNCEMENTS_MAX, ConsumerVerdict, OpenedRequest};
use super::stream_reader::{MoqStreamReader, OversizeFrame};
use super::{
    MoqEvent, MoqPeer, MoqSubscriptionId, STREAM_CODE_CANCEL, STREAM_CODE_TOO_LATE, STREAM_CODE_TOO_MANY,
    STREAM_CODE_UNSUPPORTED, STREAM_CODE_VIOLATION,
};

/// Receiving halves of streams at a time: the groups in flight of a few subscriptions, and
/// requests.
const INBOUND_STREAMS_MAX: usize = 256;
/// Bytes of incomplete messages and frames, all streams together.
const PARTIAL_BYTES_MAX: usize = 1024 * 1024;
/// Invalid streams and requests of one peer, after which it is no peer of this protocol.
const REJECTED_STREAMS_MAX: usize = 64;

/// The receiving half of a stream.
#[derive(Debug)]
pub struct InboundStream {
    reader: MoqStreamReader,
    role: InboundRole,
    /// Whether it is in the queue of readable streams.
    is_queued: bool,
    /// Its part of the peer's incomplete bytes.
    counted_bytes: usize,
}

/// What the next bytes of a stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InboundRole {
    /// The type of a stream that the remote end opened.
    Type(Dir),
    /// A request for announcements.
    Interest,
    /// Nothing more: the request was read.
    InterestRead,
    /// A request for a track.
    Subscribe,
    /// Updates of a subscription.
    Updates,
    GroupHeader,
    Frames {
        subscription: u64,
        group: u64,
    },
    /// Announcements that this end asked for.
    Announcements,
    /// The type of a reply to a subscription of this end.
    ReplyType(u64),
    Reply {
        subscription: u64,
        is_ok: bool,
    },
}

/// Why the bytes of a stream cannot be used.
enum InboundFault {
    /// The stream alone ends, with this code.
    Stream(u32),
    /// The session ends, with this reason.
    Session(String),
}

impl From<MoqMessageError> for InboundFault {
    fn from(_: MoqMessageError) -> Self {
        Self::Stream(STREAM_CODE_VIOLATION)
    }
}

impl From<OversizeFrame> for InboundFault {
    fn from(_: OversizeFrame) -> Self {
        Self::Stream(STREAM_CODE_VIOLATION)
    }
}

impl InboundStream {
    fn new(role: InboundRole) -> Self {
        Self {
            reader: MoqStreamReader::default(),
            role,
            is_queued: false,
            counted_bytes: 0,
        }
    }

    /// The replies to a request of this end.
    pub fn of_request(opened: OpenedRequest) -> Self {
        Self::new(match opened {
            OpenedRequest::Announcements => InboundRole::Announcements,
            OpenedRequest::Replies(id) => InboundRole::ReplyType(id),
        })
    }
}

impl MoqPeer {
    /// The remote end opened a stream.
    pub(super) fn handle_opened(&mut self, id: StreamId, streams: &mut impl MoqStreams) {
        if !self.inbound.contains_key(&id) {
            if self.inbound.len() >= INBOUND_STREAMS_MAX {
                abandon(id, STREAM_CODE_TOO_MANY, streams);
                return;
            }
            self.inbound.insert(id, InboundStream::new(InboundRole::Type(id.dir())));
        }
        self.handle_readable(id);
    }

    pub(super) fn handle_readable(&mut self, id: StreamId) {
        if let Some(stream) = self.inbound.get_mut(&id)
            && !stream.is_queued
        {
            stream.is_queued = true;
            self.readable.push_back(id);
        }
    }

    /// The remote end wants no more of what this end sends on a stream.
    pub(super) fn handle_stopped(&mut self, id: StreamId, streams: &mut impl MoqStreams) {
        if self.publisher.handle_group_stopped(id, streams) {
            return;
        }
        self.publisher.handle_request_end(id, &mut self.control, streams);
        self.control.abort(id, STREAM_CODE_CANCEL, streams);
    }

    /// Reads once from a stream.
    pub(super) fn read(&mut self, id: StreamId, streams: &mut impl MoqStreams) {
        let Some(stream) = self.inbound.get_mut(&id) else {
            return;
        };
        match streams.read(id) {
            StreamRead::Blocked => stream.is_queued = false,
            StreamRead::Bytes(bytes) => {
                self.readable.push_back(id);
                let taken = self.take_bytes(id, bytes, streams);
                if let Some(stream) = self.inbound.get_mut(&id) {
                    self.partial_bytes -= stream.counted_bytes;
                    stream.counted_bytes = stream.reader.partial_bytes();
                    self.partial_bytes += stream.counted_bytes;
                }
                match taken {
                    Ok(()) if self.partial_bytes > PARTIAL_BYTES_MAX => {
                        self.violate("too many incomplete messages".to_owned());
                    }
                    Ok(()) => {}
                    Err(InboundFault::Session(reason)) => self.violate(reason),
                    Err(InboundFault::Stream(code)) => self.reject(id, code, streams),
                }
            }
            StreamRead::Finished => self.handle_end(id, None, streams),
            StreamRead::Reset(code) => self.handle_end(id, Some(code), streams),
        }
    }

    /// Takes all of the bytes of one read.
    fn take_bytes(
        &mut self,
        id: StreamId,
        mut bytes: Bytes,
        streams: &mut impl MoqStreams,
    ) -> Result<(), InboundFault> {
        while let Some(stream) = self.inbound.get_mut(&id) {
            let (reader, role) = (&mut stream.reader, stream.role);
            match role {
                InboundRole::Type(dir) => {
                    let Some(kind) = reader.varint(&mut bytes) else {
                        return Ok(());
                    };
                    match (dir, kind) {
                        (Dir::Uni, STREAM_GROUP) => stream.role = InboundRole::GroupHeader,
                        (Dir::Bi, STREAM_ANNOUNCE) => stream.role = InboundRole::Interest,
                        (Dir::Bi, STREAM_SUBSCRIBE) => stream.role = InboundRole::Subscribe,
                        (Dir::Bi, STREAM_FETCH) => self.decline(id, STREAM_CODE_UNSUPPORTED, streams),
                        (Dir::Bi, STREAM_PROBE) => self.decline_probe(id, streams),
                        (Dir::Bi, STREAM_GOAWAY) => {
                            self.decline_probe(id, streams);
                            self.events.push_back(MoqEvent::GoingAway);
                        }
                        _ => return Err(InboundFault::Stream(STREAM_CODE_UNSUPPORTED)),
                    }
                }
                InboundRole::InterestRead => {
                    if bytes.is_empty() {
                        return Ok(());
                    }
                    return Err(InboundFault::Stream(STREAM_CODE_VIOLATION));
                }
                InboundRole::ReplyType(subscription) => {
                    let Some(kind) = reader.varint(&mut bytes) else {
                        return Ok(());
                    };
                    let is_ok = match kind {
                        REPLY_OK => true,
                        REPLY_DROP => false,
                        _ => return Err(InboundFault::Stream(STREAM_CODE_VIOLATION)),
                    };
                    stream.role = InboundRole::Reply { subscription, is_ok };
                }
                InboundRole::Frames { subscription, group } => {
                    let Some(frame) = self.next_frame(id, subscription, &mut bytes)? else {
                        return Ok(());
                    };
                    self.consumer.handle_frame(subscription, group, frame, &mut self.events);
                }
                _ => {
                    let Some(message) = reader.item(&mut bytes, MESSAGE_LENGTH_MAX)? else {
                        return Ok(());
                    };
                    let next = self.take_message(id, role, &message, streams)?;
                    if let Some(stream) = self.inbound.get_mut(&id) {
                        stream.role = next;
                    }
                }
            }
        }
        Ok(())
    }

    /// The next whole frame of a group.
    fn next_frame(
        &mut self,
        id: StreamId,
        subscription: u64,
        bytes: &mut Bytes,
    ) -> Result<Option<Bytes>, InboundFault> {
        let Some(stream) = self.inbound.get_mut(&id) else {
            return Ok(None);
        };
        // A subscription that ended takes its streams along.
        let frame_bytes_max = self.consumer.frame_bytes_max(subscription).unwrap_or(0);
        match stream.reader.item(bytes, frame_bytes_max) {
            Ok(frame) => Ok(frame),
            Err(OversizeFrame { length }) if self.consumer.is_lossless(subscription) => {
                let track = self.consumer.track_name(subscription);
                Err(InboundFault::Session(format!(
                    "a frame of {track} has {length} bytes, more than {frame_bytes_max}"
                )))
            }
            Err(_) => Err(InboundFault::Stream(STREAM_CODE_VIOLATION)),
        }
    }

    /// Takes a message, and returns what follows it on the stream.
    fn take_message(
        &mut self,
        id: StreamId,
        role: InboundRole,
        message: &[u8],
        streams: &mut impl MoqStreams,
    ) -> Result<InboundRole, InboundFault> {
        match role {
            InboundRole::Interest => {
                let request = AnnounceInterest::read(message)?;
                self.publisher
                    .handle_interest(id, request, self.origin, &mut self.control, streams)
                    .map_err(InboundFault::Stream)?;
                Ok(InboundRole::InterestRead)
            }
            InboundRole::Subscribe => {
                let request = SubscribeMessage::read(message)?;
                self.publisher
                    .handle_subscribe(id, request, &mut self.control, &mut self.events, streams)
                    .map_err(InboundFault::Stream)?;
                Ok(InboundRole::Updates)
            }
            InboundRole::Updates => {
                let terms = SubscribeTerms::read(message)?;
                self.publisher.handle_update(id, terms, &mut self.control, streams);
                Ok(InboundRole::Updates)
            }
            InboundRole::GroupHeader => {
                let header = GroupHeader::read(message)?;
                Ok(self.handle_group_start(id, header, streams))
            }
            InboundRole::Announcements => {
                let announcement = AnnounceMessage::read(message)
                    .map_err(|error| InboundFault::Session(format!("in an announcement: {error}")))?;
                let (origin, events) = (self.origin, &mut self.events);
                match self.consumer.handle_announcement(id, announcement, origin, events) {
                    ConsumerVerdict::Accepted => Ok(InboundRole::Announcements),
                    ConsumerVerdict::TooManyAnnouncements => Err(InboundFault::Session(format!(
                        "more than {ANNOUNCEMENTS_MAX} broadcasts announced"
                    ))),
                }
            }
            InboundRole::Reply { subscription, is_ok } => {
                if is_ok {
                    SubscribeTerms::read(message)?;
                    self.consumer.handle_accepted(subscription, &mut self.events);
                }
                Ok(InboundRole::ReplyType(subscription))
            }
            InboundRole::Type(_)
            | InboundRole::InterestRead
            | InboundRole::Frames { .. }
            | InboundRole::ReplyType(_) => Ok(role),
        }
    }

    fn handle_group_start(&mut self, id: StreamId, header: GroupHeader, streams: &mut impl MoqStreams) -> InboundRole {
        let GroupHeader { subscription, sequence } = header;
        if self.consumer.frame_bytes_max(subscription).is_none() {
            // Groups of a subscription that ended are on their way for a while.
            self.forget(id);
            streams.stop(id, STREAM_CODE_CANCEL);
        } else if let Some(oldest) = self.consumer.handle_group_start(subscription, id) {
            streams.stop(oldest, STREAM_CODE_TOO_LATE);
            self.end_group(oldest, true);
        }
        InboundRole::Frames {
            subscription,
            group: sequence,
        }
    }

    /// The remote end finished or aborted a stream.
    fn handle_end(&mut self, id: StreamId, code: Option<u32>, streams: &mut impl MoqStreams) {
        let Some(stream) = self.inbound.get(&id) else {
            return;
        };
        match stream.role {
            InboundRole::Frames { .. } => {
                // A group that ends within a frame was cut.
                let is_reset = code.is_some() || stream.reader.partial_bytes() > 0;
                self.end_group(id, is_reset);
                return;
            }
            InboundRole::InterestRead | InboundRole::Updates => {
                self.publisher.handle_request_end(id, &mut self.control, streams);
            }
            InboundRole::Announcements => {
                self.consumer.handle_announcements_end(id, &mut self.events);
                self.control.finish(id, streams);
            }
            InboundRole::ReplyType(subscription) | InboundRole::Reply { subscription, .. } => match code {
                None => self.finished.push_back(subscription),
                Some(code) => self.end_subscription(subscription, Some(code), streams),
            },
            InboundRole::Type(Dir::Bi) | InboundRole::Interest | InboundRole::Subscribe => {
                self.control.abort(id, STREAM_CODE_CANCEL, streams);
            }
            InboundRole::Type(Dir::Uni) | InboundRole::GroupHeader => {}
        }
        self.forget(id);
    }

    /// A group ended.
    fn end_group(&mut self, id: StreamId, is_reset: bool) {
        if let Some(stream) = self.forget(id)
            && let InboundRole::Frames { subscription, group } = stream.role
        {
            self.consumer.handle_group_end(subscription, id);
            self.events.push_back(MoqEvent::GroupEnded {
                subscription: MoqSubscriptionId(subscription),
                group,
                is_reset,
            });
        }
    }

    /// The publisher ended a subscription of this end.
    pub(super) fn end_subscription(&mut self, id: u64, code: Option<u32>, streams: &mut impl MoqStreams) {
        if self.drop_subscription(id, streams) {
            let subscription = MoqSubscriptionId(id);
            self.events.push_back(MoqEvent::Ended { subscription, code });
        }
    }

    /// Closes the streams of a subscription of this end. Returns whether there was one.
    pub(super) fn drop_subscription(&mut self, id: u64, streams: &mut impl MoqStreams) -> bool {
        let Some((request, groups)) = self.consumer.end(id) else {
            return false;
        };
        if let Some(request) = request {
            self.control.finish(request, streams);
            streams.stop(request, STREAM_CODE_CANCEL);
            self.forget(request);
        }
        for group in groups {
            streams.stop(group, STREAM_CODE_CANCEL);
            self.forget(group);
        }
        true
    }

    /// Ends a stream whose bytes are invalid.
    fn reject(&mut self, id: StreamId, code: u32, streams: &mut impl MoqStreams) {
        let role = self.inbound.get(&id).map(|stream| stream.role);
        match role {
            Some(InboundRole::Frames { .. }) => {
                streams.stop(id, code);
                self.end_group(id, true);
            }
            Some(InboundRole::ReplyType(subscription) | InboundRole::Reply { subscription, .. }) => {
                self.end_subscription(subscription, Some(code), streams);
            }
            Some(InboundRole::Announcements) => self.violate("an announcement that is too long".to_owned()),
            _ => {
                self.publisher.handle_request_end(id, &mut self.control, streams);
                self.decline(id, code, streams);
            }
        }
        self.rejected += 1;
        if self.rejected > REJECTED_STREAMS_MAX {
            self.violate("too many invalid streams".to_owned());
        }
    }

    /// Aborts both halves of a stream that the remote end opened.
    fn decline(&mut self, id: StreamId, code: u32, streams: &mut impl MoqStreams) {
        self.forget(id);
        abandon(id, code, streams);
    }

    /// Ends a request without a reply. Browsers take a finished stream of measurements as one
    /// without measurements, and warn about an aborted one.
    fn decline_probe(&mut self, id: StreamId, streams: &mut impl MoqStreams) {
        self.forget(id);
        streams.finish(id);
        streams.stop(id, STREAM_CODE_CANCEL);
    }

    fn forget(&mut self, id: StreamId) -> Option<InboundStream> {
        let stream = self.inbound.remove(&id)?;
        self.partial_bytes -= stream.counted_bytes;
        Some(stream)
    }
}

fn abandon(id: StreamId, code: u32, streams: &mut impl MoqStreams) {
    if id.dir() == Dir::Bi {
        streams.reset(id, code);
    }
    streams.stop(id, code);
}
