//! What any HTTP server needs to know: where a request begins and ends, who sends it, its body, and
//! requests to others.
//!
//! - Connections: [`sniff`] (HTTP or TLS), [`request_framing`] (where a request ends), [`tls`]
//!   (the certificate of `--tls auto`)
//! - Senders: [`source`] (whom an address stands for), [`forwarded`] (for whom a trusted proxy
//!   asks), [`admission`] (who gets a place, and who loses one), [`key`], [`log_limit`] (what the log
//!   may say)
//! - Bodies: [`body`] (JSON), [`form`], [`multipart`]; [`rest`]: requests to others

pub mod admission;
pub mod body;
pub mod form;
pub mod forwarded;
pub mod key;
pub mod log_limit;
pub mod multipart;
pub mod request_framing;
pub mod rest;
pub mod sniff;
pub mod source;
#[cfg(feature = "tls")]
pub mod tls;
