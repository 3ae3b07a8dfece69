//! Applies an offer to str0m, and makes the answer.
//!
//! In: a prepared offer. Out: str0m's settings by its direct interface, and the answer's text. The
//! first offer sets the certificate and the roles. Each audio section that has the codec of the
//! connection becomes a medium of str0m; all others are declined. Three things can be changed by
//! an offer alone: str0m's ICE session, the payload type and the header extensions, and the size of
//! messages. So a second, temporary instance makes an offer that contains them, which is never
//! text. The caller checks the sections before. Sources: RFC 8829 section 5.3, RFC 3264 section 6.

use std::time::Instant;

use str0m::change::{SdpAnswer, SdpOffer, SdpPendingOffer};
use str0m::crypto::Fingerprint;
use str0m::format::FormatParams;
use str0m::media::{Direction, Frequency, MediaKind, Mid};
use str0m::rtp::Extension;
use str0m::{Candidate, IceCreds, Rtc, RtcConfig};

use super::PeerConnection;
use super::config::{base_config, str0m_codec};
use super::output::NegotiationError;
use super::sources::AudioLayout;
use crate::audio::codec::Codec;
use crate::sorting;
use crate::webrtc::crypto;
use crate::webrtc::sdp::{
    self, AUDIO_LEVEL_URI, AcceptedAudio, AnswerTransport, AnsweredSection, CertificateDigest, DescribedSection,
    DtlsRole, MID_URI, SdpDescription, SectionKind,
};

/// Why a description is not used.
pub const NO_FINGERPRINT: &str = "it has no `a=fingerprint`";
/// The header extensions that a connection may use.
pub const EXTENSIONS: [(Extension, &str); 2] = [(Extension::AudioLevel, AUDIO_LEVEL_URI), (Extension::RtpMid, MID_URI)];

/// The sections of the offers that were answered.
#[derive(Default)]
pub struct AnsweredOffers {
    /// The names and kinds of the sections of the last offer, in order.
    pub layout: Vec<(String, SectionKind)>,
    /// The DTLS role of this end; `None` before the first offer.
    role: Option<DtlsRole>,
    /// str0m has an SCTP association.
    has_data: bool,
    /// The sections that the peer stopped, for ever.
    stopped: Vec<String>,
}

/// Returns the credentials of a description for str0m.
pub fn credentials(description: &SdpDescription<'_>) -> Option<IceCreds> {
    let (ufrag, pass) = description.credentials()?;
    Some(IceCreds {
        ufrag: ufrag.to_owned(),
        pass: pass.to_owned(),
    })
}

/// Returns str0m's form of a certificate's digest.
pub fn fingerprint(digest: CertificateDigest) -> Fingerprint {
    Fingerprint {
        hash_func: digest.algorithm,
        bytes: digest.bytes,
    }
}

/// An offer of this end, and what it changes.
pub type PendingOffer = (SdpOffer, SdpPendingOffer);

/// Applies the answer to an offer of this end. `config` is that of the connection, and `role` its
/// role in DTLS, where it has none yet.
///
/// # Errors
/// Why the answer cannot be used.
pub fn apply_answer(
    rtc: &mut Rtc,
    config: RtcConfig,
    (offer, pending): PendingOffer,
    answer: &SdpDescription<'_>,
    role: Option<DtlsRole>,
    now: Instant,
) -> Result<(), String> {
    let answered = answer_as(answer, config, offer, now)?;
    if let Some(role) = role {
        let digest = answer.fingerprint().ok_or(NO_FINGERPRINT)?;
        let mut api = rtc.direct_api();
        api.set_remote_fingerprint(fingerprint(digest));
        api.start_dtls(role == DtlsRole::Client)
            .map_err(|error| error.to_string())?;
    }
    let applied = rtc.sdp_api().accept_answer(pending, answered);
    applied.map_err(|error| error.to_string())
}

