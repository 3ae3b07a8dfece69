//! One peer connection: str0m's `Rtc` narrowed to what a talk needs, one audio stream each way and text messages.
//!
//! In: the offer, datagrams, candidates, audio payloads, texts, and `now`. Out, by [`PeerConnection::poll_output`]: datagrams to send,
//! audio payloads with their RTP numbers, texts, and the few events that a session acts on. Every input is followed by a
//! drain of `poll_output` up to [`Output::Timeout`]. A connection speaks one codec: Opus where the offer has it, else G.711.
//! ICE, STUN, DTLS, RTP and SCTP stay in str0m.
//! A peer's address is proven by its answer to a check of this end alone ([`Output::Proven`]).
//! Microcontrollers get what the embedded fact sheet asks for, with `--embedded` and without: one candidate, SCTP with the
//! device's faults made up for, no header extension in any packet, an answer that fits their buffers.
//! Sources: RFC 8829, RFC 8445, RFC 7587, RFC 8831.

pub(crate) mod checks;
mod consent;
mod credentials;
pub(crate) mod early;
mod keys;
mod last_flight;
mod last_record;
pub(crate) mod packet;
pub(crate) mod remote;
mod unheard;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use str0m::change::SdpOffer;
use str0m::channel::ChannelId;

use str0m::crypto::CryptoProvider;
use str0m::crypto::dtls::DtlsCert;
use str0m::error::IceError;
use str0m::format::FormatParams;
use str0m::media::{Frequency, MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive, TcpType};
use str0m::rtp::{Extension, ExtensionMap, RtpWrite, Ssrc};
use str0m::{Candidate, Event, IceConnectionState, Input, Rtc, RtcConfig, RtcError};

use self::checks::{Checks, Maker};
use self::consent::{Consent, Way};
use self::credentials::Credentials;
pub use self::credentials::IceSecret;
use self::early::Early;
use self::keys::Keys;
use self::last_flight::LastFlight;
use self::last_record::LastRecord;
use self::packet::rtp_header;
pub use self::packet::{Over, Packet, Sender, Transmit};
use self::remote::Remote;
use self::unheard::Unheard;
use crate::audio::codec::Codec;
use crate::audio::g711::Law;
use crate::audio::opus::EncoderSettings;
use crate::candidate::{self, DeviceAddress};
use crate::crypto;
use crate::gather::Gathered;
use crate::limits::{AUDIO_SOURCES_MAX, CHANNELS_MAX, MESSAGE_BYTES_MAX, SCTP_BUFFER_BYTES_MAX};
use crate::packet_kind::PacketKind;
use crate::sdp::{self, DeviceAnswerError, Family, PreparedOffer, Spoken};
use crate::whip::events;
use crate::why::Tried;

/// What every connection of this runner shares.
pub struct Common {
    provider: Arc<CryptoProvider>,
    /// For clients that offer no header extension.
    bare_provider: Arc<CryptoProvider>,
    embedded_provider: Arc<CryptoProvider>,
    /// How what the bots say is encoded.
    pub voice: EncoderSettings,
}

impl Common {
    pub fn new(voice: EncoderSettings) -> Self {
        Common {
            provider: Arc::new(crypto::provider()),
            bare_provider: Arc::new(crypto::bare_provider()),
            embedded_provider: Arc::new(crypto::embedded_provider()),
            voice,
        }
    }

    /// Returns how many connections hold a provider.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        let providers = [&self.provider, &self.bare_provider, &self.embedded_provider];
        providers.map(|provider| Arc::strong_count(provider) - 1).iter().sum()
    }

    /// Returns the settings of a connection whose other end is no microcontroller.
    pub(crate) fn config(&self, cert: DtlsCert) -> RtcConfig {
        base_config(self.provider.clone(), cert).enable_opus(true, false)
    }

    /// Makes a connection that goes nowhere: the self-tests of DTLS run once per process, and take longer than an answer.
    pub fn warm_up(&self, now: Instant) {
        if let Ok(cert) = crypto::certificate() {
            drop(self.config(cert.clone()).build(now));
        }
    }
}

/// What every connection has in common.
fn base_config(provider: Arc<CryptoProvider>, cert: DtlsCert) -> RtcConfig {
    Rtc::builder()
        .set_crypto_provider(provider)
        .set_dtls_cert(cert)
        .set_rtp_mode(true)
        .clear_codecs()
        .set_sctp_max_message_size(MESSAGE_BYTES_MAX as u32)
        .set_sctp_max_buffered_amount(SCTP_BUFFER_BYTES_MAX)
        // Audio is never sent again, and a late packet is worth nothing: small buffers.
        .set_send_buffer_audio(8)
        .set_reordering_size_audio(1)
}

