//! The connection of a caller: link, peer and socket in one thread.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use edge_runner_proto::moq::link::{LinkEvent, LinkTarget, MoqLink, client_config, endpoint_config, transport_config};
use edge_runner_proto::moq::media_frame::{MediaFrame, write_media_frame};
use edge_runner_proto::moq::peer::{
    LIVE_BUDGET, MoqEvent, MoqPeer, MoqSubscribeOptions, MoqSubscriptionId, MoqTrackId, MoqTrackKind,
};
use edge_runner_proto::moq::record_log::{MoqRecord, RECORD_TRACK, RecordReader, RecordWriter};
use quinn_proto::{ClientConfig, ConnectionHandle, DatagramEvent, Endpoint, VarInt};

use super::certificate::tls_of_hash;
use super::{MoqInvitation, MoqOrder, MoqPacket, MoqShared};

const PTIME: Duration = Duration::from_millis(20);
const AUDIO_TRACK: &str = "audio/data";
const CATALOG_TRACK: &str = "catalog.json";
/// What a browser publishes.
const CATALOG: &str = r#"{"audio":{"renditions":{"audio/data":{"codec":"opus","container":{"kind":"legacy"},"sampleRate":48000,"numberOfChannels":1,"bitrate":32000,"jitter":20}}}}"#;
/// The longest wait without a deadline.
const IDLE_WAIT: Duration = Duration::from_secs(1);

struct Speaking {
    packets: Arc<Vec<Vec<u8>>>,
    next: Instant,
}

pub struct MoqConnection {
    invitation: MoqInvitation,
    shared: Arc<MoqShared>,
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    link: MoqLink,
    peer: MoqPeer,
    audio: MoqTrackId,
    records: MoqTrackId,
    writer: RecordWriter,
    reader: RecordReader,
    /// The names of the tracks that it subscribed to, after their broadcasts.
    subscribed: HashMap<MoqSubscriptionId, (String, String)>,
    speaking: Option<Speaking>,
    is_connected: bool,
    /// Packets of audio sent.
    packets: u64,
    buffer: Vec<u8>,
}

impl MoqConnection {
    pub fn new(invitation: MoqInvitation, socket: UdpSocket, shared: Arc<MoqShared>) -> Self {
        let now = Instant::now();
        let target = LinkTarget {
            authority: invitation.authority.clone(),
            path: invitation.path.clone(),
        };
        let (mut seed, mut key) = ([0; 32], [0; 64]);
        getrandom::fill(&mut seed).expect("random numbers");
        getrandom::fill(&mut key).expect("random numbers");
        let mut endpoint = Endpoint::new(Arc::new(endpoint_config(seed, &key)), None, true, None);
        let (handle, connection) = endpoint
            .connect(now, config(&invitation), invitation.address, "localhost")
            .expect("a usable address");
        let mut link = MoqLink::client(connection, target, now);
        let mut peer = MoqPeer::new(u64::from_be_bytes(seed[..8].try_into().expect("8 bytes")));
        let catalog = peer.add_track(CATALOG_TRACK, MoqTrackKind::Snapshot);
        let audio = peer.add_track(AUDIO_TRACK, MoqTrackKind::Live);
        let records = peer.add_track(RECORD_TRACK, MoqTrackKind::Log);
        peer.write(catalog, CATALOG.as_bytes(), now, &mut link);
        MoqConnection {
            invitation,
            shared,
            socket,
            endpoint,
            handle,
            link,
            peer,
            audio,
            records,
            writer: RecordWriter::new(u64::from_be_bytes(seed[8..16].try_into().expect("8 bytes"))),
            reader: RecordReader::default(),
            subscribed: HashMap::new(),
            speaking: None,
            is_connected: false,
            packets: 0,
            buffer: Vec::new(),
        }
    }

    /// Runs until the connection is over or the caller vanishes.
    pub fn run(mut self, orders: &mpsc::Receiver<MoqOrder>) {
        let mut datagram = [0; 2_048];
        loop {
            let now = Instant::now();
            self.link.handle_timeout(now);
            self.peer.handle_timeout(now);
            for order in orders.try_iter() {
                match order {
                    MoqOrder::Vanish => return,
                    order => self.handle_order(order, now),
                }
            }
            self.send_audio(now);
            self.drain(now);
            if self.link.is_drained() {
                return;
            }
            let next = self.speaking.as_ref().filter(|_| self.is_connected).map(|it| it.next);
            let due = [self.link.poll_timeout(), self.peer.poll_timeout(), next];
            let due = due.into_iter().flatten().min().unwrap_or(now + IDLE_WAIT);
            let wait = due
                .saturating_duration_since(Instant::now())
                .max(Duration::from_micros(100));
            self.socket.set_read_timeout(Some(wait)).expect("it is not zero");
            // An empty datagram only wakes the thread.
            if let Ok((length @ 1.., source)) = self.socket.recv_from(&mut datagram) {
                self.receive(&datagram[..length], source, Instant::now());
            }
        }
    }

    fn handle_order(&mut self, order: MoqOrder, now: Instant) {
        match order {
            MoqOrder::Speak(packets, next) => self.speaking = Some(Speaking { packets, next }),
            MoqOrder::Say(text) => {
                let frame = self.writer.append(&text).expect("a JSON object");
                self.peer.write(self.records, &frame, now, &mut self.link);
            }
            MoqOrder::Subscribe { broadcast, track } => self.subscribe(&broadcast, &track, MoqTrackKind::Log),
            MoqOrder::Leave => self.link.close(0, "", now),
            MoqOrder::Vanish => {}
        }
    }

