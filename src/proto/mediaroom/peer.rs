//! One of the two peer connections of a stay: the publisher's, which we offer, and the subscriber's, which we answer.
//!
//! str0m narrowed to what a room needs: one Opus track with its audio level and two data channels out; every participant's
//! Opus, by its track, and data in. As in `proto::connection`, every input is followed by a drain up to [`Output::Timeout`].
//! There is no deadline for connecting here; a connection that was up and falls silent fails.
//! Refused: descriptions that str0m would take half, by `sections`; the connection goes on as it was. Ignored: video, codecs
//! other than Opus, tracks and candidates beyond their caps, candidates over TCP.
//! Sources: the rooms fact sheet, B4 and B5; RFC 8829, RFC 6464 (audio level), RFC 7587.

mod sections;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use str0m::change::{SdpAnswer, SdpOffer, SdpPendingOffer};
use str0m::channel::{ChannelConfig, ChannelId, Reliability};
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{Extension, ExtensionMap, ExtensionValues, RtpPacket, RtpWrite, Ssrc};
use str0m::{Candidate, Event, Input, Rtc, RtcError};

use self::sections::{Description, Heard, Kind};
use crate::connection::early::Early;
use crate::connection::packet::rtp_header;
use crate::connection::remote::Remote;
use crate::connection::{AudioPacket, Common, OfferError, Packet, Transmit};
use crate::crypto;
use crate::limits::{CHANNELS_MAX, REMOTE_CANDIDATES_MAX, ROOM_MEDIA_LOST_AFTER, ROOM_SOURCES_MAX};
use crate::packet_kind::PacketKind;
use crate::sdp::{self, PreparedOffer};

/// The stream that our track belongs to.
const STREAM: &str = "bot";
const RELIABLE: &str = "_reliable";
const LOSSY: &str = "_lossy";

/// What a connection is made from.
pub struct Setup<'a> {
    pub common: &'a Common,
    /// Host candidates, each with the port of this connection's own UDP socket.
    pub local: &'a [SocketAddr],
    /// Random bits: where sequence numbers and timestamps start.
    pub seed: u64,
}

/// What a connection answers to an input.
pub enum Output {
    Timeout(Instant),
    Transmit(Transmit),
    /// ICE and DTLS are up.
    Connected,
    /// One Opus payload of a track, `TR_...`.
    Audio {
        track: Arc<str>,
        packet: AudioPacket,
    },
    /// A track of the subscriber connection is gone.
    TrackGone(Arc<str>),
    /// The reliable channel takes messages.
    ChannelOpen,
    /// The bytes of one `DataPacket`.
    Data(Vec<u8>),
    /// The connection broke, or the server closed it.
    Failed,
}

/// What a publisher sends.
struct Voice {
    mid: Mid,
    /// Known from the answer.
    pt: Option<Pt>,
    sequence: u64,
    /// RTP timestamp at tick 0.
    timestamp: u32,
    /// The channel that our messages go to.
    reliable: ChannelId,
    is_open: bool,
}

/// One peer connection.
pub struct Peer {
    rtc: Rtc,
    remote: Remote,
    early: Early,
    /// Candidates that came before the answer; `None` once it is there.
    waiting: Option<Vec<String>>,
    pending: Option<SdpPendingOffer>,
    voice: Option<Voice>,
    /// The sections of the description before, in order.
    layout: Vec<(String, Kind)>,
    heard: Vec<Heard>,
    /// How many sources were found by the name of their section.
    found: usize,
    channels: Vec<ChannelId>,
    /// Those whose messages are `DataPacket`s.
    data: Vec<ChannelId>,
    /// What is answered before anything else.
    outputs: VecDeque<Output>,
    is_connected: bool,
    has_failed: bool,
    closing: bool,
    /// When the server was last heard.
    alive: Instant,
    /// The time of the last input.
    now: Instant,
}

