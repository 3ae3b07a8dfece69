//! The consuming half of a peer: announcements and tracks of the remote end.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use crate::moq::link::{Dir, MoqStreams, StreamId};
use crate::moq::message::{
    AnnounceInterest, AnnounceMessage, GroupBounds, STREAM_ANNOUNCE, STREAM_SUBSCRIBE, SubscribeMessage,
    SubscribeTerms, normal_path,
};
use crate::moq::varint::write_varint;

use super::control::ControlStreams;
use super::{MoqEvent, MoqSubscribeOptions, MoqSubscriptionId};

/// Broadcasts that the remote end may have announced. A caller announces one, and a relay those of
/// one namespace.
pub const ANNOUNCEMENTS_MAX: usize = 64;
/// Groups of one subscription whose streams are open: 1.3 s of audio packets. A further one ends
/// the oldest.
pub const GROUPS_IN_FLIGHT_MAX: usize = 64;

/// What this end asked of the remote end.
#[derive(Debug, Default)]
pub struct MoqConsumer {
    discoveries: Vec<Discovery>,
    subscriptions: Vec<OwnSubscription>,
    next_subscription: u64,
}

/// A request for announcements.
#[derive(Debug)]
struct Discovery {
    /// `None` until a stream can be opened.
    stream: Option<StreamId>,
    prefix: String,
    /// The announced paths.
    paths: BTreeSet<String>,
}

/// A subscription of this end.
#[derive(Debug)]
struct OwnSubscription {
    id: u64,
    /// `None` until a stream can be opened.
    stream: Option<StreamId>,
    broadcast: String,
    track: String,
    options: MoqSubscribeOptions,
    is_accepted: bool,
    /// The open streams of groups, in the order of their arrival.
    groups: VecDeque<StreamId>,
}

/// What became of a message of the remote end.
pub enum ConsumerVerdict {
    Accepted,
    /// The announcements exceed their limit.
    TooManyAnnouncements,
}

impl MoqConsumer {
    pub fn discover(&mut self, prefix: &str) {
        self.discoveries.push(Discovery {
            stream: None,
            prefix: normal_path(prefix),
            paths: BTreeSet::new(),
        });
    }

    pub fn subscribe(&mut self, broadcast: &str, track: &str, options: MoqSubscribeOptions) -> MoqSubscriptionId {
        let id = self.next_subscription;
        self.next_subscription += 1;
        self.subscriptions.push(OwnSubscription {
            id,
            stream: None,
            broadcast: normal_path(broadcast),
            track: track.to_owned(),
            options,
            is_accepted: false,
            groups: VecDeque::new(),
        });
        MoqSubscriptionId(id)
    }

    /// Opens the next request stream that waits: the stream and what is read from it.
    pub fn open_next(
        &mut self,
        origin: u64,
        control: &mut ControlStreams,
        streams: &mut impl MoqStreams,
    ) -> Option<(StreamId, OpenedRequest)> {
        let discovery = self.discoveries.iter_mut().find(|it| it.stream.is_none());
        let subscription = self.subscriptions.iter_mut().find(|it| it.stream.is_none());
        if discovery.is_none() && subscription.is_none() {
            return None;
        }
        let stream = streams.open(Dir::Bi)?;
        ControlStreams::prioritize(stream, streams);
        let mut request = Vec::new();
        let opened = if let Some(discovery) = discovery {
            discovery.stream = Some(stream);
            write_varint(STREAM_ANNOUNCE, &mut request);
            let interest = AnnounceInterest {
                prefix: discovery.prefix.clone(),
                exclude_hop: origin,
            };
            interest.write(&mut request);
            OpenedRequest::Announcements
        } else {
            let subscription = subscription.expect("checked above");
            subscription.stream = Some(stream);
            write_varint(STREAM_SUBSCRIBE, &mut request);
            subscription.message().write(&mut request);
            OpenedRequest::Replies(subscription.id)
        };
        control.send(stream, &request, streams);
        Some((stream, opened))
    }

    pub fn handle_announcement(
        &mut self,
        stream: StreamId,
        message: AnnounceMessage,
        origin: u64,
        events: &mut VecDeque<MoqEvent>,
    ) -> ConsumerVerdict {
        let announced: usize = self.discoveries.iter().map(|it| it.paths.len()).sum();
        let path = self.path_of(stream, &message.suffix);
        let is_known_elsewhere = self.is_announced_elsewhere(stream, &path);
        let Some(discovery) = self.discoveries.iter_mut().find(|it| it.stream == Some(stream)) else {
            return ConsumerVerdict::Accepted;
        };
        if !message.is_active {
            if discovery.paths.remove(&path) && !is_known_elsewhere {
                events.push_back(MoqEvent::Retracted { path });
            }
        } else if !message.hops.contains(&origin) && !discovery.paths.contains(&path) {
            // An announcement that passed through this end is its own, and a second one for a path
            // says nothing new in this version.
            if announced >= ANNOUNCEMENTS_MAX {
                return ConsumerVerdict::TooManyAnnouncements;
            }
            discovery.paths.insert(path.clone());
            if !is_known_elsewhere {
                events.push_back(MoqEvent::Announced { path });
            }
        }
        ConsumerVerdict::Accepted
    }

