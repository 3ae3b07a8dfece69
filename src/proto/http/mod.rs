//! The runner's endpoints: routes, access control, and replies.
//!
//! - [`route`]; access control: [`access`], [`host`], [`origin`], [`fetch_metadata`], [`token`]
//! - [`start`]; [`registry`]: the sessions that `/start` created; [`started`]: those and the ones
//!   of other replicas; [`cluster`]: what replicas share; [`folder`]: files for clients;
//!   [`uploads`]: files of clients
//! - [`page_address`]: the URLs that browsers open; [`traceparent`]: the trace of a session

pub mod access;
pub mod cluster;
pub mod endpoint;
pub mod fetch_metadata;
pub mod folder;
pub mod host;
pub mod origin;
pub mod page_address;
pub mod registry;
pub mod route;
pub mod start;
pub mod started;
pub mod status;
pub mod token;
pub mod traceparent;
pub mod uploads;
