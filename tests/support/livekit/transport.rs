//! [`PeerTransport`]: the server's side of one peer connection, on str0m in RTP mode.
//!
//! A publisher's transport takes offers; a subscriber's makes them, one at a time, when its tracks
//! have changed. In: descriptions, candidates, datagrams, RTP packets of others. Out: descriptions
//! without candidates, which follow as separate messages, and [`TransportEvent`]s. Audio is
//! forwarded unchanged, with the sender's sequence numbers and timestamps.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_runner_proto::livekit::wire::SessionDescription;
use str0m::change::{SdpAnswer, SdpOffer, SdpPendingOffer};
use str0m::channel::{ChannelConfig, ChannelId, Reliability};
use str0m::format::Codec;
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{Extension, ExtensionMap, RtpPacket, RtpWrite};
use str0m::{Candidate, Event, IceConnectionState, Input, Output, Rtc};
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

/// The data channels of every participant.
pub const RELIABLE: &str = "_reliable";
pub const LOSSY: &str = "_lossy";
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(86_400);

/// An event of a connection.
pub enum TransportEvent {
    /// ICE and DTLS are up.
    Connected,
    /// The peer is silent.
    Lost,
    /// The peer closed DTLS.
    Closed,
    Audio(Mid, Box<RtpPacket>),
    /// The channel's label, and the bytes of one message.
    Data(String, Vec<u8>),
    /// This channel is open.
    Open(String),
}

/// A section of the subscriber's connection, and its current track.
struct Section {
    mid: Mid,
    /// Whether the subscriber has answered it.
    answered: bool,
    /// The upper bits of the first sequence number: a late receiver counts from zero.
    above: Option<u64>,
    /// Stream and track in `a=msid`: as the section was created, which str0m keeps writing, and as
    /// they are now.
    made: String,
    msid: String,
}

/// A UDP socket, and the task that reads it if no other connection uses it.
pub struct TransportSocket {
    pub socket: Arc<UdpSocket>,
    pub local: SocketAddr,
    pub reader: Option<AbortHandle>,
}

impl Drop for TransportSocket {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

pub struct PeerTransport {
    rtc: Rtc,
    wire: TransportSocket,
    deadline: Instant,
    pending: Option<SdpPendingOffer>,
    /// The number of offers of this side.
    offers: u32,
    channels: BTreeMap<String, ChannelId>,
    /// By track sid.
    sections: BTreeMap<String, Section>,
    /// Sections of ended tracks. Another track reuses them once the subscriber has answered.
    unused: Vec<Section>,
    /// Whether the candidates were sent.
    reported: bool,
    pub connected: bool,
}

impl PeerTransport {
    /// Creates a connection. `red` offers redundant audio, as the real server does when a publisher
    /// sends it.
    pub fn new(wire: TransportSocket, subscriber: bool, red: bool, ice_lite: bool, now: Instant) -> Self {
        let mut extensions = ExtensionMap::empty();
        if !subscriber {
            // Subscribers get none: their streams are told apart by SSRC, as on the real server.
            extensions.set(1, Extension::AudioLevel);
            extensions.set(4, Extension::RtpMid);
        }
        let cert = edge_runner_proto::webrtc::crypto::certificate().expect("keys can be made");
        let mut rtc = Rtc::builder()
            .set_crypto_provider(Arc::new(edge_runner_proto::webrtc::crypto::provider()))
            .set_dtls_cert(cert.clone())
            .set_rtp_mode(true)
            .clear_codecs()
            .enable_opus(true, red)
            .set_extension_map(extensions)
            .set_ice_lite(ice_lite)
            .set_reordering_size_audio(1)
            .build(now);
        let host = Candidate::host(wire.local, Protocol::Udp).expect("a usable address");
        rtc.add_local_candidate(host);
        Self {
            rtc,
            wire,
            deadline: now,
            pending: None,
            offers: 0,
            channels: BTreeMap::new(),
            sections: BTreeMap::new(),
            unused: Vec::new(),
            reported: false,
            connected: false,
        }
    }

