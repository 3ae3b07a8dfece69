//! What both servers stand on, the runner and the cloud agent service: listening, connections and
//! their permits, TLS, request bodies and answers, the HTTP client, and the life of the process.
//!
//! - Connections: [`server`] (accept, limits of time), [`permits`], [`stream`] (TCP or TLS),
//!   [`tls`] (certificates of one's own or of `--tls auto`)
//! - Requests: [`common`] (who asks, bodies within their caps, answers), [`payload`] (what an
//!   answer carries)
//! - Requests to others: [`client`]
//! - The process: [`logging`], [`services`] (tasks without which it is of no use), [`signal`],
//!   [`startup`], [`shutdown`], [`tasks`], [`watch`] and [`notify`] (stalls, the supervisor),
//!   [`memory`], [`group`] (process groups), [`store`] (files of state)

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "sockets, tasks and the clock live in this crate"
)]

#[cfg(feature = "client")]
pub mod client;
pub mod common;
pub mod group;
pub mod lock;
pub mod logging;
pub mod memory;
pub mod notify;
pub mod payload;
pub mod permits;
pub mod server;
pub mod services;
pub mod shutdown;
pub mod signal;
pub mod startup;
pub mod store;
pub mod stream;
pub mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
pub mod tls;
pub mod watch;