/// Answers an offer of this end as its peer did, as far as that differs from other answers: in its
/// credentials, header extensions and the size of messages. str0m's other form of an answer is
/// text.
fn answer_as(
    answer: &SdpDescription<'_>,
    config: RtcConfig,
    offer: SdpOffer,
    now: Instant,
) -> Result<SdpAnswer, String> {
    let creds = credentials(answer).ok_or("it has no ICE credentials")?;
    let mut config = config
        .clear_extension_map()
        .set_local_ice_credentials(creds)
        .set_sctp_max_message_size(answer.max_message_bytes());
    let mut sections = answer.sections.iter();
    if let Some(audio) = sections.find(|section| section.kind == SectionKind::Audio) {
        for (extension, uri) in EXTENSIONS {
            if let Some(id) = audio.extension_id(uri) {
                config = config.set_extension(id, extension);
            }
        }
    }
    let mut template = config.build(now);
    let answer = template.sdp_api().accept_offer(offer);
    answer.map_err(|error| error.to_string())
}

impl PeerConnection {
    /// Returns whether another section may take the place of this one: it was stopped or is not
    /// used.
    pub(super) fn is_free(&self, mid: &str) -> bool {
        self.answered.stopped.iter().any(|stopped| stopped == mid) || self.rtc.media(mid.into()).is_none()
    }

    /// Returns whether an offer has a section with the codec of the connection.
    pub(super) fn has_usable_audio(&self, offer: &SdpDescription<'_>) -> bool {
        let mut sections = offer.sections.iter();
        sections.any(|section| self.accepted_payload_type(section).is_some())
    }

    /// Applies an offer whose sections were checked. `handle_restart` is called if it restarts ICE.
    /// Returns the answer.
    ///
    /// # Errors
    /// [`NegotiationError`] says what the offer lacks, or that this end is at fault. Only the first
    /// offer of a connection can fail once anything has been changed.
    pub(super) fn answer_description(
        &mut self,
        offer: &SdpDescription<'_>,
        role: DtlsRole,
        handle_restart: impl FnOnce(&mut Self),
    ) -> Result<String, NegotiationError> {
        if self.answered.role.is_none() {
            self.start_transport(offer, role)?;
        }
        let ufrag = self.local_ufrag();
        self.apply_transport(offer)?;
        if self.local_ufrag() != ufrag {
            handle_restart(self);
        }
        let layout = offer.layout();
        for (index, (mid, _)) in std::mem::replace(&mut self.answered.layout, layout).iter().enumerate() {
            if offer.sections.get(index).is_some_and(|section| section.mid != mid) {
                self.rtc.direct_api().remove_media(mid.as_str().into());
                self.answered.stopped.retain(|stopped| stopped != mid);
            }
        }
        let accepted: Vec<Option<u8>> = offer.sections.iter().map(|section| self.apply(section)).collect();
        self.write_answer(offer, &accepted)
    }

    /// Sets what stays for the whole connection.
    fn start_transport(&mut self, offer: &SdpDescription<'_>, role: DtlsRole) -> Result<(), NegotiationError> {
        let digest = offer
            .fingerprint()
            .ok_or_else(|| NegotiationError::BadDescription("the offer has no `a=fingerprint:sha-256`".to_owned()))?;
        let mut api = self.rtc.direct_api();
        api.set_remote_fingerprint(fingerprint(digest));
        // The end that offers controls, unless it makes no checks; RFC 8445 section 6.1.1.
        api.set_ice_controlling(offer.is_ice_lite());
        api.start_dtls(role == DtlsRole::Client)
            .map_err(|error| NegotiationError::Internal(error.to_string()))?;
        self.answered.role = Some(role);
        Ok(())
    }

