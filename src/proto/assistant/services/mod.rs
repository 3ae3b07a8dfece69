//! The services of the bot `cascade`: recognisers, chat models and voices.
//!
//! - [`endpoint`]: where they listen, and their keys; [`failure`]: what can go wrong;
//!   [`progress`]: what an event adds
//! - [`wyoming`]: events over TCP; [`sse`]: server-sent events over HTTP
//! - [`chat`], [`transcription`], [`speech`]: the three services over HTTP

#[cfg(feature = "assistants")]
pub mod chat;
pub mod endpoint;
#[cfg(feature = "assistants")]
pub mod failure;
#[cfg(feature = "assistants")]
pub mod progress;
#[cfg(feature = "assistants")]
pub mod speech;
#[cfg(feature = "assistants")]
pub mod sse;
#[cfg(feature = "assistants")]
pub mod transcription;
#[cfg(feature = "assistants")]
pub mod wyoming;