impl Peer {
    /// Makes the publisher's connection, and its first offer. `cid` names the track.
    ///
    /// # Errors
    /// [`OfferError::Answer`] when this end cannot make a connection.
    pub fn publisher(setup: &Setup<'_>, cid: &str, now: Instant) -> Result<(Peer, String), OfferError> {
        let mut peer = Peer::new(setup, now)?;
        let mut change = peer.rtc.sdp_api();
        let (stream, track) = (Some(STREAM.to_owned()), Some(cid.to_owned()));
        let mid = change.add_media(MediaKind::Audio, Direction::SendOnly, stream, track, None);
        let reliable = change.add_channel_with_config(ChannelConfig {
            label: RELIABLE.to_owned(),
            ..ChannelConfig::default()
        });
        change.add_channel_with_config(ChannelConfig {
            label: LOSSY.to_owned(),
            ordered: false,
            reliability: Reliability::MaxRetransmits { retransmits: 0 },
            ..ChannelConfig::default()
        });
        let (offer, pending) = change
            .apply()
            .ok_or_else(|| OfferError::Answer("there is nothing to offer".to_owned()))?;
        let offer = offer.to_sdp_string();
        peer.layout = Description::read(&offer).layout();
        peer.pending = Some(pending);
        peer.waiting = Some(Vec::new());
        peer.voice = Some(Voice {
            mid,
            pt: None,
            // The upper half stays free: a stream must start with a roll-over counter of 0.
            sequence: setup.seed & 0x7fff,
            timestamp: (setup.seed >> 32) as u32,
            reliable,
            is_open: false,
        });
        Ok((peer, offer))
    }

    /// Makes the subscriber's connection from the server's first offer, and the answer.
    ///
    /// # Errors
    /// [`OfferError`] says what is wrong with the offer.
    pub fn subscriber(
        setup: &Setup<'_>,
        offer: &str,
        mid_to_track: &BTreeMap<String, String>,
        now: Instant,
    ) -> Result<(Peer, String), OfferError> {
        let mut peer = Peer::new(setup, now)?;
        let answer = peer.renegotiate(offer, mid_to_track)?;
        Ok((peer, answer))
    }

    fn new(setup: &Setup<'_>, now: Instant) -> Result<Peer, OfferError> {
        let cert = crypto::certificate().map_err(|error| OfferError::Answer(error.to_string()))?;
        let mut extensions = ExtensionMap::empty();
        extensions.set(1, Extension::AudioLevel);
        extensions.set(4, Extension::RtpMid);
        let config = setup.common.config(cert.clone()).set_extension_map(extensions);
        let mut rtc = config.build(now);
        for address in setup.local {
            match Candidate::host(*address, Protocol::Udp) {
                Ok(candidate) => {
                    rtc.add_local_candidate(candidate);
                }
                Err(error) => log::debug!("an address is no candidate: {error}"),
            }
        }
        Ok(Peer {
            rtc,
            remote: Remote::new(setup.local, setup.local.to_vec(), true),
            early: Early::default(),
            waiting: None,
            pending: None,
            voice: None,
            layout: Vec::new(),
            heard: Vec::new(),
            found: 0,
            channels: Vec::new(),
            data: Vec::new(),
            outputs: VecDeque::new(),
            is_connected: false,
            has_failed: false,
            closing: false,
            alive: now,
            now,
        })
    }

    /// Takes the answer to the publisher's offer. A second answer has no effect.
    ///
    /// # Errors
    /// [`OfferError::Bad`] says what is wrong with the answer; another one may still come.
    pub fn handle_answer(&mut self, answer: &str, now: Instant) -> Result<(), OfferError> {
        let bad = |why: String| OfferError::Bad(format!("the server's answer cannot be used: {why}"));
        self.now = now;
        let prepared = sdp::prepare_room(answer).map_err(|error| bad(error.to_string()))?;
        let description = Description::read(&prepared.sdp);
        description.check(&self.layout, |_| false).map_err(bad)?;
        if description.sections.len() > self.layout.len() {
            return Err(bad("it has more sections than the offer".to_owned()));
        }
        if !description.takes_audio_and_data() {
            return Err(bad("it does not take audio with Opus, and data".to_owned()));
        }
        let parsed = SdpAnswer::from_sdp_string(&prepared.sdp).map_err(|error| bad(error.to_string()))?;
        let Some(pending) = self.pending.take() else {
            log::debug!("answer ignored: there is no offer that it belongs to");
            return Ok(());
        };
        self.rtc
            .sdp_api()
            .accept_answer(pending, parsed)
            .map_err(|error| bad(error.to_string()))?;
        if let Some(voice) = &mut self.voice {
            let media = self.rtc.media(voice.mid);
            voice.pt = media.and_then(|media| media.remote_pts().first().copied());
        }
        let waiting = self.waiting.take().unwrap_or_default();
        for candidate in prepared.candidates.iter().chain(&waiting) {
            self.add_remote_candidate(candidate);
        }
        Ok(())
    }

