//! A scripted caller: a link and a peer that publish a microphone and records, and listen.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use flate2::{Compress, Compression, FlushCompress};
use quinn_proto::{ConnectionHandle, DatagramEvent, Endpoint};

use super::rig::NAMESPACE;
use crate::audio::opus::{Decoder, Encoder, EncoderSettings};
use crate::audio::tone::Tone;
use crate::moq::link::{LinkClosed, LinkEvent, MoqLink};
use crate::moq::media_frame::{MediaFrame, write_media_frame};
use crate::moq::peer::{MoqEvent, MoqPeer, MoqSubscribeOptions, MoqSubscriptionId, MoqTrackId, MoqTrackKind};
use crate::moq::record_log::{MoqRecord, RecordReader};

/// A browser's catalog.
pub const CATALOG: &str = r#"{"audio":{"renditions":{"audio/data":{"codec":"opus","container":{"kind":"legacy"},"sampleRate":48000,"numberOfChannels":1,"bitrate":32000,"jitter":20}}}}"#;

/// A packet that was received.
pub struct CallerPacket {
    pub at: Duration,
    pub group: u64,
    pub timestamp_us: u64,
    pub payload: Vec<u8>,
}

/// What the caller's microphone sends.
pub struct Microphone {
    pub encoder: Encoder,
    pub tone: Tone,
    pub next: Instant,
    pub timestamp_us: u64,
    /// The pause between two packets.
    pub step: Duration,
}

pub struct Caller {
    start: Instant,
    pub endpoint: Endpoint,
    pub link: Option<(ConnectionHandle, MoqLink)>,
    pub peer: MoqPeer,
    pub catalog_track: MoqTrackId,
    pub audio_track: MoqTrackId,
    /// Audio in one endless group.
    pub long_track: MoqTrackId,
    pub record_track: MoqTrackId,
    log: Compress,
    /// The broadcast is announced as soon as the link is up.
    pub publishes: bool,
    /// The path it announces.
    pub path: String,
    pub microphone: Option<Microphone>,
    catalog: Option<MoqSubscriptionId>,
    audio: Option<MoqSubscriptionId>,
    records: Option<MoqSubscriptionId>,
    reader: RecordReader,
    pub catalogs: Vec<String>,
    pub received: Vec<CallerPacket>,
    pub texts: Vec<String>,
    /// What else happened, in order, with its time.
    pub notes: Vec<(Duration, String)>,
    pub closed: Option<LinkClosed>,
}

impl Caller {
    pub fn new(endpoint: Endpoint, now: Instant) -> Self {
        Self::with_catalog(MoqTrackKind::Snapshot, endpoint, now)
    }

    /// A caller whose catalog is a track of this kind: with a log, changes are frames of one group.
    pub fn with_catalog(kind: MoqTrackKind, endpoint: Endpoint, now: Instant) -> Self {
        let mut peer = MoqPeer::new(9);
        let catalog_track = peer.add_track("catalog.json", kind);
        let audio_track = peer.add_track("audio/data", MoqTrackKind::Live);
        let long_track = peer.add_track("audio/long", MoqTrackKind::Log);
        let record_track = peer.add_track("transcript.json.z", MoqTrackKind::Log);
        Caller {
            start: now,
            endpoint,
            link: None,
            peer,
            catalog_track,
            audio_track,
            long_track,
            record_track,
            log: Compress::new(Compression::default(), false),
            publishes: true,
            path: format!("{NAMESPACE}/request"),
            microphone: None,
            catalog: None,
            audio: None,
            records: None,
            reader: RecordReader::default(),
            catalogs: Vec::new(),
            received: Vec::new(),
            texts: Vec::new(),
            notes: Vec::new(),
            closed: None,
        }
    }

    /// Begins again on another endpoint, with the same tracks.
    pub fn restart(&mut self, endpoint: Endpoint) {
        self.endpoint = endpoint;
        self.link = None;
        self.peer.reconnect(10);
        (self.catalog, self.audio, self.records) = (None, None, None);
        self.reader = RecordReader::default();
        self.texts.clear();
    }

    pub fn is_subscribed(&self) -> bool {
        self.audio.is_some() && self.records.is_some()
    }

    pub fn speak(&mut self, hz: f64, now: Instant) {
        self.microphone = Some(Microphone {
            encoder: Encoder::new(24_000, EncoderSettings::default()).unwrap(),
            tone: Tone::new(hz, 24_000),
            next: now,
            timestamp_us: 5_000_000,
            step: Duration::from_millis(20),
        });
    }

    pub fn write(&mut self, track: MoqTrackId, frame: &[u8], now: Instant) {
        let (_, link) = self.link.as_mut().unwrap();
        self.peer.write(track, frame, now, link);
    }

    /// Appends a record, as a browser does: without a number.
    pub fn say(&mut self, text: &[u8], now: Instant) {
        let mut frame = Vec::with_capacity(text.len() + 200);
        self.log.compress_vec(text, &mut frame, FlushCompress::Sync).unwrap();
        frame.truncate(frame.len() - 4);
        self.write(self.record_track, &frame, now);
    }

    pub fn close(&mut self, now: Instant) {
        self.link.as_mut().unwrap().1.close(0, "", now);
    }

    pub fn retract(&mut self) {
        let (_, link) = self.link.as_mut().unwrap();
        self.peer.retract(link);
    }

    pub fn publish(&mut self) {
        let (_, link) = self.link.as_mut().unwrap();
        self.peer.publish(&self.path, link);
    }

