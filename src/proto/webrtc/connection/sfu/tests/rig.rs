//! A [`PeerConnection`] and a server made of str0m's `Rtc`, joined by a link of 2 ms in virtual
//! time.
//!
//! [`Rig::run`] advances the time by a millisecond per turn, delivers what is due, and records
//! the outputs. Nothing sleeps.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use str0m::change::{SdpAnswer, SdpOffer, SdpPendingOffer};
use str0m::channel::{ChannelConfig, ChannelId};
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive, TcpType, Transmit};
use str0m::rtp::{Extension, ExtensionMap, RtpPacket, RtpWrite, Ssrc};
use str0m::{Candidate, Event, Input, Rtc, RtcConfig};

use super::super::*;
use crate::audio::opus::{Decoder, Encoder, EncoderSettings};
use crate::audio::packet::AudioPacket;
use crate::audio::tone::Tone;
use crate::limits::OPUS_PACKET_BYTES_MAX;
use crate::webrtc::connection::{AudioLevel, PacketTrust, ReceivedPacket};
use crate::webrtc::crypto;

pub const RATE_HZ: u32 = 16_000;

pub static COMMON: LazyLock<ConnectionContext> = LazyLock::new(ConnectionContext::default);

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn ours() -> SocketAddr {
    "192.0.2.1:40000".parse().expect("an address")
}

pub fn theirs() -> SocketAddr {
    "192.0.2.9:7882".parse().expect("an address")
}

pub fn theirs_tcp() -> SocketAddr {
    "192.0.2.9:7881".parse().expect("an address")
}

pub fn audio_level(dbov_below: u8) -> AudioLevel {
    AudioLevel {
        dbov_below,
        is_speech: dbov_below < 127,
    }
}

pub fn setup(local: &[SocketAddr]) -> SfuSetup<'_> {
    SfuSetup {
        common: &COMMON,
        local,
        relay_only: false,
        seed: 0x1234_5678_9abc_def0,
    }
}

/// The properties of a server.
#[derive(Clone, Copy, Default)]
pub struct Kind {
    pub lite: bool,
    /// It also offers `audio/red`.
    pub red: bool,
    pub video: bool,
    /// It omits the mid from packets.
    pub nameless: bool,
    /// It accepts TCP connections.
    pub tcp: bool,
    /// It announces no UDP.
    pub no_udp: bool,
}

/// A source of audio packets with a tone.
pub struct Talker {
    tone: Tone,
    encoder: Encoder,
    pub sequence: u64,
    ticks: u32,
}

impl Talker {
    pub fn new(hz: f64) -> Self {
        Talker {
            tone: Tone::new(hz, RATE_HZ),
            encoder: Encoder::new(RATE_HZ, EncoderSettings::default()).expect("an encoder"),
            sequence: 1,
            ticks: 0,
        }
    }

    pub fn packet(&mut self) -> Vec<u8> {
        let pcm = self.tone.take(self.encoder.frame_samples());
        let mut out = [0; OPUS_PACKET_BYTES_MAX];
        let bytes = self.encoder.encode(&pcm, &mut out).expect("a packet");
        out[..bytes].to_vec()
    }
}

/// The server's end of one connection.
pub struct Server {
    pub rtc: Rtc,
    pub pending: Option<SdpPendingOffer>,
    pub packets: Vec<RtpPacket>,
    pub channels: Vec<(ChannelId, ChannelConfig)>,
    pub data: Vec<(ChannelId, Vec<u8>)>,
    pub connected: bool,
    pub closed: bool,
    pub is_mute: bool,
    pub wake: Instant,
}

