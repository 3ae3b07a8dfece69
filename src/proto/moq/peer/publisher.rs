//! The publishing half of a peer: one broadcast, who asked for it, and its groups on their way.

use std::collections::VecDeque;
use std::time::Instant;

use crate::moq::link::{Dir, MoqStreams, StreamId};
use crate::moq::message::{
    AnnounceInterest, AnnounceMessage, GroupHeader, SubscribeMessage, SubscribeTerms, normal_path, path_below,
};
use crate::moq::varint::write_varint;

use super::control::ControlStreams;
use super::live::LiveGroups;
use super::tracks::PublishedTrack;
use super::{
    MoqEvent, MoqTrackId, MoqTrackKind, STREAM_CODE_CANCEL, STREAM_CODE_DUPLICATE, STREAM_CODE_NOT_FOUND,
    STREAM_CODE_TOO_LATE, STREAM_CODE_TOO_MANY,
};

/// Requests for announcements that one peer may have open; it needs one.
pub const INTERESTS_MAX: usize = 8;
/// Subscriptions that one peer may have open; it needs three, and three more while it resubscribes.
pub const SUBSCRIBERS_MAX: usize = 16;
/// The send order of a catalog: after requests, before audio.
const SNAPSHOT_PRIORITY: i32 = 2;
/// The send order of a log, which may be long: after audio.
const LOG_PRIORITY: i32 = -1;

/// What this end publishes, and to whom.
#[derive(Debug, Default)]
pub struct MoqPublisher {
    broadcast: Broadcast,
    tracks: Vec<PublishedTrack>,
    interests: Vec<Interest>,
    subscribers: Vec<MoqSubscriber>,
    live: LiveGroups,
    /// The group that is being written; kept for its capacity.
    scratch: Vec<u8>,
}

#[derive(Debug, Default)]
enum Broadcast {
    /// Requests wait.
    #[default]
    Unpublished,
    Published(String),
    Retracted,
}

/// A request for announcements.
#[derive(Debug)]
struct Interest {
    stream: StreamId,
    request: AnnounceInterest,
    is_announced: bool,
}

/// A subscription of the remote end.
#[derive(Debug)]
struct MoqSubscriber {
    stream: StreamId,
    message: SubscribeMessage,
    /// `None` until the broadcast is published.
    track: Option<usize>,
    /// The group of a snapshot or log that is being sent.
    group: Option<KeptGroup>,
}

/// A group of a track that keeps its frames.
#[derive(Debug)]
struct KeptGroup {
    /// `None` until a stream can be opened.
    stream: Option<StreamId>,
    sequence: u64,
    /// Bytes of the stream sent, its header included.
    position: u64,
    /// The subscriber wants no more of it.
    is_stopped: bool,
}

impl MoqPublisher {
    pub fn add_track(&mut self, name: &str, kind: MoqTrackKind) -> MoqTrackId {
        self.tracks.push(PublishedTrack::new(name, kind));
        MoqTrackId(self.tracks.len() as u32 - 1)
    }

    pub fn set_frames_per_group(&mut self, frames: usize) {
        self.live.set_frames_per_group(frames);
    }

    pub fn track(&mut self, id: MoqTrackId) -> Option<&mut PublishedTrack> {
        self.tracks.get_mut(id.0 as usize)
    }

    /// Announces the broadcast and answers the subscriptions that waited for it.
    pub fn publish(
        &mut self,
        path: &str,
        origin: u64,
        control: &mut ControlStreams,
        events: &mut VecDeque<MoqEvent>,
        streams: &mut impl MoqStreams,
    ) {
        self.broadcast = Broadcast::Published(normal_path(path));
        for at in 0..self.interests.len() {
            self.announce(at, true, origin, control, streams);
        }
        let waiting: Vec<StreamId> = self.subscribers.iter().map(|it| it.stream).collect();
        for stream in waiting {
            self.answer(stream, control, events, streams);
        }
    }

    pub fn retract(&mut self, origin: u64, control: &mut ControlStreams, streams: &mut impl MoqStreams) {
        for at in 0..self.interests.len() {
            self.announce(at, false, origin, control, streams);
        }
        self.broadcast = Broadcast::Retracted;
    }

