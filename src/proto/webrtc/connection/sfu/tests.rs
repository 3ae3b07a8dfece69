//! One connection to a str0m server in virtual time: negotiation, audio, and rejected descriptions.

mod publisher;
mod subscriber;
pub(crate) mod world;
