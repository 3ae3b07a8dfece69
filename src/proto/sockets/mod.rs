//! Sessions on WebSockets: telephone calls and plain clients.
//!
//! - [`socket`]: one session; [`frames`]: protobuf; [`eval`]: the handshake of `pipecat eval`;
//!   [`start`]: the replies of `/start`; [`options`]: whether they require a token

pub mod eval;
pub mod frames;
pub mod options;
pub mod socket;
pub mod start;
