//! The four configurations of a connection: browser, microcontroller, call, and media-room server
//! (SFU).
//!
//! In: what an offer says about the peer. Out: a [`ConnectionConfig`] with everything in which
//! connections differ, and the str0m settings derived from it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use str0m::crypto::CryptoProvider;
use str0m::crypto::dtls::DtlsCert;
use str0m::format::FormatParams;
use str0m::media::Frequency;
use str0m::rtp::{Extension, ExtensionMap};
use str0m::{Rtc, RtcConfig};

use super::channels::MessageFormat;
use super::credentials::IceSecret;
use super::sources::AudioLayout;
use crate::audio::codec::Codec;
use crate::audio::g711::Law;
use crate::audio::opus::EncoderSettings;
use crate::limits::{MESSAGE_BYTES_MAX, ROOM_MEDIA_LOST_AFTER};
use crate::webrtc::candidate::DeviceAddress;
use crate::webrtc::crypto;
use crate::webrtc::gather::GatheredAddresses;
use crate::webrtc::sdp::{DescribedSection, NegotiatedCodec, PreparedOffer, SdpDescription};

/// Bytes of messages that one session buffers for a peer that acknowledges slowly.
const SCTP_BUFFER_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// Resources that all connections of a runner share.
pub struct ConnectionContext {
    provider: Arc<CryptoProvider>,
    /// For clients that offer no header extension.
    bare_provider: Arc<CryptoProvider>,
    embedded_provider: Arc<CryptoProvider>,
    /// The encoder settings for the bots' audio.
    pub encoder_settings: EncoderSettings,
}

impl ConnectionContext {
    pub fn new(voice: EncoderSettings) -> Self {
        ConnectionContext {
            provider: Arc::new(crypto::provider()),
            bare_provider: Arc::new(crypto::bare_provider()),
            embedded_provider: Arc::new(crypto::embedded_provider()),
            encoder_settings: voice,
        }
    }

    /// Returns how many connections hold a provider.
    #[cfg(test)]
    pub fn providers_in_use(&self) -> usize {
        let providers = [&self.provider, &self.bare_provider, &self.embedded_provider];
        providers.map(|provider| Arc::strong_count(provider) - 1).iter().sum()
    }

    /// Returns the provider of ordinary connections.
    #[cfg(test)]
    pub fn provider(&self) -> Arc<CryptoProvider> {
        self.provider.clone()
    }

    /// Returns str0m's settings for an ordinary connection with Opus.
    pub(crate) fn default_rtc_config(&self, cert: DtlsCert) -> RtcConfig {
        base_config(self.provider.clone(), cert).enable_opus(true, false)
    }

    /// Builds and drops one connection, so that dimpl's self-tests do not delay the first answer.
    pub fn warm_up(&self, now: Instant) {
        if let Ok(cert) = crypto::certificate() {
            drop(self.default_rtc_config(cert.clone()).build(now));
        }
    }
}

impl Default for ConnectionContext {
    fn default() -> Self {
        ConnectionContext::new(EncoderSettings::default())
    }
}

/// What a connection to a client is created from, beside its offer.
pub struct ConnectionSetup<'a> {
    pub context: &'a ConnectionContext,
    /// Host candidates to offer, each with the port of the runner's UDP socket.
    pub local: &'a [SocketAddr],
    /// Addresses of the HTTP server, for clients whose network blocks UDP.
    pub tcp: &'a [SocketAddr],
    /// Addresses obtained from STUN and TURN servers.
    pub gathered: &'a GatheredAddresses,
    /// The one address that `--embedded` offers.
    pub embedded: Option<Ipv4Addr>,
    /// The one address for microcontrollers; `None` without an IPv4 address.
    pub device: Option<DeviceAddress>,
    /// Random bits for the first sequence number and timestamp.
    pub seed: u64,
    /// Random bits for ICE credentials; they never leave the runner.
    pub secret: IceSecret,
}

/// The properties in which connections differ.
pub struct ConnectionConfig {
    pub provider: Arc<CryptoProvider>,
    pub audio_codec: NegotiatedCodec,
    pub extensions: ExtensionMap,
    /// RTP packets are sent without the empty header extension that str0m writes.
    pub strips_extension: bool,
    /// The peer is a microcontroller.
    pub is_device: bool,
    /// The peer is the server of a call.
    pub is_call: bool,
    /// The payload type of DTMF events, if they are offered.
    pub dtmf: Option<u8>,
    pub audio_layout: AudioLayout,
    /// The only audio section accepts packets of any source.
    pub accepts_any_source: bool,
    pub messages: MessageFormat,
    /// The operator named the peer, which may therefore use an address of this machine.
    pub named_by_operator: bool,
    /// A close of the peer is answered. SFUs do not wait for that.
    pub replies_to_close: bool,
    /// TCP candidates of the peer are reported, so that the session can connect to them.
    pub connects_over_tcp: bool,
    /// The silence that is reported. Sessions with clients decide that themselves.
    pub silence_timeout: Option<Duration>,
    /// Random bits for the first sequence number and timestamp.
    pub seed: u64,
    /// The seed of this end's ICE credentials. str0m generates them if it is `None`.
    pub secret: Option<IceSecret>,
}

impl ConnectionConfig {
    /// Returns the configuration for a browser.
    ///
    /// A client that offers no header extension may expect the payload at byte 12, as small stacks
    /// do. For other clients the packets are equivalent, since only an empty extension is omitted.
    /// Keys and SRTP profiles are unaffected.
    pub fn browser(setup: &ConnectionSetup<'_>, offer: &PreparedOffer, spoken: NegotiatedCodec) -> Self {
        let common = setup.context;
        let provider = match offer.has_extensions {
            true => &common.provider,
            false => &common.bare_provider,
        };
        let mid = offer.mid_extension.map(|id| (id, Extension::RtpMid));
        ConnectionConfig {
            extensions: extensions(mid.as_slice()),
            strips_extension: !offer.has_extensions,
            accepts_any_source: offer.audio_sections == 1,
            secret: Some(setup.secret),
            ..ConnectionConfig::plain(provider, spoken, setup.seed)
        }
    }