impl Default for Common {
    fn default() -> Self {
        Common::new(EncoderSettings::default())
    }
}

/// What one connection is made from, beside its offer.
pub struct Setup<'a> {
    pub common: &'a Common,
    /// Host candidates to offer, each with the port of the runner's UDP socket.
    pub local: &'a [SocketAddr],
    /// Addresses at which the HTTP server listens, for callers whose network lets no UDP through.
    pub tcp: &'a [SocketAddr],
    /// What STUN and TURN servers gave beside them.
    pub gathered: &'a Gathered,
    /// The one address that clients of an embedded runner are offered.
    pub embedded: Option<Ipv4Addr>,
    /// The one address that microcontrollers are offered; nothing when there is no IPv4 address.
    pub device: Option<DeviceAddress>,
    /// Random bits: where sequence numbers and timestamps start.
    pub seed: u64,
    /// More of them, which are not reported.
    pub secret: IceSecret,
}

/// Takes a codec, and G.711 by the payload type that the offer has for it.
fn with_codec(mut config: RtcConfig, spoken: Spoken) -> RtcConfig {
    let law = match spoken.codec {
        Codec::Opus => return config.enable_opus(true, false),
        Codec::G711(Law::Mu) => str0m::format::Codec::PCMU,
        Codec::G711(Law::A) => str0m::format::Codec::PCMA,
    };
    let clock = Frequency::EIGHT_KHZ;
    let codecs = config.codec_config();
    codecs.add_config(
        spoken.payload_type.into(),
        None,
        law,
        clock,
        None,
        FormatParams::default(),
    );
    config
}

/// One payload of the peer's audio.
pub struct AudioPacket {
    /// Extended RTP sequence number.
    pub sequence: u64,
    /// Extended RTP timestamp, by the clock of the codec.
    pub timestamp: u64,
    pub payload: Arc<[u8]>,
}

/// What a connection answers to an input.
pub enum Output {
    /// Nothing more; the connection wants [`PeerConnection::handle_timeout`] at this time.
    Timeout(Instant),
    Transmit(Transmit),
    /// The peer has answered a check of this end, and so has what is sent to this address.
    Proven(Proven),
    /// ICE and DTLS are up: audio flows.
    Connected,
    Audio(AudioPacket),
    /// A key of the telephone was pressed.
    Key(char),
    /// The client's message channel is open.
    ChannelOpen,
    Message(String),
    /// The peer left in good order.
    Left,
    /// The connection broke.
    Failed,
}

/// The way on which a peer answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proven {
    pub over: Over,
    /// Where the answer came to.
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// Why an offer was not answered.
#[derive(Debug, PartialEq, Eq)]
pub enum OfferError {
    /// The offer's own fault, in words for its sender.
    Bad(String),
    /// No address of this machine can be offered to a device; names the address wanted and those that exist.
    NoCandidate(String),
    /// The answer does not fit what the device takes.
    TooLong(String),
    /// This end could make no answer.
    Answer(String),
    /// The session is ending.
    Ended,
}

impl fmt::Display for OfferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OfferError::Bad(why)
            | OfferError::NoCandidate(why)
            | OfferError::TooLong(why)
            | OfferError::Answer(why) => f.write_str(why),
            OfferError::Ended => f.write_str("the session is ending"),
        }
    }
}

/// What tells microcontrollers apart before they are heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOffer {
    /// The address that it has in its own network, if the offer names one.
    pub host: Option<IpAddr>,
}

impl DeviceOffer {
    /// Reads an offer; `None` if it is no microcontroller's.
    pub fn read(offer: &str) -> Option<DeviceOffer> {
        let prepared = prepare(offer).ok()?;
        prepared.family.is_device().then(|| DeviceOffer {
            host: candidate::own_address(&prepared.candidates),
        })
    }
}

