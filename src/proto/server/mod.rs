//! Parts of any HTTP server: framing, clients, bodies, and requests to others.
//!
//! - Connections: [`sniff`] (HTTP, TLS or framed packets), [`request_framing`] (the end of a
//!   request), [`tls`] (the certificate of `--tls auto`), [`acme`] (that of `--tls acme`)
//! - Clients: [`source`] (an address as a key for quotas), [`forwarded`] (the client behind a
//!   trusted proxy), [`quota`] (shares and eviction), [`admission`] (permits), [`key`],
//!   [`log_limit`], [`live_sessions`] (what the operator sees)
//! - Bodies: [`body`] (JSON), [`form`], [`multipart`]; [`range`]: parts of files
//! - [`rest`]: requests to REST APIs

#[cfg(feature = "acme")]
pub mod acme;
pub mod acme_options;
pub mod admission;
pub mod body;
pub mod form;
pub mod forwarded;
pub mod key;
pub mod live_sessions;
pub mod log_limit;
pub mod multipart;
pub mod quota;
pub mod range;
pub mod request_framing;
pub mod rest;
pub mod sniff;
pub mod source;
#[cfg(feature = "tls")]
pub mod tls;
pub mod tls_config;
