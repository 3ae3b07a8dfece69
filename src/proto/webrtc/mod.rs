//! WebRTC: offers and answers, one peer connection, the session over it, and the network below.
//!
//! - Offers: [`sdp`], [`offer`] (bodies), [`candidate`], [`whip`], [`ice`] (lists of servers)
//! - A connection: [`connection`], [`crypto`] (DTLS, SRTP), [`sctp`] (devices' data channels),
//!   [`outbox`] (messages to the client), [`session`]
//! - The network: [`packet_kind`], [`stun`] and [`packet_router`] (whose datagram), [`rfc4571`] and
//!   [`tcp_connections`] (packets over TCP), [`gather`] (what STUN servers see), [`relay`] (one
//!   allocation at a TURN server), [`backoff`] (errors in a row)
//! - [`ice_diagnosis`]: why a connection did not come to be

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