    /// The path of an announcement on a stream.
    fn path_of(&self, stream: StreamId, suffix: &str) -> String {
        let discovery = self.discoveries.iter().find(|it| it.stream == Some(stream));
        let prefix = discovery.map_or("", |it| it.prefix.as_str());
        normal_path(&format!("{prefix}/{suffix}"))
    }

    /// Whether a path is announced on another stream.
    fn is_announced_elsewhere(&self, stream: StreamId, path: &str) -> bool {
        let mut others = self.discoveries.iter().filter(|it| it.stream != Some(stream));
        others.any(|it| it.paths.contains(path))
    }

    /// The stream of announcements ended, and with it each broadcast.
    pub fn handle_announcements_end(&mut self, stream: StreamId, events: &mut VecDeque<MoqEvent>) {
        let Some(at) = self.discoveries.iter().position(|it| it.stream == Some(stream)) else {
            return;
        };
        let ended = self.discoveries.swap_remove(at);
        for path in ended.paths {
            if !self.is_announced_elsewhere(stream, &path) {
                events.push_back(MoqEvent::Retracted { path });
            }
        }
    }

    pub fn handle_accepted(&mut self, id: u64, events: &mut VecDeque<MoqEvent>) {
        if let Some(subscription) = self.subscriptions.iter_mut().find(|it| it.id == id)
            && !subscription.is_accepted
        {
            subscription.is_accepted = true;
            let subscription = MoqSubscriptionId(id);
            events.push_back(MoqEvent::Accepted { subscription });
        }
    }

    /// Ends a subscription: its request stream and the open streams of its groups.
    pub fn end(&mut self, id: u64) -> Option<(Option<StreamId>, VecDeque<StreamId>)> {
        let at = self.subscriptions.iter().position(|it| it.id == id)?;
        let ended = self.subscriptions.swap_remove(at);
        Some((ended.stream, ended.groups))
    }

    /// The bytes of the longest frame of a subscription; `None` if there is no such subscription.
    pub fn frame_bytes_max(&self, id: u64) -> Option<usize> {
        let subscription = self.subscriptions.iter().find(|it| it.id == id)?;
        Some(subscription.options.kind.frame_bytes_max())
    }

    /// Whether each frame of a subscription counts, so that one that is too long ends the session.
    pub fn is_lossless(&self, id: u64) -> bool {
        let found = self.subscriptions.iter().find(|it| it.id == id);
        found.is_some_and(|it| it.options.kind != super::MoqTrackKind::Live)
    }

    /// The name of the track of a subscription.
    pub fn track_name(&self, id: u64) -> &str {
        let found = self.subscriptions.iter().find(|it| it.id == id);
        found.map_or("", |it| &it.track)
    }

    /// A group began. Returns the oldest of the subscription if there are too many.
    pub fn handle_group_start(&mut self, id: u64, stream: StreamId) -> Option<StreamId> {
        let subscription = self.subscriptions.iter_mut().find(|it| it.id == id)?;
        subscription.groups.push_back(stream);
        match subscription.groups.len() > GROUPS_IN_FLIGHT_MAX {
            true => subscription.groups.pop_front(),
            false => None,
        }
    }

    pub fn handle_frame(&self, id: u64, group: u64, payload: Bytes, events: &mut VecDeque<MoqEvent>) {
        events.push_back(MoqEvent::Frame {
            subscription: MoqSubscriptionId(id),
            group,
            payload,
        });
    }

    pub fn handle_group_end(&mut self, id: u64, stream: StreamId) {
        if let Some(subscription) = self.subscriptions.iter_mut().find(|it| it.id == id)
            && let Some(at) = subscription.groups.iter().position(|it| *it == stream)
        {
            subscription.groups.remove(at);
        }
    }

    /// Forgets all requests of a connection that is gone. Ids of subscriptions are not used again.
    pub fn clear(&mut self) {
        self.discoveries.clear();
        self.subscriptions.clear();
    }
}

/// What is read from a request stream of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedRequest {
    Announcements,
    /// Replies to the subscription with this id.
    Replies(u64),
}

impl OwnSubscription {
    fn message(&self) -> SubscribeMessage {
        SubscribeMessage {
            id: self.id,
            broadcast: self.broadcast.clone(),
            track: self.track.clone(),
            terms: SubscribeTerms {
                priority: self.options.priority,
                is_ordered: false,
                max_latency_ms: self.options.max_latency.as_millis() as u64,
                groups: GroupBounds::default(),
            },
        }
    }
}
