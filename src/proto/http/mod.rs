//! HTTP: what a request asks for, who may ask, and what is answered.
//!
//! - Connections: [`opening`] (HTTP or TLS), [`request_framing`] (where a request ends), [`tls`] (the
//!   certificate of `--tls auto`)
//! - Who asks: [`access`], [`host`], [`origin`], [`visit`], [`key`], [`source`], [`forwarded`],
//!   [`admission`] (who gets a place, and who loses one), [`token`]
//! - What is asked: [`route`], [`body`], [`form`], [`multipart`], [`start`], [`table`] (sessions that
//!   `/start` made)
//! - [`rest`]: requests to others; [`lines`]: what the log may say

pub mod access;
pub mod admission;
pub mod body;
pub mod form;
pub mod forwarded;
pub mod host;
pub mod key;
pub mod lines;
pub mod multipart;
pub mod opening;
pub mod origin;
pub mod request_framing;
pub mod rest;
pub mod route;
pub mod source;
pub mod start;
pub mod table;
#[cfg(feature = "tls")]
pub mod tls;
pub mod token;
pub mod visit;