    /// Answers a further offer of the server.
    ///
    /// # Errors
    /// [`OfferError::Bad`] says what is wrong with the offer; the connection goes on as it was.
    pub fn renegotiate(&mut self, offer: &str, mid_to_track: &BTreeMap<String, String>) -> Result<String, OfferError> {
        let bad = |why: String| OfferError::Bad(format!("the server's offer cannot be answered: {why}"));
        if self.closing || self.has_failed {
            return Err(OfferError::Ended);
        }
        let prepared = sdp::prepare_room(offer).map_err(|error| bad(error.to_string()))?;
        let description = Description::read(&prepared.sdp);
        let is_free = |mid: &str| self.rtc.media(mid.into()).is_some_and(|media| media.disabled());
        description.check(&self.layout, is_free).map_err(bad)?;
        let choice = description.choose(mid_to_track, &self.heard);
        let text = description.write(&choice);
        let parsed = SdpOffer::from_sdp_string(&text).map_err(|error| bad(error.to_string()))?;
        let ufrag = self.local_ufrag();
        let heard: Vec<Heard> = choice.into_iter().flatten().collect();
        self.forget_sources(&heard);
        let answer = self.rtc.sdp_api().accept_offer(parsed);
        let answer = answer.map_err(|error| bad(error.to_string()))?.to_sdp_string();
        self.layout = description.layout();
        self.replace_heard(heard);
        if self.local_ufrag() != ufrag {
            self.remote.handle_restart();
        }
        self.answer_candidates(&prepared);
        Ok(sdp::name_rejected_formats(&answer, &prepared.sdp))
    }

    fn answer_candidates(&mut self, prepared: &PreparedOffer) {
        for candidate in &prepared.candidates {
            self.add_remote_candidate(candidate);
        }
    }

    /// Takes sources away from sections that they no longer speak in: str0m would go on mapping them there.
    fn forget_sources(&mut self, next: &[Heard]) {
        let mut api = self.rtc.direct_api();
        for old in &self.heard {
            let stays = next.iter().find(|new| new.mid == old.mid);
            for source in &old.sources {
                let keeps = stays.is_some_and(|new| match new.is_announced {
                    true => new.sources.contains(source),
                    false => new.track == old.track,
                });
                if !keeps {
                    api.remove_stream_rx(*source);
                }
            }
        }
    }

    fn replace_heard(&mut self, next: Vec<Heard>) {
        let before = std::mem::replace(&mut self.heard, next);
        for old in before {
            if !self.heard.iter().any(|new| new.track == old.track) {
                self.outputs.push_back(Output::TrackGone(old.track));
                continue;
            }
            // A section that announces nothing goes on with the source that was found.
            let mut heard = self.heard.iter_mut();
            let same = heard.find(|new| new.mid == old.mid && new.track == old.track);
            if let Some(new) = same.filter(|new| !new.is_announced) {
                new.sources = old.sources;
            }
        }
    }

    /// Returns this end's ICE user name fragment, by which datagrams find the connection. A restart of ICE changes it.
    pub fn local_ufrag(&mut self) -> String {
        self.rtc.direct_api().local_ice_credentials().ufrag
    }

    /// Adds a candidate of the server, which may come before the answer.
    pub fn add_remote_candidate(&mut self, text: &str) {
        if let Some(waiting) = &mut self.waiting {
            if waiting.len() < REMOTE_CANDIDATES_MAX {
                waiting.push(text.to_owned());
            } else {
                log::debug!("remote candidate ignored: {REMOTE_CANDIDATES_MAX} wait for the answer");
            }
            return;
        }
        if let Ok((_, candidate)) = self.remote.candidate(text) {
            self.rtc.add_remote_candidate(candidate);
        }
    }

