//! WebRTC: offers and answers, peer connections, sessions, and the packets below them.
//!
//! - Signalling: [`sdp`], [`offer`] (bodies), [`candidate`], [`whip`], [`ice`] (server lists)
//! - Connection: [`connection`], [`crypto`] (DTLS, SRTP), [`sctp`] (devices' data channels),
//!   [`outbox`] (messages to the client), [`session`]
//! - Network: [`packet_kind`], [`stun`] and [`packet_router`] (demultiplexing), [`rfc4571`] and
//!   [`tcp_connections`] (ICE over TCP), [`gather`] (STUN), [`relay`] (TURN), [`backoff`]
//! - [`ice_diagnosis`]: why a connection was not established

#[cfg(feature = "webrtc")]
pub mod backoff;
pub mod candidate;
#[cfg(feature = "webrtc")]
pub mod connection;
#[cfg(feature = "webrtc")]
pub mod crypto;
pub mod gather;
pub mod ice;
#[cfg(feature = "webrtc")]
pub mod ice_diagnosis;
pub mod offer;
pub mod options;
#[cfg(feature = "webrtc")]
pub mod outbox;
pub mod packet_kind;
#[cfg(feature = "webrtc")]
pub mod packet_router;
#[cfg(feature = "turn")]
pub mod relay;
pub mod rfc4571;
#[cfg(feature = "webrtc")]
pub mod sctp;
#[cfg(feature = "webrtc")]
pub mod sdp;
#[cfg(feature = "webrtc")]
pub mod session;
pub mod stun;
#[cfg(feature = "webrtc")]
pub mod tcp_connections;
pub mod whip;