impl Server {
    pub fn new(kind: Kind, now: Instant) -> Self {
        let cert = crypto::certificate().expect("a certificate");
        let mut extensions = ExtensionMap::empty();
        extensions.set(2, Extension::AudioLevel);
        if !kind.nameless {
            extensions.set(3, Extension::RtpMid);
        }
        let mut config: RtcConfig = COMMON
            .default_rtc_config(cert.clone())
            .set_extension_map(extensions)
            .enable_opus(true, kind.red)
            .set_ice_lite(kind.lite);
        if kind.video {
            config = config.enable_vp8(true);
        }
        let mut rtc = config.build(now);
        if !kind.no_udp {
            rtc.add_local_candidate(Candidate::host(theirs(), Protocol::Udp).expect("a candidate"));
        }
        if kind.tcp {
            let candidate = Candidate::builder().tcp().host(theirs_tcp());
            rtc.add_local_candidate(candidate.tcptype(TcpType::Passive).build().expect("a candidate"));
        }
        Server {
            rtc,
            pending: None,
            packets: Vec::new(),
            channels: Vec::new(),
            data: Vec::new(),
            connected: false,
            closed: false,
            is_mute: false,
            wake: now,
        }
    }

    /// Answers the publisher.
    pub fn answer(&mut self, offer: &str) -> String {
        let offer = SdpOffer::from_sdp_string(offer).expect("an offer that can be read");
        let answer = self.rtc.sdp_api().accept_offer(offer).expect("an offer that fits");
        answer.to_sdp_string()
    }

    /// Offers the subscriber new sections, each `PA_..|TR_..`, and at first a data channel.
    pub fn offer(&mut self, tracks: &[&str]) -> (String, Vec<Mid>) {
        self.offer_changed(tracks, &[])
    }

    /// Offers new sections, and new directions of existing ones.
    pub fn offer_changed(&mut self, tracks: &[&str], directions: &[(Mid, Direction)]) -> (String, Vec<Mid>) {
        let mut change = self.rtc.sdp_api();
        for (mid, direction) in directions {
            change.set_direction(*mid, *direction);
        }
        if self.channels.is_empty() && self.pending.is_none() && !self.connected {
            change.add_channel("_reliable".to_owned());
        }
        let add = |track: &&str| {
            let (_, id) = track.split_once('|').unwrap_or(("", track));
            let (stream, id) = (Some((*track).to_owned()), Some(id.to_owned()));
            change.add_media(MediaKind::Audio, Direction::SendOnly, stream, id, None)
        };
        let mids = tracks.iter().map(add).collect();
        let (offer, pending) = change.apply().expect("an offer");
        self.pending = Some(pending);
        (offer.to_sdp_string(), mids)
    }

    pub fn accept(&mut self, answer: &str) {
        let answer = SdpAnswer::from_sdp_string(answer).expect("an answer that can be read");
        let pending = self.pending.take().expect("an offer");
        self.rtc
            .sdp_api()
            .accept_answer(pending, answer)
            .expect("an answer that fits");
    }

    /// Sends 20 ms of audio in a section.
    pub fn say(&mut self, mid: Mid, talker: &mut Talker, now: Instant) {
        let payload = talker.packet();
        let pt: Pt = *self
            .rtc
            .media(mid)
            .and_then(|media| media.remote_pts().last())
            .expect("a payload type");
        let write = RtpWrite::new(pt, talker.sequence.into(), talker.ticks, now, payload);
        talker.sequence += 1;
        talker.ticks = talker.ticks.wrapping_add(960);
        let mut api = self.rtc.direct_api();
        api.stream_tx_by_mid(mid, None).expect("a stream").write_rtp(write);
        self.wake = now;
    }

    pub fn source(&mut self, mid: Mid) -> Ssrc {
        let mut api = self.rtc.direct_api();
        api.stream_tx_by_mid(mid, None).expect("a stream").ssrc()
    }

    pub fn drain(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let leaving = self.drain_transmits().into_iter();
        leaving
            .map(|transmit| (transmit.destination, transmit.contents.into()))
            .collect()
    }

    /// Offers an ICE restart to the subscriber.
    pub fn offer_restart(&mut self) -> String {
        let mut change = self.rtc.sdp_api();
        change.ice_restart(true);
        let (offer, pending) = change.apply().expect("an offer");
        self.pending = Some(pending);
        offer.to_sdp_string()
    }