/// One peer connection.
pub struct PeerConnection {
    rtc: Rtc,
    codec: Codec,
    embedded: Option<Ipv4Addr>,
    family: Family,
    /// The one address that a device was told.
    device_address: Option<Ipv4Addr>,
    /// Packets leave without the empty header extension that str0m writes.
    bare: bool,
    /// The other end is the server of a call.
    call: bool,
    remote: Remote,
    /// The peer's address in its own network, as its offer has it.
    host: Option<IpAddr>,
    credentials: Credentials,
    /// The user name fragment that str0m chose at the last restart of ICE, and that its candidates
    /// go on to tell.
    replaced_ufrag: Option<String>,
    checks: Checks,
    consent: Consent,
    /// A check of this end's own that has to leave.
    check: Option<Transmit>,
    record: LastRecord,
    /// Of a device, until the connection is up.
    last_flight: LastFlight,
    proven: Option<Proven>,
    audio: Option<(Mid, Pt)>,
    /// The payload type of the telephone's keys, and what was pressed.
    keys: Option<(Pt, Keys)>,
    /// The source of the packets of `audio` that last had a good tag; before any had, the one that
    /// the offer names.
    voice: Option<Ssrc>,
    /// How often that changed.
    voices: usize,
    /// A source that no offer named, until the tag of its packet is judged.
    claimed: Option<Ssrc>,
    /// The one audio section takes packets of sources that it does not name.
    takes_any_source: bool,
    unheard: Unheard,
    channels: Vec<ChannelId>,
    channel: Option<Messages>,
    offers_channel: bool,
    sequence: u64,
    /// RTP timestamp at tick 0.
    timestamp: u32,
    closing: bool,
    early: Early,
    tried: Tried,
    /// The time of the last input.
    now: Instant,
}

/// The data channel that messages go to: the first that the client opens, or the one called `chat`.
struct Messages {
    id: ChannelId,
    kind: Channel,
}

/// What the name of a channel says of who opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// `chat`.
    Chat,
    /// `rtvi-ai`.
    Rtvi,
    /// That of a realtime service's clients.
    Events,
    Other,
}

impl Channel {
    fn of(label: &str) -> Self {
        match label {
            "chat" => Channel::Chat,
            "rtvi-ai" => Channel::Rtvi,
            events::LABEL => Channel::Events,
            _ => Channel::Other,
        }
    }
}

impl PeerConnection {
    /// Makes the connection that answers `offer`, and the answer's SDP.
    ///
    /// # Errors
    /// [`OfferError`] says whose fault it is.
    pub fn accept(offer: &str, setup: &Setup<'_>, now: Instant) -> Result<(PeerConnection, String), OfferError> {
        PeerConnection::answer(&prepare(offer)?, false, setup, now)
    }

    /// Makes the connection that answers the offer of a call, and the answer's SDP. This end checks, and begins the handshake.
    ///
    /// # Errors
    /// [`OfferError`] says whose fault it is.
    pub fn accept_call(offer: &str, setup: &Setup<'_>, now: Instant) -> Result<(PeerConnection, String), OfferError> {
        let prepared = sdp::prepare_call(offer).map_err(|error| OfferError::Bad(error.to_string()))?;
        if prepared.spoken.is_none_or(|spoken| spoken.codec != Codec::Opus) {
            return Err(OfferError::Bad("the offer of a call has no Opus".to_owned()));
        }
        PeerConnection::answer(&prepared, true, setup, now)
    }

    fn answer(
        prepared: &PreparedOffer,
        call: bool,
        setup: &Setup<'_>,
        now: Instant,
    ) -> Result<(PeerConnection, String), OfferError> {
        let spoken = prepared.spoken.ok_or_else(nothing_spoken)?;
        let device = prepared.family.is_device();
        let device_address = if device { Some(address_for_device(setup)?) } else { None };
        let local = local(setup, device_address);
        // Whoever offers no header extension may read the media from byte 12: small stacks do. To
        // others it makes no difference, since only the empty block is left out. The keys are the
        // same, and so is the protection of whichever profile the handshake chooses.
        let bare = device || call || !prepared.has_extensions;
        let cert = crypto::certificate().map_err(|error| OfferError::Answer(error.to_string()))?;
        let provider = match (device, bare) {
            (true, _) => &setup.common.embedded_provider,
            (false, true) => &setup.common.bare_provider,
            (false, false) => &setup.common.provider,
        };
        let mut credentials = Credentials::new(setup.secret);
        let mut config = with_codec(base_config(provider.clone(), cert.clone()), spoken)
            .set_extension_map(extensions(bare))
            .set_local_ice_credentials(credentials.next());
        if call {
            config.codec_config().add_config(
                KEYS_PT.into(),
                None,
                str0m::format::Codec::Tele,
                Frequency::EIGHT_KHZ,
                None,
                FormatParams::default(),
            );
        }
        let mut peer = PeerConnection {
            rtc: config.build(now),
            codec: spoken.codec,
            embedded: setup.embedded,
            family: prepared.family,
            device_address,
            bare,
            call,
            remote: Remote::new(&local, own(setup, &local), false),
            host: candidate::own_address(&prepared.candidates),
            credentials,
            replaced_ufrag: None,
            checks: Checks::default(),
            consent: Consent::new(setup.common.provider.sha1_hmac_provider),
            check: None,
            record: LastRecord::default(),
            last_flight: LastFlight::default(),
            proven: None,
            audio: None,
            keys: None,
            voice: None,
            voices: 0,
            claimed: None,
            takes_any_source: prepared.audio_sections == 1,
            unheard: Unheard::default(),
            channels: Vec::new(),
            channel: None,
            offers_channel: prepared.has_application,
            // The upper half stays free: a stream must start with a roll-over counter of 0.
            sequence: setup.seed & 0x7fff,
            timestamp: (setup.seed >> 32) as u32,
            closing: false,
            early: Early::default(),
            tried: Tried::new(setup.local.first().map_or(0, SocketAddr::port)),
            now,
        };
        for candidate in candidates(setup, &local, device) {
            match candidate {
                Ok(candidate) => {
                    peer.rtc.add_local_candidate(candidate);
                }
                Err(error) => log::debug!("an address is no candidate: {error}"),
            }
        }
        if device && prepared.has_application {
            // Whichever end opens the association on the wire, `proto::sctp` knows one role of str0m.
            peer.rtc.direct_api().start_sctp(true);
        }
        let answer = peer.negotiate(prepared)?;
        Ok((peer, answer))
    }

