//! The built-in bots that talk by the services of others.
//!
//! [`realtime`] and [`cascade`] drive the engines of `proto::assistant`; `service_socket` and
//! `cascade_requests` are their connections, the latter by the clients in [`clients`]. `call` and
//! `session_reports` are what both share, and [`tools`] are functions of the operator.

mod call;
pub mod cascade;
mod cascade_requests;
pub mod clients;
pub mod realtime;
pub mod service_socket;
mod session_reports;
pub mod tools;
