//! Negotiation with a media-room server (SFU): this end offers the publisher's connection and
//! answers the subscriber's.
//!
//! In: the server's descriptions and its list of tracks. Out: descriptions of this end. The
//! publisher has one Opus track with audio level and two data channels. The subscriber receives the
//! Opus tracks of all participants. Descriptions that would be applied only partly are rejected;
//! the connection continues unchanged. Ignored: video, other codecs, and tracks
//! and candidates beyond their caps. Sources: RFC 8829, RFC 6464, RFC 7587, `docs/spec/livekit.md`
//! 3.

mod paths;
mod sections;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use str0m::Candidate;
use str0m::channel::{ChannelConfig, Reliability};
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::Protocol;

use super::PeerConnection;
use super::answering::{NO_FINGERPRINT, PendingOffer, apply_answer};
use super::channels::{LOSSY, RELIABLE};
use super::config::{ConnectionConfig, ConnectionContext};
use super::output::{ConnectionOutput, NegotiationError};
use super::sources::AudioSection;
use crate::limits::REMOTE_CANDIDATES_MAX;
use crate::webrtc::crypto;
use crate::webrtc::sdp::{self, SdpDescription, SectionKind};

/// The media stream id of the published track.
const STREAM: &str = "bot";

/// What a connection to an SFU is created from.
pub struct SfuSetup<'a> {
    pub common: &'a ConnectionContext,
    /// Host candidates, each with the port of this connection's own UDP socket.
    pub local: &'a [SocketAddr],
    /// The host candidates are not used: all media goes through a relay.
    pub relay_only: bool,
    /// Random bits for the first sequence number and timestamp.
    pub seed: u64,
}

/// The state of the negotiation with an SFU.
#[derive(Default)]
pub struct SfuNegotiation {
    /// The section of the published track.
    audio_mid: Option<Mid>,
    /// The sections of the previous description, in order.
    layout: Vec<(String, SectionKind)>,
    /// The offer that has no answer yet, and what it changes.
    pending_offer: Option<PendingOffer>,
    /// An answer was applied.
    is_answered: bool,
    /// Candidates that arrived before the answer; `None` after it.
    early_candidates: Option<Vec<String>>,
    /// Candidates of the server to which a TCP connection can be opened.
    tcp_candidates: Vec<Candidate>,
    /// The server has sent a UDP candidate since the last ICE restart.
    pub has_udp_candidate: bool,
}

impl SfuNegotiation {
    /// Buffers a candidate until the answer arrives. Returns whether it was buffered.
    pub fn buffer_candidate(&mut self, text: &str) -> bool {
        let Some(waiting) = &mut self.early_candidates else {
            return false;
        };
        if waiting.len() < REMOTE_CANDIDATES_MAX {
            waiting.push(text.to_owned());
        } else {
            log::debug!("remote candidate ignored: {REMOTE_CANDIDATES_MAX} wait for the answer");
        }
        true
    }
}

impl PeerConnection {
    /// Creates the publisher's connection and its first offer. `cid` names the track.
    ///
    /// # Errors
    /// [`NegotiationError::Internal`] if this end cannot create a connection.
    pub fn publisher(
        setup: &SfuSetup<'_>,
        cid: &str,
        now: Instant,
    ) -> Result<(PeerConnection, String), NegotiationError> {
        let mut peer = PeerConnection::new_sfu(setup, now)?;
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
            .ok_or_else(|| NegotiationError::Internal("there is nothing to offer".to_owned()))?;
        let text = offer.to_sdp_string();
        peer.data_channels.offered = Some(reliable);
        peer.sfu = SfuNegotiation {
            audio_mid: Some(mid),
            layout: SdpDescription::parse(&text).layout(),
            pending_offer: Some((offer, pending)),
            early_candidates: Some(Vec::new()),
            ..SfuNegotiation::default()
        };
        Ok((peer, text))
    }

    /// Creates the subscriber's connection from the server's first offer. Returns it with the
    /// answer.
    ///
    /// # Errors
    /// [`NegotiationError`] says what is wrong with the offer.
    pub fn subscriber(
        setup: &SfuSetup<'_>,
        offer: &str,
        mid_to_track: &BTreeMap<String, String>,
        now: Instant,
    ) -> Result<(PeerConnection, String), NegotiationError> {
        let mut peer = PeerConnection::new_sfu(setup, now)?;
        let answer = peer.answer_server_offer(offer, mid_to_track)?;
        Ok((peer, answer))
    }