    /// Answers a further offer on the same connection.
    ///
    /// # Errors
    /// [`OfferError`]; the connection goes on as it was.
    pub fn renegotiate(&mut self, offer: &str) -> Result<String, OfferError> {
        let prepared = prepare(offer)?;
        self.negotiate(&prepared)
    }

    /// Takes over from a connection that the client has thrown away.
    pub fn follow(&mut self, former: PeerConnection) {
        self.remote.follow(former.remote);
    }

    fn negotiate(&mut self, prepared: &PreparedOffer) -> Result<String, OfferError> {
        let ufrag = self.local_ufrag();
        let offer = SdpOffer::from_sdp_string(&prepared.sdp)
            .map_err(|error| OfferError::Bad(format!("the offer's SDP cannot be read: {error}")))?;
        let mut answer = self
            .rtc
            .sdp_api()
            .accept_offer(offer)
            .map_err(|error| OfferError::Bad(format!("the offer cannot be answered: {error}")))?
            .to_sdp_string();
        self.consent.handle_description(&prepared.sdp);
        // A later offer may stop its audio; a talk cannot begin without.
        if self.audio.is_none() && !has_audio(&answer) {
            return Err(nothing_spoken());
        }
        if self.local_ufrag() != ufrag {
            self.remote.handle_restart();
            self.consent.handle_restart();
            answer = self.replace_credentials(&answer);
        }
        if let Some(replaced) = &self.replaced_ufrag {
            answer = answer.replace(replaced, &self.rtc.direct_api().local_ice_credentials().ufrag);
        }
        for line in &prepared.candidates {
            self.add_remote_candidate(line);
        }
        if self.call {
            let answer = sdp::write_call_answer(&answer);
            self.keys = answer.keys.map(|pt| (pt.into(), Keys::default()));
            return Ok(answer.sdp);
        }
        let mut answer = sdp::write_declined(&answer, &prepared.sdp);
        for (ours, theirs) in &prepared.opus_spellings {
            answer = answer.replace(&format!("a={ours}\r\n"), &format!("a={theirs}\r\n"));
        }
        match (self.device_address, self.embedded) {
            (Some(address), _) => sdp::rewrite_answer_for_device(&answer, address, prepared.role),
            (None, Some(host)) => sdp::keep_only_host_candidate(&answer, host),
            (None, None) => Ok(answer),
        }
        .map_err(|error| match error {
            DeviceAnswerError::NoCandidate { .. } => OfferError::NoCandidate(error.to_string()),
            DeviceAnswerError::NoCodec | DeviceAnswerError::Setup(_) => OfferError::Bad(error.to_string()),
            DeviceAnswerError::LongLine { .. } | DeviceAnswerError::LongBody { .. } => {
                OfferError::TooLong(error.to_string())
            }
            other => OfferError::Answer(other.to_string()),
        })
    }

    /// Puts credentials in place of those that str0m has made for a restart of ICE; see
    /// [`credentials`].
    fn replace_credentials(&mut self, answer: &str) -> String {
        let mut api = self.rtc.direct_api();
        let made = api.local_ice_credentials();
        let ours = self.credentials.next();
        let answer = answer.replace(&made.pass, &ours.pass);
        api.set_local_ice_credentials(ours);
        self.replaced_ufrag = Some(made.ufrag);
        answer
    }

