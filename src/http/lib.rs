//! The HTTP server and client, and the process life cycle, shared by the runner and the cloud agent
//! service.
//!
//! - Connections: [`server`] (accept loops, timeouts), [`permits`] (connection cap and eviction),
//!   [`stream`] (TCP or TLS), [`tls`] (certificates from files, of `--tls auto` or `--tls acme`)
//! - Requests: [`common`] (peer, body limits, replies), [`payload`] (response bodies), [`metrics`]
//! - Requests to other servers: [`client`]
//! - The process: [`logging`], [`services`] (tasks whose loss ends the process), [`signal`],
//!   [`startup`], [`shutdown`], [`tasks`], [`watch`] and [`notify`] (stalls, the supervisor),
//!   [`memory`], [`procfs`], [`children`] and [`group`] (processes), [`store`] (files of state),
//!   [`search_path`] (programs in `PATH`), [`script`] (their interpreters), [`host_name`]
//! - [`lock`] and [`sync`]: locks and wake-ups

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "sockets, tasks and the clock live in this crate"
)]

pub mod children;
#[cfg(feature = "client")]
pub mod client;
pub mod common;
pub mod group;
pub mod host_name;
pub mod lock;
mod log_line;
mod log_output;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod notify;
pub mod payload;
pub mod permits;
pub mod port_owner;
pub mod procfs;
pub mod script;
pub mod search_path;
pub mod server;
pub mod services;
pub mod shutdown;
pub mod signal;
#[cfg(test)]
#[allow(dead_code, reason = "each crate uses a part of it")]
#[path = "../../tests/support/skip.rs"]
mod skip;
pub mod startup;
pub mod store;
pub mod stream;
pub mod sync;
pub mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
pub mod tls;
pub mod watch;
