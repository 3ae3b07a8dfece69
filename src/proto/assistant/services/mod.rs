//! The services of the bot `cascade`: recognisers, chat models and voices.
//!
//! - [`endpoint`]: where they listen, and their keys; [`failure`]: what can go wrong;
//!   [`progress`]: what an event adds
//! - [`wyoming`]: events over TCP; [`sse`]: server-sent events over HTTP
//! - [`chat`], [`transcription`], [`speech`]: the three services over HTTP

pub mod chat;
pub mod endpoint;
pub mod failure;
pub mod progress;
pub mod speech;
pub mod sse;
pub mod transcription;
pub mod wyoming;
