//! Pure protocol code of the cloud service and its client.
//!
//! - Requests: [`route`], [`api_error`], [`keys`], [`regions`], [`log_query`]
//! - Grants: [`grant`], [`policy`], [`sign`]; uploads: [`verify`] and `multipart` of the protocol
//!   crate; [`redirect`] (of the client)
//! - Builds: [`build`] (states, JSON), [`queue`], [`outcome`] (result of a command), [`sweep`]
//! - Archives: [`tar`], [`gzip`], [`unpack`] (validation), [`pack`] and [`glob`] (selection of
//!   files), [`progress`]
//! - [`metrics`] of all of these
//! - Several machines: [`scale`]

pub mod api_error;
pub mod build;
#[cfg(test)]
mod chunked;
pub mod glob;
pub mod grant;
pub mod gzip;
pub mod keys;
pub mod log_query;
pub mod metrics;
pub mod name;
pub mod outcome;
pub mod pack;
pub mod policy;
pub mod progress;
pub mod queue;
pub mod redirect;
pub mod regions;
pub mod route;
pub mod scale;
pub mod sign;
pub mod sweep;
pub mod tar;
pub mod unpack;
pub mod verify;
