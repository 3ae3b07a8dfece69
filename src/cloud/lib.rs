//! The cloud agent service: builds, upload grants, regions; and its client.
//!
//! - [`proto`]: its pure cores; [`config`] and [`limits`]: what they are held to
//! - [`io`]: the service and the client, with sockets, tasks and files
//! - [`cli`]: the arguments behind `edge-runner cloud`

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

pub use error::ServeError;
