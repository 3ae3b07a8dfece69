//! One connection to a str0m server in virtual time: negotiation, audio, and rejected descriptions.

mod publisher;
pub(crate) mod rig;
mod subscriber;
