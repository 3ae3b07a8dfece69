//! The built-in bots that talk by the services of others.
//!
//! [`realtime`] drives an engine of `proto::assistant`; `service_socket` is its connection.
//! [`clients`] are those of recognisers, chat models and voices. `call` and `session_reports` are
//! what such bots share, and [`tools`] are functions of the operator.

mod call;
#[allow(dead_code, reason = "the bot `cascade` will use them")]
pub mod clients;
pub mod realtime;
pub mod service_socket;
mod session_reports;
pub mod tools;
