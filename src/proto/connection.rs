//! One peer connection: str0m's `Rtc` narrowed to what a talk needs, audio each way and messages.
//!
//! In: descriptions, datagrams, candidates, audio payloads, messages, and `now`. Out, by [`PeerConnection::poll_output`]:
//! datagrams to send, audio payloads with their RTP numbers, messages, and the few events that a session acts on. Every input
//! is followed by a drain of `poll_output` up to [`Output::Timeout`]. ICE, STUN, DTLS, RTP and SCTP stay in str0m.
//!
//! The other end is a browser, a microcontroller, the server of a call, or a media-room server (SFU); a [`Config`] says in
//! what they differ. `client` and `sfu` negotiate; `paths` knows where the other end is, `sources` whose audio comes,
//! `sender` what audio leaves, `channels` the messages. Nobody's address is believed before it has answered a check of this
//! end alone ([`Output::Proven`]). Sources: RFC 8829, RFC 8445, RFC 7587, RFC 8831.

mod channels;
mod checks;
mod client;
mod config;
mod consent;
mod credentials;
mod early;
mod keys;
mod last_flight;
mod last_record;
mod output;
mod packet;
mod paths;
mod remote;
mod sender;
pub(crate) mod sfu;
mod sources;
mod unheard;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use str0m::error::IceError;
use str0m::media::{MediaKind, Mid, Pt};
use str0m::net::Receive;
use str0m::rtp::RtpPacket;
use str0m::{Candidate, Event, IceConnectionState, Input, Rtc, RtcError};

pub use self::channels::Channel;
use self::channels::Channels;
use self::client::ClientTerms;
pub use self::client::DeviceOffer;
use self::config::Config;
pub use self::config::{Common, Setup};
use self::credentials::Credentials;
pub use self::credentials::IceSecret;
use self::early::Early;
use self::keys::Keys;
use self::last_flight::LastFlight;
use self::last_record::LastRecord;
pub use self::output::{AudioPacket, OfferError, Output, Proven};
use self::packet::rtp_header;
pub use self::packet::{Over, Packet, Sender, Transmit};
use self::paths::Paths;
use self::remote::Remote;
pub use self::sender::AudioLevel;
use self::sender::RtpSender;
pub use self::sfu::SfuSetup;
use self::sfu::SfuTerms;
use self::sources::{AudioSources, Talkers};
use self::unheard::Unheard;
use crate::audio::codec::Codec;
use crate::crypto;
use crate::packet_kind::PacketKind;
use crate::why::Tried;

/// One peer connection.
pub struct PeerConnection {
    rtc: Rtc,
    config: Config,
    credentials: Option<Credentials>,
    paths: Paths,
    early: Early,
    record: LastRecord,
    /// Of a device, until the connection is up.
    last_flight: LastFlight,
    tried: Tried,
    sources: AudioSources,
    sender: RtpSender,
    /// The payload type of the telephone's keys, and what was pressed.
    keys: Option<(Pt, Keys)>,
    unheard: Unheard,
    channels: Channels,
    client: ClientTerms,
    sfu: SfuTerms,
    /// What is answered before anything else.
    outputs: VecDeque<Output>,
    is_connected: bool,
    /// The other end has left, or the connection broke, and that was told.
    is_over: bool,
    closing: bool,
    /// When the other end was last heard.
    heard_at: Instant,
    /// The time of the last input.
    now: Instant,
}

/// The addresses of this end.
struct Local<'a> {
    /// The host candidates.
    offered: &'a [SocketAddr],
    /// All under which it is reached, offered or not.
    own: Vec<SocketAddr>,
    /// The UDP port of this runner.
    port: u16,
}

impl PeerConnection {
    fn new(config: Config, local: Local<'_>, now: Instant) -> Result<PeerConnection, OfferError> {
        let cert = crypto::certificate().map_err(|error| OfferError::Answer(error.to_string()))?;
        let mut rtc = config.rtc(cert.clone());
        let mut credentials = config.secret.map(Credentials::new);
        if let Some(credentials) = &mut credentials {
            rtc = rtc.set_local_ice_credentials(credentials.next());
        }
        let remote = Remote::new(local.offered, local.own, config.named_by_operator);
        Ok(PeerConnection {
            rtc: rtc.build(now),
            credentials,
            paths: Paths::new(remote, crypto::provider().sha1_hmac_provider),
            early: Early::default(),
            record: LastRecord::default(),
            last_flight: LastFlight::default(),
            tried: Tried::new(local.port),
            sources: AudioSources::new(config.talkers, config.takes_any_source),
            sender: RtpSender::new(config.seed),
            keys: None,
            unheard: Unheard::default(),
            channels: Channels::new(config.messages),
            client: ClientTerms::default(),
            sfu: SfuTerms::default(),
            outputs: VecDeque::new(),
            is_connected: false,
            is_over: false,
            closing: false,
            heard_at: now,
            now,
            config,
        })
    }