    /// Adds a candidate of the peer; one that cannot be used is ignored, since the peer's own checks tell its address.
    pub fn add_remote_candidate(&mut self, text: &str) {
        match self.remote.candidate(text) {
            Ok((usable, candidate)) => {
                self.tried.handle_candidate(usable.kind, usable.addr);
                self.rtc.add_remote_candidate(candidate);
            }
            Err(Some(ignored)) => self.tried.handle_ignored(ignored),
            Err(None) => {}
        }
    }

    /// Returns the codec that is spoken both ways. A further offer does not change it.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Tells whether the log says that no packet of sound could be used.
    #[cfg(test)]
    pub fn told_deaf(&self) -> bool {
        self.unheard.is_told()
    }

    /// Tells whether the other end is a microcontroller.
    pub fn is_device(&self) -> bool {
        self.family.is_device()
    }

    /// Returns this end's ICE user name fragment, by which datagrams find the connection. A restart of ICE changes it.
    pub fn local_ufrag(&mut self) -> String {
        self.rtc.direct_api().local_ice_credentials().ufrag
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
        if self.checks.answered(kind, packet) == Some(Maker::Consent) {
            return self.handle_answer(packet);
        }
        let input = Input::Receive(now, receive);
        let accepted = self.rtc.accepts(&input);
        self.tried.handle_incoming(source, destination, kind, accepted);
        if !accepted {
            if self.remote.has_checked_from(source) && !self.rtc.is_connected() {
                self.early.keep(kind, packet);
            }
            return Sender::Stranger;
        }
        let signed = kind.is_stun() && self.is_signed(packet);
        if signed {
            self.handle_proof(kind, packet);
        }
        if !self.remote.admits(kind, packet) {
            return Sender::Stranger;
        }
        self.record.handle_incoming(kind);
        if !self.tried.is_secured() {
            self.last_flight.handle_incoming(kind, contents);
        }
        let header = rtp_header(kind, contents);
        match header {
            Some((source, _)) if self.voice == Some(source) => self.keep_voice(),
            Some(_) if self.voices == AUDIO_SOURCES_MAX => return Sender::Stranger,
            Some((source, payload_type)) => self.expect_source(source, payload_type.into()),
            None => {}
        }
        if let Err(error) = self.rtc.handle_input(input) {
            log::debug!("datagram refused: {error}");
        }
        if let Some((_, payload_type)) = header.filter(|_| self.rtc.is_connected()) {
            self.unheard.handle_packet(payload_type, now);
        }
        self.note_refusal();
        if signed { Sender::Peer } else { Sender::Unproven }
    }

    /// Keeps the reason that DTLS refused the last datagram for, if it did.
    fn note_refusal(&mut self) {
        if let Some(refusal) = crypto::take_refusal() {
            self.tried.handle_refusal(refusal);
        }
    }

    /// Tells whether the peer has signed a STUN message. Asked in the name of an unused address,
    /// str0m looks at the signature; it takes whatever says to come from the address that it sends
    /// to.
    fn is_signed(&self, packet: &Packet<'_>) -> bool {
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let receive = Receive::new(packet.over.into(), nobody, packet.destination, packet.contents);
        receive.is_ok_and(|receive| self.rtc.accepts(&Input::Receive(self.now, receive)))
    }

    /// Takes what says to answer a check of this end's own.
    fn handle_answer(&mut self, packet: &Packet<'_>) -> Sender {
        if !self.consent.is_signed(packet.contents) {
            return Sender::Stranger;
        }
        self.handle_proof(PacketKind::CheckAnswer, packet);
        Sender::Peer
    }

    /// Takes a signed message: it may answer a check from where that was sent to.
    fn handle_proof(&mut self, kind: PacketKind, packet: &Packet<'_>) {
        let Some(source) = self.checks.take_answered(kind, packet) else {
            return;
        };
        self.remote.handle_proof(packet.source);
        self.consent.handle_proof(Way {
            over: packet.over,
            source,
            peer: packet.source,
        });
        self.proven = Some(Proven {
            over: packet.over,
            local: packet.destination,
            peer: packet.source,
        });
    }

    /// Returns the address and port that the peer was last proven to have.
    pub fn address(&self) -> Option<SocketAddr> {
        self.consent.way().map(|way| way.peer)
    }

    /// Returns the address that the peer has in its own network, if its offer names one.
    pub fn host(&self) -> Option<IpAddr> {
        self.host
    }

    /// Asks the peer whether it is there, beside the checks that str0m makes in its own time. Tells
    /// whether it can be asked; the check is in the outputs that follow.
    pub fn ask(&mut self) -> bool {
        self.check = self.consent.check();
        self.check.is_some()
    }

