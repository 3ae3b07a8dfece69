//! The built-in bots that talk by the services of others.
//!
//! [`realtime`] drives the engine of `proto::assistant`; `service_socket` is its connection.

pub mod realtime;
pub mod service_socket;
