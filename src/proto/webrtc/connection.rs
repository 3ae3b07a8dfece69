//! One peer connection: str0m's `Rtc` narrowed to what a talk needs, audio each way and messages.
//!
//! In: descriptions, datagrams, candidates, audio payloads, messages, and `now`. Out, by
//! [`PeerConnection::poll_output`]: datagrams to send, audio payloads with their RTP numbers,
//! messages, and the few events that a session acts on. Every input is followed by a drain of
//! `poll_output` up to [`ConnectionOutput::Timeout`]. ICE, STUN, DTLS, RTP and SCTP stay in str0m.
//!
//! The other end is a browser, a microcontroller, the server of a call, or a media-room server
//! (SFU); a `ConnectionConfig` says in what they differ. `client` and `sfu` negotiate; `paths` knows where
//! the other end is, `sources` whose audio comes, `sender` what audio leaves, `channels` the
//! messages; `receive` judges what comes, `events` reads what str0m tells. An address of the peer
//! is believed once it has answered a check of this end ([`ConnectionOutput::Proven`]). Sources: RFC 8829,
//! RFC 8445, RFC 7587, RFC 8831.

mod channels;
mod checks;
mod client;
mod config;
mod consent;
mod credentials;
mod dtmf;
mod early_records;
mod events;
mod last_flight;
mod last_record;
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
use std::time::Instant;

use str0m::error::IceError;
use str0m::media::Pt;
use str0m::{Candidate, Input, Rtc};

pub use self::channels::ChannelLabel;
use self::channels::DataChannels;
use self::client::ClientNegotiation;
pub use self::client::DeviceOffer;
use self::config::ConnectionConfig;
pub use self::config::{ConnectionContext, ConnectionSetup};
use self::credentials::IceCredentialGenerator;
pub use self::credentials::IceSecret;
use self::dtmf::DtmfReceiver;
use self::early_records::EarlyRecords;
use self::last_flight::LastFlight;
use self::last_record::LastRecord;
pub use self::output::{ConnectionOutput, NegotiationError, ValidatedPath};
pub use self::packet::{IceProtocol, PacketTrust, ReceivedPacket, Transmit};
use self::peer_addresses::PeerAddresses;
pub use self::sender::AudioLevel;
use self::sender::RtpSender;
use self::sfu::SfuNegotiation;
pub use self::sfu::SfuSetup;
use self::sources::{AudioLayout, AudioSources};
use self::unusable_audio::UnusableAudio;
use crate::audio::codec::Codec;
use crate::webrtc::candidate::RemoteCandidatePolicy;
use crate::webrtc::crypto;
use crate::webrtc::ice_diagnosis::IceAttempt;

/// One peer connection.
pub struct PeerConnection {
    rtc: Rtc,
    config: ConnectionConfig,
    credentials: Option<IceCredentialGenerator>,
    paths: PeerAddresses,
    early: EarlyRecords,
    record: LastRecord,
    /// Of a device, until the connection is up.
    last_flight: LastFlight,
    tried: IceAttempt,
    sources: AudioSources,
    sender: RtpSender,
    /// The payload type of the telephone's keys, and what was pressed.
    keys: Option<(Pt, DtmfReceiver)>,
    unheard: UnusableAudio,
    channels: DataChannels,
    client: ClientNegotiation,
    sfu: SfuNegotiation,
    /// What is answered before anything else.
    outputs: VecDeque<ConnectionOutput>,
    is_connected: bool,
    /// The other end has left, or the connection broke, and that was told.
    is_over: bool,
    closing: bool,
    /// When the other end was last heard.
    heard_at: Instant,
    /// The time of the last input.
    now: Instant,
}

impl PeerConnection {
    /// Makes one that offers host candidates at `local`, and is reached at `own`, offered or not.
    fn new(
        config: ConnectionConfig,
        local: &[SocketAddr],
        own: Vec<SocketAddr>,
        now: Instant,
    ) -> Result<PeerConnection, NegotiationError> {
        let cert = crypto::certificate().map_err(|error| NegotiationError::Answer(error.to_string()))?;
        let mut rtc = config.rtc(cert.clone());
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
            early: EarlyRecords::default(),
            record: LastRecord::default(),
            last_flight: LastFlight::default(),
            tried: IceAttempt::new(local.first().map_or(0, SocketAddr::port)),
            sources: AudioSources::new(config.talkers, config.takes_any_source),
            sender: RtpSender::new(config.seed),
            keys: None,
            unheard: UnusableAudio::default(),
            channels: DataChannels::new(config.messages),
            client: ClientNegotiation::default(),
            sfu: SfuNegotiation::default(),
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

    /// Adds a candidate of the peer; one that cannot be used is ignored, since the peer's own
    /// checks tell its address. That of a media-room server may come before its answer.
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

    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.config.talkers == AudioLayout::One {
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
            let failed = self.over(ConnectionOutput::Failed);
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
    fn over(&mut self, output: ConnectionOutput) -> Option<ConnectionOutput> {
        let told = std::mem::replace(&mut self.is_over, true) || self.closing;
        (!told).then_some(output)
    }

    /// Returns the next thing to do.
    pub fn poll_output(&mut self) -> ConnectionOutput {
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        if let Some(proven) = self.paths.take_proven() {
            return ConnectionOutput::Proven(proven);
        }
        if let Some(check) = self.paths.take_check() {
            return ConnectionOutput::Transmit(check);
        }
        if let Some(record) = self.record.take_due(self.now) {
            return ConnectionOutput::Transmit(record);
        }
        loop {
            match self.rtc.poll_output() {
                Ok(str0m::Output::Timeout(_)) if self.early.hand_over(&mut self.rtc, self.now) => self.note_refusal(),
                Ok(str0m::Output::Timeout(at)) => {
                    self.sources.drop_claimed(&mut self.rtc);
                    return ConnectionOutput::Timeout(self.lost_at().map_or(at, |lost| at.min(lost)));
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

    /// Queues one payload of 20 ms, at so many ticks of the codec's clock after the start; it
    /// leaves with the next
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

    /// Returns this end's ICE user name fragment, by which datagrams find the connection. A restart
    /// of ICE changes it.
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
    pub fn channel(&self) -> Option<ChannelLabel> {
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
    pub fn tried(&self) -> &IceAttempt {
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