    /// The peer is there again after an outage: if it has not acknowledged all messages, the last
    /// DTLS record leaves once more, unless one has come since.
    pub fn repeat_record(&mut self, now: Instant) {
        if self.messages_in_flight() > 0 {
            self.record.repeat(now);
        }
    }

    /// Lets str0m judge a packet of a source that neither the offer nor the packet assigns to a section: `a=ssrc` is optional
    /// (RFC 8829 section 5.2.1), and where one section of audio is, its payload type tells enough (RFC 9143 section 9.2).
    ///
    /// Anybody may claim a source. Its stream stands beside the caller's, for this packet alone: it stays when the packet has
    /// a good tag, and is gone with the end of this turn when it has none.
    fn expect_source(&mut self, source: Ssrc, payload_type: Pt) {
        let Some((mid, pt)) = self.audio.filter(|_| self.takes_any_source) else {
            return;
        };
        let is_ours = payload_type == pt || self.keys.as_ref().is_some_and(|(keys, _)| payload_type == *keys);
        if !is_ours || self.rtc.media(mid).is_none() {
            return;
        }
        let mut api = self.rtc.direct_api();
        if api.stream_rx(&source).is_none() {
            api.expect_stream_rx(source, None, mid, None).suppress_nack(true);
            self.claimed = Some(source);
        }
    }

    /// Forgets a source whose packet had no good tag.
    fn drop_claimed(&mut self) {
        if let Some(source) = self.claimed.take() {
            self.rtc.direct_api().remove_stream_rx(source);
        }
    }

