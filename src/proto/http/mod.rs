//! The runner's endpoints: routes, access control, and replies.
//!
//! - [`route`]; access control: [`access`], [`host`], [`origin`], [`fetch_metadata`], [`token`]
//! - [`start`]; [`registry`]: the sessions that `/start` created

pub mod access;
pub mod fetch_metadata;
pub mod host;
pub mod origin;
pub mod registry;
pub mod route;
pub mod start;
pub mod token;