    /// Tells one request for announcements that the broadcast begins or ends.
    fn announce(
        &mut self,
        at: usize,
        is_active: bool,
        origin: u64,
        control: &mut ControlStreams,
        streams: &mut impl MoqStreams,
    ) {
        let Broadcast::Published(path) = &self.broadcast else {
            return;
        };
        let interest = &mut self.interests[at];
        let Some(suffix) = path_below(path, &interest.request.prefix) else {
            return;
        };
        if interest.is_announced == is_active || interest.request.exclude_hop == origin {
            return;
        }
        interest.is_announced = is_active;
        let message = AnnounceMessage {
            is_active,
            suffix: suffix.to_owned(),
            hops: if is_active { vec![origin] } else { Vec::new() },
        };
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        control.send(interest.stream, &bytes, streams);
    }

    /// The remote end asks for announcements. An error is the code of the reset.
    pub fn handle_interest(
        &mut self,
        stream: StreamId,
        request: AnnounceInterest,
        origin: u64,
        control: &mut ControlStreams,
        streams: &mut impl MoqStreams,
    ) -> Result<(), u32> {
        if self.interests.len() >= INTERESTS_MAX {
            return Err(STREAM_CODE_TOO_MANY);
        }
        ControlStreams::prioritize(stream, streams);
        self.interests.push(Interest {
            stream,
            request,
            is_announced: false,
        });
        self.announce(self.interests.len() - 1, true, origin, control, streams);
        Ok(())
    }

    /// The remote end subscribes. An error is the code of the reset.
    pub fn handle_subscribe(
        &mut self,
        stream: StreamId,
        message: SubscribeMessage,
        control: &mut ControlStreams,
        events: &mut VecDeque<MoqEvent>,
        streams: &mut impl MoqStreams,
    ) -> Result<(), u32> {
        if self.subscribers.len() >= SUBSCRIBERS_MAX {
            return Err(STREAM_CODE_TOO_MANY);
        }
        if self.subscribers.iter().any(|it| it.message.id == message.id) {
            return Err(STREAM_CODE_DUPLICATE);
        }
        ControlStreams::prioritize(stream, streams);
        self.subscribers.push(MoqSubscriber {
            stream,
            message,
            track: None,
            group: None,
        });
        self.answer(stream, control, events, streams);
        Ok(())
    }

    /// Accepts a subscription, rejects it, or lets it wait for the broadcast.
    fn answer(
        &mut self,
        stream: StreamId,
        control: &mut ControlStreams,
        events: &mut VecDeque<MoqEvent>,
        streams: &mut impl MoqStreams,
    ) {
        let Some(at) = self.subscribers.iter().position(|it| it.stream == stream) else {
            return;
        };
        let subscriber = &mut self.subscribers[at];
        let path = match &self.broadcast {
            Broadcast::Unpublished => return,
            Broadcast::Published(path) => Some(path),
            Broadcast::Retracted => None,
        };
        if subscriber.track.is_some() {
            return;
        }
        let is_ours = path == Some(&subscriber.message.broadcast);
        let named = |track: &PublishedTrack| is_ours && track.name == subscriber.message.track;
        let Some(index) = self.tracks.iter().position(named) else {
            self.subscribers.remove(at);
            control.abort(stream, STREAM_CODE_NOT_FOUND, streams);
            return;
        };
        let track = &self.tracks[index];
        if track.is_truncated {
            self.subscribers.remove(at);
            control.abort(stream, STREAM_CODE_TOO_LATE, streams);
            return;
        }
        subscriber.track = Some(index);
        let mut reply = Vec::new();
        subscriber.message.terms.write_ok(&mut reply);
        control.send(stream, &reply, streams);
        let track_id = MoqTrackId(index as u32);
        events.push_back(MoqEvent::Subscribed { track: track_id });
        if let Some(sequence) = track.kept_sequence() {
            self.start_kept_group(at, sequence, streams);
        }
        self.finish_if_done(at, control, streams);
    }

    /// The subscriber changes its terms; the bounds take effect with the next group.
    pub fn handle_update(
        &mut self,
        stream: StreamId,
        terms: SubscribeTerms,
        control: &mut ControlStreams,
        streams: &mut impl MoqStreams,
    ) {
        if let Some(at) = self.subscribers.iter().position(|it| it.stream == stream) {
            self.subscribers[at].message.terms = terms;
            self.finish_if_done(at, control, streams);
        }
    }