    /// Gives the audio section back to the source that has proven itself in it.
    ///
    /// A packet that names the section and another source takes it over before str0m has looked at the packet's tag, and the
    /// true source does not name the section any more: one forged packet would silence the caller.
    fn keep_voice(&mut self) {
        let (Some(voice), Some((mid, _))) = (self.voice, self.audio) else {
            return;
        };
        let mut api = self.rtc.direct_api();
        if api.stream_rx(&voice).is_some() {
            return;
        }
        if let Some(thief) = api.stream_rx_by_mid(mid, None).map(|stream| stream.ssrc()) {
            api.remove_stream_rx(thief);
        }
        if self.rtc.media(mid).is_some() {
            let mut api = self.rtc.direct_api();
            api.expect_stream_rx(voice, None, mid, None).suppress_nack(true);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        let expected = self.audio.map(|(_, pt)| *pt);
        if let Some(words) = self.unheard.poll_words(expected, now) {
            log::warn!("{words}");
        }
        if let Err(error) = self.rtc.handle_input(Input::Timeout(now)) {
            log::debug!("timeout: {error}");
        }
    }

    /// Returns the next thing to do.
    pub fn poll_output(&mut self) -> Output {
        if let Some(proven) = self.proven.take() {
            return Output::Proven(proven);
        }
        if let Some(mut check) = self.check.take() {
            self.checks.handle_outgoing(Maker::Consent, &mut check);
            return Output::Transmit(check);
        }
        if let Some(record) = self.record.take_due(self.now) {
            return Output::Transmit(record);
        }
        loop {
            let output = match self.rtc.poll_output() {
                Ok(output) => output,
                // The peer said goodbye before SCTP was up, and str0m lost the event over its own farewell.
                Err(RtcError::Sctp(error)) => {
                    log::debug!("closing: {error}");
                    self.rtc.disconnect();
                    return Output::Left;
                }
                Err(error) => {
                    log::debug!("connection: {error}");
                    if let RtcError::RemoteSdp(_) = error {
                        self.tried.handle_refusal(crypto::Refusal::Fingerprint);
                    }
                    if self.rtc.is_alive() {
                        continue;
                    }
                    return Output::Failed;
                }
            };
            match output {
                str0m::Output::Timeout(_) if self.early.hand_over(&mut self.rtc, self.now) => self.note_refusal(),
                str0m::Output::Timeout(at) => {
                    self.drop_claimed();
                    return Output::Timeout(at);
                }
                str0m::Output::Transmit(transmit) => {
                    let mut transmit = Transmit::new(transmit, self.bare);
                    self.tried
                        .handle_outgoing(transmit.source, transmit.destination, transmit.kind());
                    self.checks.handle_outgoing(Maker::Str0m, &mut transmit);
                    if transmit.is_check() {
                        self.consent.handle_check(transmit.contents());
                    }
                    self.record.handle_outgoing(&mut transmit, self.now);
                    if self.family.is_device() && !self.tried.is_secured() {
                        self.last_flight.handle_outgoing(&mut transmit);
                    }
                    return Output::Transmit(transmit);
                }
                str0m::Output::Event(event) => {
                    if let Some(output) = self.event(event) {
                        return output;
                    }
                }
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
                Some(Output::Connected)
            }
            Event::MediaAdded(added) if added.kind == MediaKind::Audio && self.audio.is_none() => {
                let pt = self
                    .rtc
                    .media(added.mid)
                    .and_then(|media| media.remote_pts().first().copied());
                self.audio = pt.map(|pt| (added.mid, pt));
                let mut api = self.rtc.direct_api();
                self.voice = api.stream_rx_by_mid(added.mid, None).map(|stream| stream.ssrc());
                None
            }
            Event::RtpPacket(packet) => {
                if self.claimed == Some(packet.header.ssrc) {
                    self.claimed = None;
                }
                let (_, pt) = self.audio?;
                if let Some((keys_pt, keys)) = &mut self.keys
                    && packet.header.payload_type == *keys_pt
                {
                    let key = keys.handle_packet(packet.header.timestamp, &packet.payload);
                    return key.map(Output::Key);
                }
                if packet.header.payload_type != pt {
                    return None;
                }
                self.unheard.handle_used();
                if self.voice.replace(packet.header.ssrc) != Some(packet.header.ssrc) {
                    self.voices += 1;
                }
                Some(Output::Audio(AudioPacket {
                    sequence: *packet.seq_no,
                    timestamp: packet.time.numer(),
                    payload: packet.payload,
                }))
            }
            Event::ChannelOpen(id, _) if self.channels.len() == CHANNELS_MAX => {
                log::debug!("channel closed: {CHANNELS_MAX} are open");
                self.rtc.direct_api().close_data_channel(id);
                None
            }
            Event::ChannelOpen(id, label) => {
                self.channels.push(id);
                let kind = Channel::of(&label);
                let first = self.channel.is_none();
                if first || (kind == Channel::Chat && self.channel() != Some(Channel::Chat)) {
                    self.channel = Some(Messages { id, kind });
                }
                first.then_some(Output::ChannelOpen)
            }
            Event::ChannelData(data) if !data.binary => match String::from_utf8(data.data) {
                Ok(text) => Some(Output::Message(text)),
                Err(_) => {
                    log::debug!("message ignored: it is not UTF-8");
                    None
                }
            },
            Event::ChannelData(_) => {
                log::debug!("message ignored: it is binary, messages are text");
                None
            }
            Event::ChannelClose(id) => {
                self.channels.retain(|open| *open != id);
                let was_ours = self.channel.as_ref().is_some_and(|messages| messages.id == id);
                if was_ours {
                    self.channel = None;
                }
                (was_ours && !self.closing).then_some(Output::Left)
            }
            Event::Closed => (!self.closing).then_some(Output::Left),
            _ => None,
        }
    }

    /// Queues one payload of 20 ms, at so many ticks of the codec's clock after the session's start; it leaves with the next
    /// [`PeerConnection::handle_timeout`]. Nothing leaves before the connection is up.
    pub fn send_audio(&mut self, payload: &[u8], ticks: u64, now: Instant) {
        let Some((mid, pt)) = self.audio else {
            return;
        };
        // RTP time is modulo 2^32, so the lower half of the ticks is all that counts.
        let timestamp = self.timestamp.wrapping_add(ticks as u32);
        let write = RtpWrite::new(pt, self.sequence.into(), timestamp, now, payload);
        self.sequence += 1;
        if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(mid, None) {
            stream.write_rtp(write);
        }
    }

    /// Counts so many packets as sent.
    #[cfg(test)]
    pub fn leap(&mut self, packets: u64) {
        self.sequence += packets;
    }

    /// Returns the kind of the client's channel for messages.
    pub fn channel(&self) -> Option<Channel> {
        self.channel.as_ref().map(|messages| messages.kind)
    }

    /// Tells whether the client's offer has a data channel.
    pub fn offers_channel(&self) -> bool {
        self.offers_channel
    }

    /// Tells whether the client has opened a channel for messages.
    pub fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// Sends a text message; `false` when there is no channel, or no room in it now.
    pub fn send_message(&mut self, text: &str) -> bool {
        let Some(id) = self.channel.as_ref().map(|messages| messages.id) else {
            return false;
        };
        let Some(mut channel) = self.rtc.channel(id) else {
            return false;
        };
        match channel.write(false, text.as_bytes()) {
            Ok(written) => written,
            Err(error) => {
                log::debug!("message dropped: {error}");
                true
            }
        }
    }

    /// Returns how many bytes of messages the peer has not acknowledged.
    pub fn messages_in_flight(&mut self) -> usize {
        let Some(id) = self.channel.as_ref().map(|messages| messages.id) else {
            return 0;
        };
        self.rtc.channel(id).map_or(0, |mut channel| channel.buffered_amount())
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

    /// Returns what was tried to connect.
    pub fn tried(&self) -> &Tried {
        &self.tried
    }

    /// Tells whether the connection can still do anything.
    pub fn is_alive(&self) -> bool {
        self.rtc.is_alive()
    }
}

/// The payload type of the telephone's keys before an offer gives another: the one that browsers use.
const KEYS_PT: u8 = 126;

/// Returns the one address to tell a device.
fn address_for_device(setup: &Setup<'_>) -> Result<Ipv4Addr, OfferError> {
    let Some(device) = setup.device else {
        let local: Vec<String> = setup.local.iter().map(|local| local.ip().to_string()).collect();
        return Err(OfferError::NoCandidate(format!(
            "this client is a microcontroller, which reads IPv4 alone, and there is {} here; start the runner with \
             `--embedded --host ADDRESS`",
            if local.is_empty() {
                "nothing".to_owned()
            } else {
                local.join(", ")
            }
        )));
    };
    if device.is_guess {
        log::warn!(
            "this client is a microcontroller, which takes one address, and which it can reach is not known here: it is \
             told {}; start the runner with `--embedded --host ADDRESS`",
            device.address
        );
    }
    Ok(device.address)
}

/// Returns the addresses to offer as host candidates. A device tries one candidate after the other, 17 s for a dead one: it is
/// offered one.
fn local(setup: &Setup<'_>, device: Option<Ipv4Addr>) -> Vec<SocketAddr> {
    let port = setup.local.first().map_or(0, SocketAddr::port);
    match device {
        Some(address) => vec![SocketAddr::from((address, port))],
        None => setup.local.to_vec(),
    }
}

/// Returns the candidates to offer, which are these alone for a device. What a server sees where there is no NAT is a host
/// candidate already.
fn candidates(
    setup: &Setup<'_>,
    local: &[SocketAddr],
    for_device: bool,
) -> impl Iterator<Item = Result<Candidate, IceError>> {
    let host = local.iter().map(|address| Candidate::host(*address, Protocol::Udp));
    let gathered = Some(setup.gathered).filter(|_| !for_device).into_iter();
    let reflexive = gathered.clone().flat_map(|gathered| &gathered.reflexive);
    let reflexive = reflexive
        .filter(|(address, _)| !local.contains(address))
        .map(|(address, base)| Candidate::server_reflexive(*address, *base, Protocol::Udp));
    let relayed = gathered.flat_map(|gathered| &gathered.relayed);
    let relayed = relayed.map(|(address, local)| Candidate::relayed(*address, *local, Protocol::Udp));
    // Microcontrollers know UDP alone.
    let tcp = setup
        .tcp
        .iter()
        .filter(move |_| !for_device && setup.embedded.is_none());
    let tcp = tcp.map(|address| {
        Candidate::builder()
            .tcp()
            .host(*address)
            .tcptype(TcpType::Passive)
            .build()
    });
    host.chain(reflexive).chain(relayed).chain(tcp)
}

/// Returns the addresses under which this end is reached, offered or not.
fn own(setup: &Setup<'_>, local: &[SocketAddr]) -> Vec<SocketAddr> {
    let gathered = setup.gathered.reflexive.iter().chain(&setup.gathered.relayed);
    let gathered = gathered.map(|(address, _)| *address);
    local.iter().copied().chain(gathered).collect()
}

/// Returns the header extensions that are negotiated: the media's name, or none for who offers none.
fn extensions(bare: bool) -> ExtensionMap {
    let mut map = ExtensionMap::empty();
    if !bare {
        map.set(4, Extension::RtpMid);
    }
    map
}

/// Tells whether an answer takes audio; a section without a codec in common, or stopped by its sender, has port 0.
fn has_audio(answer: &str) -> bool {
    let mut sections = answer.lines().filter_map(|line| line.strip_prefix("m=audio "));
    sections.any(|section| !section.starts_with("0 "))
}

fn nothing_spoken() -> OfferError {
    let [opus, pcmu, pcma] = Codec::ALL;
    OfferError::Bad(format!(
        "the offer has no audio with a codec that is spoken here: {opus} (opus/48000/2), {pcmu} or {pcma} (8000 Hz)"
    ))
}

fn prepare(offer: &str) -> Result<PreparedOffer, OfferError> {
    sdp::prepare_offer(offer).map_err(|error| OfferError::Bad(error.to_string()))
}

#[cfg(test)]
mod tests;