    pub fn drain_transmits(&mut self) -> Vec<Transmit> {
        let mut leaving = Vec::new();
        loop {
            match self.rtc.poll_output().expect("no fault of the peer") {
                str0m::Output::Timeout(at) => {
                    self.wake = at;
                    return leaving;
                }
                str0m::Output::Transmit(transmit) => leaving.push(transmit),
                str0m::Output::Event(event) => match event {
                    Event::Connected => self.connected = true,
                    Event::RtpPacket(packet) => self.packets.push(packet),
                    Event::ChannelOpen(id, _) => {
                        let config = self.rtc.channel(id).and_then(|channel| channel.config().cloned());
                        self.channels.push((id, config.expect("a channel that is open")));
                    }
                    Event::ChannelData(data) => self.data.push((data.id, data.data)),
                    Event::Closed => self.closed = true,
                    _ => {}
                },
            }
        }
    }
}

/// Both ends of a connection.
pub struct Rig {
    pub now: Instant,
    pub peer: PeerConnection,
    pub server: Server,
    pub connected: bool,
    pub channel_open: bool,
    pub failed: usize,
    pub silences: usize,
    pub tcp_candidates: Vec<SocketAddr>,
    pub audio: BTreeMap<String, Vec<AudioPacket>>,
    pub gone: Vec<String>,
    pub data: Vec<Vec<u8>>,
    /// The datagrams that the connection sent.
    pub sent: Vec<Vec<u8>>,
    wake: Instant,
    to_peer: VecDeque<(Instant, Vec<u8>)>,
    to_server: VecDeque<(Instant, Vec<u8>)>,
}

impl Rig {
    pub fn new(peer: PeerConnection, server: Server, now: Instant) -> Self {
        Rig {
            now,
            peer,
            server,
            connected: false,
            channel_open: false,
            failed: 0,
            silences: 0,
            tcp_candidates: Vec::new(),
            audio: BTreeMap::new(),
            gone: Vec::new(),
            data: Vec::new(),
            sent: Vec::new(),
            wake: now,
            to_peer: VecDeque::new(),
            to_server: VecDeque::new(),
        }
    }

    /// Creates a publisher whose offer is answered but not connected.
    pub fn publishing(kind: Kind) -> Self {
        let now = Instant::now();
        let mut server = Server::new(kind, now);
        let (mut peer, offer) = PeerConnection::publisher(&setup(&[ours()]), "TRACK", now).expect("an offer");
        let answer = server.answer(&offer);
        peer.handle_answer(&answer, now).expect("an answer that is taken");
        Rig::new(peer, server, now)
    }

    /// Creates a subscriber that answered an offer with these tracks but is not connected.
    pub fn subscribed(kind: Kind, tracks: &[&str]) -> (Self, Vec<Mid>) {
        let now = Instant::now();
        let mut server = Server::new(kind, now);
        let (offer, mids) = server.offer(tracks);
        let (peer, answer) = PeerConnection::subscriber(&setup(&[ours()]), &offer, &BTreeMap::new(), now)
            .expect("an offer that is answered");
        server.accept(&answer);
        (Rig::new(peer, server, now), mids)
    }

