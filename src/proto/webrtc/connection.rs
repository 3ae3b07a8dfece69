//! One peer connection: str0m's `Rtc`, reduced to audio in both directions and messages.
//!
//! In: descriptions, datagrams, candidates, encoded audio, messages, and `now`. Out, through
//! [`PeerConnection::poll_output`]: datagrams to send, audio payloads with RTP sequence number
//! and timestamp, messages, and connection events. The owner drains `poll_output` up to
//! [`ConnectionOutput::Timeout`] after each input. str0m implements ICE, STUN, DTLS, RTP and SCTP.
//!
//! The peer is a browser, a microcontroller, the server of a WhatsApp call, or a media-room server
//! (SFU); `ConnectionConfig` holds their differences. An address of the peer counts as valid after
//! it answered a check of this end ([`ConnectionOutput::PathValidated`]). Sources: RFC 8829, RFC
//! 8445, RFC 7587, RFC 8831.

mod answering;
mod channels;
mod checks;
mod client;
mod config;
mod consent;
mod credentials;
mod dtls_records;
mod dtmf;
mod events;
mod moved_peer;
mod output;
mod packet;
mod peer_addresses;
mod receive;
mod sender;
pub(crate) mod sfu;
mod sources;
mod unusable_audio;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use str0m::error::IceError;
use str0m::media::Pt;
use str0m::{Candidate, Input, Rtc};

use self::answering::AnsweredOffers;
pub use self::answering::{PendingOffer, apply_answer};
pub use self::channels::ChannelLabel;
use self::channels::DataChannels;
use self::client::ClientNegotiation;
pub use self::client::DeviceOffer;
use self::config::ConnectionConfig;
pub use self::config::{ConnectionContext, ConnectionSetup};
use self::credentials::IceCredentialGenerator;
pub use self::credentials::IceSecret;
use self::dtls_records::{EarlyRecords, LastFlight, LastRecord};
use self::dtmf::DtmfReceiver;
pub use self::output::{ConnectionOutput, NegotiationError, ValidatedPath};
pub use self::packet::{IceProtocol, PacketPath, PacketTrust, ReceivedPacket, Transmit};
use self::peer_addresses::PeerAddresses;
pub use self::sender::AudioLevel;
use self::sender::RtpSender;
use self::sfu::SfuNegotiation;
pub use self::sfu::SfuSetup;
use self::sources::{AudioLayout, AudioSources};
use self::unusable_audio::{AwaitedAudio, UnusableAudio};
use crate::audio::codec::Codec;
use crate::webrtc::candidate::{self, RemoteCandidatePolicy};
use crate::webrtc::crypto;
use crate::webrtc::ice_diagnosis::IceAttempt;
use crate::webrtc::offer::RemoteCandidate;

/// One peer connection.
pub struct PeerConnection {
    rtc: Rtc,
    config: ConnectionConfig,
    credentials: Option<IceCredentialGenerator>,
    paths: PeerAddresses,
    early_records: EarlyRecords,
    last_record: LastRecord,
    /// Used for devices, until the connection is up.
    last_flight: LastFlight,
    attempt: IceAttempt,
    sources: AudioSources,
    sender: RtpSender,
    /// The DTMF payload type and the state of its receiver.
    dtmf: Option<(Pt, DtmfReceiver)>,
    unusable_audio: UnusableAudio,
    awaited_audio: AwaitedAudio,
    data_channels: DataChannels,
    /// The addresses of this end that the peer may know.
    local_candidates: Vec<Candidate>,
    answered: AnsweredOffers,
    client: ClientNegotiation,
    sfu: SfuNegotiation,
    /// Outputs that precede those of str0m.
    outputs: VecDeque<ConnectionOutput>,
    is_connected: bool,
    /// The end of the connection has been reported.
    end_reported: bool,
    is_closing: bool,
    /// The silence timeout has expired, and nothing has arrived since.
    is_silent: bool,
    /// When the last accepted packet arrived.
    last_received_at: Instant,
    /// The time of the last input.
    now: Instant,
}

impl PeerConnection {
    /// Creates a connection that offers host candidates at `local` and is reachable at `own`.
    fn new(
        config: ConnectionConfig,
        local: &[SocketAddr],
        own: Vec<SocketAddr>,
        now: Instant,
    ) -> Result<PeerConnection, NegotiationError> {
        let cert = crypto::certificate().map_err(|error| NegotiationError::Internal(error.to_string()))?;
        let mut rtc = config.rtc_config(cert.clone());
        let mut credentials = config.secret.map(IceCredentialGenerator::new);
        if let Some(credentials) = &mut credentials {
            rtc = rtc.set_local_ice_credentials(credentials.next());
        }
        let policy = RemoteCandidatePolicy {
            loopback_offered: local.iter().any(|address| address.ip().is_loopback()),
            named_by_operator: config.named_by_operator,
        };
        Ok(PeerConnection {
            rtc: rtc.build(now),
            credentials,
            paths: PeerAddresses::new(policy, own, crypto::provider().sha1_hmac_provider),
            early_records: EarlyRecords::default(),
            last_record: LastRecord::default(),
            last_flight: LastFlight::default(),
            attempt: IceAttempt::new(local.first().map_or(0, SocketAddr::port)),
            sources: AudioSources::new(config.audio_layout, config.accepts_any_source),
            sender: RtpSender::new(config.seed),
            dtmf: None,
            unusable_audio: UnusableAudio::default(),
            awaited_audio: AwaitedAudio::default(),
            data_channels: DataChannels::new(config.messages),
            local_candidates: Vec::new(),
            answered: AnsweredOffers::default(),
            client: ClientNegotiation::default(),
            sfu: SfuNegotiation::default(),
            outputs: VecDeque::new(),
            is_connected: false,
            end_reported: false,
            is_closing: false,
            is_silent: false,
            last_received_at: now,
            now,
            config,
        })
    }

