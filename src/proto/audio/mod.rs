//! Audio of a session, both ways, in pure steps that the media task strings together.
//!
//! In ([`receiver`]): RTP packets -> [`jitter`] puts them in order and says what to decode, recover or conceal -> [`opus`]
//! gives PCM at the rate the bot asked for, through [`resample`]; callers without Opus speak [`g711`]. Out ([`sender`]): the bot's PCM of any length -> [`pacer`]
//! cuts it into 20 ms frames against absolute deadlines and fills pauses with digital silence -> [`encoder`] gives packets.
//! [`codec`] says which of the two a WebRTC call speaks, and [`decoder`] and `encoder` have both.
//! On a socket there is no Opus: [`g711`] on the telephone, and [`playout_pacer`] in the place of the pacer.
//! PCM is `i16` mono everywhere.
//! Nothing here reads a clock: `now` enters with each input. Nothing grows without a cap of `limits`.

#[cfg(feature = "webrtc")]
pub mod codec;
#[cfg(feature = "webrtc")]
pub mod decoder;
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
#[cfg(feature = "webrtc")]
pub mod receiver;
pub mod resample;
#[cfg(feature = "webrtc")]
pub mod sender;
#[cfg(any(test, feature = "testing"))]
pub mod tone;
pub mod vad;
