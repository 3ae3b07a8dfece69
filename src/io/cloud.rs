//! The cloud agent service: its parts, from start to end; and its client.

pub mod app;
pub mod archives;
pub mod builder;
pub mod client;
pub mod disk;
pub mod guard;
pub mod house;
pub mod keys;
pub mod log;
pub mod records;
pub mod sweep;
pub mod unpack;
pub mod upload;
