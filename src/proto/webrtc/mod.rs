//! WebRTC: offers and answers, peer connections, sessions, and the packets below them.
//!
//! - Signalling: [`sdp`], [`offer`] (bodies), [`candidate`], [`whip`], [`ice`] (server lists)
//! - Connection: [`connection`], [`crypto`] (DTLS, SRTP), [`sctp`] (devices' data channels),
//!   [`outbox`] (messages to the client), [`session`]
//! - Network: [`packet_kind`], [`stun`] and [`packet_router`] (demultiplexing), [`rfc4571`] and
//!   [`tcp_connections`] (ICE over TCP), [`gather`] (STUN), [`relay`] (TURN)
//! - [`ice_diagnosis`]: why a connection was not established

pub mod candidate;
pub mod gather;
pub mod ice;
pub mod offer;
pub mod options;
pub mod packet_kind;
#[cfg(feature = "turn")]
pub mod relay;
pub mod rfc4571;
pub mod start;
pub mod stun;
pub mod whip;

cfg_if::cfg_if! {
    if #[cfg(feature = "webrtc")] {
        #[cfg(feature = "call")]
        pub mod call_peer;
        pub mod connection;
        pub mod crypto;
        pub mod ice_diagnosis;
        pub mod outbox;
        pub mod packet_router;
        pub mod sctp;
        pub mod sdp;
        pub mod session;
        pub mod tcp_connections;
    }
}
