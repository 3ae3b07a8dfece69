//! The cloud agent service (builds, upload grants, regions) and its client.
//!
//! - [`proto`]: pure protocol code; [`config`] and [`limits`]: its configuration and caps
//! - [`io`]: the service and the client, with sockets, tasks and files
//! - [`cli`]: the arguments after `edge-runner cloud`

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "a test may take the clock once, as the origin of its time"
    )
)]

pub mod cli;
pub mod config;
mod error;
pub mod io;
pub mod limits;
pub mod proto;
#[cfg(test)]
#[allow(dead_code, reason = "each crate uses a part of it")]
#[path = "../../tests/support/skip.rs"]
mod skip;

pub use error::ServeError;
