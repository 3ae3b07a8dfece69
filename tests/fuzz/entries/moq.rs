//! Media over QUIC: a peer whose remote end does anything, the formats of its tracks, and the
//! parsers of WebTransport.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use edge_runner_proto::limits::MESSAGE_BYTES_MAX;
use edge_runner_proto::moq::catalog::{CatalogAudio, CatalogReader};
use edge_runner_proto::moq::link::{Dir, LinkEvent, MoqStreams, Side, StreamId, StreamRead};
use edge_runner_proto::moq::media_frame::{MediaFrame, write_media_frame};
use edge_runner_proto::moq::peer::{
    MoqEvent, MoqPeer, MoqSubscribeOptions, MoqSubscriptionId, MoqTrackId, MoqTrackKind,
};
use edge_runner_proto::moq::record_log::{MoqRecord, RecordReader, RecordWriter};
use serde_json::Value;

/// Streams that the peer may have open for groups: subscribers by groups, of which one is kept.
const GROUP_STREAMS_MAX: usize = 16 * 33;
const KINDS: [MoqTrackKind; 3] = [MoqTrackKind::Snapshot, MoqTrackKind::Live, MoqTrackKind::Log];

/// A sending half of the peer.
#[derive(Default)]
struct Sending {
    unread: usize,
    is_blocked: bool,
    is_finished: bool,
    is_aborted: bool,
    is_acknowledged: bool,
}

/// A receiving half of the peer.
#[derive(Default)]
struct Receiving {
    unread: VecDeque<Bytes>,
    end: Option<StreamRead>,
    was_end_read: bool,
    is_stopped: bool,
}

/// The streams that the peer under test sees.
struct FuzzedStreams {
    sending: BTreeMap<StreamId, Sending>,
    receiving: BTreeMap<StreamId, Receiving>,
    opened: [u64; 2],
    credit: [u8; 2],
    window: usize,
}

impl FuzzedStreams {
    fn sending(&mut self, id: StreamId) -> &mut Sending {
        self.sending.get_mut(&id).expect("a stream on which the peer may send")
    }
}

impl MoqStreams for FuzzedStreams {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        let of_dir = usize::from(dir == Dir::Uni);
        self.credit[of_dir] = self.credit[of_dir].checked_sub(1)?;
        let id = StreamId::new(Side::Server, dir, self.opened[of_dir]);
        self.opened[of_dir] += 1;
        self.sending.insert(id, Sending::default());
        if dir == Dir::Bi {
            self.receiving.insert(id, Receiving::default());
        }
        Some(id)
    }

    fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        let window = self.window;
        let half = self.sending(id);
        assert!(!half.is_finished, "a write after the end");
        if half.is_aborted {
            return bytes.len();
        }
        let taken = bytes.len().min(window.saturating_sub(half.unread));
        half.is_blocked = taken < bytes.len();
        half.unread += taken;
        taken
    }

    fn write_backlog(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        self.write(id, bytes)
    }

    fn finish(&mut self, id: StreamId) {
        let half = self.sending(id);
        half.is_finished = !half.is_aborted;
    }

    fn reset(&mut self, id: StreamId, _: u32) {
        let half = self.sending(id);
        (half.is_aborted, half.is_finished) = (true, false);
    }

    fn stop(&mut self, id: StreamId, _: u32) {
        let half = self.receiving.get_mut(&id).expect("a stream that the peer receives");
        half.is_stopped = true;
    }

    fn set_priority(&mut self, id: StreamId, _: i32) {
        self.sending(id);
    }

    fn read(&mut self, id: StreamId) -> StreamRead {
        let half = self.receiving.get_mut(&id).expect("a stream that the peer receives");
        assert!(!half.was_end_read, "a read after the end");
        assert!(!half.is_stopped, "a read of a stopped stream");
        if let Some(bytes) = half.unread.pop_front() {
            return StreamRead::Bytes(bytes);
        }
        let Some(end) = half.end.clone() else {
            return StreamRead::Blocked;
        };
        half.was_end_read = true;
        end
    }
}

/// What the events of the peer say, checked for order.
#[derive(Default)]
struct Reported {
    paths: BTreeSet<String>,
    subscriptions: HashMap<MoqSubscriptionId, MoqTrackKind>,
    is_violated: bool,
    frame_bytes: usize,
}

impl Reported {
    fn check(&mut self, event: MoqEvent) {
        assert!(!self.is_violated, "an event after a violation");
        match event {
            MoqEvent::Announced { path } => {
                assert!(self.paths.insert(path), "announced twice");
                assert!(self.paths.len() <= 64);
            }
            MoqEvent::Retracted { path } => assert!(self.paths.remove(&path), "retracted twice"),
            MoqEvent::Frame {
                subscription, payload, ..
            } => {
                let kind = self.subscriptions.get(&subscription).expect("a live subscription");
                assert!(payload.len() <= kind.frame_bytes_max());
                self.frame_bytes += payload.len();
            }
            MoqEvent::GroupEnded { subscription, .. } | MoqEvent::Accepted { subscription } => {
                assert!(self.subscriptions.contains_key(&subscription), "a live subscription");
            }
            MoqEvent::Ended { subscription, .. } => {
                self.subscriptions.remove(&subscription).expect("ended once");
            }
            MoqEvent::Subscribed { .. } | MoqEvent::GoingAway => {}
            MoqEvent::Violation(reason) => {
                assert!(!reason.is_empty());
                self.is_violated = true;
            }
        }
    }
}