    fn add_local_candidates(&mut self, candidates: impl Iterator<Item = Result<Candidate, IceError>>) {
        for candidate in candidates {
            match candidate {
                Ok(candidate) => {
                    self.rtc.add_local_candidate(candidate);
                }
                Err(error) => log::debug!("an address is no candidate: {error}"),
            }
        }
    }

    /// Adds a candidate of the peer; one that cannot be used is ignored, since the peer's own checks tell its address. That of
    /// a media-room server may come before its answer.
    pub fn add_remote_candidate(&mut self, text: &str) {
        if self.sfu.keep_candidate(text) {
            return;
        }
        match self.paths.candidate(text) {
            Ok((usable, candidate)) => {
                self.tried.handle_candidate(usable.kind, usable.addr);
                self.rtc.add_remote_candidate(candidate);
            }
            Err(Some(ignored)) => self.tried.handle_ignored(ignored),
            Err(None) => {}
        }
    }

    /// Takes a packet. One that is not this connection's, or not readable, has no effect.
    pub fn handle_packet(&mut self, packet: &Packet<'_>, now: Instant) -> Sender {
        let &Packet {
            over,
            source,
            destination,
            contents,
        } = packet;
        let Ok(receive) = Receive::new(over.into(), source, destination, contents) else {
            self.tried.handle_unreadable(contents);
            return Sender::Stranger;
        };
        self.now = now;
        let kind = PacketKind::of(contents);
        if self.paths.is_answer(kind, packet) {
            return match self.paths.handle_answer(packet) {
                true => Sender::Peer,
                false => Sender::Stranger,
            };
        }
        let input = Input::Receive(now, receive);
        let accepted = self.rtc.accepts(&input);
        self.tried.handle_incoming(source, destination, kind, accepted);
        if !accepted {
            if self.paths.has_checked_from(source) && !self.rtc.is_connected() {
                self.early.keep(kind, packet);
            }
            return Sender::Stranger;
        }
        let signed = kind.is_stun() && self.is_signed(packet);
        if signed {
            self.paths.handle_signed(kind, packet);
        }
        if !self.paths.admits(kind, packet) {
            return Sender::Stranger;
        }
        self.record.handle_incoming(kind);
        if !self.tried.is_secured() {
            self.last_flight.handle_incoming(kind, contents);
        }
        let header = rtp_header(kind, contents);
        if let Some((source, payload_type)) = header {
            let is_negotiated = self.is_negotiated(payload_type.into());
            if !self.sources.admit(&mut self.rtc, source, is_negotiated) {
                return Sender::Stranger;
            }
        }
        self.heard_at = now;
        if let Err(error) = self.rtc.handle_input(input) {
            log::debug!("datagram refused: {error}");
        }
        if let Some((_, payload_type)) = header.filter(|_| self.rtc.is_connected()) {
            self.unheard.handle_packet(payload_type, now);
        }
        self.note_refusal();
        if signed { Sender::Peer } else { Sender::Unproven }
    }

    /// Tells whether the peer has signed a STUN message. Asked in the name of an unused address,
    /// str0m looks at the signature; it takes whatever says to come from the address that it sends
    /// to.
    fn is_signed(&self, packet: &Packet<'_>) -> bool {
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let receive = Receive::new(packet.over.into(), nobody, packet.destination, packet.contents);
        receive.is_ok_and(|receive| self.rtc.accepts(&Input::Receive(self.now, receive)))
    }

    /// Tells whether packets of this payload type are audio or keys of the call.
    fn is_negotiated(&self, payload_type: Pt) -> bool {
        let keys = self.keys.as_ref().map(|(keys, _)| *keys);
        [self.sender.payload_type(), keys].contains(&Some(payload_type))
    }

