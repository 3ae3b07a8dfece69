//! Audio of a session in both directions, as pure steps that the session combines.
//!
//! Inbound ([`receiver`]): [`jitter`] orders RTP packets and selects the step of the decoder
//! (decode, recover, conceal); [`decoder`] and [`resample`] return PCM at the bot's rate. Outbound
//! ([`sender`]): [`pacer`] cuts the bot's PCM into 20 ms frames at absolute deadlines and fills
//! pauses with digital silence; [`encoder`] returns packets. [`codec`] names the codec of a WebRTC
//! call: [`opus`] or [`g711`]. WebSockets use [`g711`] or PCM, and [`playout_pacer`] in place of
//! the pacer. PCM is `i16` mono everywhere.

pub mod elapsed;
pub mod g711;
pub mod last_speech;
pub mod note;
pub mod pacer;
pub mod playout_pacer;
pub mod queue;
pub mod rate_converter;
pub mod resample;
#[cfg(any(test, feature = "testing"))]
pub mod tone;
pub mod vad;

/// The names of the codecs of WebRTC calls as in `a=rtpmap`, the preferred one first. Metrics of
/// every build have them.
pub const CODEC_NAMES: [&str; 3] = ["Opus", "PCMU", "PCMA"];

cfg_if::cfg_if! {
    if #[cfg(feature = "opus")] {
        pub mod codec;
        pub mod decoder;
        pub mod encoder;
        pub mod jitter;
        pub mod opus;
        pub mod packet;
        pub mod receiver;
        pub mod sender;
    }
}

/// Returns the name and version of the Opus codec; `None` in a build without one.
pub fn opus_name() -> Option<&'static str> {
    cfg_if::cfg_if! {
        if #[cfg(feature = "opus")] {
            Some(opus::codec_name())
        } else {
            None
        }
    }
}
