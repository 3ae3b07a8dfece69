//! One connection against a str0m server in virtual time: what is negotiated, what is heard, and what is refused.

mod publisher;
mod subscriber;
pub(crate) mod world;
