//! Sessions on WebSockets: telephone calls and plain clients.
//!
//! - [`socket`]: one session; [`frames`]: protobuf

pub mod frames;
pub mod socket;