    /// Takes a packet of this connection's socket; `false` when it is not the server's.
    pub fn handle_packet(&mut self, packet: &Packet<'_>, now: Instant) -> bool {
        let received = Receive::new(packet.over.into(), packet.source, packet.destination, packet.contents);
        let Ok(receive) = received else {
            return false;
        };
        self.now = now;
        let kind = PacketKind::of(packet.contents);
        let input = Input::Receive(now, receive);
        if !self.rtc.accepts(&input) {
            if self.remote.has_checked_from(packet.source) && !self.rtc.is_connected() {
                self.early.keep(kind, packet);
            }
            return false;
        }
        if !self.remote.admits(kind, packet) {
            return false;
        }
        if let Some((source, _)) = rtp_header(kind, packet.contents)
            && !self.keep_source(source)
        {
            return false;
        }
        self.alive = now;
        if let Err(error) = self.rtc.handle_input(input) {
            log::debug!("datagram refused: {error}");
        }
        if let Some(refusal) = crypto::take_refusal() {
            log::debug!("the handshake failed: {refusal}");
        }
        true
    }

    /// Gives a section back to a source that belongs there, and tells whether the source may be looked at.
    ///
    /// A packet that names the section and another source takes it over before str0m has looked at the packet's tag, and the
    /// true source need not name the section any more: one forged packet would silence a participant.
    fn keep_source(&mut self, source: Ssrc) -> bool {
        let Some(heard) = self.heard.iter().find(|heard| heard.sources.contains(&source)) else {
            return self.found < ROOM_SOURCES_MAX;
        };
        let mid = heard.mid;
        let mut api = self.rtc.direct_api();
        if api.stream_rx(&source).is_some() {
            return true;
        }
        let thief = api.stream_rx_by_mid(mid, None).map(|stream| stream.ssrc());
        if let Some(thief) = thief.filter(|thief| !heard.sources.contains(thief)) {
            api.remove_stream_rx(thief);
        }
        if self.rtc.media(mid).is_some() {
            let mut api = self.rtc.direct_api();
            api.expect_stream_rx(source, None, mid, None).suppress_nack(true);
        }
        true
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if let Err(error) = self.rtc.handle_input(Input::Timeout(now)) {
            log::debug!("timeout: {error}");
        }
        if self.silent_at().is_some_and(|at| now >= at) {
            log::debug!(
                "connection: nothing was heard for {} s",
                ROOM_MEDIA_LOST_AFTER.as_secs()
            );
            self.fail();
        }
    }

    /// Returns when the silence of the server is too long.
    fn silent_at(&self) -> Option<Instant> {
        let watched = self.is_connected && !self.has_failed && !self.closing;
        watched.then(|| self.alive + ROOM_MEDIA_LOST_AFTER)
    }

    /// Gives the connection up.
    fn fail(&mut self) {
        self.rtc.disconnect();
        if !self.has_failed && !self.closing {
            self.outputs.push_back(Output::Failed);
        }
        self.has_failed = true;
    }