    /// Keeps the reason that DTLS refused the last datagram for, if it did.
    fn note_refusal(&mut self) {
        if let Some(refusal) = crypto::take_refusal() {
            log::debug!("the handshake failed: {refusal}");
            self.tried.handle_refusal(refusal);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.config.talkers == Talkers::One {
            let expected = self.sender.payload_type().map(|payload_type| *payload_type);
            if let Some(words) = self.unheard.poll_words(expected, now) {
                log::warn!("{words}");
            }
        }
        if let Err(error) = self.rtc.handle_input(Input::Timeout(now)) {
            log::debug!("timeout: {error}");
        }
        if self.lost_at().is_some_and(|at| now >= at) {
            let silence = now.saturating_duration_since(self.heard_at);
            log::debug!("connection: nothing was heard for {} s", silence.as_secs());
            self.rtc.disconnect();
            let failed = self.over(Output::Failed);
            self.outputs.extend(failed);
        }
    }

    /// Returns when the silence of the other end is too long.
    fn lost_at(&self) -> Option<Instant> {
        let lost_after = self.config.lost_after?;
        let watched = self.is_connected && !self.is_over && !self.closing;
        watched.then(|| self.heard_at + lost_after)
    }

    /// The other end is gone; that is told once, unless this end has said goodbye.
    fn over(&mut self, output: Output) -> Option<Output> {
        let told = std::mem::replace(&mut self.is_over, true) || self.closing;
        (!told).then_some(output)
    }

    /// Returns the next thing to do.
    pub fn poll_output(&mut self) -> Output {
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        if let Some(proven) = self.paths.take_proven() {
            return Output::Proven(proven);
        }
        if let Some(check) = self.paths.take_check() {
            return Output::Transmit(check);
        }
        if let Some(record) = self.record.take_due(self.now) {
            return Output::Transmit(record);
        }
        loop {
            match self.rtc.poll_output() {
                Ok(str0m::Output::Timeout(_)) if self.early.hand_over(&mut self.rtc, self.now) => self.note_refusal(),
                Ok(str0m::Output::Timeout(at)) => {
                    self.sources.drop_claimed(&mut self.rtc);
                    return Output::Timeout(self.lost_at().map_or(at, |lost| at.min(lost)));
                }
                Ok(str0m::Output::Transmit(transmit)) => return Output::Transmit(self.transmit(transmit)),
                Ok(str0m::Output::Event(event)) => {
                    if let Some(output) = self.event(event) {
                        return output;
                    }
                }
                Err(error) => {
                    if let Some(output) = self.handle_error(error) {
                        return output;
                    }
                }
            }
        }
    }

    fn transmit(&mut self, transmit: str0m::net::Transmit) -> Transmit {
        let mut transmit = Transmit::new(transmit, self.config.is_bare);
        self.tried
            .handle_outgoing(transmit.source, transmit.destination, transmit.kind());
        self.paths.handle_outgoing(&mut transmit);
        self.record.handle_outgoing(&mut transmit, self.now);
        if self.config.is_device && !self.tried.is_secured() {
            self.last_flight.handle_outgoing(&mut transmit);
        }
        transmit
    }

    fn handle_error(&mut self, error: RtcError) -> Option<Output> {
        match error {
            // The peer said goodbye before SCTP was up, and str0m lost the event over its own farewell.
            RtcError::Sctp(error) => {
                log::debug!("closing: {error}");
                self.rtc.disconnect();
                self.over(Output::Left)
            }
            error => {
                log::debug!("connection: {error}");
                if let RtcError::RemoteSdp(_) = error {
                    self.tried.handle_refusal(crypto::Refusal::Fingerprint);
                }
                if self.rtc.is_alive() {
                    return None;
                }
                self.over(Output::Failed)
            }
        }
    }

    fn event(&mut self, event: Event) -> Option<Output> {
        match event {
            Event::IceConnectionStateChange(IceConnectionState::Connected | IceConnectionState::Completed) => {
                self.tried.handle_ice_up();
                None
            }
            Event::Connected => {
                self.tried.handle_secured();
                self.early.clear();
                self.is_connected = true;
                self.heard_at = self.now;
                Some(Output::Connected)
            }
            Event::MediaAdded(added) if added.kind == MediaKind::Audio => {
                self.handle_media(added.mid);
                None
            }
            Event::RtpPacket(packet) => self.audio(packet),
            Event::ChannelOpen(id, label) => {
                let is_open = self.channels.handle_open(&mut self.rtc, id, &label);
                is_open.then_some(Output::ChannelOpen)
            }
            Event::ChannelData(data) => self.channels.read(data),
            Event::ChannelClose(id) => match self.channels.handle_close(id) {
                true => self.over(Output::Left),
                false => None,
            },
            Event::Closed => {
                if !self.config.answers_goodbye {
                    self.rtc.disconnect();
                }
                self.over(Output::Left)
            }
            _ => None,
        }
    }

    /// A section of audio was negotiated.
    fn handle_media(&mut self, mid: Mid) {
        let media = self.rtc.media(mid);
        let payload_type = media.and_then(|media| media.remote_pts().first().copied());
        if payload_type.is_some() && self.sources.handle_media(&mut self.rtc, mid) {
            self.sender.bind(mid, payload_type);
        }
    }

    /// Takes a packet whose tag was good.
    fn audio(&mut self, packet: RtpPacket) -> Option<Output> {
        let (source, payload_type) = (packet.header.ssrc, packet.header.payload_type);
        self.sources.confirm(source);
        if let Some((_, keys)) = self.keys.as_mut().filter(|(keys, _)| *keys == payload_type) {
            let key = keys.handle_packet(packet.header.timestamp, &packet.payload);
            return key.map(Output::Key);
        }
        if self.config.talkers == Talkers::One && self.sender.payload_type() != Some(payload_type) {
            return None;
        }
        let section = self.sources.section(&mut self.rtc, source)?;
        let track = section.track.clone();
        self.unheard.handle_used();
        Some(Output::Audio {
            track,
            packet: AudioPacket {
                sequence: *packet.seq_no,
                timestamp: packet.time.numer(),
                payload: packet.payload,
            },
        })
    }

    /// Queues one payload of 20 ms, at so many ticks of the codec's clock after the start; it leaves with the next
    /// [`PeerConnection::handle_timeout`]. Nothing leaves before the connection is up.
    pub fn send_audio(&mut self, payload: &[u8], ticks: u64, level: Option<AudioLevel>, now: Instant) {
        if self.is_connected {
            self.sender.send(&mut self.rtc, payload, ticks, level, now);
        }
    }

    /// Sends a message; `false` when there is no channel, or no room in it now.
    pub fn send_message(&mut self, message: impl AsRef<[u8]>) -> bool {
        self.channels.send(&mut self.rtc, message.as_ref())
    }

    /// Returns how many bytes of messages the peer has not acknowledged.
    pub fn messages_in_flight(&mut self) -> usize {
        self.channels.in_flight(&mut self.rtc)
    }

    /// Asks the peer whether it is there, beside the checks that str0m makes in its own time. Tells
    /// whether it can be asked; the check is in the outputs that follow.
    pub fn ask(&mut self) -> bool {
        self.paths.ask()
    }

    /// The peer is there again after an outage: if it has not acknowledged all messages, the last
    /// DTLS record leaves once more, unless one has come since.
    pub fn repeat_record(&mut self, now: Instant) {
        if self.messages_in_flight() > 0 {
            self.record.repeat(now);
        }
    }

    /// Says goodbye on every layer; the goodbye is in the outputs that follow.
    pub fn close(&mut self) {
        self.closing = true;
        if let Err(error) = self.rtc.close() {
            // SCTP is not up yet and cannot take its leave; the peer notices the silence.
            log::debug!("closing: {error}");
            self.rtc.disconnect();
        }
    }

    /// Returns the codec that is spoken both ways. A further offer does not change it.
    pub fn codec(&self) -> Codec {
        self.config.spoken.codec
    }

    /// Tells whether the other end is a microcontroller.
    pub fn is_device(&self) -> bool {
        self.config.is_device
    }

    /// Returns this end's ICE user name fragment, by which datagrams find the connection. A restart of ICE changes it.
    pub fn local_ufrag(&mut self) -> String {
        self.rtc.direct_api().local_ice_credentials().ufrag
    }

    /// Returns the address and port that the peer was last proven to have.
    pub fn address(&self) -> Option<SocketAddr> {
        self.paths.address()
    }

    /// Returns the address that the peer has in its own network, if its offer names one.
    pub fn host(&self) -> Option<IpAddr> {
        self.client.host
    }

    /// Returns the kind of the client's channel for messages.
    pub fn channel(&self) -> Option<Channel> {
        self.channels.main()
    }

    /// Tells whether the client's offer has a data channel.
    pub fn offers_channel(&self) -> bool {
        self.client.offers_channel
    }

    /// Tells whether the client has opened a channel for messages.
    pub fn has_channel(&self) -> bool {
        self.channel().is_some()
    }

    /// Returns what was tried to connect.
    pub fn tried(&self) -> &Tried {
        &self.tried
    }

    /// Tells whether the connection can still do anything.
    pub fn is_alive(&self) -> bool {
        self.rtc.is_alive()
    }

    /// Tells whether the log says that no packet of sound could be used.
    #[cfg(test)]
    pub fn told_deaf(&self) -> bool {
        self.unheard.is_told()
    }

    /// Counts so many packets as sent.
    #[cfg(test)]
    pub fn leap(&mut self, packets: u64) {
        self.sender.leap(packets);
    }
}

#[cfg(test)]
mod tests;
