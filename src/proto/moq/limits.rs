//! Limits of Media over QUIC.

use std::time::Duration;

// ---- Media over QUIC

/// Time in which a session of Media over QUIC binds its port or connects to its relay, before
/// `/start` answers 504: that of Pipecat's runner.
pub const MOQ_READY: Duration = Duration::from_secs(15);
/// Bytes of a namespace of Media over QUIC, in `/start` and options; random ones have 24.
pub const MOQ_NAMESPACE_BYTES_MAX: usize = 128;

// ---- internal

/// Connections of Media over QUIC that have not named their session: twice the calls of a full
/// runner.
pub const MOQ_UNBOUND_MAX: usize = 64;
/// Those of one source: the callers of an office behind one address.
pub const MOQ_UNBOUND_PER_SOURCE: usize = 16;
/// Such connections at which new ones have to prove their address first: a flood with forged
/// addresses then costs one datagram each, and callers of an idle runner save a round trip.
pub const MOQ_RETRY_FROM: usize = 8;