    /// Offers the subscribed tracks, each with its publisher's sid; `None` while an offer is
    /// pending or nothing has changed.
    pub fn offer(&mut self, subscribed: &BTreeMap<String, String>) -> Option<SessionDescription> {
        if self.pending.is_some() {
            return None;
        }
        let gone: Vec<String> = self
            .sections
            .keys()
            .filter(|track| !subscribed.contains_key(*track))
            .cloned()
            .collect();
        let mut gone: Vec<Section> = gone.iter().filter_map(|track| self.sections.remove(track)).collect();
        let mut again = Vec::new();
        for (track, publisher) in subscribed {
            let unused = self.unused.iter().position(|section| section.answered);
            if let Some(unused) = unused.filter(|_| !self.sections.contains_key(track)) {
                let mut section = self.unused.swap_remove(unused);
                let mut api = self.rtc.direct_api();
                let source = api.new_ssrc();
                api.reset_stream_tx(section.mid, None, source, None);
                (section.answered, section.above) = (false, None);
                section.msid = format!("{publisher}|{track} {track}");
                again.push(section.mid);
                self.sections.insert(track.clone(), section);
            }
        }
        let mut changes = self.rtc.sdp_api();
        if self.offers == 0 {
            changes.add_channel_with_config(ChannelConfig {
                label: RELIABLE.into(),
                ..Default::default()
            });
            changes.add_channel_with_config(ChannelConfig {
                label: LOSSY.into(),
                ordered: false,
                reliability: Reliability::MaxRetransmits { retransmits: 0 },
                ..Default::default()
            });
        }
        for section in &mut gone {
            changes.set_direction(section.mid, Direction::Inactive);
            section.answered = false;
        }
        self.unused.extend(gone);
        for mid in again {
            changes.set_direction(mid, Direction::SendOnly);
        }
        for (track, publisher) in subscribed {
            if !self.sections.contains_key(track) {
                let stream = format!("{publisher}|{track}");
                let msid = format!("{stream} {track}");
                let mid = changes.add_media(
                    MediaKind::Audio,
                    Direction::SendOnly,
                    Some(stream),
                    Some(track.clone()),
                    None,
                );
                let section = Section {
                    mid,
                    answered: false,
                    above: None,
                    made: msid.clone(),
                    msid,
                };
                self.sections.insert(track.clone(), section);
            }
        }
        let (offer, pending) = changes.apply()?;
        self.pending = Some(pending);
        self.offers += 1;
        let mut sdp = without_candidates(&offer.to_sdp_string());
        for section in self.sections.values() {
            sdp = sdp.replace(&section.made, &section.msid);
        }
        // An unused section has no msid.
        for section in &self.unused {
            let kept = sdp.split_inclusive("\r\n").filter(|text| !text.contains(&section.made));
            sdp = kept.collect();
        }
        let mids = self.sections.iter();
        Some(SessionDescription {
            kind: "offer".into(),
            sdp,
            id: self.offers,
            mid_to_track_id: mids
                .map(|(track, section)| (section.mid.to_string(), track.clone()))
                .collect(),
        })
    }

    /// Handles the answer to the pending offer.
    pub fn handle_answer(&mut self, answer: &SessionDescription) -> Result<(), String> {
        let pending = self.pending.take().ok_or("an answer without an offer")?;
        if answer.id != 0 && answer.id != self.offers {
            // The real server logs this and continues.
            log::warn!("the answer is to offer {}, the open one is {}", answer.id, self.offers);
        }
        let answer = SdpAnswer::from_sdp_string(&answer.sdp).map_err(|error| error.to_string())?;
        self.rtc
            .sdp_api()
            .accept_answer(pending, answer)
            .map_err(|error| error.to_string())?;
        for section in self.sections.values_mut().chain(&mut self.unused) {
            section.answered = true;
        }
        Ok(())
    }

    /// Returns the sids of the publishers whose tracks are answered.
    pub fn publishers(&self) -> BTreeSet<String> {
        let answered = self.sections.values().filter(|section| section.answered);
        let publishers = answered.filter_map(|section| section.msid.split_once('|'));
        publishers.map(|(publisher, _)| publisher.to_owned()).collect()
    }

    /// Answers an offer of the publisher.
    pub fn handle_offer(&mut self, offer: &SessionDescription) -> Result<SessionDescription, String> {
        let sdp = SdpOffer::from_sdp_string(&offer.sdp).map_err(|error| error.to_string())?;
        let answer = self
            .rtc
            .sdp_api()
            .accept_offer(sdp)
            .map_err(|error| error.to_string())?;
        Ok(SessionDescription {
            kind: "answer".into(),
            sdp: without_candidates(&answer.to_sdp_string()),
            id: offer.id,
            mid_to_track_id: BTreeMap::new(),
        })
    }

    /// Returns the candidates, once, after the first description. As on the real server one of them
    /// is TCP; nothing listens there.
    pub fn candidates(&mut self) -> Vec<String> {
        if std::mem::replace(&mut self.reported, true) {
            return Vec::new();
        }
        let host = Candidate::host(self.wire.local, Protocol::Udp).expect("a usable address");
        let tcp = format!(
            "candidate:2 1 tcp 1671430143 {} 9 typ host tcptype passive",
            self.wire.local.ip()
        );
        vec![tcp, host.to_sdp_string()]
    }

    pub fn add_remote_candidate(&mut self, text: &str) -> Result<(), String> {
        let candidate = Candidate::from_sdp_string(text).map_err(|error| error.to_string())?;
        // Neither the real server nor this one accepts unrequested TCP.
        if candidate.proto() == Protocol::Udp {
            self.rtc.add_remote_candidate(candidate);
        }
        Ok(())
    }

    /// Handles a datagram if it belongs to this connection.
    pub fn handle_datagram(&mut self, source: SocketAddr, contents: &[u8], now: Instant) -> bool {
        let Ok(contents) = contents.try_into() else {
            return false;
        };
        let receive = Receive {
            proto: Protocol::Udp,
            source,
            destination: self.wire.local,
            contents,
        };
        let input = Input::Receive(now, receive);
        if !self.rtc.accepts(&input) {
            return false;
        }
        if let Err(error) = self.rtc.handle_input(input) {
            log::warn!("a datagram of {source}: {error}");
        }
        true
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline <= now
            && let Err(error) = self.rtc.handle_input(Input::Timeout(now))
        {
            log::warn!("a deadline: {error}");
        }
    }