    fn add_local_candidates(&mut self, candidates: impl Iterator<Item = Result<Candidate, IceError>>) {
        for candidate in candidates {
            match candidate {
                Ok(candidate) => {
                    self.add_local_candidate(candidate);
                }
                Err(error) => log::debug!("cannot use the address as an ICE candidate: {error}"),
            }
        }
    }

    /// Adds a candidate of the peer. One that cannot be used is ignored, because the peer's own
    /// checks reveal its address. Candidates of an SFU may arrive before its answer.
    pub fn add_remote_candidate(&mut self, text: &str) {
        if self.sfu.buffer_candidate(text) {
            return;
        }
        if self.config.connects_over_tcp && candidate::is_passive_tcp(text) {
            return self.add_tcp_candidate(text);
        }
        match self.paths.parse_candidate(text) {
            Ok((usable, candidate)) => {
                self.attempt.handle_candidate(usable.kind, usable.addr);
                self.sfu.has_udp_candidate = true;
                self.rtc.add_remote_candidate(candidate);
            }
            Err(Some(ignored)) => self.attempt.handle_unusable_candidate(ignored),
            Err(None) => {}
        }
    }

    /// Adds a candidate that a client found after its offer. Those of other sections than the one
    /// with the transport of the bundle have ports on which the client soon listens no more.
    pub fn add_trickled_candidate(&mut self, candidate: &RemoteCandidate) {
        let section = candidate.sdp_mline_index.map(usize::from);
        if let (Some(section), Some(transport)) = (section, self.client.transport_section)
            && section != transport
        {
            log::debug!("remote candidate ignored: section {section} is bundled with section {transport}");
            return;
        }
        self.add_remote_candidate(&candidate.candidate);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.config.audio_layout == AudioLayout::SingleClient {
            let expected = self.sender.payload_type().map(|payload_type| *payload_type);
            if let Some(warning) = self.unusable_audio.poll_warning(expected, now) {
                log::warn!("{warning}");
            }
        }
        if let Err(error) = self.rtc.handle_input(Input::Timeout(now)) {
            log::debug!("timeout: {error}");
        }
        if self.loss_deadline().is_some_and(|at| now >= at) {
            let silence = now.saturating_duration_since(self.last_received_at);
            log::debug!("connection: nothing received for {} s", silence.as_secs());
            self.is_silent = true;
            self.outputs.push_back(ConnectionOutput::Silent);
        }
    }

    /// Returns when the connection counts as silent if nothing more is received.
    fn loss_deadline(&self) -> Option<Instant> {
        let lost_after = self.config.silence_timeout?;
        let is_monitored = self.is_connected && !self.end_reported && !self.is_closing && !self.is_silent;
        is_monitored.then(|| self.last_received_at + lost_after)
    }