    /// The remote end closed or stopped a request stream: it left, or it asks no more.
    pub fn handle_request_end(
        &mut self,
        stream: StreamId,
        control: &mut ControlStreams,
        streams: &mut impl MoqStreams,
    ) {
        if let Some(at) = self.interests.iter().position(|it| it.stream == stream) {
            self.interests.swap_remove(at);
            control.finish(stream, streams);
        }
        if let Some(at) = self.subscribers.iter().position(|it| it.stream == stream) {
            let subscriber = self.subscribers.remove(at);
            if let Some(group) = subscriber.group.and_then(|group| group.stream) {
                streams.reset(group, STREAM_CODE_CANCEL);
            }
            self.live.cancel(stream, streams);
            control.finish(stream, streams);
        }
    }

    /// The remote end wants no more of a group. Returns whether the stream is one.
    pub fn handle_group_stopped(&mut self, id: StreamId, streams: &mut impl MoqStreams) -> bool {
        if self.live.handle_stopped(id, streams) {
            return true;
        }
        let mut kept = self.subscribers.iter_mut().filter_map(|it| it.group.as_mut());
        let Some(group) = kept.find(|group| group.stream == Some(id)) else {
            return false;
        };
        group.is_stopped = true;
        streams.reset(id, STREAM_CODE_CANCEL);
        true
    }

    /// A frame for a track. Returns the violation of a subscriber that does not read a log.
    pub fn write(
        &mut self,
        id: MoqTrackId,
        frame: &[u8],
        now: Instant,
        control: &mut ControlStreams,
        streams: &mut impl MoqStreams,
    ) -> Result<(), String> {
        let index = id.0 as usize;
        let Some(track) = self.tracks.get_mut(index).filter(|track| !track.is_finished) else {
            return Ok(());
        };
        if track.kind == MoqTrackKind::Live {
            if self.live.has_waiting() || !self.send_live(index, frame, control, streams) {
                self.live.wait(index, frame, now);
                self.send_waiting(control, streams);
            }
            return Ok(());
        }
        let sequence = track.keep(frame);
        for at in self.subscribers_of(index) {
            self.start_kept_group(at, sequence, streams);
        }
        for at in self.subscribers_of(index).rev() {
            self.finish_if_done(at, control, streams);
        }
        self.truncate(index)
    }

    /// The indices of the subscribers of a track; each caller checks again.
    fn subscribers_of(&self, index: usize) -> impl DoubleEndedIterator<Item = usize> + Clone + use<> {
        let wanted: u32 = (0..self.subscribers.len())
            .filter(|at| self.subscribers[*at].track == Some(index))
            .fold(0, |set, at| set | 1 << at);
        (0..SUBSCRIBERS_MAX).filter(move |at| wanted & (1 << at) != 0)
    }

    /// Sends a frame of a live track to every subscriber, in the open group or in a new one.
    /// Returns whether all of them can take it; else none gets it, so that each receives every
    /// sequence. A subscriber that came after the begin of a group waits for the next.
    fn send_live(
        &mut self,
        index: usize,
        frame: &[u8],
        control: &mut ControlStreams,
        streams: &mut impl MoqStreams,
    ) -> bool {
        let begins = self.tracks[index].frames_in_group == 0;
        let can_send = match begins {
            true => self.reserve_groups(index, streams),
            false => self.live.can_extend(index),
        };
        if !can_send {
            return false;
        }
        match begins {
            true => self.begin_groups(index, frame, streams),
            false => {
                self.scratch.clear();
                write_frame(frame, &mut self.scratch);
                self.live.extend(index, &self.scratch, streams);
            }
        }
        let track = &mut self.tracks[index];
        track.frames_in_group = (track.frames_in_group + 1) % self.live.frames_per_group();
        if track.frames_in_group == 0 {
            self.live.end(index, streams);
            for at in self.subscribers_of(index).rev() {
                self.finish_if_done(at, control, streams);
            }
        }
        true
    }

