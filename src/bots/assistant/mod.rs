//! The built-in bots that talk by the services of others.
//!
//! [`realtime`] drives an engine of `proto::assistant`; `service_socket` is its connection. `call`
//! and `session_reports` are what such bots share.

mod call;
pub mod realtime;
pub mod service_socket;
mod session_reports;