    /// Applies the peer's credentials, which may restart ICE, its data channels, and the payload
    /// type and header extensions of a room's first track.
    fn apply_transport(&mut self, offer: &SdpDescription<'_>) -> Result<(), NegotiationError> {
        let internal = |why: String| NegotiationError::Internal(why);
        let cert = crypto::certificate().map_err(|error| internal(error.to_string()))?;
        let creds = credentials(offer)
            .ok_or_else(|| NegotiationError::BadDescription("the offer has no ICE credentials".to_owned()))?;
        let has_data = offer.has_data() && !self.answered.has_data;
        // A codec that no connection has, so that an offer without audio changes none.
        let mut config = base_config(self.config.provider.clone(), cert.clone())
            .enable_g722(true, false)
            .clear_extension_map()
            .set_local_ice_credentials(creds)
            .set_sctp_max_message_size(offer.max_message_bytes());
        if self.config.audio_layout == AudioLayout::Tracks
            && let Some((section, track)) = offer.first_with(Codec::Opus)
        {
            let (opus, clock) = (str0m::format::Codec::Opus, Frequency::FORTY_EIGHT_KHZ);
            let (number, format) = (track.payload_type.into(), FormatParams::default());
            config
                .codec_config()
                .add_config(number, None, opus, clock, Some(2), format);
            for (extension, uri) in EXTENSIONS {
                if let Some(id) = section.extension_id(uri) {
                    config = config.set_extension(id, extension);
                }
            }
        }
        let mut template = config.build(self.now);
        let mut change = template.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::Inactive, None, None, None);
        if has_data {
            change.add_channel(String::new());
        }
        let (offer, _) = change
            .apply()
            .ok_or_else(|| internal("there is nothing to apply".to_owned()))?;
        let applied = self.rtc.sdp_api().accept_offer(offer);
        applied.map_err(|error| internal(error.to_string()))?;
        // The next template takes its place.
        self.rtc.sdp_api().stop_media(mid);
        self.answered.has_data |= has_data;
        Ok(())
    }

    /// Returns the payload type with which a section is accepted. One end alone chooses it if that
    /// end receives and the other does not.
    fn accepted_payload_type(&self, section: &DescribedSection<'_>) -> Option<u8> {
        if section.kind != SectionKind::Audio || section.is_stopped {
            return None;
        }
        let codec = self.config.audio_codec.codec;
        let ours = self.payload_type()?;
        let mut theirs = section.payload_types(codec);
        theirs
            .any(|number| number == ours || !section.sender_receives)
            .then_some(ours)
    }

    /// Returns the payload type of the audio.
    fn payload_type(&self) -> Option<u8> {
        let codec = str0m_codec(self.config.audio_codec.codec);
        let params = self.rtc.codec_config().find(|params| params.spec().codec == codec)?;
        Some(*params.pt())
    }

    /// Applies one section. Returns its payload type if it is accepted.
    fn apply(&mut self, section: &DescribedSection<'_>) -> Option<u8> {
        let mid: Mid = section.mid.into();
        let was_stopped = self.answered.stopped.iter().any(|stopped| stopped == section.mid);
        if section.is_stopped && !was_stopped {
            self.answered.stopped.push(section.mid.to_owned());
        }
        let number = self.accepted_payload_type(section).filter(|_| !was_stopped);
        let Some(number) = number else {
            if self.rtc.media(mid).is_some() {
                self.rtc.sdp_api().set_direction(mid, Direction::Inactive);
            }
            return None;
        };
        if self.rtc.media(mid).is_none() {
            self.rtc.direct_api().declare_media(mid, MediaKind::Audio);
        }
        let direction = direction(section);
        self.rtc.sdp_api().set_direction(mid, direction);
        let mut api = self.rtc.direct_api();
        if direction.is_sending() && api.stream_tx_by_mid(mid, None).is_none() {
            let source = api.new_ssrc();
            api.declare_stream_tx(source, None, mid, None);
        }
        if direction.is_receiving() {
            for source in section.media_sources() {
                api.expect_stream_rx(source.into(), None, mid, None).suppress_nack(true);
            }
        }
        Some(number)
    }

    /// Handles a medium that str0m has added. Those of templates are not in any offer.
    pub(super) fn handle_media(&mut self, mid: Mid) {
        let mut layout = self.answered.layout.iter();
        let is_offered = layout.any(|(offered, _)| mid == offered.as_str().into());
        let is_client = self.config.audio_layout == AudioLayout::SingleClient;
        if let Some(number) = self.payload_type().filter(|_| is_offered && is_client) {
            self.sources.handle_media(&mut self.rtc, mid);
            self.sender.add_section(mid, number.into());
        }
    }

    fn write_answer(
        &mut self,
        offer: &SdpDescription<'_>,
        accepted: &[Option<u8>],
    ) -> Result<String, NegotiationError> {
        let role = self.answered.role.unwrap_or(DtlsRole::Server);
        let api = self.rtc.direct_api();
        let IceCreds { ufrag, pass } = api.local_ice_credentials();
        let digest = api.local_dtls_fingerprint().bytes.clone();
        let candidates = self.local_candidates.iter().cloned().map(|mut candidate| {
            candidate.set_ufrag(&ufrag);
            candidate.to_sdp_string()
        });
        let transport = AnswerTransport {
            session_id: self.config.seed >> 2,
            candidates: candidates.collect(),
            password: pass,
            digest,
            setup: role.setup(),
            ufrag: ufrag.clone(),
        };
        let pairs = offer.sections.iter().zip(accepted);
        let sections: Vec<AnsweredSection<'_>> = pairs
            .map(|(section, number)| self.answered_section(section, *number))
            .collect();
        Ok(sdp::write_answer(&transport, &sections))
    }

    fn answered_section<'s>(&mut self, section: &DescribedSection<'s>, number: Option<u8>) -> AnsweredSection<'s> {
        let mid: Mid = section.mid.into();
        let is_known = |(extension, _): &&(Extension, &str)| {
            let is_of_kind = section.kind == SectionKind::Audio || *extension == Extension::RtpMid;
            is_of_kind && self.config.extensions.id_of(extension.clone()).is_some()
        };
        let known = EXTENSIONS.iter().filter(is_known).filter(|_| !section.is_stopped);
        let mut extensions: Vec<(u8, &'static str)> = known
            .filter_map(|(_, uri)| Some((section.extension_id(uri)?, *uri)))
            .collect();
        sorting::sort(&mut extensions);
        let direction = match section.is_stopped {
            true => Direction::Inactive,
            false => direction(section),
        };
        let source = self
            .rtc
            .direct_api()
            .stream_tx_by_mid(mid, None)
            .map(|stream| *stream.ssrc());
        let audio = number.zip(self.rtc.media(mid)).map(|(payload_type, media)| {
            let (stream, track) = section.msid().unwrap_or((media.stream_id(), media.track_id()));
            AcceptedAudio {
                codec: self.config.audio_codec.codec,
                payload_type,
                has_transport_feedback: section.has_transport_feedback(payload_type),
                telephone_event: section.telephone_event().filter(|_| self.config.dtmf.is_some()),
                stream: stream.to_owned(),
                track: track.to_owned(),
                source: source.map(|source| (source, media.cname().to_owned())),
            }
        });
        AnsweredSection {
            kind: section.kind,
            profile: section.profile,
            mid: section.mid,
            extensions,
            direction: match direction {
                Direction::SendRecv => "sendrecv",
                Direction::SendOnly => "sendonly",
                Direction::RecvOnly => "recvonly",
                Direction::Inactive => "inactive",
            },
            audio,
        }
    }

    /// Adds an address of this end. Returns its candidate line for the peer, without `a=`.
    pub(super) fn add_local_candidate(&mut self, candidate: Candidate) -> Option<String> {
        let added = self.rtc.add_local_candidate(candidate)?.clone();
        let line = added.to_sdp_string();
        self.local_candidates.retain(|known| !is_same(known, &added));
        self.local_candidates.push(added);
        Some(line)
    }

    /// Removes an address of this end.
    pub(super) fn remove_local_candidate(&mut self, candidate: &Candidate) {
        self.rtc.direct_api().invalidate_candidate(candidate);
        self.local_candidates.retain(|known| !is_same(known, candidate));
    }
}

fn is_same(one: &Candidate, other: &Candidate) -> bool {
    (one.addr(), one.proto(), one.kind()) == (other.addr(), other.proto(), other.kind())
}

/// Returns the direction of this end.
fn direction(section: &DescribedSection<'_>) -> Direction {
    match (section.sender_receives, section.sender_sends) {
        (true, true) => Direction::SendRecv,
        (true, false) => Direction::SendOnly,
        (false, true) => Direction::RecvOnly,
        (false, false) => Direction::Inactive,
    }
}

#[cfg(test)]
mod tests;
