//! Media over QUIC in a build without the feature: only the values of its options.

#[path = "config.rs"]
pub mod config;
#[path = "options.rs"]
pub mod options;
#[path = "relay_url.rs"]
pub mod relay_url;