    /// Reports the end of the connection once, unless this end closed it.
    fn report_end(&mut self, output: ConnectionOutput) -> Option<ConnectionOutput> {
        let already_reported = std::mem::replace(&mut self.end_reported, true) || self.is_closing;
        (!already_reported).then_some(output)
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> ConnectionOutput {
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        if let Some(path) = self.paths.take_validated_path() {
            return ConnectionOutput::PathValidated(path);
        }
        if let Some(check) = self.paths.take_check(self.now) {
            return ConnectionOutput::Transmit(check);
        }
        if let Some(record) = self.last_record.take_due(self.now) {
            return ConnectionOutput::Transmit(record);
        }
        loop {
            match self.rtc.poll_output() {
                Ok(str0m::Output::Timeout(_)) if self.early_records.deliver_next(&mut self.rtc, self.now) => {
                    self.record_handshake_error()
                }
                Ok(str0m::Output::Timeout(at)) => {
                    self.sources.drop_tentative(&mut self.rtc);
                    return ConnectionOutput::Timeout(self.loss_deadline().map_or(at, |lost| at.min(lost)));
                }
                Ok(str0m::Output::Transmit(transmit)) => return ConnectionOutput::Transmit(self.transmit(transmit)),
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

    /// Queues one payload of 20 ms at a position in ticks of the codec's clock. It is sent by the
    /// next [`PeerConnection::handle_timeout`]. Payloads are dropped until the connection is up.
    pub fn send_audio(&mut self, payload: &[u8], ticks: u64, level: Option<AudioLevel>, now: Instant) {
        if self.is_connected {
            self.sender.send(&mut self.rtc, payload, ticks, level, now);
        }
    }

    /// Sends a message. Returns `false` if there is no channel or no room in its buffer.
    pub fn send_message(&mut self, message: impl AsRef<[u8]>) -> bool {
        self.data_channels.send(&mut self.rtc, message.as_ref())
    }

    /// Returns the message bytes that the peer has not acknowledged.
    pub fn messages_in_flight(&mut self) -> usize {
        self.data_channels.bytes_in_flight(&mut self.rtc)
    }

    /// Queues a connectivity check in addition to those of str0m. Returns `false` if no path has
    /// been validated yet.
    pub fn send_check(&mut self) -> bool {
        self.paths.queue_check()
    }

    /// Sends the last DTLS record again after an outage, if messages are unacknowledged and no
    /// record has arrived since.
    pub fn retransmit_last_record(&mut self, now: Instant) {
        if self.messages_in_flight() > 0 {
            self.last_record.schedule_repeat(now);
        }
    }

    /// Closes SCTP, DTLS and ICE. The closing packets are in the outputs that follow.
    pub fn close(&mut self) {
        self.is_closing = true;
        if let Err(error) = self.rtc.close() {
            // SCTP is not up and cannot shut down. The peer detects the silence.
            log::debug!("closing: {error}");
            self.rtc.disconnect();
        }
    }

    /// Returns the codec used in both directions. Later offers do not change it.
    pub fn codec(&self) -> Codec {
        self.config.audio_codec.codec
    }

    /// Returns whether the peer has put the call on hold: it accepts no audio.
    pub fn is_on_hold(&self) -> bool {
        self.sender.is_on_hold(&self.rtc)
    }

    /// Says once that the peer sends no audio, though it has agreed to. `is_live` tells whether the
    /// call has begun and the network delivers.
    pub fn check_audio(&mut self, is_live: bool, now: Instant) {
        let is_agreed = is_live && !self.is_on_hold() && self.sender.may_receive(&self.rtc);
        if let Some(warning) = self.awaited_audio.poll_warning(is_agreed, now) {
            log::warn!("{warning}");
        }
    }

    /// Returns when to call [`PeerConnection::check_audio`].
    pub fn audio_check_at(&self) -> Option<Instant> {
        self.awaited_audio.poll_timeout()
    }

    /// Returns the time from this end to the peer and back, as its answer to the last check of ICE
    /// shows: at most a few seconds old, since the path of the media is checked all the time.
    pub fn round_trip(&self) -> Option<Duration> {
        self.paths.round_trip()
    }

    /// Returns whether the peer is a microcontroller.
    pub fn is_device(&self) -> bool {
        self.config.is_device
    }

    /// Returns the ICE user name fragment of this end, which routes incoming checks. An ICE restart
    /// changes it.
    pub fn local_ufrag(&mut self) -> String {
        self.rtc.direct_api().local_ice_credentials().ufrag
    }

    /// Returns when the last accepted packet arrived.
    pub fn last_received_at(&self) -> Instant {
        self.last_received_at
    }

    /// Returns the address and port of the path that was validated last.
    pub fn validated_address(&self) -> Option<SocketAddr> {
        self.paths.current()
    }

    /// Returns the peer's address in its own network, if its offer names one.
    pub fn host_address(&self) -> Option<IpAddr> {
        self.client.host
    }

    /// Returns the label of the client's message channel.
    pub fn message_channel(&self) -> Option<ChannelLabel> {
        self.data_channels.message_channel()
    }

    /// Returns whether the client's offer has a data channel.
    pub fn offers_channel(&self) -> bool {
        self.client.offers_channel
    }

    /// Returns whether the client opened a message channel.
    pub fn has_channel(&self) -> bool {
        self.message_channel().is_some()
    }

    /// Returns the record of this connection attempt.
    pub fn attempt(&self) -> &IceAttempt {
        &self.attempt
    }

    /// Returns whether the connection can still make progress.
    pub fn is_alive(&self) -> bool {
        self.rtc.is_alive()
    }

    /// Returns whether unusable audio has been logged.
    #[cfg(test)]
    pub fn reported_unusable_audio(&self) -> bool {
        self.unusable_audio.is_reported()
    }

    /// Returns whether the absence of audio has been logged.
    #[cfg(test)]
    pub fn reported_no_audio(&self) -> bool {
        self.awaited_audio.is_reported()
    }

    /// Returns the number of the peer's sources that are kept.
    #[cfg(test)]
    pub fn kept_sources(&self) -> usize {
        self.sources.kept()
    }

    /// Counts sources as if the client may send from one more alone.
    #[cfg(test)]
    pub fn skip_sources(&mut self) {
        self.sources.skip();
    }

    /// Advances the RTP sequence number as if `packets` had been sent.
    #[cfg(test)]
    pub fn skip_packets(&mut self, packets: u64) {
        self.sender.skip_packets(packets);
    }
}

#[cfg(test)]
mod tests;
