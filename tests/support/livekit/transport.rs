//! [`PeerTransport`]: one peer connection of a participant, as the server holds it, on str0m in RTP mode.
//!
//! A publisher's transport takes offers; a subscriber's makes them, one at a time, whenever the tracks to be heard have changed.
//! In: descriptions, candidates, datagrams, the RTP packets of others. Out: descriptions without candidates, which follow as
//! messages of their own, and what [`TransportEvent`]. Audio goes through as it came: no decoding, the sender's sequence numbers
//! and timestamps.

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

/// The channels of every participant.
pub const RELIABLE: &str = "_reliable";
pub const LOSSY: &str = "_lossy";
/// Further away than any test lasts.
const NEVER: Duration = Duration::from_secs(86_400);

/// What a connection tells its participant.
pub enum TransportEvent {
    /// ICE and DTLS are up.
    Connected,
    /// Nothing is heard of the peer any more.
    Lost,
    /// The peer took its leave of DTLS.
    Closed,
    Audio(Mid, Box<RtpPacket>),
    /// The bytes of one message, and the label of the channel that it came on.
    Data(String, Vec<u8>),
    /// This channel takes messages.
    Open(String),
}

/// A section of the subscriber's connection, and the track that is in it now.
struct Section {
    mid: Mid,
    /// The subscriber has answered it.
    answered: bool,
    /// What the first sequence number has above 16 bits: a receiver that comes later counts from zero.
    above: Option<u64>,
    /// The stream and the track in `a=msid`: as the section was made, which str0m goes on writing, and as they are.
    made: String,
    msid: String,
}

/// A UDP socket, and the task that reads it where it is this connection's alone.
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
    /// How many offers this side has made.
    offers: u32,
    channels: BTreeMap<String, ChannelId>,
    /// By track sid.
    sections: BTreeMap<String, Section>,
    /// Sections whose track is gone. Once the subscriber knows, another track gets them.
    unused: Vec<Section>,
    /// The candidates have been told.
    told: bool,
    pub connected: bool,
}

impl PeerTransport {
    /// Makes a connection. `red` offers redundant audio beside Opus, as the real server does when a publisher sends it.
    pub fn new(wire: TransportSocket, subscriber: bool, red: bool, ice_lite: bool, now: Instant) -> Self {
        let mut extensions = ExtensionMap::empty();
        if !subscriber {
            // To a subscriber there are none: its streams are told apart by their sources, as the real server has it.
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
            told: false,
            connected: false,
        }
    }

    /// Offers the tracks to be heard, each with its publisher's sid; nothing while an offer is open, or nothing has changed.
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
        // A unused section names nobody.
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

    /// Takes the answer to the open offer.
    pub fn handle_answer(&mut self, answer: &SessionDescription) -> Result<(), String> {
        let pending = self.pending.take().ok_or("an answer without an offer")?;
        if answer.id != 0 && answer.id != self.offers {
            // The real server notes this and goes on.
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

    /// Returns the sids of those whose tracks are answered.
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

    /// Returns the candidates, once: they follow the first description. One of TCP is among them, as the real server has it;
    /// here nobody listens there.
    pub fn candidates(&mut self) -> Vec<String> {
        if std::mem::replace(&mut self.told, true) {
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
        // The real server takes no TCP that it has not asked for, and we have no TCP at all.
        if candidate.proto() == Protocol::Udp {
            self.rtc.add_remote_candidate(candidate);
        }
        Ok(())
    }

    /// Takes a datagram if it is this connection's.
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

    /// Sends what is to be sent, and collects what event.
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

    /// Passes on a packet of this track; `false` when it is not heard here, or not yet.
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
        // What was written leaves with a timeout.
        if let Err(error) = self.rtc.handle_input(Input::Timeout(now)) {
            log::warn!("a packet: {error}");
        }
        true
    }

    /// Sends a message; `false` when there is no such channel, or no room in it.
    pub fn send(&mut self, label: &str, bytes: &[u8]) -> bool {
        let Some(id) = self.channels.get(label) else {
            return false;
        };
        self.rtc
            .channel(*id)
            .is_some_and(|mut channel| channel.write(true, bytes).unwrap_or(false))
    }

    /// Takes leave of DTLS, as far as one drain goes.
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

/// Returns of each section of this kind, `audio` or `video`, that sends: its mid, and the track id of its `a=msid`.
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