    fn subscribe(&mut self, broadcast: &str, track: &str, kind: MoqTrackKind) {
        let options = MoqSubscribeOptions {
            kind,
            priority: 1,
            max_latency: LIVE_BUDGET,
        };
        let id = self.peer.subscribe(broadcast, track, options, &mut self.link);
        self.subscribed.insert(id, (broadcast.to_owned(), track.to_owned()));
    }

    /// Sends the packets that are due.
    fn send_audio(&mut self, now: Instant) {
        let Some(speaking) = self.speaking.as_mut().filter(|_| self.is_connected) else {
            return;
        };
        while speaking.next <= now {
            let packet = &speaking.packets[self.packets as usize % speaking.packets.len()];
            let mut frame = Vec::with_capacity(packet.len() + 8);
            write_media_frame(self.packets * PTIME.as_micros() as u64, packet, &mut frame);
            self.peer.write(self.audio, &frame, now, &mut self.link);
            self.packets += 1;
            speaking.next += PTIME;
            self.shared.lock().sent.push(now);
        }
    }

    fn receive(&mut self, datagram: &[u8], source: SocketAddr, now: Instant) {
        let bytes = BytesMut::from(datagram);
        let event = self.endpoint.handle(now, source, None, None, bytes, &mut self.buffer);
        match event {
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.link.handle_connection_event(event, now),
            Some(DatagramEvent::Response(transmit)) => {
                let _ = self.socket.send_to(&self.buffer[..transmit.size], transmit.destination);
            }
            Some(DatagramEvent::NewConnection(_)) | None => {}
        }
    }

    /// Handles events and sends datagrams until nothing is left.
    fn drain(&mut self, now: Instant) {
        loop {
            if let Some(event) = self.link.poll_event() {
                self.handle_link_event(event);
            } else if let Some(event) = self.peer.poll_event(&mut self.link) {
                self.handle_event(event, now);
            } else if let Some(event) = self.link.poll_endpoint_event() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.link.handle_connection_event(event, now);
                }
            } else if let Some(transmit) = self.link.poll_transmit(now, &mut self.buffer) {
                let datagram = &self.buffer[..transmit.size];
                // A full socket buffer loses the datagram; QUIC repeats it.
                let _ = self.socket.send_to(datagram, transmit.destination);
                let kept = &mut self.shared.lock().datagram;
                kept.clear();
                kept.extend_from_slice(datagram);
            } else {
                return;
            }
        }
    }

    fn handle_link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Connected => {
                self.is_connected = true;
                self.shared.lock().is_connected = true;
                self.peer.handle_event(event, &mut self.link);
                self.peer.discover("", &mut self.link);
                self.peer.publish(&self.invitation.caller_path(), &mut self.link);
            }
            LinkEvent::Closed(closed) => {
                self.speaking = None;
                self.shared.lock().closed = Some(closed);
            }
            event => self.peer.handle_event(event, &mut self.link),
        }
        self.shared.changed.notify_all();
    }

    fn handle_event(&mut self, event: MoqEvent, now: Instant) {
        match event {
            MoqEvent::Announced { path } => {
                if path == self.invitation.bot_path() {
                    self.subscribe(&path, CATALOG_TRACK, MoqTrackKind::Snapshot);
                    self.subscribe(&path, "bot-audio", MoqTrackKind::Live);
                    self.subscribe(&path, RECORD_TRACK, MoqTrackKind::Log);
                }
                self.shared.lock().announced.insert(path);
            }
            MoqEvent::Retracted { path } => drop(self.shared.lock().announced.remove(&path)),
            MoqEvent::Subscribed { track } => self.shared.lock().is_received |= track == self.audio,
            MoqEvent::Frame {
                subscription,
                group,
                payload,
            } => self.handle_frame(subscription, group, &payload, now),
            MoqEvent::Ended { subscription, code } => {
                let (broadcast, track) = &self.subscribed[&subscription];
                let ended = (format!("{broadcast}/{track}"), code);
                self.shared.lock().ended.push(ended);
            }
            MoqEvent::Violation(why) => panic!("the runner violated the protocol: {why}"),
            MoqEvent::Accepted { .. } | MoqEvent::GroupEnded { .. } | MoqEvent::GoingAway => {}
        }
        self.shared.changed.notify_all();
    }

    fn handle_frame(&mut self, subscription: MoqSubscriptionId, group: u64, payload: &Bytes, now: Instant) {
        let (_, track) = &self.subscribed[&subscription];
        let mut observed = self.shared.lock();
        match track.as_str() {
            CATALOG_TRACK => {
                let catalog = serde_json::from_slice(payload).expect("a catalog is JSON");
                observed.catalogs.push(catalog);
            }
            RECORD_TRACK => match self.reader.read(payload).expect("a record") {
                Some(MoqRecord::Message(text)) => {
                    let message = serde_json::from_str(&text).expect("a message is JSON");
                    observed.messages.push(message);
                }
                Some(MoqRecord::Control(kind)) => observed.controls.push(kind),
                None => {}
            },
            _ => {
                let frame = MediaFrame::read(payload).expect("a timestamp and a packet");
                observed.received.push(MoqPacket {
                    at: now,
                    group,
                    timestamp_us: frame.timestamp_us,
                    payload: frame.payload.to_vec(),
                });
            }
        }
    }
}

fn config(invitation: &MoqInvitation) -> ClientConfig {
    let mut config = client_config(tls_of_hash(&invitation.certificate_hash)).expect("it has TLS 1.3");
    if let Some(idle) = invitation.idle {
        let mut transport = transport_config();
        transport
            .max_idle_timeout(Some(VarInt::from_u32(idle.as_millis() as u32).into()))
            .keep_alive_interval(Some(idle / 10));
        config.transport_config(Arc::new(transport));
    }
    config
}