    /// Opens a stream for each subscriber of a track. Returns whether each can have one.
    fn reserve_groups(&mut self, index: usize, streams: &mut impl MoqStreams) -> bool {
        let subscribers = self.subscribers_of(index);
        let has_room = |at: usize| self.live.has_room(self.subscribers[at].stream);
        subscribers.clone().all(has_room) && self.live.reserve(subscribers.count(), streams)
    }

    fn begin_groups(&mut self, index: usize, frame: &[u8], streams: &mut impl MoqStreams) {
        let sequence = self.tracks[index].take_sequence();
        for at in self.subscribers_of(index) {
            let subscriber = &self.subscribers[at];
            if !subscriber.wants(sequence) {
                continue;
            }
            let header = GroupHeader {
                subscription: subscriber.message.id,
                sequence,
            };
            self.scratch.clear();
            header.write(&mut self.scratch);
            write_frame(frame, &mut self.scratch);
            self.live.begin(index, subscriber.stream, &self.scratch, streams);
        }
    }

    /// Sends the frames that wait, as far as there are streams for them.
    fn send_waiting(&mut self, control: &mut ControlStreams, streams: &mut impl MoqStreams) {
        while let Some(frame) = self.live.next_waiting() {
            if !self.send_live(frame.track, &frame.payload, control, streams) {
                return self.live.wait_again(frame);
            }
        }
    }

    /// Begins a kept group for a subscriber, or goes on with it.
    fn start_kept_group(&mut self, at: usize, sequence: u64, streams: &mut impl MoqStreams) {
        let subscriber = &mut self.subscribers[at];
        let current = subscriber.group.as_ref().map(|group| group.sequence);
        if current != Some(sequence) {
            // A newer snapshot replaces one that was not sent whole.
            if let Some(old) = subscriber.group.take().and_then(|group| group.stream) {
                streams.reset(old, STREAM_CODE_TOO_LATE);
            }
            if !subscriber.wants(sequence) {
                return;
            }
            subscriber.group = Some(KeptGroup {
                stream: None,
                sequence,
                position: 0,
                is_stopped: false,
            });
        }
        self.send_kept_group(at, streams);
    }

    /// Sends what a subscriber takes of its kept group.
    fn send_kept_group(&mut self, at: usize, streams: &mut impl MoqStreams) {
        let subscriber = &mut self.subscribers[at];
        let (Some(track), Some(group)) = (subscriber.track, subscriber.group.as_mut()) else {
            return;
        };
        let track = &self.tracks[track];
        if group.is_stopped {
            return;
        }
        if group.stream.is_none() {
            group.stream = streams.open(Dir::Uni);
            let priority = match track.kind {
                MoqTrackKind::Log => LOG_PRIORITY,
                MoqTrackKind::Snapshot | MoqTrackKind::Live => SNAPSHOT_PRIORITY,
            };
            group.stream.inspect(|id| streams.set_priority(*id, priority));
        }
        let Some(id) = group.stream else {
            return;
        };
        self.scratch.clear();
        let header = GroupHeader {
            subscription: subscriber.message.id,
            sequence: group.sequence,
        };
        header.write(&mut self.scratch);
        while let Some(rest) = track.unsent(&self.scratch, group.position) {
            let taken = match track.kind {
                MoqTrackKind::Log => streams.write_backlog(id, rest),
                MoqTrackKind::Snapshot | MoqTrackKind::Live => streams.write(id, rest),
            };
            group.position += taken as u64;
            if taken < rest.len() {
                return;
            }
        }
        if track.kind == MoqTrackKind::Snapshot || track.is_finished {
            streams.finish(id);
            subscriber.group = None;
        }
    }

    /// Ends a subscription whose track or range is over and sent.
    fn finish_if_done(&mut self, at: usize, control: &mut ControlStreams, streams: &mut impl MoqStreams) {
        let Some(subscriber) = self.subscribers.get(at) else {
            return;
        };
        let Some(track) = subscriber.track.map(|index| &self.tracks[index]) else {
            return;
        };
        let end = subscriber.message.terms.groups.end;
        // The only group of a log ends with its track.
        let is_past = track.kind != MoqTrackKind::Log && end.is_some_and(|end| track.next_sequence() > end);
        let is_sending = subscriber.group.as_ref().is_some_and(|group| !group.is_stopped);
        if (track.is_finished || is_past) && !is_sending {
            let stream = subscriber.stream;
            self.subscribers.remove(at);
            control.finish(stream, streams);
        }
    }

