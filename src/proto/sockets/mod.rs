//! Sessions on WebSockets: telephone calls, plain clients, and programs that are bots.
//!
//! - [`socket`]: one session; [`telephony`]: the providers, webhooks, hang-up; [`frames`]: protobuf

pub mod frames;
pub mod socket;
pub mod telephony;
