//! What the tests have for rooms: their server, their guest, and what that says.

// The tests use more of it.
#![allow(dead_code)]

#[path = "../../support/guest.rs"]
pub mod guest;
#[path = "../../support/room/mod.rs"]
pub mod room;
#[path = "../../support/sound.rs"]
pub mod sound;

/// What the guest wants to know of the tests' runner.
pub mod runner {
    use std::time::Duration;

    /// How long a guest waits for something.
    pub const PATIENCE: Duration = Duration::from_secs(60);
}