    /// Bounds a log: drops what every subscriber has, and names one that is too far behind.
    fn truncate(&mut self, index: usize) -> Result<(), String> {
        if !self.tracks[index].is_over_its_limit() {
            return Ok(());
        }
        let subscribers = self.subscribers.iter().filter(|it| it.track == Some(index));
        let groups = subscribers.filter_map(|it| Some((it.message.id, it.group.as_ref()?)));
        let sent = groups
            .filter(|(_, group)| !group.is_stopped)
            .map(|(id, group)| {
                let mut header = Vec::new();
                let of_group = GroupHeader {
                    subscription: id,
                    sequence: group.sequence,
                };
                of_group.write(&mut header);
                group.position.saturating_sub(header.len() as u64)
            })
            .min();
        let track = &mut self.tracks[index];
        track.drop_until(sent);
        match track.is_over_its_limit() {
            true => Err(format!("the peer does not read the track {}", track.name)),
            false => Ok(()),
        }
    }

    /// Ends a track: what is kept is sent whole before.
    pub fn finish(&mut self, id: MoqTrackId, control: &mut ControlStreams, streams: &mut impl MoqStreams) {
        let index = id.0 as usize;
        let Some(track) = self.tracks.get_mut(index) else {
            return;
        };
        track.is_finished = true;
        self.live.drop_waiting(Some(index));
        self.live.end(index, streams);
        for at in self.subscribers_of(index).rev() {
            self.send_kept_group(at, streams);
            self.finish_if_done(at, control, streams);
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.live.poll_timeout()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.live.handle_timeout(now);
    }

    pub fn has_subscriber(&self, id: MoqTrackId) -> bool {
        self.subscribers.iter().any(|it| it.track == Some(id.0 as usize))
    }

    /// A stream takes bytes again. Returns whether it is one of a group.
    pub fn handle_writable(
        &mut self,
        id: StreamId,
        control: &mut ControlStreams,
        streams: &mut impl MoqStreams,
    ) -> bool {
        if self.live.handle_writable(id, streams) {
            self.send_waiting(control, streams);
            return true;
        }
        let has = |it: &MoqSubscriber| it.group.as_ref().is_some_and(|group| group.stream == Some(id));
        let Some(at) = self.subscribers.iter().position(has) else {
            return false;
        };
        self.send_kept_group(at, streams);
        self.finish_if_done(at, control, streams);
        true
    }

    /// Unidirectional streams can be opened again.
    pub fn handle_available(&mut self, control: &mut ControlStreams, streams: &mut impl MoqStreams) {
        for at in (0..self.subscribers.len()).rev() {
            if self.subscribers[at]
                .group
                .as_ref()
                .is_some_and(|group| group.stream.is_none())
            {
                self.send_kept_group(at, streams);
                self.finish_if_done(at, control, streams);
            }
        }
        self.send_waiting(control, streams);
    }

    /// The remote end acknowledged a stream to its end.
    pub fn handle_finished(&mut self, id: StreamId, control: &mut ControlStreams, streams: &mut impl MoqStreams) {
        self.live.handle_finished(id);
        self.send_waiting(control, streams);
    }

    /// Drops the frames of live tracks that wait.
    pub fn drop_live(&mut self) {
        self.live.drop_waiting(None);
    }

    /// Forgets the requests of a connection that is gone. Broadcast and tracks remain.
    pub fn clear(&mut self) {
        self.interests.clear();
        self.subscribers.clear();
        self.live.clear();
        for track in &mut self.tracks {
            track.frames_in_group = 0;
        }
    }
}

impl MoqSubscriber {
    fn wants(&self, sequence: u64) -> bool {
        let groups = self.message.terms.groups;
        groups.start.is_none_or(|start| sequence >= start) && groups.end.is_none_or(|end| sequence <= end)
    }
}

fn write_frame(frame: &[u8], out: &mut Vec<u8>) {
    write_varint(frame.len() as u64, out);
    out.extend_from_slice(frame);
}
