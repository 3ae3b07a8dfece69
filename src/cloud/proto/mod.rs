//! The cloud agent service: builds, upload grants, regions; and what its client packs.
//!
//! - Requests: [`route`], [`fault`] (every refusal), [`keys`] (whose request), [`regions`], [`range`]
//! - Grants: [`grant`], [`policy`], [`sign`]; uploads: `multipart` of the shared cores, [`verify`]
//! - Builds: [`build`] (states, JSON), [`queue`] (which is next), [`outcome`] (what a command's end means), [`sweep`]
//! - ArchiveStore: [`tar`], [`gzip`], [`unpack`] (which entries may be made), [`pack`] and [`glob`] (what is packed), [`progress`]

pub mod api_error;
pub mod build;
#[cfg(test)]
mod chunked;
pub mod glob;
pub mod grant;
pub mod gzip;
pub mod keys;
pub mod name;
pub mod outcome;
pub mod pack;
pub mod policy;
pub mod progress;
pub mod queue;
pub mod range;
pub mod regions;
pub mod route;
pub mod sign;
pub mod sweep;
pub mod tar;
pub mod unpack;
pub mod verify;