    fn new_sfu(setup: &SfuSetup<'_>, now: Instant) -> Result<PeerConnection, NegotiationError> {
        let local = setup.local;
        let config = ConnectionConfig::sfu(setup.common, setup.seed);
        let mut peer = PeerConnection::new(config, local, local.to_vec(), now)?;
        let hosts = local.iter().filter(|_| !setup.relay_only);
        peer.add_local_candidates(hosts.map(|address| Candidate::host(*address, Protocol::Udp)));
        Ok(peer)
    }

    /// Handles the answer to the publisher's last offer. A second answer is ignored.
    ///
    /// # Errors
    /// [`NegotiationError::BadDescription`] says what is wrong; a correct answer may still follow.
    pub fn handle_answer(&mut self, answer: &str, now: Instant) -> Result<(), NegotiationError> {
        let bad = |why: String| NegotiationError::BadDescription(format!("the server's answer cannot be used: {why}"));
        self.now = now;
        let prepared = sdp::prepare_sfu_description(answer).map_err(|error| bad(error.to_string()))?;
        let description = SdpDescription::parse(&prepared.sdp);
        description.check(&self.sfu.layout, |_| false).map_err(bad)?;
        if description.sections.len() > self.sfu.layout.len() {
            return Err(bad("it has more sections than the offer".to_owned()));
        }
        if !description.takes_audio_and_data() {
            return Err(bad("it does not take audio with Opus, and data".to_owned()));
        }
        if description.fingerprint().is_none() {
            return Err(bad(NO_FINGERPRINT.to_owned()));
        }
        let Some(offer) = self.sfu.pending_offer.take() else {
            log::debug!("answer ignored: there is no offer that it belongs to");
            return Ok(());
        };
        let cert = crypto::certificate().map_err(|error| NegotiationError::Internal(error.to_string()))?;
        let config = self.config.rtc_config(cert.clone());
        let is_first = !std::mem::replace(&mut self.sfu.is_answered, true);
        let role = is_first.then_some(prepared.dtls_role);
        let ufrag = self.local_ufrag();
        apply_answer(&mut self.rtc, config, offer, &description, role, now).map_err(bad)?;
        if self.local_ufrag() != ufrag {
            self.handle_ice_restart();
        }
        self.paths.consent.handle_description(&prepared.sdp);
        if let Some(mid) = self.sfu.audio_mid {
            let media = self.rtc.media(mid);
            let payload_type = media.and_then(|media| media.remote_pts().first().copied());
            self.sender.bind(mid, payload_type);
        }
        let waiting = self.sfu.early_candidates.take().unwrap_or_default();
        for candidate in prepared.candidates.iter().chain(&waiting) {
            self.add_remote_candidate(candidate);
        }
        Ok(())
    }

    /// Answers a later offer of the server.
    ///
    /// # Errors
    /// [`NegotiationError::BadDescription`] says what is wrong; the connection continues unchanged.
    pub fn answer_server_offer(
        &mut self,
        offer: &str,
        mid_to_track: &BTreeMap<String, String>,
    ) -> Result<String, NegotiationError> {
        let bad =
            |why: String| NegotiationError::BadDescription(format!("the server's offer cannot be answered: {why}"));
        if self.is_closing || self.end_reported {
            return Err(NegotiationError::Ended);
        }
        let prepared = sdp::prepare_sfu_description(offer).map_err(|error| bad(error.to_string()))?;
        let description = SdpDescription::parse(&prepared.sdp);
        let layout = &self.answered.layout;
        description.check(layout, |mid| self.is_free(mid)).map_err(bad)?;
        if description.fingerprint().is_none() {
            return Err(bad(NO_FINGERPRINT.to_owned()));
        }
        let choice = description.select_tracks(mid_to_track, &self.sources.sections);
        let text = description.write(&choice);
        let selected: Vec<AudioSection> = choice.into_iter().flatten().collect();
        self.sources.remove_stale(&mut self.rtc, &selected);
        let offer = SdpDescription::parse(&text);
        let answer = self.answer_description(&offer, prepared.dtls_role, PeerConnection::handle_ice_restart)?;
        self.paths.consent.handle_description(&prepared.sdp);
        let gone = self.sources.replace(selected);
        self.outputs
            .extend(gone.into_iter().map(ConnectionOutput::TrackRemoved));
        for candidate in &prepared.candidates {
            self.add_remote_candidate(candidate);
        }
        Ok(sdp::name_rejected_formats(&answer, &prepared.sdp))
    }
}

#[cfg(test)]
pub(crate) mod tests;