    /// Returns the common base of all configurations.
    fn plain(provider: &Arc<CryptoProvider>, spoken: NegotiatedCodec, seed: u64) -> Self {
        ConnectionConfig {
            provider: provider.clone(),
            audio_codec: spoken,
            extensions: ExtensionMap::empty(),
            strips_extension: false,
            is_device: false,
            is_call: false,
            dtmf: None,
            audio_layout: AudioLayout::SingleClient,
            accepts_any_source: false,
            messages: MessageFormat::Text,
            named_by_operator: false,
            replies_to_close: true,
            connects_over_tcp: false,
            silence_timeout: None,
            seed,
            secret: None,
        }
    }

    /// Returns the configuration for a microcontroller.
    pub fn device(setup: &ConnectionSetup<'_>, offer: &PreparedOffer, spoken: NegotiatedCodec) -> Self {
        ConnectionConfig {
            provider: setup.context.embedded_provider.clone(),
            is_device: true,
            ..ConnectionConfig::bare(setup, offer, spoken)
        }
    }

    /// Returns the configuration for the server of a call.
    pub fn call(setup: &ConnectionSetup<'_>, offer: &PreparedOffer, spoken: NegotiatedCodec) -> Self {
        let description = SdpDescription::parse(&offer.sdp);
        let keys = description.sections.iter().find_map(DescribedSection::telephone_event);
        ConnectionConfig {
            is_call: true,
            dtmf: keys.map(|(payload_type, _)| payload_type),
            ..ConnectionConfig::bare(setup, offer, spoken)
        }
    }

    /// Returns the configuration for clients that expect the payload at byte 12, whatever they
    /// offer.
    fn bare(setup: &ConnectionSetup<'_>, offer: &PreparedOffer, spoken: NegotiatedCodec) -> Self {
        ConnectionConfig {
            provider: setup.context.bare_provider.clone(),
            extensions: ExtensionMap::empty(),
            strips_extension: true,
            ..ConnectionConfig::browser(setup, offer, spoken)
        }
    }

    /// Returns the configuration for a media-room server.
    pub fn sfu(common: &ConnectionContext, seed: u64) -> Self {
        let spoken = NegotiatedCodec {
            codec: Codec::Opus,
            payload_type: OPUS_PT,
        };
        ConnectionConfig {
            extensions: extensions(&[(1, Extension::AudioLevel), (4, Extension::RtpMid)]),
            audio_layout: AudioLayout::Tracks,
            messages: MessageFormat::Binary,
            named_by_operator: true,
            replies_to_close: false,
            connects_over_tcp: true,
            silence_timeout: Some(ROOM_MEDIA_LOST_AFTER),
            ..ConnectionConfig::plain(&common.provider, spoken, seed)
        }
    }

    /// Returns str0m's settings.
    pub(super) fn rtc_config(&self, cert: DtlsCert) -> RtcConfig {
        let mut config = with_codec(base_config(self.provider.clone(), cert), self.audio_codec)
            .set_extension_map(self.extensions.clone());
        if let Some(payload_type) = self.dtmf {
            config.codec_config().add_config(
                payload_type.into(),
                None,
                str0m::format::Codec::Tele,
                Frequency::EIGHT_KHZ,
                None,
                FormatParams::default(),
            );
        }
        config
    }
}

/// The payload type with which this end offers Opus.
pub const OPUS_PT: u8 = 111;

/// Returns the settings that all connections share.
pub(super) fn base_config(provider: Arc<CryptoProvider>, cert: DtlsCert) -> RtcConfig {
    Rtc::builder()
        .set_crypto_provider(provider)
        .set_dtls_cert(cert)
        .set_rtp_mode(true)
        .clear_codecs()
        .set_sctp_max_message_size(MESSAGE_BYTES_MAX as u32)
        .set_sctp_max_buffered_amount(SCTP_BUFFER_BYTES_MAX)
        // Audio is never retransmitted and late packets are useless, so the buffers are small.
        .set_send_buffer_audio(8)
        .set_reordering_size_audio(1)
}

/// Adds a codec with the payload type of the offer.
fn with_codec(mut config: RtcConfig, spoken: NegotiatedCodec) -> RtcConfig {
    let (clock, channels, format) = match spoken.codec {
        Codec::Opus => {
            let format = FormatParams {
                min_p_time: Some(10),
                use_inband_fec: Some(true),
                ..FormatParams::default()
            };
            (Frequency::FORTY_EIGHT_KHZ, Some(2), format)
        }
        Codec::G711(_) => (Frequency::EIGHT_KHZ, None, FormatParams::default()),
    };
    let codec = str0m_codec(spoken.codec);
    let codecs = config.codec_config();
    codecs.add_config(spoken.payload_type.into(), None, codec, clock, channels, format);
    config
}

/// Returns str0m's name of a codec.
pub fn str0m_codec(codec: Codec) -> str0m::format::Codec {
    match codec {
        Codec::Opus => str0m::format::Codec::Opus,
        Codec::G711(Law::Mu) => str0m::format::Codec::PCMU,
        Codec::G711(Law::A) => str0m::format::Codec::PCMA,
    }
}

/// Maps the negotiated header extensions to their ids.
fn extensions(known: &[(u8, Extension)]) -> ExtensionMap {
    let mut map = ExtensionMap::empty();
    for (id, extension) in known {
        map.set(*id, extension.clone());
    }
    map
}
