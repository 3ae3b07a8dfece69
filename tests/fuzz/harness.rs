//! What each target has: the entries, and the limits of what an input may cost.
#![allow(dead_code, reason = "each target uses one entry")]

#[path = "../support/allocations.rs"]
mod allocations;
#[path = "entries.rs"]
pub mod entries;
#[path = "oracle.rs"]
pub mod oracle;