/// Operations of the remote end and of the owner of a peer: a kind, an argument, and for some a
/// length and bytes. Streams are used as they may be, events come in their order, and what the peer
/// holds is bounded.
pub fn peer(bytes: &[u8]) {
    let mut run = PeerRun::new();
    let mut rest = bytes;
    while let [kind, argument, more @ ..] = rest {
        let length = match kind % 20 {
            0 | 1 | 6 => more.first().map_or(0, |length| usize::from(*length) + 1),
            _ => 0,
        };
        let (data, after) = more.split_at(length.min(more.len()));
        run.operation(kind % 20, *argument, data.get(1..).unwrap_or_default());
        rest = after;
        run.poll();
    }
    run.finish();
}

struct PeerRun {
    peer: MoqPeer,
    streams: FuzzedStreams,
    reported: Reported,
    /// Streams that the remote end opened, by direction.
    remote: [u64; 2],
    now: Instant,
    fed_bytes: usize,
}

#[allow(clippy::disallowed_methods, reason = "a base for the times of a run")]
fn base() -> Instant {
    Instant::now()
}

impl PeerRun {
    fn new() -> Self {
        let mut peer = MoqPeer::new(7);
        for kind in KINDS {
            peer.add_track(&format!("{kind:?}"), kind);
        }
        Self {
            peer,
            streams: FuzzedStreams {
                sending: BTreeMap::new(),
                receiving: BTreeMap::new(),
                opened: [0; 2],
                credit: [8; 2],
                window: 4096,
            },
            reported: Reported::default(),
            remote: [0; 2],
            now: base(),
            fed_bytes: 0,
        }
    }

    /// One of the streams on which the remote end may still send.
    fn receiving(&self, argument: u8) -> Option<StreamId> {
        let open = self.streams.receiving.iter().filter(|(_, half)| half.end.is_none());
        let ids: Vec<StreamId> = open.map(|(id, _)| *id).collect();
        ids.get(usize::from(argument) % ids.len().max(1)).copied()
    }

    fn sending(&self, argument: u8) -> Option<StreamId> {
        let ids: Vec<StreamId> = self.streams.sending.keys().copied().collect();
        ids.get(usize::from(argument) % ids.len().max(1)).copied()
    }

    fn event(&mut self, event: LinkEvent) {
        self.peer.handle_event(event, &mut self.streams);
    }

    fn feed(&mut self, id: StreamId, data: &[u8]) {
        if let Some(half) = self.streams.receiving.get_mut(&id)
            && !data.is_empty()
        {
            half.unread.push_back(Bytes::copy_from_slice(data));
            self.fed_bytes += data.len();
            self.event(LinkEvent::Readable(id));
        }
    }

    fn end(&mut self, argument: u8, end: StreamRead) {
        if let Some(id) = self.receiving(argument)
            && let Some(half) = self.streams.receiving.get_mut(&id)
        {
            half.end = Some(end);
            self.event(LinkEvent::Readable(id));
        }
    }

    fn operation(&mut self, kind: u8, argument: u8, data: &[u8]) {
        let track = usize::from(argument) % KINDS.len();
        let dir = [Dir::Bi, Dir::Uni][usize::from(argument % 2)];
        match kind {
            0 => {
                let index = &mut self.remote[usize::from(argument % 2)];
                let id = StreamId::new(Side::Client, dir, *index);
                *index += 1;
                self.streams.receiving.insert(id, Receiving::default());
                if dir == Dir::Bi {
                    self.streams.sending.insert(id, Sending::default());
                }
                self.event(LinkEvent::Opened(id));
                self.feed(id, data);
            }
            1 => {
                if let Some(id) = self.receiving(argument) {
                    self.feed(id, data);
                }
            }
            2 => self.end(argument, StreamRead::Finished),
            3 => self.end(argument, StreamRead::Reset(u32::from(argument))),
            4 => {
                if let Some(id) = self.sending(argument) {
                    self.event(LinkEvent::Stopped { id, code: 0 });
                }
            }
            5 => {
                // The remote end reads everything.
                let blocked = self.streams.sending.iter_mut().filter_map(|(id, half)| {
                    half.unread = 0;
                    std::mem::take(&mut half.is_blocked).then_some(*id)
                });
                let blocked: Vec<StreamId> = blocked.collect();
                for id in blocked {
                    self.event(LinkEvent::Writable(id));
                }
                let finished = self.streams.sending.iter_mut().filter_map(|(id, half)| {
                    let is_new = half.is_finished && half.unread == 0 && !half.is_acknowledged;
                    half.is_acknowledged |= is_new;
                    is_new.then_some(*id)
                });
                let finished: Vec<StreamId> = finished.collect();
                for id in finished {
                    self.event(LinkEvent::Finished(id));
                }
            }
            6 => self.write(track, data),
            7 => self.peer.finish(MoqTrackId(track as u32), &mut self.streams),
            8 => self.peer.publish("n/response", &mut self.streams),
            9 => self.peer.retract(&mut self.streams),
            10 => self
                .peer
                .discover(["", "n"][usize::from(argument % 2)], &mut self.streams),
            11 => {
                let options = MoqSubscribeOptions {
                    kind: KINDS[track],
                    priority: argument,
                    max_latency: Duration::from_millis(500),
                };
                let id = self.peer.subscribe("n/request", "t", options, &mut self.streams);
                self.reported.subscriptions.insert(id, KINDS[track]);
            }
            12 => {
                let id = MoqSubscriptionId(u64::from(argument));
                self.peer.unsubscribe(id, &mut self.streams);
                self.reported.subscriptions.remove(&id);
            }
            13 => {
                self.streams.credit[usize::from(argument % 2)] = argument / 2;
                self.event(LinkEvent::Available(dir));
            }
            14 => self.streams.window = usize::from(argument) * 16,
            15 => {
                self.now += Duration::from_millis(u64::from(argument) * 10);
                self.peer.handle_timeout(self.now);
                assert!(self.peer.poll_timeout().is_none_or(|next| next > self.now));
            }
            16 => self.write(track, &[argument; 20_000]),
            17 => self.event(LinkEvent::Connected),
            18 => {
                if let Some(id) = self.receiving(argument) {
                    self.event(LinkEvent::Readable(id));
                }
            }
            _ => self.reconnect(),
        }
    }

