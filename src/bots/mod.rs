//! The built-in bots, of which `--bot` selects one.
//!
//! [`parrot`] repeats what the caller said after a pause, [`echo`] returns every frame at once.
//! Both use only the public API for bots. `assistant` has those that talk by services.

#[cfg_attr(not(feature = "assistants"), path = "../io/absent.rs")]
pub mod assistant;
mod built_in;
pub mod echo;
pub mod parrot;

pub use built_in::built_in_bot;
