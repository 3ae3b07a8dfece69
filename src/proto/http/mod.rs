//! The runner's endpoints: what a request asks for, who may ask, and what is answered.
//!
//! - [`route`]; who may ask: [`access`], [`host`], [`origin`], [`fetch_metadata`], [`token`]
//! - [`start`], and [`registry`]: sessions that `/start` made

pub mod access;
pub mod fetch_metadata;
pub mod host;
pub mod origin;
pub mod registry;
pub mod route;
pub mod start;
pub mod token;
