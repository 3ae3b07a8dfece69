//! The four configurations of a connection: browser, microcontroller, call, media-room server
//! (SFU).
//!
//! In: what an offer has shown of the other end. Out: a [`ConnectionConfig`], whose fields are all in which
//! connections differ once they are made, and the settings of str0m that belong to it.

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
use crate::limits::{MESSAGE_BYTES_MAX, ROOM_MEDIA_LOST_AFTER, SCTP_BUFFER_BYTES_MAX};
use crate::webrtc::candidate::DeviceAddress;
use crate::webrtc::crypto;
use crate::webrtc::gather::GatheredAddresses;
use crate::webrtc::sdp::{NegotiatedCodec, PreparedOffer};

/// What every connection of this runner shares.
pub struct ConnectionContext {
    provider: Arc<CryptoProvider>,
    /// For clients that offer no header extension.
    bare_provider: Arc<CryptoProvider>,
    embedded_provider: Arc<CryptoProvider>,
    /// How what the bots say is encoded.
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

    /// Returns str0m's settings for an ordinary connection with Opus.
    pub(crate) fn default_rtc_config(&self, cert: DtlsCert) -> RtcConfig {
        base_config(self.provider.clone(), cert).enable_opus(true, false)
    }

    /// Makes a connection that goes nowhere: the self-tests of DTLS run once per process, and take
    /// longer than an answer.
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

/// What the connection to a client is made from, beside its offer.
pub struct ConnectionSetup<'a> {
    pub context: &'a ConnectionContext,
    /// Host candidates to offer, each with the port of the runner's UDP socket.
    pub local: &'a [SocketAddr],
    /// Addresses at which the HTTP server listens, for callers whose network lets no UDP through.
    pub tcp: &'a [SocketAddr],
    /// What STUN and TURN servers gave beside them.
    pub gathered: &'a GatheredAddresses,
    /// The one address that clients of an embedded runner are offered.
    pub embedded: Option<Ipv4Addr>,
    /// The one address that microcontrollers are offered; nothing when there is no IPv4 address.
    pub device: Option<DeviceAddress>,
    /// Random bits: where sequence numbers and timestamps start.
    pub seed: u64,
    /// More of them, which are not reported.
    pub secret: IceSecret,
}

/// What tells one connection from another.
pub struct ConnectionConfig {
    provider: Arc<CryptoProvider>,
    pub audio_codec: NegotiatedCodec,
    extensions: ExtensionMap,
    /// RTP leaves without the empty header extension that str0m writes.
    pub strips_extension: bool,
    /// The other end is a microcontroller.
    pub is_device: bool,
    /// The keys of a telephone are negotiated.
    pub has_dtmf: bool,
    pub audio_layout: AudioLayout,
    /// The one audio section takes packets of sources that it does not name.
    pub accepts_any_source: bool,
    pub messages: MessageFormat,
    /// The operator has named the other end, which may therefore be at an address of this machine.
    pub named_by_operator: bool,
    /// A goodbye of the other end is answered. A media-room server waits for none.
    pub replies_to_close: bool,
    /// Silence after which the connection has failed. The sessions of clients judge that
    /// themselves.
    pub silence_timeout: Option<Duration>,
    /// Random bits: where sequence numbers and timestamps start.
    pub seed: u64,
    /// What this end's ICE credentials come from; str0m makes them where there is none.
    pub secret: Option<IceSecret>,
}

impl ConnectionConfig {
    /// Makes the configuration of a browser's connection.
    ///
    /// A client that offers no header extension may read the media from byte 12: small stacks do.
    /// To others it makes no difference, since only the empty block is left out. The keys are the
    /// same, and so is the protection of whichever profile the handshake chooses.
    pub fn browser(setup: &ConnectionSetup<'_>, offer: &PreparedOffer, spoken: NegotiatedCodec) -> Self {
        let common = setup.context;
        let (provider, extensions) = match offer.has_extensions {
            true => (&common.provider, extensions(&[(4, Extension::RtpMid)])),
            false => (&common.bare_provider, ExtensionMap::empty()),
        };
        ConnectionConfig {
            extensions,
            strips_extension: !offer.has_extensions,
            accepts_any_source: offer.audio_sections == 1,
            secret: Some(setup.secret),
            ..ConnectionConfig::plain(provider, spoken, setup.seed)
        }
    }

    /// Makes the configuration that the others differ from.
    fn plain(provider: &Arc<CryptoProvider>, spoken: NegotiatedCodec, seed: u64) -> Self {
        ConnectionConfig {
            provider: provider.clone(),
            audio_codec: spoken,
            extensions: ExtensionMap::empty(),
            strips_extension: false,
            is_device: false,
            has_dtmf: false,
            audio_layout: AudioLayout::SingleClient,
            accepts_any_source: false,
            messages: MessageFormat::Text,
            named_by_operator: false,
            replies_to_close: true,
            silence_timeout: None,
            seed,
            secret: None,
        }
    }

    /// Makes the configuration of a microcontroller's connection.
    pub fn device(setup: &ConnectionSetup<'_>, offer: &PreparedOffer, spoken: NegotiatedCodec) -> Self {
        ConnectionConfig {
            provider: setup.context.embedded_provider.clone(),
            is_device: true,
            ..ConnectionConfig::bare(setup, offer, spoken)
        }
    }

    /// Makes the configuration of a connection to the server of a call.
    pub fn call(setup: &ConnectionSetup<'_>, offer: &PreparedOffer, spoken: NegotiatedCodec) -> Self {
        ConnectionConfig {
            has_dtmf: true,
            ..ConnectionConfig::bare(setup, offer, spoken)
        }
    }

    /// Makes the configuration of a client that reads the media from byte 12, whatever its offer
    /// says.
    fn bare(setup: &ConnectionSetup<'_>, offer: &PreparedOffer, spoken: NegotiatedCodec) -> Self {
        ConnectionConfig {
            provider: setup.context.bare_provider.clone(),
            extensions: ExtensionMap::empty(),
            strips_extension: true,
            ..ConnectionConfig::browser(setup, offer, spoken)
        }
    }

    /// Makes the configuration of a connection to a media-room server.
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
            silence_timeout: Some(ROOM_MEDIA_LOST_AFTER),
            ..ConnectionConfig::plain(&common.provider, spoken, seed)
        }
    }

    /// Returns str0m's settings.
    pub(super) fn rtc_config(&self, cert: DtlsCert) -> RtcConfig {
        let mut config = with_codec(base_config(self.provider.clone(), cert), self.audio_codec)
            .set_extension_map(self.extensions.clone());
        if self.has_dtmf {
            config.codec_config().add_config(
                DTMF_PT.into(),
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

/// The payload type that str0m offers Opus with.
const OPUS_PT: u8 = 111;
/// The payload type of the telephone's keys before an offer gives another: the one that browsers
/// use.
const DTMF_PT: u8 = 126;

/// What every connection has in common.
pub(super) fn base_config(provider: Arc<CryptoProvider>, cert: DtlsCert) -> RtcConfig {
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

/// Takes a codec, and G.711 by the payload type that the offer has for it.
fn with_codec(mut config: RtcConfig, spoken: NegotiatedCodec) -> RtcConfig {
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

/// Returns the header extensions that are negotiated, by their numbers.
fn extensions(known: &[(u8, Extension)]) -> ExtensionMap {
    let mut map = ExtensionMap::empty();
    for (id, extension) in known {
        map.set(*id, extension.clone());
    }
    map
}
