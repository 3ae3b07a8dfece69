//! Negotiation with a client that offers: a browser, a microcontroller, or the server of a WhatsApp
//! call.
//!
//! In: the offer's SDP and the addresses of this machine. Out: the connection, and an answer for
//! that client. Microcontrollers get one candidate and an answer that fits their buffers;
//! `--embedded` limits every answer to one candidate. Offers without a supported codec are
//! rejected. Sources: RFC 8829, RFC 8839, `docs/spec/devices.md` 4.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use str0m::Candidate;
use str0m::error::IceError;
use str0m::net::{Protocol, TcpType};

use super::PeerConnection;
use super::config::{ConnectionConfig, ConnectionSetup};
use super::dtmf::DtmfReceiver;
use super::output::NegotiationError;
use crate::audio::codec::Codec;
use crate::webrtc::candidate;
use crate::webrtc::sdp::{self, DeviceAnswerError, PreparedOffer, SdpDescription};

/// What all answers to one client have in common.
#[derive(Default)]
pub struct ClientNegotiation {
    /// The one address that `--embedded` offers.
    embedded: Option<Ipv4Addr>,
    /// The one address that the device was given.
    device_address: Option<Ipv4Addr>,
    /// The client's address in its own network, from its offer.
    pub host: Option<IpAddr>,
    pub offers_channel: bool,
    /// The index of the section with the transport of all others, if the client bundles them.
    pub transport_section: Option<usize>,
}

/// A microcontroller's offer, as far as it identifies the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOffer {
    /// The device's address in its own network, if the offer names one.
    pub host: Option<IpAddr>,
}

impl DeviceOffer {
    /// Parses an offer; `None` if it is not a microcontroller's.
    pub fn parse(offer: &str) -> Option<DeviceOffer> {
        let prepared = prepare(offer).ok()?;
        prepared.client_stack.is_device().then(|| DeviceOffer {
            host: candidate::host_address(&prepared.candidates),
        })
    }
}

impl PeerConnection {
    /// Creates the connection that answers `offer`. Returns it with the answer's SDP.
    ///
    /// # Errors
    /// [`NegotiationError`] says whether the offer or this end is at fault.
    pub fn accept(
        offer: &str,
        setup: &ConnectionSetup<'_>,
        now: Instant,
    ) -> Result<(PeerConnection, String), NegotiationError> {
        let prepared = prepare(offer)?;
        let spoken = prepared.audio_codec.ok_or_else(no_supported_codec)?;
        let config = match prepared.client_stack.is_device() {
            true => ConnectionConfig::device(setup, &prepared, spoken),
            false => ConnectionConfig::browser(setup, &prepared, spoken),
        };
        let (mut peer, answer) = PeerConnection::answer(&prepared, config, setup, now)?;
        peer.client.transport_section = transport_section(offer, &answer);
        Ok((peer, answer))
    }

    /// Creates the connection that answers the offer of a call. Returns it with the answer's SDP.
    /// This end is the DTLS client.
    ///
    /// # Errors
    /// [`NegotiationError`] says whether the offer or this end is at fault.
    pub fn accept_call(
        offer: &str,
        setup: &ConnectionSetup<'_>,
        now: Instant,
    ) -> Result<(PeerConnection, String), NegotiationError> {
        let prepared = sdp::prepare_call(offer).map_err(|error| NegotiationError::BadDescription(error.to_string()))?;
        let spoken = prepared.audio_codec.filter(|spoken| spoken.codec == Codec::Opus);
        let spoken =
            spoken.ok_or_else(|| NegotiationError::BadDescription("the offer of a call has no Opus".to_owned()))?;
        PeerConnection::answer(&prepared, ConnectionConfig::call(setup, &prepared, spoken), setup, now)
    }

    fn answer(
        prepared: &PreparedOffer,
        config: ConnectionConfig,
        setup: &ConnectionSetup<'_>,
        now: Instant,
    ) -> Result<(PeerConnection, String), NegotiationError> {
        let device = config.is_device;
        let device_address = if device { Some(address_for_device(setup)?) } else { None };
        let local = host_addresses(setup, device_address);
        let mut peer = PeerConnection::new(config, &local, own_addresses(setup, &local), now)?;
        peer.client = ClientNegotiation {
            embedded: setup.embedded,
            device_address,
            host: candidate::host_address(&prepared.candidates),
            offers_channel: prepared.has_application,
            transport_section: None,
        };
        peer.add_local_candidates(local_candidates(setup, &local, device));
        if device && prepared.has_application {
            // `sctp` expects str0m to be the SCTP client, whichever end starts on the wire.
            peer.rtc.direct_api().start_sctp(true);
        }
        let answer = peer.negotiate(prepared)?;
        Ok((peer, answer))
    }

    /// Answers a later offer on the same connection.
    ///
    /// # Errors
    /// [`NegotiationError`]; the connection continues unchanged.
    pub fn renegotiate(&mut self, offer: &str) -> Result<String, NegotiationError> {
        let prepared = prepare(offer)?;
        let answer = self.negotiate(&prepared)?;
        self.client.transport_section = transport_section(offer, &answer);
        self.sources.handle_renegotiation();
        Ok(answer)
    }

    /// Inherits the address counts of a connection that the client replaced.
    pub fn take_over(&mut self, former: PeerConnection) {
        self.paths.inherit(former.paths);
    }