    /// Returns the PCM at 16 kHz of all packets from `from` on, by presentation time.
    pub fn pcm(&self, from: usize) -> Vec<i16> {
        let mut packets: Vec<&CallerPacket> = self.received[from..].iter().collect();
        packets.sort_by_key(|packet| packet.timestamp_us);
        let mut decoder = Decoder::new(16_000).unwrap();
        let mut pcm = Vec::new();
        for packet in packets {
            pcm.extend_from_slice(decoder.decode(&packet.payload).unwrap());
        }
        pcm
    }

    fn note(&mut self, text: impl Into<String>, now: Instant) {
        self.notes.push((now - self.start, text.into()));
    }

    /// Returns when something was first noted.
    pub fn noted(&self, text: &str) -> Option<Duration> {
        self.notes.iter().find(|(_, note)| note == text).map(|(at, _)| *at)
    }

    pub fn poll_timeout(&mut self) -> Option<Instant> {
        let link = self.link.as_mut().and_then(|(_, link)| link.poll_timeout());
        let microphone = self.microphone.as_ref().map(|microphone| microphone.next);
        [link, microphone, self.peer.poll_timeout()].into_iter().flatten().min()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(microphone) = self.microphone.as_mut().filter(|it| it.next <= now) {
            let mut out = [0; 400];
            let length = microphone.encoder.encode(&microphone.tone.take(480), &mut out).unwrap();
            let mut frame = Vec::new();
            write_media_frame(microphone.timestamp_us, &out[..length], &mut frame);
            microphone.timestamp_us += 20_000;
            microphone.next += microphone.step;
            if self.link.is_some() {
                self.write(self.audio_track, &frame, now);
            }
        }
        if let Some((_, link)) = &mut self.link {
            link.handle_timeout(now);
        }
        self.peer.handle_timeout(now);
    }

    /// Takes a datagram. Returns what the endpoint answers.
    pub fn receive(&mut self, from: SocketAddr, datagram: BytesMut, now: Instant) -> Vec<Vec<u8>> {
        let mut buffer = Vec::new();
        match self.endpoint.handle(now, from, None, None, datagram, &mut buffer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some((_, link)) = self.link.as_mut().filter(|(own, _)| *own == handle) {
                    link.handle_connection_event(event, now);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if let Ok((handle, connection)) = self.endpoint.accept(incoming, now, &mut buffer, None) {
                    self.link = Some((handle, MoqLink::server(connection, now)));
                }
            }
            Some(DatagramEvent::Response(transmit)) => return vec![buffer[..transmit.size].to_vec()],
            None => {}
        }
        Vec::new()
    }

    /// Handles what arrived. Returns the datagrams to send.
    pub fn pump(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let Some((handle, mut link)) = self.link.take() else {
            return Vec::new();
        };
        loop {
            if let Some(event) = link.poll_event() {
                match event {
                    LinkEvent::Requested(_) => link.accept(now),
                    LinkEvent::Connected => {
                        self.peer.handle_event(event, &mut link);
                        self.peer.discover(NAMESPACE, &mut link);
                        if self.publishes {
                            self.peer.publish(&self.path, &mut link);
                        }
                    }
                    LinkEvent::Closed(closed) => {
                        self.note("closed", now);
                        self.closed = Some(closed);
                    }
                    event => self.peer.handle_event(event, &mut link),
                }
            } else if let Some(event) = self.peer.poll_event(&mut link) {
                self.handle_event(event, &mut link, now);
            } else {
                break;
            }
        }
        let (mut sent, mut buffer) = (Vec::new(), Vec::new());
        while let Some(transmit) = link.poll_transmit(now, &mut buffer) {
            sent.push(buffer[..transmit.size].to_vec());
        }
        while let Some(event) = link.poll_endpoint_event() {
            if let Some(event) = self.endpoint.handle_event(handle, event) {
                link.handle_connection_event(event, now);
            }
        }
        self.link = Some((handle, link));
        sent
    }

    fn handle_event(&mut self, event: MoqEvent, link: &mut MoqLink, now: Instant) {
        let bot = format!("{NAMESPACE}/response");
        match event {
            MoqEvent::Announced { path } if path == bot => {
                let mut subscribe = |track: &str, kind| {
                    let options = MoqSubscribeOptions {
                        kind,
                        priority: 1,
                        max_latency: Duration::from_millis(500),
                    };
                    Some(self.peer.subscribe(&bot, track, options, link))
                };
                self.catalog = subscribe("catalog.json", MoqTrackKind::Snapshot);
                self.audio = subscribe("bot-audio", MoqTrackKind::Live);
                self.records = subscribe("transcript.json.z", MoqTrackKind::Log);
            }
            MoqEvent::Retracted { path } if path == bot => self.note("retracted", now),
            MoqEvent::Subscribed { track } if track == self.audio_track => self.note("audio requested", now),
            MoqEvent::Frame {
                subscription,
                group,
                payload,
            } => {
                if Some(subscription) == self.catalog {
                    self.catalogs.push(String::from_utf8(payload.to_vec()).unwrap());
                } else if Some(subscription) == self.audio {
                    let frame = MediaFrame::read(&payload).unwrap();
                    self.received.push(CallerPacket {
                        at: now - self.start,
                        group,
                        timestamp_us: frame.timestamp_us,
                        payload: frame.payload.to_vec(),
                    });
                } else if Some(subscription) == self.records {
                    match self.reader.read(&payload).unwrap() {
                        Some(MoqRecord::Message(text)) => self.texts.push(text),
                        Some(MoqRecord::Control(kind)) => self.note(kind, now),
                        None => {}
                    }
                }
            }
            MoqEvent::Ended { subscription, code } => {
                let track = match Some(subscription) {
                    it if it == self.audio => "audio",
                    it if it == self.records => "records",
                    _ => "catalog",
                };
                self.note(format!("{track} ended: {code:?}"), now);
            }
            MoqEvent::Violation(reason) => panic!("{reason}"),
            _ => {}
        }
    }
}