    fn write(&mut self, track: usize, data: &[u8]) {
        self.peer
            .write(MoqTrackId(track as u32), data, self.now, &mut self.streams);
    }

    fn reconnect(&mut self) {
        self.peer.reconnect(9);
        self.streams.sending.clear();
        self.streams.receiving.clear();
        self.reported = Reported::default();
    }

    fn poll(&mut self) {
        while let Some(event) = self.peer.poll_event(&mut self.streams) {
            self.reported.check(event);
        }
        assert!(self.reported.frame_bytes <= self.fed_bytes);
        let groups = self.streams.sending.iter().filter(|(id, half)| {
            let is_open = !half.is_finished && !half.is_aborted;
            id.dir() == Dir::Uni && is_open
        });
        assert!(groups.count() <= GROUP_STREAMS_MAX);
    }

    fn finish(&mut self) {
        self.now += Duration::from_secs(1);
        self.peer.handle_timeout(self.now);
        assert_eq!(self.peer.poll_timeout(), None);
    }
}

/// The parsers of WebTransport, with reads of any size.
pub fn webtransport(bytes: &[u8]) {
    edge_runner_proto::moq::check_parsers(bytes);
}

/// Frames of a track of the caller: a byte that selects the format, then for each frame a byte for
/// its group, its length in two bytes, and the frame.
pub fn formats(bytes: &[u8]) {
    let Some((format, mut rest)) = bytes.split_first() else {
        return;
    };
    let (mut catalog, mut records) = (CatalogReader::default(), RecordReader::default());
    while let [group, high, low, more @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(more.len());
        let (frame, after) = more.split_at(length);
        rest = after;
        match format % 4 {
            0 => catalog_frame(&mut catalog, *group, frame),
            1 => record_frame(&mut records, frame),
            2 => record_text(frame),
            _ => media_frame(frame),
        }
    }
}

fn catalog_frame(catalog: &mut CatalogReader, group: u8, frame: &[u8]) {
    let before = catalog.audio().clone();
    if catalog.read(u64::from(group), frame).is_err() {
        assert_eq!(*catalog.audio(), before, "a rejected frame changes nothing");
    }
    if let CatalogAudio::Opus(rendition) = catalog.audio() {
        assert!(rendition.name.len() <= 256);
    }
}

fn record_frame(records: &mut RecordReader, frame: &[u8]) {
    match records.read(frame) {
        Ok(Some(MoqRecord::Message(text))) => {
            assert!(text.len() <= 2 * MESSAGE_BYTES_MAX, "escapes may grow");
            let value: Value = serde_json::from_str(&text).expect("a record is JSON");
            assert!(value.is_object());
        }
        Err(error) if error.is_fatal() => {
            records.read(b"").expect_err("nothing follows");
        }
        _ => {}
    }
}

/// What this end writes can be inflated by its own reader.
fn record_text(text: &[u8]) {
    let mut writer = RecordWriter::new(1);
    let mut reader = RecordReader::default();
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    for _ in 0..2 {
        if let Some(frame) = writer.append(text)
            && let Err(error) = reader.read(&frame)
        {
            assert!(!error.is_fatal(), "{error}");
        }
    }
}

fn media_frame(frame: &[u8]) {
    let Some(read) = MediaFrame::read(&Bytes::copy_from_slice(frame)) else {
        return;
    };
    let mut written = Vec::new();
    write_media_frame(read.timestamp_us, &read.payload, &mut written);
    assert_eq!(MediaFrame::read(&Bytes::from(written)), Some(read));
}