    fn negotiate(&mut self, prepared: &PreparedOffer) -> Result<String, NegotiationError> {
        let bad = |why: String| NegotiationError::BadDescription(format!("the offer cannot be answered: {why}"));
        let offer = SdpDescription::parse(&prepared.sdp);
        offer
            .check(&self.answered.layout, |mid| self.is_free(mid))
            .map_err(bad)?;
        // A later offer may stop the audio; the first one must have it.
        if self.answered.layout.is_empty() && !self.has_usable_audio(&offer) {
            return Err(no_supported_codec());
        }
        let answer = self.answer_description(&offer, prepared.dtls_role, |peer| {
            peer.paths.handle_restart();
            peer.replace_credentials();
        })?;
        self.paths.consent.handle_description(&prepared.sdp);
        for line in &prepared.candidates {
            self.add_remote_candidate(line);
        }
        if self.config.is_call {
            let answer = sdp::write_call_answer(&answer);
            self.dtmf = answer.dtmf_payload_type.map(|pt| (pt.into(), DtmfReceiver::default()));
            return Ok(sdp::insert_declined_sections(&answer.sdp, &prepared.declined, true));
        }
        let answer = self.finish_answer(&answer, prepared)?;
        Ok(sdp::insert_declined_sections(
            &answer,
            &prepared.declined,
            prepared.has_bundle,
        ))
    }

    /// Rewrites an answer for the client.
    fn finish_answer(&self, answer: &str, prepared: &PreparedOffer) -> Result<String, NegotiationError> {
        let mut answer = sdp::rewrite_declined_sections(answer, &prepared.sdp);
        for (ours, theirs) in &prepared.opus_spellings {
            answer = answer.replace(&format!("a={ours}\r\n"), &format!("a={theirs}\r\n"));
        }
        match (self.client.device_address, self.client.embedded) {
            (Some(address), _) => sdp::rewrite_answer_for_device(&answer, address, prepared.dtls_role),
            (None, Some(host)) => sdp::keep_only_host_candidate(&answer, host),
            (None, None) => Ok(answer),
        }
        .map_err(|error| match error {
            DeviceAnswerError::NoCandidate { .. } => NegotiationError::NoCandidate(error.to_string()),
            DeviceAnswerError::NoCodec | DeviceAnswerError::Setup(_) => {
                NegotiationError::BadDescription(error.to_string())
            }
            DeviceAnswerError::LineTooLong { .. } | DeviceAnswerError::BodyTooLong { .. } => {
                NegotiationError::TooLong(error.to_string())
            }
            other => NegotiationError::Internal(other.to_string()),
        })
    }

    /// Replaces the credentials that str0m generated for an ICE restart; see
    /// [`super::credentials`].
    fn replace_credentials(&mut self) {
        if let Some(credentials) = &mut self.credentials {
            let ours = credentials.next();
            self.rtc.direct_api().set_local_ice_credentials(ours);
        }
    }
}

/// Returns the index of the section with the transport of the bundle, RFC 9143 section 7.3: the
/// first one of the answer's group. `None` if the offer has no bundle.
fn transport_section(offer: &str, answer: &str) -> Option<usize> {
    let bundle = |sdp: &str| sdp.lines().position(|line| line.starts_with("a=group:BUNDLE"));
    bundle(offer)?;
    let first = answer.lines().nth(bundle(answer)?)?.split_ascii_whitespace().nth(1)?;
    let mut sections = answer.split("\nm=").skip(1);
    sections.position(|section| section.lines().any(|line| line.strip_prefix("a=mid:") == Some(first)))
}

/// Returns the address to put into a device's answer.
fn address_for_device(setup: &ConnectionSetup<'_>) -> Result<Ipv4Addr, NegotiationError> {
    let Some(device) = setup.device else {
        let local: Vec<String> = setup.local.iter().map(|local| local.ip().to_string()).collect();
        return Err(NegotiationError::NoCandidate(format!(
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
            "this client is a microcontroller, which takes one address, and which it can reach is not known here: the \
             answer has {}; start the runner with `--embedded --host ADDRESS`",
            device.address
        );
    }
    Ok(device.address)
}

/// Returns the addresses to offer as host candidates. A device gets one, because it spends 17 s on
/// each dead candidate.
fn host_addresses(setup: &ConnectionSetup<'_>, device: Option<Ipv4Addr>) -> Vec<SocketAddr> {
    let port = setup.local.first().map_or(0, SocketAddr::port);
    match device {
        Some(address) => vec![SocketAddr::from((address, port))],
        None => setup.local.to_vec(),
    }
}

/// Returns all candidates to offer; a device gets the host candidate alone. A server-reflexive
/// address equal to a host candidate is left out.
fn local_candidates(
    setup: &ConnectionSetup<'_>,
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
    // Microcontrollers support UDP alone.
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

/// Returns all addresses of this end, offered or not.
fn own_addresses(setup: &ConnectionSetup<'_>, local: &[SocketAddr]) -> Vec<SocketAddr> {
    let gathered = setup.gathered.reflexive.iter().chain(&setup.gathered.relayed);
    let gathered = gathered.map(|(address, _)| *address);
    local.iter().copied().chain(gathered).collect()
}

fn no_supported_codec() -> NegotiationError {
    NegotiationError::BadDescription(format!(
        "the offer has no audio with a codec that is spoken here: {}",
        Codec::ALL.map(Codec::encoding).join(", ")
    ))
}

fn prepare(offer: &str) -> Result<PreparedOffer, NegotiationError> {
    sdp::prepare_offer(offer).map_err(|error| NegotiationError::BadDescription(error.to_string()))
}