    pub fn connect(&mut self) {
        for _ in 0..5_000 {
            if self.connected && self.server.connected {
                self.run(ms(50));
                return;
            }
            self.run(ms(1));
        }
        panic!("connected within 5 s");
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.flush();
        while self.now < end {
            self.now += ms(1);
            while self.to_peer.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, datagram) = self.to_peer.pop_front().expect("one is there");
                self.deliver(&datagram);
            }
            while self.to_server.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, datagram) = self.to_server.pop_front().expect("one is there");
                if self.server.is_mute {
                    continue;
                }
                let receive = Receive::new(Protocol::Udp, ours(), theirs(), &datagram).expect("a datagram");
                let input = Input::Receive(self.now, receive);
                if self.server.rtc.accepts(&input) {
                    self.server.rtc.handle_input(input).expect("an input that is taken");
                }
            }
            if self.wake <= self.now {
                self.peer.handle_timeout(self.now);
            }
            if self.server.wake <= self.now {
                let input = Input::Timeout(self.now);
                self.server.rtc.handle_input(input).expect("time goes on");
            }
            self.flush();
        }
    }

    /// Delivers a datagram from the server's address. Returns whether it was accepted.
    pub fn deliver(&mut self, datagram: &[u8]) -> bool {
        let taken = self
            .peer
            .handle_packet(&ReceivedPacket::from_datagram(theirs(), ours(), datagram), self.now);
        self.drain();
        taken != PacketTrust::Rejected
    }

    fn flush(&mut self) {
        self.drain();
        for (destination, datagram) in self.server.drain() {
            if destination == ours() && !self.server.is_mute {
                self.to_peer.push_back((self.now + ms(2), datagram));
            }
        }
    }

    pub fn drain(&mut self) {
        for _ in 0..10_000 {
            match self.peer.poll_output() {
                ConnectionOutput::Timeout(at) => {
                    self.wake = at;
                    return;
                }
                ConnectionOutput::Transmit(mut transmit) => {
                    let (source, destination) = (transmit.source, transmit.destination);
                    let contents = transmit.contents().to_vec();
                    self.sent.push(contents.clone());
                    if (source, destination) == (ours(), theirs()) {
                        self.to_server.push_back((self.now + ms(2), contents));
                    }
                }
                ConnectionOutput::Connected => self.connected = true,
                ConnectionOutput::Audio { track, packet } => {
                    let track = track.expect("a track").to_string();
                    self.audio.entry(track).or_default().push(packet);
                }
                ConnectionOutput::TrackRemoved(track) => self.gone.push(track.to_string()),
                ConnectionOutput::ChannelOpen => self.channel_open = true,
                ConnectionOutput::Data(data) => self.data.push(data),
                ConnectionOutput::PeerClosed | ConnectionOutput::Failed => self.failed += 1,
                ConnectionOutput::Silent => self.silences += 1,
                ConnectionOutput::TcpCandidate(address) => self.tcp_candidates.push(address),
                ConnectionOutput::PathValidated(_) => {}
                ConnectionOutput::Dtmf(_) | ConnectionOutput::Message(_) => panic!("rooms have neither"),
            }
        }
        panic!("the peer's output has no end");
    }

    /// Sends audio of these talkers for `packets` times 20 ms.
    pub fn talk(&mut self, talkers: &mut [(Mid, Talker)], times: usize) {
        for _ in 0..times {
            for (mid, talker) in talkers.iter_mut() {
                self.server.say(*mid, talker, self.now);
            }
            self.run(ms(20));
        }
    }

    /// Makes an offer of the server, changes it, and returns the connection's answer.
    pub fn renegotiate(&mut self, offer: &str, mid_to_track: &[(&str, &str)]) -> String {
        let map = mid_to_track
            .iter()
            .map(|(mid, track)| ((*mid).to_owned(), (*track).to_owned()));
        let answer = self
            .peer
            .answer_server_offer(offer, &map.collect())
            .expect("an offer that is answered");
        self.server.accept(&answer);
        self.drain();
        answer
    }

    /// Returns the received audio of a track.
    pub fn received(&self, track: &str) -> Vec<i16> {
        decode(
            self.audio
                .get(track)
                .into_iter()
                .flatten()
                .map(|packet| &packet.payload),
        )
    }
}

pub fn decode<'a>(payloads: impl Iterator<Item = &'a Arc<[u8]>>) -> Vec<i16> {
    let mut decoder = Decoder::new(RATE_HZ).expect("a decoder");
    let mut pcm = Vec::new();
    for payload in payloads {
        pcm.extend_from_slice(decoder.decode(payload).expect("Opus"));
    }
    pcm
}