    /// Sends datagrams and reports events.
    pub fn drain(&mut self, now: Instant, mut on_event: impl FnMut(TransportEvent)) {
        loop {
            if !self.rtc.is_alive() {
                self.deadline = now + NEVER;
                return;
            }
            match self.rtc.poll_output() {
                Ok(Output::Timeout(deadline)) => {
                    self.deadline = deadline;
                    return;
                }
                Ok(Output::Transmit(transmit)) => {
                    // A full socket drops it, as a network does.
                    let _ = self.wire.socket.try_send_to(&transmit.contents, transmit.destination);
                }
                Ok(Output::Event(event)) => {
                    if let Some(event) = self.event(event) {
                        on_event(event);
                    }
                }
                Err(error) => {
                    log::warn!("a connection broke: {error}");
                    self.rtc.disconnect();
                }
            }
        }
    }

    fn event(&mut self, event: Event) -> Option<TransportEvent> {
        match event {
            Event::Connected => {
                self.connected = true;
                Some(TransportEvent::Connected)
            }
            Event::IceConnectionStateChange(IceConnectionState::Disconnected) => Some(TransportEvent::Lost),
            Event::Closed => Some(TransportEvent::Closed),
            Event::RtpPacket(packet) => {
                let mid = self.rtc.direct_api().stream_rx(&packet.header.ssrc)?.mid();
                Some(TransportEvent::Audio(mid, Box::new(packet)))
            }
            Event::ChannelOpen(id, label) => {
                self.channels.insert(label.clone(), id);
                Some(TransportEvent::Open(label))
            }
            Event::ChannelData(data) => {
                let (label, _) = self.channels.iter().find(|(_, id)| **id == data.id)?;
                Some(TransportEvent::Data(label.clone(), data.data))
            }
            Event::ChannelClose(id) => {
                self.channels.retain(|_, open| *open != id);
                None
            }
            _ => None,
        }
    }

    /// Forwards a packet of this track. Returns `false` if it is not subscribed to, or not yet.
    pub fn forward(&mut self, track: &str, packet: &RtpPacket, now: Instant) -> bool {
        let opus = self
            .rtc
            .codec_config()
            .find(|params| params.spec().codec == Codec::Opus);
        let (Some(pt), Some(section)) = (opus.map(|params| params.pt()), self.sections.get_mut(track)) else {
            return false;
        };
        if !section.answered || !self.connected {
            return false;
        }
        let above = *section.above.get_or_insert(*packet.seq_no & !0xffff);
        let Some(sequence) = packet.seq_no.checked_sub(above) else {
            return false;
        };
        let mut api = self.rtc.direct_api();
        let Some(stream) = api.stream_tx_by_mid(section.mid, None) else {
            return false;
        };
        let write = RtpWrite::new(
            pt,
            sequence.into(),
            packet.header.timestamp,
            now,
            packet.payload.clone(),
        );
        stream.write_rtp(write.marker(packet.header.marker));
        // A timeout sends what was written.
        if let Err(error) = self.rtc.handle_input(Input::Timeout(now)) {
            log::warn!("a packet: {error}");
        }
        true
    }

    /// Sends a message. Returns `false` if the channel is missing or full.
    pub fn send(&mut self, label: &str, bytes: &[u8]) -> bool {
        let Some(id) = self.channels.get(label) else {
            return false;
        };
        self.rtc
            .channel(*id)
            .is_some_and(|mut channel| channel.write(true, bytes).unwrap_or(false))
    }

    /// Closes DTLS, as far as one drain goes.
    pub fn close(&mut self, now: Instant) {
        if self.rtc.close().is_ok() {
            self.drain(now, |_| ());
        }
    }
}

fn without_candidates(sdp: &str) -> String {
    let kept = sdp.split_inclusive("\r\n");
    kept.filter(|section| !section.starts_with("a=candidate:") && !section.starts_with("a=end-of-candidates"))
        .collect()
}

/// Returns the mid, and the track id of `a=msid`, of each sending section of this kind, `audio` or
/// `video`.
pub fn tracks(offer: &str, kind: &str) -> Vec<(String, Option<String>)> {
    let sections = offer.split("\r\nm=").skip(1);
    let sections = sections.filter(|section| section.starts_with(kind));
    let tracks = sections.filter(|section| !section.contains("\r\na=inactive") && !section.contains("\r\na=recvonly"));
    let value = |section: &str, name: &str| {
        let mut lines = section.lines();
        lines.find_map(|line| line.strip_prefix(name).map(str::to_owned))
    };
    tracks
        .filter_map(|section| {
            let msid = value(section, "a=msid:");
            let track = msid.and_then(|msid| msid.split(' ').nth(1).map(str::to_owned));
            Some((value(section, "a=mid:")?, track))
        })
        .collect()
}