    pub fn poll_output(&mut self) -> Output {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output;
            }
            match self.rtc.poll_output() {
                Ok(str0m::Output::Timeout(_)) if self.early.hand_over(&mut self.rtc, self.now) => {}
                Ok(str0m::Output::Timeout(at)) => {
                    return Output::Timeout(self.silent_at().map_or(at, |silent| at.min(silent)));
                }
                Ok(str0m::Output::Transmit(transmit)) => return Output::Transmit(Transmit::new(transmit, false)),
                Ok(str0m::Output::Event(event)) => {
                    if let Some(output) = self.event(event) {
                        return output;
                    }
                }
                // The server said goodbye before SCTP was up, and str0m lost the event over its own farewell.
                Err(RtcError::Sctp(error)) => {
                    log::debug!("closing: {error}");
                    self.fail();
                }
                Err(error) => {
                    log::debug!("connection: {error}");
                    if !self.rtc.is_alive() {
                        self.fail();
                    }
                }
            }
        }
    }

    fn event(&mut self, event: Event) -> Option<Output> {
        match event {
            Event::Connected => {
                self.early.clear();
                self.is_connected = true;
                self.alive = self.now;
                Some(Output::Connected)
            }
            Event::RtpPacket(packet) => self.audio(packet),
            Event::ChannelOpen(id, _) if self.channels.len() == CHANNELS_MAX => {
                log::debug!("channel closed: {CHANNELS_MAX} are open");
                self.rtc.direct_api().close_data_channel(id);
                None
            }
            Event::ChannelOpen(id, label) => {
                self.channels.push(id);
                if label == RELIABLE || label == LOSSY {
                    self.data.push(id);
                }
                let voice = self.voice.as_mut().filter(|voice| voice.reliable == id)?;
                voice.is_open = true;
                Some(Output::ChannelOpen)
            }
            Event::ChannelData(data) if data.binary && self.data.contains(&data.id) => Some(Output::Data(data.data)),
            Event::ChannelData(_) => {
                log::debug!("message ignored: it is no data packet");
                None
            }
            Event::ChannelClose(id) => {
                self.channels.retain(|open| *open != id);
                self.data.retain(|open| *open != id);
                if let Some(voice) = self.voice.as_mut().filter(|voice| voice.reliable == id) {
                    voice.is_open = false;
                }
                None
            }
            Event::Closed => {
                self.fail();
                None
            }
            _ => None,
        }
    }

    /// Finds the track of a packet whose tag was good.
    fn audio(&mut self, packet: RtpPacket) -> Option<Output> {
        let source = packet.header.ssrc;
        let mid = self.rtc.direct_api().stream_rx(&source)?.mid();
        let heard = self.heard.iter_mut().find(|heard| heard.mid == mid)?;
        if !heard.sources.contains(&source) {
            if heard.is_announced {
                // One of another track, from before the section was used again.
                self.rtc.direct_api().remove_stream_rx(source);
                return None;
            }
            heard.sources = vec![source];
            self.found += 1;
        }
        Some(Output::Audio {
            track: heard.track.clone(),
            packet: AudioPacket {
                sequence: *packet.seq_no,
                timestamp: packet.time.numer(),
                payload: packet.payload,
            },
        })
    }

    /// Queues one Opus payload of 20 ms, so many ticks of 48 kHz after the start, with its level in -dBov (0 loudest, 127
    /// silence) and whether it is speech; it leaves with the next [`Peer::handle_timeout`]. Nothing leaves before the
    /// connection is up.
    pub fn send_audio(&mut self, payload: &[u8], ticks: u64, level: u8, speech: bool, now: Instant) {
        let Some(voice) = self.voice.as_mut().filter(|_| self.is_connected) else {
            return;
        };
        let Some(pt) = voice.pt else {
            return;
        };
        let values = ExtensionValues {
            // RFC 6464 has seven bits; str0m counts below zero.
            audio_level: Some(-level.min(127).cast_signed()),
            voice_activity: Some(speech),
            ..ExtensionValues::default()
        };
        // RTP time is modulo 2^32, so the lower half of the ticks is all that counts.
        let timestamp = voice.timestamp.wrapping_add(ticks as u32);
        let write = RtpWrite::new(pt, voice.sequence.into(), timestamp, now, payload).ext_vals(values);
        voice.sequence += 1;
        if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(voice.mid, None) {
            stream.write_rtp(write);
        }
    }

    /// Sends the bytes of one `DataPacket` on the reliable channel; `false` when there is no room, or it is not open.
    pub fn send_data(&mut self, bytes: &[u8]) -> bool {
        let Some(mut channel) = self.open_channel().and_then(|id| self.rtc.channel(id)) else {
            return false;
        };
        match channel.write(true, bytes) {
            Ok(written) => written,
            Err(error) => {
                log::debug!("message dropped: {error}");
                true
            }
        }
    }

    /// Returns how many bytes of data the server has not acknowledged.
    pub fn data_in_flight(&mut self) -> usize {
        let channel = self.open_channel().and_then(|id| self.rtc.channel(id));
        channel.map_or(0, |mut channel| channel.buffered_amount())
    }

    fn open_channel(&self) -> Option<ChannelId> {
        let voice = self.voice.as_ref().filter(|voice| voice.is_open);
        voice.map(|voice| voice.reliable)
    }

    /// Says goodbye on every layer; the goodbye is in the outputs that follow.
    pub fn close(&mut self) {
        self.closing = true;
        if let Err(error) = self.rtc.close() {
            // SCTP is not up yet and cannot take its leave; the server notices the silence.
            log::debug!("closing: {error}");
            self.rtc.disconnect();
        }
    }

    /// Tells whether the connection can still do anything.
    pub fn is_alive(&self) -> bool {
        self.rtc.is_alive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
