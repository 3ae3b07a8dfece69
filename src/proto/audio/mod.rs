//! Audio of a session in both directions, as pure steps that the session combines.
//!
//! Inbound ([`receiver`]): [`jitter`] orders RTP packets and selects the step of the decoder
//! (decode, recover, conceal); [`decoder`] and [`resample`] return PCM at the bot's rate. Outbound
//! ([`sender`]): [`pacer`] cuts the bot's PCM into 20 ms frames at absolute deadlines and fills
//! pauses with digital silence; [`encoder`] returns packets. [`codec`] names the codec of a WebRTC
//! call: [`opus`] or [`g711`]. WebSockets use [`g711`] or PCM, and [`playout_pacer`] in place of
//! the pacer. PCM is `i16` mono everywhere.

#[cfg(feature = "webrtc")]
pub mod codec;
#[cfg(feature = "webrtc")]
pub mod decoder;
pub mod elapsed;
#[cfg(feature = "webrtc")]
pub mod encoder;
pub mod g711;
#[cfg(feature = "webrtc")]
pub mod jitter;
#[cfg(feature = "webrtc")]
pub mod opus;
pub mod pacer;
#[cfg(feature = "webrtc")]
pub mod packet;
pub mod playout_pacer;
pub mod rate_converter;
#[cfg(feature = "webrtc")]
pub mod receiver;
pub mod resample;
#[cfg(feature = "webrtc")]
pub mod sender;
#[cfg(any(test, feature = "testing"))]
pub mod tone;
pub mod vad;
